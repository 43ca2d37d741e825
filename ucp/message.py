# SPDX-License-Identifier: BSD-3-Clause
"""Messages with metadata: a dictionary and buffers, to one or several endpoints.

A ``MessageSender`` packs small messages together and bounds what is under way. A
``MessageListener`` asks the program, by the metadata, for a ``MessageReceiver``
that gives memory to a message's buffers and makes something of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Self, cast

from . import _ext
from ._closing import AsyncClosing
from ._endpoint import Endpoint
from ._lifecycle import current_worker
from ._waiters import Waiters
from ._worker import Worker

__all__ = [
    "MessageListener",
    "MessageReceiver",
    "MessageSender",
    "MessageSenderStatistics",
    "Metadata",
]

Metadata = dict[str, str | int | bytes]

_CHANNEL = 65535


@dataclass(frozen=True, slots=True)
class MessageSenderStatistics:
    """What a ``MessageSender`` has done."""

    bytes_pending: int
    """Sent and not complete, of all endpoints together."""
    bytes_peak: int
    """The most that there have been."""
    num_waiting: int
    """Messages that wait for room."""
    num_packed: int
    """Small messages sent, counted once for each endpoint."""
    num_packs: int
    """How many packs they went in."""


class MessageSender(AsyncClosing, _ext.MessageSender):
    """Sends messages to endpoints of the current worker: ``send()``, ``close()``.

    Args:
        max_bytes: more than that is not under way at a time; what comes then
            waits, in the order of sending. A longer message goes by itself.
        channel: of frames. It is for these messages only; the listener names
            the same.
    """

    __slots__ = ()

    def __new__(cls, *, max_bytes: int = 64 << 20, channel: int = _CHANNEL) -> Self:
        return super().__new__(cls, current_worker(), max_bytes, channel)

    def __repr__(self) -> str:
        if self.closed():
            return "<ucp.MessageSender, closed>"
        stats = self.statistics()
        return (
            f"<ucp.MessageSender, {stats.bytes_pending} bytes pending, "
            f"{stats.num_waiting} messages waiting>"
        )

    async def close(self) -> None:
        """Wait until all that was sent is handed over, and refuse new messages.

        When cancelled, what is left still goes out in the background.
        """
        if self.closed():
            return
        try:
            if not self.worker.closed():
                await self.wait_sent()
        finally:
            self._close()

    def _close_soon(self) -> None:
        """Refuse new messages; what is left goes out in the background."""
        self._close()

    def statistics(self) -> MessageSenderStatistics:
        return MessageSenderStatistics(*self._stats())


class MessageReceiver(_ext.MessageReceiver):
    """One message that is being received; awaitable.

    ``await receiver`` gives what ``finish()`` has made of it: by default
    ``(metadata, buffers)``. Subclasses override ``allocate``, ``finish`` and
    ``failed``; these run in the loop and may not block.

    Args:
        metadata: what ``route`` was given.
        allocator: makes a buffer of that many bytes.
    """

    __slots__ = ("__weakref__",)

    _waiters: list[asyncio.Future[None]] | None

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, None
        for waiter in waiters or ():
            if not waiter.done() and not waiter.get_loop().is_closed():
                waiter.set_result(None)

    def __await__(self) -> Generator[Any, None, Any]:
        while not self.done():
            waiter = asyncio.get_running_loop().create_future()
            if self._waiters is None:
                self._waiters = []
            self._waiters.append(waiter)
            yield from waiter
        if self._error is not None:
            raise self._error
        return self._result


class MessageListener:
    """Hands out the messages that a ``MessageSender`` of the peer sends.

    ``route(metadata)`` is called for each, in their order, and returns a
    ``MessageReceiver``, or None to have it dropped. One is received after the
    other. An exception of the program's functions goes to the loop's exception
    handler, and that message is lost. It ends with the endpoint.

    Args:
        endpoint: of the running loop.
        route: see above.
        channel: the sender's.
    """

    __slots__ = (
        "__weakref__",
        "_error",
        "_is_ended",
        "_listener",
        "_waiters",
        "_worker",
    )

    def __init__(
        self,
        endpoint: Endpoint,
        route: Callable[[Metadata], MessageReceiver | None],
        *,
        channel: int = _CHANNEL,
    ) -> None:
        self._is_ended = False
        self._error: BaseException | None = None
        self._waiters = Waiters()
        self._listener = _ext.MessageListener(endpoint, route, self._on_end, channel)
        self._worker = cast(Worker, self._listener.endpoint.worker)
        self._worker._message_listeners.add(self._listener)

    def __repr__(self) -> str:
        state = "closed" if self._is_ended else "open"
        return f"<ucp.MessageListener on {self._listener.endpoint!r}, {state}>"

    def _on_end(self, error: BaseException | None) -> None:
        self._is_ended = True
        self._error = error
        self._worker._message_listeners.discard(self._listener)
        self._waiters.wake()

    def close(self) -> None:
        """Hand out no more. What has come stays with the endpoint."""
        self._listener.close()

    def closed(self) -> bool:
        """True once it hands out no more, whichever side has closed."""
        return self._is_ended

    async def wait_closed(self) -> None:
        """Wait until it hands out no more.

        Returns if this or the other side has closed.

        Raises:
            UCXProtocolError: the peer sent what is no message; the endpoint is
                closed.
            UCXConnectionReset, ...: the endpoint has failed.
        """
        while not self._is_ended:
            await self._waiters.wait()
        if self._error is not None:
            raise self._error
