#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Build and test ucp in Debian's newest suite: what `make matrix` does.

    tools/matrix.py [--suite sid] [--mirror URL] [--python 3.15 ...] [TEST ...]

The suite is unpacked by debootstrap in build/matrix, which needs root and Debian's
mirror, and is brought up to date each time; nothing is installed outside. There the
suite's own gcc, Pythons, UCX and cmocka build the library, tests of it in C, and the
extension for each Python, a warning being an error, and the tests run: in C those of
the rooms in ROOMS, in Python TEST or those in TESTS, without what needs packages that
are not in PACKAGES. Processes there have mounts, process numbers and shared memory of
their own, which end with them. The lines at the end say what has passed.
"""

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from wheels import ROOT, VERSIONS

HERE = ROOT / "build/matrix"
DEBIAN = (
    "gcc",
    "iproute2",
    "libc6-dev",
    "libcmocka-dev",
    "libucx-dev",
    "make",
    "pkgconf",
    "procps",
)
PACKAGES = (
    "anyio",
    "hypothesis",
    "libucx-cu12",  # for tests of it: all others use the suite's UCX
    "numpy",
    "pytest",
    "pytest-timeout",
    "pytest-xdist",
    "setuptools>=77",
    "uvloop",
)
ROOMS = ("util", "codec", "host", "keys", "worker", "data", "proxy")
# Debian builds UCX with assertions, and one of 1.23rc1's tcp does not hold there: a
# worker is destroyed, and its peer acknowledges what was put.
WITHOUT = ("test_worker",)
TESTS = ("tests/ext", "tests/core")
# A mirror may be a copy of another day; its signatures are checked.
CONFIG = """
APT::Install-Recommends "false";
Acquire::Languages "none";
Acquire::Check-Valid-Until "false";
"""
SECONDS = 1800  # for one step
# What the processes of the chroot see of this machine, and have of their own.
MOUNTS = """
mount --bind "$1" "$1"
mount -t proc proc "$1/proc"
mount --rbind /dev "$1/dev"
mount -t tmpfs tmpfs "$1/dev/shm"
mount --rbind /sys "$1/sys"
mount -t tmpfs tmpfs "$1/tmp"
mount -t tmpfs tmpfs "$1/run"
cd /
exec chroot "$@"
"""
APART = ("unshare", "--mount", "--ipc", "--pid", "--fork", "--kill-child")


class LeftOut(Exception):
    """Why this machine cannot do it."""


def run(*command: str | Path, before: tuple[str, ...] = (), **options: object) -> str:
    """What the command behind `before` prints; on failure it is shown."""
    print("+", shlex.join(map(str, command))[:150], flush=True)
    command = (*before, *command)
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        **options,
    )
    if done.returncode != 0:
        print(done.stdout, flush=True)
        done.check_returncode()
    return done.stdout


class Suite:
    """A suite of Debian in a folder."""

    def __init__(self, name: str, mirror: str | None) -> None:
        self.root = HERE / name
        made = HERE / f"{name}.made"
        if not made.exists():
            shutil.rmtree(self.root, ignore_errors=True)
            self.root.mkdir(parents=True)
            words = ["--variant=minbase", name, str(self.root)]
            words += [mirror] if mirror else []
            try:
                run("debootstrap", *words, before=APART)
            except subprocess.CalledProcessError as exc:
                raise LeftOut(f"debootstrap cannot get {name}") from exc
            made.touch()

    def run(self, *command: str, **env: str) -> str:
        """Run a command in the suite; it has no variables but these."""
        variables = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": "/root",
            "LC_ALL": "C.UTF-8",
            "DEBIAN_FRONTEND": "noninteractive",
            **env,
        }
        chroot = ("sh", "-ec", MOUNTS, "chroot", str(self.root))
        before = ("timeout", str(SECONDS), *APART, *chroot)
        return run(*command, before=before, env=variables)

    def install(self) -> None:
        """The newest of DEBIAN, and of Python each version that the suite has."""
        config = self.root / "etc/apt/apt.conf.d/90matrix"
        config.write_text(CONFIG)
        resolver = Path("/etc/resolv.conf")
        if resolver.exists():
            shutil.copy(resolver, self.root / "etc/resolv.conf")
        try:
            self.run("apt-get", "-qq", "update")
        except subprocess.CalledProcessError as exc:
            raise LeftOut("Debian's mirror does not answer") from exc
        self.run("apt-get", "-qq", "-y", "dist-upgrade")
        pythons = [f"python{version}" for version in VERSIONS]
        found = self.run("apt-cache", "pkgnames", "python3.").split()
        self.pythons = [name[6:] for name in pythons if f"{name}-dev" in found]
        more = [f"python{v}-{what}" for v in self.pythons for what in ("dev", "venv")]
        self.run("apt-get", "-qq", "-y", "install", *DEBIAN, *more)
        self.run("apt-get", "clean")

    def copy_tree(self) -> None:
        """Put the files of the working tree into /src, and keep what was built."""
        tree = self.root / "src"
        tree.mkdir(exist_ok=True)
        listed = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
        names = subprocess.check_output(listed, cwd=ROOT, text=True).split("\0")
        files = {name for name in names if name and (ROOT / name).is_file()}
        for path in tree.rglob("*"):
            name = str(path.relative_to(tree))
            is_built = name.startswith(("build/", "src/build/"))
            if path.is_file() and name not in files and not is_built:
                path.unlink()
        for name in files:
            copy, source = tree / name, ROOT / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            if not copy.exists() or copy.read_bytes() != source.read_bytes():
                shutil.copy(source, copy)


def test_c(suite: Suite) -> str:
    found = [file for room in ROOMS for file in ROOT.glob(f"tests/c/{room}/test_*.c")]
    names = {file.stem for file in found} - set(WITHOUT)
    make = ["make", "-C", "/src/src", f"-j{os.cpu_count()}", "UCP_WERROR=1"]
    said = suite.run(*make, "run-tests", f"TESTS={' '.join(sorted(names))}")
    return next(line for line in reversed(said.splitlines()) if "passed" in line)


def download(suite: Suite, version: str) -> None:
    """Put PACKAGES for a Python into the suite's /wheels."""
    words = ["-q", "-d", str(suite.root / "wheels"), "--only-binary=:all:"]
    words += ["--implementation", "cp", "--python-version", version]
    try:
        run(sys.executable, "-m", "pip", "download", *words, *PACKAGES)
    except subprocess.CalledProcessError as exc:
        raise LeftOut("the index has no wheels of what the tests need") from exc


def test_python(suite: Suite, version: str, tests: list[str]) -> str:
    download(suite, version)
    here = f"/venv-{version}"
    suite.run(f"python{version}", "-m", "venv", "--clear", here)
    pip = [f"{here}/bin/python", "-m", "pip", "-q", "install", "--no-index"]
    suite.run(*pip, "--find-links=/wheels", *PACKAGES)
    env = {"UCP_UCX": "system", "UCP_WERROR": "1"}
    suite.run(*pip, "--no-deps", "--no-build-isolation", "/src", **env)
    pytest = f"cd /src && exec {here}/bin/python -P -m pytest -q -p no:cacheprovider"
    words = f"-n {2 * (os.cpu_count() or 1)} {shlex.join(tests or TESTS)}"
    said = suite.run("sh", "-c", f"{pytest} {words}", **env)
    return re.sub(r"=+ ?| ?=+", "", said.splitlines()[-1])


def results(suite: Suite, asked: list[str], tests: list[str]) -> Iterator[str]:
    """A line for each thing that was tested."""
    steps = [] if tests else [("tests in C", partial(test_c, suite))]
    for version in asked or suite.pythons:
        one = partial(test_python, suite, version, tests)
        steps.append((f"CPython {version}", one))
    for name, step in steps:
        try:
            yield f"{name}: {step()}"
        except LeftOut as exc:
            yield f"{name}: left out, {exc}"
        except subprocess.CalledProcessError:
            yield f"{name}: failed"


def versions(suite: Suite) -> str:
    """What the suite has of what matters."""
    wanted = ["gcc", "libc6", "libcmocka-dev", "libucx-dev"]
    wanted += [f"python{version}" for version in suite.pythons]
    form = "--showformat=${Package} ${Version}\n"
    return ", ".join(suite.run("dpkg-query", "-W", form, *wanted).splitlines())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--suite", default="sid")
    parser.add_argument("--mirror", default=None)
    parser.add_argument("--python", action="append", default=[])
    parser.add_argument("tests", nargs="*", metavar="TEST")
    options = parser.parse_args()
    HERE.mkdir(parents=True, exist_ok=True)
    try:
        if os.geteuid() != 0:
            raise LeftOut("a chroot needs root")
        require = ["sh", str(ROOT / "tools/require.sh"), "debootstrap", "debootstrap"]
        if subprocess.run([*require, "command -v debootstrap"]).returncode != 0:
            raise LeftOut("there is no debootstrap")
        suite = Suite(options.suite, options.mirror)
        suite.install()
    except LeftOut as exc:
        print(f"Debian's {options.suite} is left out: {exc}")
        return
    suite.copy_tree()
    lines = [versions(suite)]
    for line in results(suite, options.python, options.tests):
        print(line, flush=True)
        lines.append(line)
    print(*lines, sep="\n")
    sys.exit(any(line.endswith(": failed") for line in lines))


if __name__ == "__main__":
    main()
