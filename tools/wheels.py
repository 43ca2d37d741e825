#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Build the sdist and a wheel for each CPython at hand: what `make wheels` runs.

    tools/wheels.py [--out dist] [--python python3.12 ...] [--find-links FOLDER]

Interpreters are python3.11 and newer in PATH, and those of pyenv; --python names
others instead. The wheels are built from the sdist, each in an environment of its
own, with one libumx. They are stripped, and get the oldest manylinux tag that their
symbols allow: the number in the tag is the glibc that they need. UCX stays outside,
it is the dependency libucx-cu12. With --find-links nothing is downloaded: the folder
has what the build requires. At its end it prints sizes and contents.
"""

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
VERSIONS = ("3.11", "3.12", "3.13", "3.14", "3.15")
# What the wheel does not have, since its dependency has it, or has already.
OUTSIDE = ("libucm.so.0", "libucs.so.0", "libuct.so.0", "libucp.so.0", "libumx.so.0")
# What must be in a wheel, beside the extension.
WANTED = (
    "ucp/__init__.py",
    "ucp/py.typed",
    "ucp/_ext.pyi",
    "ucp/lib/libumx.so",
    "ucp/lib/libumx.so.0",
    "ucp/lib/pkgconfig/umx.pc",
    "ucp/lib/cmake/umx/umx-config.cmake",
    "ucp/include/umx/umx.h",
)
# The linker script libumx.so and the marker py.typed are meant.
CHECK_WHEEL = ("check-wheel-contents", "--toplevel", "ucp")


def run(*command: str | Path, **env: str) -> None:
    print("+", shlex.join(map(str, command)), flush=True)
    done = subprocess.run(
        command,
        env={**os.environ, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode != 0:
        sys.exit(done.stdout)


def tool(name: str) -> list[str | Path]:
    """A program of this environment, whose folder need not be in PATH."""
    return [Path(sys.executable).parent / name]


def candidates(versions: tuple[str, ...] = VERSIONS) -> Iterator[str]:
    for version in versions:
        yield f"python{version}"
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    for version in versions:
        yield from map(str, sorted(pyenv.glob(f"versions/{version}.*/bin/python")))


class Interpreter(NamedTuple):
    """A CPython with its GIL; its version is such as "3.12"."""

    path: str
    version: str
    has_headers: bool


def describe(python: str) -> Interpreter | None:
    """What the name stands for; None if that is no CPython that can be started."""
    code = (
        "import os, sys, sysconfig as s; print(sys.implementation.name,"
        "bool(s.get_config_var('Py_GIL_DISABLED')), '%d.%d' % sys.version_info[:2],"
        "os.path.exists(s.get_path('include') + '/Python.h'), sys.executable)"
    )
    try:
        done = subprocess.run(
            [python, "-I", "-c", code], capture_output=True, text=True, timeout=60
        )
    except OSError:
        return None
    words = done.stdout.split()
    if done.returncode != 0 or words[:2] != ["cpython", "False"]:
        return None
    return Interpreter(" ".join(words[4:]), words[2], words[3] == "True")


def interpreters(named: list[str]) -> dict[str, str]:
    """An interpreter for each version."""
    found: dict[str, str] = {}
    for python in named or candidates():
        about = describe(python)
        if about is None or about.version not in VERSIONS:
            if named:
                sys.exit(
                    f"{python}: expected a CPython {VERSIONS[0]} to {VERSIONS[-1]} "
                    "with its GIL"
                )
        elif about.version not in found:
            if about.has_headers:
                found[about.version] = about.path
            else:
                print(f"{python} is left out: it has no Python.h")
    if not found:
        sys.exit(
            f"there is no CPython {VERSIONS[0]} to {VERSIONS[-1]} with its GIL and "
            "its headers; --python names one"
        )
    return found


def build_sdist(out: Path) -> Path:
    run(*tool("python"), "-m", "build", "--sdist", "--outdir", out, ROOT)
    return max(out.glob("*.tar.gz"), key=lambda path: path.stat().st_mtime)


def build_wheel(python: str, tree: Path, links: str | None, out: Path) -> Path:
    compiler = os.environ.get("CC", "cc")
    # Not the linker's options of the interpreter's own build: those may name its
    # folders.
    env = {"CC": compiler, "LDSHARED": f"{compiler} -shared", "LDFLAGS": ""}
    index = ["--no-index", f"--find-links={links}"] if links else []
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder, "plain")
        pip = [*tool("python"), "-m", "pip", "-q", "--python", python]
        run(*pip, "wheel", "--no-deps", *index, "-w", plain, tree, **env)
        (wheel,) = plain.glob("*.whl")
        excluded = [f"--exclude={name}" for name in OUTSIDE]
        repaired = Path(folder, "repaired")
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        run(
            *(*tool("auditwheel"), "repair", "--strip", "--plat=auto", *excluded),
            *("-w", repaired, wheel),
            PATH=path,
        )
        (wheel,) = repaired.glob("*.whl")
        return Path(shutil.move(wheel, out / wheel.name))


def check(sdist: Path, wheels: list[Path]) -> None:
    run(*tool("twine"), "check", "--strict", sdist, *wheels)
    name, *options = CHECK_WHEEL
    run(*tool(name), *options, *wheels)
    for wheel in wheels:
        names = zipfile.ZipFile(wheel).namelist()
        missing = [name for name in WANTED if name not in names]
        if missing or not any(name.endswith("licenses/LICENSE") for name in names):
            sys.exit(f"{wheel} lacks {missing or 'LICENSE'}")
        alien = [name for name in names if re.search(r"libuc[mpst]\.so", name)]
        if alien:
            sys.exit(f"{wheel} has {alien}, which libucx-cu12 has")
    with tarfile.open(sdist) as archive:
        names = archive.getnames()
    if not any(name.count("/") == 1 and name.endswith("/LICENSE") for name in names):
        sys.exit(f"{sdist} lacks LICENSE")


def check_recipe() -> None:
    """Have rattler-build read the recipe of conda: it knows each field of it."""
    from rattler_build import RenderConfig, Stage0Recipe, VariantConfig

    recipe = Stage0Recipe.from_file(str(ROOT / "packaging/conda/recipe.yaml"))
    (version,) = re.findall(r'"(.+)"', (ROOT / "ucp/_version.py").read_text())[-1:]
    variants = VariantConfig({"c_stdlib": ["sysroot"]})
    for variant in recipe.render(variants, RenderConfig()):
        if str(variant.recipe.package.version) != version:
            sys.exit(f"packaging/conda/recipe.yaml: expected version {version}")


def report(sdist: Path, wheels: list[Path]) -> None:
    print(f"\n{sdist.name}: {sdist.stat().st_size / 1e6:.2f} MB")
    for wheel in wheels:
        glibc = re.search(r"manylinux_(\d+)_(\d+)_", wheel.name)
        needs = f"glibc {'.'.join(glibc.groups())} or newer" if glibc else "this host"
        print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.2f} MB, needs {needs}")
        members = zipfile.ZipFile(wheel).infolist()
        for member in sorted(members, key=lambda one: -one.file_size)[:3]:
            print(f"    {member.file_size / 1e6:6.2f} MB  {member.filename}")
        print(f"    {len(members)} files")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    parser.add_argument("--python", action="append", default=[])
    parser.add_argument("--find-links", metavar="FOLDER")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for old in (*options.out.glob("umx-*.whl"), *options.out.glob("umx-*.tar.gz")):
        old.unlink()
    sdist = build_sdist(options.out)
    with tempfile.TemporaryDirectory() as folder:
        shutil.unpack_archive(sdist, folder, filter="data")
        (tree,) = Path(folder).iterdir()
        wheels = [
            build_wheel(python, tree, options.find_links, options.out)
            for python in interpreters(options.python).values()
        ]
    check(sdist, wheels)
    check_recipe()
    report(sdist, wheels)


if __name__ == "__main__":
    main()
