# SPDX-License-Identifier: BSD-3-Clause
"""``with`` and ``async with`` for objects that are closed at the end of the block.

If an exception leaves the block, the program wants to see that exception, and a
cancellation or a timeout must end the block immediately. So such a block does not
wait for the close, and an exception of the close is only logged.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self

from .log import logger


class _Closable(Protocol):
    def close(self) -> None: ...
    def _close_soon(self) -> None: ...


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


def close_quietly(close: Callable[[], None]) -> None:
    """Close while an exception propagates: log what the close raises."""
    try:
        close()
    except Exception as exc:
        logger.debug("closing after an exception: %r", exc)
