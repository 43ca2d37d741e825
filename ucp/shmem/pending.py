# SPDX-License-Identifier: BSD-3-Clause
"""Operations that nobody awaits one by one."""

from __future__ import annotations

import asyncio

from .. import _ext

FEW = 64  # requests that are kept although they may have ended


class Pending:
    """What ``put_nbi()`` and others have begun, until ``quiet()``.

    A request stays here until it has ended: who waits for it may give up, and the
    operation goes on.
    """

    __slots__ = ("_failure", "_limit", "_requests")

    def __init__(self) -> None:
        self._requests: dict[_ext.Request[None], None] = {}
        self._limit = FEW
        self._failure: BaseException | None = None

    def add(self, request: _ext.Request[None]) -> None:
        """Keep a request; the cost does not grow with their number."""
        if request.done():
            self._note(request)
            return
        if len(self._requests) >= self._limit:
            for one in list(self._requests):
                if one.done():
                    self.end(one)
            self._limit = max(FEW, 2 * len(self._requests))
        self._requests[request] = None

    def last(self) -> _ext.Request[None] | None:
        """A request that has not been taken out."""
        try:
            return next(reversed(self._requests))
        except (StopIteration, RuntimeError):  # another thread has changed it
            return next(iter(list(self._requests)), None)

    def end(self, request: _ext.Request[None]) -> None:
        """Take a request out that has ended."""
        if request in self._requests:
            self._requests.pop(request, None)
            self._note(request)

    def _note(self, request: _ext.Request[None]) -> None:
        if not request.cancelled() and self._failure is None:
            self._failure = request.exception()

    def raise_failure(self) -> None:
        """Raise the first failure, once."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    async def end_all(self) -> None:
        """Wait until all have ended. Cancelling this cancels none."""
        while (request := self.last()) is not None:
            if not request.done():
                await _end_of(request)
            self.end(request)
        self.raise_failure()


async def _end_of(request: _ext.Request[None]) -> None:
    ended = asyncio.get_running_loop().create_future()

    def tell(_: object) -> None:
        if not ended.done():
            ended.set_result(None)

    request.add_done_callback(tell)
    try:
        await ended
    finally:
        request.remove_done_callback(tell)
