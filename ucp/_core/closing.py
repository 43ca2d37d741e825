# SPDX-License-Identifier: BSD-3-Clause
"""``with`` and ``async with`` for objects that are closed at the end of the block.

If an exception leaves the block, the program wants to see that exception, and a
cancellation or a timeout must end the block immediately. So such a block does not
wait for the close, and an exception of the close is only logged.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from .log import logger


class _Closable(Protocol):
    def close(self) -> None: ...
    def _close_soon(self) -> None: ...


class _Block(Protocol):
    async def __aenter__(self) -> Any: ...
    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...


_B = TypeVar("_B", bound=_Block)


class _AsyncClosable(Protocol):
    async def close(self) -> None: ...
    def _close_soon(self) -> None: ...


class Closing:
    """Base of classes whose objects ``with`` closes at the end of the block."""

    __slots__ = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self: _Closable,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if exc is None:
            self.close()
        else:
            close_quietly(self._close_soon)

    def _close_soon(self: _Closable) -> None:
        """Start to close, without waiting."""
        self.close()


class AsyncClosing:
    """Base of classes whose objects ``async with`` closes at the end of the block.

    ``close()`` is awaited if the block ends without an exception; otherwise
    ``_close_soon()`` starts a close that continues in the background.
    """

    __slots__ = ()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self: _AsyncClosable,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if exc is None:
            await self.close()
        else:
            close_quietly(self._close_soon)


class Opening(Coroutine[Any, Any, _B]):
    """The result of a call that makes an object: makes it when it is awaited, or
    entered by ``async with``, which closes the object at the end of the block.

    It has the methods of a coroutine, so that tasks can be made of it.
    """

    __slots__ = ("_coroutine", "_made", "_what")

    _made: _B

    def __init__(self, coroutine: Coroutine[Any, Any, _B], what: str) -> None:
        self._coroutine = coroutine
        self._what = what

    def __repr__(self) -> str:
        return f"<ucp.{self._what}>"

    def __await__(self) -> Generator[Any, Any, _B]:
        return self._coroutine.__await__()

    def send(self, value: Any) -> Any:
        """As a coroutine's."""
        return self._coroutine.send(value)

    def throw(self, *args: Any) -> Any:
        """As a coroutine's."""
        return self._coroutine.throw(*args)

    def close(self) -> None:
        """As a coroutine's."""
        self._coroutine.close()

    async def __aenter__(self) -> _B:
        self._made = await self._coroutine
        await self._made.__aenter__()
        return self._made

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._made.__aexit__(exc_type, exc, traceback)


def close_quietly(close: Callable[[], None]) -> None:
    """Close while an exception propagates: log what the close raises."""
    try:
        close()
    except Exception as exc:
        logger.debug("closing after an exception: %r", exc)
