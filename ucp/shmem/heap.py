# SPDX-License-Identifier: BSD-3-Clause
"""Symmetric heaps."""

from __future__ import annotations

from contextlib import suppress
from types import TracebackType
from typing import Any, NoReturn, Self, SupportsIndex

from .. import _ext
from .._communicator.communicator import Communicator
from ..exceptions import UCXError
from .array import Array, SymmetricArray
from .pending import Pending
from .plan import check_free, plan, refusal


def local_of(buffer: Any) -> Any:
    """What a collective operation is given for an array of a heap."""
    return buffer.local if isinstance(buffer, Array) else buffer


def item_of(dest: Array, value: Any) -> Any:
    """``value`` as an item of an array."""
    import numpy

    item = numpy.array(value, dest.dtype)
    if item.shape != ():
        raise ValueError(f"value has the shape {item.shape}, and is not one item")
    return item


class SymmetricHeap(_ext.SymmetricHeap):
    """Memory of every rank, in which all ranks make the same allocations.

        async with await ucp.shmem.SymmetricHeap.create(comm, 1 << 24) as heap:
            x = await heap.zeros(1000, "i8")
            signal = await heap.zeros(1, "u8")
            await heap.put_signal(x, source, pe, signal, 1)
            await signal.wait_until(">=", 1)

    A PE is a rank of the communicator. Every rank calls ``create()`` and each
    allocation, in the same order and with the same arguments. All other calls need no
    call of another rank. Operations that are not awaited one by one have no order;
    ``fence()`` orders them, and ``quiet()`` waits for all of them.
    """

    __slots__ = ("_comm", "_nbi")

    _comm: Communicator
    _nbi: Pending

    @classmethod
    async def create(cls, comm: Communicator, nbytes: SupportsIndex) -> Self:
        """Make a heap of ``nbytes`` on every rank; a collective operation.

        Raises:
            UCXError: the ranks give different sizes, or one cannot allocate: the
                same on every rank.
            UCXRankFailed: a rank has ended, or has cancelled the call.
            UCXTimeout: not all ranks have come in the time that the communicator
                was given for that.
            ValueError: ``nbytes`` is not 1 to 2**46.
        """
        self = cls(comm, nbytes)
        self._comm = comm
        self._nbi = Pending()
        await self._create()
        return self

    @property
    def comm(self) -> Communicator:
        """The communicator."""
        return self._comm

    @property
    def my_pe(self) -> int:
        """This rank."""
        return self._comm.rank

    # ---- allocation ----

    async def _refuse(self, exc: Exception) -> None:
        """Tell the other ranks, who have called the same, of bad arguments."""
        with suppress(UCXError):
            await self._malloc(*refusal(exc))

    async def _allocate(self, method: str, *args: Any) -> tuple[SymmetricArray, Any]:
        try:
            it = plan(self, method, *args)
        except Exception as exc:
            await self._refuse(exc)
            raise
        offset = await self._malloc(*it.wish)
        return SymmetricArray.make(self, offset, it.shape, it.dtype), it.value

    async def empty(
        self, shape: Any, dtype: Any = "f8", *, align: int = 0
    ) -> SymmetricArray:
        """Allocate an array, whose items are anything; a collective operation.

        Args:
            shape: int, or tuple of them; as the rest, the same on every rank.
            dtype: of NumPy.
            align: of the address on every rank, bytes: a power of two up to 65536;
                0: 64.

        Raises:
            UCXError: there is no room, or the ranks give different arguments: on
                every rank the same.
            TypeError, ValueError: the arguments are bad. Ranks whose own are good
                raise UCXError then.
        """
        return (await self._allocate("empty", shape, dtype, align))[0]

    async def zeros(
        self, shape: Any, dtype: Any = "f8", *, align: int = 0
    ) -> SymmetricArray:
        """Allocate an array of zeros; otherwise as ``empty()``."""
        return (await self._allocate("zeros", shape, dtype, align))[0]

    async def full(
        self, shape: Any, value: Any, dtype: Any = "f8", *, align: int = 0
    ) -> SymmetricArray:
        """``empty()`` with ``value``, which no other rank's put comes before."""
        array, values = await self._allocate("full", shape, dtype, align, value)
        array.local[...] = values
        await self.sync_all()
        return array

    async def free(self, array: Any) -> None:  # type: ignore[override]
        """Free an array on all ranks, which all free it; None is nothing.

        Raises:
            UCXError: the ranks free different arrays.
            TypeError, ValueError: it is not an array of this heap, is a part of one, or
                has been freed. Ranks whose own is good raise UCXError then.
        """
        try:
            check_free(self, array)
        except Exception as exc:
            await self._refuse(exc)
            raise
        await super().free(array)
        if array is not None:
            array.is_freed = True

    # ---- one item ----

    def p(
        self, dest: Array, value: Any, pe: SupportsIndex
    ) -> _ext.CoroutineRequest[None]:
        """Write ``value`` to the first item of ``dest`` of that PE; awaitable."""
        return self.put(dest, item_of(dest, value), pe)

    async def g(self, source: Array, pe: SupportsIndex) -> Any:
        """Read the first item of ``source`` of that PE."""
        import numpy

        item = numpy.empty((), source.dtype)
        await self.get(item, source, pe)
        return item[()]

    # ---- without an await ----

    def put_nbi(self, dest: Array, source: Any, pe: SupportsIndex) -> None:
        """Begin a put; ``source`` is in use until ``quiet()``, which raises if it
        fails."""
        self._nbi.add(self.put(dest, source, pe))

    def get_nbi(self, buffer: Any, source: Array, pe: SupportsIndex) -> None:
        """Begin a get; ``buffer`` is filled when ``quiet()`` has ended."""
        self._nbi.add(self.get(buffer, source, pe))

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
        self._nbi.add(self.put_signal(dest, source, pe, signal, value, op))

    async def quiet(self) -> None:  # type: ignore[override]
        """Wait until all operations of this rank can be seen at their PEs.

        If this call is cancelled, the operations go on, and ``quiet()`` may be called
        again.
        """
        await self._nbi.end_all()
        await super().quiet()

    async def barrier_all(self) -> None:  # type: ignore[override]
        """Call ``quiet()``, then wait until every rank has called this."""
        await self._nbi.end_all()
        await super().barrier_all()

    # ---- collective operations: the communicator's ----

    async def broadcast(self, dest: Any, source: Any, root: int) -> None:
        """Copy ``source`` of the root to ``dest`` of every rank."""
        if self.my_pe == root:
            local_of(dest)[...] = local_of(source)
        await self._comm.bcast(local_of(dest), root)

    async def fcollect(self, dest: Any, source: Any) -> None:
        """Collect the ``source`` of every rank in ``dest``.

        The lengths must be the same on all ranks.
        """
        await self._comm.allgather(local_of(source), local_of(dest))

    async def collect(self, dest: Any, source: Any) -> None:
        """Collect the ``source`` of every rank in ``dest``.

        The lengths may differ from rank to rank.
        """
        import numpy

        mine = numpy.array([local_of(source).size], "i8")
        counts = numpy.empty(self.num_pes, "i8")
        await self._comm.allgather(mine, counts)
        await self._comm.allgatherv(
            local_of(source), local_of(dest), [int(count) for count in counts]
        )

    async def alltoall(self, dest: Any, source: Any) -> None:
        """Send part i of ``source`` to rank i.

        Rank i gets it in its ``dest``, as the part with the number of this rank.
        """
        await self._comm.alltoall(local_of(source), local_of(dest))

    async def reduce(self, dest: Any, source: Any, op: Any = "sum") -> None:
        """Combine ``source`` of all ranks in ``dest`` of every rank.

        ``op`` is one of ``Communicator.allreduce()``: "sum", "prod", "min", "max",
        "band" and others.
        """
        await self._comm.allreduce(local_of(source), local_of(dest), op)

    # ---- the rest ----

    def addr_accessible(self, array: object, pe: SupportsIndex) -> bool:
        """Is it an array of this heap, and a PE?"""
        return (
            isinstance(array, Array)
            and array.heap is self
            and self.pe_accessible(pe.__index__())
        )

    def global_exit(self, status: int = 0) -> NoReturn:
        """End the program: the other ranks' operations raise, here SystemExit."""
        self._comm.abort(f"global_exit({status}) of rank {self.my_pe}")
        raise SystemExit(status)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close after ``barrier_all()``; after an exception without it."""
        try:
            if exc is None and not self.closed():
                await self.barrier_all()
        finally:
            self.close()

    def __repr__(self) -> str:
        if self.closed():
            return "<ucp.shmem.SymmetricHeap, closed>"
        return (
            f"<ucp.shmem.SymmetricHeap, PE {self.my_pe} of {self.num_pes}, "
            f"{self.available} of {self.nbytes} bytes are free>"
        )
