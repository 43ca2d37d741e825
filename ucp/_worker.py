# SPDX-License-Identifier: BSD-3-Clause
"""The worker of an event loop, or of a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, ParamSpec, Self, TypeVar, overload
from weakref import WeakSet

from . import _ext
from ._callback import Callback
from ._endpoint import Endpoint
from ._listener import Listener
from ._submit import Submission
from ._waiters import Waiters

_P = ParamSpec("_P")
_T = TypeVar("_T")
_AmHandler = Callable[[Endpoint, _ext.Message], object]


class Worker(_ext.Worker):
    """Moves the data of the endpoints made in one event loop.

    Its owner is the thread that made it. ``fileno()`` and ``arm()`` let any
    other framework drive it. It ends with its event loop, or by ``abort()``.
    """

    __slots__ = (
        "_addressed",
        "_blocks",
        "_dropped_listeners",
        "_endpoints",
        "_guard",
        "_helper",
        "_listeners",
        "_message_listeners",
        "_submissions",
        "_tasks",
        "_thread",
    )

    _blocks: int  # of run_in_thread() that are open
    _guard: AsyncGenerator[None, None] | None
    _helper: threading.Thread | None
    _submissions: set[Submission]
    _addressed: Waiters  # for endpoints from the worker's address
    _dropped_listeners: set[Listener]
    _endpoints: WeakSet[Endpoint]
    _listeners: WeakSet[Listener]
    _message_listeners: set[_ext.MessageListener]
    _tasks: set[asyncio.Task[object]]
    _thread: threading.Thread

    def __new__(
        cls, context: _ext.Context, loop: asyncio.AbstractEventLoop | None
    ) -> Self:
        self = super().__new__(cls, context, loop, Endpoint, Listener)
        self._addressed = Waiters()
        self._dropped_listeners = set()
        self._endpoints = WeakSet()
        self._listeners = WeakSet()
        self._message_listeners = set()
        self._tasks = set()
        self._thread = threading.current_thread()
        self._blocks = 0
        self._guard = None
        self._helper = None
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
        """Run ``work`` in the worker's thread; callable from any thread.

        ``worker.submit(ep.send, buffer).result()`` sends from a thread
        without an event loop. What one thread submits starts in that order,
        in the context variables of the caller.

        Args:
            work: coroutine or other awaitable; or a function, called with
                ``args`` and ``kwargs``, whose result is awaited if it can be.
                The function must not block: it runs in the event loop, or
                inside ``progress()`` of a worker without one, which cannot
                await.

        Returns:
            The future result. Cancelling it keeps ``work`` from starting and
            cancels what it awaits. Cancelled as well when the worker closes.
            Waiting for it in the worker's own thread would wait for ever.

        Raises:
            RuntimeError: the worker is closed, or the parent process's.
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
    ) -> None:
        submission = Submission(self, future, work, args, kwargs)
        self._submissions.add(submission)
        try:
            self._submit(submission.run)
        except BaseException:
            self._submissions.discard(submission)
            raise

    def am_handler(self, id: int) -> Callable[[_AmHandler], _AmHandler]:
        """Decorate what handles the active messages of that id.

        ``handler(ep, message)``, a function or a coroutine function, is called
        in the loop with each active message that no ``am_recv`` waits for, on
        any endpoint of the worker, in the order of sending. The bytes are
        ``memoryview(message)`` if ``message.is_here``, without a copy, for as
        long as the view or the message lives (the sender's credit comes back
        when they go); else ``await message.recv(buffer)`` gets them. What
        stands in ``message.header`` is the sender's.

        Args:
            id: 16 to 65535. An earlier handler is replaced.

        Raises:
            ValueError: not an id.
            TypeError: not callable.
        """

        def set_handler(handler: _AmHandler) -> _AmHandler:
            self.set_am_handler(id, handler)
            return handler

        return set_handler

    def set_am_handler(self, id: int, handler: _AmHandler | None) -> None:
        """As ``am_handler``; None: messages wait for ``am_recv`` again."""
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
        """What ``am_recv`` makes its buffers with; None: bytearray.

        Args:
            allocator: called with a number of bytes; gives a writable buffer
                of that many.
            kind: "host", or "cuda" for messages sent from memory of a GPU by
                rendezvous. Short ones always arrive in host memory.

        Raises:
            ValueError: no such kind.
            TypeError: not callable.
        """
        if kind not in ("host", "cuda"):
            raise ValueError(f"kind must be 'host' or 'cuda', not {kind!r}")
        if allocator is not None and not callable(allocator):
            raise TypeError(f"an allocator is callable, {allocator!r} is not")
        self._set_am_allocator(kind == "cuda", allocator)

    @contextmanager
    def run_in_thread(self) -> Iterator[None]:
        """Keep messages moving while this thread is busy or blocked.

        ``with worker.run_in_thread(): compute()`` has a second thread make
        progress until the block ends: what was posted moves on, peers connect,
        heartbeats are answered and timeouts run out, although the event loop
        does not get its turn. The second thread sleeps when there is nothing
        to do, and takes the GIL when there is: code that holds the GIL for
        long without running Python holds it up.

        Everything may be called in the block that may be called outside of
        it, in the same thread, ``await`` included. Callbacks and tasks run in
        the loop as ever, so not before the blocking code returns; without a
        loop, in the next ``progress()``. Blocks may overlap and nest: the
        thread ends with the last one.

        Awaiting is slower in the block, since two threads wake up for each
        message: keep it around what blocks.

        Raises:
            RuntimeError: the worker is closed, or another thread's.
        """
        self._enter_block()
        try:
            yield
        finally:
            self._leave_block()

    def _enter_block(self) -> None:
        self._check()
        if self._share(True):
            try:
                self._helper = threading.Thread(
                    target=self._run, name="ucp progress", daemon=True
                )
                self._helper.start()
            except BaseException:
                self._share(False)
                self._helper = None
                raise
        self._blocks += 1

    def _leave_block(self) -> None:
        self._blocks -= 1
        if self._blocks == 0:
            self._stop_helper()

    def _stop_helper(self) -> None:
        """End the helper thread. Any thread may call: the collector can end a block."""
        self._share(False)
        helper = self._helper
        if helper is not None and helper is not threading.current_thread():
            helper.join()
            self._helper = None

    def abort(self) -> None:
        """End the worker and all under it at once.

        Listeners stop, endpoints are closed by force, pending requests and
        submissions are cancelled.
        """
        if self._helper not in (None, threading.current_thread()) and not self.closed():
            self._check()
            self._stop_helper()
        super().abort()
        for submission in list(self._submissions):
            submission.abandon()
        for listener in list(self._listeners):
            listener.close()
        for messages in list(self._message_listeners):
            messages._run()
        self._addressed.wake()
