# SPDX-License-Identifier: BSD-3-Clause
"""A worker that threads share without an event loop, for ``ucp.sync.Communicator``.

A call of any thread makes progress itself until its operation has ended: see
``ucp_ext/worker/share.c``. Between the calls the progress thread of libumx does.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from .. import _ext
from .._core import lifecycle
from .._core.operation import AnyRequest, call_if_alive, warn_dropped
from .._core.resolve import resolve_now
from .._core.worker import Worker
from . import bootstrap, environment
from .communicator import Communicator
from .steps import check_open

_T = TypeVar("_T")


class SharedWorker:
    """A worker of communicators, closed with the last one."""

    def __init__(self) -> None:
        self.worker = lifecycle.create_shared_worker()
        self._users = 0  # communicators
        self._keeper: threading.Thread | None = None
        self._lock = threading.RLock()  # the collector may release communicators
        begin, keep = self.worker._begin, self._start_keeper
        self.begin = functools.partial(begin, Future, keep)
        self.begin_receive = functools.partial(begin, ReceiveFuture, keep)

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
        check_open(self.worker)

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


class _Attribute:
    """An attribute of concurrent.futures.Future that a light future has not got.
    Whoever reads it needs a complete one."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, future: Any, owner: type) -> Any:
        if future is None:
            return self
        future._make_complete()
        return future.__dict__[self._name]


_completing = threading.RLock()


class Future(_ext.ThreadFuture[_T], concurrent.futures.Future[_T]):
    """The future of an operation that has begun, such as ``isend()``.

    A thread that asks for the result makes progress. Cancelling a receive takes it
    back, so that it loses no message.

    It is light until somebody needs more than the result: see
    ``ucp_ext/type/thread_future.c``, which calls the methods ``_complete_...`` of one
    that is complete.
    """

    _condition: Any = _Attribute()
    _state: Any = _Attribute()
    _result: Any = _Attribute()
    _exception: Any = _Attribute()
    _waiters: Any = _Attribute()
    _done_callbacks: Any = _Attribute()

    _worker: Worker
    _request: _ext.Request[_T] | None

    def _make_complete(self) -> None:
        """Have all that a concurrent.futures.Future has."""
        with _completing:
            if "_condition" in self.__dict__:
                return  # another thread has been faster
            concurrent.futures.Future.__init__(self)
            posted = self._posted
            if posted is None:
                self._request = None
                self._set_outcome(self)
                self._complete()
            else:
                self._worker, self._request = posted
                self._complete()
                self._listen(posted[1])

    def _listen(self, request: _ext.Request[_T]) -> None:
        request.add_done_callback(self._settle)

    def _settle(self, request: _ext.Request[_T]) -> None:
        """Runs once, in the thread that has found the request done."""
        self._request = None
        self._set_outcome(request)

    def _set_outcome(self, source: _ext.Request[_T] | Future[_T]) -> None:
        try:
            exc = source.exception()
        except (asyncio.CancelledError, concurrent.futures.CancelledError):
            concurrent.futures.Future.cancel(self)
            self.set_running_or_notify_cancel()
            return
        result: Any = None if exc is not None else source.result()
        self.set_running_or_notify_cancel()
        if exc is not None:
            self.set_exception(exc)
        else:
            self.set_result(result)

    def _wait(self, timeout: float | None) -> float | None:
        """Make progress; return how long to wait for the thread that settles it."""
        request = self._request
        if request is None or self._worker._wait(timeout, request):
            return None
        return 0

    def _complete_result(self, timeout: float | None) -> _T:
        return concurrent.futures.Future.result(self, self._wait(timeout))

    def _complete_exception(self, timeout: float | None) -> BaseException | None:
        return concurrent.futures.Future.exception(self, self._wait(timeout))

    def _complete_done(self) -> bool:
        return concurrent.futures.Future.done(self)

    def _complete_test(self) -> bool:
        if not self.done() and not self._worker.closed():
            self._worker.progress()
        return self.done()

    def _complete_cancelled(self) -> bool:
        return concurrent.futures.Future.cancelled(self)

    def _complete_cancel(self) -> bool:
        request = self._request
        if request is None:
            return concurrent.futures.Future.cancel(self)
        return request.cancel()

    def _raise_cancelled(self) -> NoReturn:
        raise concurrent.futures.CancelledError

    def _drop(self, request: _ext.Request[_T]) -> None:
        """Nobody has the future: the operation goes on."""
        request.add_done_callback(_ask)

    def _complete_drop(self) -> None:
        """The same of one that is complete. Its callback has kept it until now."""


def _ask(request: AnyRequest) -> None:
    """See a failure, of which nobody is to be told."""
    if not request.cancelled():
        request.exception()


class ReceiveFuture(Future[_T]):
    """The future of ``irecv()``. A receive that went on after its last future would
    take a message that nobody gets."""

    def _listen(self, request: _ext.Request[_T]) -> None:
        request.add_done_callback(call_if_alive(self._settle))

    def add_done_callback(self, fn: Callable[[Any], object]) -> None:
        self._make_complete()
        request = self._request
        if request is not None:  # it waits for somebody
            request.add_done_callback(lambda _: self)
        super().add_done_callback(fn)

    def _drop(self, request: _ext.Request[_T]) -> None:
        request.cancel()
        warn_dropped(self, "irecv")

    def _complete_drop(self) -> None:
        request = self._request
        if request is not None and not request.done():
            self._drop(request)


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
