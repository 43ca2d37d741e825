# SPDX-License-Identifier: BSD-3-Clause
"""Contexts and workers."""

from __future__ import annotations

import atexit
import enum
import os
import select
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self, SupportsIndex

from .... import _ext
from ...._core.alive import Alive
from ....exceptions import UCXBaseException, UCXError
from ._endpoint import Callback, UCXEndpoint, UCXListener, call_when_done
from ._memory import UCXMemoryHandle

_TURN_S = 0.01  # timers are looked at so often


class Feature(enum.Enum):
    """Features of UCX that a context has."""

    TAG = 1 << 0
    RMA = 1 << 1
    AMO32 = 1 << 2
    AMO64 = 1 << 3
    WAKEUP = 1 << 4
    STREAM = 1 << 5
    AM = 1 << 6


class AllocatorType(enum.Enum):
    """Kinds of memory into which active messages are received."""

    HOST = 0
    CUDA = 1
    UNSUPPORTED = -1


_DEFAULT_FEATURES = (
    Feature.TAG,
    Feature.WAKEUP,
    Feature.STREAM,
    Feature.AM,
    Feature.RMA,
)


class UCXContext(_ext.Context):
    """A UCX context; freed when nothing refers to it.

    Args:
        config_dict: UCX's options without the prefix ``UCX_``; they override the
            environment.
        feature_flags: operations of other features raise ValueError.
    """

    _config: dict[str, str]

    def __new__(
        cls,
        config_dict: Mapping[str, str] | None = None,
        feature_flags: Iterable[Feature] = _DEFAULT_FEATURES,
    ) -> Self:
        options = dict(config_dict or {})
        features = 0
        for feature in feature_flags:
            features |= feature.value
        self = super().__new__(cls, options, features=features)
        self._config = _ext.config_options(options)
        return self

    def get_config(self) -> dict[str, str]:
        """Return UCX's options in force, without the prefix ``UCX_``."""
        return self._config

    def alloc(self, size: int) -> UCXMemoryHandle:
        """``UCXMemoryHandle.alloc``."""
        return UCXMemoryHandle.alloc(self, size)

    def map(self, mem: Any) -> UCXMemoryHandle:
        """``UCXMemoryHandle.map``."""
        return UCXMemoryHandle.map(self, mem)

    @property
    def cuda_support(self) -> bool:
        """True if UCX may use a CUDA transport."""
        return "cuda" in self.info()


class UCXWorker(_ext.Worker):
    """Moves the data of its endpoints, in ``progress()`` only.

    A worker belongs to the thread that made it. Dropping the last reference closes
    it; pending operations hold a reference.
    """

    _endpoints: Alive[UCXEndpoint]
    _listeners: Alive[UCXListener]
    _thread: int

    def __new__(cls, context: UCXContext) -> Self:
        self = super().__new__(cls, context, None, UCXEndpoint, UCXListener)
        self._endpoints = Alive()
        self._listeners = Alive()
        self._thread = threading.get_ident()
        _workers.add(self)
        return self

    def __del__(self) -> None:
        if self._is_mine():
            self.close()

    # As ucx-py's it moves all there is and tells nothing.
    progress = _ext.Worker._poll  # type: ignore[assignment]

    @property
    def initialized(self) -> bool:
        """False once closed."""
        return not self.closed()

    def _is_mine(self) -> bool:
        return not self.closed() and self._thread == threading.get_ident()

    def close(self) -> None:
        """Close the endpoints and listeners of the worker, then the worker.

        Waits for the peers, for at most the close timeout. The other workers of the
        thread make progress meanwhile.
        """
        if self.closed():
            return
        self._withdraw_address()
        for listener in list(self._listeners):
            listener.close()
        for endpoint in list(self._endpoints):
            endpoint.close()
        try:
            self._settle(int(self.context.config["close_timeout_ns"]) / 1e9)
        finally:
            self.abort()

    def _settle(self, timeout: float) -> None:
        """Wait until every close has ended."""
        deadline = time.monotonic() + timeout
        self.arm()  # endpoints dropped just now start to close in this
        while self._is_closing() and time.monotonic() < deadline:
            self._take_turn()

    def _is_closing(self) -> bool:
        return not self.closed() and self._num_closing != 0

    def _take_turn(self) -> None:
        """Make progress with all workers of the thread; wait briefly if none is made.

        A peer may be an endpoint of another one of them.
        """
        workers = {self, *_workers}
        # A callback may close any of them.
        idle = [worker.arm() for worker in workers if worker._is_mine()]
        if all(idle):
            mine = [worker for worker in workers if worker._is_mine()]
            select.select(mine, [], [], _TURN_S)

    def register_am_allocator(
        self,
        allocator: Callable[[int], Any] | None,
        allocator_type: AllocatorType = AllocatorType.HOST,
    ) -> None:
        """Set the function that makes the buffers of ``am_recv_nb``.

        It is called with a number of bytes; None: bytearray. Only messages that are
        sent by rendezvous are received into CUDA memory.
        """
        if allocator_type not in (AllocatorType.HOST, AllocatorType.CUDA):
            raise UCXError("Allocator type not supported")
        self._set_am_allocator(allocator_type is AllocatorType.CUDA, allocator)

    def init_blocking_progress_mode(self) -> int:
        """Return the file descriptor to wait for once ``arm()`` is True."""
        return self.fileno()

    def request_cancel(self, req: _ext.Request[Any]) -> None:
        """Cancel an operation; ``progress()`` calls its callback.

        The callback gets UCXCanceled, unless the operation has completed before.
        """
        req.cancel()

    def tag_probe(self, tag: SupportsIndex) -> bool:  # type: ignore[override]
        """True if a message of this tag has arrived that no receive has taken."""
        return super().tag_probe(tag) is not None

    def cancel_inflight_messages(self) -> int:
        """Return how many operations have failed since the last call.

        It counts operations that failed because their endpoint ended. This call
        cancels nothing, since such operations fail by themselves.
        """
        return self._take_num_ended()

    def flush(  # type: ignore[override]
        self,
        cb_func: Callback,
        cb_args: tuple[Any, ...] | None = None,
        cb_kwargs: dict[str, Any] | None = None,
    ) -> _ext.CoroutineRequest[Any] | None:
        """Call back when everything that was sent has reached the peers' memory.

        Returns None if it has already.
        """
        return call_when_done(super().flush(), cb_func, cb_args, cb_kwargs, "flush")

    def ep_create(
        self, ip_address: str, port: int, endpoint_error_handling: bool
    ) -> UCXEndpoint:
        """As ``UCXEndpoint.create``."""
        return UCXEndpoint.create(self, ip_address, port, endpoint_error_handling)

    def ep_create_from_worker_address(
        self, address: _ext.UCXAddress, endpoint_error_handling: bool
    ) -> UCXEndpoint:
        """As ``UCXEndpoint.create_from_worker_address``."""
        return UCXEndpoint.create_from_worker_address(
            self, address, endpoint_error_handling
        )

    def ep_create_from_conn_request(
        self, conn_request: UCXEndpoint, endpoint_error_handling: bool
    ) -> UCXEndpoint:
        """As ``UCXEndpoint.create_from_conn_request``."""
        return UCXEndpoint.create_from_conn_request(
            self, conn_request, endpoint_error_handling
        )


_workers: Alive[UCXWorker] = Alive()


def _close_at_exit() -> None:
    for worker in list(_workers):
        if worker._is_mine():
            try:
                worker.close()
            except UCXBaseException:
                pass  # nobody is left to hear


def _disown_after_fork() -> None:
    """The child's are the parent's."""
    for worker in list(_workers):
        worker._disown()


atexit.register(_close_at_exit)
os.register_at_fork(after_in_child=_disown_after_fork)
