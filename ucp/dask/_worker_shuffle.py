# SPDX-License-Identifier: BSD-3-Clause
"""A shuffle on a worker: what is inserted here, and what comes."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from .._communicator.communicator import Communicator
from .._core.memory import Memory
from .._data.partition import Partitions
from ..exceptions import UCXError
from ..shuffle import Chunk, MemoryCache, Shuffler
from ._loop import LoopThread
from ._tasks import Inserted, Passed, ShuffleSpec

# Partitions a table, to memory that the argument gives for a number of bytes.
Divide = Callable[[Callable[[int], Memory]], Partitions]


class ExtractedError(Exception):
    """The chunks of a partition have been extracted before."""


class Epoch:
    """A communicator of workers.

    Attributes:
        number: its number.
        comm: the communicator.
        runs: those that use it.
    """

    def __init__(self, number: int, comm: Communicator) -> None:
        self.number = number
        self.comm = comm
        self.runs: set[Run] = set()


class Run:
    """What a worker has of a run of a shuffle.

    Args:
        message: what the scheduler says of it.
        epoch: whose communicator it uses.
        cache: from which the memory of inserts comes.
        loop: of the communicator.
        limits: of the shuffler: ``budget`` and ``spill_dir``.
    """

    def __init__(
        self,
        message: dict[str, Any],
        epoch: Epoch,
        cache: MemoryCache,
        loop: LoopThread,
        limits: dict[str, Any],
    ) -> None:
        self.id: int = message["run_id"]
        self.rank = epoch.comm.rank
        self.owners: Sequence[int] = message["owners"]
        self.is_over = False
        self._layouts: dict[int, Any] = {}
        self._epoch = epoch
        self._cache = cache
        self._loop = loop
        num_tables = message["num_tables"]
        self._shuffler = Shuffler(
            epoch.comm,
            self.id,
            num_tables * len(self.owners),
            owners=[*self.owners] * num_tables,
            **limits,
        )
        self._inserted: dict[tuple[int, int], Inserted] = {}
        self._places = [0] * num_tables
        self._is_finished = False
        self._lent: set[_Lent] = set()
        epoch.runs.add(self)

    # In the threads of tasks.

    def insert(
        self,
        spec: ShuffleSpec,
        table: int,
        number: int,
        divide: Divide,
        layout: bytes,
    ) -> Inserted:
        """Partition a table, and insert the partitions.

        Args:
            spec: of the shuffle.
            table: 0, or 1 for the right one of a merge.
            number: that of the partition that is partitioned.
            divide: does so.
            layout: what is told to those who extract it.
        """
        memories: list[Memory] = []

        def allocate(nbytes: int) -> Memory:
            memories.append(self._cache.take(nbytes))
            return memories[-1]

        try:
            partitions = divide(allocate)
        except BaseException:
            self._put(memories)
            raise
        lent = _Lent(memories[0], partitions, self._cache)
        give = functools.partial(self._insert, spec, table, number, lent, layout)
        return self._loop.call(give)

    def extract(self, table: int, partition: int) -> list[Chunk]:
        """Wait for the chunks of a partition, which is this worker's.

        Raises:
            ExtractedError: a task has had them before, whose result is lost.
        """
        number = table * len(self.owners) + partition
        try:
            return self._loop.wait(self._shuffler.extract(number))
        except LookupError:
            raise ExtractedError(f"partition {partition} is extracted again") from None

    def layout(self, passed: Passed, number: int) -> Any:
        """A ``Layout`` by its number in the barrier's result; each is one object."""
        found = self._layouts.get(number)
        if found is None:
            layout = pickle.loads(passed.layouts[number])
            found = self._layouts.setdefault(number, layout)
        return found

    def release(self, chunks: Iterable[Chunk]) -> None:
        """Tell those who have inserted them that nobody reads them any more."""
        self._loop.call_soon(functools.partial(_release, list(chunks)))

    # In the thread of the loop.

    def finish(self) -> int:
        """Say that nothing more is inserted here; how many inserts there were."""
        if not self._is_finished:
            self._is_finished = True
            self._shuffler.insert_finished()
        return len(self._inserted)

    async def end(self, is_complete: bool) -> None:
        """Give back what it has.

        Args:
            is_complete: on every worker; else it is aborted.
        """
        self.is_over = True
        with suppress(UCXError):
            if is_complete:
                await self._shuffler.close()
        if not self._shuffler.closed():
            self._shuffler.abort("the shuffle is over")
        for lent in list(self._lent):
            lent.give_up()
        self._lent.clear()
        self._epoch.runs.discard(self)

    def _insert(
        self, spec: ShuffleSpec, table: int, number: int, lent: _Lent, layout: bytes
    ) -> Inserted:
        found = self._inserted.get((table, number))
        if found is not None:  # a task that ran here before
            lent.give_up(is_read=False)
            return found
        first = table * spec.num_partitions
        partitions = lent.partitions
        assert partitions is not None
        requests: list[Any] = []
        try:
            for partition in spec.partitions:
                region = partitions.buffer(partition)
                requests.append(self._shuffler.insert(first + partition, region))
        except BaseException:  # the run is over
            lent.give_up(is_read=bool(requests))
            raise
        self._lent.add(lent)
        lent.wait(requests, self._lent)
        found = Inserted(self.id, self.rank, table, self._places[table], number, layout)
        self._places[table] += 1
        self._inserted[table, number] = found
        return found

    def _put(self, memories: Iterable[Memory]) -> None:
        for memory in memories:
            self._cache.put(memory)


class _Lent:
    """Memory that owners of partitions read."""

    def __init__(
        self, memory: Memory, partitions: Partitions, cache: MemoryCache
    ) -> None:
        self.partitions: Partitions | None = partitions
        self._memory: Memory | None = memory
        self._cache = cache
        self._num_pending = 0
        self._is_read = False

    def wait(self, requests: Sequence[Any], there: set[_Lent]) -> None:
        """Give it back when all requests are done."""
        self._num_pending = len(requests)
        if not requests:
            self.give_up(is_read=False)
            there.discard(self)
        for request in requests:
            request.add_done_callback(functools.partial(self._done, there))

    def give_up(self, is_read: bool = True) -> None:
        """Give it back, and say whether somebody may read it."""
        memory, self._memory = self._memory, None
        self.partitions = None
        if memory is not None:
            self._cache.put(memory, is_read)

    def _done(self, there: set[_Lent], request: Any) -> None:
        if request.cancelled() or request.exception() is not None:
            self._is_read = True
        self._num_pending -= 1
        if not self._num_pending:
            self.give_up(self._is_read)
            there.discard(self)


def _release(chunks: Iterable[Chunk]) -> None:
    for chunk in chunks:
        with suppress(BufferError):  # a view goes with its last reference
            chunk.release()
