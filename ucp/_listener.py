# SPDX-License-Identifier: BSD-3-Clause
"""Accepting connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self, cast

from . import _ext
from ._callback import Callback, ErrorCallback
from ._closing import close_quietly
from ._endpoint import Endpoint

AcceptCallback = Callable[[Endpoint], Coroutine[Any, Any, object] | object]


class Acceptor:
    """What happens to the endpoints of one listener.

    Holds no reference to the listener: that one is to see that it is dropped.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop | None,
        callback: AcceptCallback | None,
        on_error: ErrorCallback | None,
        accepted: Callable[[Endpoint], object],
        tasks: set[asyncio.Task[object]],
    ) -> None:
        self.queue: asyncio.Queue[Endpoint | None] = asyncio.Queue()
        self.loop = loop
        self.callback: Callback | None = None
        self._accepted = accepted
        if callback is not None:

            def run(endpoint: Endpoint) -> Coroutine[Any, Any, object] | object:
                accepted(endpoint)  # not sooner: until then it is nobody's
                return callback(endpoint)

            self.callback = Callback(
                run,
                loop,
                tasks,
                "exception in the callback of a ucp listener",
                on_error,
            )

    def accept(self, ep: _ext.Endpoint) -> None:
        """Called by the extension for each endpoint that is open."""
        endpoint = cast(Endpoint, ep)
        if self.callback is None:
            self.queue.put_nowait(endpoint)
        else:
            self.callback.soon(endpoint)

    def end(self) -> None:
        """Nobody listens any more: iterations end."""
        self.queue.put_nowait(None)

    async def next(self) -> Endpoint | None:
        """The next endpoint of a listener without a callback; None: closed."""
        endpoint = await self.queue.get()
        if endpoint is None:
            self.queue.put_nowait(None)  # for the other iterators
        else:
            self._accepted(endpoint)
        return endpoint


class Listener(_ext.Listener):
    """A listening port, made by create_listener().

    Listens until ``close()``. Dropped while it is open, it goes on listening as
    long as its event loop lives; ``ucp.reset()`` and the loop's end close it
    then, with a ResourceWarning. The endpoints it has accepted live on. Belongs
    to the event loop it was made in. Made without a callback it is an
    asynchronous iterator of endpoints.
    """

    __slots__ = ("_acceptor", "_dropped")

    _acceptor: Acceptor
    _dropped: set[Listener]  # of the worker: those that the program has dropped

    def __del__(self) -> None:
        dropped = getattr(self, "_dropped", None)
        if dropped is not None and not self.closed():
            dropped.add(self)  # it lives on

    def __repr__(self) -> str:
        state = "closed" if self.closed() else f"on {self.host}:{self.port}"
        return f"<ucp.Listener {state}>"

    @property
    def ip(self) -> str:
        """The address it listens on, as ``host``: the IPv4 one of two."""
        return self.host

    def close(self) -> None:
        """Stop listening. Idempotent; ends iterations."""
        super().close()
        self._acceptor.end()
        self._dropped.discard(self)

    @staticmethod
    async def close_remote(ep: Endpoint) -> None:
        """Close the peer's listener that accepted ``ep``.

        Returns once nobody listens there any more; open endpoints live on,
        and iterations over the listener end.

        Raises:
            UCXRejected: made without ``remote_close=True``, it does not
                allow that.
            UCXError: this side has accepted the peer, which has no listener.
            Otherwise as ``ep.recv``.
        """
        await ep._close_listener()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if exc is None:
            self.close()
        else:
            close_quietly(self.close)

    def __aiter__(self) -> Self:
        if self._acceptor.callback is not None:
            raise TypeError("a listener with a callback is not an iterator")
        return self

    async def __anext__(self) -> Endpoint:
        loop = asyncio.get_running_loop()
        if self._acceptor.loop is not loop:
            raise RuntimeError(
                f"{self!r} of the loop {self._acceptor.loop!r} is iterated over "
                f"in the loop {loop!r}"
            )
        endpoint = await self._acceptor.next()
        if endpoint is None:
            raise StopAsyncIteration
        return endpoint
