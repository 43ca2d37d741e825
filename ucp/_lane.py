# SPDX-License-Identifier: BSD-3-Clause
"""Lanes of an endpoint."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Protocol

from . import _ext
from ._frames import Frames

Tag = Hashable


class _Lane(Protocol):
    """What ``Objects`` needs of the class it is mixed into."""

    def send(self, buffer: Any, tag: Any = None) -> _ext.Request[None]: ...
    def recv_message(self, tag: Any = None) -> Awaitable[_ext.Message]: ...


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


class Channel(_ext.Channel, Objects, Frames):  # order: see Endpoint
    """An ordered lane of an endpoint, made by ``Endpoint.channel``.

    Has the calls for messages that an endpoint has, and a queue, an order and
    a limit of unread messages of its own: what is sent here neither waits
    behind messages of other channels nor is matched with their receives. Ends
    with its endpoint, which it keeps alive.
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
