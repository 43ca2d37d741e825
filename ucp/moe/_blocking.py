# SPDX-License-Identifier: BSD-3-Clause
"""The calls of ``Buffer`` for programs without an event loop."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Coroutine, Generator
from types import TracebackType
from typing import Any, Self, SupportsIndex, TypeVar

import numpy as np
import numpy.typing as npt

from .. import _ext, sync
from .._core.ending import is_failure
from ._arrays import Array
from ._buffer import Buffer, Counts
from ._handle import Handle, Rows

_T = TypeVar("_T")


class _Wait:
    """Gives a request to who runs a call, and then its result."""

    def __init__(self, request: _ext.Request[None]) -> None:
        self._request = request

    def __await__(self) -> Generator[Any, None, None]:
        while not self._request.done():
            yield self._request
        self._request.result()


class _Buffer(Buffer):
    """A ``Buffer`` whose requests no event loop waits for."""

    __slots__ = ()

    def _until(self, request: _ext.Request[None]) -> Awaitable[None]:
        return _Wait(request)


class SyncBuffer:
    """``Buffer`` whose calls return when they have ended.

        with ucp.sync.Communicator.from_env() as comm:
            buffer = ucp.moe.SyncBuffer.create(comm, num_experts, max_tokens, hidden)

    Arguments, results and exceptions are as for ``Buffer``. A call makes progress in
    the thread that calls it. Ctrl-C in a call that waits ends the buffer.
    """

    __slots__ = ("__weakref__", "_async", "_comm", "_shared")

    def __init__(self, comm: sync.Communicator, buffer: Buffer) -> None:
        self._comm = comm
        self._async = buffer
        self._shared = comm._shared
        comm._close_at_exit(self)

    @classmethod
    def create(
        cls,
        comm: sync.Communicator,
        num_experts: SupportsIndex,
        num_max_tokens: SupportsIndex,
        hidden: SupportsIndex,
        dtype: Any = "bfloat16",
        **options: Any,
    ) -> Self:
        """Make a buffer. The arguments are those of ``Buffer.create()``."""
        making = _Buffer.create(
            comm._async, num_experts, num_max_tokens, hidden, dtype, **options
        )
        return cls(comm, _run(comm, making))

    def low_latency_dispatch(
        self, x: Any, topk_idx: Any, *, use_fp8: bool = False
    ) -> tuple[Rows, Counts, Handle]:
        """Send each token to each of its experts."""
        call = self._async.low_latency_dispatch(x, topk_idx, use_fp8=use_fp8)
        return _run(self._comm, call)

    def low_latency_combine(
        self,
        y: Any,
        topk_idx: Any,
        topk_weights: Any,
        handle: Handle,
        *,
        out: Any = None,
    ) -> Array:
        """Sum what the experts gave for each token of this rank, by weight."""
        call = self._async.low_latency_combine(
            y, topk_idx, topk_weights, handle, out=out
        )
        return _run(self._comm, call)

    def get_dispatch_layout(
        self, topk_idx: Any
    ) -> tuple[Counts, Counts, npt.NDArray[np.bool_]]:
        """Count where the tokens of this rank go."""
        return self._async.get_dispatch_layout(topk_idx)

    def dispatch(
        self,
        x: Any,
        topk_idx: Any = None,
        topk_weights: Any = None,
        *,
        handle: Handle | None = None,
        use_fp8: bool = False,
    ) -> tuple[Rows, Any, Any, list[int] | None, Handle]:
        """Send each token once to each rank that has an expert of it."""
        call = self._async.dispatch(
            x, topk_idx, topk_weights, handle=handle, use_fp8=use_fp8
        )
        return _run(self._comm, call)

    def combine(self, y: Any, handle: Handle, *, out: Any = None) -> Array:
        """Sum what the ranks gave for each token of this one."""
        return _run(self._comm, self._async.combine(y, handle, out=out))

    def query_mask(self) -> npt.NDArray[np.bool_]:
        """Which ranks are masked here."""
        return self._async.query_mask()

    def update_mask(self, rank: SupportsIndex, masked: bool) -> None:
        """Mask a rank, or take its mask away."""
        self._async.update_mask(rank, masked)

    def clean_mask(self) -> None:
        """Take all masks away."""
        self._async.clean_mask()

    def close(self) -> None:
        """Wait until every rank closes its buffer."""
        _run(self._comm, self._async.close())

    def abort(self) -> None:
        """Leave without waiting."""
        self._async.abort()

    def closed(self) -> bool:
        """True after close() or abort()."""
        return self._async.closed()

    def _exit(self, exc: BaseException | None, end: float) -> None:
        """Leave it, as the interpreter ends; the other ranks are waited for until
        the time ``end``."""
        if is_failure(exc):
            self.abort()
        else:
            _run(self._comm, self._async.close(), end)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close; after an exception leave at once."""
        if exc is not None:
            self.abort()
        self.close()

    def __repr__(self) -> str:
        return f"<ucp.moe.SyncBuffer of {self._async!r}>"


def _run(
    comm: sync.Communicator, call: Coroutine[Any, Any, _T], end: float | None = None
) -> _T:
    """Run a call of ``Buffer`` in this thread, until the time ``end``: all that it
    awaits are requests."""
    cause: BaseException | None = None
    while True:
        try:
            request = call.send(None) if cause is None else call.throw(cause)
        except StopIteration as end:
            result: _T = end.value
            return result
        cause = None
        left = None if end is None else max(0.0, end - time.monotonic())
        try:
            if not comm._worker._wait(left, request):
                raise request._timeout(left)
        except BaseException as exc:
            request.cancel()
            cause = exc
