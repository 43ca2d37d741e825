#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Install what `make wheels` has built into empty environments, and use it.

    tools/wheels_test.py [--dist dist] [--python python3.12 ...] [--only WHAT]

For each wheel and an interpreter for it, without a compiler in PATH:

    program   pip install from a folder of wheels, without an index, then the program
              of README.md: prints the seconds, which must be fewer than 15
    system    the program with Debian's UCX, which apt downloads; nothing is installed
    bounds    the oldest dependencies that pyproject.toml admits, and tests with them

And for the sdist:

    sdist     it is built without an index, from a folder of what the build requires
    refused   Python 3.10 and older are told so, and nothing is downloaded
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

from wheels import ROOT, Interpreter, candidates, describe, interpreters

SECONDS = 15
CHECKS = ("program", "system", "bounds", "sdist", "refused")
# Tests that use what has a lower bound.
TESTS = (
    "tests/core/test_import.py",
    "tests/core/test_asyncio.py",
    "tests/core/test_loops.py",
    "tests/ext/test_buffers.py",
    "tests/table/test_parquet.py",
    "tests/table/test_table.py",
    "tests/join/test_frames.py",
    "tests/dask/test_dask.py",
)


def run(*command: str | Path, path: str | None = None, **options: object) -> str:
    """What the command prints; it must succeed."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    env |= {"PATH": path} if path is not None else {}
    env |= options.pop("env", {})
    done = subprocess.run(
        command,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        **options,
    )
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}")
    return done.stdout


def readme() -> str:
    """The first program of README.md."""
    text = (ROOT / "README.md").read_text()
    found = re.search(r"^```python.*?\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found.group(1)


class Environment:
    """An empty virtual environment."""

    def __init__(self, folder: Path, python: str) -> None:
        run(python, "-m", "venv", folder)
        self.bin = folder / "bin"
        self.python = self.bin / "python"

    def pip(self, *words: str | Path, **options: object) -> None:
        run(self.python, "-m", "pip", "-q", "install", *words, **options)

    def run(self, program: str, **env: str) -> str:
        # Nothing but the environment's programs is found: no compiler.
        return run(self.python, "-c", program, path=str(self.bin), env=env, cwd="/")


def download(python: str, wheels: Path, *what: str | Path) -> None:
    run(
        sys.executable,
        "-m",
        "pip",
        "-q",
        "--python",
        python,
        "download",
        "-d",
        wheels,
        *what,
    )


def wheel_for(version: str, dist: Path) -> Path:
    tag = "cp" + version.replace(".", "")
    found = sorted(dist.glob(f"*-{tag}-{tag}-*.whl"))
    if not found:
        sys.exit(f"{dist} has no wheel for {tag}: make wheels")
    return found[0]


def program(version: str, python: str, dist: Path, folder: Path) -> str:
    house = folder / "house"
    download(python, house, wheel_for(version, dist), "numpy")
    began = time.monotonic()
    here = Environment(folder / "env", python)
    index = ("--no-index", f"--find-links={house}", "--only-binary=:all:")
    here.pip(*index, "umx[numpy]", path=str(here.bin))
    installed = time.monotonic()
    output = here.run(readme())
    ended = time.monotonic()
    assert output.split() == ["1999998.0"], output
    if ended - began >= SECONDS:
        sys.exit(f"{version}: {ended - began:.1f} s, expected less than {SECONDS}")
    return (
        f"environment and installation {installed - began:.1f} s, program "
        f"{ended - installed:.1f} s"
    )


def debian_ucx(folder: Path) -> Path:
    """Debian's UCX in a folder as UCP_UCX wants it; nothing is installed."""
    folder.mkdir()
    run("apt-get", "-qq", "download", "libucx0", "libucx-dev", cwd=folder)
    for package in folder.glob("*.deb"):
        run("dpkg", "-x", package, folder / "root")
    (lib,) = (folder / "root/usr/lib").glob("*-linux-gnu")
    (folder / "lib").symlink_to(lib)
    (folder / "include").symlink_to(folder / "root/usr/include")
    return folder


def system(version: str, python: str, dist: Path, folder: Path) -> str:
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        return "left out: there is no apt"
    ucx = debian_ucx(folder / "ucx")
    here = Environment(folder / "env", python)
    here.pip(wheel_for(version, dist), "numpy")
    code = readme() + "print(ucp.which_ucx().kind, ucp.which_ucx().version)\n"
    found = here.run(code, UCP_UCX=str(ucx)).split()
    assert found[:2] == ["1999998.0", "dir"], found
    return f"the wheel with UCX {found[2]}"


def oldest(extras: tuple[str, ...]) -> Iterator[str]:
    """Each requirement with a lower bound, pinned to it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lists = [project["optional-dependencies"][extra] for extra in extras]
    for requirement in {*project["dependencies"], *(one for x in lists for one in x)}:
        bound = re.match(r"([\w.-]+)>=([\w.]+)$", requirement)
        if bound:
            dot = "" if "." in bound[2] else ".0"
            yield f"{bound[1]}=={bound[2]}{dot}.*"


def bounds(version: str, python: str, dist: Path, folder: Path) -> str:
    if version != "3.11":
        return "left out: the oldest of all are for Python 3.11"
    here = Environment(folder / "env", python)
    extras = ("numpy", "uvloop", "arrow", "polars", "dask", "test")
    pins = sorted(oldest(extras))
    others = (
        "pytest-timeout",
        "pytest-xdist",
        "hypothesis",
        "anyio",
        "dask[dataframe]",
    )
    here.pip(wheel_for(version, dist), *pins, *others, "--only-binary=:all:")
    tests = [ROOT / test for test in TESTS]
    options = ("-q", "-p", "no:cacheprovider", "-n", "2")
    output = run(here.python, "-P", "-m", "pytest", *options, *tests, cwd=ROOT)
    return f"{' '.join(pins)}: {output.splitlines()[-1]}"


def sdist(python: str, dist: Path, folder: Path) -> str:
    (source,) = dist.glob("*.tar.gz")
    house = folder / "house"
    download(python, house, "setuptools>=77", "numpy>=2", "libucx-cu12>=1.19")
    began = time.monotonic()
    here = Environment(folder / "env", python)
    here.pip("--no-index", f"--find-links={house}", source)
    output = here.run("import ucp; print(ucp.__version__)")
    return f"{output.strip()} built in {time.monotonic() - began:.0f} s"


def old_pythons() -> Iterator[Interpreter]:
    for version in ("3.10", "3.9", "3.8"):
        for python in candidates((version,)):
            about = describe(python)
            if about is not None:
                yield about
                break


def refused(dist: Path, folder: Path) -> str:
    (source,) = dist.glob("*.tar.gz")
    told = []
    for number, python in enumerate(old_pythons()):
        env = folder / f"env{number}"
        run(python.path, "-m", "venv", env)
        command = (env / "bin/python", "-m", "pip", "install", "--no-cache-dir", source)
        began = time.monotonic()
        done = subprocess.run(command, capture_output=True, text=True)
        text = done.stdout + done.stderr
        assert done.returncode != 0 and "Downloading" not in text, text
        assert "ucp needs CPython 3.11 or newer" in text, text
        told.append(f"{python.version} in {time.monotonic() - began:.1f} s")
    return ", ".join(told) or "left out: there is no older Python"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dist", type=Path, default=ROOT / "dist")
    parser.add_argument("--python", action="append", default=[])
    parser.add_argument("--only", action="append", choices=CHECKS, default=[])
    options = parser.parse_args()
    found = interpreters(options.python)
    for name in options.only or CHECKS:
        check = globals()[name]
        with tempfile.TemporaryDirectory() as folder:
            if name == "sdist":
                python = found[min(found)]
                print(f"sdist: {check(python, options.dist, Path(folder))}", flush=True)
            elif name == "refused":
                print(f"refused: {check(options.dist, Path(folder))}", flush=True)
            else:
                for version, python in sorted(found.items()):
                    place = Path(folder, version)
                    place.mkdir()
                    said = check(version, python, options.dist, place)
                    print(f"{name} {version}: {said}", flush=True)


if __name__ == "__main__":
    main()
