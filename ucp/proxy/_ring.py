# SPDX-License-Identifier: BSD-3-Clause
"""Rings of commands, and their producers in Python."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, SupportsIndex

from .. import _ext
from . import _commands

_NUMBERS = (1 << 64) - 1  # of commands: they begin again at 0


@dataclass(frozen=True, slots=True)
class RingError:
    """What has ended a ring: ``Ring.error``.

    Attributes:
        status: the number of the status.
        rank: the rank whose fault it is, or None.
        number: the number of the command.
        command: the command as it was given; zeros if there is none.
        reason: why, for people.
    """

    status: int
    rank: int | None
    number: int
    command: tuple[int, int]
    reason: str


@dataclass(frozen=True, slots=True)
class RingStatistics:
    """Statistics of a ring: ``Ring.statistics``.

    Attributes:
        puts, signals, quiets, barriers, nops: commands that have begun.
        nbytes: bytes of puts.
        fences: signals that were ordered behind puts that were under way.
        in_flight: puts and signals that are under way now.
        in_flight_peak: the largest value of ``in_flight`` so far.
        stalls: how often the limit of ``in_flight`` has made a command wait.
    """

    puts: int
    signals: int
    quiets: int
    barriers: int
    nops: int
    nbytes: int
    fences: int
    in_flight: int
    in_flight_peak: int
    stalls: int


class Ring(_ext.Ring):
    """A ring of commands: ``Proxy.ring()``.

        number = ring.put(1, 4096, local=0, remote=65536)
        ring.signal(1, slot=0)
        await ring.quiet()

    A put or a signal is over as soon as the proxy has posted it: its bytes may still
    be read until a ``quiet()`` has ended. A quiet or a barrier is over when it has
    ended. Any thread may write commands, and wait by ``wait()`` or ``wait_quiet()``.
    Calls that are awaited belong to the event loop of the proxy.

    When the ring has ended, every call raises an exception that says why. It is an
    IndexError for a rank, region or range that does not exist, a ValueError for a
    command that makes no sense, and a UCXError otherwise. Its attribute ``rank`` is
    the rank that has caused the end, or None.
    """

    __slots__ = ()

    @property
    def capacity(self) -> int:
        """How many commands there is room for."""
        return 1 << self._layout[3]

    @property
    def addresses(self) -> tuple[int, int]:
        """Where the words and the commands of the ring are, for producers in C or
        CUDA: the struct ``umx_ring`` of include/umx/ring.h."""
        return self._layout[:2]

    @property
    def view(self) -> int:
        """The address of the struct ``umx_ring``, for ``umx_ring_producer_init()``
        in C code of this process. The commands of such producers wake the proxy. The
        struct exists as long as this object."""
        return self._view

    @property
    def retired(self) -> int:
        """The number of the first command that is not over."""
        return self._retired

    @property
    def error(self) -> RingError | None:
        """The error that has ended the ring, or None if it has not ended."""
        if self._error is None:
            return None
        status, rank, number, w0, w1, reason = self._error
        at = None if rank < 0 else rank
        return RingError(status, at, number, (w0, w1), reason)

    @property
    def statistics(self) -> RingStatistics:
        """Counts, since the ring was made."""
        return RingStatistics(*self._numbers)

    # Producing.

    def put(
        self,
        rank: SupportsIndex,
        nbytes: SupportsIndex,
        local: SupportsIndex,
        remote: SupportsIndex,
        region: SupportsIndex = 0,
    ) -> int:
        """Write the command ``ucp.proxy.put()``, and return its number.

        While the ring is full this blocks.

        Raises:
            ValueError: a number that a command cannot hold.
            UCXError, IndexError, ValueError: the ring has ended.
        """
        return self._one(_commands.put(rank, nbytes, local, remote, region))

    def signal(
        self,
        rank: SupportsIndex,
        slot: SupportsIndex,
        value: SupportsIndex = 1,
        region: SupportsIndex = 0,
        *,
        set: bool = False,
    ) -> int:
        """Write the command ``ucp.proxy.signal()``, and return its number.

        It blocks and raises as ``put()`` does.
        """
        return self._one(_commands.signal(rank, slot, value, region, set=set))

    def barrier(self, group: SupportsIndex = 0) -> int:
        """Write the command ``ucp.proxy.barrier()``, and return its number.

        It blocks and raises as ``put()`` does.
        """
        return self._one(_commands.barrier(group))

    def nop(self) -> int:
        """Write a command that does nothing, and return its number.

        It blocks and raises as ``put()`` does.
        """
        return self._one(_commands.nop())

    def _one(self, command: tuple[int, int]) -> int:
        data = struct.pack("=QQ", *command)
        while True:
            count, end, oldest = self._push(data, 0)
            if count:
                return end - 1 & _NUMBERS
            self._wait((self,), oldest, None)

    async def push(self, commands: Any) -> int:
        """Write commands, and wait for room as long as there is none.

        Args:
            commands: a C-contiguous buffer of 16 bytes for each, for example a
                NumPy array of the shape ``(n, 2)`` and the dtype ``uint64``. Other
                producers may write between them.

        Returns:
            The number of the last command. If ``commands`` is empty: the number of
            the last command that this object has written before, or if it has
            written none, the number before the first command of the ring.

        Raises:
            UCXError, IndexError, ValueError: the ring has ended.

        If this call is cancelled, some of the commands may have been written.
        """
        done, total = 0, memoryview(commands).nbytes // 16
        while True:
            count, end, oldest = self._push(commands, done)
            done += count
            if done == total:
                return end - 1 & _NUMBERS
            await self._retire(oldest)

    def push_wait(self, commands: Any, timeout: float | None = None) -> int:
        """Write commands as ``push()`` does, and block while there is no room.

        Raises:
            UCXTimeout: there was no room for ``timeout`` seconds; some of the
                commands have been written.
        """
        done, total = 0, memoryview(commands).nbytes // 16
        while True:
            count, end, oldest = self._push(commands, done)
            done += count
            if done == total:
                return end - 1 & _NUMBERS
            self._wait((self,), oldest, timeout)

    # Waiting.

    def retire(self, number: int) -> _ext.CoroutineRequest[None]:
        """Wait until the command with this number is over; awaitable.

        Raises:
            UCXError, IndexError, ValueError: the ring has ended before.
        """
        return self._retire(number)

    def quiet(self) -> _ext.CoroutineRequest[None]:
        """Wait until all commands that were written to the ring are over, and the bytes
        of their puts are in the memory of the ranks; awaitable.

        If this call is cancelled, the commands are carried out all the same.

        Raises:
            UCXError, IndexError, ValueError: the ring has ended.
        """
        return self._quiet((self,))

    def wait(self, number: int, timeout: float | None = None) -> None:
        """Block until the command with this number is over; any thread may call.

        Raises:
            UCXTimeout: the command was not over in ``timeout`` seconds.
        """
        self._wait((self,), number, timeout)

    def wait_quiet(self, timeout: float | None = None) -> None:
        """Block until a ``quiet()`` would be done; any thread may call.

        Raises:
            UCXTimeout: the commands were not over in ``timeout`` seconds.
        """
        self._wait((self,), None, timeout)

    def __repr__(self) -> str:
        state = ", ended" if self._error is not None else ""
        return f"<ucp.proxy.Ring of {self.capacity} commands{state}>"


def _checked(rings: Iterable[Ring]) -> tuple[Ring, ...]:
    all_rings = tuple(rings)
    for ring in all_rings:
        if not isinstance(ring, Ring):
            raise TypeError(f"expected a Ring, got {type(ring).__name__}")
    return all_rings


async def quiet_all(rings: Iterable[Ring]) -> None:
    """Wait until all that was written to the rings of a proxy is over: the same as
    ``Ring.quiet()`` of each.

    Raises:
        TypeError: something is not a ring.
        ValueError: the rings are of several proxies.
        UCXError, IndexError, ValueError: one of the rings has ended.
    """
    all_rings = _checked(rings)
    if all_rings:
        await all_rings[0]._quiet(all_rings)


def wait_quiet_all(rings: Iterable[Ring], timeout: float | None = None) -> None:
    """``quiet_all()`` that blocks; in any thread.

    Raises:
        UCXTimeout: the commands were not over in ``timeout`` seconds.
    """
    all_rings = _checked(rings)
    if all_rings:
        all_rings[0]._wait(all_rings, None, timeout)
