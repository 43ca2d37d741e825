# SPDX-License-Identifier: BSD-3-Clause
"""Accepting connections."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self, cast

from . import _ext
from ._callback import Callback, ErrorCallback
from ._closing import close_quietly
from ._endpoint import Endpoint
from ._waiters import Waiters
from .exceptions import UCXCloseError

_CLOSED = "the listener is closed"

AcceptCallback = Callable[[Endpoint], Coroutine[Any, Any, object] | object]


class Acceptor:
    """Takes the endpoints that one listener accepts.

    It holds no reference to the listener, so that a listener which the program
    drops is collected.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop | None,
        callback: AcceptCallback | None,
        on_error: ErrorCallback | None,
        accepted: Callable[[Endpoint], object],
        tasks: set[asyncio.Task[object]],
    ) -> None:
        self.loop = loop
        self.is_ended = False
        self.callback: Callback | None = None
        self._endpoints: deque[Endpoint] = deque()
        self._waiters = Waiters()
        self._accepted = accepted
        if callback is not None:

            def run(endpoint: Endpoint) -> Coroutine[Any, Any, object] | object:
                accepted(endpoint)  # the endpoint is the program's from here on
                return callback(endpoint)

            self.callback = Callback(
                run,
                loop,
                tasks,
                "exception in the callback of a ucp listener",
                on_error,
                name=callback,
            )

    def accept(self, ep: _ext.Endpoint) -> None:
        """Called by the extension for each endpoint that is open."""
        endpoint = cast(Endpoint, ep)
        if self.callback is None:
            self._endpoints.append(endpoint)
            self._waiters.wake()
        else:
            self.callback.soon(endpoint)

    def end(self) -> None:
        """Let iterations end, and waits for the end of the listener return."""
        self.is_ended = True
        self._waiters.wake()

    async def next(self) -> Endpoint | None:
        """The next endpoint of a listener without a callback; None: closed.

        An endpoint is taken after the wait, so that cancelling loses none.
        """
        while not self._endpoints:
            if self.is_ended:
                return None
            await self._waiters.wait()
        endpoint = self._endpoints.popleft()
        self._accepted(endpoint)
        return endpoint

    async def wait_ended(self) -> None:
        """Wait until nobody listens any more."""
        while not self.is_ended:
            await self._waiters.wait()


class Listener(_ext.Listener):
    """A listening port, made by create_listener().

    Listens until ``close()``. Dropped while it is open, it goes on listening as
    long as its event loop lives; ``ucp.reset()`` and the loop's end close it
    then, with a ResourceWarning. The endpoints it has accepted live on. Belongs
    to the event loop it was made in. Made with a callback it can wait in
    ``serve_forever()``; made without one it gives the endpoints by ``accept()``,
    or as an asynchronous iterator.
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
        """Stop listening. Idempotent; ends iterations and ``serve_forever()``."""
        super().close()
        self._acceptor.end()
        self._dropped.discard(self)

    async def wait_closed(self) -> None:
        """Wait until it is closed: by ``close()``, its peer or its worker's end.

        Callbacks that run go on.
        """
        self._check_loop("awaited")
        await self._acceptor.wait_ended()

    async def serve_forever(self) -> None:
        """Serve until the listener is closed; close it when cancelled.

        Returns when ``close()`` is called elsewhere. Callbacks that run go on::

            async with ucp.create_listener(callback, port) as listener:
                await listener.serve_forever()

        Raises:
            TypeError: made without a callback, it serves nobody.
            UCXCloseError: it is closed already.
        """
        if self._acceptor.callback is None:
            raise TypeError("a listener without a callback serves nobody: accept()")
        if self.closed():
            raise UCXCloseError(_CLOSED)
        try:
            await self.wait_closed()
        finally:
            self.close()

    async def accept(self) -> Endpoint:
        """Wait for the next peer that connects; its endpoint.

        Several tasks may wait: each endpoint goes to one of them, in the order
        of asking. When cancelled no connection is lost: the next ``accept()``
        gets it.

        Raises:
            UCXCloseError: the listener is closed, or was while this waited, and
                every connection accepted before has been given out.
            TypeError: a listener with a callback gives its endpoints to that.
        """
        if self._acceptor.callback is not None:
            raise TypeError("a listener with a callback gives its endpoints to that")
        self._check_loop("awaited")
        endpoint = await self._acceptor.next()
        if endpoint is None:
            raise UCXCloseError(_CLOSED)
        return endpoint

    def _check_loop(self, used: str) -> None:
        loop = asyncio.get_running_loop()
        if self._acceptor.loop is not loop:
            raise RuntimeError(
                f"{self!r} of the loop {self._acceptor.loop!r} is {used} "
                f"in the loop {loop!r}"
            )

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
        self._check_loop("iterated over")
        endpoint = await self._acceptor.next()
        if endpoint is None:
            raise StopAsyncIteration
        return endpoint
