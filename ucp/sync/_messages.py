# SPDX-License-Identifier: BSD-3-Clause
"""Messages of endpoints and channels, by calls that wait."""

# mypy: disable-error-code="empty-body, no-any-return"
# Methods that are @forwarded have no code. What others give is that of the method of
# their name.

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Self, TypeVar, overload

from .._core import arrays, objects
from .._core import worker as _worker
from .._core.objects import Tag
from .._ext import ANY, AnyTag, UCXCloseError
from ._forward import forwarded
from ._runner import call, submit

_T = TypeVar("_T")


class Messages:
    """The calls for messages, of an endpoint or of a channel."""

    _async: Any

    def __init__(self, worker: _worker.Worker) -> None:
        self._worker = worker
        self._wait_for: Callable[..., Any] = partial(call, worker)
        self._do: Callable[..., Any] = partial(submit, worker)  # what does not wait

    def set_keep_last(self, count: int | None) -> None:
        """Keep only the newest messages that nobody has received; None: all."""
        self._do(self._async.set_keep_last, count)

    @forwarded
    def send(
        self,
        buffer: Any,
        tag: Tag | None = None,
        *,
        strided: bool = False,
        stream: Any = None,
        timeout: float | None = None,
    ) -> None:
        """Send all of ``buffer`` as one message."""

    @forwarded
    def recv(
        self,
        buffer: Any,
        tag: Tag | None = None,
        *,
        strided: bool = False,
        stream: Any = None,
        timeout: float | None = None,
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
    def send_many(
        self,
        buffers: Sequence[Any],
        tag: Tag | None = None,
        *,
        timeout: float | None = None,
    ) -> None:
        """Send each buffer as a message."""

    @forwarded
    def recv_many(
        self,
        buffers: Sequence[Any],
        tag: Tag | None = None,
        *,
        timeout: float | None = None,
    ) -> None:
        """Receive a message into each buffer, in order."""

    @forwarded
    def send_obj(
        self, obj: Any, tag: Tag | None = None, *, timeout: float | None = None
    ) -> None:
        """Send a buffer whose length the peer need not know."""

    @overload
    def recv_obj(
        self,
        tag: Tag | None = None,
        allocator: None = None,
        *,
        timeout: float | None = None,
    ) -> bytearray: ...

    @overload
    def recv_obj(
        self,
        tag: Tag | None = None,
        *,
        allocator: Callable[[int], _T],
        timeout: float | None = None,
    ) -> _T: ...

    @overload
    def recv_obj(
        self,
        tag: Tag | None,
        allocator: Callable[[int], _T],
        *,
        timeout: float | None = None,
    ) -> _T: ...

    @forwarded
    def recv_obj(
        self,
        tag: Tag | None = None,
        allocator: Callable[[int], Any] | None = None,
        *,
        timeout: float | None = None,
    ) -> Any:
        """Receive the next message, of any length, and return its bytes.

        ``allocator`` is called in the thread that has the endpoint.
        """

    @forwarded
    def send_frames(
        self,
        buffers: Sequence[Any],
        header: bytes = b"",
        *,
        timeout: float | None = None,
    ) -> None:
        """Send several buffers and a header as one message."""

    @forwarded
    def recv_frames(
        self,
        allocator: Callable[[int], Any] | None = None,
        *,
        into: Sequence[Any] | None = None,
        timeout: float | None = None,
    ) -> tuple[bytes, list[Any]]:
        """Receive the next message of frames; return its header and a list."""

    @forwarded
    def send_multi(
        self, buffers: Sequence[Any], *, timeout: float | None = None
    ) -> None:
        """Send several buffers as one message."""

    @forwarded
    def recv_multi(
        self,
        allocator: Callable[[int], Any] | None = None,
        *,
        timeout: float | None = None,
    ) -> list[Any]:
        """Receive the next message of frames; return its buffers."""

    def send_pickle(self, obj: object, *, timeout: float | None = None) -> None:
        """Send an object, which is pickled in this thread."""
        frames = objects.frames_of(obj)
        self._wait_for(timeout, self._async.send_frames, frames, objects.PICKLE)

    def recv_pickle(
        self, *, allow_pickle: bool | None = None, timeout: float | None = None
    ) -> Any:
        """Receive an object of ``send_pickle()``, which is unpickled in this thread."""
        objects.check_allowed(self._async, allow_pickle)
        recv = self._async._recv_pickle
        return objects.unpickle(
            self._wait_for(timeout, recv, lambda message: message, arrays.allocate)
        )

    def probe(self, tag: Tag | AnyTag | None = ANY) -> tuple[int, int | None] | None:
        """Length and tag of the next message that has arrived; or None."""
        return self._do(self._async.probe, tag)

    def __iter__(self) -> Self:
        """Iterate over the messages without a tag, until the endpoint is closed."""
        return self

    def __next__(self) -> Any:
        try:
            return self.recv_obj()
        except UCXCloseError:
            raise StopIteration from None


class Channel(Messages):
    """An ordered sequence of messages, made by ``Endpoint.channel()``."""

    def __init__(self, endpoint: Any, number: int) -> None:
        super().__init__(endpoint._worker)
        self.endpoint = endpoint
        self.number = number
        self._async = endpoint._async.channel(number)

    def __repr__(self) -> str:
        return f"<ucp.sync.Channel {self.number} of {self.endpoint!r}>"
