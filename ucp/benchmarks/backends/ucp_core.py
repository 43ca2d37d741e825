# SPDX-License-Identifier: BSD-3-Clause
"""The low-level API: tagged messages or active messages, without an event loop.

``progress()`` is called until what was posted is done; with --delay-progress
only when --max-outstanding operations are under way.
"""

from __future__ import annotations

from argparse import Namespace
from typing import Any

import ucp
from ucp._libs import ucx_api
from ucp._libs.arr import Array
from ucp._libs.utils import print_key_value
from ucp._libs.utils_test import (
    blocking_am_recv,
    blocking_am_send,
    blocking_recv,
    blocking_send,
    non_blocking_recv,
    non_blocking_send,
)

from ..utils import am_allocators, get_allocator
from .base import BaseClient, BaseServer


class _Count:
    """How many operations were started, and how many are done."""

    def __init__(self) -> None:
        self.started = 0
        self.done = 0

    def start(self) -> None:
        self.started += 1

    def complete(self) -> None:
        self.done += 1

    def wait(self, worker: ucx_api.UCXWorker, most: int) -> None:
        """Make progress while more than ``most`` are under way."""
        while self.started - self.done > most:
            worker.progress()


def _make_worker(args: Namespace) -> ucx_api.UCXWorker:
    feature = ucx_api.Feature.AM if args.enable_am else ucx_api.Feature.TAG
    worker = ucx_api.UCXWorker(ucx_api.UCXContext(feature_flags=(feature,)))
    if args.enable_am:
        for kind, allocator in am_allocators(args.object_type).items():
            worker.register_am_allocator(allocator, ucx_api.AllocatorType[kind.upper()])
    return worker


def _make_arrays(args: Namespace) -> Any:
    return get_allocator(
        args.object_type, args.rmm_init_pool_size, args.rmm_managed_memory
    )


class UCXPyCoreServer(BaseServer):
    """Serve one connection, and end when all of its round trips have ended."""

    has_cuda_support = True

    def run(self) -> None:
        worker = _make_worker(self.args)
        requests: list[ucx_api.UCXEndpoint] = []
        listener = ucx_api.UCXListener(worker, self.args.port or 0, requests.append)
        xp = _make_arrays(self.args)
        self.queue.put(listener.port)
        while not requests:
            worker.progress()
        ep = ucx_api.UCXEndpoint.create_from_conn_request(
            worker, requests.pop(), self.args.error_handling
        )
        if self.args.enable_am:
            self._echo_active_messages(worker, ep)
        else:
            self._echo(worker, ep, xp)
        worker.close()

    def _echo_active_messages(
        self, worker: ucx_api.UCXWorker, ep: ucx_api.UCXEndpoint
    ) -> None:
        for _ in range(self.rounds):
            blocking_am_send(worker, ep, blocking_am_recv(worker, ep))

    def _echo(
        self, worker: ucx_api.UCXWorker, ep: ucx_api.UCXEndpoint, xp: Any
    ) -> None:
        """All receives are posted first; each sends its array when it is done."""
        count = _Count()
        shared = self._make_array(xp) if self.args.reuse_alloc else None
        for _ in range(self.rounds):
            array = self._make_array(xp) if shared is None else shared
            ucx_api.tag_recv_nb(
                worker,
                array,
                array.nbytes,
                0,
                self._send_back,
                (worker, ep, array, count),
                ep=ep,
            )
        while count.done < self.rounds:
            worker.progress()

    def _make_array(self, xp: Any) -> Array[Any]:
        return Array(xp.zeros(self.args.n_bytes, dtype="u1"))

    @staticmethod
    def _send_back(
        request: object,
        exception: BaseException | None,
        worker: ucx_api.UCXWorker,
        ep: ucx_api.UCXEndpoint,
        array: Array[Any],
        count: _Count,
    ) -> None:
        if exception is not None:
            raise exception
        non_blocking_send(worker, ep, array, count.start, count.complete)


class UCXPyCoreClient(BaseClient):
    """Sends an array, and receives it into another."""

    has_cuda_support = True

    def run(self) -> None:
        worker = _make_worker(self.args)
        xp = _make_arrays(self.args)
        ep = ucx_api.UCXEndpoint.create(
            worker, self.server_address, self.port, self.args.error_handling
        )
        sent = xp.arange(self.args.n_bytes).astype("u1")
        received = xp.zeros(self.args.n_bytes, dtype="u1")
        count = _Count()
        for number in self.measured_rounds(xp):
            if self.args.enable_am:
                blocking_am_send(worker, ep, sent)
                blocking_am_recv(worker, ep)
                continue
            if not self.args.reuse_alloc:
                received = xp.zeros(self.args.n_bytes, dtype="u1")
            if not self.args.delay_progress:
                blocking_send(worker, ep, sent)
                blocking_recv(worker, ep, received)
                continue
            non_blocking_recv(worker, ep, received, count.start, count.complete)
            non_blocking_send(worker, ep, sent, count.start, count.complete)
            is_last = number == self.rounds - 1
            most = 0 if is_last else self.args.max_outstanding - 1
            count.wait(worker, most)
        worker.close()

    def print_backend_specific_config(self) -> None:
        delay = self.args.delay_progress
        print_key_value("Transfer API", "AM" if self.args.enable_am else "TAG")
        print_key_value(
            "Delay progress", f"True ({self.args.max_outstanding})" if delay else False
        )
        for option in ("TLS", "NET_DEVICES"):
            print_key_value(f"UCX_{option}", ucp.get_config()[option])
