# SPDX-License-Identifier: BSD-3-Clause
"""What happens while Python imports ucp for ``python -m ucp COMMAND``, or for the
script ``ucp COMMAND``, which pip makes.

Python imports the package before it runs a command. If that fails,
``python -m ucp doctor`` still has to say why. This module needs nothing but the
standard library.
"""

from __future__ import annotations

import os
import sys
from types import TracebackType

HINT = "'python -m ucp doctor' looks for the reason and tells a remedy"


def program() -> str:
    """What was typed in front of the command, for texts about the command itself."""
    return "ucp" if _is_script() else "python -m ucp"


def python() -> list[str]:
    """Python, for a process that shall find ucp where this one has found it."""
    # A script has no current directory on sys.path; -m has one unless -P is given.
    is_safe = sys.flags.safe_path or _is_script()
    return [sys.executable, *(["-P"] if is_safe else [])]


def _is_script() -> bool:
    """Is this process the script ``ucp``?"""
    return bool(sys.argv) and os.path.basename(sys.argv[0]) == "ucp"


def command() -> str | None:
    """The command of ``python -m ucp``, while Python imports ucp to run it."""
    arguments = _arguments()
    return arguments[0] if arguments else None


def _arguments() -> list[str] | None:
    """The arguments of ``python -m ucp``; None: another program imports ucp."""
    if _is_script():
        return sys.argv[1:]
    # While Python looks for the module of -m, sys.argv begins with "-m", and
    # sys.orig_argv has the name of the module in front of the arguments.
    if sys.argv[:1] != ["-m"]:
        return None
    module = sys.orig_argv[-len(sys.argv)]  # "ucp", "-mucp" or "-Pmucp"
    is_ours = module == "ucp" or (module.startswith("-") and module.endswith("mucp"))
    return sys.argv[1:] if is_ours else None


def runs_without_ucx() -> bool:
    """Is this ``python -m ucp`` as it needs no UCX: doctor, help, the version?"""
    arguments = _arguments()
    if arguments is None:
        return False
    if not arguments or arguments[0] in ("doctor", "-h", "--help", "-V", "--version"):
        return True
    return arguments[1:] in (["-h"], ["--help"])


def interrupt_quietly() -> None:
    """Print no traceback when Ctrl-C ends this program.

    Python ends a program that does not catch KeyboardInterrupt by SIGINT, after it
    has called ``sys.excepthook``. A shell sees that as status 130.
    """
    sys.excepthook = _hook


def _hook(
    kind: type[BaseException], exc: BaseException, traceback: TracebackType | None
) -> None:
    if not issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, exc, traceback)
    elif sys.stderr is not None and sys.stderr.isatty():
        print(file=sys.stderr)  # the shell's prompt comes on a line of its own
