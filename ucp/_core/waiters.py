# SPDX-License-Identifier: BSD-3-Clause
"""Tasks that wait for an object to change."""

from __future__ import annotations

import asyncio


class Waiters:
    """The tasks that wait for an object, in their order; all in one thread."""

    __slots__ = ("_futures",)

    def __init__(self) -> None:
        self._futures: dict[asyncio.Future[None], None] = {}

    async def wait(self) -> None:
        """Wait for the next ``wake()``; raises nothing but CancelledError."""
        future = asyncio.get_running_loop().create_future()
        self._futures[future] = None
        try:
            await future
        finally:
            del self._futures[future]

    def wake(self) -> None:
        """Wake all tasks that wait; each looks at the object again."""
        for future in self._futures:
            if not future.done() and not future.get_loop().is_closed():
                future.set_result(None)
