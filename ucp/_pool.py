# SPDX-License-Identifier: BSD-3-Clause
"""Buffers of registered memory, lent one at a time."""

from __future__ import annotations

import asyncio
from typing import Self

from . import _context, _ext
from ._closing import Closing


def _settle(
    future: asyncio.Future[_ext.PoolBuffer], value: _ext.PoolBuffer | Exception
) -> None:
    """In the future's loop. A buffer that nobody takes goes to the next."""
    if future.done():
        return
    if isinstance(value, Exception):
        future.set_exception(value)
    else:
        future.set_result(value)


class BufferPool(Closing, _ext.BufferPool):
    """``count`` buffers of ``nbytes`` bytes each, in memory registered once.

    What is sent from them, or received into them, needs no registration and no
    allocation. A buffer is lent until it is released (or dropped), there is no
    view of it any more, and every operation on it is done: also those that
    were cancelled, of which the last bytes may land much later.

    May be used by any thread and any asyncio event loop, several at a time.

    Args:
        count: how many buffers; at least 1.
        nbytes: of each; at least 1.
        kind, device: of memory, as for ``Memory.allocate``.

    Raises:
        UCXNoMemory: there is not so much.
        ValueError: no such kind or device, or nothing to lend.
    """

    __slots__ = ()

    def __new__(
        cls, count: int, nbytes: int, kind: str = "host", device: int | None = None
    ) -> Self:
        context = _context.get_context()
        pool = super().__new__(cls, context, count, nbytes, kind, device)
        _context.memories.add(pool)
        return pool

    def __repr__(self) -> str:
        state = "closed" if self.closed() else f"{self.free} free"
        return f"<ucp.BufferPool of {self.count} x {self.nbytes} bytes, {state}>"

    async def acquire(self) -> _ext.PoolBuffer:
        """A buffer; waits until one is free, in the order of asking.

        Its bytes are what the last user has left there. Give it back by
        ``release()``, or by ``with``::

            with await pool.acquire() as buffer:
                await ep.send(buffer)

        When cancelled, who comes next is served.

        Raises:
            UCXCloseError: the pool is closed, or was while this waited.
        """
        buffer = self._take()
        if buffer is not None:
            return buffer
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_ext.PoolBuffer] = loop.create_future()
        self._wait(future)
        try:
            return await future
        except BaseException:
            self._leave(future)
            if future.done() and not future.cancelled() and not future.exception():
                future.result().release()
            raise

    def _deliver(
        self,
        future: asyncio.Future[_ext.PoolBuffer],
        value: _ext.PoolBuffer | Exception,
    ) -> None:
        """Give ``future`` what it waits for; any thread."""
        loop = future.get_loop()
        if loop is asyncio._get_running_loop():
            _settle(future, value)
            return
        try:
            loop.call_soon_threadsafe(_settle, future, value)
        except RuntimeError:
            pass  # that loop is closed
