# SPDX-License-Identifier: BSD-3-Clause
"""Objects and frames: methods that endpoints and channels have in common."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol, Self

from .. import _ext
from ..exceptions import UCXCloseError, UCXError
from . import arrays
from .window import last_of

Tag = Hashable

PICKLE = b"pickle"  # the header of a pickled object


class _Messages(Protocol):
    """The methods of the class into which ``Objects`` and ``Frames`` are mixed."""

    def send(self, buffer: Any, tag: Any = None) -> _ext.CoroutineRequest[None]: ...
    def recv_obj(self) -> _ext.CoroutineRequest[bytearray]: ...
    def send_frames(
        self, buffers: Sequence[Any], header: bytes = b""
    ) -> _ext.CoroutineRequest[None]: ...
    def _recv_pickle(
        self,
        decode: Callable[[tuple[bytes, list[Any]]], Any],
        allocator: Callable[[int], Any],
    ) -> _ext.CoroutineRequest[Any]: ...


class Objects:
    """Messages whose length the receiver need not know."""

    __slots__ = ()

    def send_obj(
        self: _Messages, obj: object, tag: Tag | None = None
    ) -> _ext.CoroutineRequest[None]:
        """Send a buffer whose length the peer need not know; awaitable.

        The buffer is sent as one message. ``recv_obj`` receives it, and so does
        ``recv`` with a buffer of that length. Arguments, exceptions and the effect
        of cancelling are those of ``send``.
        """
        return self.send(obj, tag)

    def __aiter__(self) -> Self:
        """Iterate over the messages without a tag, as ``recv_obj()`` returns them.

        ``async for message in ep`` ends when either side has closed the endpoint
        and all messages that the peer had sent have been received. It raises the
        exceptions of ``recv_obj`` if the connection breaks. When cancelled, the
        next receive gets the message.
        """
        return self

    async def __anext__(self: _Messages) -> bytearray:
        try:
            return await self.recv_obj()
        except UCXCloseError:
            raise StopAsyncIteration from None


class Frames:
    """Objects that consist of several buffers, each sent as one message."""

    __slots__ = ()

    def send_multi(
        self: _Messages, buffers: Sequence[Any]
    ) -> _ext.CoroutineRequest[None]:
        """Send several buffers as one message; ``recv_multi`` receives them."""
        return self.send_frames(buffers)

    def send_pickle(self: _Messages, obj: object) -> _ext.CoroutineRequest[None]:
        """Send ``obj``, pickled by protocol 5; awaitable.

        Large buffers, for example those of NumPy arrays, are not copied: they
        must not change before the request is done. The same holds for arrays of
        CuPy, torch and Numba in memory of a device, which go to the peer's device.

        Raises:
            The exceptions of pickling ``obj``.
        """
        return self.send_frames(frames_of(obj), PICKLE)

    def recv_pickle(
        self: _Messages, *, allow_pickle: bool | None = None
    ) -> _ext.CoroutineRequest[Any]:
        """Receive an object that ``send_pickle`` has sent; awaitable.

        It is unpickled when the result is handed out, by an await or ``result()``.
        When cancelled, the next receive gets the message.

        Args:
            allow_pickle: must be True, here or, with None here, where the endpoint
                was made. A peer that sends pickled data can make this process run
                any code, so receive it from trusted peers only.

        Raises:
            ValueError: it is not allowed; nothing is received.
            UCXError: the next message of frames is not a pickled object, or it has
                an array of a device and this process has none; the message is
                consumed.
            ImportError: it has an array of a library that cannot be imported here;
                the message is consumed.
            Otherwise the exceptions of ``recv_frames`` and of unpickling.
        """
        if allow_pickle is not True:
            check_allowed(self, allow_pickle)
        return self._recv_pickle(unpickle, arrays.allocate)


def check_allowed(messages: object, allow_pickle: bool | None) -> None:
    """Raise ValueError unless the peer of an endpoint, or a channel, is trusted."""
    endpoint = getattr(messages, "endpoint", messages)
    if allow_pickle is None:
        allow_pickle = getattr(endpoint, "_allows_pickle", False)
    if allow_pickle is not True:
        raise ValueError(
            "recv_pickle() runs what the peer sends: allow_pickle=True says that you "
            "trust it, here or where the endpoint is made"
        )


def frames_of(obj: object) -> list[Any]:
    """Pickle an object, by frames of which large buffers are not copied."""
    return _ext.pickle_frames(obj)


def unpickle(message: tuple[bytes, list[Any]]) -> Any:
    """Unpickle the header and frames of a message."""
    header, frames = message
    if header != PICKLE or not frames:
        raise UCXError("the message is no pickled object")
    return pickle.loads(frames[0], buffers=frames[1:])


class Channel(_ext.Channel, Objects, Frames):  # order: see Endpoint
    """An ordered sequence of messages, made by ``Endpoint.channel``.

    A channel has the methods for messages that an endpoint has. Its queue, its
    order and its limit of unread messages are its own: a message on a channel
    neither waits behind messages of other channels nor is matched with their
    receives. A channel ends with its endpoint, and keeps it alive.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<ucp.Channel {self.number} of {self.endpoint!r}>"

    def set_keep_last(self, count: int | None) -> None:
        """Keep only the newest messages of the channel that nobody has received.

        Earlier ones are dropped as newer ones come, whatever their tags are, and
        count as received for their sender: a slow reader gets the newest state and
        holds nobody up. Bytes of long messages that are dropped are not fetched.
        Messages and messages of frames are counted apart. The peer need not know.
        ``statistics.dropped_messages`` says how many have been dropped.

        Args:
            count: so many are kept, 1 or more; None: all, as at first.

        Raises:
            TypeError, ValueError: the number is not an int of 1 or more.
        """
        self.endpoint._keep_last(self.number, last_of(count))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Channel):
            return NotImplemented
        return self.endpoint is other.endpoint and self.number == other.number

    def __hash__(self) -> int:
        return hash((self.endpoint, self.number))
