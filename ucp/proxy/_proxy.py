# SPDX-License-Identifier: BSD-3-Clause
"""A proxy: a thread that carries out commands."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Self, SupportsIndex

from .. import _ext
from .._communicator.communicator import Communicator
from .._core.memory import Memory
from ..exceptions import UCXCanceled
from ._ring import Ring

_LIMITS = {"latency": 32, "bulk": 8}


@dataclass(frozen=True, slots=True)
class ProxyStatistics:
    """Statistics of a proxy: ``Proxy.statistics``.

    Attributes:
        rings: rings that it looks at now.
        regions: regions that it has.
        sleeps: how often its thread has gone to sleep.
        wakeups: how often a producer, or a call, has woken it.
    """

    rings: int
    regions: int
    sleeps: int
    wakeups: int


class Proxy(_ext.Proxy):
    """A thread that carries out the commands of rings, on each rank.

        async with await ucp.proxy.Proxy.create(comm) as proxy:
            region = await proxy.add_region(memory)
            ring = proxy.ring()
            ring.put(1, 4096, local=0, remote=0, region=region)
            ring.signal(1, slot=1000, region=region)
            await ring.quiet()

    Threads without a worker, or kernels of a GPU, write the commands: they need
    nothing but the ring. The proxy has its own communicator. If a command fails, its
    ring ends; other rings go on.
    """

    __slots__ = ("_closing", "_comm", "_memories")

    _comm: Communicator
    _memories: list[Memory | None]  # of its regions: they are to stay open
    _closing: asyncio.Future[None] | None  # while it is being closed

    @classmethod
    async def create(
        cls,
        comm: Communicator,
        *,
        cpu: SupportsIndex | None = None,
        spin: float | None = None,
        timeout: float | None = 60,
    ) -> Self:
        """Make a proxy on every rank; a collective operation.

        Args:
            comm: the communicator. The proxy does not use it any more when this call
                has ended. A communicator of ``ucp.sync`` is refused, because it has
                no event loop.
            cpu: the thread runs on this CPU only; None: on any.
            spin: seconds for which the thread looks for commands before it
                sleeps; None: 50 us, or 0 if the process has one CPU.
            timeout: seconds until all ranks have called this and their proxies have
                met; None waits forever.

        Raises:
            IndexError: the process of a rank may not run on the CPU that was given.
            UCXRankFailed: another rank has ended, or has cancelled the call.
            UCXTimeout: not all ranks have met in time.
            TypeError: ``comm`` is not a ucp.Communicator.
            ValueError: a number that makes no sense.
        """
        if not isinstance(comm, Communicator):
            raise TypeError(
                f"comm is a {type(comm).__module__}.{type(comm).__name__}; a proxy is "
                "made of a ucp.Communicator, in an event loop"
            )
        self = cls(comm, cpu, spin, timeout)
        self._comm = comm
        self._closing = None
        self._memories = []
        try:
            await self._create()
        except BaseException:
            self.abort()
            raise
        return self

    @property
    def comm(self) -> Communicator:
        """The communicator that it was made of."""
        return self._comm

    @property
    def statistics(self) -> ProxyStatistics:
        """Counts, since the proxy was made.

        Raises:
            UCXCloseError: the proxy is closed.
        """
        return ProxyStatistics(*self._numbers)

    async def add_region(
        self, memory: Memory | None, source: Memory | None = None
    ) -> int:
        """Give the commands of all ranks access to one memory of each rank.

        This is a collective operation: all ranks call it in the same order.

        Args:
            memory: the memory that commands of all ranks write; None: this rank has
                none.
            source: the memory that puts of this rank read; None: ``memory``.

        Returns:
            The number of the region, from 0 on; the same on each rank.

        The proxy keeps both memories until it ends. Other ranks map memory that was
        made by ``Memory.allocate()``. Other memory is written by the proxy of its
        rank. If this call is cancelled, the region is made nevertheless.

        Raises:
            UCXError: there are 256 regions.
            UCXRankFailed: a rank has ended.
            UCXCloseError: the proxy is closed.
        """
        adding = self._add_region(memory, source)
        self._memories += [memory, source]
        return await adding

    def ring(
        self,
        capacity: SupportsIndex = 1024,
        *,
        producers: Literal["one", "several"] = "one",
        in_flight: SupportsIndex | Literal["latency", "bulk"] = "latency",
        memory: Memory | None = None,
        device: bool = False,
        first: SupportsIndex = 0,
    ) -> Ring:
        """Make a ring of this rank.

        Args:
            capacity: how many commands there is room for, a power of two.
            producers: "several": others than this object write commands at the
                same time. Threads that write by this object are one producer.
            in_flight: how many puts and signals are under way at most; "latency"
                is 32, and "bulk" 8.
            memory: where the ring lies, of the kind "host" or "pinned", with 384
                bytes and 16 for each command; None: the library allocates it.
            device: producers are on a device, and cannot wake the proxy: it looks
                at the ring after pauses.
            first: the number of the first command.

        Raises:
            ValueError: a number that makes no sense.
            UCXError: the memory is too small, or of a device.
            UCXCloseError: the proxy is closed.
        """
        if producers not in ("one", "several"):
            raise ValueError(f"producers is {producers!r}; it is 'one' or 'several'")
        if isinstance(in_flight, str):
            if in_flight not in _LIMITS:
                raise ValueError(
                    f"in_flight is {in_flight!r}; it is 'latency', 'bulk' or a number"
                )
            in_flight = _LIMITS[in_flight]
        several = producers == "several"
        return Ring(self, capacity, several, in_flight, memory, device, first)

    async def close(self, timeout: float | None = 60) -> None:
        """Carry out the commands that the rings hold, then end the proxy.

        Commands that are written to the rings after the call are lost. Commands of
        other ranks that need this rank fail afterwards, so close after a barrier.

        If another task closes the proxy already, this call waits until the call of
        the other task has ended, and has the same result; its timeout does not count.
        If this call is cancelled, the proxy ends at once, unless another task closes
        it.

        Args:
            timeout: seconds; None: there is no limit.

        Raises:
            UCXTimeout: some commands were not over, and are lost. The proxy has
                ended nevertheless.
            UCXCanceled: another task has closed it, and was cancelled.
        """
        if self._closing is not None:
            await asyncio.shield(self._closing)
            return
        closing = self._close(timeout)
        ended = self._closing = asyncio.get_running_loop().create_future()
        try:
            await closing
            ended.set_result(None)
        except BaseException as exc:
            if isinstance(exc, asyncio.CancelledError):
                ended.set_exception(UCXCanceled("the close of the proxy was cancelled"))
            else:
                ended.set_exception(exc)
            ended.exception()  # nobody need wait for it
            raise
        finally:
            self._closing = None
            self._memories.clear()
            self.abort()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close; after an exception end at once, as ``abort()`` does."""
        if exc is None and (self._closing is not None or not self.closed()):
            await self.close()
        else:
            self.abort()

    def __repr__(self) -> str:
        if self.closed():
            return "<ucp.proxy.Proxy, closed>"
        return f"<ucp.proxy.Proxy, rank {self._comm.rank} of {self._comm.size}>"
