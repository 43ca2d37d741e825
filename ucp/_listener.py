"""Accepting connections."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self, cast

from . import _ext
from ._endpoint import Endpoint

AcceptCallback = Callable[[Endpoint], Coroutine[Any, Any, object] | object]
ErrorCallback = Callable[[BaseException], object]


class Acceptor:
    """What happens to the endpoints of one listener.

    Holds no reference to the listener: dropping that one ends the listening.
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
        self.callback = callback
        self.on_error = on_error
        self.loop = loop
        self._accepted = accepted
        self._tasks = tasks
        self._context = contextvars.copy_context()

    def accept(self, ep: _ext.Endpoint) -> None:
        """Called by the extension for each endpoint that is open."""
        endpoint = cast(Endpoint, ep)
        if self.callback is None:
            self.queue.put_nowait(endpoint)
        elif self.loop is None:
            self._run(self.callback, endpoint)
        else:
            # Not now: this may be the middle of some task's await.
            self.loop.call_soon(
                self._run, self.callback, endpoint, context=self._context
            )

    async def next(self) -> Endpoint | None:
        """The next endpoint of a listener without a callback; None: closed."""
        endpoint = await self.queue.get()
        if endpoint is None:
            self.queue.put_nowait(None)  # for the other iterators
        else:
            self._accepted(endpoint)
        return endpoint

    def _run(self, callback: AcceptCallback, ep: Endpoint) -> None:
        self._accepted(ep)
        try:
            result = callback(ep)
        except Exception as exc:
            self._report(exc, ep)
            return
        if asyncio.iscoroutine(result):
            if self.loop is None:
                result.close()
                raise RuntimeError(
                    "a coroutine function needs a listener made in a running event loop"
                )
            task = self.loop.create_task(result, context=self._context.copy())
            self._tasks.add(task)
            task.add_done_callback(self._task_done)

    def _task_done(self, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            exc = task.exception()
            if exc is not None:
                self._report(exc, None)

    def _report(self, exc: BaseException, ep: Endpoint | None) -> None:
        if self.loop is not None:
            self.loop.call_exception_handler(
                {
                    "message": "exception in the callback of a ucp listener",
                    "exception": exc,
                }
            )
        if self.on_error is not None:
            self.on_error(exc)


class Listener(_ext.Listener):
    """A listening port, made by create_listener().

    Listens until ``close()`` or until the last reference is dropped. The
    endpoints it has accepted live on. Belongs to the event loop it was made
    in. Made without a callback it is an asynchronous iterator of endpoints.
    """

    __slots__ = ("_acceptor",)

    _acceptor: Acceptor

    def __repr__(self) -> str:
        state = "closed" if self.closed() else f"on {self.host}:{self.port}"
        return f"<ucp.Listener {state}>"

    @property
    def ip(self) -> str:
        """The address it listens on, as ``host``."""
        return self.host

    def close(self) -> None:
        """Stop listening. Idempotent; ends iterations."""
        super().close()
        self._acceptor.queue.put_nowait(None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

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
