# SPDX-License-Identifier: BSD-3-Clause
"""One operation: it starts, may be cancelled, ends, and its buffers are poisoned."""

import asyncio
import collections

import anyio

import ucp

from . import content

# Turns that a cancelled await may take until it counts as deferred.
_TURNS = 4

# Turns that are waited for the middle of an operation.
_PATIENCE = 3000


class Quarantine:
    """Buffers that were poisoned; none may change, however long it is kept."""

    def __init__(self, report, nbytes, is_harmless=False):
        self._is_harmless = is_harmless
        self._report = report
        self._room = nbytes
        self._kept = collections.deque()

    def put(self, views, pattern, kind, operation):
        """Poison the memory of an operation that has ended."""
        if self._is_harmless:
            return
        views = [view for view in views if len(view)]
        for view in views if not operation.is_poisoned else ():
            view[:] = pattern
        if views:
            self._kept.append((views, pattern, kind, operation.label))
            self._room -= sum(len(view) for view in views)
        while self._room < 0 and len(self._kept) > 1:
            self._check_first()

    def check_all(self):
        while self._kept:
            self._check_first()

    def check_of(self, view):
        """The memory is to be used again: check what was in it, and before it."""
        start, end = _bounds(view)
        last = 0
        for number, (views, *_) in enumerate(self._kept, 1):
            if any(a < end and start < b for a, b in map(_bounds, views)):
                last = number
        for _ in range(last):
            self._check_first()

    def _check_first(self):
        views, pattern, kind, label = self._kept.popleft()
        self._room += sum(len(view) for view in views)
        for view in views:
            change = content.change(view, pattern)
            if change:
                self._report.fail(kind, "written", f"{label}: after its end {change}")
                return


def _bounds(view):
    start = view.__array_interface__["data"][0]
    return start, start + view.nbytes


class Operation:
    """A send or a receive.

    Attributes:
        kind: the lane's kind and "send" or "recv".
        label: says which one it is.
        views: its memory, as arrays of bytes.
        end: "done", "cancelled", or "failed"; None while it is under way.
        result, error: what it ended with.
        state: in which it was cancelled.
    """

    def __init__(self, lane, label, views, plan):
        self.lane = lane
        self.label = f"{label}, {plan}"
        self.views = views
        self.plan = plan
        self.end = self.result = self.error = self.state = None
        self._scope = self._task = self._driver = None
        self._is_request = self._is_abandoned = False
        self.is_poisoned = False  # who has waited for it has done that

    def start(self, make):
        """``make()`` is what is awaited."""
        self.lane.under_way.add(self)
        self.awaitable = make()
        self._is_request = isinstance(self.awaitable, ucp._ext.Request)
        if self.plan.how in ("request", "awaited") and not self._is_request:
            self.plan.how = "task"
        self._task = asyncio.ensure_future(getattr(self, _WAYS[self.plan.how])())
        if self.plan.how not in _TIMERS:
            self._driver = asyncio.ensure_future(self._drive())

    async def over(self):
        """Wait for its end."""
        if self._driver is not None:
            await self._driver
        await asyncio.wait([self._task])
        if not self._is_abandoned:
            self._task.result()

    def abandon(self):
        """Cancel it, whatever its plan was."""
        if self.end is None and not self._is_abandoned:
            self._is_abandoned = True
            self.plan.how = self.plan.how or "task"
            self._task.cancel()

    # ---- ways to wait ----

    async def _await(self):
        """Poison in the very turn in which the await has ended."""
        try:
            result = await self.awaitable
        except asyncio.CancelledError:
            self._end("cancelled")
            raise
        except Exception as exc:
            self._end("failed", error=exc)
        else:
            self._end("done", result)

    async def _plain(self):
        try:
            await self._await()
        except asyncio.CancelledError:
            if not self.plan.how:
                raise

    async def _timeout(self):
        try:
            async with asyncio.timeout(None) as self._scope:
                await self._await()
        except TimeoutError:
            pass

    async def _anyio(self):
        with anyio.CancelScope() as self._scope:
            await self._await()

    async def _wait_for(self):
        try:
            result = await asyncio.wait_for(self.awaitable, self.plan.seconds)
        except asyncio.CancelledError:
            self._end("cancelled")
            raise
        except TimeoutError:
            self.state = "timer"
            self._end("cancelled")
        except Exception as exc:
            self._end("failed", error=exc)
        else:
            self._end("done", result)

    async def _request(self):
        """Nobody awaits it; it is done when the buffer is free."""
        request = self.awaitable
        while not request.done():
            try:
                await asyncio.sleep(0)
            except asyncio.CancelledError:  # it is abandoned
                request.cancel()
        if self.end is None:
            self._take(request)

    def _take(self, request):
        if request.cancelled():
            self._end("cancelled")
            return
        try:
            result = request.result()
        except asyncio.CancelledError:
            self._end("cancelled")
        except Exception as exc:
            self._end("failed", error=exc)
        else:
            self._end("done", result)

    def _end(self, end, result=None, error=None):
        if self.plan.how == "sync" and isinstance(error, ucp.UCXTimeout):
            end, error, self.state = "cancelled", None, "timer"
        self.end, self.result, self.error = end, result, error
        self.lane.under_way.discard(self)
        self.lane.ended(self)

    # ---- cancelling ----

    async def _drive(self):
        await self._moment()
        if self.end is not None:
            return
        async with self.lane.side.disturbance(self.plan.when) as is_quiet:
            if self.end is not None:
                return
            self.state = self.lane.state_of(self)
            self._cancel()
            for _ in range(_TURNS):
                if self.end is None:
                    await asyncio.sleep(0)
            if self.end is None:
                self.lane.count_state(self, "deferred")
            if is_quiet:
                # It ends although the peer does nothing.
                await asyncio.wait([self._task])
                self.lane.count_state(self, self.plan.when)

    async def _moment(self):
        if self.plan.how != "request":
            await asyncio.sleep(0)  # so that the task has begun to wait
        if self.plan.when == "middle":
            for _ in range(_PATIENCE):
                if self.end is not None or self.lane.state_of(self) == "middle":
                    return
                await asyncio.sleep(0)
        elif self.plan.when == "complete":
            await self._complete()
        else:
            for _ in range(self.plan.turns):
                if self.end is not None:
                    return
                await asyncio.sleep(0)

    async def _complete(self):
        """Until it is done, and nobody has been told."""
        for _ in range(_PATIENCE):
            if self.end is not None:
                return
            for _ in range(20):
                if self._is_request and self.awaitable.done():
                    return
                ucp.progress()
            await asyncio.sleep(0)

    def _cancel(self):
        how = self.plan.how
        if how == "task":
            self._task.cancel()
        elif how == "anyio":
            self._scope.cancel()
        elif how == "timeout":
            self._scope.reschedule(asyncio.get_running_loop().time())
        else:
            self.awaitable.cancel()
            if how == "request" and self.awaitable.done():
                self._take(self.awaitable)


_TIMERS = ["", "wait_for", "sync"]

_WAYS = {
    "sync": "_plain",
    "": "_plain",
    "task": "_plain",
    "awaited": "_plain",
    "request": "_request",
    "timeout": "_timeout",
    "anyio": "_anyio",
    "wait_for": "_wait_for",
}
