# SPDX-License-Identifier: BSD-3-Clause
"""One worker per event loop: made on first use, closed with its loop.

A worker is closed by the first of these:

- ``loop.shutdown_asyncgens()``, which asyncio.run() and uvloop.run() call. Each
  worker has an asynchronous generator, whose cleanup closes the endpoints in
  agreement with their peers and waits for them. So a program may return from its
  main coroutine immediately after its last ``send``.
- ``reset()``, or the exit of the interpreter.
- The next use of ucp, if the loop was closed in another way: in the thread of
  the worker, or in any thread if that one has ended.

Calls outside of a running loop use one worker per thread, which makes progress
in ``progress()`` only.
"""

from __future__ import annotations

import asyncio
import atexit
import gc
import os
import sys
import threading
import warnings
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress

from .. import _ext
from ..exceptions import UCXBaseException, UCXError
from . import context as _context
from . import ending, log
from .endpoint import Endpoint
from .listener import Listener
from .log import logger
from .worker import Worker

_Key = asyncio.AbstractEventLoop | threading.Thread | Worker
_workers: dict[_Key, Worker] = {}


def current_worker() -> Worker:
    """Return the worker of the running event loop, or of the thread if none runs.

    The worker is made on first use, and with it the context of the process.

    Raises:
        RuntimeError: trio's event loop runs in this thread.
    """
    loop = running_loop()
    if loop is None:
        _refuse_trio()
    worker = _workers.get(loop or threading.current_thread())
    if worker is not None and not worker.closed():
        return worker
    return _create(loop)


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop that runs in this thread, or None."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def workers_of_thread() -> list[Worker]:
    """The open workers whose loops run in the calling thread, now or at times."""
    thread = threading.current_thread()
    return [
        worker
        for worker in list(_workers.values())
        if worker._thread is thread and not worker.closed()
    ]


def _refuse_trio() -> None:
    """Raise RuntimeError if trio's event loop runs in this thread."""
    trio = sys.modules.get("trio")
    if trio is None:
        return
    try:
        trio.lowlevel.current_trio_token()
    except RuntimeError:  # it does not
        return
    raise RuntimeError(
        "ucp needs asyncio's event loop, and trio's is running; call ucp in "
        "asyncio.run(), or ucp.sync in a thread of trio.to_thread.run_sync()"
    )


def _create(loop: asyncio.AbstractEventLoop | None) -> Worker:
    _close_orphans()
    context = _context.get_context()
    log.catch_up()
    worker = Worker(context, loop)
    _workers[loop or worker._thread] = worker
    if loop is not None:
        worker._guard = _guard(worker)
        _step(worker._guard.__anext__())  # registers it with the loop
    return worker


def create_shared_worker() -> Worker:
    """Make a worker that every thread may call, until ``close_now()``."""
    _close_orphans()
    worker = Worker(_context.get_context(), None)
    try:
        worker._share()
    except BaseException:
        worker.abort()
        raise
    worker._is_shared = True
    _workers[worker] = worker
    return worker


async def _guard(worker: Worker) -> AsyncGenerator[None, None]:
    """Close ``worker`` when the loop shuts down its asynchronous generators."""
    with suppress(GeneratorExit):
        yield
    if not worker.closed():
        exc = sys.exception()  # that ends the program of the loop
        _start_closing(worker, None if id(exc) == worker._outer else exc)
        worker._is_guard_closing = True
        await worker._close_all(_context.close_timeout())
        worker._is_guard_closing = False
        _discard(worker)


def _step(awaitable: Awaitable[None]) -> None:
    """Run an awaitable that finishes without waiting."""
    try:
        awaitable.__await__().send(None)
    except StopIteration:
        pass


def _start_closing(worker: Worker, exc: BaseException | None) -> None:
    """Close the listeners of ``worker`` and start to close its endpoints.

    Communicators that the program has not closed are left as by ``close()``; if it
    ends by ``exc``, they are aborted, as at the end of their ``async with``.
    """
    worker._withdraw_address()
    if exc is not None and ending.is_failure(exc):
        reason, fault = ending.reason_of(exc), ending.fault_of(exc)
        _ext.close_communicators(worker, reason, fault)
    else:
        _ext.close_communicators(worker)
    for listener in [*worker._dropped_listeners]:
        _Unclosed(repr(listener))
        listener.close()
    for listener in [*worker._listeners]:
        listener.close()
    for endpoint in list(worker._endpoints):
        # closed() is True already while the peer still waits for this side.
        if endpoint.state not in ("closed", "failed"):
            _ext.Endpoint.close(endpoint)


class _Unclosed:
    """Warns in its destructor, about a listener that was never closed.

    A warning that is an error is only reported there, and so does not keep the
    worker from closing.
    """

    def __init__(self, listener: str) -> None:
        self._listener = listener

    def __del__(self) -> None:
        warnings.warn(
            f"{self._listener} was dropped and never closed",
            ResourceWarning,
            stacklevel=2,
        )


def _discard(worker: Worker) -> None:
    """End ``worker`` and remove it from the registry."""
    worker.abort()
    for key, value in list(_workers.items()):
        if value is worker:
            del _workers[key]


def close_now(
    worker: Worker, exc: BaseException | None = None, timeout: float | None = None
) -> None:
    """Close ``worker`` outside of its loop; waits for at most ``timeout`` seconds, or
    the close timeout. ``exc``: the exception that ends the program.

    If the loop was interrupted while it waited for the same, as by a second Ctrl-C,
    nothing is waited for.
    """
    if not worker.closed() and not worker._is_guard_closing:
        _start_closing(worker, exc)
        limit = _context.close_timeout()
        worker._run_until_closed(limit if timeout is None else min(limit, timeout))
    _discard(worker)
    if worker._guard is not None and not worker._is_guard_closing:
        _step(worker._guard.aclose())  # else it keeps the worker


def _close_orphans() -> None:
    """Close workers whose loop was closed, or whose thread has ended."""
    for worker in list(_workers.values()):
        ended = worker.loop is None or worker.loop.is_closed()
        if worker._thread is threading.current_thread():
            ended = worker.loop is not None and worker.loop.is_closed()
        if ended and not worker._is_shared and _take_over(worker):
            close_now(worker)


def _take_over(worker: Worker) -> bool:
    """True if ``worker`` belongs to this thread, or does so now as its own ended."""
    if worker._is_shared or worker._thread is threading.current_thread():
        return True
    if worker._thread.is_alive():
        return False
    worker._adopt()
    worker._thread = threading.current_thread()
    return True


def _close_at_exit() -> None:
    for worker in list(_workers.values()):
        if _take_over(worker):
            # A shared one is closed by now, unless that was interrupted.
            timeout = 0 if worker._is_shared else None
            try:
                close_now(worker, ending.unhandled(), timeout)
            except UCXBaseException as exc:
                logger.debug("closing %r at exit: %s", worker, exc)
    log.catch_up()


def _forget_after_fork() -> None:
    """Start the child without workers: its copies belong to the parent."""
    for worker in list(_workers.values()):
        worker._disown()
    _workers.clear()
    _context.forget_context()


_ext.set_current_worker(current_worker)
atexit.register(_close_at_exit)
os.register_at_fork(after_in_child=_forget_after_fork)


# Functions that reset() calls before it does anything else.
before_reset: list[Callable[[], None]] = []


def reset() -> None:
    """Shut UCX down. The next call starts it again.

    Objects that are closed may still be referenced. ``reset`` waits for closes in
    the background, for at most the close timeout.

    Raises:
        UCXError: endpoints, listeners or memories are open, or an event loop in
            another thread uses ucp. The exception names them, and nothing has
            changed.
    """
    gc.collect()
    for prepare in before_reset:
        prepare()
    _close_orphans()
    using = [text for worker in list(_workers.values()) for text in _users(worker)]
    using += [repr(memory) for memory in _context.memories if not memory.closed()]
    if using:
        raise UCXError(
            "Trying to reset UCX but not all Endpoints and/or Listeners "
            "are closed(). The following objects are still referencing "
            "ApplicationContext: " + "".join(f"\n  {text}" for text in using)
        )
    for worker in list(_workers.values()):
        close_now(worker)
    _context.forget_context()


def _users(worker: Worker) -> list[str]:
    """Describe the objects that prevent a reset of ``worker``."""
    held = [
        thing for thing in worker._listeners if thing not in worker._dropped_listeners
    ]
    things: list[Endpoint | Listener] = [*worker._endpoints, *held]
    open_ones = [repr(thing) for thing in things if not thing.closed()]
    if worker._is_shared:
        return [f"{worker!r} of a ucp.sync.Communicator"]
    if not open_ones and worker._thread is not threading.current_thread():
        return [f"{worker!r} in {worker._thread!r}"]
    return open_ones
