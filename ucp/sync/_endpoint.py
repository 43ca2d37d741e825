# SPDX-License-Identifier: BSD-3-Clause
"""Endpoints and listeners whose calls wait."""

# mypy: disable-error-code="empty-body"
# Methods that are @forwarded have no code.

from __future__ import annotations

from functools import partial
from typing import Any, cast

from .._core import connect as _connect
from .._core import endpoint as _endpoint
from .._core import lifecycle, resolve
from .._core import listener as _listener
from .._core import worker as _worker
from .._core.closing import Closing
from .._core.objects import Tag
from .._core.window import Window, window_of
from .._ext import ANY, AnyTag
from ._forward import forwarded
from ._runner import call, current_worker, submit


class Endpoint(Closing):
    """A connection to one peer, made by connect() or Listener.accept().

    Dropping the last reference closes the endpoint in the background.
    """

    def __init__(self, endpoint: _endpoint.Endpoint) -> None:
        self._async = endpoint
        self._worker = cast(_worker.Worker, endpoint.worker)
        self._wait_for = partial(call, self._worker)

    def __repr__(self) -> str:
        return f"<ucp.sync.Endpoint of {self._async!r}>"

    @forwarded
    def send(
        self, buffer: Any, tag: Tag | None = None, *, timeout: float | None = None
    ) -> None:
        """Send all of ``buffer`` as one message."""

    @forwarded
    def recv(
        self, buffer: Any, tag: Tag | None = None, *, timeout: float | None = None
    ) -> None:
        """Receive one message of exactly the length of ``buffer``."""

    @forwarded
    def recv_into(
        self,
        buffer: Any,
        tag: Tag | AnyTag | None = ANY,
        *,
        timeout: float | None = None,
    ) -> int:
        """Receive a message of at most the length of ``buffer``; return its length."""

    @forwarded
    def recv_obj(
        self, tag: Tag | None = None, *, timeout: float | None = None
    ) -> bytearray:
        """Receive the next message, of any length, and return its bytes."""

    @forwarded
    def flush(self, *, timeout: float | None = None) -> None:
        """Wait until everything that was sent has reached the peer's memory."""

    def close(self, timeout: float | None = None) -> None:
        """Close in agreement with the peer.

        After ``timeout`` seconds the endpoint is closed by force, and UCXTimeout is
        raised. None is ``Config.close_timeout``.
        """
        if not self._worker.closed():
            call(self._worker, None, self._async.close, timeout)

    def _close_soon(self) -> None:
        if not self._worker.closed():
            submit(self._worker, self._async._close_soon)

    def abort(self) -> None:
        """Close the endpoint immediately; pending operations raise UCXCanceled."""
        if not self._worker.closed():
            submit(self._worker, self._async.abort)

    def closed(self) -> bool:
        """True if either side has closed the endpoint, or it has failed."""
        return self._async.closed()

    @property
    def peer_address(self) -> tuple[Any, ...] | None:
        """The peer's (host, port)."""
        return self._async.peer_address


class Listener(Closing):
    """A port to which peers connect, made by listen()."""

    def __init__(self, worker: _worker.Worker, listener: _listener.Listener) -> None:
        self._worker = worker
        self._async = listener
        self.host = listener.host
        self.port = listener.port
        self.addresses = listener.addresses

    def __repr__(self) -> str:
        return f"<ucp.sync.Listener of {self._async!r}>"

    def accept(self, *, timeout: float | None = None) -> Endpoint:
        """Wait for the next peer that connects, and return its endpoint.

        Raises:
            UCXCloseError: the listener is closed.
        """
        return Endpoint(call(self._worker, timeout, self._async.accept))

    def close(self) -> None:
        """Stop listening; end accept(). A second call does nothing."""
        if not self._worker.closed():
            submit(self._worker, self._async.close)

    def closed(self) -> bool:
        """True after close()."""
        return self._async.closed()


def connect(
    host: str,
    port: int,
    *,
    timeout: float | None = None,
    local_host: str | None = None,
    receive_messages: int | None = None,
    receive_bytes: int | None = None,
) -> Endpoint:
    """Connect to a listener; arguments and exceptions as ``ucp.connect()``.

    Raises:
        RuntimeError: the listener belongs to an event loop of the calling thread.
            It cannot accept while the thread waits.
    """
    _refuse_own_listener(host, port)
    window = window_of(receive_messages, receive_bytes)
    worker = current_worker()
    return Endpoint(
        call(worker, None, _connect_to, host, port, timeout, local_host, window)
    )


def listen(
    port: int | None = None,
    *,
    host: str | None = None,
    backlog: int | None = None,
    receive_messages: int | None = None,
    receive_bytes: int | None = None,
) -> Listener:
    """Listen for connections; arguments and exceptions as ``ucp.create_listener()``."""
    worker = current_worker()
    limits = (receive_messages, receive_bytes)
    return Listener(worker, submit(worker, _listen, port, host, backlog, limits))


def _refuse_own_listener(host: str, port: int) -> None:
    """Raise RuntimeError if a listener of this thread is at the address."""
    own = [
        listener
        for worker in lifecycle.workers_of_thread()
        if not worker._serves_in_thread()
        for listener in worker._listeners
        if listener.port == port and not listener.closed()
    ]
    if not own:
        return
    for address in resolve.resolve_now(host, port):
        for listener in own:
            if resolve.is_reached(address, listener.addresses):
                raise RuntimeError(
                    f"{listener!r} belongs to the event loop of this thread, which "
                    "this call blocks: use 'await ucp.connect()', or call this "
                    "function in another thread, as by asyncio.to_thread()"
                )


async def _connect_to(
    host: str, port: int, timeout: float | None, local_host: str | None, window: Window | None
) -> _endpoint.Endpoint:
    return await _connect.connect_within(host, port, timeout, 0, local_host, window)


def _listen(
    port: int | None,
    host: str | None,
    backlog: int | None,
    limits: tuple[int | None, int | None],
) -> _listener.Listener:
    return _connect.create_listener(
        None,
        port,
        host=host,
        backlog=backlog,
        receive_messages=limits[0],
        receive_bytes=limits[1],
    )
