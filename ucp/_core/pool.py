# SPDX-License-Identifier: BSD-3-Clause
"""Pools of buffers in registered memory."""

from __future__ import annotations

import asyncio
from typing import Self

from .. import _ext
from . import context as _context
from .closing import Closing


def _settle(
    future: asyncio.Future[_ext.PoolBuffer], value: _ext.PoolBuffer | Exception
) -> None:
    """Settle ``future``, in its loop, unless it is done: the buffer is freed then."""
    if future.done():
        return
    if isinstance(value, Exception):
        future.set_exception(value)
    else:
        future.set_result(value)


class BufferPool(Closing, _ext.BufferPool):
    """A pool of ``count`` buffers of ``nbytes`` bytes, in memory registered once.

    Sending from these buffers and receiving into them needs neither registration
    nor allocation. A buffer is in use until it is released or dropped, no view of
    it exists, and every operation on it is done. This includes cancelled
    operations, whose last bytes may arrive much later.

    Any number of threads and asyncio event loops may use a pool.

    Args:
        count: number of buffers; at least 1.
        nbytes: length of each in bytes; at least 1.
        kind, device: as for ``Memory.allocate``.

    Raises:
        UCXNoMemory: there is not enough memory.
        ValueError: the kind or the device does not exist, or ``count`` or
            ``nbytes`` is too small.
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
        """Return a free buffer; wait until there is one.

        Tasks are served in the order of their calls. The buffer contains the bytes
        of its last use. It is returned to the pool by ``release()``, or by
        ``with``::

            with await pool.acquire() as buffer:
                await ep.send(buffer)

        When cancelled, the buffer goes to the next task that waits.

        Raises:
            UCXCloseError: the pool is closed, or was closed during the wait.
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
        """Settle ``future`` with ``value``. Any thread may call this."""
        loop = future.get_loop()
        if loop is asyncio._get_running_loop():
            _settle(future, value)
            return
        try:
            loop.call_soon_threadsafe(_settle, future, value)
        except RuntimeError:
            pass  # that loop is closed
