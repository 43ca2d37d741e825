# SPDX-License-Identifier: BSD-3-Clause
"""Ranks tell ``python -m ucp run`` that they wait for each other, or have met.

The launcher has a pipe, and UCP_MEETING is its path below /proc, which the kernel
opens for this user's processes only. A rank writes one short line when it begins
to wait in ``from_env()``, and one when all have come. Ranks that do not use
``from_env()`` write nothing, and then nothing is said about any.
"""

from __future__ import annotations

import fcntl
import os
import signal
import stat
import time
from collections.abc import Container, Iterator
from contextlib import contextmanager, suppress

from .environment import Ranks

MEETING = "UCP_MEETING"
WAKE = signal.SIGIO  # something has been written

_MET = b"met"  # the other lines are the numbers of ranks that wait
_CHUNK = 4096


# A rank.


@contextmanager
def announced(ranks: Ranks) -> Iterator[None]:
    """Tell the launcher that this rank waits for the others, and that it has met
    them if nothing is raised."""
    path = os.environ.get(MEETING)
    if path is None or ranks.launcher != "ucp":
        yield
        return
    _write(path, b"%d" % ranks.rank)
    yield
    _write(path, _MET)


def _write(path: str, line: bytes) -> None:
    with suppress(OSError):  # the launcher has ended, or is another user's
        fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            # Another process may have that number and that file by now.
            if stat.S_ISFIFO(os.fstat(fd).st_mode):
                os.write(fd, line + b"\n")
        finally:
            os.close(fd)


# The launcher.


class Meeting:
    """The first meeting of the ranks, as they tell of it.

    It sends the signal WAKE to this process when there is something to read.

    Args:
        size: how many ranks there are.
        patience: seconds from the first rank that waits until the others are
            named.

    Attributes:
        path: for the ranks' environment.
    """

    path: str

    def __init__(self, size: int, patience: float) -> None:
        self._reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        os.close(writer)
        self.path = f"/proc/{os.getpid()}/fd/{self._reader}"
        fcntl.fcntl(self._reader, fcntl.F_SETOWN, os.getpid())
        flags = fcntl.fcntl(self._reader, fcntl.F_GETFL)
        fcntl.fcntl(self._reader, fcntl.F_SETFL, flags | os.O_ASYNC)
        self._size = size
        self._patience = patience
        self._rest = b""  # a line that has not ended
        self._come: set[int] = set()
        self._named: list[int] = []  # that had not come in time
        self._name_at: float | None = None
        self._has_met = False

    def due(self) -> float | None:
        """When news() has something to say if nobody comes, by time.monotonic()."""
        return self._name_at

    def news(self, running: Container[int]) -> list[str]:
        """Read what ranks have written; what there is to say about it.

        Args:
            running: ranks that have not ended.
        """
        before = set(self._come)
        for line in self._lines():
            self._take(line)
        if self._has_met:
            self._name_at = None
            return []
        if self._come and not before:
            self._name_at = time.monotonic() + self._patience
        come = self._come - before
        lines = [f"rank {rank} has come" for rank in self._named if rank in come]
        if self._name_at is not None and time.monotonic() >= self._name_at:
            self._name_at = None
            self._named = [n for n in range(self._size) if n not in self._come]
            lines = [
                f"rank {rank} has not come to Communicator.from_env() within "
                f"{self._patience:g} s{'' if rank in running else ': it has ended'}"
                for rank in self._named
            ]
        return lines

    def _lines(self) -> list[bytes]:
        with suppress(BlockingIOError):
            while data := os.read(self._reader, _CHUNK):
                self._rest += data
        *lines, self._rest = self._rest.split(b"\n")
        return lines

    def _take(self, line: bytes) -> None:
        if line == _MET:
            self._has_met = True
        elif line.isdigit():
            self._come.add(int(line))
