# SPDX-License-Identifier: BSD-3-Clause
"""Endpoints and listeners with the names of ucxx."""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pickle import PickleBuffer
from typing import Any

from ... import _ext
from ..._core import listener as _listener
from ..._core.endpoint import Endpoint as _Endpoint
from ...exceptions import UCXBaseException, UCXMsgTruncated
from .exceptions import UCXUnsupportedError, translate

logger = logging.getLogger("ucp")

# The longest close, 10**10, is ucxx's.
_PERIOD_NS = 10**10

# UCX's status of a message that is longer than the buffer.
_TRUNCATED = -9

Tag = int | str | bytes | tuple[Any, ...]


@contextmanager
def translated() -> Iterator[None]:
    """Convert exceptions of ``ucp`` to those of ucxx."""
    try:
        yield
    except UCXBaseException as exc:
        raise translate(exc) from exc


@dataclass(frozen=True)
class TagProbeResult:
    """The result of ``tag_probe``."""

    matched: bool
    sender_tag: int | None = None
    """None also for a message that was sent without a tag."""
    length: int | None = None
    """Bytes."""
    handle: _ext.Message | _ext.TagMessage | None = None
    """For ``recv_with_handle``, if it was removed."""

    def __bool__(self) -> bool:
        return self.matched


def as_it_lies(buffer: Any) -> Any:
    """``buffer``, whose bytes go in the order of memory, as ucxx's do."""
    flags = getattr(buffer, "flags", buffer)  # of an array; a memoryview has none
    if getattr(flags, "f_contiguous", False) and not flags.c_contiguous:
        return _ext.Array(buffer)
    return buffer


def _at_once(request: _ext.CoroutineRequest[Any]) -> Any:
    """Return the result of an operation that is done; None if it would wait."""
    if request.done():
        return request.result()
    request.close()
    return None


def _array(buffer: Any) -> Any:
    """Allocate as ucxx does: a NumPy array of bytes."""
    import numpy

    return numpy.frombuffer(buffer, dtype=numpy.uint8)


class Endpoint:
    """A connection; ``endpoint.ucp`` is the ``ucp.Endpoint`` underneath."""

    __slots__ = ("__weakref__", "ucp")

    def __init__(self, endpoint: _Endpoint) -> None:
        self.ucp = endpoint

    def __repr__(self) -> str:
        return f"<ucxx.Endpoint on {self.ucp!r}>"

    # ---- what it is ----

    @property
    def uid(self) -> int:
        """A number no other endpoint has."""
        return self.ucp.uid

    @property
    def alive(self) -> bool:
        """True until it is closed or has failed."""
        return not self.ucp.closed()

    @property
    def closed(self) -> bool:
        """True if either side has closed the endpoint, or it has failed."""
        return self.ucp.closed()

    @property
    def ucp_endpoint(self) -> int:
        """UCX's ``ucp_ep_h``; 0 once closed."""
        return self.ucp.get_ucp_endpoint()

    @property
    def ucp_worker(self) -> int:
        """UCX's ``ucp_worker_h``."""
        return self.ucp.get_ucp_worker()

    @property
    def ucxx_endpoint(self) -> int:
        """There is none: UCXUnsupportedError."""
        raise UCXUnsupportedError("there is no C++ object behind this endpoint")

    @property
    def ucxx_worker(self) -> int:
        """There is none: UCXUnsupportedError."""
        raise UCXUnsupportedError("there is no C++ object behind this worker")

    # ---- messages ----

    async def send(
        self, buffer: Any, tag: Tag | None = None, force_tag: bool = False
    ) -> None:
        """Send ``buffer``; with ``force_tag`` by UCX's own tags."""
        with translated():
            await self.ucp.send(as_it_lies(buffer), tag, force_tag)

    async def recv(
        self, buffer: Any, tag: Tag | None = None, force_tag: bool = False
    ) -> None:
        """Receive a message of at most the length of ``buffer``.

        With ``force_tag`` from any peer; the receive fails when this endpoint does.

        Raises:
            UCXMessageTruncatedError: the message is longer.
        """
        buffer = as_it_lies(buffer)
        with translated():
            if not force_tag:
                await self.ucp.recv_into(buffer, tag)
                return
            try:
                await self.ucp.recv(buffer, _raw(tag), True)
            except UCXMsgTruncated as exc:
                # A shorter message is in the buffer, which is enough here.
                if exc.status == _TRUNCATED:
                    raise

    async def send_obj(self, obj: Any, tag: Tag | None = None) -> None:
        """Send a buffer whose length the peer need not know."""
        with translated():
            await self.ucp.send_obj(obj, tag)

    async def recv_obj(
        self, tag: Tag | None = None, allocator: Callable[[int], Any] = bytearray
    ) -> Any:
        """Receive a message of ``send_obj`` into ``allocator(nbytes)``."""
        with translated():
            return await self.ucp.recv_obj(tag, allocator)

    async def am_send(self, buffer: Any) -> None:
        """Send ``buffer`` as an active message."""
        with translated():
            await self.ucp.am_send(as_it_lies(buffer))

    async def am_recv(self) -> Any:
        """Receive the next active message as an array of bytes."""
        with translated():
            return _array(await self.ucp.am_recv())

    async def send_multi(
        self,
        buffers: Sequence[Any],
        tag: Tag | None = None,
        force_tag: bool = False,
    ) -> None:
        """Send several buffers as one message.

        With a tag the buffers must be in host memory, and are copied.

        Raises:
            ValueError: ``buffers`` is neither list nor tuple.
        """
        if not isinstance(buffers, list | tuple):
            raise ValueError("The `buffers` argument must be a `list` or `tuple`")
        if tag is None:
            with translated():
                await self.ucp.send_multi([as_it_lies(one) for one in buffers])
            return
        views = [PickleBuffer(buffer).raw() for buffer in buffers]
        sizes = [view.nbytes for view in views]
        parts: list[Any] = [
            struct.pack(f"<{len(sizes) + 1}Q", len(sizes), *sizes),
            *views,
        ]
        await self.send(b"".join(parts), _multi(tag, force_tag), force_tag)

    async def recv_multi(
        self, tag: Tag | None = None, force_tag: bool = False
    ) -> list[Any]:
        """Receive a message of ``send_multi`` as arrays of bytes."""
        with translated():
            if tag is None:
                return [_array(frame) for frame in await self.ucp.recv_multi()]
            if force_tag:
                message = await self.ucp.worker.recv_message(_raw(tag))
                data = bytearray(message.nbytes)
                await message.recv(data)
            else:
                data = await self.ucp.recv_obj(_multi(tag, force_tag))
        return [_array(part) for part in _split(memoryview(data))]

    def tag_probe(
        self, tag: Tag | None = None, force_tag: bool = False, remove: bool = False
    ) -> TagProbeResult:
        """Look for a message; with ``remove`` take it for ``recv_with_handle``."""
        with translated():
            if force_tag:
                worker = self.ucp.worker
                found: Any = worker.tag_probe(_raw(tag))
                take: Any = lambda: worker.recv_message(_raw(tag))  # noqa: E731
            else:
                found = self.ucp.probe(tag)
                take = lambda: self.ucp.recv_message(tag)  # noqa: E731
            if found is None:
                return TagProbeResult(False)
            length, sender_tag = found
            handle = _at_once(take()) if remove else None
            return TagProbeResult(True, sender_tag, length, handle)

    async def recv_with_handle(self, buffer: Any, probe_result: TagProbeResult) -> None:
        """Receive a message that ``tag_probe`` has removed."""
        if probe_result.handle is None:
            raise ValueError("a probe with remove=True that matched is needed")
        with translated():
            await probe_result.handle.recv(as_it_lies(buffer))

    # ---- the end ----

    async def close(self, period: int = _PERIOD_NS, max_attempts: int = 1) -> None:
        """Close in agreement with the peer, or by force after a time.

        The time is ``period * max_attempts`` nanoseconds.
        """
        try:
            with translated():
                await self.ucp.close(period * max_attempts / 1e9)
        except TimeoutError as exc:
            logger.debug("%r: closed by force: %s", self, exc)

    def abort(self, period: int = _PERIOD_NS, max_attempts: int = 1) -> None:
        """Close immediately, without waiting."""
        self.ucp.abort()

    def close_after_n_recv(self, n: int, count_from_ep_creation: bool = False) -> None:
        """Close once ``n`` messages have been received."""
        with translated():
            self.ucp.close_after_n_recv(n, count_from_ep_creation)

    def set_close_callback(
        self,
        callback_func: Callable[..., object],
        cb_args: Sequence[Any] | None = None,
        cb_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        """Call ``callback_func`` once when the endpoint has closed."""
        args, kwargs = tuple(cb_args or ()), dict(cb_kwargs or {})
        self.ucp.set_close_callback(lambda: callback_func(*args, **kwargs))


def _raw(tag: Tag | None) -> int:
    if not isinstance(tag, int):
        raise TypeError("force_tag=True needs a tag that is an int")
    return tag


def _multi(tag: Tag, force_tag: bool) -> Tag:
    """Return the tag of multi-buffer messages, which have tags of their own."""
    return tag if force_tag else ("ucxx multi", tag)


def _split(data: memoryview) -> Iterator[memoryview]:
    count = struct.unpack_from("<Q", data)[0]
    at = 8 * (count + 1)
    for size in struct.unpack_from(f"<{count}Q", data, 8):
        yield data[at : at + size]
        at += size


class Listener:
    """A listening port; ``listener.ucp`` is the ``ucp.Listener``."""

    __slots__ = ("__weakref__", "_clients", "ucp")

    def __init__(self, listener: _listener.Listener, clients: Clients) -> None:
        self.ucp = listener
        self._clients = clients

    def __repr__(self) -> str:
        return f"<ucxx.Listener on {self.ucp!r}>"

    @property
    def ip(self) -> str:
        """The address on which it listens; of two the IPv4 one."""
        return self.ucp.ip

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """All pairs of host and port on which it listens."""
        return self.ucp.addresses

    @property
    def port(self) -> int:
        """The port."""
        return self.ucp.port

    @property
    def closed(self) -> bool:
        """True after ``close``."""
        return self.ucp.closed()

    @property
    def active_clients(self) -> int:
        """The number of callbacks that are running."""
        return self._clients.count

    def close(self) -> None:
        """Stop listening; open endpoints are not affected."""
        self.ucp.close()


class Clients:
    """Runs the callback of a listener, and counts the running ones."""

    def __init__(
        self, callback: Callable[[Endpoint], Coroutine[Any, Any, object] | object]
    ) -> None:
        self._callback = callback
        self.count = 0

    async def serve(self, endpoint: _Endpoint) -> None:
        """Run the callback for an endpoint; ``ucp`` calls this."""
        self.count += 1
        try:
            result = self._callback(Endpoint(endpoint))
            if isinstance(result, Coroutine):
                await result
        finally:
            self.count -= 1
