# SPDX-License-Identifier: BSD-3-Clause
"""Accepting connections."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self, cast

from .. import _ext
from ..exceptions import UCXCloseError, UCXConnectionReset, UCXPeerClosed
from .callback import Callback, ErrorCallback
from .closing import close_quietly
from .endpoint import Endpoint
from .waiters import Waiters

_CLOSED = "the listener is closed"

AcceptCallback = Callable[[Endpoint], Coroutine[Any, Any, object] | object]


class Acceptor:
    """Takes the endpoints that one listener accepts.

    An acceptor holds no reference to its listener, so that a listener which the
    program drops can be freed.
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
        self.pid = os.getpid()
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
                brief=(UCXCloseError, UCXConnectionReset, UCXPeerClosed),
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
        """End iterations over the listener and waits for its end."""
        self.is_ended = True
        self._waiters.wake()

    async def next(self) -> Endpoint | None:
        """Return the next endpoint of a listener without a callback.

        Returns None once the listener is closed. The endpoint is taken after the
        wait, so that a cancelled call loses none.
        """
        while not self._endpoints:
            if self.is_ended:
                return None
            await self._waiters.wait()
        endpoint = self._endpoints.popleft()
        self._accepted(endpoint)
        return endpoint

    async def wait_ended(self) -> None:
        """Wait until the listener is closed."""
        while not self.is_ended:
            await self._waiters.wait()


class Listener(_ext.Listener):
    """A port to which peers connect, made by create_listener().

    A listener listens until ``close()``. A listener that the program drops while
    it is open continues to listen until its event loop ends or ``ucp.reset()`` is
    called; these close it with a ResourceWarning. Closing a listener does not
    affect the endpoints that it has accepted. A listener belongs to the event
    loop in which it was made.

    A listener with a callback has ``serve_forever()``. Without a callback,
    ``accept()`` and ``async for`` give the endpoints.
    """

    __slots__ = ("_acceptor", "_dropped")

    _acceptor: Acceptor
    _dropped: set[Listener]  # of the worker: those that the program has dropped

    def __del__(self) -> None:
        dropped = getattr(self, "_dropped", None)
        if dropped is not None and not self.closed():
            dropped.add(self)  # this keeps it alive

    def __repr__(self) -> str:
        state = "closed" if self.closed() else f"on {self.host}:{self.port}"
        return f"<ucp.Listener {state}>"

    @property
    def ip(self) -> str:
        """The address on which it listens, as ``host``; of two the IPv4 one."""
        return self.host

    def close(self) -> None:
        """Stop listening; end iterations and ``serve_forever()``.

        A second call does nothing.
        """
        super().close()
        self._acceptor.end()
        self._dropped.discard(self)

    async def wait_closed(self) -> None:
        """Wait until the listener is closed, by this program or by a peer.

        Callbacks that are running continue.
        """
        self._check_loop("awaited")
        await self._acceptor.wait_ended()

    async def serve_forever(self) -> None:
        """Serve until the listener is closed; close it when cancelled.

        Returns when another task calls ``close()``. Callbacks that are running
        continue::

            async with ucp.create_listener(callback, port) as listener:
                await listener.serve_forever()

        Raises:
            TypeError: the listener has no callback.
            UCXCloseError: the listener is closed already.
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
        """Wait for the next peer that connects, and return its endpoint.

        Several tasks may wait: each endpoint goes to one of them, in the order
        of their calls. Cancelling loses no connection: the next ``accept()`` gets
        it.

        Raises:
            UCXCloseError: the listener is closed, and every connection that was
                accepted before has been returned.
            TypeError: the listener has a callback, which gets the endpoints.
        """
        if self._acceptor.callback is not None:
            raise TypeError("a listener with a callback gives its endpoints to that")
        self._check_loop("awaited")
        endpoint = await self._acceptor.next()
        if endpoint is None:
            raise UCXCloseError(_CLOSED)
        return endpoint

    def _check_loop(self, used: str) -> None:
        if self._acceptor.pid != os.getpid():
            raise RuntimeError(f"{self!r} belongs to the parent process")
        loop = asyncio.get_running_loop()
        if self._acceptor.loop is not loop:
            raise RuntimeError(
                f"{self!r} of the loop {self._acceptor.loop!r} is {used} "
                f"in the loop {loop!r}"
            )

    @staticmethod
    async def close_remote(ep: Endpoint) -> None:
        """Close the peer's listener that accepted ``ep``.

        Returns once that listener is closed. Open endpoints are not affected;
        iterations over the listener end.

        Raises:
            UCXRejected: the listener does not allow it: it was made without
                ``remote_close=True``.
            UCXError: ``ep`` was accepted on this side, so the peer has no
                listener for it.
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
