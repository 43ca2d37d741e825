#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Build what a machine with a GPU and without a network needs: `make gpu-bundle`.

    tools/gpu_bundle.py [--out build/gpu-bundle] [--venv .venv-gpu] [--python 3.12]

The folder has our package for that Python, UCX without what nobody loads there,
pytest and what the tests need, the tests, the benchmarks, and the script `run`,
which needs no installation. Packages that the machine has itself are not used from
the folder: NumPy, CuPy and torch are never in it.
"""

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from wheels import candidates, describe

ROOT = Path(__file__).parents[1]
VERSION = "3.12"
LIMIT = 64 << 20  # bytes of the whole
BUILD = ("setuptools>=77", "numpy")
UCX = "libucx-cu12"
# What tests/devices and the tests of devices import, and what these need.
PACKAGES = (
    *("pytest>=8", "pytest-timeout", "pytest-xdist", "anyio", "hypothesis"),
    *("uvloop", "distributed>=2026.7"),
)
# Of the machine, with CuPy and torch.
OF_MACHINE = ("numpy", "pandas", "pyarrow")
# Of UCX: what ucp/_core/loader.py and UCX itself load, by these names.
UCX_LIBRARIES = ("libucm.so.0", "libucs.so", "libuct.so", "libucp.so")
UCX_MODULES = ("libucm_cuda.so", "libuct_cuda.so", "libuct_cma.so")
# Folders of libraries that UCX's modules need, and the names that these begin with.
UCX_OTHERS = {"libucx_cu12.libs": "libcudart", "libucx_cu13.libs": "libcudart"}
# The tree that the tests expect around them.
TREE = ("tests", "benchmarks", "examples", "include", "pyproject.toml")
LEFT_OUT = shutil.ignore_patterns(
    *("__pycache__", "*.pyc", "corpus", "fuzz", "results", "soak", "*.so"),
    *("native", "build"),
)

RUN = """\
#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# run check|figures|python [OUTDIR] [options]: see "On a machine with a GPU" in
# docs/hacking.md. PYTHON=... chooses the interpreter, by default python3.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}
what=${1:-}
[ $# -eq 0 ] || shift
if [ "$what" = python ]; then
    PYTHONPATH=$("$python" -P "$here/path.py")
    export PYTHONPATH
    exec "$python" -P "$@"
fi
out=${1:-.}
[ $# -eq 0 ] || shift
case $what in
check | figures) ;;
*) echo "expected: run check|figures|python [OUTDIR] [options]" >&2; exit 2 ;;
esac
PYTHONPATH=$("$python" -P "$here/path.py")
export PYTHONPATH
mkdir -p "$out"
out=$(cd "$out" && pwd)
case $what in
check) set -- tests/devices "$@" ;;
figures)
    unset PYTHONSAFEPATH # the modules lie beside the program
    set -- benchmarks/gpu.py --json "$out/figures.json" "$@" ;;
esac
cd "$here/tree"
{ status=0; "$python" "$@" 2>&1 || status=$?; echo "$status" >"$out/.status"; } |
    tee "$out/$what.txt"
status=$(cat "$out/.status")
rm "$out/.status"
exit "$status"
"""

PATH = '''\
# SPDX-License-Identifier: BSD-3-Clause
"""Print the PYTHONPATH of `run`: our package, and packages that this Python lacks."""

import os
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

HERE = Path(__file__).resolve().parent
VERSION = (HERE / "python-version").read_text().strip()

found = "%d.%d" % sys.version_info[:2]
if found != VERSION:
    sys.exit(
        f"this folder is for Python {VERSION}, and {sys.executable} is {found}: "
        "PYTHON=... names another"
    )
paths = [HERE / "site"]
for folder in sorted((HERE / "packages").iterdir()):
    try:
        version(folder.name)
    except PackageNotFoundError:
        paths.append(folder)
print(os.pathsep.join(map(str, paths)))
'''


def run(*command: str | Path, **options: object) -> str:
    print("+", shlex.join(map(str, command)), flush=True)
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, **options)
    if done.returncode != 0:
        sys.exit(done.stdout + done.stderr)
    return done.stdout


def interpreter(named: str) -> str:
    """A CPython with its headers; named by "3.12", or as a program."""
    is_version = named.replace(".", "").isdigit()
    tried = list(candidates((named,))) if is_version else [named]
    for python in tried:
        about = describe(python)
        if about is None:
            continue
        if not about.has_headers:
            print(f"{python} is left out: it has no Python.h")
        elif not is_version or about.version == named:
            return about.path
    sys.exit(
        f"make gpu-bundle found no CPython {named} with its GIL and its headers "
        f"(tried {', '.join(tried)}): install one, or name it by GPU_PYTHON=..."
    )


def environment(python: str, venv: Path) -> Path:
    """The Python of a venv of that interpreter, with what a build needs."""
    ours = venv / "bin/python"
    about, wanted = describe(str(ours)), describe(python)
    if about is None or wanted is None or about.version != wanted.version:
        run(python, "-m", "venv", "--clear", venv)
    run(ours, "-m", "pip", "install", "-q", *BUILD, UCX)
    return ours


def install(python: Path, target: Path, *what: str | Path) -> None:
    pip = [python, "-m", "pip", "install", "-q", "--no-deps", "--no-compile"]
    run(*pip, "--upgrade", "--target", target, *what)


def build_site(python: Path, site: Path, folder: Path) -> None:
    """Our package, and UCX."""
    build = ["--no-build-isolation", "--no-deps"]
    for old in ROOT.glob("build/*/lib.*/**/*.py*"):
        old.unlink()  # setuptools would take deleted modules along
    run(python, "-m", "pip", "wheel", "-q", *build, "-w", folder, ROOT)
    install(python, site, *folder.glob("umx-*.whl"), UCX)
    shutil.rmtree(site / "bin", ignore_errors=True)
    for path in list(walk(site / "libucx")):
        inside = path.relative_to(site / "libucx").parts
        is_library = inside[0] == "lib" and inside[-1] in (
            UCX_LIBRARIES if len(inside) == 2 else UCX_MODULES
        )
        if not is_library and (path.suffix != ".py" or len(inside) > 1):
            path.unlink()
    for name, prefix in UCX_OTHERS.items():
        for path in list(walk(site / name)):
            if not path.name.startswith(prefix):
                path.unlink()


def build_packages(python: Path, packages: Path, folder: Path) -> None:
    """A folder for each package, of the name by which metadata knows it."""
    pip = [python, "-m", "pip", "download", "-q", "--only-binary=:all:"]
    run(*pip, "-d", folder, *PACKAGES)
    for wheel in sorted(folder.glob("*.whl")):
        name = wheel.name.partition("-")[0].replace("_", "-").lower()
        if name not in OF_MACHINE:
            install(python, packages / name, wheel)


def walk(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())


def strip(folder: Path) -> None:
    """Without symbols for debuggers, which are half of it."""
    for path in walk(folder):
        if ".so" in path.suffixes and path.read_bytes()[:4] == b"\x7fELF":
            path.chmod(0o755)
            run_quietly("strip", "--strip-unneeded", path)


def run_quietly(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{shlex.join(map(str, command))}: {done.stderr}")


def remove_empty(folder: Path) -> None:
    for path, _, _ in os.walk(folder, topdown=False):
        if not os.listdir(path):
            os.rmdir(path)


def copy_tree(tree: Path) -> None:
    for name in TREE:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tree / name, ignore=LEFT_OUT)
        else:
            shutil.copy(ROOT / name, tree / name)


def write_scripts(out: Path, version: str) -> None:
    (out / "run").write_text(RUN)
    (out / "run").chmod(0o755)
    (out / "path.py").write_text(PATH)
    (out / "python-version").write_text(f"{version}\n")


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in walk(folder))


def report(out: Path) -> None:
    parts = [out / "site" / name for name in ("ucp", "libucx", "libucx_cu12.libs")]
    parts += [*sorted((out / "packages").iterdir()), out / "tree"]
    for part in sorted(filter(Path.exists, parts), key=size_of, reverse=True)[:12]:
        print(f"{size_of(part) / 1e6:7.2f} MB  {part.relative_to(out)}")
    total = size_of(out)
    print(f"{total / 1e6:7.2f} MB  {out}")
    if total > LIMIT:
        sys.exit(f"the folder is larger than {LIMIT >> 20} MiB")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=ROOT / "build/gpu-bundle")
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv-gpu")
    parser.add_argument("--python", default=VERSION, help="3.12, or a program")
    options = parser.parse_args()
    out = options.out.resolve()
    if shutil.which("strip") is None:
        sys.exit("make gpu-bundle needs strip, of the package binutils")
    python = environment(interpreter(options.python), options.venv.resolve())
    about = describe(str(python))
    shutil.rmtree(out, ignore_errors=True)
    (out / "tree").mkdir(parents=True)
    (out / "packages").mkdir()
    with tempfile.TemporaryDirectory() as folder:
        build_site(python, out / "site", Path(folder, "ours"))
        build_packages(python, out / "packages", Path(folder, "packages"))
    strip(out)
    copy_tree(out / "tree")
    write_scripts(out, about.version)
    remove_empty(out)
    # In the venv, which has NumPy and UCX, too: what is imported is the folder's.
    code = "import ucp; assert ucp.__file__.startswith({0!r}), ucp.__file__; print({1})"
    shown = code.format(str(out), "ucp.__version__, ucp.which_ucx()")
    env = {**os.environ, "PYTHON": str(python)}
    print(run("sh", out / "run", "python", "-c", shown, env=env), end="")
    report(out)


if __name__ == "__main__":
    main()
