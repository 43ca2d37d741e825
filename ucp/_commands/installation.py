# SPDX-License-Identifier: BSD-3-Clause
"""doctor: Python, this package, and other distributions in its directory."""

from __future__ import annotations

import importlib.machinery
import importlib.metadata
import os
import platform
import subprocess
import sys
import sysconfig
from pathlib import Path

from .._core import checkout, neighbours, startup
from .._version import __version__
from .finding import Findings, ended, note, ok, problem

_PACKAGE = Path(__file__).parents[1]
_LIMIT = 60.0  # seconds for an import
_AGAIN = (
    f"Install ucp again with the pip of this Python: {sys.executable} -m pip install "
    f"--force-reinstall {neighbours.DISTRIBUTION}"
)


def check() -> Findings:
    """Look at the installation."""
    yield from _python()
    yield from _package()
    yield from _owners()
    yield from _import()


def _python() -> Findings:
    version = platform.python_version()
    yield ok("Python", f"Python is {version}: {sys.executable}")
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        yield note(
            "Python",
            "This Python is built without the GIL; ucp turns the GIL on when it is "
            "imported.",
            "Use the usual build of Python if threads compute in your program.",
        )


def _package() -> Findings:
    extensions = sorted(_PACKAGE.glob("_ext*.so"))
    suffixes = importlib.machinery.EXTENSION_SUFFIXES
    if not extensions:
        yield problem(
            "package",
            f"{_PACKAGE} is a source tree without a compiled extension, and no ucp is "
            f"installed for {sys.executable}.",
            checkout.remedy(),
        )
    elif not any((_PACKAGE / f"_ext{suffix}").exists() for suffix in suffixes):
        yield problem(
            "package",
            f"The extension in {_PACKAGE} is {extensions[0].name}, which is built for "
            f"another Python; this one looks for _ext{suffixes[0]}.",
            _AGAIN,
        )
    elif not (_PACKAGE / "lib" / "libumx.so.0").exists():
        yield problem(
            "package",
            f"{_PACKAGE} has no lib/libumx.so.0, to which the extension is linked.",
            _AGAIN,
        )
    else:
        yield ok("package", f"ucp {__version__} is installed in {_PACKAGE}")


def _owners() -> Findings:
    """Who else has files in the directory: pip lets it happen."""
    ours = neighbours.DISTRIBUTION
    owners = set(importlib.metadata.packages_distributions().get("ucp", ()))
    others = sorted(owners - {ours})
    strange = [*_PACKAGE.glob("_libs/*.so"), *_PACKAGE.glob("ucp.py")]
    names = " ".join(others or ["ucx-py"])
    again = f"Run 'pip uninstall -y {names} {ours}', then install {ours} again."
    if strange:
        files = ", ".join(str(file.relative_to(_PACKAGE)) for file in strange)
        yield problem(
            "package",
            f"{_PACKAGE} has files of another distribution: {files}.",
            again,
        )
    elif others:
        yield problem(
            "package",
            f"The distributions {', '.join(others)} have a package ucp, too: pip "
            f"writes them into one directory, and the files of one replace those of "
            f"the other. The last one to be installed has won.",
            again,
        )
    elif ours not in owners and (_PACKAGE.parent / "setup.py").exists():
        yield note("package", "Importlib knows no installed distribution of ucp.")


def _import() -> Findings:
    """Import the package in a process of its own: it may crash."""
    try:
        done = subprocess.run(
            [*startup.python(), "-c", "import ucp"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_LIMIT,
        )
    except subprocess.TimeoutExpired:
        yield problem(
            "package",
            f"'import ucp' has not ended in {_LIMIT:g} s.",
            "Run it with 'python -X faulthandler -X importtime -c \"import ucp\"' to "
            "see where it stays. A directory of a network that does not answer in "
            "PYTHONPATH or LD_LIBRARY_PATH is a common reason.",
        )
        return
    lines = [line for line in done.stderr.strip().splitlines() if line]
    if done.returncode == 0:
        yield ok("package", "'import ucp' works")
        for line in lines:
            if "Warning:" in line:
                yield note("package", f"'import ucp' warns: {line}")
        return
    if done.returncode < 0:
        why = ended(done.returncode)
    else:
        errors = [line for line in lines if "Error: " in line]
        why = f"fails: {(errors or lines or ['it says nothing'])[-1]}"
    yield problem("package", f"'import ucp' {why}", _remedy(done.stderr))


def _remedy(text: str) -> str:
    if "source tree" in text:
        return checkout.remedy()
    if "noexec" in text:
        return "Install it on a file system that is mounted without noexec."
    if "lies in the archive" in text:
        return "Unpack the archive, or install ucp into a folder."
    if "ucp needs /proc" in text:
        return "Mount it: 'mount -t proc proc /proc'; containers have it by default."
    if "libumx" not in text and "UCX" in text:
        chosen = os.environ.get("UCP_UCX")
        start = "Install" if chosen is None else "Unset UCP_UCX, or install"
        return (
            f"{start} UCX with 'pip install libucx-cu12', or set UCP_UCX=system for "
            "the system's (Debian: apt-get install libucx0), or UCP_UCX=/dir for "
            "/dir/lib/libucp.so.0."
        )
    return _AGAIN
