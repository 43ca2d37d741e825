# SPDX-License-Identifier: BSD-3-Clause
"""A worker that threads share without an event loop, for ``ucp.sync.Communicator``.

A call of any thread makes progress itself until its operation has ended: see
``ucp_ext/worker/share.c``. Between the calls the progress thread of libumx does.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from .. import _ext
from .._core import lifecycle
from .._core.operation import call_if_alive, warn_dropped
from .._core.resolve import resolve_now
from .._core.worker import Worker
from ..exceptions import UCXCloseError
from . import bootstrap, environment
from .communicator import Communicator

_T = TypeVar("_T")


class SharedWorker:
    """A worker of communicators, closed with the last one."""

    def __init__(self) -> None:
        self.worker = lifecycle.create_shared_worker()
        self._users = 0  # communicators
        self._keeper: threading.Thread | None = None
        self._lock = threading.RLock()  # the collector may release communicators

    def hold(self) -> None:
        """Count a communicator."""
        with self._lock:
            self._users += 1

    def release(self, pid: int) -> None:
        """Close the worker with the last communicator, in the process ``pid``."""
        if pid != os.getpid():
            return
        with self._lock:
            self._users -= 1
            is_last = self._users == 0
        if is_last and not self.worker.closed():
            self.stop()

    def check(self) -> None:
        """Raise UCXCloseError if the worker was closed, or is the parent's."""
        if self.worker.closed():
            raise UCXCloseError("ucp was shut down meanwhile")

    def future_of(self, request: _ext.Request[_T]) -> Future[_T]:
        """Make the future of an operation that has begun."""
        if not request.done():
            self._start_keeper()
        future: Future[_T] = Future(self.worker, request)
        request.add_done_callback(future._settle)
        return future

    def receive_future_of(self, request: _ext.Request[_T]) -> Future[_T]:
        """The same of a receive, which is withdrawn when nobody has the future."""
        if request.done():
            return self.future_of(request)
        self._start_keeper()
        return ReceiveFuture(self.worker, request)

    def _start_keeper(self) -> None:
        """Have a thread settle the futures that no thread waits for."""
        with self._lock:
            if self._keeper is None:
                self._keeper = threading.Thread(
                    target=_keep, args=[self.worker], name="ucp futures", daemon=True
                )
                self._keeper.start()

    def stop(self, timeout: float | None = None) -> None:
        """Close the worker; wait for ``timeout`` seconds at most, or the close
        timeout, until its endpoints have closed."""
        lifecycle.close_now(self.worker, timeout=timeout)
        with self._lock:
            keeper = self._keeper
        if keeper is not None and keeper is not threading.current_thread():
            keeper.join()


def _keep(worker: Worker) -> None:
    while worker._keep():
        pass


class Future(concurrent.futures.Future[_T]):
    """The future of an operation that has begun, such as ``isend()``.

    A thread that asks for the result makes progress. Cancelling a receive takes it
    back, so that it loses no message.
    """

    def __init__(self, worker: Worker, request: _ext.Request[_T]) -> None:
        super().__init__()
        self._worker = worker
        self._request: _ext.Request[_T] | None = request

    def _settle(self, request: _ext.Request[_T]) -> None:
        """Runs once, in the thread that has found the request done."""
        self._request = None
        try:
            exc = request.exception()
        except asyncio.CancelledError:
            super().cancel()
            self.set_running_or_notify_cancel()
            return
        self.set_running_or_notify_cancel()
        if exc is not None:
            self.set_exception(exc)
        else:
            self.set_result(request.result())

    def _wait(self, timeout: float | None) -> float | None:
        """Make progress; return how long to wait for the thread that settles it."""
        request = self._request
        if request is None or self._worker._wait(timeout, request):
            return None
        return 0

    def cancel(self) -> bool:
        request = self._request
        return super().cancel() if request is None else request.cancel()

    def result(self, timeout: float | None = None) -> _T:
        return super().result(self._wait(timeout))

    def exception(self, timeout: float | None = None) -> BaseException | None:
        return super().exception(self._wait(timeout))

    def wait(self, timeout: float | None = None) -> _T:
        """``result()``, by the name that it has in MPI."""
        return self.result(timeout)

    def test(self) -> bool:
        """Make progress; True if it is done."""
        if not self.done() and not self._worker.closed():
            self._worker.progress()
        return self.done()


class ReceiveFuture(Future[_T]):
    """The future of ``irecv()``. A receive that went on after its last future would
    take a message that nobody gets."""

    def __init__(self, worker: Worker, request: _ext.Request[_T]) -> None:
        super().__init__(worker, request)
        request.add_done_callback(call_if_alive(self._settle))

    def add_done_callback(self, fn: Callable[[Any], object]) -> None:
        request = self._request
        if request is not None:  # it waits for somebody
            request.add_done_callback(lambda _: self)
        super().add_done_callback(fn)

    def __del__(self) -> None:
        request = self._request
        if request is not None and not request.done():
            request.cancel()
            warn_dropped(self, "irecv")


# ---- meeting the other ranks ---------------------------------------------------


def connect(
    worker: Worker,
    root: Any,
    rank: int | None,
    size: int,
    timeout: float | None,
    name: str,
    heartbeat: float | None,
) -> Communicator:
    """``Communicator.connect()`` that waits."""
    number = bootstrap.rank_number(rank)
    if not isinstance(root, str):
        return meet(worker, number, size, root, timeout, name, heartbeat)
    if root.startswith("file:"):
        return _meet_by_file(worker, root, number, size, timeout, name, heartbeat)
    host, port = environment.split_address(root, "the root")
    address = resolve_now(host, port)[0]
    return meet(worker, number, size, address, timeout, name, heartbeat)


def meet(
    worker: Worker,
    rank: int,
    size: int,
    where: Any,
    timeout: float | None,
    name: str,
    heartbeat: float | None,
) -> Communicator:
    if rank == 0 and not isinstance(where, tuple):
        where = None
    comm = Communicator(worker)
    worker._call(None, comm._create, rank, size, where, timeout, name, heartbeat)
    return comm


def _meet_by_file(
    worker: Worker,
    url: str,
    rank: int,
    size: int,
    timeout: float | None,
    name: str,
    heartbeat: float | None,
) -> Communicator:
    path = bootstrap.path_of(url, rank)
    if rank == 0:
        with bootstrap.root_file(path, worker):
            return meet(worker, 0, size, None, timeout, name, heartbeat)
    end = None if timeout is None else time.monotonic() + timeout
    while True:
        while (root := bootstrap.read_root(path, end, timeout)) is None:
            time.sleep(bootstrap.LOOK)
        left = None if end is None else max(0, end - time.monotonic())
        comm = Communicator(worker)
        making = comm._create(rank, size, root, left, name, heartbeat)
        try:
            if _made_unless_changed(worker, making, path, root):
                return comm
        finally:
            making.cancel()


def _made_unless_changed(
    worker: Worker, making: _ext.Request[None], path: Path, root: _ext.UCXAddress
) -> bool:
    while not worker._wait(bootstrap.LOOK, making):
        if bootstrap.has_changed(path, root):
            return False
    making.result()
    return True
