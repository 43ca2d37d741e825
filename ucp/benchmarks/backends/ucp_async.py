# SPDX-License-Identifier: BSD-3-Clause
"""``await ep.send(array)``, or active messages, in an event loop."""

from __future__ import annotations

import asyncio
from argparse import Namespace
from typing import Any

import ucp
from ucp._libs.arr import Array
from ucp._libs.utils import print_key_value

from ..utils import am_allocators, get_allocator
from .base import BaseClient, BaseServer


def _start(args: Namespace) -> Any:
    """Start UCX; the module that makes arrays."""
    ucp.init()
    xp = get_allocator(
        args.object_type, args.rmm_init_pool_size, args.rmm_managed_memory
    )
    if args.enable_am:
        for kind, allocator in am_allocators(args.object_type).items():
            ucp.register_am_allocator(allocator, kind)
    return xp


class UCXPyAsyncServer(BaseServer):
    """One connection; ends when it has ended."""

    has_cuda_support = True

    async def run(self) -> None:
        xp = _start(self.args)
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def echo(ep: ucp.Endpoint) -> None:
            try:
                await self._echo(ep, xp)
                await ep.close()
            except BaseException as exc:
                ended.set_exception(exc)
            else:
                ended.set_result(None)

        listener = ucp.create_listener(
            echo, self.args.port, endpoint_error_handling=self.args.error_handling
        )
        self.queue.put(listener.port)
        try:
            await ended
        finally:
            listener.close()

    async def _echo(self, ep: ucp.Endpoint, xp: Any) -> None:
        array = Array(xp.zeros(self.args.n_bytes, dtype="u1"))
        for _ in range(self.rounds):
            if self.args.enable_am:
                await ep.am_send(await ep.am_recv())
                continue
            if not self.args.reuse_alloc:
                array = Array(xp.zeros(self.args.n_bytes, dtype="u1"))
            await ep.recv(array)
            await ep.send(array)


class UCXPyAsyncClient(BaseClient):
    """Sends an array, and receives it into another."""

    has_cuda_support = True

    async def run(self) -> None:
        xp = _start(self.args)
        ep = await ucp.create_endpoint(
            self.server_address,
            self.port,
            endpoint_error_handling=self.args.error_handling,
        )
        sent = Array(xp.arange(self.args.n_bytes).astype("u1"))
        received = Array(xp.zeros(self.args.n_bytes, dtype="u1"))
        for _ in self.measured_rounds(xp):
            if self.args.enable_am:
                await ep.am_send(sent)
                await ep.am_recv()
                continue
            if not self.args.reuse_alloc:
                received = Array(xp.zeros(self.args.n_bytes, dtype="u1"))
            await ep.send(sent)
            await ep.recv(received)
        await ep.close()

    def print_backend_specific_config(self) -> None:
        print_key_value("Transfer API", "AM" if self.args.enable_am else "TAG")
        for option in ("TLS", "NET_DEVICES"):
            print_key_value(f"UCX_{option}", ucp.get_config()[option])
