# SPDX-License-Identifier: BSD-3-Clause
"""What ``python -m ucp doctor`` finds."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "note", "problem"]


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        check: what it belongs to, such as "shared memory".
        level: "ok"; "note", which is good to know; "problem", which keeps something
            from working.
        text: a sentence.
        remedy: what to do about it, a sentence; empty if there is nothing to do.
    """

    check: str
    level: Level
    text: str
    remedy: str = ""


Findings = Iterator[Finding]


def ok(check: str, text: str) -> Finding:
    return Finding(check, "ok", text)


def note(check: str, text: str, remedy: str = "") -> Finding:
    return Finding(check, "note", text, remedy)


def problem(check: str, text: str, remedy: str) -> Finding:
    return Finding(check, "problem", text, remedy)


def ended(status: int | None) -> str:
    """How a process has ended: "was killed by SIGSEGV", "ended with status 3"."""
    if status is None or status >= 0:
        return f"ended with status {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"was killed by signal {-status}"


def human(size: float) -> str:
    """8 B, 64 KiB, 1.5 GiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.3g} {unit}" if unit != "B" else f"{size:.0f} B"
        size /= 1024
    return f"{size:,.4g} TiB"
