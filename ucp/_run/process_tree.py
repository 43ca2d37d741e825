# SPDX-License-Identifier: BSD-3-Clause
"""The processes below this one: keep them together, signal them, end them.

A process that adopts orphans stays the ancestor of all that its children
start, whatever sessions these make and whichever of them end first.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from typing import NamedTuple

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

_prctl = ctypes.CDLL(None, use_errno=True).prctl

# How long to wait for a child's end before processes are looked for again: one
# may have been missed while it got another parent.
_LOOK_AGAIN = 0.05


class Process(NamedTuple):
    """A process below this one."""

    pid: int
    group: int


def _set(option: int, value: int) -> None:
    zero = ctypes.c_ulong(0)
    if _prctl(option, ctypes.c_ulong(value), zero, zero, zero) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent has ended."""
    _set(_PR_SET_CHILD_SUBREAPER, 1)


def end_with_parent(parent: int, signum: int) -> None:
    """Get ``signum`` when the thread of ``parent`` that forked this one ends."""
    _set(_PR_SET_PDEATHSIG, signum)
    if os.getppid() != parent:  # it has ended before the kernel was told
        os.kill(os.getpid(), signum)


def descendants() -> list[Process]:
    """All processes below this one, zombies included, parents first."""
    children: dict[int, list[Process]] = {}
    for name in os.listdir("/proc"):
        if not name.isdecimal():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                stat = file.read()
        except OSError:  # it has ended
            continue
        # The name of the program, in parentheses, may hold anything.
        _state, parent, group = stat[stat.rfind(b")") + 2 :].split(maxsplit=3)[:3]
        children.setdefault(int(parent), []).append(Process(int(name), int(group)))
    found = children.pop(os.getpid(), [])
    for process in found:  # which grows on the way
        found += children.pop(process.pid, ())
    return found


def signal_descendants(signum: int) -> list[int]:
    """Send a signal to all descendants of this process; return their numbers.

    The signal goes to process groups, so that no process escapes while it forks.
    Parents get it before their children. So a parent that watches its children knows
    why they end.
    """
    found = descendants()
    for group in dict.fromkeys(process.group for process in found):
        if group == os.getpgrp():
            continue
        try:
            os.killpg(group, signum)
        except OSError:  # it has ended, or is another user's
            pass
    return [process.pid for process in found]


def terminate_descendants() -> None:
    """Send SIGTERM to all descendants of this process, and continue those that are
    stopped."""
    signal_descendants(signal.SIGTERM)
    signal_descendants(signal.SIGCONT)


def kill_descendants(timeout: float) -> list[int]:
    """SIGKILL to all processes below, and to those that they start meanwhile.

    The caller blocks SIGCHLD. Returns the processes that are still there after
    ``timeout`` seconds: another user's, or asleep in the kernel.
    """
    deadline = time.monotonic() + timeout
    while True:
        left = signal_descendants(signal.SIGKILL)
        if not _reap():
            return []
        if time.monotonic() > deadline:
            return left
        signal.sigtimedwait({signal.SIGCHLD}, _LOOK_AGAIN)


def _reap() -> bool:
    """Take the children that have ended; are there others?"""
    try:
        while os.waitpid(-1, os.WNOHANG)[0] != 0:
            pass
    except ChildProcessError:
        return False
    return True
