# SPDX-License-Identifier: BSD-3-Clause
"""Why a program ends: what the other ranks of its communicators are told."""

from __future__ import annotations

import sys

_MAX_REASON = 160  # characters of an exception that the other ranks are told


def reason_of(exc: BaseException) -> str:
    """Say to the other ranks why this one aborts."""
    try:
        text = str(exc).replace("\0", "\\0")
    except Exception:  # a program's class may raise
        text = ""
    name = type(exc).__name__
    return (f"{name}: {text}" if text else name)[:_MAX_REASON]


def fault_of(exc: BaseException) -> tuple[int, int, int] | None:
    """Say whose fault it is that this rank aborts, if ``exc`` names another."""
    return getattr(exc, "_fault", None)


def is_failure(exc: BaseException | None) -> bool:
    """Does a program that this exception ends fail? ``sys.exit()`` and
    ``sys.exit(0)`` are a good end."""
    if isinstance(exc, SystemExit):
        return exc.code is not None and exc.code != 0
    return exc is not None


def unhandled() -> BaseException | None:
    """The exception that nothing has caught and that ends the process; or None.

    To be called at the exit of the interpreter. An interactive interpreter goes on
    after such an exception, and so ends well. ``sys.exit()`` leaves no trace.
    """
    if sys.flags.interactive or hasattr(sys, "ps1"):
        return None
    exc = getattr(sys, "last_value", None)
    return exc if isinstance(exc, BaseException) else None
