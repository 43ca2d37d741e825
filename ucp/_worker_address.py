# SPDX-License-Identifier: BSD-3-Clause
"""Endpoints without a listener: worker addresses."""

from __future__ import annotations

from typing import Any, Self, cast

from . import _context
from ._endpoint import Endpoint
from ._ext import UCXAddress
from ._lifecycle import current_worker
from ._worker import Worker


def get_worker_address() -> UCXAddress:
    """The address of the current worker, always the same.

    From the first call on peers can connect to it, through a port that the
    system chooses on all addresses of this host. Bytes, to be sent by any
    means: ``bytes(address)``, the buffer protocol, pickle.
    """
    return current_worker().get_address()


def get_ucx_address_from_buffer(buffer: Any) -> UCXAddress:
    """The address whose bytes are in ``buffer``.

    Args:
        buffer: what ``bytes(address)`` gave; zeros may follow.

    Raises:
        ValueError: it is something else, cut off or changed.
    """
    return UCXAddress.from_buffer(buffer)


async def create_endpoint_from_worker_address(
    address: UCXAddress | Any,
    endpoint_error_handling: bool = True,
    *,
    connect_timeout: float | None = None,
) -> Endpoint:
    """Connect to the worker of an address, this one included.

    Returns at once: the handshake goes on in the background, and sends wait
    for it. The worker has an endpoint, too, which its ``accept_addressed()``
    gives. An address can be used from any host that reaches its own.

    Args:
        address: a UCXAddress or its bytes.
        endpoint_error_handling: as in ``create_endpoint``.
        connect_timeout: seconds for the handshake; None is what ``init`` got,
            5 by default.

    Raises:
        ValueError: not an address.

    Operations on the endpoint raise what ``create_endpoint`` would;
    UCXWorkerGone, a UCXNotConnected, if nobody is at the address.
    """
    if connect_timeout is None:
        connect_timeout = _context.connect_timeout()
    worker = current_worker()
    endpoint = cast(Endpoint, worker._connect_address(address, connect_timeout))
    endpoint._has_error_handling = endpoint_error_handling
    worker._endpoints.add(endpoint)
    return endpoint


def accept_addressed() -> AddressedEndpoints:
    """The endpoints that peers make from this worker's address.

    ``async for ep in ucp.accept_addressed()``; ends with the worker. Those
    that came before are given first. One that ends before it is taken is
    dropped, unless it has messages to read: of such the last 64 are kept.
    """
    return AddressedEndpoints(current_worker())


class AddressedEndpoints:
    """An asynchronous iterator of endpoints; made by accept_addressed().

    Several may run at a time: each endpoint goes to one of them. Cancelling
    loses none.
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
