# SPDX-License-Identifier: BSD-3-Clause
"""A join on one rank: partition, exchange and join, at the same time."""

from __future__ import annotations

import asyncio
import json
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain
from os import PathLike
from typing import Any, NamedTuple, TypeVar

from .._communicator.communicator import Communicator, reason_of
from .._core.memory import Memory
from .._data.columns import ArrowSchema
from .._data.partition import Partitions, hash_partition_to, read_partition
from .._ext import Chunk
from ..exceptions import UCXWarning
from ..shuffle import MemoryCache, Shuffler
from ._local import PandasJoin
from ._plan import SIDES, Plan
from ._stages import ENDS, ROWS, Stages
from ._statistics import JoinStatistics, PeerBytes, Span
from ._tables import empty_dictionary, to_polars, unify, without_nan

_LEAST_PIECE = 1 << 20  # bytes of a table that are partitioned at a time
_VIEW_SECONDS = 1.0  # how long chunks may be viewed after their rows were joined
_AHEAD = 2  # partitions that are taken before the one is joined that is joined now

# A key is told if one rank has this share of a table's rows for it.
_SKEW_SHARE = 0.25
_SKEW_ROWS = 10_000  # smaller tables are not looked at
_SAMPLE = 1000  # rows of a partition

_T = TypeVar("_T")


class Memories(NamedTuple):
    """What a join may use: arguments of every join."""

    budget: int | None
    spill_dir: str | PathLike[str] | None
    cache: MemoryCache | None


class JoinRun:
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
        self._stages = stages
        self._comm = comm
        self._plan = plan
        self._seed = seed
        self._memories = memories
        self._zero = time.monotonic()
        self._spans = [Span("agree", begun - self._zero, 0.0)]
        self._cache = memories.cache or MemoryCache()
        self._lent: list[tuple[Memory, list[Any]]] = []
        self._sent: Counter[int] = Counter()
        self._mapped: Counter[int] = Counter()
        self._copied: Counter[int] = Counter()
        self._skewed: list[str] = []
        self._dictionaries: tuple[dict[int, Any], dict[int, Any]] = ({}, {})
        self._held: list[Chunk] = []  # that are viewed, after their rows were joined
        self._complete_at = 0.0  # when the last partition of this rank was complete
        self._pool = ThreadPoolExecutor(1, "ucp.join")

    async def run(self, given: tuple[Any, Any]) -> tuple[Any, JoinStatistics]:
        """Join the rows that this rank has; None: it has no table."""
        import pyarrow as pa

        try:
            result, shuffler = await self._run(given)
        finally:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._give_back()
        local = self._plan.local
        dtypes = local.dtypes(result) if isinstance(local, PandasJoin) else None
        # A rank that failed late has failed on all of them.
        every = await self._stages.tell_all([json.dumps(dtypes).encode()], ENDS)
        if isinstance(local, PandasJoin):
            result = local.with_dtypes(result, [*map(json.loads, every)])
        elif self._plan.gives_polars and isinstance(result, pa.Table):
            left, right = (side.schema for side in self._plan.sides)
            result = to_polars(result, left, right, self._plan.spec)
        return result, self._statistics(shuffler, result)

    async def _run(self, given: tuple[Any, Any]) -> tuple[Any, Shuffler]:
        shuffler, tables, nothing = self._begin(given)
        async with shuffler:
            if self._plan.broadcast is None:
                parts = await self._shuffle(shuffler, tables)
            else:
                parts = await self._broadcast(shuffler, tables)
            result = await self._in_thread(lambda: self._concat(nothing, parts))
            begun = self._now()
            await self._release_held()
            await asyncio.gather(*(one for _, its in self._lent for one in its))
            self._add_span("release", begun)
        return result, shuffler

    def _begin(self, given: tuple[Any, Any]) -> tuple[Shuffler, tuple[Any, Any], Any]:
        """The shuffler, whole tables, and the result of tables without rows."""
        left, right = (
            self._common_table(number, table) for number, table in enumerate(given)
        )
        nothing = self._plan.local.join(
            self._empty_table(0), self._empty_table(1), self._plan.spec
        )
        return self._shuffler(), (left, right), nothing

    def _common_table(self, number: int, table: Any) -> Any:
        """The table with the types, and the dictionaries, that all ranks have."""
        import pyarrow as pa

        side = self._plan.sides[number]
        schema = side.schema
        has_rows = table is not None and table.num_rows != 0
        was_frame = has_rows and table.schema.pandas_metadata is not None
        if not has_rows:
            table = schema.empty_table()
        elif table.schema.types != schema.types:
            table = table.cast(schema)
        else:
            table = pa.Table.from_arrays(table.columns, schema=schema)
        for i, values in side.dictionaries.items():
            if not pa.types.is_dictionary(schema.field(i).type):
                continue  # a key that the other table has without
            column, self._dictionaries[number][i] = unify(table[i], values)
            table = table.set_column(i, schema.field(i), column)
        local = self._plan.local
        if isinstance(local, PandasJoin) and local.nan_is_null and not was_frame:
            spec = self._plan.spec
            table = without_nan(table, spec.left_on if number == 0 else spec.right_on)
        return table

    def _empty_table(self, number: int) -> Any:
        """A table without rows, with the dictionaries that all ranks have."""
        schema = self._plan.sides[number].schema
        table = schema.empty_table()
        for i, values in self._dictionaries[number].items():
            field = schema.field(i)
            table = table.set_column(i, field, empty_dictionary(field.type, values))
        return table

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

    async def _shuffle(self, shuffler: Shuffler, tables: tuple[Any, Any]) -> list[Any]:
        sending = asyncio.ensure_future(self._send(shuffler, tables))
        try:
            return await self._join_all(shuffler)
        except BaseException as exc:
            shuffler.abort(reason_of(exc))  # and not that sending was cancelled
            raise
        finally:
            sending.cancel()  # unless it has ended
            await _ended(sending)

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

    async def _partition(self, side: int, table: Any, count: int) -> _Lent:
        spec = self._plan.spec
        on = spec.left_on if side == 0 else spec.right_on
        taken: list[Memory] = []

        def allocate(nbytes: int) -> Memory:
            taken.append(self._cache.take(nbytes))
            return taken[0]

        def work() -> Partitions:
            return hash_partition_to(allocate, table, on, count, self._seed)

        def give_back(_: object) -> None:
            for memory in taken:
                self._cache.put(memory)

        partitioning = self._submit("partition", None, work)
        try:
            partitions = await asyncio.wrap_future(partitioning)
        except BaseException:
            # If this was cancelled, the thread still writes.
            partitioning.add_done_callback(give_back)
            raise
        requests: list[Any] = []
        self._lent += [(memory, requests) for memory in taken]
        return _Lent(side, partitions, requests)

    def _insert(
        self, shuffler: Shuffler, number: int, partition: int, parts: _Lent
    ) -> None:
        if parts.partitions.num_rows(partition) == 0:
            return
        region = parts.partitions.buffer(partition)
        request: Any = shuffler.insert(number, region)
        if request.done():
            request.result()  # what the spill file does not hold is not sent
        parts.requests.append(request)
        self._sent[shuffler.owner(number)] += region.nbytes

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

    async def _broadcast(
        self, shuffler: Shuffler, tables: tuple[Any, Any]
    ) -> list[Any]:
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
        return [part]

    # Receiving.

    async def _join_all(self, shuffler: Shuffler) -> list[Any]:
        """Join each partition when both its sides are complete."""
        begun = self._now()
        count = self._plan.num_partitions
        half: dict[int, int] = {}  # partitions with one side, and the other
        joining: list[asyncio.Future[Any]] = []
        try:
            while (number := await _next(shuffler, half, count)) is not None:
                p = number % count
                if p not in half:
                    half[p] = (number + count) % (2 * count)
                    continue
                del half[p]
                if len(joining) >= _AHEAD:
                    await joining[-_AHEAD]
                chunks = [await shuffler.extract(side * count + p) for side in range(2)]
                joining.append(asyncio.ensure_future(self._join_one(p, chunks)))
            self._spans.append(Span("exchange", begun, self._complete_at))
            return [part for part in await asyncio.gather(*joining) if part is not None]
        finally:
            for one in joining:
                one.cancel()
            await asyncio.gather(*joining, return_exceptions=True)

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
        return TypeError(
            f"the local join, {self._plan.local!r}, keeps a view of the tables that it "
            "was given: it must give copies of what it needs"
        )

    # What the other thread does.

    def _read(self, side: int, chunks: list[Chunk]) -> Any:
        """The table in regions of several ranks."""
        import pyarrow as pa

        its = self._plan.sides[side]
        if not chunks:
            return self._empty_table(side)
        dictionaries = self._dictionaries[side]
        return pa.concat_tables(
            [read_partition(chunk, its.schema, dictionaries) for chunk in chunks]
        )

    def _join(self, left: Any, right: Any, chunks: Iterable[Chunk]) -> Any:
        left, right = (
            table.replace_schema_metadata(side.schema.metadata)
            for table, side in zip((left, right), self._plan.sides, strict=True)
        )
        part = self._plan.local.join(left, right, self._plan.spec)
        if _views_one(part, chunks):
            raise self._view_error()
        return part

    def _look_for_skew(self, left: Any, right: Any) -> None:
        spec = self._plan.spec
        for side, (table, on) in enumerate(
            ((left, spec.left_on), (right, spec.right_on))
        ):
            rows = self._plan.sides[side].rows
            if rows >= _SKEW_ROWS and table.num_rows >= _SKEW_SHARE * rows:
                found = _frequent_key(table.select(list(on)), _SKEW_SHARE * rows)
                if found is not None:
                    key, count = found
                    self._skewed.append(
                        f"{count} of {rows} rows of the {SIDES[side]} table have the "
                        f"key {key}, and rank {self._comm.rank} joins them all"
                    )

    def _concat(self, nothing: Any, parts: list[Any]) -> Any:
        plan = self._plan
        if isinstance(plan.local, PandasJoin) and all(its.rows for its in plan.sides):
            parts = [plan.local.without_categories(part, nothing) for part in parts]
        return plan.local.concat([nothing, *parts])

    # The rest.

    async def _work(
        self, name: str, partition: int | None, work: Callable[[], _T]
    ) -> _T:
        """Run ``work`` in the other thread, and keep when."""
        return await asyncio.wrap_future(self._submit(name, partition, work))

    def _submit(
        self, name: str, partition: int | None, work: Callable[[], _T]
    ) -> Future[_T]:
        def timed() -> _T:
            begun = self._now()
            try:
                found = work()
            except StopIteration as exc:  # no future takes it
                raise RuntimeError("the local join raised StopIteration") from exc
            self._spans.append(Span(name, begun, self._now(), partition))
            return found

        return self._pool.submit(timed)

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        return await asyncio.wrap_future(self._pool.submit(work))

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

    def _statistics(self, shuffler: Shuffler, result: Any) -> JoinStatistics:
        plan, its = self._plan, shuffler.statistics
        strategy = (
            "shuffle"
            if plan.broadcast is None
            else f"broadcast {SIDES[plan.broadcast]}"
        )
        peers = tuple(
            PeerBytes(
                path.rank,
                path.path,
                self._sent[path.rank],
                self._mapped[path.rank],
                self._copied[path.rank],
            )
            for path in self._comm.explain()
        )
        for text in self._skewed:
            warnings.warn(text, UCXWarning, stacklevel=6)  # inner()'s caller
        return JoinStatistics(
            rank=self._comm.rank,
            strategy=strategy,
            reason=plan.reason,
            over_decomposition=plan.over_decomposition,
            rows=(plan.sides[0].rows, plan.sides[1].rows),
            nbytes=(plan.sides[0].nbytes, plan.sides[1].nbytes),
            result_rows=len(result),
            peers=peers,
            spilled=its.spilled_in + its.spilled_out,
            most_held=its.most_held,
            spans=tuple(sorted(self._spans, key=lambda span: span.begin)),
            skewed=tuple(self._skewed),
            local=type(plan.local).__name__,
        )


class _Lent(NamedTuple):
    """Partitions in memory that peers read, and the inserts of them."""

    side: int
    partitions: Partitions
    requests: list[Any]


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


async def _ended(task: asyncio.Future[None]) -> None:
    """Wait until a task has ended, and raise what it raised, if it did."""
    await asyncio.wait([task])
    if not task.cancelled():
        task.result()


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


def _views_one(table: Any, chunks: Iterable[Chunk]) -> bool:
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


def _frequent_key(keys: Any, least: float) -> tuple[str, int] | None:
    """A key that at least as many rows have, and how many."""
    import pyarrow as pa

    try:
        step = max(1, keys.num_rows // _SAMPLE)
        sample = _count_rows(keys.take(list(range(0, keys.num_rows, step))))
        if sample[1] * step < 0.8 * least:
            return None
        row, exact = _count_rows(keys)
    except pa.ArrowException:  # Arrow does not group by every type
        return None
    if exact < least:
        return None
    return ", ".join(_show(column[0]) for column in row.columns), exact


def _count_rows(keys: Any) -> tuple[Any, int]:
    """The most frequent row, as a table, and how many there are of it."""
    names = [str(number) for number in range(keys.num_columns)]
    groups = keys.rename_columns(names).group_by(names, use_threads=False)
    counts = groups.aggregate([([], "count_all")])
    most = counts.sort_by([("count_all", "descending")]).slice(0, 1)
    return most.select(names), most["count_all"][0].as_py()


def _show(value: Any) -> str:
    try:
        return repr(value.as_py())
    except Exception:  # Python has no such date, or the string is no UTF-8
        return f"of type {value.type}"


def check_columns(table: Any, side: str) -> None:
    """Refuse columns that cannot be moved.

    Raises:
        TypeError: the name and the type of one.
    """
    try:
        ArrowSchema(table.schema, {}).shapes()
    except TypeError as error:
        raise TypeError(f"{side} table: {error}") from None
