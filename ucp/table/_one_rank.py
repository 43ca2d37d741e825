# SPDX-License-Identifier: BSD-3-Clause
"""An operation on one rank: partition, exchange and finish, at the same time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from .._communicator.communicator import Communicator
from .._core.ending import reason_of
from .._ext import Chunk
from .._tables.common import read_chunks
from .._tables.exchange import Exchange, Lent, ended, views_one
from .._tables.options import Memories
from .._tables.parts import Emit
from .._tables.skew import SKEW_ROWS, SKEW_SHARE, frequent_key
from .._tables.stages import Stages
from .._tables.threads import outlast
from ..shuffle import Shuffler
from ._jobs import Job

AGREE, SAMPLE, ROWS, ENDS = (
    int.from_bytes(name, "little")
    for name in (b"tab.say", b"tab.smp", b"ucp.tab", b"tab.end")
)

Progress = Callable[[int, int], object]

_AHEAD = 2  # partitions that are finished, or wait for it, at a time


class TableRun(Exchange):
    """An operation on this rank, after the ranks have agreed.

    Args:
        rows: of the table on all ranks.
        progress: called with the partitions that are finished, and all of this rank.
    """

    def __init__(
        self,
        stages: Stages,
        comm: Communicator,
        job: Job,
        memories: Memories,
        begun: float,
        rows: int,
        progress: Progress | None,
    ) -> None:
        super().__init__(job.name, comm, memories, begun)
        self._stages = stages
        self._job = job
        self._rows = rows
        self._progress = progress
        self.skewed: list[str] = []

    async def run(self, table: Any, emit: Emit) -> None:
        """Do it with the rows that this rank has, and emit the parts of the result."""
        try:
            await self._run(table, emit)
        finally:
            self._end()
        # A rank that failed late has failed on all of them.
        await self._stages.tell_all([b"end"], ENDS)

    async def _run(self, table: Any, emit: Emit) -> None:
        job = self._job
        shuffler = self._stages.make(
            ROWS,
            len(job.owners),
            owners=job.owners,
            budget=self._memories.budget,
            spill_dir=self._memories.spill_dir,
        )
        async with shuffler:
            sending = asyncio.ensure_future(self._send(shuffler, table))
            try:
                await self._receive(shuffler, emit)
                await sending  # of a rank that has no partitions
            except BaseException as exc:
                shuffler.abort(reason_of(exc))  # and not that sending was cancelled
                raise
            finally:
                sending.cancel()  # unless it has ended
                await ended(sending)
            await self._release_held()
            await asyncio.gather(*(one for _, its in self._lent for one in its))

    # Sending.

    async def _send(self, shuffler: Shuffler, table: Any) -> None:
        job = self._job
        try:
            table = await self._work("prepare", None, lambda: job.prepare(table))
            for target, part in job.targets(table):
                for piece in self._pieces(part):
                    self._reuse()
                    lent = await self._partition(piece, target)
                    for number in range(lent.partitions.num_partitions):
                        to = number if target is None else target
                        self._insert(shuffler, to, number, lent)
            shuffler.insert_finished()
        except BaseException as exc:
            shuffler.abort(reason_of(exc))  # or who receives waits for ever
            raise

    async def _partition(self, piece: Any, target: int | None) -> Lent:
        return await self._lend(
            0, lambda allocate: self._job.partition(allocate, piece, target)
        )

    # Receiving.

    async def _receive(self, shuffler: Shuffler, emit: Emit) -> None:
        """Finish each partition when it is complete, and emit it in its turn."""
        rank = self._comm.rank
        owned = [p for p, owner in enumerate(self._job.owners) if owner == rank]
        turns = deque(owned)
        finishing: dict[int, asyncio.Future[Any]] = {}
        num_done = 0

        async def finish(number: int, chunks: list[Chunk]) -> Any:
            nonlocal num_done
            part = await self._finish(number, chunks)
            num_done += 1
            if self._progress is not None:
                self._progress(num_done, len(owned))
            return part

        async def emit_ready(is_last: bool) -> None:
            while finishing:
                number = turns[0] if self._job.is_ordered else next(iter(finishing))
                if number not in finishing:
                    return
                if not is_last and not finishing[number].done():
                    return
                part = await finishing.pop(number)
                turns.remove(number)
                if part is not None and part.num_rows:
                    await emit(part)

        try:
            async for number in shuffler:
                under_way = [one for one in finishing.values() if not one.done()]
                if len(under_way) >= _AHEAD:
                    await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
                chunks = await shuffler.extract(number)
                finishing[number] = asyncio.ensure_future(finish(number, chunks))
                await emit_ready(False)
            await emit_ready(True)
        finally:
            for one in finishing.values():
                one.cancel()
            await outlast(finishing.values())

    async def _finish(self, number: int, chunks: list[Chunk]) -> Any:
        """A part of the result; None: it has no rows."""
        if not chunks:
            return None
        job = self._job

        def work() -> Any:
            table = job.restore(read_chunks(chunks, job.schema, job.dictionaries))
            self._look_for_skew(table)
            part = job.finish(table)
            if views_one(part, chunks):
                raise self._view_error()
            return part

        part = await self._work(job.name, number, work)
        self._release(chunks)
        return part

    def _view_error(self) -> TypeError:
        return TypeError(f"a part of {self._job.name} is a view of chunks")

    def _look_for_skew(self, table: Any) -> None:
        least = SKEW_SHARE * self._rows
        keys = list(self._job.keys)
        if not keys or self._rows < SKEW_ROWS or table.num_rows < least:
            return
        found = frequent_key(table.select(keys), least)
        if found is not None:
            key, count = found
            self.skewed.append(
                f"{count} of {self._rows} rows have the key {key}, and rank "
                f"{self._comm.rank} gets them all"
            )
