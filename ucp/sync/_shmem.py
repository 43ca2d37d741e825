# SPDX-License-Identifier: BSD-3-Clause
"""Symmetric heaps whose calls wait."""

# mypy: disable-error-code="empty-body"
# Methods that are @forwarded have no code.

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, NoReturn, Self, SupportsIndex

from .. import _ext
from .._communicator import steps
from .._core import ending
from ..exceptions import UCXError
from ..shmem.array import Array, Cmp, new_ones, values_of
from ..shmem.heap import SymmetricHeap as _AsyncHeap
from ..shmem.heap import local_of
from ..shmem.pending import Pending
from ..shmem.plan import check_free, plan, refusal
from ._communicator import Communicator
from ._exit import left, register
from ._forward import forwarded


def _left(timeout: float | None) -> Callable[[], float | None]:
    """A function that says how much of a timeout is left."""
    if timeout is None:
        return lambda: None
    end = time.monotonic() + timeout
    return lambda: max(0.0, end - time.monotonic())


class SymmetricArray(Array):
    """``ucp.shmem.SymmetricArray`` whose waits return when they have ended."""

    __slots__ = ()

    def wait_until(self, cmp: Cmp, value: int, *, timeout: float | None = None) -> None:
        """Wait until the first number compares so to ``value``."""
        if not self.test(cmp, value):
            self.heap.worker._call(timeout, self._wait_until, cmp, value)

    def wait_until_all(
        self, cmp: Cmp, values: Any, status: Any = None, *, timeout: float | None = None
    ) -> None:
        """Wait until every item has been seen to compare so."""
        self._wait(cmp, values, self._status(status), self.size, timeout)

    def wait_until_any(
        self, cmp: Cmp, values: Any, status: Any = None, *, timeout: float | None = None
    ) -> int | None:
        """Wait until an item compares so; its index, or None if all are left out."""
        found = self.wait_until_some(cmp, values, status, timeout=timeout)
        return found[0] if found else None

    def wait_until_some(
        self, cmp: Cmp, values: Any, status: Any = None, *, timeout: float | None = None
    ) -> list[int]:
        """Wait until at least one item compares so to its value.

        Returns:
            The indices of the items that compare so.
        """
        before = self._status(status)
        return new_ones(before, self._wait(cmp, values, before, 1, timeout))

    def _wait(
        self, cmp: Cmp, values: Any, before: bytes, count: int, timeout: float | None
    ) -> bytes:
        if not before:
            return before
        seen: bytes = self.heap.worker._call(
            timeout, self._wait_many, cmp, values_of(values), before, count
        )
        return seen


class SymmetricHeap:
    """``ucp.shmem.SymmetricHeap`` whose operations return when they have ended.

        with ucp.sync.SymmetricHeap.create(comm, 1 << 24) as heap:
            x, signal = heap.zeros(1000, "i8"), heap.zeros(1, "u8")
            heap.put_signal(x, source, pe, signal, 1)
            signal.wait_until(">=", 1)

    Arguments, results and exceptions are as for ``ucp.shmem.SymmetricHeap``, and
    ``timeout`` that of this module.
    """

    def __init__(self, comm: Communicator, nbytes: SupportsIndex) -> None:
        comm._shared.check()
        self._comm = comm
        self._async = _AsyncHeap(comm._async, nbytes)
        self._async._comm = comm._async
        self._async._nbi = Pending()
        self._wait_for = comm._wait_for
        self._shared = comm._shared
        register(self)

    @classmethod
    def create(
        cls,
        comm: Communicator,
        nbytes: SupportsIndex,
        *,
        timeout: float | None = None,
    ) -> Self:
        """Make a heap of ``nbytes`` on every rank; a collective operation."""
        self = cls(comm, nbytes)
        self._wait_for(timeout, self._async._create)
        return self

    @property
    def comm(self) -> Communicator:
        """The communicator."""
        return self._comm

    @property
    def my_pe(self) -> int:
        """This rank."""
        return self._comm.rank

    @property
    def num_pes(self) -> int:
        """How many ranks there are."""
        return self._async.num_pes

    @property
    def nbytes(self) -> int:
        """Bytes of each rank."""
        return self._async.nbytes

    @property
    def available(self) -> int:
        """Bytes that are not allocated."""
        return self._async.available

    def _refuse(self, timeout: float | None, exc: Exception) -> None:
        """Tell the other ranks, who have called the same, of bad arguments."""
        with suppress(UCXError):
            self._wait_for(timeout, self._async._malloc, *refusal(exc))

    def _allocate(
        self, timeout: float | None, method: str, *args: Any
    ) -> tuple[SymmetricArray, Any]:
        try:
            it = plan(self._async, method, *args)
        except Exception as exc:
            self._refuse(timeout, exc)
            raise
        offset = self._wait_for(timeout, self._async._malloc, *it.wish)
        return SymmetricArray.make(self._async, offset, it.shape, it.dtype), it.value

    def empty(
        self,
        shape: Any,
        dtype: Any = "f8",
        *,
        align: int = 0,
        timeout: float | None = None,
    ) -> SymmetricArray:
        """Allocate an array, whose items are anything; a collective operation."""
        return self._allocate(timeout, "empty", shape, dtype, align)[0]

    def zeros(
        self,
        shape: Any,
        dtype: Any = "f8",
        *,
        align: int = 0,
        timeout: float | None = None,
    ) -> SymmetricArray:
        """``empty()`` with zeros."""
        return self._allocate(timeout, "zeros", shape, dtype, align)[0]

    def full(
        self,
        shape: Any,
        value: Any,
        dtype: Any = "f8",
        *,
        align: int = 0,
        timeout: float | None = None,
    ) -> SymmetricArray:
        """``empty()`` with ``value``, which no other rank's put comes before."""
        left = _left(timeout)
        array, values = self._allocate(left(), "full", shape, dtype, align, value)
        array.local[...] = values
        self.sync_all(timeout=left())
        return array

    def free(self, array: Any, *, timeout: float | None = None) -> None:
        """Free an array on all ranks, which all free it."""
        try:
            check_free(self._async, array)
        except Exception as exc:
            self._refuse(timeout, exc)
            raise
        self._wait_for(timeout, _ext.SymmetricHeap.free, self._async, array)
        if array is not None:
            array.is_freed = True

    @forwarded
    def put(
        self,
        dest: Array,
        source: Any,
        pe: SupportsIndex,
        *,
        timeout: float | None = None,
    ) -> None:
        """Write the bytes of ``source`` to ``dest`` of that PE."""

    @forwarded
    def get(
        self,
        buffer: Any,
        source: Array,
        pe: SupportsIndex,
        *,
        timeout: float | None = None,
    ) -> None:
        """Fill ``buffer`` from ``source`` of that PE."""

    @forwarded
    def p(
        self,
        dest: Array,
        value: Any,
        pe: SupportsIndex,
        *,
        timeout: float | None = None,
    ) -> None:
        """Write ``value`` to the first item of ``dest`` of that PE."""

    def g(
        self, source: Array, pe: SupportsIndex, *, timeout: float | None = None
    ) -> Any:
        """Read the first item of ``source`` of that PE."""
        import numpy

        item = numpy.empty((), source.dtype)
        self.get(item, source, pe, timeout=timeout)
        return item[()]

    @forwarded
    def iput(
        self,
        dest: Array,
        source: Any,
        dest_stride: SupportsIndex,
        source_stride: SupportsIndex,
        count: SupportsIndex,
        pe: SupportsIndex,
        *,
        timeout: float | None = None,
    ) -> None:
        """Write ``count`` items of ``source`` to ``dest`` of that PE."""

    @forwarded
    def iget(
        self,
        buffer: Any,
        source: Array,
        buffer_stride: SupportsIndex,
        source_stride: SupportsIndex,
        count: SupportsIndex,
        pe: SupportsIndex,
        *,
        timeout: float | None = None,
    ) -> None:
        """Read ``count`` items of ``source`` of that PE to ``buffer``."""

    @forwarded
    def put_signal(
        self,
        dest: Array,
        source: Any,
        pe: SupportsIndex,
        signal: Array,
        value: int,
        op: str = "set",
        *,
        timeout: float | None = None,
    ) -> None:
        """Write as ``put()``, then set the number ``signal``, or add to it."""

    def put_nbi(self, dest: Array, source: Any, pe: SupportsIndex) -> None:
        """Begin a put; ``source`` is in use until ``quiet()``, which raises if it
        fails."""
        self._async.put_nbi(dest, source, pe)

    def get_nbi(self, buffer: Any, source: Array, pe: SupportsIndex) -> None:
        """Begin a get; ``buffer`` is filled when ``quiet()`` has ended."""
        self._async.get_nbi(buffer, source, pe)

    def put_signal_nbi(
        self,
        dest: Array,
        source: Any,
        pe: SupportsIndex,
        signal: Array,
        value: int,
        op: str = "set",
    ) -> None:
        """Begin a put_signal(), as ``put_nbi()`` does."""
        self._async.put_signal_nbi(dest, source, pe, signal, value, op)

    def fence(self) -> None:
        """Operations that are begun later reach each PE after those before."""
        self._async.fence()

    def _after_nbi(self, timeout: float | None, method: Any) -> None:
        """Wait for what has no request, and then for ``method``."""
        pending, until = self._async._nbi, _left(timeout)
        worker = self._comm._worker
        while (request := pending.last()) is not None:
            if not worker._wait(until(), request):
                raise request._timeout(timeout)
            pending.end(request)
        pending.raise_failure()
        steps.finish(worker, method(self._async), until(), timeout)

    def quiet(self, *, timeout: float | None = None) -> None:
        """Wait until all operations of this rank can be seen at their PEs."""
        self._after_nbi(timeout, _ext.SymmetricHeap.quiet)

    def barrier_all(self, *, timeout: float | None = None) -> None:
        """``quiet()``, then wait until every rank has come here."""
        self._after_nbi(timeout, _ext.SymmetricHeap.barrier_all)

    @forwarded
    def sync_all(self, *, timeout: float | None = None) -> None:
        """Wait until every rank has come here."""

    # ---- atomic operations ----

    @forwarded
    def atomic_add(
        self,
        target: Array,
        value: int,
        pe: SupportsIndex,
        *,
        timeout: float | None = None,
    ) -> None:
        """Add to the number ``target`` of that PE, in one step."""

    @forwarded
    def atomic_and(
        self,
        target: Array,
        value: int,
        pe: SupportsIndex,
        *,
        timeout: float | None = None,
    ) -> None:
        """And with the number ``target`` of that PE, in one step."""

    @forwarded
    def atomic_or(
        self,
        target: Array,
        value: int,
        pe: SupportsIndex,
        *,
        timeout: float | None = None,
    ) -> None:
        """Or with the number ``target`` of that PE, in one step."""

    @forwarded
    def atomic_xor(
        self,
        target: Array,
        value: int,
        pe: SupportsIndex,
        *,
        timeout: float | None = None,
    ) -> None:
        """Xor with the number ``target`` of that PE, in one step."""

    @forwarded
    def atomic_set(
        self,
        target: Array,
        value: int,
        pe: SupportsIndex,
        *,
        timeout: float | None = None,
    ) -> None:
        """Replace the number ``target`` of that PE, in one step."""

    @forwarded
    def atomic_fetch(
        self, source: Array, pe: SupportsIndex, *, timeout: float | None = None
    ) -> int:
        """Read the number ``source`` of that PE, in one step."""

    @forwarded
    def atomic_fetch_add(
        self,
        target: Array,
        value: int,
        pe: SupportsIndex,
        *,
        timeout: float | None = None,
    ) -> int:
        """Add to the number ``target`` of that PE; the number that was there."""

    @forwarded
    def atomic_fetch_and(
        self,
        target: Array,
        value: int,
        pe: SupportsIndex,
        *,
        timeout: float | None = None,
    ) -> int:
        """And with the number ``target`` of that PE; the number that was there."""

    @forwarded
    def atomic_fetch_or(
        self,
        target: Array,
        value: int,
        pe: SupportsIndex,
        *,
        timeout: float | None = None,
    ) -> int:
        """Or with the number ``target`` of that PE; the number that was there."""

    @forwarded
    def atomic_fetch_xor(
        self,
        target: Array,
        value: int,
        pe: SupportsIndex,
        *,
        timeout: float | None = None,
    ) -> int:
        """Xor with the number ``target`` of that PE; the number that was there."""

    @forwarded
    def atomic_swap(
        self,
        target: Array,
        value: int,
        pe: SupportsIndex,
        *,
        timeout: float | None = None,
    ) -> int:
        """Replace the number ``target`` of that PE; the number that was there."""

    @forwarded
    def atomic_compare_swap(
        self,
        target: Array,
        compare: int,
        value: int,
        pe: SupportsIndex,
        *,
        timeout: float | None = None,
    ) -> int:
        """Replace the number if it equals ``compare``; the number that was there."""

    # ---- collective operations: the communicator's ----

    def broadcast(
        self, dest: Any, source: Any, root: int, *, timeout: float | None = None
    ) -> None:
        """Copy ``source`` of the root to ``dest`` of every rank."""
        if self.my_pe == root:
            local_of(dest)[...] = local_of(source)
        self._comm.bcast(local_of(dest), root, timeout=timeout)

    def fcollect(self, dest: Any, source: Any, *, timeout: float | None = None) -> None:
        """Collect ``source`` of every rank, all of one length, in ``dest``."""
        self._comm.allgather(local_of(source), local_of(dest), timeout=timeout)

    def collect(self, dest: Any, source: Any, *, timeout: float | None = None) -> None:
        """Collect ``source`` of every rank, of any length, in ``dest``."""
        import numpy

        mine = numpy.array([local_of(source).size], "i8")
        counts = numpy.empty(self.num_pes, "i8")
        self._comm.allgather(mine, counts, timeout=timeout)
        numbers = [int(count) for count in counts]
        self._comm.allgatherv(
            local_of(source), local_of(dest), numbers, timeout=timeout
        )

    def alltoall(self, dest: Any, source: Any, *, timeout: float | None = None) -> None:
        """Send part i of ``source`` to rank i, to the part of this one in ``dest``."""
        self._comm.alltoall(local_of(source), local_of(dest), timeout=timeout)

    def reduce(
        self,
        dest: Any,
        source: Any,
        op: Any = "sum",
        *,
        timeout: float | None = None,
    ) -> None:
        """Combine ``source`` of all ranks in ``dest`` of every rank."""
        self._comm.allreduce(local_of(source), local_of(dest), op, timeout=timeout)

    # ---- the rest ----

    def pe_accessible(self, pe: int) -> bool:
        """Is it a PE of the heap?"""
        return self._async.pe_accessible(pe)

    def addr_accessible(self, array: object, pe: SupportsIndex) -> bool:
        """Is it an array of this heap, and a PE?"""
        return self._async.addr_accessible(array, pe)

    def is_mapped(self, pe: SupportsIndex) -> bool:
        """Can the memory of that PE be loaded and stored here?"""
        return self._async.is_mapped(pe)

    def notify(self, pe: SupportsIndex) -> None:
        """Wake who waits at that PE, after stores by ``array.on(pe)``."""
        self._async.notify(pe)

    def global_exit(self, status: int = 0) -> NoReturn:
        """End the program: the other ranks' operations raise, here SystemExit."""
        self._async.global_exit(status)

    def close(self) -> None:
        """End the access of this rank; arrays and views stay valid."""
        self._async.close()

    def closed(self) -> bool:
        """True after close(), and when the worker has ended."""
        return self._async.closed()

    def _exit(self, exc: BaseException | None, end: float) -> None:
        """Leave it, as the interpreter ends: what was put reaches the other ranks,
        and nobody is waited for."""
        if self.closed():
            return
        try:
            if exc is None or not ending.is_failure(exc):
                self.quiet(timeout=left(end))
            else:
                self._comm.abort(ending.reason_of(exc), ending.fault_of(exc))
        finally:
            self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close after ``barrier_all()``; after an exception without it."""
        try:
            if exc is None and not self.closed():
                self.barrier_all()
        finally:
            self.close()

    def __repr__(self) -> str:
        return f"<ucp.sync.SymmetricHeap of {self._async!r}>"
