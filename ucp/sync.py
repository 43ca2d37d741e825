# SPDX-License-Identifier: BSD-3-Clause
"""Blocking calls, for programs and threads that have no event loop.

    with ucp.sync.connect("127.0.0.1", port, timeout=5) as ep:
        ep.send(b"ping")
        ep.recv(buffer, timeout=1)

Each call is submitted to a worker whose event loop runs in a thread of its own,
and waits for the result without the GIL. So messages move and heartbeats are
answered between the calls, too. Any thread may call, and several threads may use
one endpoint. The thread of the worker starts with the first call and ends with
``ucp.reset()`` or the process.

``timeout`` is in seconds. None waits forever, and 0 does not wait: the call
succeeds only if its result is available already. A call whose time has run out
raises UCXTimeout; otherwise a call raises the exceptions of the asynchronous one.
After a receive that timed out, the next receive gets the message. A message whose
send timed out may still arrive, and its buffer is in use until then.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import os
import threading
from collections.abc import Awaitable, Callable
from typing import Any, Literal, ParamSpec, TypeVar, cast

from . import _connect, _endpoint, _lifecycle, _listener, _memory, _worker
from ._closing import Closing
from ._ext import ANY, AnyTag
from ._lane import Tag
from .exceptions import UCXCanceled, UCXCloseError, UCXTimeout

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Endpoint(Closing):
    """A connection to one peer, made by connect() or Listener.accept().

    Dropping the last reference closes the endpoint in the background.
    """

    def __init__(self, endpoint: _endpoint.Endpoint) -> None:
        self._endpoint = endpoint
        self._worker = cast(_worker.Worker, endpoint.worker)

    def __repr__(self) -> str:
        return f"<ucp.sync.Endpoint of {self._endpoint!r}>"

    def send(
        self, buffer: Any, tag: Tag | None = None, *, timeout: float | None = None
    ) -> None:
        """Send all of ``buffer`` as one message."""
        _call(self._worker, timeout, self._endpoint.send, buffer, tag)

    def recv(
        self, buffer: Any, tag: Tag | None = None, *, timeout: float | None = None
    ) -> None:
        """Receive one message of exactly the length of ``buffer``."""
        _call(self._worker, timeout, self._endpoint.recv, buffer, tag)

    def recv_into(
        self,
        buffer: Any,
        tag: Tag | AnyTag | None = ANY,
        *,
        timeout: float | None = None,
    ) -> int:
        """Receive a message of at most the length of ``buffer``; return its length."""
        return _call(self._worker, timeout, self._endpoint.recv_into, buffer, tag)

    def recv_obj(
        self, tag: Tag | None = None, *, timeout: float | None = None
    ) -> bytearray:
        """Receive the next message, of any length, and return its bytes."""
        message: bytearray = _call(self._worker, timeout, self._endpoint.recv_obj, tag)
        return message

    def flush(self, *, timeout: float | None = None) -> None:
        """Wait until everything that was sent has reached the peer's memory."""
        _call(self._worker, timeout, self._endpoint.flush)

    def close(self, timeout: float | None = None) -> None:
        """Close in agreement with the peer.

        After ``timeout`` seconds the endpoint is closed by force, and UCXTimeout is
        raised. None is ``Config.close_timeout``.
        """
        if not self._worker.closed():
            _call(self._worker, None, self._endpoint.close, timeout)

    def _close_soon(self) -> None:
        if not self._worker.closed():
            _submit(self._worker, self._endpoint._close_soon)

    def abort(self) -> None:
        """Close the endpoint immediately; pending operations raise UCXCanceled."""
        if not self._worker.closed():
            _submit(self._worker, self._endpoint.abort)

    def closed(self) -> bool:
        """True if either side has closed the endpoint, or it has failed."""
        return self._endpoint.closed()

    @property
    def peer_address(self) -> tuple[Any, ...] | None:
        """The peer's (host, port)."""
        return self._endpoint.peer_address


class Listener(Closing):
    """A port to which peers connect, made by listen()."""

    def __init__(self, worker: _worker.Worker, listener: _listener.Listener) -> None:
        self._worker = worker
        self._listener = listener
        self.host = listener.host
        self.port = listener.port
        self.addresses = listener.addresses

    def __repr__(self) -> str:
        return f"<ucp.sync.Listener of {self._listener!r}>"

    def accept(self, *, timeout: float | None = None) -> Endpoint:
        """Wait for the next peer that connects, and return its endpoint.

        Raises:
            UCXCloseError: the listener is closed.
        """
        return Endpoint(_call(self._worker, timeout, self._listener.accept))

    def close(self) -> None:
        """Stop listening; end accept(). A second call does nothing."""
        if not self._worker.closed():
            _submit(self._worker, self._listener.close)

    def closed(self) -> bool:
        """True after close()."""
        return self._listener.closed()


def connect(
    host: str, port: int, *, timeout: float | None = None, local_host: str | None = None
) -> Endpoint:
    """Connect to a listener; arguments and exceptions as ``ucp.connect()``."""
    return Endpoint(
        _call(_current_worker(), None, _connect_to, host, port, timeout, local_host)
    )


def listen(
    port: int | None = None, *, host: str | None = None, backlog: int | None = None
) -> Listener:
    """Listen for connections; arguments and exceptions as ``ucp.create_listener()``."""
    worker = _current_worker()
    return Listener(worker, _submit(worker, _listen, port, host, backlog))


def wait_until(
    memory: _memory.Memory,
    offset: int,
    cmp: Literal["==", "!=", ">", ">=", "<", "<="],
    value: int,
    bits: int = 64,
    *,
    timeout: float | None = None,
) -> None:
    """Wait until a number in ``memory`` has a value; as ``Memory.wait_until()``."""
    _call(_current_worker(), timeout, memory.wait_until, offset, cmp, value, bits)


async def _connect_to(
    host: str, port: int, timeout: float | None, local_host: str | None
) -> _endpoint.Endpoint:
    return await _connect.create_endpoint(
        host, port, connect_timeout=timeout, local_host=local_host
    )


def _listen(
    port: int | None, host: str | None, backlog: int | None
) -> _listener.Listener:
    return _connect.create_listener(None, port, host=host, backlog=backlog)


# ---- the thread --------------------------------------------------------------


class _Runner:
    """An event loop in a thread of its own, until stop()."""

    def __init__(self) -> None:
        started: concurrent.futures.Future[_worker.Worker] = concurrent.futures.Future()
        self.thread = threading.Thread(
            target=asyncio.run,
            args=(self._main(started),),
            name="ucp sync",
            daemon=True,
        )
        self.thread.start()
        self.worker = started.result()

    async def _main(self, started: concurrent.futures.Future[_worker.Worker]) -> None:
        self._stopping = asyncio.Event()
        try:
            started.set_result(_lifecycle.current_worker())
        except BaseException as exc:
            started.set_exception(exc)
        else:
            await self._stopping.wait()

    def stop(self) -> None:
        """Close the endpoints and listeners, and end the thread."""
        self.worker.submit(self._stopping.set)
        self.thread.join()


_runner: _Runner | None = None
_lock = threading.Lock()


def _current_worker() -> _worker.Worker:
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
        things: list[_endpoint.Endpoint | _listener.Listener] = [
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


_lifecycle.before_reset.append(_stop_if_unused)
atexit.register(_stop)
os.register_at_fork(after_in_child=_forget_after_fork)


# ---- calls -------------------------------------------------------------------


def _call(
    worker: _worker.Worker,
    timeout: float | None,
    function: Callable[_P, Awaitable[_T]],
    *args: _P.args,
    **kwargs: _P.kwargs,
) -> _T:
    """Await ``function(...)`` in the worker's loop."""
    result: _T
    if timeout is None:
        result = _run(worker, function, *args, **kwargs)
    else:
        result = _run(worker, _within, timeout, function, *args, **kwargs)
    return result


def _submit(
    worker: _worker.Worker,
    function: Callable[_P, _T],
    *args: _P.args,
    **kwargs: _P.kwargs,
) -> _T:
    """Call ``function(...)`` in the worker's loop."""
    result: _T = _run(worker, function, *args, **kwargs)
    return result


def _run(
    worker: _worker.Worker, work: Callable[..., object], *args: Any, **kwargs: Any
) -> Any:
    _check(worker)
    future: concurrent.futures.Future[Any] = concurrent.futures.Future()
    try:
        worker._submit_for(future, work, args, kwargs)
        return future.result()
    except concurrent.futures.CancelledError:
        raise UCXCanceled("ucp was shut down meanwhile") from None
    finally:
        future.cancel()  # after Ctrl-C nobody would hear how the work ends
        del future  # it holds the exception, whose traceback holds this frame


def _check(worker: _worker.Worker) -> None:
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
        raise UCXTimeout(f"not done within {timeout} s") from None


__all__ = ["Endpoint", "Listener", "connect", "listen", "wait_until"]
