# SPDX-License-Identifier: BSD-3-Clause
"""Accepting connections."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, TypeVar, cast

from .. import _ext
from ..exceptions import UCXCloseError, UCXConnectionReset, UCXPeerClosed
from .callback import Callback, ErrorCallback
from .closing import close_quietly
from .endpoint import Endpoint
from .operation import AnyRequest, ReceivingCoroutine, Steps, Unseen
from .waiters import Waiters

_CLOSED = "the listener is closed"

_T = TypeVar("_T")

Waiter = asyncio.Future[Endpoint | None]  # None: the listener is closed

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
        self.accepted = accepted
        self._endpoints: deque[Endpoint] = deque()
        self._takers: deque[Waiter] = deque()  # in the order of their calls
        self._thread = threading.get_ident()
        self._waiters = Waiters()
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
            self._match()
        else:
            self.callback.soon(endpoint)

    def end(self) -> None:
        """End what waits for endpoints, and for the end of the listener."""
        self.is_ended = True
        self._match()
        self._waiters.wake()

    def take(self) -> Steps[Unseen[Endpoint]]:
        """Take the next endpoint of a listener without a callback, as steps.

        Those that wait get the endpoints in the order of their calls. One that is
        cancelled or dropped returns its endpoint.
        """
        assert self.loop is not None
        waiter: Waiter = self.loop.create_future()
        self._takers.append(waiter)
        self._match()
        try:
            if not waiter.done():
                yield cast(AnyRequest, waiter)
        except BaseException:
            self._run_in_loop(self._leave, waiter)
            raise
        endpoint = waiter.result()
        if endpoint is None:
            raise UCXCloseError(_CLOSED)
        return _Taken(self, endpoint)

    def _match(self) -> None:
        """Give the endpoints to those that wait; None once there will be no more."""
        while self._takers and (self._endpoints or self.is_ended):
            waiter = self._takers.popleft()
            waiter.set_result(self._endpoints.popleft() if self._endpoints else None)

    def _leave(self, waiter: Waiter) -> None:
        if not waiter.done():
            self._takers.remove(waiter)
        elif (endpoint := waiter.result()) is not None:
            self._put_back(endpoint)

    def _put_back(self, endpoint: Endpoint) -> None:
        self._endpoints.appendleft(endpoint)
        self._match()

    def give_back(self, endpoint: Endpoint) -> None:
        """Give an endpoint back that nobody has got, for the next who asks."""
        self._run_in_loop(self._put_back, endpoint)

    def _run_in_loop(self, function: Callable[[_T], None], argument: _T) -> None:
        """The collector may have run in another thread, or after the loop's end."""
        assert self.loop is not None
        if self._thread == threading.get_ident():
            function(argument)
        else:
            with suppress(RuntimeError):
                self.loop.call_soon_threadsafe(function, argument)

    async def wait_ended(self) -> None:
        """Wait until the listener is closed."""
        while not self.is_ended:
            await self._waiters.wait()


class _Taken(Unseen[Endpoint]):
    """An endpoint that was taken for a caller who has not got it yet."""

    def __init__(self, acceptor: Acceptor, endpoint: Endpoint) -> None:
        self.is_visible = False
        self._acceptor = acceptor
        self._endpoint = endpoint

    def hand_out(self) -> Endpoint:
        self._acceptor.accepted(self._endpoint)
        return self._endpoint

    def give_back(self) -> bool:
        self._acceptor.give_back(self._endpoint)
        return True


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

    def __new__(cls, *args: object, **kwargs: object) -> Self:
        raise TypeError("a Listener is made by create_listener(callback_func, port)")

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

    def accept(self) -> Coroutine[Any, Any, Endpoint]:
        """Wait for the next peer that connects; awaits its endpoint.

        Several calls may wait: each endpoint goes to one of them, in their order.
        A call that is cancelled or dropped loses no connection: the next
        ``accept()`` gets it.

        Raises:
            UCXCloseError: the listener is closed, and every connection that was
                accepted before has been returned.
            TypeError: the listener has a callback, which gets the endpoints.
        """
        if self._acceptor.callback is not None:
            raise TypeError("a listener with a callback gives its endpoints to that")
        if not self._is_in_loop():
            return self._accept_later()
        return ReceivingCoroutine(self._acceptor.take(), "accept")

    async def _accept_later(self) -> Endpoint:
        """Accept when it is awaited: it was called in another thread, or no loop."""
        self._check_loop("awaited")
        return await self.accept()

    def _is_in_loop(self) -> bool:
        if self._acceptor.pid != os.getpid():
            return False
        try:
            return self._acceptor.loop is asyncio.get_running_loop()
        except RuntimeError:
            return False

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
        try:
            return await self.accept()
        except UCXCloseError:
            raise StopAsyncIteration from None
