# SPDX-License-Identifier: BSD-3-Clause
"""What a rank lends to others and views of theirs, and a thread that works on it."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

from .._communicator.communicator import Communicator
from .._core.memory import Memory
from .._data.partition import Partitions
from .._ext import Chunk
from ..shuffle import MemoryCache, Shuffler
from .options import Memories
from .spans import PeerBytes, Span
from .threads import finished, outlast

_LEAST_PIECE = 1 << 20  # bytes of a table that are partitioned at a time
_VIEW_SECONDS = 1.0  # how long chunks may be viewed after their rows were used

_T = TypeVar("_T")


class Lent(NamedTuple):
    """Partitions in memory that peers read, and the inserts of them."""

    side: int  # the number of the table
    partitions: Partitions
    requests: list[Any]


class Exchange:
    """A call on this rank, after the ranks have agreed.

    Args:
        name: of the thread, and of the call in errors.
        comm: the communicator.
        memories: what the call may use.
        begun: when it began.
    """

    def __init__(
        self, name: str, comm: Communicator, memories: Memories, begun: float
    ) -> None:
        self._name = name
        self._comm = comm
        self._memories = memories
        self._zero = time.monotonic()
        self._spans = [Span("agree", begun - self._zero, 0.0)]
        self._cache = memories.cache or MemoryCache()
        self._lent: list[tuple[Memory, list[Any]]] = []
        self._sent: Counter[int] = Counter()
        self._mapped: Counter[int] = Counter()
        self._copied: Counter[int] = Counter()
        self._held: list[Chunk] = []  # that are viewed, after their rows were used
        self._pool = ThreadPoolExecutor(1, f"ucp.{name}")

    def _end(self) -> None:
        """End the thread, and give back what the call has taken."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._give_back()

    # Sending.

    def _pieces(self, table: Any) -> Iterator[Any]:
        """The table; with a budget in pieces of an eighth of it."""
        budget = self._memories.budget
        rows = table.num_rows
        if rows and budget is not None:
            nbytes = max(_LEAST_PIECE, budget // 8)
            step = max(1, rows * nbytes // max(1, table.nbytes))
            for at in range(0, rows, step):
                yield table.slice(at, step)
        elif rows:
            yield table

    async def _lend(
        self, side: int, partition: Callable[[Callable[[int], Memory]], Partitions]
    ) -> Lent:
        """Partition rows in the other thread.

        Args:
            side: the number of their table.
            partition: does it, in memory that it is given a function for.
        """
        taken: list[Memory] = []

        def allocate(nbytes: int) -> Memory:
            memory = self._cache.take(nbytes)
            taken.append(memory)
            return memory

        def give_back(_: object) -> None:
            for memory in taken:
                self._cache.put(memory)

        partitioning = self._submit("partition", None, lambda: partition(allocate))
        try:
            partitions = await finished(partitioning)
        except BaseException:
            # If this was closed, the thread still writes.
            partitioning.add_done_callback(give_back)
            raise
        requests: list[Any] = []
        self._lent += [(memory, requests) for memory in taken]
        return Lent(side, partitions, requests)

    def _insert(
        self, shuffler: Shuffler, number: int, partition: int, parts: Lent
    ) -> None:
        """Insert a partition of ``parts``, if it has rows, as ``number``."""
        if parts.partitions.num_rows(partition) == 0:
            return
        region = parts.partitions.buffer(partition)
        request: Any = shuffler.insert(number, region)
        if request.done():
            request.result()  # what the spill file does not hold is not sent
        parts.requests.append(request)
        self._sent[shuffler.owner(number)] += region.nbytes

    # Receiving.

    def _release(self, chunks: list[Chunk]) -> None:
        for chunk in chunks:
            where = self._mapped if chunk.place == "mapped" else self._copied
            if chunk.place != "own":
                where[chunk.source] += chunk.nbytes
            if not _release_one(chunk):
                self._held.append(chunk)

    async def _release_held(self) -> None:
        """Release what was still viewed; a thread of Arrow's does so for a moment."""
        end = time.monotonic() + _VIEW_SECONDS
        while held := [chunk for chunk in self._held if not _release_one(chunk)]:
            self._held = held
            if time.monotonic() > end:
                # Other ranks would wait for it as long as the program keeps it.
                raise self._view_error()
            await asyncio.sleep(0.01)
        self._held = []

    def _view_error(self) -> TypeError:
        """Of code that has kept a view of chunks."""
        raise NotImplementedError

    # What the other thread does, and when.

    async def _work(
        self, name: str, partition: int | None, work: Callable[[], _T]
    ) -> _T:
        """Run ``work`` in the other thread, and keep when."""
        return await finished(self._submit(name, partition, work))

    def _submit(
        self, name: str, partition: int | None, work: Callable[[], _T]
    ) -> Future[_T]:
        def timed() -> _T:
            begun = self._now()
            try:
                found = work()
            except StopIteration as exc:  # no future takes it
                raise RuntimeError(
                    f"the local {self._name} raised StopIteration"
                ) from exc
            self._spans.append(Span(name, begun, self._now(), partition))
            return found

        return self._pool.submit(timed)

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        return await finished(self._pool.submit(work))

    def _now(self) -> float:
        return time.monotonic() - self._zero

    def _add_span(self, name: str, begun: float) -> None:
        self._spans.append(Span(name, begun, self._now()))

    def _reuse(self) -> None:
        """Give back what no rank reads any more; all partitions were inserted."""
        over = [one for one in self._lent if _is_over(one[1])]
        self._lent = [one for one in self._lent if not _is_over(one[1])]
        for memory, _ in over:
            self._cache.put(memory)

    def _give_back(self) -> None:
        """Memory that no rank reads any more is used again."""
        self._reuse()
        for memory, _ in self._lent:
            self._cache.put(memory, is_read=True)
        self._lent.clear()
        if self._memories.cache is None:
            self._cache.close()

    def _peers(self) -> tuple[PeerBytes, ...]:
        """Bytes to and from each rank."""
        return tuple(
            PeerBytes(
                path.rank,
                path.path,
                self._sent[path.rank],
                self._mapped[path.rank],
                self._copied[path.rank],
            )
            for path in self._comm.explain()
        )


def _release_one(chunk: Chunk) -> bool:
    """False: somebody has a view of it."""
    try:
        chunk.release()
    except BufferError:
        return False
    return True


def _is_over(requests: list[Any]) -> bool:
    """Have all chunks been released?"""
    return all(
        request.done() and not request.cancelled() and request.exception() is None
        for request in requests
    )


async def ended(task: asyncio.Future[None]) -> None:
    """Wait until a task has ended, and raise what it raised, if it did."""
    await outlast([task])
    if not task.cancelled():
        task.result()


def views_one(table: Any, chunks: Iterable[Chunk]) -> bool:
    """Does an Arrow table have memory of a chunk?"""
    import pyarrow as pa

    if not isinstance(table, pa.Table):
        return False
    places = []
    for chunk in chunks:
        view = pa.py_buffer(chunk)
        places.append((view.address, view.address + view.size))
    return any(
        begin <= buffer.address < end
        for column in table.columns
        for array in column.chunks
        for buffer in array.buffers()
        if buffer is not None
        for begin, end in places
    )
