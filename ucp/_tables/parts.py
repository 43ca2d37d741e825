# SPDX-License-Identifier: BSD-3-Clause
"""The parts of a result, one after the other while the next ones are made."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from .begun import Begun
from .threads import outlast

Emit = Callable[[Any], Awaitable[None]]


class _Handoff:
    """Where a call lays its parts, and who iterates takes them."""

    def __init__(self) -> None:
        self._parts: deque[Any] = deque()
        self._is_over = False
        self._error: BaseException | None = None
        self._takers: deque[asyncio.Future[None]] = deque()
        self._giver: asyncio.Future[None] | None = None

    async def give(self, part: Any) -> None:
        """Lay down a part; returns when at most one is left."""
        self._parts.append(part)
        self._wake_takers()
        while len(self._parts) > 1:
            self._giver = asyncio.get_running_loop().create_future()
            await self._giver

    async def take(self) -> Any:
        """The next part.

        Raises:
            StopAsyncIteration: there is none.
        """
        while not self._parts and not self._is_over:
            taker = asyncio.get_running_loop().create_future()
            self._takers.append(taker)
            await taker
        if self._parts:
            part = self._parts.popleft()
            _wake(self._giver)
            return part
        error, self._error = self._error, None
        raise StopAsyncIteration if error is None else error

    def finish(self, task: asyncio.Task[Any]) -> None:
        """The call has ended."""
        self._is_over = True
        if not task.cancelled():
            self._error = task.exception()
        self._wake_takers()

    def _wake_takers(self) -> None:
        """All of them look whether there is a part."""
        while self._takers:
            _wake(self._takers.popleft())

    def clear(self) -> None:
        self._parts.clear()
        self._error = None


def _wake(waiting: asyncio.Future[None] | None) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)


class Parts(AsyncIterator[Any]):
    """The parts of a result on this rank: an iterator gives each part when it is
    complete.

        async with ucp.table.stream("sort", table, "k", comm=comm) as parts:
            async for part in parts:
                use(part)

    The call begins when the program asks for the first part. While the program uses a
    part, the call makes the next parts. Each part has rows; only a result without
    rows is one part without rows. If the call raises, the iterator raises the
    exception instead of the next part.

    Several tasks may iterate: each part goes to one of them. If the call raises, one
    task gets the exception, and the loops of the others end.

    If the program leaves the loop early, the call ends on all ranks: at once by
    ``async with`` or ``aclose()``, otherwise when this object is dropped.
    """

    def __init__(self, begin: Callable[[Emit], Begun[Any]]) -> None:
        self._handoff = _Handoff()
        self._task: asyncio.Task[Any] | None = None
        self._is_closed = False
        # Neither refers to this object, which is dropped when nobody iterates.
        self._call = begin(self._handoff.give)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        if self._is_closed:
            raise StopAsyncIteration
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._call)
            self._task.add_done_callback(self._handoff.finish)
        try:
            return await self._handoff.take()
        except StopAsyncIteration:
            raise
        except BaseException:
            await self.aclose()
            raise

    async def aclose(self) -> None:
        """End the call, on all ranks if it is under way."""
        self._is_closed = True
        self._handoff.clear()
        if self._task is None:
            self._call.close()
            return
        self._task.cancel()
        await outlast([self._task])

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    def __del__(self) -> None:
        task = self._task
        if task is None:
            if hasattr(self, "_call"):  # it has begun
                self._call.close()
        elif not task.done():
            self._call.state.is_left = True
            with suppress(RuntimeError):  # the loop has ended
                task.get_loop().call_soon_threadsafe(task.cancel)
