# SPDX-License-Identifier: BSD-3-Clause
"""Helpers for the tests of programs that use ``ucp``. None of them sleeps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Self

from ._core.connect import create_endpoint, create_listener
from ._core.endpoint import Endpoint
from ._core.lifecycle import current_worker
from ._ext import live_objects

__all__ = ["Watchdog", "connected_pair", "live_objects", "until"]


def __dir__() -> list[str]:
    return __all__


@asynccontextmanager
async def connected_pair(
    host: str = "127.0.0.1",
) -> AsyncIterator[tuple[Endpoint, Endpoint]]:
    """Connect two endpoints in this event loop; abort them at the end.

    The first endpoint is that of the connecting side, the second that of the
    listener.
    """
    async with create_listener(host=host) as listener:
        client = await create_endpoint(host, listener.port)
        server = await anext(listener)
    try:
        yield client, server
    finally:
        client.abort()
        server.abort()


async def until(condition: Callable[[], object]) -> None:
    """Let the event loop run until ``condition()`` is true.

    The condition is evaluated once in each turn of the loop. The time limit of the
    test bounds the wait.
    """
    while not condition():
        await asyncio.sleep(0)


class Watchdog:
    """Counts the wake-ups that the worker of the running loop loses.

    In ``with Watchdog() as watchdog:`` a timer checks whether the loop sleeps
    although its worker has work. The attribute ``lost`` counts how often it did.
    The check also does that work, so that the program continues. A Watchdog cannot
    be used in a ``run_in_thread()`` block.

    Args:
        interval: seconds between two checks, and the time that the worker must
            have slept to be counted; much longer than a message needs.
    """

    lost: int

    def __init__(self, interval: float = 1.0) -> None:
        self.lost = 0
        self._interval = interval
        self._worker = current_worker()
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def _look(self) -> None:
        self.lost += self._worker._overslept()
        self._timer = self._loop.call_later(self._interval, self._look)

    def __enter__(self) -> Self:
        self._timer = self._loop.call_later(self._interval, self._look)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
