# SPDX-License-Identifier: BSD-3-Clause
"""Endpoints and listeners."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self, cast

from .... import _ext
from ...._core import context
from ...._core.resolve import resolve_now
from ...._ext import UCXAddress, call_when_done
from ..faces import raise_on_error
from ._memory import PackedRemoteKey, UCXRkey

if TYPE_CHECKING:
    from ._worker import UCXWorker

__all__ = ["Callback", "UCXEndpoint", "UCXListener", "call_when_done"]

Callback = Callable[..., object] | None


class UCXEndpoint(_ext.Endpoint):
    """A connection to one peer; dropping the last reference closes it."""

    _has_error_handling: bool = True

    @classmethod
    def create(
        cls,
        worker: UCXWorker,
        ip_address: str,
        port: int,
        endpoint_error_handling: bool,
    ) -> UCXEndpoint:
        """Connect to a listener, without waiting.

        Sends wait until the endpoint is connected. If connecting fails,
        ``is_alive()`` is False and the operations fail.
        """
        address = resolve_now(ip_address, port)[0]
        endpoint = worker._start_connect(address, context.connect_timeout())
        return _adopt(worker, endpoint, endpoint_error_handling)

    @classmethod
    def create_from_worker_address(
        cls,
        worker: UCXWorker,
        address: UCXAddress | Any,
        endpoint_error_handling: bool,
    ) -> UCXEndpoint:
        """Connect to the worker of an address, without waiting.

        As ``create``; the address may be the worker's own.
        """
        endpoint = worker._connect_address(address, context.connect_timeout())
        return _adopt(worker, endpoint, endpoint_error_handling)

    @classmethod
    def create_from_conn_request(
        cls,
        worker: UCXWorker,
        conn_request: UCXEndpoint,
        endpoint_error_handling: bool,
    ) -> UCXEndpoint:
        """Accept a connection request, the argument of a listener's callback.

        The worker must be that of the listener.
        """
        if conn_request.worker is not worker:
            raise ValueError("the connection request is of another worker")
        return _adopt(worker, conn_request, endpoint_error_handling)

    @property
    def handle(self) -> int:
        """UCX's ``ucp_ep_h``; 0 once closed."""
        return self._handle

    def info(self) -> str:
        """UCX's description of the endpoint."""
        return self._info()

    @property
    def initialized(self) -> bool:
        """False once this side has closed the endpoint."""
        return self.state not in ("draining", "closed")

    def is_alive(self) -> bool:
        """False once the endpoint has failed, or either side has closed it.

        Always True without error handling, as in ucx-py.
        """
        return not self._has_error_handling or not self.closed()

    def am_probe(self) -> bool:  # type: ignore[override]
        """True if an active message has arrived that no receive has taken."""
        return super().am_probe() is not None

    def raise_on_error(self) -> None:
        """Raise the error of the endpoint, if it has one and handles errors.

        Raises:
            UCXConnectionReset: the peer has gone.
            UCXError: the endpoint has failed for another reason.
        """
        if self._has_error_handling:
            raise_on_error(self)

    def unpack_rkey(self, rkey: PackedRemoteKey | Any) -> UCXRkey:
        """Open a key of the peer; nothing is sent."""
        return UCXRkey(self, rkey)

    def set_close_callback(self, cb_func: Callable[[], object] | None) -> None:
        """Call ``cb_func()`` when the endpoint has ended, for whatever reason.

        ``progress()`` calls it, even if the endpoint has ended before.
        """
        if cb_func is None or not self.closed():
            self._on_close = cb_func
        elif not self.worker.closed():
            self.worker._submit(cb_func)

    def close(self) -> None:  # type: ignore[override]
        """Close the endpoint; ``progress()`` delivers messages that were sent.

        The ``close()`` of the worker waits until they are delivered. If the endpoint
        is connecting, this call waits until it is connected, and then closes it.
        """
        while self.state == "connecting":
            cast("UCXWorker", self.worker)._take_turn()
        if self.initialized:
            super().close()

    def flush(  # type: ignore[override]
        self,
        cb_func: Callback,
        cb_args: tuple[Any, ...] | None = None,
        cb_kwargs: dict[str, Any] | None = None,
    ) -> _ext.CoroutineRequest[Any] | None:
        """Call back when everything that was sent has reached the peer's memory.

        Returns None if everything has reached it already.
        """
        return call_when_done(super().flush(), cb_func, cb_args, cb_kwargs, "flush")


def _adopt(
    worker: UCXWorker, endpoint: _ext.Endpoint, has_error_handling: bool
) -> UCXEndpoint:
    assert isinstance(endpoint, UCXEndpoint)
    endpoint._has_error_handling = has_error_handling
    worker._endpoints.add(endpoint)
    return endpoint


class UCXListener(_ext.Listener):
    """Accepts connections on a port of all IPv4 addresses.

    Args:
        worker: its ``progress()`` calls the callback.
        port: the port; 0: a port that the system chooses.
        cb_func: called with a connection request, ``cb_args`` and ``cb_kwargs`` for
            each peer. The connection ends unless the program passes the request
            to ``UCXEndpoint.create_from_conn_request``.
    """

    def __new__(
        cls,
        worker: UCXWorker,
        port: int,
        cb_func: Callable[..., object],
        cb_args: tuple[Any, ...] | None = None,
        cb_kwargs: dict[str, Any] | None = None,
    ) -> Self:
        args, kwargs = cb_args or (), cb_kwargs or {}

        def accept(conn_request: _ext.Endpoint) -> None:
            cb_func(conn_request, *args, **kwargs)

        listener = worker._listen((None, port), accept)
        assert isinstance(listener, cls)
        worker._listeners.add(listener)
        return listener

    @property
    def ip(self) -> str:
        """The address on which it listens."""
        return self.host

    @property
    def initialized(self) -> bool:
        """False once closed."""
        return not self.closed()
