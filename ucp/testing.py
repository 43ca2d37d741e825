"""What tests of programs that use ``ucp`` need; nothing here sleeps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from ._connect import create_endpoint, create_listener
from ._endpoint import Endpoint
from ._ext import live_objects

__all__ = ["connected_pair", "live_objects", "until"]


@asynccontextmanager
async def connected_pair(
    host: str = "127.0.0.1",
) -> AsyncIterator[tuple[Endpoint, Endpoint]]:
    """Two connected endpoints in this event loop; aborts them at the end.

    The first is the connecting side, the second the listener's.
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

    Polls once per turn of the loop: for tests, and bounded by the time limit
    of the test.
    """
    while not condition():
        await asyncio.sleep(0)
