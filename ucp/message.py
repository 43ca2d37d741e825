# SPDX-License-Identifier: BSD-3-Clause
"""Messages with metadata: a dictionary and buffers, to one or several endpoints.

A ``MessageSender`` packs small messages together and bounds the bytes that are
being sent. For each message a ``MessageListener`` calls a function of the program
with the metadata. That function returns a ``MessageReceiver``, which provides memory
for the buffers of the message and processes them.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Self, cast

from . import _ext
from ._core.closing import AsyncClosing
from ._core.endpoint import Endpoint
from ._core.lifecycle import current_worker
from ._core.statistics import Statistics
from ._core.waiters import Waiters
from ._core.worker import Worker

__all__ = [
    "MessageListener",
    "MessageReceiver",
    "MessageSender",
    "MessageSenderStatistics",
    "Metadata",
]


def __dir__() -> list[str]:
    return __all__


Metadata = dict[str, str | int | bytes]

_CHANNEL = 65535


@dataclass(frozen=True, slots=True)
class MessageSenderStatistics(Statistics):
    """Statistics of a ``MessageSender``."""

    bytes_pending: int
    """Bytes of sends that are not complete, to all endpoints together."""
    bytes_peak: int
    """Largest value of ``bytes_pending`` so far."""
    num_waiting: int
    """Messages that wait because ``max_bytes`` is reached."""
    num_packed: int
    """Small messages that were sent, counted once for each endpoint."""
    num_packs: int
    """Packs in which these were sent."""

    def __call__(self) -> Self:
        """Deprecated: ``statistics`` of a sender was a method."""
        warnings.warn(
            "statistics is a property now: leave the parentheses out",
            DeprecationWarning,
            stacklevel=2,
        )
        return self


class MessageSender(AsyncClosing, _ext.MessageSender):
    """Sends messages with metadata to endpoints of the current worker.

    Args:
        max_bytes: bytes that are being sent at a time. Further messages wait, in
            the order of sending. A message that is longer is sent alone.
        channel: number of the channel, which is used for these messages only. The
            listener has the same number.
    """

    __slots__ = ()

    def __new__(cls, *, max_bytes: int = 64 << 20, channel: int = _CHANNEL) -> Self:
        return super().__new__(cls, current_worker(), max_bytes, channel)

    def __repr__(self) -> str:
        if self.closed():
            return "<ucp.MessageSender, closed>"
        stats = self.statistics
        return (
            f"<ucp.MessageSender, {stats.bytes_pending} bytes pending, "
            f"{stats.num_waiting} messages waiting>"
        )

    async def close(self) -> None:
        """Wait until every buffer that was sent may be reused; refuse new messages.

        When cancelled, the remaining messages are sent in the background.
        """
        if self.closed():
            return
        try:
            if not self.worker.closed():
                await self.wait_sent()
        finally:
            self._close()

    def _close_soon(self) -> None:
        """Refuse new messages; the remaining ones are sent in the background."""
        self._close()

    @property
    def statistics(self) -> MessageSenderStatistics:
        """Counts of sent messages since the sender was made."""
        return MessageSenderStatistics(*self._stats())


class MessageReceiver(_ext.MessageReceiver):
    """One message that is being received; awaitable.

    ``await receiver`` returns the result of ``finish()``, by default ``(metadata,
    buffers)``. Subclasses override ``allocate``, ``finish`` and ``failed``, which
    run in the event loop and must not block.

    Args:
        metadata: the metadata that ``route`` was given.
        allocator: called with a number of bytes; returns a writable buffer of that
            length.
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
    """Receives the messages that a ``MessageSender`` of the peer sends.

    ``route(metadata)`` is called for each message, in the order of sending. It
    returns a ``MessageReceiver``, or None to discard the message. The messages are
    received one after the other. An exception of a function of the program goes
    to the loop's exception handler, and the message is lost. A listener ends with
    its endpoint.

    Args:
        endpoint: an endpoint of the running loop.
        route: called with the metadata of a message, a dictionary.
        channel: number of the sender's channel.
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
        """Stop calling ``route``; messages that have arrived stay in the channel."""
        self._listener.close()

    def closed(self) -> bool:
        """True once ``route`` is no longer called, because either side has closed."""
        return self._is_ended

    async def wait_closed(self) -> None:
        """Wait until ``route`` is no longer called, as either side has closed.

        Raises:
            UCXProtocolError: the peer has sent something that is not a message;
                the endpoint is closed.
            UCXConnectionReset: the endpoint has failed. Other failures raise the
                exception of the endpoint.
        """
        while not self._is_ended:
            await self._waiters.wait()
        if self._error is not None:
            raise self._error
