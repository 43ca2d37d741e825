# SPDX-License-Identifier: BSD-3-Clause
"""ucx-py's ``ucp.comm``: operations of the low-level API as asyncio's futures.

Each function returns a future of ``event_loop``, or of the running loop. The worker
must make progress: the worker of ``ucp.create_endpoint`` does so in the event loop,
a ``ucx_api.UCXWorker`` in its ``progress()``.

``ep.send`` and the other methods of endpoints cost less, because their requests
can be awaited without a future.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, SupportsIndex

from ... import _ext
from .faces import EndpointFace
from .libs import ucx_api
from .utils import get_event_loop

__all__ = [
    "am_recv",
    "am_send",
    "flush_ep",
    "flush_worker",
    "stream_recv",
    "stream_send",
    "tag_recv",
    "tag_send",
]


def __dir__() -> list[str]:
    return __all__


_Loop = asyncio.AbstractEventLoop | None
_Endpoint = _ext.Endpoint | EndpointFace


def _endpoint(ep: _Endpoint) -> _ext.Endpoint:
    """Return the endpoint for which ``ep._ep`` of ``ucp.Endpoint`` stands."""
    return ep._ep if isinstance(ep, EndpointFace) else ep


def _settle(future: asyncio.Future[Any], exc: BaseException | None, value: Any) -> None:
    if future.done() or future.get_loop().is_closed():
        return
    if exc is not None:
        future.set_exception(exc)
    else:
        future.set_result(value)


def _start(
    event_loop: _Loop, function: Callable[..., object], *args: Any, **kwargs: Any
) -> asyncio.Future[bool]:
    """Call ``function`` and return a future that is done when the operation is."""
    future = (event_loop or get_event_loop()).create_future()

    def done(request: object, exc: BaseException | None) -> None:
        _settle(future, exc, True)

    if function(*args, cb_func=done, **kwargs) is None:
        _settle(future, None, True)
    return future


def tag_send(
    ep: _Endpoint,
    buffer: Any,
    nbytes: int,
    tag: SupportsIndex,
    name: str = "tag_send",
    event_loop: _Loop = None,
) -> asyncio.Future[bool]:
    """``ucx_api.tag_send_nb``."""
    return _start(
        event_loop, ucx_api.tag_send_nb, _endpoint(ep), buffer, nbytes, tag, name=name
    )


def tag_recv(
    obj: _Endpoint | _ext.Worker,
    buffer: Any,
    nbytes: int,
    tag: SupportsIndex,
    name: str = "tag_recv",
    event_loop: _Loop = None,
) -> asyncio.Future[bool]:
    """``ucx_api.tag_recv_nb`` from an endpoint's peer, or from any of a worker's."""
    ep = None if isinstance(obj, _ext.Worker) else _endpoint(obj)
    worker = obj if isinstance(obj, _ext.Worker) else _endpoint(obj).worker
    return _start(
        event_loop, ucx_api.tag_recv_nb, worker, buffer, nbytes, tag, name=name, ep=ep
    )


def am_send(
    ep: _Endpoint,
    buffer: Any,
    nbytes: int,
    name: str = "am_send",
    event_loop: _Loop = None,
) -> asyncio.Future[bool]:
    """``ucx_api.am_send_nbx``."""
    return _start(
        event_loop, ucx_api.am_send_nbx, _endpoint(ep), buffer, nbytes, name=name
    )


def am_recv(
    ep: _Endpoint, name: str = "am_recv", event_loop: _Loop = None
) -> asyncio.Future[Any]:
    """``ucx_api.am_recv_nb``; the result of the future is the received message."""
    future = (event_loop or get_event_loop()).create_future()

    def done(message: object, exc: BaseException | None) -> None:
        _settle(future, exc, message)

    ucx_api.am_recv_nb(_endpoint(ep), cb_func=done, name=name)
    return future


def stream_send(
    ep: _Endpoint,
    buffer: Any,
    nbytes: int,
    name: str = "stream_send",
    event_loop: _Loop = None,
) -> asyncio.Future[bool]:
    """``ucx_api.stream_send_nb``."""
    return _start(
        event_loop, ucx_api.stream_send_nb, _endpoint(ep), buffer, nbytes, name=name
    )


def stream_recv(
    ep: _Endpoint,
    buffer: Any,
    nbytes: int,
    name: str = "stream_recv",
    event_loop: _Loop = None,
) -> asyncio.Future[bool]:
    """``ucx_api.stream_recv_nb``."""
    return _start(
        event_loop, ucx_api.stream_recv_nb, _endpoint(ep), buffer, nbytes, name=name
    )


def flush_worker(worker: _ext.Worker, event_loop: _Loop = None) -> asyncio.Future[bool]:
    """Return a future that is done when all sends have reached the peers' memory."""
    return _flush(event_loop, _ext.Worker.flush(worker))


def flush_ep(ep: _Endpoint, event_loop: _Loop = None) -> asyncio.Future[bool]:
    """Return a future that is done when all sends have reached the peer's memory."""
    return _flush(event_loop, _ext.Endpoint.flush(_endpoint(ep)))


def _flush(event_loop: _Loop, request: _ext.Request[None]) -> asyncio.Future[bool]:
    def call(cb_func: Callable[..., object]) -> object:
        return _ext.call_when_done(request, cb_func, None, None, "flush")

    return _start(event_loop, call)
