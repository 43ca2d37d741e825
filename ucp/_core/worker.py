# SPDX-License-Identifier: BSD-3-Clause
"""The worker of an event loop, or of a thread without one."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, ParamSpec, Self, TypeVar, overload

from .. import _ext
from .alive import Alive
from .callback import Callback
from .endpoint import Endpoint
from .listener import Listener
from .statistics import WorkerStatistics, warn_of_stats
from .submit import Submission
from .waiters import Waiters

_P = ParamSpec("_P")
_T = TypeVar("_T")
_AmHandler = Callable[[Endpoint, _ext.Message], object]


class Worker(_ext.Worker):
    """Moves the data of the endpoints that were made in one event loop.

    A worker belongs to the thread that made it, and ends with its event loop or by
    ``abort()``. A framework other than asyncio can drive a worker by ``fileno()``
    and ``arm()``.
    """

    __slots__ = (
        "_addressed",
        "_blocks",
        "_dropped_listeners",
        "_endpoints",
        "_guard",
        "_is_guard_closing",
        "_is_shared",
        "_listeners",
        "_message_listeners",
        "_outer",
        "_submissions",
        "_tasks",
        "_thread",
    )

    _blocks: int  # of run_in_thread() that are open
    _guard: AsyncGenerator[None, None] | None
    _is_guard_closing: bool
    _is_shared: bool  # by threads that wait in calls
    _submissions: set[Submission]
    _addressed: Waiters  # for endpoints from the worker's address
    _dropped_listeners: set[Listener]
    _endpoints: Alive[Endpoint]
    _listeners: Alive[Listener]
    _message_listeners: set[_ext.MessageListener]
    _outer: int  # id() of the exception that was being handled when it was made
    _tasks: set[asyncio.Task[object]]
    _thread: threading.Thread

    def __new__(
        cls, context: _ext.Context, loop: asyncio.AbstractEventLoop | None
    ) -> Self:
        self = super().__new__(cls, context, loop, Endpoint, Listener)
        self._addressed = Waiters()
        self._dropped_listeners = set()
        self._endpoints = Alive()
        self._listeners = Alive()
        self._message_listeners = set()
        self._tasks = set()
        self._thread = threading.current_thread()
        self._blocks = 0
        self._guard = None
        self._is_guard_closing = False
        self._is_shared = False
        self._outer = id(sys.exception())
        self._submissions = set()
        self._on_addressed = self._addressed.wake
        return self

    def __repr__(self) -> str:
        state = "closed" if self.closed() else f"{len(self._endpoints)} endpoints"
        return f"<ucp.Worker of {self.loop!r}, {state}>"

    @overload
    def submit(self, work: Awaitable[_T], /) -> Future[_T]: ...
    @overload
    def submit(
        self,
        work: Callable[_P, Awaitable[_T]],
        /,
        *args: _P.args,
        **kwargs: _P.kwargs,
    ) -> Future[_T]: ...
    @overload
    def submit(
        self, work: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs
    ) -> Future[_T]: ...
    def submit(self, work: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run ``work`` in the thread of the worker. Any thread may call this.

        ``worker.submit(ep.send, buffer).result()`` sends from a thread without an
        event loop. The submissions of one thread start in their order. Each
        runs with the context variables of its caller.

        Args:
            work: a coroutine or another awaitable; or a function that is called
                with ``args`` and ``kwargs``, and whose result is awaited if it is
                awaitable. The function must not block: it runs in the event loop.
                For a worker without an event loop it runs inside ``progress()``,
                and nothing can be awaited.

        Returns:
            A ``concurrent.futures.Future`` of the result. Cancelling it prevents
            ``work`` from starting, or cancels the awaitable. The future is also
            cancelled when the worker is closed. Do not wait for it in the thread
            of the worker: it would never be done.

        Raises:
            RuntimeError: the worker is closed, or belongs to the parent process.
        """
        future: Future[Any] = Future()
        self._submit_for(future, work, args, kwargs)
        return future

    def _submit_for(
        self,
        future: Future[Any],
        work: Callable[..., object] | Awaitable[object],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> Submission:
        submission = Submission(self, future, work, args, kwargs)
        self._submissions.add(submission)
        try:
            self._submit(submission.run)
        except BaseException:
            self._submissions.discard(submission)
            raise
        return submission

    def am_handler(self, id: int) -> Callable[[_AmHandler], _AmHandler]:
        """Decorate the function that handles the active messages of an id.

        ``handler(ep, message)``, a function or a coroutine function, is called in
        the event loop for each active message that no ``am_recv`` waits for, on
        every endpoint of the worker, in the order of sending. If
        ``message.is_here`` is true, ``memoryview(message)`` gives access to the
        bytes without a copy; the credit of the sender is returned when the view
        and the message are released. Otherwise ``await message.recv(buffer)``
        receives the bytes. ``message.header`` is the header of the sender.

        Args:
            id: 16 to 65535. The handler replaces an earlier one.

        Raises:
            ValueError: the id is not in this range.
            TypeError: the handler is not callable.
        """

        def set_handler(handler: _AmHandler) -> _AmHandler:
            self.set_am_handler(id, handler)
            return handler

        return set_handler

    def set_am_handler(self, id: int, handler: _AmHandler | None) -> None:
        """Set the handler of an id as ``am_handler`` does; None removes it.

        Without a handler messages wait for ``am_recv``.
        """
        if handler is None:
            self._set_am_handler(id, None)
            return
        if not callable(handler):
            raise TypeError(f"a handler is callable, {handler!r} is not")
        callback = Callback(
            handler,
            self.loop,
            self._tasks,
            f"exception in the handler of active messages {id}",
        )

        def on_message(message: _ext.Message) -> None:
            callback.soon(message.endpoint, message)

        self._set_am_handler(id, on_message)

    def register_am_allocator(
        self, allocator: Callable[[int], Any] | None, kind: str = "host"
    ) -> None:
        """Set the function that makes the buffers of ``am_recv``.

        Args:
            allocator: called with a number of bytes; returns a writable buffer of
                that length. None: ``bytearray``.
            kind: ``"host"``, or ``"cuda"`` for messages that are sent from GPU
                memory by rendezvous. Short messages always arrive in host memory.

        Raises:
            ValueError: ``kind`` is neither.
            TypeError: ``allocator`` is not callable.
        """
        if kind not in ("host", "cuda"):
            raise ValueError(f"kind must be 'host' or 'cuda', not {kind!r}")
        if allocator is not None and not callable(allocator):
            raise TypeError(f"an allocator is callable, {allocator!r} is not")
        self._set_am_allocator(kind == "cuda", allocator)

    @contextmanager
    def run_in_thread(self) -> Iterator[None]:
        """Keep messages moving while this thread is busy or blocked.

        In ``with worker.run_in_thread(): compute()`` a second thread makes progress
        until the block ends: messages move, peers connect, heartbeats are answered
        and timeouts expire, although the event loop does not run. The second
        thread sleeps when there is nothing to do, and while this thread makes
        progress itself. It does not need the GIL, so peers are served also while
        ``compute()`` holds it.

        In the block the thread of the worker may call everything that it may call
        outside of it, including ``await``. Callbacks and tasks still run in the
        event loop, and so not before the blocking code returns; without an event
        loop they run in the next ``progress()``. Blocks may overlap and nest: the
        second thread ends with the last one. Awaiting in a block takes some
        microseconds longer.

        Raises:
            RuntimeError: the worker is closed, or belongs to another thread.
        """
        self._enter_block()
        try:
            yield
        finally:
            self._leave_block()

    @property
    def statistics(self) -> WorkerStatistics:
        """Requests, endpoints, messages and wake-ups, counted.

        Raises:
            RuntimeError: the worker is closed, or belongs to another thread.
        """
        return WorkerStatistics(**super().stats())

    def stats(self) -> dict[str, int]:
        """Deprecated: ``statistics.as_dict()``."""
        warn_of_stats()
        return super().stats()

    def _serves_in_thread(self) -> bool:
        """True in a block of ``run_in_thread()``."""
        return self._blocks != 0

    def _enter_block(self) -> None:
        self._set_thread(True)
        self._blocks += 1

    def _leave_block(self) -> None:
        """Any thread may call: the collector may end a block."""
        self._blocks -= 1
        if self._blocks != 0 or self.closed():
            return
        try:
            self._check()
        except RuntimeError:
            self._submit(self._stop_unused_thread)
        else:
            self._set_thread(False)

    def _stop_unused_thread(self) -> None:
        if self._blocks == 0:
            self._set_thread(False)

    def abort(self) -> None:
        """End the worker and everything under it immediately.

        Listeners are closed, endpoints are closed by force, and pending requests
        and submissions are cancelled.
        """
        super().abort()
        for submission in list(self._submissions):
            submission.abandon()
        for listener in list(self._listeners):
            listener.close()
        for messages in list(self._message_listeners):
            messages._run()
        self._addressed.wake()
