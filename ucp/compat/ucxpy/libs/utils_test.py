# SPDX-License-Identifier: BSD-3-Clause
"""Operations that wait, for tests: each moves its worker until it is done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import ucx_api
from .arr import asarray

__all__ = [
    "blocking_am_recv",
    "blocking_am_send",
    "blocking_flush",
    "blocking_handler",
    "blocking_recv",
    "blocking_send",
    "get_endpoint_error_handling_default",
    "non_blocking_handler",
    "non_blocking_recv",
    "non_blocking_send",
]


def blocking_handler(
    request: object, exception: BaseException | None, finished: list[bool]
) -> None:
    """A callback: sets ``finished[0]``."""
    assert exception is None, exception
    finished[0] = True


def _wait(progress: Callable[[], object], request: object, finished: list[Any]) -> None:
    while request is not None and not finished[0]:
        progress()


def blocking_flush(obj: ucx_api.UCXWorker | ucx_api.UCXEndpoint) -> None:
    """Flush an endpoint or a worker."""
    worker = obj if isinstance(obj, ucx_api.UCXWorker) else obj.worker
    assert isinstance(worker, ucx_api.UCXWorker)
    finished = [False]
    _wait(worker.progress, obj.flush(blocking_handler, (finished,)), finished)


def blocking_send(
    worker: ucx_api.UCXWorker, ep: ucx_api.UCXEndpoint, msg: object, tag: int = 0
) -> None:
    """Send with a tag."""
    array = asarray(msg)
    finished = [False]
    request = ucx_api.tag_send_nb(
        ep, array, array.nbytes, tag, blocking_handler, (finished,)
    )
    _wait(worker.progress, request, finished)


def blocking_recv(
    worker: ucx_api.UCXWorker, ep: ucx_api.UCXEndpoint, msg: object, tag: int = 0
) -> None:
    """Receive with a tag."""
    array = asarray(msg)
    finished = [False]
    request = ucx_api.tag_recv_nb(
        worker, array, array.nbytes, tag, blocking_handler, (finished,), ep=ep
    )
    _wait(worker.progress, request, finished)


def non_blocking_handler(
    request: object,
    exception: BaseException | None,
    completed_cb: Callable[[], object],
) -> None:
    """A callback: calls ``completed_cb()``."""
    assert exception is None, exception
    completed_cb()


def non_blocking_send(
    worker: ucx_api.UCXWorker,
    ep: ucx_api.UCXEndpoint,
    msg: object,
    started_cb: Callable[[], object],
    completed_cb: Callable[[], object],
    tag: int = 0,
) -> ucx_api.UCXRequest[None] | None:
    """Start to send with a tag; None if that is done already.

    ``started_cb()`` is called before, ``completed_cb()`` when it is done.
    """
    array = asarray(msg)
    started_cb()
    request = ucx_api.tag_send_nb(
        ep, array, array.nbytes, tag, non_blocking_handler, (completed_cb,)
    )
    if request is None:
        completed_cb()
    return request


def non_blocking_recv(
    worker: ucx_api.UCXWorker,
    ep: ucx_api.UCXEndpoint,
    msg: object,
    started_cb: Callable[[], object],
    completed_cb: Callable[[], object],
    tag: int = 0,
) -> ucx_api.UCXRequest[None] | None:
    """Start to receive with a tag; calls as ``non_blocking_send``."""
    array = asarray(msg)
    started_cb()
    return ucx_api.tag_recv_nb(
        worker, array, array.nbytes, tag, non_blocking_handler, (completed_cb,), ep=ep
    )


def get_endpoint_error_handling_default() -> bool:
    """Endpoints handle errors."""
    return True


def blocking_am_send(
    worker: ucx_api.UCXWorker, ep: ucx_api.UCXEndpoint, msg: object
) -> None:
    """Send an active message."""
    array = asarray(msg)
    finished = [False]
    request = ucx_api.am_send_nbx(
        ep, array, array.nbytes, blocking_handler, (finished,)
    )
    _wait(worker.progress, request, finished)


def blocking_am_recv(worker: ucx_api.UCXWorker, ep: ucx_api.UCXEndpoint) -> Any:
    """Receive an active message."""
    received: list[Any] = []

    def on_message(message: Any, exception: BaseException | None) -> None:
        assert exception is None, exception
        received.append(message)

    ucx_api.am_recv_nb(ep, on_message)
    while not received:
        worker.progress()
    return received[0]
