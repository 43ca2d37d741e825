# SPDX-License-Identifier: BSD-3-Clause
"""Messages of a lane, that is an endpoint or a channel: objects and frames."""

from __future__ import annotations

import pickle
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Any, Protocol, Self

from . import _ext
from .exceptions import UCXCloseError, UCXError

Tag = Hashable

_PICKLE = b"pickle"  # the header of a pickled object


class _Lane(Protocol):
    """What ``Objects`` and ``Frames`` need of the class they are mixed into."""

    def send(self, buffer: Any, tag: Any = None) -> _ext.Request[None]: ...
    def recv_message(self, tag: Any = None) -> Awaitable[_ext.Message]: ...
    def send_frames(
        self, buffers: Sequence[Any], header: bytes = b""
    ) -> _ext.Request[None]: ...
    def recv_frames(
        self, allocator: Callable[[int], Any] | None = None
    ) -> _ext.Request[tuple[bytes, list[Any]]]: ...


class Objects:
    """Buffers whose length the receiver need not know."""

    __slots__ = ()

    def send_obj(
        self: _Lane, obj: object, tag: Tag | None = None
    ) -> _ext.Request[None]:
        """Send a buffer whose length the peer need not know; awaitable.

        One message; ``recv_obj`` takes it, so does ``recv`` of that length.
        Arguments, errors and cancelling as in ``send``.
        """
        return self.send(obj, tag)

    async def recv_obj(
        self: _Lane,
        tag: Tag | None = None,
        allocator: Callable[[int], Any] = bytearray,
    ) -> Any:
        """Receive the next message, of whatever length.

        Args:
            tag: as in ``recv``.
            allocator: called with the length in bytes once it is known, to
                make the writable buffer that is filled and returned.

        Raises: as ``recv``, and what ``allocator`` raises. Whether cancelled
        or failed in the allocator: the message stays for the next receive.
        """
        message = await self.recv_message(tag)
        buffer = allocator(message.length)
        await message.recv(buffer)
        return buffer

    def __aiter__(self) -> Self:
        """The messages without a tag, each as ``recv_obj()`` gives it.

        ``async for message in ep`` ends when the endpoint is closed by agreement,
        by whichever side, and what the peer had sent has been read.

        Raises: what ``recv_obj`` raises if the connection breaks. When cancelled
        nothing is lost: the next receive gets the message.
        """
        return self

    async def __anext__(self: _Lane) -> bytearray:
        try:
            message: bytearray = await Objects.recv_obj(self)
        except UCXCloseError:
            raise StopAsyncIteration from None
        return message


class Frames:
    """Objects of several buffers, each as one message of frames."""

    __slots__ = ()

    def send_multi(self: _Lane, buffers: Sequence[Any]) -> _ext.Request[None]:
        """Send several buffers as one message; ``recv_multi`` receives them."""
        return self.send_frames(buffers)

    async def recv_multi(
        self: _Lane, allocator: Callable[[int], Any] | None = None
    ) -> list[Any]:
        """The buffers of the next message, as ``recv_frames`` without header."""
        _, frames = await self.recv_frames(allocator)
        return frames

    def send_pickle(self: _Lane, obj: object) -> _ext.Request[None]:
        """Send ``obj`` by pickle protocol 5; awaitable.

        Its large buffers, of NumPy arrays for example, travel without a copy
        and are held until then: do not change them before.

        Raises: what pickling ``obj`` raises.
        """
        buffers: list[pickle.PickleBuffer] = []
        data = pickle.dumps(obj, protocol=5, buffer_callback=buffers.append)
        frames = [data, *(buffer.raw() for buffer in buffers)]
        return self.send_frames(frames, _PICKLE)

    async def recv_pickle(self: _Lane, *, allow_pickle: bool = False) -> Any:
        """Receive what ``send_pickle`` has sent.

        Args:
            allow_pickle: must be True. Whoever may send pickled data can have
                this process run any code: ask only for what comes from peers
                that you trust.

        Raises:
            ValueError: ``allow_pickle`` is not True; nothing is received.
            UCXError: the next message of frames is no pickled object; it is
                consumed.
            Otherwise as ``recv_frames``, and what unpickling raises.
        """
        if allow_pickle is not True:
            raise ValueError(
                "recv_pickle() runs what the peer sends: "
                "allow_pickle=True says that you trust it"
            )
        header, frames = await self.recv_frames()
        if header != _PICKLE or not frames:
            raise UCXError("the message is no pickled object")
        return pickle.loads(frames[0], buffers=frames[1:])


class Channel(_ext.Channel, Objects, Frames):  # order: see Endpoint
    """An ordered lane of an endpoint, made by ``Endpoint.channel``.

    A channel has the calls for messages that an endpoint has. It has a queue, an
    order and a limit of unread messages of its own: a message sent on it neither
    waits behind messages of other channels nor is matched with their receives.
    It ends with its endpoint, which it keeps alive.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<ucp.Channel {self.number} of {self.endpoint!r}>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Channel):
            return NotImplemented
        return self.endpoint is other.endpoint and self.number == other.number

    def __hash__(self) -> int:
        return hash((self.endpoint, self.number))
