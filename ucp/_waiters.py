# SPDX-License-Identifier: BSD-3-Clause
"""Tasks that wait for something to happen to an object."""

from __future__ import annotations

import asyncio


class Waiters:
    """The tasks that wait for an object; all of one thread."""

    __slots__ = ("_futures",)

    def __init__(self) -> None:
        self._futures: set[asyncio.Future[None]] = set()

    async def wait(self) -> None:
        """Wait for the next ``wake()``; raises nothing but CancelledError."""
        future = asyncio.get_running_loop().create_future()
        self._futures.add(future)
        try:
            await future
        finally:
            self._futures.discard(future)

    def wake(self) -> None:
        """Let all that wait go on, each to look at the object again."""
        for future in self._futures:
            if not future.done() and not future.get_loop().is_closed():
                future.set_result(None)
