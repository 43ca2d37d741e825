# SPDX-License-Identifier: BSD-3-Clause
"""tornado's TCP streams, without UCX, to compare with."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
from tornado.iostream import IOStream
from tornado.tcpclient import TCPClient
from tornado.tcpserver import TCPServer

from .base import BaseClient, BaseServer

_BUFFER_MAX = 1 << 30


class TornadoServer(BaseServer):
    """One connection; ends when it has ended."""

    has_cuda_support = False

    async def run(self) -> None:
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def echo(stream: IOStream, address: Any) -> None:
            try:
                await self._echo(stream)
            except BaseException as exc:
                ended.set_exception(exc)
            else:
                ended.set_result(None)

        server = TCPServer(max_buffer_size=_BUFFER_MAX)
        server.handle_stream = echo  # type: ignore[method-assign]
        server.listen(self.args.port or 0)
        (sock, *_) = server._sockets.values()
        self.queue.put(sock.getsockname()[1])
        try:
            await ended
        finally:
            server.stop()

    async def _echo(self, stream: IOStream) -> None:
        array = np.zeros(self.args.n_bytes, dtype="u1")
        for _ in range(self.rounds):
            if not self.args.reuse_alloc:
                array = np.zeros(self.args.n_bytes, dtype="u1")
            await stream.read_into(array.data)  # type: ignore[arg-type]
            await stream.write(array.data)


class TornadoClient(BaseClient):
    """Sends an array, and receives it into another."""

    has_cuda_support = False

    async def run(self) -> None:
        stream = await TCPClient().connect(
            self.server_address, self.port, max_buffer_size=_BUFFER_MAX
        )
        sent = np.arange(self.args.n_bytes).astype("u1")
        received = np.zeros(self.args.n_bytes, dtype="u1")
        for _ in self.measured_rounds(np):
            if not self.args.reuse_alloc:
                received = np.zeros(self.args.n_bytes, dtype="u1")
            await stream.write(sent.data)
            await stream.read_into(received.data)  # type: ignore[arg-type]
        stream.close()
