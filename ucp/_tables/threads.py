# SPDX-License-Identifier: BSD-3-Clause
"""Work of other threads that no await leaves behind: it reads the caller's memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

_T = TypeVar("_T")


async def finished(work: Future[_T]) -> _T:
    """What a thread has made of its work.

    After a cancel, and others meanwhile, this waits until the thread has ended the
    work that it has begun.
    """
    try:
        return await asyncio.wrap_future(work)
    except GeneratorExit:  # nobody awaits this any more
        raise
    except BaseException:
        if not work.cancel():
            with suppress(asyncio.CancelledError):
                await outlast([asyncio.wrap_future(work)])
        raise


async def in_thread(name: str, work: Callable[[], _T]) -> _T:
    """``finished()`` of work in a new thread, for which no other work waits."""
    pool = ThreadPoolExecutor(1, f"ucp.{name}")
    try:
        return await finished(pool.submit(work))
    finally:
        pool.shutdown(wait=False)


async def outlast(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Wait until all tasks have ended, whatever they raise.

    A cancel is raised afterwards.
    """
    tasks = list(tasks)
    cancelled: asyncio.CancelledError | None = None
    while left := [one for one in tasks if not one.done()]:
        try:
            await asyncio.wait(left)
        except asyncio.CancelledError as exc:
            cancelled = exc
    for one in tasks:
        if not one.cancelled():
            one.exception()  # nobody else asks for it
    if cancelled is not None:
        raise cancelled
