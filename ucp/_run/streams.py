# SPDX-License-Identifier: BSD-3-Clause
"""asyncio's streams over TCP, between the two processes of the demo."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Self

_HOST = "127.0.0.1"


class Streams:
    """A connection by asyncio's streams."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, port: int) -> Self:
        """Connect to a Listener of this host."""
        return cls(*await asyncio.open_connection(_HOST, port))

    def close(self) -> None:
        """Close the connection without waiting for the peer."""
        self._writer.close()

    async def bounce(self, data: memoryview, rounds: int) -> tuple[float, bytes]:
        """Send the data, get it back, again and again: seconds, and the last bytes."""
        back = b""
        start = time.perf_counter()
        for _ in range(rounds):
            self._writer.write(data)
            await self._writer.drain()
            back = await self._reader.readexactly(len(data))
        return time.perf_counter() - start, back

    async def echo(self, size: int, rounds: int) -> None:
        """Be the other side of bounce()."""
        for _ in range(rounds):
            self._writer.write(await self._reader.readexactly(size))
            await self._writer.drain()


class Listener:
    """Takes one connection."""

    def __init__(self, server: asyncio.Server, accepted: asyncio.Future[Streams]):
        self.port: int = server.sockets[0].getsockname()[1]
        self._accepted = accepted

    async def accept(self) -> Streams:
        """The connection, when it is made."""
        return await self._accepted


@contextlib.asynccontextmanager
async def listen() -> AsyncIterator[Listener]:
    """Listen on this host; the end closes the connection, too."""
    accepted: asyncio.Future[Streams] = asyncio.get_running_loop().create_future()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if accepted.done():
            writer.close()
        else:
            accepted.set_result(Streams(reader, writer))

    server = await asyncio.start_server(accept, _HOST, 0)
    try:
        yield Listener(server, accepted)
    finally:
        server.close()
        if accepted.done() and not accepted.cancelled():
            accepted.result().close()
