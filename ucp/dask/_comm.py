# SPDX-License-Identifier: BSD-3-Clause
"""distributed's Comm, Connector, Listener and Backend.

A message of Dask is sent as one message of frames. ``write`` posts it and returns;
the library references the frames until the peer has received them. ``close`` drops
the endpoint, which completes the posted messages in the background.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import sys
import threading
import weakref
from collections.abc import Awaitable, Callable
from pickle import PickleBuffer
from typing import Any, ClassVar

import dask.config
from distributed.comm.addressing import (
    get_address_host,
    parse_host_port,
    unparse_host_port,
)
from distributed.comm.core import (
    BaseListener,
    Comm,
    CommClosedError,
    Connector,
    FatalCommClosedError,
)
from distributed.comm.registry import Backend
from distributed.comm.utils import from_frames, to_frames
from distributed.protocol.utils import pack_frames, unpack_frames
from distributed.utils import ensure_ip, get_ip, nbytes

import ucp
from ucp import _ext

from .._core.resolve import SockAddr, resolve
from .._core.worker import Worker
from . import _config, _devices, _memory, _metrics
from ._blocks import blocks

logger = logging.getLogger(__name__)

# Below what ``Config.frames_max`` is; more frames go as one.
_FRAMES_MAX = 32768
_PACKED = b"packed"
# A queued message costs more than its bytes, if these are few.
_QUEUED_MAX = 16384
# Towards the scheduler, whose loop may be busy for long, messages of so many bytes
# leave the objects that they are made of: programs use these again.
_COPIED_MAX = 16 << 20
# What was written before abort() may arrive: no longer than this.
_ABORT_TIMEOUT = 1.0
# How often connect() looks whether a peer that does not answer is reached.
_LOOK_PERIOD = 0.2

# What the handshake of distributed's own protocols has in it, and how long and
# how far it is listened to.
_TCP_HANDSHAKE = b"pickle-protocol"
_HEAR_TIMEOUT = 1.0
_HEARD_MAX = 4096

_V4_IN_V6 = "::ffff:"
_WILDCARDS = ("", "0.0.0.0", "::")  # the last one takes IPv4 as well


def _address(scheme: str, sockaddr: SockAddr | None) -> str:
    if sockaddr is None:
        return f"{scheme}://"
    host = sockaddr[0].removeprefix(_V4_IN_V6) if "." in sockaddr[0] else sockaddr[0]
    return f"{scheme}://{unparse_host_port(host, sockaddr[1])}"


class UCP(Comm):
    """A connection to one peer."""

    max_shard_size: int

    def __init__(
        self,
        endpoint: ucp.Endpoint,
        local_address: str,
        peer_address: str,
        deserialize: bool = True,
    ) -> None:
        super().__init__(deserialize=deserialize)
        self.max_shard_size = _config.shard_size() or sys.maxsize
        self._local_addr = local_address
        self._peer_addr = peer_address
        self._write_limit = _config.get_bytes("write-limit")
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        _memory.use_blocks(self._loop)
        self._num_queued = 0  # messages since none was pending
        self._is_reading = False
        # A receive that was posted to see whether there is more to be read.
        self._ahead: ucp.Request[tuple[bytes, list[Any]]] | None = None
        self._endpoint: ucp.Endpoint | None = endpoint
        self._is_connecting = False  # and the peer has not answered yet
        endpoint._on_close = _closed_caller(self)

    def __del__(self) -> None:
        if self._endpoint is not None:
            logger.debug("closing dangling connection %r", self)

    @property
    def local_address(self) -> str:
        return self._local_addr

    @property
    def peer_address(self) -> str:
        return self._peer_addr

    @property
    def extra_info(self) -> dict[str, Any]:
        return {}

    def handshake_info(self) -> dict[str, Any]:
        """Return what the peer is told, which ``remote_info`` has there."""
        info = super().handshake_info()
        return {**info, **_devices.handshake_info(self.deserialize)}

    def closed(self) -> bool:
        return self._endpoint is None

    async def read(self, deserializers: Any = None) -> Any:
        """Return the next message.

        Raises:
            CommClosedError: either side has closed the connection, or it failed.
            OtherProtocolError: the first answer of the peer shows that it uses
                distributed's tcp.
            PeerRefusedError: instead of a first answer, one of the two sides has
                refused the other.

        If this call is cancelled, the connection is closed.
        """
        endpoint = self._endpoint
        if endpoint is None:
            raise CommClosedError(f"in {self}: it is closed")
        self._is_reading = True
        try:
            request, self._ahead = self._ahead, None
            header, frames = await (request or endpoint.recv_frames(blocks.allocate))
            if header == _PACKED:
                frames = unpack_frames(frames[0])
        except ucp.UCXBaseException as exc:
            self.abort()
            raise await self._closed_error(exc) from exc
        except BaseException:
            self.abort()
            raise
        finally:
            self._is_reading = False
        self._is_connecting = False
        if endpoint.closed():
            self._look_ahead()
        try:
            return await from_frames(
                frames,
                deserialize=self.deserialize,
                deserializers=deserializers,
                allow_offload=self.allow_offload,
            )
        except EOFError as exc:
            self.abort()
            raise CommClosedError(f"in {self}: a message was cut off") from exc

    async def write(
        self, msg: Any, serializers: Any = None, on_error: str = "message"
    ) -> int:
        """Send a message; return its number of bytes once it is queued.

        The objects in the message must not change before the peer has received it.
        Towards the scheduler what can be changed is copied, up to 16 MiB a message;
        what is a read-only view of memory that changes is not.

        Without ``serializers``, objects in memory of a device are sent from there to
        a peer that takes them: by the families "cuda", "dask" and "pickle".

        Raises:
            CommClosedError, OtherProtocolError, PeerRefusedError: as ``read``.
            Otherwise the exceptions of serializing; the connection stays open.

        When cancelled, the message has not been sent.
        """
        if self._endpoint is None:
            raise CommClosedError(f"in {self}: it is closed")
        if serializers is None:
            serializers = _devices.serializers(self.remote_info)
        frames = await self._frames_of(msg, serializers, on_error)
        if len(frames) > _FRAMES_MAX and any(map(_devices.is_on_device, frames)):
            host = _devices.host_serializers(serializers)
            frames = await self._frames_of(msg, host, on_error)
        size = sum(map(nbytes, frames))
        if size <= _COPIED_MAX and (self.name or "").endswith("->Scheduler"):
            frames = [_own(frame) for frame in frames]
        frames = [_as_it_lies(frame) for frame in frames]
        header = b""
        if len(frames) > _FRAMES_MAX:
            frames, header = [pack_frames(frames)], _PACKED
        try:
            await self._make_room(size)
            request = self._open_endpoint().send_frames(frames, header)
            if request.done():
                request.result()
            else:
                request.add_done_callback(_look_at)
        except ucp.UCXBaseException as exc:
            self.abort()
            raise await self._closed_error(exc) from exc
        return size

    async def _frames_of(self, msg: Any, serializers: Any, on_error: str) -> list[Any]:
        frames: list[Any] = await to_frames(
            msg,
            allow_offload=self.allow_offload,
            serializers=serializers,
            on_error=on_error,
            context={
                "sender": self.local_info,
                "recipient": self.remote_info,
                **self.handshake_options,
            },
            frame_split_size=self.max_shard_size,
        )
        return frames

    async def _closed_error(self, exc: ucp.UCXBaseException) -> Exception:
        """Return the exception to raise if the connection has ended with ``exc``."""
        final = None
        if self._is_connecting:
            final = await final_error(exc, self._peer_addr)
        return final or CommClosedError(f"in {self}: {exc}")

    def _open_endpoint(self) -> ucp.Endpoint:
        if self._endpoint is None:  # while we waited
            raise CommClosedError(f"in {self}: it is closed")
        return self._endpoint

    async def _make_room(self, size: int) -> None:
        """Wait until a message of ``size`` bytes may be queued."""
        endpoint = self._open_endpoint()
        room = max(self._write_limit - size, 0)
        if endpoint.pending_bytes == 0:
            self._num_queued = 0
        elif self._num_queued == _QUEUED_MAX:
            room = 0
        while endpoint.pending_bytes > room:
            endpoint.set_limits(room)
            await endpoint.drain()
        self._num_queued = self._num_queued % _QUEUED_MAX + 1

    async def close(self) -> None:
        """Close once the peer has received what was written; never raises.

        Waits no longer than ``close-timeout``.
        """
        endpoint = self._end()
        if endpoint is None:
            return
        timeout = _config.get_seconds("close-timeout")
        try:
            is_pending = endpoint.pending_bytes > 0
            closing = _ext.Endpoint.close(endpoint, timeout)
            if is_pending:
                await closing
        except (ucp.UCXBaseException, RuntimeError) as exc:
            logger.debug("closing %r: %s", self, exc)

    def abort(self) -> None:
        """Close without waiting; never raises."""
        endpoint = self._end()
        if endpoint is None:
            return
        if threading.get_ident() == self._thread:
            _abort(endpoint)
            return
        try:
            self._loop.call_soon_threadsafe(_abort, endpoint)
        except RuntimeError:
            pass  # the loop is closed, and has closed the endpoint

    def _end(self) -> ucp.Endpoint | None:
        self._ahead = None
        endpoint, self._endpoint = self._endpoint, None
        return endpoint

    # ---- the peer closes ------------------------------------------------

    def _on_close(self) -> None:
        if not self._is_reading:
            self._look_ahead()

    def _look_ahead(self) -> None:
        """Nobody writes any more: with nothing left to read it is closed."""
        endpoint = self._endpoint
        if endpoint is None or self._ahead is not None:
            return
        try:
            request = endpoint.recv_frames(blocks.allocate)
        except (ucp.UCXBaseException, RuntimeError):
            self._end()
            return
        if request.done():
            self._looked_ahead(request)
        else:
            self._ahead = request
            request.add_done_callback(self._looked_ahead)

    def _looked_ahead(self, request: ucp.Request[Any]) -> None:
        if request.cancelled() or request.exception() is not None:
            if not self._is_reading:
                self._end()
        elif self._endpoint is not None and not self._is_reading:
            self._ahead = request


def _own(frame: Any) -> Any:
    """Return ``frame``, or a copy of it if its memory can be changed."""
    try:
        view = memoryview(frame)
    except (TypeError, ValueError, BufferError):  # of a GPU, or of numpy's own types
        return frame
    if view.readonly or not view.contiguous:
        return frame
    return view.tobytes("A")  # in the order of the memory


def _as_it_lies(frame: Any) -> Any:
    """Return ``frame``, or its bytes in the order of memory.

    Who unpickles a frame knows its order. Others are sent in C order.
    """
    if isinstance(frame, memoryview) and frame.f_contiguous and not frame.c_contiguous:
        return PickleBuffer(frame).raw()
    return frame


def _look_at(request: ucp.Request[Any]) -> None:
    """Retrieve how a queued message ended: reads and writes tell of the end."""
    if not request.cancelled():
        request.exception()


def _abort(endpoint: ucp.Endpoint) -> None:
    try:
        _ext.Endpoint.close(endpoint, _ABORT_TIMEOUT)
    except ucp.UCXBaseException as exc:
        logger.debug("aborting %r: %s", endpoint, exc)


def _closed_caller(comm: UCP) -> Callable[[], None]:
    """``comm._on_close``, but no reference to it."""
    reference = weakref.ref(comm)

    def call() -> None:
        comm = reference()
        if comm is not None:
            comm._on_close()

    return call


class _Plain:
    """Refuses to talk where Dask's configuration asks for encryption."""

    def _check_encryption(self, address: str, connection_args: dict[str, Any]) -> None:
        if connection_args.get("require_encryption"):
            raise RuntimeError(
                "encryption required by Dask configuration, "
                f"refusing communication from/to {address!r}"
            )


class UCPConnector(Connector, _Plain):
    """Connects to listeners of ``ucp``."""

    def __init__(self, scheme: str = "ucp") -> None:
        self.scheme = scheme

    async def connect(
        self, address: str, deserialize: bool = True, **connection_args: Any
    ) -> UCP:
        """Connect to ``host:port``.

        Returns once the host of the peer has accepted the connection: a peer that
        computes may answer later.

        Raises:
            ValueError: the address is not valid.
            OtherProtocolError: the peer uses distributed's tcp.
            PeerRefusedError: the tokens or the versions of the protocol differ.
            OSError: the address cannot be reached.
            FatalCommClosedError: Dask's configuration is wrong; Dask does not try
                again.

        When cancelled, the connection attempt ends.
        """
        peer_address = f"{self.scheme}://{address}"
        self._check_encryption(peer_address, connection_args)
        host, port = parse_host_port(address)
        try:
            worker = _config.start()
        except ValueError as exc:
            raise FatalCommClosedError(str(exc)) from exc
        try:
            endpoint = await _connect(worker, host, port)
        except ucp.UCXBaseException as exc:
            final = await final_error(exc, peer_address)
            raise final or CommClosedError(f"{peer_address}: {exc}") from exc
        comm = UCP(
            endpoint,
            _address(self.scheme, endpoint.local_address),
            peer_address,
            deserialize,
        )
        comm._is_connecting = True
        return comm


class _FinalError(ValueError, ImportError):
    """Connecting again cannot help.

    After an OSError a worker tries again forever. A client that connects again
    gives up, and closes, after an ImportError: what it also gets if the protocol
    of the address cannot be imported.
    """


class OtherProtocolError(_FinalError):
    """The address names a protocol that the peer does not use."""


class PeerRefusedError(_FinalError):
    """One side refuses the other: their tokens, or their versions, differ."""


def _is_foreign(exc: ucp.UCXBaseException) -> bool:
    """True if connecting may have failed because the peer uses another protocol.

    Such a peer sends bytes that are not a handshake, or resets the connection when
    it gets one.
    """
    if isinstance(exc, ucp.UCXVersionError):
        return False
    return isinstance(exc, ucp.UCXProtocolError | ucp.UCXConnectionReset)


async def final_error(exc: ucp.UCXBaseException, address: str) -> _FinalError | None:
    """Return the exception to raise if connecting again cannot help; else None."""
    if isinstance(exc, ucp.UCXAuthError | ucp.UCXVersionError):
        return PeerRefusedError(f"{address}: {exc}")
    scheme, _, location = address.partition("://")
    if _is_foreign(exc) and await speaks_tcp(*parse_host_port(location)):
        return OtherProtocolError(f"{address}: the peer speaks tcp, not {scheme}")
    return None


async def speaks_tcp(host: str, port: int) -> bool:
    """True if a server of distributed's tcp, without encryption, is at the address.

    Such a server sends first: its side of the handshake, in msgpack.
    """
    heard = b""
    try:
        async with asyncio.timeout(_HEAR_TIMEOUT):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                while _TCP_HANDSHAKE not in heard and len(heard) < _HEARD_MAX:
                    received = await reader.read(_HEARD_MAX)
                    if not received:
                        break
                    heard += received
            finally:
                writer.close()
    except (OSError, TimeoutError):
        pass
    return _TCP_HANDSHAKE in heard


async def _connect(worker: Worker, host: str, port: int) -> ucp.Endpoint:
    """Connect to the first address of ``host`` that accepts."""
    failure: Exception | None = None
    timeout = _config.get_seconds("handshake-timeout")
    for address in await resolve(host, port):
        try:
            endpoint = worker._start_connect(address, timeout)
            worker._endpoints.add(endpoint)  # type: ignore[arg-type]
            await _reach(endpoint)
            return endpoint  # type: ignore[return-value]
        except ucp.UCXBaseException as exc:
            failure = failure or exc
    if failure is None:
        raise OSError(f"{host!r} has no address")
    raise failure


async def _reach(endpoint: _ext.Endpoint) -> None:
    """Wait until the endpoint is open, or connected to a peer that is busy."""
    decided = asyncio.Event()

    def decide(opening: _ext.Request[None]) -> None:
        decided.set()
        _look_at(opening)  # also when nobody waits any more

    opening = endpoint.flush()
    opening.add_done_callback(decide)
    try:
        while not opening.done():
            try:
                async with asyncio.timeout(_LOOK_PERIOD):
                    await decided.wait()
            except TimeoutError:
                if endpoint.peer_address is not None:
                    return
        opening.result()
    except BaseException:
        endpoint.abort()
        raise


def _server(comm_handler: object) -> Any:
    """The scheduler, worker or nanny whose method handles connections, or None."""
    return getattr(comm_handler, "__self__", None)


def _host_towards_scheduler(comm_handler: object) -> str | None:
    """This host's address on the way to the scheduler, of a worker's listener.

    Workers tell it to the listeners of distributed's own protocols only. None for
    anything else that listens.
    """
    server = _server(comm_handler)
    scheduler = getattr(getattr(server, "scheduler", None), "address", None)
    if not isinstance(scheduler, str):
        return None
    return get_ip(get_address_host(scheduler))


class UCPListener(BaseListener, _Plain):
    """Accepts connections of ``ucp``."""

    def __init__(
        self,
        address: str,
        comm_handler: Callable[[UCP], Awaitable[None]],
        deserialize: bool = True,
        allow_offload: bool = True,
        default_host: str | None = None,
        default_port: int = 0,
        scheme: str = "ucp",
        **connection_args: Any,
    ) -> None:
        super().__init__()
        self._check_encryption(f"{scheme}://{address}", connection_args)
        self.scheme = scheme
        self.ip, self.port = parse_host_port(address, default_port)
        self.default_host = default_host
        self.comm_handler = comm_handler
        self.deserialize = deserialize
        self.allow_offload = allow_offload
        self.bound_address: tuple[str, int] | None = None
        self._listener: ucp.Listener | None = None

    @property
    def prefix(self) -> str:
        return f"{self.scheme}://"

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: the address is in use, or is not one of this host.
            ValueError: Dask's configuration is wrong.
        """
        _config.start()
        self._listener = self._listen()
        self.bound_address = (self._listener.host, self._listener.port)
        _memory.worker_starts(_server(self.comm_handler))
        _metrics.register()

    def _listen(self) -> ucp.Listener:
        place = f"{self.ip}:{self.port}"
        try:
            return ucp.create_listener(
                self._accept,
                self.port,
                host=self.ip or None,  # all addresses, of both families
                backlog=int(dask.config.get("distributed.comm.socket-backlog")),
                connect_timeout=_config.get_seconds("handshake-timeout"),
            )
        except ucp.UCXBusy as exc:
            raise OSError(errno.EADDRINUSE, f"{place}: {exc}") from exc
        except ucp.UCXBaseException as exc:
            raise OSError(errno.EADDRNOTAVAIL, f"{place}: {exc}") from exc

    def stop(self) -> None:
        """Stop listening; accepted connections stay open."""
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()
            _memory.worker_stops(_server(self.comm_handler))

    async def _accept(self, endpoint: ucp.Endpoint) -> None:
        if self._listener is None:  # stopped since
            endpoint.abort()
            return
        peer_address = _address(self.scheme, endpoint.peer_address)
        comm = UCP(
            endpoint,
            _address(self.scheme, endpoint.local_address),
            peer_address,
            self.deserialize,
        )
        del endpoint
        comm.allow_offload = self.allow_offload
        try:
            await self.on_connection(comm)
        except CommClosedError:
            logger.info(
                "Connection from %s closed before handshake completed", peer_address
            )
            return
        except BaseException:
            comm.abort()
            raise
        await self.comm_handler(comm)

    def get_host_port(self) -> tuple[str, int]:
        """Return the address on which this listens."""
        if self.bound_address is None:
            raise ValueError("invalid operation on a listener that is not started")
        return self.bound_address

    @property
    def listen_address(self) -> str:
        return self.prefix + unparse_host_port(*self.get_host_port())

    @property
    def contact_address(self) -> str:
        host, port = self.get_host_port()
        if host in _WILDCARDS:
            towards = _host_towards_scheduler(self.comm_handler)
            host = self.default_host or towards or get_ip()
        return self.prefix + unparse_host_port(host, port)


class UCPBackend(Backend):
    """The backend for addresses ``ucp://host:port``."""

    scheme: ClassVar[str] = "ucp"

    def get_connector(self) -> UCPConnector:
        return UCPConnector(self.scheme)

    def get_listener(
        self,
        loc: str,
        handle_comm: Callable[[UCP], Awaitable[None]],
        deserialize: bool,
        **connection_args: Any,
    ) -> UCPListener:
        return UCPListener(
            loc, handle_comm, deserialize, scheme=self.scheme, **connection_args
        )

    def get_address_host(self, loc: str) -> str:
        host: str = parse_host_port(loc)[0]
        return host

    def get_address_host_port(self, loc: str) -> tuple[str, int]:
        address: tuple[str, int] = parse_host_port(loc)
        return address

    def resolve_address(self, loc: str) -> str:
        host, port = parse_host_port(loc)
        return unparse_host_port(ensure_ip(host), port)

    def get_local_address_for(self, loc: str) -> str:
        host, _ = parse_host_port(loc)
        return unparse_host_port(get_ip(ensure_ip(host)), None)
