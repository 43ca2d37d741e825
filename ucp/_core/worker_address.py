# SPDX-License-Identifier: BSD-3-Clause
"""Worker addresses: endpoints without a listener."""

from __future__ import annotations

from typing import Any, Self, cast

from .._ext import UCXAddress
from . import context
from .endpoint import Endpoint
from .lifecycle import current_worker
from .worker import Worker


def get_worker_address() -> UCXAddress:
    """Return the address of the current worker, which never changes.

    The first call starts to listen, on all addresses of this host and a port that
    the system chooses. The program sends the address to peers by any means, as
    ``bytes(address)``, by the buffer protocol or pickled.
    """
    return current_worker().get_address()


def get_ucx_address_from_buffer(buffer: Any) -> UCXAddress:
    """Return the address whose bytes are in ``buffer``.

    Args:
        buffer: the result of ``bytes(address)``; zeros may follow.

    Raises:
        ValueError: the bytes are not an address, or are cut off or changed.
    """
    return UCXAddress.from_buffer(buffer)


async def create_endpoint_from_worker_address(
    address: UCXAddress | Any,
    endpoint_error_handling: bool = True,
    *,
    connect_timeout: float | None = None,
) -> Endpoint:
    """Connect to the worker of an address, which may be the current worker.

    Returns without waiting: the handshake continues in the background, and sends
    wait for it. The other worker gets an endpoint from ``accept_addressed()``. An
    address can be used on every host that can reach its host.

    Args:
        address: a UCXAddress or its bytes.
        endpoint_error_handling: as for ``create_endpoint``.
        connect_timeout: seconds for the handshake; None is the value that ``init``
            was given, 5 by default.

    Raises:
        ValueError: ``address`` is not an address.

    If connecting fails, operations on the endpoint raise the exceptions of
    ``create_endpoint``; or UCXWorkerGone, a UCXNotConnected, if the worker no
    longer exists.
    """
    if connect_timeout is None:
        connect_timeout = context.connect_timeout()
    worker = current_worker()
    endpoint = cast(Endpoint, worker._connect_address(address, connect_timeout))
    endpoint._has_error_handling = endpoint_error_handling
    worker._endpoints.add(endpoint)
    return endpoint


def accept_addressed() -> AddressedEndpoints:
    """Iterate over the endpoints that peers make from the current worker's address.

    ``async for ep in ucp.accept_addressed()`` ends with the worker. Endpoints that
    were made before come first. An endpoint that ends before it is taken is
    dropped, unless it has messages to read: the last 64 of these are kept.
    """
    return AddressedEndpoints(current_worker())


class AddressedEndpoints:
    """An asynchronous iterator of endpoints, made by accept_addressed().

    Several iterators may run at a time: each endpoint goes to one of them.
    Cancelling loses no endpoint.
    """

    def __init__(self, worker: Worker) -> None:
        if worker.loop is None:
            raise RuntimeError("accept_addressed() needs a running event loop")
        self._worker = worker

    def __repr__(self) -> str:
        return f"<ucp.AddressedEndpoints of {self._worker!r}>"

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Endpoint:
        worker = self._worker
        while not worker.closed():
            endpoint = cast(Endpoint | None, worker._take_addressed())
            if endpoint is not None:
                worker._endpoints.add(endpoint)
                return endpoint
            await worker._addressed.wait()
        raise StopAsyncIteration


__all__ = [
    "AddressedEndpoints",
    "UCXAddress",
    "accept_addressed",
    "create_endpoint_from_worker_address",
    "get_ucx_address_from_buffer",
    "get_worker_address",
]
