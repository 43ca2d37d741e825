# SPDX-License-Identifier: BSD-3-Clause
"""The thread whose event loop has the endpoints, and calls that wait for it."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import inspect
import os
import threading
from collections.abc import Awaitable, Callable
from typing import Any, ParamSpec, TypeVar

from .._core import lifecycle
from .._core.endpoint import Endpoint
from .._core.listener import Listener
from .._core.resolve import check_timeout, host_and_port
from .._core.worker import Worker
from .._ext import ANY, Channel
from ..exceptions import UCXCanceled, UCXCloseError, UCXTimeout

_P = ParamSpec("_P")
_T = TypeVar("_T")


class _Runner:
    """An event loop in its own thread, until stop()."""

    def __init__(self) -> None:
        started: concurrent.futures.Future[Worker] = concurrent.futures.Future()
        self.thread = threading.Thread(
            target=asyncio.run,
            args=(self._main(started),),
            name="ucp sync",
            daemon=True,
        )
        self.thread.start()
        self.worker = started.result()

    async def _main(self, started: concurrent.futures.Future[Worker]) -> None:
        self._stopping = asyncio.Event()
        try:
            started.set_result(lifecycle.current_worker())
        except BaseException as exc:
            started.set_exception(exc)
        else:
            await self._stopping.wait()

    def stop(self) -> None:
        """Close the endpoints and listeners, and end the thread."""
        self.worker.submit(self._stopping.set)
        if self.thread is not threading.current_thread():
            self.thread.join()


_runner: _Runner | None = None
_lock = threading.Lock()


def current_worker() -> Worker:
    global _runner
    with _lock:
        if _runner is None:
            _runner = _Runner()
        return _runner.worker


def _stop() -> None:
    global _runner
    with _lock:
        runner, _runner = _runner, None
    if runner is not None:
        runner.stop()


def _stop_if_unused() -> None:
    """End the thread if nothing is open: reset() cannot work while it runs."""
    if _runner is not None:
        worker = _runner.worker
        things: list[Endpoint | Listener] = [
            *worker._endpoints,
            *worker._listeners,
        ]
        if all(thing.closed() for thing in things):
            _stop()


def _forget_after_fork() -> None:
    """Forget the thread, which belongs to the parent."""
    global _runner, _lock
    _runner = None
    _lock = threading.Lock()


lifecycle.before_reset.append(_stop_if_unused)
atexit.register(_stop)
os.register_at_fork(after_in_child=_forget_after_fork)


# ---- calls -------------------------------------------------------------------


def call(
    worker: Worker,
    timeout: float | None,
    function: Callable[_P, Awaitable[_T]],
    *args: _P.args,
    **kwargs: _P.kwargs,
) -> _T:
    """Await ``function(...)`` in the worker's loop."""
    result: _T
    check_timeout(timeout)
    if timeout is None:
        result = _run(worker, function, *args, **kwargs)
    else:
        result = _run(worker, _within, timeout, function, *args, **kwargs)
    return result


def submit(
    worker: Worker,
    function: Callable[_P, _T],
    *args: _P.args,
    **kwargs: _P.kwargs,
) -> _T:
    """Call ``function(...)`` in the worker's loop."""
    result: _T = _run(worker, function, *args, **kwargs)
    return result


def _run(worker: Worker, work: Callable[..., object], *args: Any, **kwargs: Any) -> Any:
    _check(worker)
    future: concurrent.futures.Future[Any] = concurrent.futures.Future()
    submission = None
    try:
        submission = worker._submit_for(future, work, args, kwargs)
        return future.result()
    except concurrent.futures.CancelledError:
        raise UCXCanceled("ucp was shut down meanwhile") from None
    finally:
        # After Ctrl-C nobody would hear how the work ends, and until then its
        # buffers are not the caller's.
        if future.cancel() and submission is not None:
            submission.wait()
        del future  # it holds the exception, whose traceback holds this frame


def _check(worker: Worker) -> None:
    if worker.closed():
        raise UCXCloseError("ucp was shut down meanwhile")
    if worker._thread is threading.current_thread():
        raise RuntimeError("a blocking call in the thread that it would wait for")


async def _within(
    timeout: float,
    function: Callable[_P, Awaitable[_T]],
    *args: _P.args,
    **kwargs: _P.kwargs,
) -> _T:
    # The event loop measures the time and cancels, which loses no message.
    try:
        async with asyncio.timeout(timeout):
            return await function(*args, **kwargs)
    except UCXTimeout:
        raise
    except TimeoutError:
        raise _timed_out(timeout, function, args, kwargs) from None


def _timed_out(
    timeout: float,
    function: Callable[..., object],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> UCXTimeout:
    """The exception of a call that has waited so many seconds: for what, from whom."""
    owner = getattr(function, "__self__", None)
    name = function.__name__
    ep = owner.endpoint if isinstance(owner, Channel) else owner
    channel = f" on channel {owner.number}" if isinstance(owner, Channel) else ""
    if isinstance(ep, Endpoint) and "recv" in name:
        what = f"{_from(ep)}{channel}{_which(function, args, kwargs)}"
        rest = _unread(ep)
    else:
        what, rest = f"{_where(ep)}{channel}", ""
    exc = UCXTimeout(f"{name}{what}: not done within {timeout} s{rest}")
    exc.op = name
    if isinstance(ep, Endpoint):
        exc.peer = ep.peer_address
    return exc


def _from(ep: Endpoint) -> str:
    peer = ep.peer_address
    return "" if peer is None else f" from {host_and_port(*peer[:2])}"


def _which(
    function: Callable[..., object], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> str:
    """Which messages a receive takes: " with tag 7"; "" if it takes those without."""
    try:
        given = inspect.signature(function).bind(*args, **kwargs).arguments
    except ValueError:  # a default has no text: recv_into(buffer, tag)
        given = {**dict(zip(("buffer", "tag"), args, strict=False)), **kwargs}
    found = ""
    for word in ("tag", "id"):
        value = given.get(word)
        if value is not None:
            text = "ANY" if value is ANY else f"{value!r:.80}"
            found += f" with {word} {text}"
    return found


def _unread(ep: Endpoint) -> str:
    """What has come instead; "" if nothing has, or if the endpoint has ended."""
    count = 0 if ep.closed() else ep.statistics.unexpected_messages
    if count == 0:
        return ""
    return f"; {count} unread message{'s' if count > 1 else ''} came for other receives"


def _where(owner: object) -> str:
    if isinstance(owner, Endpoint) and owner.peer_address is not None:
        return f" of the endpoint to {host_and_port(*owner.peer_address[:2])}"
    if isinstance(owner, Listener):
        return f" of the listener at {host_and_port(owner.host, owner.port)}"
    return ""
