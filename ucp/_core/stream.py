# SPDX-License-Identifier: BSD-3-Clause
"""asyncio's stream pair on the byte stream of an endpoint."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import Any

from .. import _ext
from ..exceptions import UCXBaseException, UCXCloseError, UCXConnectionReset
from .endpoint import Endpoint

_READ_SIZE = 256 * 1024  # bytes; asyncio's own
_HIGH_WATER = 64 * 1024


def open_streams(
    ep: Endpoint, *, limit: int = 2**16
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return a reader and a writer for code that was written for asyncio's streams.

    They read and write the byte stream of the endpoint. Do not use
    ``stream_send`` and ``stream_recv`` at the same time; messages can still be
    sent and received. Closing the writer closes the endpoint.
    ``writer.get_extra_info("endpoint")`` is ``ep``.

    Args:
        ep: an endpoint of the running loop.
        limit: longest line, in bytes, that ``readline`` of the reader accepts. The
            reader stops receiving while it holds twice as many bytes, as in
            asyncio.
    """
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=limit, loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    transport = StreamTransport(ep, loop, protocol)
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


class StreamTransport(asyncio.Transport):
    """The byte stream of an endpoint as a transport of asyncio.

    The transport starts to receive when it is made. Bytes that it has received
    and not passed to its protocol, because reading was paused, can still be
    received by ``stream_recv``.
    """

    def __init__(
        self,
        ep: Endpoint,
        loop: asyncio.AbstractEventLoop,
        protocol: asyncio.BaseProtocol,
    ) -> None:
        super().__init__(
            {
                "endpoint": ep,
                "peername": ep.peer_address,
                "sockname": ep.local_address,
            }
        )
        self._ep = ep
        self._loop = loop
        self._protocol = protocol
        self._buffer = bytearray(_READ_SIZE)
        self._receiving: _ext.CoroutineRequest[int] | None = None
        self._is_paused = False
        self._has_end = False  # of what the peer sends
        self._is_shut = False  # what we send
        self._is_closing = False
        self._is_lost = False
        self._unsent = 0  # bytes
        self._is_full = False  # the protocol was told to stop writing
        self._high = _HIGH_WATER
        self._low = _HIGH_WATER // 4
        protocol.connection_made(self)
        self._receive()

    def __repr__(self) -> str:
        state = "closing" if self._is_closing else "open"
        return f"<ucp.StreamTransport {state} of {self._ep!r}>"

    # ---- receiving ----

    def _receive(self) -> None:
        if self._receiving or self._is_paused or self._has_end or self._is_closing:
            return
        self._receiving = self._ep.stream_recv(self._buffer)
        self._receiving.add_done_callback(self._received)

    def _received(self, request: _ext.Request[int]) -> None:
        if request is not self._receiving:
            return  # cancelled; its bytes are back in the stream
        self._receiving = None
        try:
            count = request.result()
        except UCXCloseError:  # somebody closes the endpoint itself
            self._is_closing = True
            self._loop.call_soon(self._tell_lost, None)
            return
        except UCXBaseException as exc:
            self._lose(exc)
            return
        protocol: Any = self._protocol
        if count:
            protocol.data_received(bytes(memoryview(self._buffer)[:count]))
            self._receive()
            return
        self._has_end = True
        if not protocol.eof_received():
            self.close()

    def _stop_receiving(self) -> None:
        request, self._receiving = self._receiving, None
        if request is None:
            return
        if not request.cancel():
            request.close()  # done, and not handed out: back to the stream
        elif not request.done():  # bytes still come, into the buffer
            self._buffer = bytearray(_READ_SIZE)

    def is_reading(self) -> bool:
        """True unless reading is paused, at the end, or the transport is closing."""
        return not (self._is_paused or self._has_end or self._is_closing)

    def pause_reading(self) -> None:
        """Stop calling ``data_received``. A second call does nothing."""
        self._is_paused = True
        self._stop_receiving()

    def resume_reading(self) -> None:
        """Call ``data_received`` again. A second call does nothing."""
        self._is_paused = False
        self._receive()

    # ---- sending ----

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send a copy of ``data`` after the bytes that were written before."""
        if not isinstance(data, bytes | bytearray | memoryview):
            raise TypeError(
                "data argument must be a bytes-like object, "
                f"not {type(data).__name__!r}"
            )
        if self._is_shut:
            raise RuntimeError("Cannot call write() after write_eof()")
        if self._is_closing:
            return
        copy = bytes(data)  # the same object if it is bytes
        size = len(copy)
        request = self._ep.stream_send(copy)
        if request.done():
            self._check(request)
            return
        self._unsent += size
        request.add_done_callback(self._make_sent(size))
        self._check_full()

    def _make_sent(self, size: int) -> Callable[[_ext.Request[None]], None]:
        def sent(request: _ext.Request[None]) -> None:
            self._unsent -= size
            self._check(request)
            self._check_empty()

        return sent

    def _check(self, request: _ext.Request[None]) -> None:
        exc = request.exception()
        if exc is None or self._is_closing:
            return
        if isinstance(exc, UCXCloseError):  # what a socket would say
            exc = BrokenPipeError(errno.EPIPE, f"the peer has closed: {exc}")
        self._lose(exc)

    def _check_full(self) -> None:
        if self._unsent > self._high and not self._is_full:
            self._is_full = True
            self._protocol.pause_writing()

    def _check_empty(self) -> None:
        if self._unsent <= self._low and self._is_full:
            self._is_full = False
            self._protocol.resume_writing()

    def get_write_buffer_size(self) -> int:
        """Bytes that were written and that UCX may not have sent yet."""
        return self._unsent

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """The low and the high limit in bytes."""
        return self._low, self._high

    def set_write_buffer_limits(
        self, high: int | None = None, low: int | None = None
    ) -> None:
        """Set the limits in bytes at which the protocol pauses and resumes writing."""
        if high is None:
            high = _HIGH_WATER if low is None else 4 * low
        if low is None:
            low = high // 4
        if not high >= low >= 0:
            raise ValueError(f"high ({high!r}) must be >= low ({low!r}) must be >= 0")
        self._high, self._low = high, low
        self._check_full()
        self._check_empty()

    def can_write_eof(self) -> bool:
        """True: ``write_eof`` is supported."""
        return True

    def write_eof(self) -> None:
        """End the sending direction; receiving continues."""
        if not (self._is_shut or self._is_closing):
            self._is_shut = True
            self._ep.stream_shutdown()

    # ---- the end ----

    def get_protocol(self) -> asyncio.BaseProtocol:
        """The protocol that gets the bytes."""
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Pass the bytes to another protocol."""
        self._protocol = protocol

    def is_closing(self) -> bool:
        """True once closing has begun."""
        return self._is_closing

    def close(self) -> None:
        """Close the endpoint; the bytes that were written still arrive."""
        if self._is_closing:
            return
        self._is_closing = True
        self._stop_receiving()
        _ext.Endpoint.close(self._ep).add_done_callback(self._closed)

    def _closed(self, request: _ext.Request[None]) -> None:
        exc = request.exception()
        # A peer that is gone is closed as well.
        self._tell_lost(None if isinstance(exc, UCXConnectionReset) else exc)

    def abort(self) -> None:
        """Close the endpoint immediately."""
        self._lose(None)

    def _lose(self, exc: BaseException | None) -> None:
        """End the connection, which may have ended already."""
        self._is_closing = True
        self._stop_receiving()
        self._ep.abort()
        self._loop.call_soon(self._tell_lost, exc)

    def _tell_lost(self, exc: BaseException | None) -> None:
        if not self._is_lost:
            self._is_lost = True
            self._protocol.connection_lost(exc if isinstance(exc, Exception) else None)
