# SPDX-License-Identifier: BSD-3-Clause
"""Futures of threads that share a worker: of operations of several requests, and
waiting for several futures."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from .._core.operation import AnyRequest, Steps, call_if_alive, warn_dropped
from .._core.worker import Worker
from ..exceptions import UCXTimeout
from .blocking import Future, SharedWorker
from .steps import settled

_T = TypeVar("_T")


class OperationFuture(Future[_T]):
    """Drives steps, in whichever thread finds that the request is done that they
    wait for."""

    def __init__(self, worker: Worker, steps: Steps[_T]) -> None:
        concurrent.futures.Future.__init__(self)
        self._worker = worker
        self._steps = steps
        self._request = None
        self._cause: BaseException | None = None  # is to be thrown into the steps
        self._is_cancelling = False
        self._lock = threading.Lock()  # of the thread that runs the steps
        self._is_due = False  # a thread has had something to do for it
        self._advance()

    def _go_on(self, _request: Any = None) -> None:
        """Let the steps go on. No thread waits for another one here: it may have
        begun in the middle of the steps of another operation."""
        self._is_due = True
        while self._is_due and self._lock.acquire(blocking=False):
            try:
                self._is_due = False
                request = self._request
                if request is not None and (self._cause or request.done()):
                    self._advance()
            finally:
                self._lock.release()

    def _advance(self) -> None:
        cause, self._cause = self._cause, None
        try:
            request = next(self._steps) if cause is None else self._steps.throw(cause)
        except StopIteration as end:
            self._finish(end.value, None)
        except BaseException as exc:
            self._finish(None, exc)
        else:
            self._request = request
            self._listen(request)

    def _listen(self, request: AnyRequest) -> None:
        request.add_done_callback(self._go_on)

    def _finish(self, result: Any, exc: BaseException | None) -> None:
        self._request = None
        is_cancelled = self._is_cancelling or isinstance(exc, asyncio.CancelledError)
        result = settled(result, is_cancelled)
        if is_cancelled:
            concurrent.futures.Future.cancel(self)
            self.set_running_or_notify_cancel()
            return
        self.set_running_or_notify_cancel()
        if exc is not None:
            self.set_exception(exc)
        else:
            self.set_result(result)

    def _wait(self, timeout: float | None) -> float | None:
        end = None if timeout is None else time.monotonic() + timeout
        while (request := self._request) is not None:
            left = None if end is None else max(0, end - time.monotonic())
            if not self._worker._wait(left, request):
                return 0
            self._go_on()
            if self._request is request:
                with self._lock:  # another thread runs the steps
                    pass
        return None

    def cancel(self) -> bool:
        if self._request is None:
            return False
        if not self._is_cancelling:
            self._is_cancelling = True
            self._cause = asyncio.CancelledError()
            self._go_on()
        return True


class ReceivingFuture(OperationFuture[_T]):
    """The future of an operation that takes a message: see steps.Receiving."""

    def __init__(self, worker: Worker, steps: Steps[_T], name: str) -> None:
        self._name = name
        self._is_waited_for = False
        super().__init__(worker, steps)

    def _listen(self, request: AnyRequest) -> None:
        if self._is_waited_for:
            super()._listen(request)
        else:
            request.add_done_callback(call_if_alive(self._go_on))

    def add_done_callback(self, fn: Callable[[Any], object]) -> None:
        request = self._request
        self._is_waited_for = True
        if request is not None:
            super()._listen(request)
        super().add_done_callback(fn)

    def __del__(self) -> None:
        if not self.done():
            self._steps.close()
            warn_dropped(self, self._name)


def begin(
    shared: SharedWorker, steps: Steps[_T], receives: str = ""
) -> OperationFuture[_T]:
    """The future of an operation, which begins; with the name of one that receives a
    message."""
    worker = shared.worker
    future = (
        ReceivingFuture(worker, steps, receives)
        if receives
        else OperationFuture(worker, steps)
    )
    if not future.done():
        shared._start_keeper()
    return future


# ---- several futures -----------------------------------------------------------


def waitall(futures: Iterable[Future[Any]], timeout: float | None = None) -> list[Any]:
    """Wait until all futures are done; return their results.

    Raises:
        UCXTimeout: they are not done within ``timeout`` seconds. They go on.
        The exception of the first one that has one, once all are done.
    """
    futures = list(futures)
    end = None if timeout is None else time.monotonic() + timeout
    for future in futures:
        left = None if end is None else max(0, end - time.monotonic())
        try:
            future.exception(left)
        except concurrent.futures.CancelledError:
            continue
        except TimeoutError:
            if future.done():
                continue  # it is the future's own
            count = sum(not future.done() for future in futures)
            raise UCXTimeout(
                f"{count} of {len(futures)} operations are not done within {timeout} s"
            ) from None
    return [future.result() for future in futures]


def waitany(futures: Sequence[Future[Any]], timeout: float | None = None) -> int | None:
    """Wait until one of the futures is done; return the index of the first that is.
    None: there are no futures.

    Raises:
        UCXTimeout: none is done within ``timeout`` seconds.
    """
    if not futures:
        return None
    if (index := testany(futures)) is None:
        first = concurrent.futures.FIRST_COMPLETED
        concurrent.futures.wait(futures, timeout, first)
        if (index := testany(futures)) is None:
            raise UCXTimeout(
                f"none of {len(futures)} operations is done within {timeout} s"
            )
    return index


def testany(futures: Sequence[Future[Any]]) -> int | None:
    """Make progress; return the index of the first future that is done, or None."""
    for index, future in enumerate(futures):
        if future.test():
            return index
    return None


def testall(futures: Iterable[Future[Any]]) -> bool:
    """Make progress; True if all futures are done."""
    return sum(not future.test() for future in futures) == 0
