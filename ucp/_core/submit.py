# SPDX-License-Identifier: BSD-3-Clause
"""Calls that other threads submit to the thread of a worker."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, cast

from .callback import name_call

if TYPE_CHECKING:
    from .worker import Worker


class Submission:
    """One submitted call, whose future is pending until the result is known.

    The future is settled exactly once, in the worker's thread. The submission
    then drops the future and the work, so that an endpoint in either is released
    without the collector.
    """

    def __init__(
        self,
        worker: Worker,
        future: Future[Any],
        work: Callable[..., object] | Awaitable[object],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> None:
        self._future: Future[Any] | None = future
        self._worker = worker
        self._work: Callable[..., object] | Awaitable[object] | None = work
        self._args = args
        self._kwargs = kwargs
        self._context = contextvars.copy_context()
        self._awaited: asyncio.Future[Any] | None = None
        self._has_ended = False
        self._ended: threading.Event | None = None  # for wait()

    def wait(self) -> None:
        """Wait until the call has ended; in another thread than the worker's.

        A call that was cancelled ends when its buffers are the caller's again.
        """
        self._ended = threading.Event()
        if not self._has_ended:
            self._ended.wait()

    def run(self) -> None:
        """Start the call; runs in the worker's thread."""
        if self._future is not None:
            self._context.run(self._start)

    def _start(self) -> None:
        if self._future is None or self._future.cancelled():
            self.abandon()
            return
        try:
            result: object = self._work
            if not inspect.isawaitable(result):
                work = cast(Callable[..., object], self._work)
                result = work(*self._args, **self._kwargs)
            if inspect.isawaitable(result):
                self._await(result)
                return
        except BaseException as exc:
            self._settle(exc, None)
            if isinstance(exc, SystemExit | KeyboardInterrupt):
                raise
        else:
            self._settle(None, result)

    def _await(self, awaitable: Awaitable[object]) -> None:
        loop = self._worker.loop
        if loop is None:
            _close(awaitable)
            raise RuntimeError("a worker without an event loop cannot await")
        self._awaited = asyncio.ensure_future(awaitable, loop=loop)
        if isinstance(self._awaited, asyncio.Task) and self._awaited is not awaitable:
            self._awaited.set_name(name_call(self._work, self._args))
        self._awaited.add_done_callback(self._on_done)
        if self._future is not None:
            self._future.add_done_callback(self._on_cancel)

    def _on_done(self, awaited: asyncio.Future[Any]) -> None:
        if self._future is not None and self._future.cancelled():
            awaited.cancel()  # nobody gets what it has received: it is given back
        if awaited.cancelled():
            self._cancel_future()
        elif (exc := awaited.exception()) is not None:
            self._settle(exc, None)
        else:
            self._settle(None, awaited.result())

    def _on_cancel(self, future: Future[Any]) -> None:
        """Cancel the awaitable; runs in the thread that has ended ``future``."""
        awaited = self._awaited
        if future.cancelled() and awaited is not None:
            try:
                self._worker._submit(awaited.cancel)
            except RuntimeError:
                pass  # the worker is closed, which has cancelled the call

    def abandon(self) -> None:
        """Cancel the call; runs in the worker's thread."""
        if self._future is None:
            return
        if self._awaited is None:
            _close(self._work)
        elif not self._awaited.get_loop().is_closed():
            self._awaited.cancel()
        self._cancel_future()

    def _cancel_future(self) -> None:
        if self._future is not None:
            self._future.cancel()
        self._settle(None, None)

    def _settle(self, exc: BaseException | None, result: object) -> None:
        self._has_ended = True
        if self._ended is not None:
            self._ended.set()
        future, self._future = self._future, None
        if future is None:
            return
        self._worker._submissions.discard(self)
        self._work = self._awaited = None
        self._args, self._kwargs = (), {}
        if not future.set_running_or_notify_cancel():
            return
        if exc is not None:
            future.set_exception(exc)
        else:
            future.set_result(result)


def _close(work: object) -> None:
    """Close a coroutine that will not be awaited."""
    if inspect.iscoroutine(work):
        work.close()
