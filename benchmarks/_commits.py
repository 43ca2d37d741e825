# SPDX-License-Identifier: BSD-3-Clause
"""Builds of other commits of this repository, each in a venv of its own.

They are in build/compare, and are kept. Such a venv has the ucp of its commit; all
else, UCX, NumPy and uvloop, it finds where this Python has it, so that two commits
differ in nothing but ucp.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "build/compare"
LIMIT = 1800.0  # seconds for a build
# They change what is built: the build of this tree may have been made with others.
KINDS_OF_BUILD = ("UCP_DEBUG", "UCP_SANITIZE", "UCP_WERROR")


class BuildError(Exception):
    """There is no such commit, or it cannot be built; the text is for the user."""


def git(*words: str) -> bytes:
    try:
        done = subprocess.run(
            ["git", "-C", str(ROOT), *words], capture_output=True, check=False
        )
    except FileNotFoundError:
        raise BuildError("git is not installed: commits are taken from it") from None
    if done.returncode != 0:
        raise BuildError(done.stderr.decode(errors="replace").strip())
    return done.stdout


def resolve(name: str) -> str:
    """The hash of a commit."""
    try:
        return git("rev-parse", "--verify", f"{name}^{{commit}}").decode().strip()
    except BuildError as error:
        raise BuildError(
            f"BASE={name}: git finds no such commit in {ROOT} ({error}); give a "
            "commit, a tag or a branch, as BASE=HEAD~3"
        ) from None


def describe(commit: str) -> str:
    """Its short hash and its subject."""
    return git("show", "-s", "--format=%h %s", commit).decode().strip()


def folder_of(commit: str) -> Path:
    return FOLDER / commit[:12]


def python_of(commit: str) -> str:
    """A Python that has the ucp of the commit; builds it if it is not there yet."""
    folder = folder_of(commit)
    python, made = folder / "venv/bin/python", folder / "made"
    if not made.exists() or made.read_text() != stamp():
        print(f"building {describe(commit)} in {folder.relative_to(ROOT)}", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        build(commit, folder)
        made.write_text(stamp())
    return str(python)


def stamp() -> str:
    """What another build would be needed for."""
    choice = os.environ.get("UCP_UCX") or "wheel"
    return f"Python {sys.version} of {sys.prefix}, UCX {choice}\n"


def build(commit: str, folder: Path) -> None:
    source, venv = folder / "source", folder / "venv"
    source.mkdir(parents=True)
    archive = git("archive", commit)
    subprocess.run(["tar", "-x", "-C", str(source)], input=archive, check=True)
    run(sys.executable, "-m", "venv", "--without-pip", str(venv))
    code = "import sysconfig; print(sysconfig.get_path('platlib'))"
    site = Path(run(str(venv / "bin/python"), "-c", code).strip())
    ours = dict.fromkeys(sysconfig.get_path(name) for name in ("platlib", "purelib"))
    (site / "beside.pth").write_text("".join(f"{path}\n" for path in ours))
    options = ["-q", "--no-build-isolation", "--no-deps", "--target", str(site)]
    run(sys.executable, "-m", "pip", "install", *options, str(source))
    shutil.rmtree(source)


def run(*words: str) -> str:
    """The output of a command that succeeds; the end of it if it does not."""
    env = {k: v for k, v in os.environ.items() if k not in KINDS_OF_BUILD}
    try:
        done = subprocess.run(
            words,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise BuildError(f"{' '.join(words)}: took longer than {LIMIT:g} s") from None
    if done.returncode != 0:
        end = "\n".join(done.stdout.splitlines()[-30:])
        raise BuildError(f"{' '.join(words)}: exit status {done.returncode}\n{end}")
    return done.stdout


def check(python: str, inside: Path) -> None:
    """Raise BuildError unless this Python has a ucp of its own that is optimised."""
    code = "import os, ucp; print(os.path.dirname(ucp.__file__))"
    package = Path(run(python, "-P", "-c", code).splitlines()[-1])
    if not package.is_relative_to(inside):
        raise BuildError(f"{python} imports ucp from {package}, not from {inside}")
    for library in (*package.glob("*.so"), *package.glob("lib/*.so*")):
        if b"__assert_fail" in library.read_bytes():
            raise BuildError(
                f"{library} was built with assertions, as by UCP_DEBUG=1, and would be "
                "slower: touch setup.py && make .venv/.ucp"
            )
