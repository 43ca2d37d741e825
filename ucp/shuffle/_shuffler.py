# SPDX-License-Identifier: BSD-3-Clause
"""The shuffler: chunks of bytes of all ranks come to the owners of partitions."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from operator import index
from os import PathLike
from types import TracebackType
from typing import Any, Self, SupportsIndex

from .. import _ext
from .._communicator.communicator import Communicator
from .._core.ending import reason_of
from .._core.memory import Memory
from .._core.operation import call_if_alive
from .._core.statistics import Statistics

Progress = Callable[[int, int], object]


@dataclass(frozen=True, slots=True)
class ShuffleStatistics(Statistics):
    """Statistics of a shuffler on this rank: ``Shuffler.statistics``.

    Attributes:
        num_inserted: chunks that were inserted here.
        inserted: bytes of these chunks.
        num_received: chunks of this rank's partitions that have come.
        received: bytes of these chunks. The next four numbers are parts of it.
        own: bytes that were inserted here.
        mapped: bytes that are read where another process has them.
        copied: bytes that were copied to memory of this process.
        spilled_in: bytes that were written to the spill file as they came.
        spilled_out: bytes of inserted chunks that were written there.
        held: bytes that the budget counts now.
        most_held: the largest value of ``held`` so far.
        num_owned: partitions of this rank.
        num_complete: partitions of this rank that are complete.
    """

    num_inserted: int
    inserted: int
    num_received: int
    received: int
    own: int
    mapped: int
    copied: int
    spilled_in: int
    spilled_out: int
    held: int
    most_held: int
    num_owned: int
    num_complete: int


class _Submitted(Future[None]):
    """An insert of another thread: ``result()`` waits for it, and so does await."""

    def __await__(self) -> Generator[Any, None, None]:
        return asyncio.wrap_future(self).__await__()


class Shuffler(_ext.Shuffler):
    """A shuffle of all ranks: each chunk comes to the owner of its partition.

        async with ucp.shuffle.Shuffler(comm, 0, num_partitions=16) as shuffler:
            for partition, data in chunks:
                shuffler.insert(partition, data)
            shuffler.insert_finished()
            async for partition in shuffler:
                for chunk in await shuffler.extract(partition):
                    use(chunk)

    Every rank makes a shuffler and inserts chunks into any of the partitions. When a
    rank has inserted its last chunk, it calls ``insert_finished()``. When every rank
    has done so, the owner of a partition extracts the chunks of the partition. Only
    ``wait()``, ``extract()`` and ``close()`` wait for other ranks.

    Bytes of a ``Memory`` are not copied between processes of one host: the chunk
    is a view of that memory. The rank of the memory must not change it until the
    chunk is released. The owner reads other bytes when the budget allows.

    A shuffler fails as a whole, and it fails if its communicator fails: operations
    raise UCXRankFailed then. If a program drops a shuffler before its end, or leaves
    ``async with`` by an exception, the shuffler ends on every rank. A ``close()``
    that has begun keeps the shuffler; an insert that is awaited does not.

    Args:
        comm: the communicator; every rank calls ``Shuffler`` with it.
        op_id: an int from 0 on, of 64 bits. Shufflers of one communicator that exist
            at the same time have different numbers. A number may be used again at
            once: the nth shuffler with this number on one rank belongs to the nth
            on the other ranks.
        num_partitions: 1 to 65535; the same on every rank.
        owners: the rank that owns each partition, the same on every rank; None:
            ``partition % comm.size``.
        budget: bytes of memory. One half is for chunks that were inserted and are
            not released. The other half is for chunks that have come and are not
            extracted; views do not count. Chunks of less than 256 bytes that have
            come count, but always stay in memory. None: no limit.
        peer_credit: bytes that are read from one rank at a time; None: 64 MiB.
        spill_dir: a directory for a file without a name, to which bytes above the
            budget are written. None: inserts are not limited, and chunks of other
            ranks wait until there is room.
        progress: a function that is called whenever a partition of this rank is
            complete, with the number of its complete partitions and the number of
            all its partitions.

    Raises:
        OSError: no file can be made in ``spill_dir``.
        ValueError: a number that makes no sense, which the text names.
        UCXRankFailed: the communicator has failed.
        UCXCloseError: the communicator is closed.
    """

    __slots__ = ("_closing", "_comm", "_last", "_progress", "_submitted", "_thread")

    _closing: _ext.Request[None] | None
    _comm: Communicator
    _last: ShuffleStatistics | None
    _progress: Progress | None
    # Inserts of other threads that have not begun: future, partition, data.
    _submitted: deque[tuple[_Submitted, SupportsIndex, Any]]
    _thread: int  # that of the event loop

    def __new__(
        cls,
        comm: Communicator,
        op_id: SupportsIndex,
        num_partitions: SupportsIndex,
        *,
        owners: Iterable[SupportsIndex] | None = None,
        budget: SupportsIndex | None = None,
        peer_credit: SupportsIndex | None = None,
        spill_dir: str | bytes | PathLike[Any] | None = None,
        progress: Progress | None = None,
    ) -> Self:
        if progress is not None and not callable(progress):
            raise TypeError(f"progress must be callable, not {progress!r}")
        self = super().__new__(
            cls, comm, op_id, num_partitions, owners, budget, peer_credit, spill_dir
        )
        self._closing = None
        self._comm = comm
        self._last = None
        self._progress = progress
        self._submitted = deque()
        self._thread = threading.get_ident()
        if progress is not None:
            self._watch(int(num_partitions))
        return self

    @property
    def comm(self) -> Communicator:
        """The communicator."""
        return self._comm

    @property
    def statistics(self) -> ShuffleStatistics:
        """Counts since the shuffler was made; they stay after ``close()``."""
        if self._last is not None:
            return self._last
        return ShuffleStatistics(**self._statistics)

    def insert(self, partition: SupportsIndex, data: Any) -> Awaitable[None]:
        """Insert a chunk; the operation begins with the call.

        Await the result before the memory is changed or used again: the await ends
        when the owner has released the chunk. There is no other reason to await it.
        The owner reads the chunk where it is. So cancelling does not take the chunk
        back: the await still ends when the owner has released the chunk.

        A call in another thread than the thread of the event loop is submitted to the
        loop, as by ``Worker.submit()``. Calls of one thread begin in their order, and
        before an ``insert_finished()`` or ``close()`` that is called after them. Such
        a call returns a ``concurrent.futures.Future`` that can be awaited, too.

        If there is no room for a chunk on the disk, or no memory, the insert fails.
        Then the next ``insert_finished()`` or ``close()`` fails as well, even if
        nobody has awaited the insert. So no rank takes the other chunks for all
        chunks. Inserting the chunk again does not change that. A program that can go
        on without the shuffle calls ``abort()``.

        Args:
            partition: its number.
            data: bytes, or any contiguous host memory. Memory of a ``Memory`` or a
                ``PoolBuffer`` is best: peers may read it where it is.

        Raises:
            TypeError: ``data`` is memory of a device, or has no memory.
            UCXCloseError: the shuffle was over before the owner released the
                chunk. The owner may still read the memory.
            UCXError: the spill file cannot grow, and nothing was inserted: the
                text names the directory, and ``errno`` says why; or
                ``insert_finished()`` was called for the partition.
            ValueError: there is no such partition.
        """
        if threading.get_ident() != self._thread:
            return self._submit(partition, data)
        self._check_partition(partition)
        request = self._insert(partition, data)
        if request is None:
            request = self._insert(partition, Memory.register(data))
            assert request is not None
        return request

    def insert_finished(self, partition: SupportsIndex | None = None, /) -> None:
        """Say that this rank inserts nothing more into ``partition``.

        Without a partition: into any partition.

        Raises:
            UCXCloseError: the shuffler is closed.
            UCXError: this was called before for the partition. Or an insert has
                failed: the text and ``errno`` say why, and the shuffle ends on every
                rank.
            ValueError: there is no such partition.
        """
        self._begin_submitted()
        super().insert_finished(partition)

    async def wait(self, partition: SupportsIndex | None = None) -> int | None:
        """Wait until a partition of this rank is complete.

        Args:
            partition: number of the partition; None: the next partition that is
                complete. Calls with None return each partition once.

        Returns:
            The number of the partition; None: each partition has been returned.

        Raises:
            UCXError: the budget is used up until other partitions are extracted, and
                there is no spill file, or it cannot grow.
            ValueError: the partition is not this rank's.
        """
        if partition is not None:
            self._check_own(partition)
        return await self._wait(partition)

    async def __aiter__(self) -> AsyncIterator[int]:
        """The partitions of this rank, in the order in which they are complete."""
        while (partition := await self.wait()) is not None:
            yield partition

    async def extract(self, partition: SupportsIndex) -> list[_ext.Chunk]:
        """Take the chunks of a partition of this rank, when it is complete.

        Returns:
            The chunks, in the order of the ranks that have inserted them. Chunks of
            one rank are in the order of ``insert()``. Each chunk is a read-only
            buffer, which stays valid after the end of the shuffler.

        Raises:
            LookupError: the partition has been extracted before.

        Other exceptions are as for ``wait()``.
        """
        await self.wait(index(partition))
        return self._extract(partition)

    async def close(self) -> None:
        """Finish all partitions, and wait for the end of the shuffle.

        The shuffle ends when all chunks of this rank have reached their owners, and
        all partitions of this rank are complete. Chunks that were not extracted are
        dropped. Every call waits for the end. If a call is cancelled, the shuffle
        still ends.

        Raises:
            UCXError: an insert has failed; see ``insert_finished()``.
        """
        if self.closed():
            return
        if self._closing is None:
            self._begin_submitted()
            self._closing = self._close()
        try:
            await asyncio.shield(self._closing)
        finally:
            if self._closing is not None and self._closing.done():
                self._closing = None  # which refers to the shuffler
        if not self.closed():
            self._last = ShuffleStatistics(**self._statistics)
            self.abort()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close; after an exception end it on every rank."""
        if exc is not None:
            self.abort(reason_of(exc))
        await self.close()

    def __repr__(self) -> str:
        if self.closed():
            return "<ucp.shuffle.Shuffler, closed>"
        have = self.statistics
        return (
            f"<ucp.shuffle.Shuffler, rank {self._comm.rank} of {self._comm.size}, "
            f"{have.num_complete} of {have.num_owned} partitions complete>"
        )

    def _submit(self, partition: SupportsIndex, data: Any) -> _Submitted:
        future = _Submitted()
        self._submitted.append((future, partition, data))
        worker: Any = self.worker  # a ucp.Worker
        worker.submit(self._begin_submitted).add_done_callback(self._submitted_or_not)
        return future

    def _submitted_or_not(self, began: Future[None]) -> None:
        if began.cancelled():  # the worker is closed
            while self._submitted:
                self._submitted.popleft()[0].cancel()

    def _begin_submitted(self) -> None:
        while self._submitted:
            future, partition, data = self._submitted.popleft()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                request: Any = self.insert(partition, data)
            except Exception as exc:
                future.set_exception(exc)
            else:
                request.add_done_callback(partial(_hand_over, future))

    def _check_partition(self, partition: SupportsIndex) -> None:
        if not self.closed():
            self.owner(partition)

    def _check_own(self, partition: SupportsIndex) -> None:
        if not self.closed() and self.owner(partition) != self._comm.rank:
            raise ValueError(
                f"partition {int(partition)} is rank {self.owner(partition)}'s, not "
                f"this one's, {self._comm.rank}"
            )

    def _watch(self, num_partitions: int) -> None:
        rank = self._comm.rank
        owned = [i for i in range(num_partitions) if self.owner(i) == rank]
        report = call_if_alive(self._report)  # dropping the shuffler ends it

        def on_done(request: _ext.Request[int | None]) -> None:
            if not request.cancelled() and request.exception() is None:
                report(request)

        for partition in owned:
            self._wait(partition).add_done_callback(on_done)

    def _report(self, _request: _ext.Request[int | None]) -> None:
        if self.closed() and self._last is None:
            return  # aborted before this was called
        have = self.statistics
        assert self._progress is not None
        self._progress(have.num_complete, have.num_owned)


def _hand_over(future: _Submitted, request: Any) -> None:
    """Give the end of an insert to the thread that has submitted it."""
    if request.cancelled():
        future.set_exception(_ext.UCXCanceled("the event loop of the insert has ended"))
    elif (exc := request.exception()) is not None:
        future.set_exception(exc)
    else:
        future.set_result(None)
