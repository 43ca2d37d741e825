# SPDX-License-Identifier: BSD-3-Clause
"""Parts of operations that consist of several requests, and their drivers in threads.

``_core.operation`` says what steps are, and drives them in an event loop; ``run()``
does so in a thread. What threads wait for later is in ``futures``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from .. import _ext
from .._core.operation import AnyRequest, Steps, Unseen
from .._core.worker import Worker
from ..exceptions import UCXCloseError, UCXTimeout

_T = TypeVar("_T")


# ---- parts of steps ------------------------------------------------------------


def wait_for(requests: Iterable[AnyRequest]) -> Steps[list[Any]]:
    """Wait for requests; return their results.

    If one fails, or the operation is cancelled, the others are given up.
    """
    requests = list(requests)
    results = []
    try:
        for request in requests:
            if not request.done():
                yield request
            results.append(request.result())
    except BaseException as exc:
        yield from give_up(requests, exc)
        raise
    return results


def give_up(requests: Iterable[AnyRequest], cause: BaseException) -> Steps[None]:
    """Cancel requests, and wait until no buffer of theirs is in use."""
    requests = list(requests)
    for request in reversed(requests):  # a message may go to one that waits still
        request.cancel()
    if isinstance(cause, GeneratorExit):
        return  # nobody drives the steps any more
    for request in requests:
        while not request.done():
            yield request
        if not request.cancelled():
            request.exception()  # which is known from now on


def look_at(request: AnyRequest) -> Steps[Any]:
    """Wait for a receive; return its result, or raise its exception.

    A task that awaits the receive would get the same. But the caller has to call
    ``result()`` once more to take the message. Until then ``cancel()`` returns the
    message to the queue.
    """
    while not request.done():
        yield request
    request._asyncio_future_blocking = True
    request._asyncio_future_blocking = False  # as a task does, before it waits
    request.add_done_callback(_ignore)
    return request.result()


def _ignore(request: AnyRequest) -> None:
    pass


# ---- drivers -------------------------------------------------------------------


def check_open(worker: Worker) -> None:
    """Raise UCXCloseError if the worker was closed, or is the parent's."""
    if worker.closed():
        raise UCXCloseError("ucp was shut down meanwhile")


def finish(
    worker: Worker,
    request: _ext.Request[_T],
    left: float | None,
    timeout: float | None,
    name: str | None = None,
) -> _T:
    """Wait for a request in this thread; return its result. The arguments are those
    of ``wait()``."""
    if not request.done():
        wait(worker, request, left, timeout, name)
    return request.result()


def wait(
    worker: Worker,
    request: AnyRequest,
    left: float | None,
    timeout: float | None,
    name: str | None = None,
) -> None:
    """Wait for a request in this thread.

    Args:
        left: seconds, what is left of ``timeout``.
        name: of the call, for people.

    Raises:
        UCXTimeout: it was not done, and was cancelled.
    """
    try:
        is_done = worker._wait(left, request)
    except BaseException:
        request.cancel()
        raise
    if not is_done:
        request.cancel()
        raise request._timeout(timeout, name)


def run(
    worker: Worker,
    timeout: float | None,
    steps: Steps[_T],
    name: Callable[[], str],
    end: float | None = None,
) -> _T:
    """Drive steps in this thread; return what they return.

    Args:
        name: tells that of the call, if its time is out.
        end: of the time, if it has begun already.

    Raises:
        UCXTimeout: they have not ended within ``timeout`` seconds.
        KeyboardInterrupt: as any exception of a signal's handler, it is thrown into
            the steps, too.
    """
    if timeout is not None and end is None:
        end = time.monotonic() + timeout
    cause: BaseException | None = None
    late: tuple[BaseException, AnyRequest] | None = None  # the time is out
    try:
        while True:
            request = next(steps) if cause is None else steps.throw(cause)
            left = None if end is None else max(0, end - time.monotonic())
            try:
                is_done = worker._wait(left, request)
            except BaseException as exc:
                cause, end = exc, None
            else:
                cause = None
                if not is_done:
                    cause, end = request._timeout(timeout, name()), None
                    late = cause, request
    except StopIteration as stop:
        result: _T = settled(stop.value)
        return result
    except UCXTimeout as exc:
        if late is None or late[0] is not exc:
            raise
        # The steps have given the request up: now it is known who had not come.
        raise late[1]._timeout(timeout, name()) from None


def settled(result: Any, is_cancelled: bool = False) -> Any:
    """What a thread gets of what steps have returned."""
    if not isinstance(result, Unseen):
        return result
    return result.give_back() if is_cancelled else result.hand_out()
