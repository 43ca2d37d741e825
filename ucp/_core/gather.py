# SPDX-License-Identifier: BSD-3-Clause
"""Waiting for several operations at little more than the price of the last one."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Awaitable, Coroutine, Generator
from typing import Any, Literal, TypeVar, overload

from .. import _ext

_T = TypeVar("_T")


@overload
def gather(
    *ops: Awaitable[_T], return_exceptions: Literal[False] = False
) -> Coroutine[Any, Any, list[_T]]: ...
@overload
def gather(
    *ops: Awaitable[_T], return_exceptions: bool
) -> Coroutine[Any, Any, list[_T | BaseException]]: ...
def gather(
    *ops: Awaitable[Any], return_exceptions: bool = False
) -> Coroutine[Any, Any, list[Any]]:
    """Wait for several operations; return their results in the order given.

        sends = [ep.send(array) for array in arrays]
        await ucp.gather(*sends)

    It is ``asyncio.gather()`` for operations of this library. For short messages it
    takes a quarter of the time: operations that were complete when they were called
    need no wait, and the task is woken once.

    Args:
        ops: operations that have begun, coroutines, or futures; tasks are made of
            coroutines.
        return_exceptions: return exceptions in the place of results. Otherwise the
            operation that fails earliest ends the wait with its exception, and the
            others go on, as with ``asyncio.gather()``.

    If the call is cancelled, or its time is out, all operations are cancelled. The call
    ends when none of them uses its buffer any more. A message that a receive has got
    by then goes to the next receive.
    """
    return _Gathering(ops, return_exceptions)


class _Gathering(Coroutine[Any, Any, list[Any]]):
    """The coroutine of a gather.

    A task that is cancelled before its first step ends a coroutine without running it.
    The operations have begun all the same, so that they have to be cancelled here.
    """

    __slots__ = ("_ops", "_steps")

    def __init__(self, ops: tuple[Any, ...], return_exceptions: bool) -> None:
        self._ops = ops
        self._steps: Coroutine[Any, Any, Any] = _gather(ops, return_exceptions)

    def __await__(self) -> Generator[Any, Any, list[Any]]:
        return self._steps.__await__()

    def send(self, value: Any) -> Any:
        return self._steps.send(value)

    def throw(self, *raised: Any) -> Any:
        if inspect.getcoroutinestate(self._steps) == inspect.CORO_CREATED:
            self._steps.close()
            self._steps = _unless_cancelled(_futures(self._ops), asyncio.sleep(0))
            self._steps.send(None)
        return self._steps.throw(*raised)

    def close(self) -> None:
        self._steps.close()


async def _gather(ops: tuple[Any, ...], return_exceptions: bool) -> list[Any]:
    if ops and isinstance(ops[-1], _ext.Request) and ops[-1]._look():
        results: list[Any] | None = _ext.gather_results(ops)
        if results is not None:
            return results
    futures = _futures(ops)
    pending = [future for future in futures if not future.done()]
    last = (pending or futures or [None])[-1]
    may_go_on = isinstance(last, _ext.Request) and last._look()
    if any(not future.done() for future in pending):
        await _wait(futures, return_exceptions)
    elif not may_go_on:
        await _unless_cancelled(futures, asyncio.sleep(0))  # others have waited
    if return_exceptions:
        return [_outcome(future) for future in futures]
    _raise_first(futures)
    return [future.result() for future in futures]


def _futures(ops: tuple[Any, ...]) -> list[Any]:
    """Futures of this loop; of what is given twice the same."""
    loop = asyncio.get_running_loop()
    made: dict[int, Any] = {}
    for op in ops:
        if id(op) not in made:
            is_ours = isinstance(op, _ext.Request)
            future = made[id(op)] = op if is_ours else asyncio.ensure_future(op)
            if future.get_loop() not in (loop, None):
                raise RuntimeError(f"{op!r} is attached to a different event loop")
    return [made[id(op)] for op in ops]


def _raise_first(futures: list[Any]) -> None:
    for future in futures:
        if future.done() and _ext.has_failed(future):
            future.result()


def _outcome(future: Any) -> Any:
    try:
        return future.result()
    except BaseException as exc:
        return exc


async def _wait(futures: list[Any], is_for_all: bool) -> None:
    """Wait until all are done, or, unless ``is_for_all``, one has failed."""
    pending = [future for future in futures if not future.done()]
    waiter = asyncio.get_running_loop().create_future()
    state: list[Any] = [waiter, len(pending), None, is_for_all]
    on_done = _ext.gather_callback(state)
    context = contextvars.copy_context()
    for future in pending:
        future.add_done_callback(on_done, context=context)
    if not is_for_all:
        _raise_first(futures)
    await _unless_cancelled(futures, waiter)
    if state[2] is not None:
        state[2].result()


async def _unless_cancelled(futures: list[Any], something: Awaitable[None]) -> None:
    try:
        await something
    except asyncio.CancelledError:
        await _give_up(futures)
        raise


async def _give_up(futures: list[Any]) -> None:
    """Cancel all, and wait until no buffer of theirs is in use."""
    for future in reversed(futures):  # a message may go to one that waits still
        future.cancel()
    going_on = [asyncio.ensure_future(f) for f in futures if not f.done()]
    if going_on:
        await asyncio.wait(going_on)
