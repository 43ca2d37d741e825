# SPDX-License-Identifier: BSD-3-Clause
"""A join on one rank: partition, exchange and join, at the same time."""

from __future__ import annotations

import asyncio
import json
import warnings
from collections import deque
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any

from .._communicator.communicator import Communicator
from .._core.ending import reason_of
from .._core.memory import Memory
from .._data.partition import Partitions, hash_partition_to
from .._ext import Chunk
from .._tables.common import read_chunks, with_common_types, without_rows
from .._tables.exchange import Exchange, Lent, ended, views_one
from .._tables.frames import to_polars, without_nan
from .._tables.options import Memories
from .._tables.parts import Emit
from .._tables.skew import SKEW_ROWS, SKEW_SHARE, frequent_key
from .._tables.spans import Span
from .._tables.stages import Stages
from .._tables.threads import outlast
from ..exceptions import UCXWarning
from ..shuffle import Shuffler
from ._local import PandasJoin, metadata_of_result
from ._plan import SIDES, Plan
from ._statistics import JoinStatistics

AGREE, ROWS, ENDS = (
    int.from_bytes(name, "little") for name in (b"join.say", b"ucp.join", b"join.end")
)

_AHEAD = 2  # partitions that are taken before the one is joined that is joined now


class JoinRun(Exchange):
    """A join on this rank, after the ranks have agreed."""

    def __init__(
        self,
        stages: Stages,
        comm: Communicator,
        plan: Plan,
        seed: int,
        memories: Memories,
        begun: float,
    ) -> None:
        super().__init__("join", comm, memories, begun)
        self._stages = stages
        self._plan = plan
        self._seed = seed
        self._skewed: list[str] = []
        self._nothing: Any = None  # the result of tables without rows
        self._dictionaries: tuple[dict[int, Any], dict[int, Any]] = ({}, {})
        self._complete_at = 0.0  # when the last partition of this rank was complete

    async def run(self, given: tuple[Any, Any]) -> tuple[Any, JoinStatistics]:
        """Join the rows that this rank has; None: it has no table."""
        parts: list[Any] = []

        async def take(part: Any) -> None:
            parts.append(part)

        def concat() -> Any:
            return self._plan.local.concat([self._nothing, *parts])

        result, shuffler = await self._run(given, take, concat)
        local = self._plan.local
        dtypes = local.dtypes(result) if isinstance(local, PandasJoin) else None
        # A rank that failed late has failed on all of them.
        every = await self._stages.tell_all([json.dumps(dtypes).encode()], ENDS)
        if isinstance(local, PandasJoin):
            result = local.with_dtypes(result, [*map(json.loads, every)])
        result = self._as_given(result)
        return result, self._statistics(shuffler, result)

    async def stream(self, given: tuple[Any, Any], emit: Emit) -> None:
        """Join the rows that this rank has, and emit the parts of the result."""
        has_parts = False

        async def take(part: Any) -> None:
            nonlocal has_parts
            if len(part):
                has_parts = True
                await emit(self._as_given(part))

        nothing, _ = await self._run(given, take, lambda: self._nothing)
        await self._stages.tell_all([b"null"], ENDS)
        if not has_parts:
            await emit(self._as_given(nothing))
        self._warn()

    def _as_given(self, result: Any) -> Any:
        """As a frame of polars, if a table was one."""
        import pyarrow as pa

        if not self._plan.gives_polars or not isinstance(result, pa.Table):
            return result
        left, right = (side.schema for side in self._plan.sides)
        return to_polars(result, metadata_of_result(left, right, self._plan.spec))

    async def _run(
        self, given: tuple[Any, Any], take: Emit, end: Callable[[], Any]
    ) -> tuple[Any, Shuffler]:
        """Have the parts taken; then what ``end`` returns."""
        try:
            shuffler, tables = self._begin(given)
            async with shuffler:
                if self._plan.broadcast is None:
                    await self._shuffle(shuffler, tables, take)
                else:
                    await self._broadcast(shuffler, tables, take)
                result = await self._in_thread(end)
                begun = self._now()
                await self._release_held()
                await asyncio.gather(*(one for _, its in self._lent for one in its))
                self._add_span("release", begun)
        finally:
            self._end()
        return result, shuffler

    def _begin(self, given: tuple[Any, Any]) -> tuple[Shuffler, tuple[Any, Any]]:
        """The shuffler, and whole tables."""
        left, right = (
            self._common_table(number, table) for number, table in enumerate(given)
        )
        self._nothing = self._plan.local.join(
            self._empty_table(0), self._empty_table(1), self._plan.spec
        )
        return self._shuffler(), (left, right)

    def _common_table(self, number: int, table: Any) -> Any:
        """The table with the types, and the dictionaries, that all ranks have."""
        has_rows = table is not None and table.num_rows != 0
        was_frame = has_rows and table.schema.pandas_metadata is not None
        table, dictionaries = with_common_types(table, self._plan.sides[number])
        self._dictionaries[number].update(dictionaries)
        local = self._plan.local
        if isinstance(local, PandasJoin) and local.nan_is_null and not was_frame:
            spec = self._plan.spec
            table = without_nan(table, spec.left_on if number == 0 else spec.right_on)
        return table

    def _empty_table(self, number: int) -> Any:
        """A table without rows, with the dictionaries that all ranks have."""
        return without_rows(self._plan.sides[number].schema, self._dictionaries[number])

    def _shuffler(self) -> Shuffler:
        count = self._plan.num_partitions
        sides = 1 if self._plan.broadcast is not None else 2
        return self._stages.make(
            ROWS,
            sides * count,
            owners=[p % count % self._comm.size for p in range(sides * count)],
            budget=self._memories.budget,
            spill_dir=self._memories.spill_dir,
            progress=self._on_progress,
        )

    def _on_progress(self, num_complete: int, num_owned: int) -> None:
        if num_complete == num_owned:
            self._complete_at = self._now()

    # Sending.

    async def _shuffle(
        self, shuffler: Shuffler, tables: tuple[Any, Any], take: Emit
    ) -> None:
        sending = asyncio.ensure_future(self._send(shuffler, tables))
        try:
            await self._join_all(shuffler, take)
        except BaseException as exc:
            shuffler.abort(reason_of(exc))  # and not that sending was cancelled
            raise
        finally:
            sending.cancel()  # unless it has ended
            await ended(sending)

    async def _send(self, shuffler: Shuffler, tables: tuple[Any, Any]) -> None:
        try:
            if self._memories.budget is None:
                await self._send_whole(shuffler, tables)
            else:
                await self._send_pieces(shuffler, tables)
            shuffler.insert_finished()
        except BaseException as exc:
            shuffler.abort(reason_of(exc))  # or who joins waits for ever
            raise

    async def _send_whole(self, shuffler: Shuffler, tables: tuple[Any, Any]) -> None:
        """Both sides of a partition after each other: it can be joined then."""
        count = self._plan.num_partitions
        sides = [
            await self._partition(side, table, count)
            for side, table in enumerate(tables)
            if table.num_rows
        ]
        for p in range(count):
            for parts in sides:
                self._insert(shuffler, parts.side * count + p, p, parts)

    async def _send_pieces(self, shuffler: Shuffler, tables: tuple[Any, Any]) -> None:
        count = self._plan.num_partitions
        for side, table in enumerate(tables):
            for piece in self._pieces(table):
                self._reuse()
                parts = await self._partition(side, piece, count)
                for p in range(count):
                    self._insert(shuffler, side * count + p, p, parts)

    async def _partition(self, side: int, table: Any, count: int) -> Lent:
        spec = self._plan.spec
        on = spec.left_on if side == 0 else spec.right_on

        def partition(allocate: Callable[[int], Memory]) -> Partitions:
            return hash_partition_to(allocate, table, on, count, self._seed)

        return await self._lend(side, partition)

    async def _broadcast(
        self, shuffler: Shuffler, tables: tuple[Any, Any], take: Emit
    ) -> None:
        side = self._plan.broadcast
        assert side is not None
        for piece in self._pieces(tables[side]):
            self._reuse()
            parts = await self._partition(side, piece, 1)
            for rank in range(self._comm.size):
                self._insert(shuffler, rank, 0, parts)
        shuffler.insert_finished()
        begun = self._now()
        chunks = await shuffler.extract(self._comm.rank)
        self._spans.append(Span("exchange", begun, self._complete_at))

        def work() -> Any:
            whole = [tables[0], tables[1]]
            whole[side] = self._read(side, chunks)
            return self._join(whole[0], whole[1], chunks)

        part = await self._work("join", 0, work)
        self._release(chunks)
        await take(part)

    # Receiving.

    async def _join_all(self, shuffler: Shuffler, take: Emit) -> None:
        """Join each partition when both its sides are complete."""
        begun = self._now()
        count = self._plan.num_partitions
        half: dict[int, int] = {}  # partitions with one side, and the other
        joining: deque[asyncio.Future[Any]] = deque()
        try:
            while (number := await _next(shuffler, half, count)) is not None:
                p = number % count
                if p not in half:
                    half[p] = (number + count) % (2 * count)
                    continue
                del half[p]
                if len(joining) >= _AHEAD:
                    await _take_next(joining, take)
                chunks = [await shuffler.extract(side * count + p) for side in range(2)]
                joining.append(asyncio.ensure_future(self._join_one(p, chunks)))
            self._spans.append(Span("exchange", begun, self._complete_at))
            while joining:
                await _take_next(joining, take)
        finally:
            for one in joining:
                one.cancel()
            await outlast(joining)

    async def _join_one(self, partition: int, chunks: list[list[Chunk]]) -> Any:
        """Join a partition; None: nothing comes of it."""
        if _is_empty(self._plan.spec.how, chunks):
            for its in chunks:
                self._release(its)
            return None

        def work() -> Any:
            left, right = (self._read(side, its) for side, its in enumerate(chunks))
            self._look_for_skew(left, right)
            return self._join(left, right, chain(*chunks))

        part = await self._work("join", partition, work)
        for its in chunks:
            self._release(its)
        return part

    def _view_error(self) -> TypeError:
        return TypeError(
            f"the local join, {self._plan.local!r}, keeps a view of the tables that it "
            "was given: it must give copies of what it needs"
        )

    # What the other thread does.

    def _read(self, side: int, chunks: list[Chunk]) -> Any:
        """The table in regions of several ranks."""
        schema = self._plan.sides[side].schema
        return read_chunks(chunks, schema, self._dictionaries[side])

    def _join(self, left: Any, right: Any, chunks: Iterable[Chunk]) -> Any:
        left, right = (
            table.replace_schema_metadata(side.schema.metadata)
            for table, side in zip((left, right), self._plan.sides, strict=True)
        )
        local = self._plan.local
        part = local.join(left, right, self._plan.spec)
        if isinstance(local, PandasJoin) and all(its.rows for its in self._plan.sides):
            part = local.without_categories(part, self._nothing)
        if views_one(part, chunks):
            raise self._view_error()
        return part

    def _look_for_skew(self, left: Any, right: Any) -> None:
        spec = self._plan.spec
        for side, (table, on) in enumerate(
            ((left, spec.left_on), (right, spec.right_on))
        ):
            rows = self._plan.sides[side].rows
            if rows >= SKEW_ROWS and table.num_rows >= SKEW_SHARE * rows:
                found = frequent_key(table.select(list(on)), SKEW_SHARE * rows)
                if found is not None:
                    key, count = found
                    self._skewed.append(
                        f"{count} of {rows} rows of the {SIDES[side]} table have the "
                        f"key {key}, and rank {self._comm.rank} joins them all"
                    )

    def _warn(self) -> None:
        for text in self._skewed:
            warnings.warn(text, UCXWarning, stacklevel=7)  # inner()'s caller

    def _statistics(self, shuffler: Shuffler, result: Any) -> JoinStatistics:
        plan, its = self._plan, shuffler.statistics
        strategy = (
            "shuffle"
            if plan.broadcast is None
            else f"broadcast {SIDES[plan.broadcast]}"
        )
        self._warn()
        return JoinStatistics(
            rank=self._comm.rank,
            strategy=strategy,
            reason=plan.reason,
            over_decomposition=plan.over_decomposition,
            rows=(plan.sides[0].rows, plan.sides[1].rows),
            nbytes=(plan.sides[0].nbytes, plan.sides[1].nbytes),
            result_rows=len(result),
            peers=self._peers(),
            spilled=its.spilled_in + its.spilled_out,
            most_held=its.most_held,
            spans=tuple(sorted(self._spans, key=lambda span: span.begin)),
            skewed=tuple(self._skewed),
            local=type(plan.local).__name__,
        )


async def _take_next(joining: deque[asyncio.Future[Any]], take: Emit) -> None:
    """Have the next part taken; None is not a part."""
    part = await joining.popleft()
    if part is not None:
        await take(part)


async def _next(shuffler: Shuffler, half: dict[int, int], count: int) -> int | None:
    """The next side of a partition that is complete; None: there is no other.

    Sides whose other one is missing are not extracted, so the shuffler cannot know
    that no room will become free: the wait for a missing one says it.
    """
    if not half:
        return await shuffler.wait()
    coming = asyncio.ensure_future(shuffler.wait())
    missing = asyncio.ensure_future(shuffler.wait(next(iter(half.values()))))
    try:
        await asyncio.wait([coming, missing], return_when=asyncio.FIRST_COMPLETED)
        if not coming.done():
            await missing
        return await coming
    finally:
        coming.cancel()
        missing.cancel()
        await asyncio.gather(coming, missing, return_exceptions=True)


def _is_empty(how: str, chunks: list[list[Chunk]]) -> bool:
    """Whether no row can come of a partition."""
    has_left, has_right = map(bool, chunks)
    return {
        "inner": not (has_left and has_right),
        "semi": not (has_left and has_right),
        "left": not has_left,
        "anti": not has_left,
        "right": not has_right,
        "outer": False,
    }[how]
