# SPDX-License-Identifier: BSD-3-Clause
"""One worker per event loop: made on first use, closed with its loop.

A worker is closed by whatever ends its loop first:

- ``loop.shutdown_asyncgens()``, which asyncio.run() and uvloop.run() call:
  each worker has an asynchronous generator whose cleanup closes endpoints
  gracefully and waits for them. So a program may return from its main
  coroutine right after its last ``send``.
- ``reset()``, or the interpreter's exit.
- The next use of ucp in the thread, or in any thread if that one has ended,
  when the loop was closed without the above.

Calls outside of a running loop share one worker per thread; it moves only in
``progress()``.
"""

from __future__ import annotations

import asyncio
import atexit
import gc
import os
import threading
import warnings
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, ParamSpec, SupportsIndex, TypeVar, overload
from weakref import WeakSet

from . import _context, _ext
from ._callback import Callback
from ._context import logger
from ._endpoint import Endpoint
from ._listener import Listener
from ._submit import Submission
from .exceptions import UCXBaseException, UCXError

_P = ParamSpec("_P")
_T = TypeVar("_T")
_AmHandler = Callable[[Endpoint, _ext.Message], object]


class Worker(_ext.Worker):
    """Moves the data of the endpoints made in one event loop.

    Its owner is the thread that made it. ``fileno()`` and ``drain()`` let any
    other framework drive it.
    """

    __slots__ = (
        "_blocks",
        "_guard",
        "_helper",
        "_submissions",
        "addressed_waiters",
        "dropped_listeners",
        "endpoints",
        "listeners",
        "message_listeners",
        "tasks",
        "thread",
    )

    _blocks: int  # of run_in_thread() that are open
    _guard: AsyncGenerator[None, None] | None
    _helper: threading.Thread | None
    _submissions: set[Submission]
    addressed_waiters: set[asyncio.Future[None]]
    dropped_listeners: set[Listener]
    endpoints: WeakSet[Endpoint]
    listeners: WeakSet[Listener]
    message_listeners: set[_ext.MessageListener]
    tasks: set[asyncio.Task[object]]
    thread: threading.Thread

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{len(self.endpoints)} endpoints"
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
            self.tasks,
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
        """Any thread, the helper too: the collector may end a block there."""
        self._share(False)
        helper = self._helper
        if helper is not None and helper is not threading.current_thread():
            helper.join()
            self._helper = None

    def close(self) -> None:
        """Destroy the worker and all under it.

        Listeners stop, endpoints are closed by force, pending requests and
        submissions are cancelled.
        """
        if self._helper not in (None, threading.current_thread()) and not self.closed:
            self._check()
            self._stop_helper()
        super().close()
        for submission in list(self._submissions):
            submission.abandon()
        for listener in list(self.message_listeners):
            listener._run()
        self.wake_addressed()

    def wake_addressed(self) -> None:
        """Another endpoint from the worker's address, or none any more."""
        for waiter in self.addressed_waiters:
            if not waiter.done() and not waiter.get_loop().is_closed():
                waiter.set_result(None)


_Key = asyncio.AbstractEventLoop | threading.Thread
_workers: dict[_Key, Worker] = {}


def current_worker() -> Worker:
    """The worker of the running loop, or of the thread if none runs.

    Made on first use, and with it the process's context.
    """
    loop = _running_loop()
    worker = _workers.get(loop or threading.current_thread())
    if worker is not None and not worker.closed:
        return worker
    return _create(loop)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _create(loop: asyncio.AbstractEventLoop | None) -> Worker:
    _close_orphans()
    context = _context.get_context()
    worker = Worker(context, loop, Endpoint, Listener)
    worker.endpoints = WeakSet()
    worker.addressed_waiters = set()
    worker.message_listeners = set()
    worker.on_addressed = _waker(worker)
    worker.listeners = WeakSet()
    worker.dropped_listeners = set()
    worker.tasks = set()
    worker._submissions = set()
    worker.thread = threading.current_thread()
    worker._guard = None
    worker._blocks = 0
    worker._helper = None
    _workers[loop or worker.thread] = worker
    if loop is not None:
        worker._guard = _guard(worker)
        _step(worker._guard.__anext__())  # registers it with the loop
    return worker


def _waker(worker: Worker) -> Callable[[], None]:
    """``worker.wake_addressed``, but no reference to it."""
    reference = weakref.ref(worker)

    def wake() -> None:
        worker = reference()
        if worker is not None:
            worker.wake_addressed()

    return wake


async def _guard(worker: Worker) -> AsyncGenerator[None, None]:
    """Close ``worker`` when the loop shuts its generators down."""
    try:
        yield
    finally:
        if not worker.closed:
            _start_closing(worker)
            await worker.close_all(_context.close_timeout())
            _discard(worker)


def _step(awaitable: Awaitable[None]) -> None:
    """Run what does not wait."""
    try:
        awaitable.__await__().send(None)
    except StopIteration:
        pass


def _start_closing(worker: Worker) -> None:
    """Stop listening and start to close what is open."""
    worker.withdraw_address()
    for listener in [*worker.dropped_listeners]:
        _Unclosed(repr(listener))
        listener.close()
    for listener in [*worker.listeners]:
        listener.close()
    for endpoint in list(worker.endpoints):
        # Not closed(): that is true already while the peer still waits for us.
        if endpoint.state not in ("closed", "failed"):
            _ext.Endpoint.close(endpoint)


class _Unclosed:
    """Warns when it goes, as what is collected does: where a warning is an error,
    that must not keep a worker from closing."""

    def __init__(self, listener: str) -> None:
        self._listener = listener

    def __del__(self) -> None:
        warnings.warn(
            f"{self._listener} was dropped and never closed",
            ResourceWarning,
            stacklevel=2,
        )


def _discard(worker: Worker) -> None:
    """Destroy ``worker``; forget it."""
    worker.close()
    for key, value in list(_workers.items()):
        if value is worker:
            del _workers[key]


def _close_now(worker: Worker) -> None:
    """Close outside of its loop: waits, at most the close timeout."""
    if not worker.closed:
        worker._stop_helper()
        _start_closing(worker)
        worker.run_until_closed(_context.close_timeout())
    _discard(worker)
    if worker._guard is not None:
        _step(worker._guard.aclose())  # else it keeps the worker


def _close_orphans() -> None:
    """Close workers whose loop was closed under them, or whose thread ended."""
    for worker in list(_workers.values()):
        ended = worker.loop is None or worker.loop.is_closed()
        if worker.thread is threading.current_thread():
            ended = worker.loop is not None and worker.loop.is_closed()
        if ended and _take_over(worker):
            _close_now(worker)


def _take_over(worker: Worker) -> bool:
    """True if ``worker`` is this thread's, now that its own has ended."""
    if worker.thread is threading.current_thread():
        return True
    if worker.thread.is_alive():
        return False
    worker._adopt()
    worker.thread = threading.current_thread()
    return True


def _close_at_exit() -> None:
    for worker in list(_workers.values()):
        if _take_over(worker):
            try:
                _close_now(worker)
            except UCXBaseException as exc:
                logger.debug("closing %r at exit: %s", worker, exc)


def _forget_after_fork() -> None:
    """The child's objects are the parent's: it starts with none."""
    for worker in _workers.values():
        worker._disown()
    _workers.clear()
    _context.forget_context()


atexit.register(_close_at_exit)
os.register_at_fork(after_in_child=_forget_after_fork)


# Called by reset(), first.
before_reset: list[Callable[[], None]] = []


def reset() -> None:
    """Shut down all of UCX; the next call starts it anew.

    Closed objects need not be gone. Waits for closes that go on in the
    background, at most the close timeout.

    Raises:
        UCXError: endpoints, listeners or memories are open, or a loop in
            another thread uses ucp; names them and changes nothing.
    """
    gc.collect()
    for prepare in before_reset:
        prepare()
    _close_orphans()
    using = [text for worker in _workers.values() for text in _users(worker)]
    using += [repr(memory) for memory in _context.memories if not memory.closed]
    if using:
        raise UCXError(
            "Trying to reset UCX but not all Endpoints and/or Listeners "
            "are closed(). The following objects are still referencing "
            "ApplicationContext: " + "".join(f"\n  {text}" for text in using)
        )
    for worker in list(_workers.values()):
        _close_now(worker)
    _context.forget_context()


def _users(worker: Worker) -> list[str]:
    """What keeps ``worker`` from being reset, in words."""
    held = [
        thing for thing in worker.listeners if thing not in worker.dropped_listeners
    ]
    things: list[Endpoint | Listener] = [*worker.endpoints, *held]
    open_ones = [repr(thing) for thing in things if not thing.closed()]
    if not open_ones and worker.thread is not threading.current_thread():
        return [f"{worker!r} in {worker.thread!r}"]
    return open_ones


def get_ucp_worker() -> int:
    """UCX's ``ucp_worker_h`` of the current worker."""
    return current_worker().handle


def get_ucp_worker_info() -> str:
    """UCX's own description of the current worker."""
    return current_worker().info()


def progress() -> int:
    """Move messages once without waiting; returns the number of events.

    A program in an event loop has no need of it. Not to be called from a
    callback of ucp.
    """
    return current_worker().progress()


def register_am_allocator(
    allocator: Callable[[int], Any] | None, allocator_type: str = "host"
) -> None:
    """``Worker.register_am_allocator`` of the current worker."""
    current_worker().register_am_allocator(allocator, allocator_type)


def continuous_ucx_progress(
    event_loop: asyncio.AbstractEventLoop | None = None,
) -> None:
    """Let the running loop drive its worker from now on.

    Every call that needs it does this by itself.

    Raises:
        RuntimeError: ``event_loop`` is not the running loop.
    """
    if event_loop is not None and event_loop is not _running_loop():
        raise RuntimeError("only the running event loop can drive a worker")
    current_worker()


async def flush() -> None:
    """Wait until all that was sent is in the peers' memory."""
    if _context.current_context() is not None:
        await current_worker().flush()


def fence() -> None:
    """Have operations on peers' memory executed in order from here on.

    On each endpoint those that come later are executed after those before.
    Waits for nothing.
    """
    if _context.current_context() is not None:
        current_worker().fence()


async def recv(buffer: Any, tag: SupportsIndex) -> None:
    """Receive a message sent with ``force_tag=True`` by any peer.

    Args:
        buffer: writable and contiguous; of the message's length.
        tag: 64 bits; all of them count. ``Worker.recv`` has a mask, and takes
            shorter messages.

    Raises:
        UCXMsgTruncated: the lengths differ; the message is consumed.
        OverflowError: the tag is negative, or longer than 64 bits.

    When cancelled nothing is lost: the next receive gets the message.
    """
    await current_worker().tag_recv(buffer, tag)


__all__ = [
    "Worker",
    "continuous_ucx_progress",
    "current_worker",
    "fence",
    "flush",
    "get_ucp_worker",
    "get_ucp_worker_info",
    "progress",
    "recv",
    "reset",
]
