# SPDX-License-Identifier: BSD-3-Clause
"""Endpoints and listeners whose calls wait."""

# mypy: disable-error-code="empty-body, no-any-return"
# Methods that are @forwarded have no code. What others give is that of the method of
# their name.

from __future__ import annotations

from typing import Any, cast

from .._core import connect as _connect
from .._core import endpoint as _endpoint
from .._core import lifecycle, resolve
from .._core import listener as _listener
from .._core import worker as _worker
from .._core.closing import Closing
from .._core.peer import Peer, PeerInfo
from .._core.statistics import EndpointStatistics
from ._forward import forwarded
from ._messages import Channel, Messages
from ._remote import RemoteMemory
from ._runner import call, current_worker, submit


class Endpoint(Messages, Closing):
    """A connection to one peer, made by connect() or Listener.accept().

    It has the calls of ``ucp.Endpoint``, but for a few: those of UCX's own tags
    (``force_tag``), and those that call the program or give it a message in the
    thread that has the endpoint. Dropping the last reference closes the endpoint in
    the background.
    """

    _async: _endpoint.Endpoint

    def __init__(self, endpoint: _endpoint.Endpoint) -> None:
        super().__init__(cast(_worker.Worker, endpoint.worker))
        self._async = endpoint

    def __repr__(self) -> str:
        return f"<ucp.sync.Endpoint of {self._async!r}>"

    # Other ways to send and receive.

    @forwarded
    def am_send(
        self,
        buffer: Any,
        *,
        id: int | None = None,
        header: bytes = b"",
        stream: Any = None,
        timeout: float | None = None,
    ) -> None:
        """Send an active message."""

    @forwarded
    def am_recv(self, *, id: int | None = None, timeout: float | None = None) -> Any:
        """Receive the bytes of the next active message of an id."""

    def am_probe(self, *, id: int | None = None) -> int | None:
        """Length of the next active message of an id that has arrived; or None."""
        return self._do(self._async.am_probe, id=id)

    def stream_send(self, buffer: Any, /, *, timeout: float | None = None) -> None:
        """Send all of ``buffer`` on the byte stream."""
        self._wait_for(timeout, self._async.stream_send, buffer)

    @forwarded
    def stream_recv(
        self, buffer: Any, wait_all: bool = False, *, timeout: float | None = None
    ) -> int:
        """Receive bytes of the byte stream; return how many, 0 at its end."""

    def stream_shutdown(self) -> None:
        """End the byte stream after the bytes that were sent."""
        self._do(self._async.stream_shutdown)

    def channel(self, number: int) -> Channel:
        """The channel ``number``, 1 to 65535: its own queue."""
        return Channel(self, number)

    @property
    def control(self) -> Channel:
        """Channel 65535, by convention for control messages of the program."""
        return Channel(self, self._async.control.number)

    def remote(self, key: Any) -> RemoteMemory:
        """The memory of the peer that ``key`` names."""
        return RemoteMemory(self, self._worker, self._do(self._async.remote, key))

    # What was sent.

    @forwarded
    def flush(self, *, timeout: float | None = None) -> None:
        """Wait until everything that was sent has reached the peer's memory."""

    def fence(self) -> None:
        """Have operations on the peer's memory that are called later executed after
        those called before."""
        self._do(self._async.fence)

    @forwarded
    def drain(self, *, timeout: float | None = None) -> None:
        """Wait until few enough bytes are being sent: ``set_limits()``."""

    def set_limits(self, high: int, low: int | None = None) -> None:
        """Set the limits of ``drain()`` in bytes."""
        self._do(self._async.set_limits, high, low)

    @property
    def pending_bytes(self) -> int:
        """Bytes of sends that are not complete."""
        return self._get("pending_bytes")

    # The peer.

    @forwarded
    def ping(self, *, timeout: float | None = None) -> float:
        """Measure the seconds until the peer has answered."""

    @forwarded
    def peer_info(self, *, timeout: float | None = None) -> PeerInfo:
        """Ask the peer for its version, host, memory, load and transports."""

    @property
    def peer(self) -> Peer:
        """Host, port, pid and version of the peer; None for what is not known."""
        return self._get("peer")

    @property
    def peer_address(self) -> tuple[Any, ...] | None:
        """The peer's (host, port)."""
        return self._async.peer_address

    @property
    def local_address(self) -> tuple[Any, ...] | None:
        """The (host, port) of this end."""
        return self._get("local_address")

    def transports(self) -> list[tuple[str, str]]:
        """The (transport, device) pairs in use."""
        return self._do(self._async.transports)

    def ways(self) -> dict[str, dict[str, Any]]:
        """By which ways the messages went, as :meth:`ucp.Endpoint.ways`."""
        return self._do(self._async.ways)

    # The endpoint.

    @property
    def uid(self) -> int:
        """A number that no other endpoint of the worker had."""
        return self._get("uid")

    @property
    def state(self) -> str:
        """As ``ucp.Endpoint.state``."""
        return self._async.state

    @property
    def error(self) -> BaseException | None:
        """Why it has failed; or None."""
        return self._get("error")

    @property
    def statistics(self) -> EndpointStatistics:
        """Messages and bytes that were sent and have come, and those that wait."""
        return self._get("statistics")

    def ucx_info(self) -> str:
        """UCX's description of the endpoint."""
        return self._do(self._async.ucx_info)

    def cuda_support(self) -> bool:
        """True if UCX may use a CUDA transport."""
        return self._async.cuda_support()

    def get_ucp_worker(self) -> int:
        """UCX's ``ucp_worker_h``."""
        return self._do(self._async.get_ucp_worker)

    def get_ucp_endpoint(self) -> int:
        """UCX's ``ucp_ep_h``; 0 once closed."""
        return self._do(self._async.get_ucp_endpoint)

    def _get(self, name: str) -> Any:
        return self._do(getattr, self._async, name)

    # Its end.

    def close_after_n_recv(self, n: int, count_from_ep_creation: bool = False) -> None:
        """Close the endpoint after ``n`` messages have been received."""
        self._do(self._async.close_after_n_recv, n, count_from_ep_creation)

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
    allow_pickle: bool = False,
) -> Endpoint:
    """Connect to a listener; arguments and exceptions as ``ucp.connect()``.

    Raises:
        RuntimeError: the listener belongs to an event loop of the calling thread.
            It cannot accept while the thread waits.
    """
    _refuse_own_listener(host, port)
    options = {
        "timeout": timeout,
        "local_host": local_host,
        "receive_messages": receive_messages,
        "receive_bytes": receive_bytes,
        "allow_pickle": allow_pickle,
    }
    return Endpoint(call(current_worker(), None, _connect_to, host, port, options))


def listen(
    port: int | None = None,
    *,
    host: str | None = None,
    backlog: int | None = None,
    receive_messages: int | None = None,
    receive_bytes: int | None = None,
    allow_pickle: bool = False,
) -> Listener:
    """Listen for connections; arguments and exceptions as ``ucp.create_listener()``."""
    worker = current_worker()
    options = {
        "host": host,
        "backlog": backlog,
        "receive_messages": receive_messages,
        "receive_bytes": receive_bytes,
        "allow_pickle": allow_pickle,
    }
    return Listener(worker, submit(worker, _listen, port, options))


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
    host: str, port: int, options: dict[str, Any]
) -> _endpoint.Endpoint:
    return await _connect.connect(host, port, **options)


def _listen(port: int | None, options: dict[str, Any]) -> _listener.Listener:
    return _connect.create_listener(None, port, **options)
