# SPDX-License-Identifier: BSD-3-Clause
"""How programs end: by the signal that was meant to end them."""

from __future__ import annotations

import os
import select
import signal

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


def drop_output() -> None:
    """Nothing that is still to be written to standard output fails."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)
