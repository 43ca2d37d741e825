# SPDX-License-Identifier: BSD-3-Clause
"""The coroutine of a call, which may end before its first step."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

_T = TypeVar("_T")


class CallState:
    """What a coroutine and who drives it know of a call.

    Attributes:
        is_left: nobody wants its result any more, and it is being cancelled.
        ended: to be set when it has ended; None before it has begun.
    """

    def __init__(self) -> None:
        self.is_left = False
        self.ended: asyncio.Event | None = None


class Begun(Coroutine[Any, Any, _T]):
    """A coroutine that tells when it ends without having begun.

    A task that is cancelled before its first step, or a coroutine that is dropped,
    runs nothing of it. The other ranks would take the next call for this one.
    """

    def __init__(
        self,
        coroutine: Coroutine[Any, Any, _T],
        give_up: Callable[[], None],
        state: CallState,
    ) -> None:
        self._coroutine = coroutine
        self.state = state
        self._give_up: Callable[[], None] | None = give_up
        self.__name__ = getattr(coroutine, "__name__", "call")
        self.__qualname__ = getattr(coroutine, "__qualname__", "call")

    def _end(self) -> None:
        give_up, self._give_up = self._give_up, None
        if give_up is not None:
            give_up()

    def send(self, value: Any) -> Any:
        self._give_up = None
        return self._coroutine.send(value)

    def throw(self, *args: Any) -> Any:
        self._end()
        return self._coroutine.throw(*args)

    def close(self) -> None:
        self._end()
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, _T]:
        self._give_up = None  # in the first step of who awaits it
        return (yield from self._coroutine.__await__())

    def __del__(self) -> None:
        self._end()
