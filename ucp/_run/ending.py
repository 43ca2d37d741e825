# SPDX-License-Identifier: BSD-3-Clause
"""How programs end: by the signal that was meant to end them."""

from __future__ import annotations

import os
import select
import signal
import sys

#: The exit status of a program whose output nobody reads, as a shell has it.
BROKEN_PIPE = 128 + signal.SIGPIPE


def die_by(signum: int) -> None:
    """End this process as the signal does by default."""
    signal.signal(signum, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signum})
    os.kill(os.getpid(), signum)


def is_output_unread() -> bool:
    """Has the reader of standard output ended?"""
    poll = select.poll()
    poll.register(1, 0)
    return any(events & select.POLLERR for _, events in poll.poll(0))


def open_streams() -> None:
    """Standard streams that are closed (``>&-``) take everything, and have nothing.

    Nothing else gets their descriptors then, and programs that are started find all
    three open.
    """
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            null = os.open(os.devnull, os.O_RDWR)  # the lowest one that is closed
            os.set_inheritable(null, True)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115


def drop_output() -> None:
    """Nothing that is still to be written to standard output fails."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)
