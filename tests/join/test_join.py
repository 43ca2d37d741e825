# SPDX-License-Identifier: BSD-3-Clause
# tests: ucp/begun ucp/calls ucp/common ucp/exchange ucp/local ucp/memory_cache
# tests: ucp/options ucp/plan ucp/schemas ucp/skew ucp/spans ucp/stages ucp/statistics
# tests: ucp/tables
"""``ucp.join``: tables whose rows are on many ranks."""

import asyncio
import contextlib
import decimal
import functools
import gc
import itertools
import json
import os
import random
import re
import subprocess
import sys
import threading

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pairs import pairwise
from paths import EXAMPLES
from worlds import LIMIT, Ranks, good_world, world

import ucp
import ucp.join
import ucp.join._one_rank
from ucp.join import ArrowJoin, JoinSpec
from ucp.join._plan import choose_over_decomposition, choose_side, common_type
from ucp.shuffle import MemoryCache
from ucp.testing import live_objects, until

HOWS = ("inner", "left", "right", "outer", "semi", "anti")
SCHEMAS = int(os.environ.get("UCP_JOIN_SCHEMAS", 60))


def rows_of(table):
    """The rows as a multiset, whatever the order of rows and columns."""
    return sorted(repr(sorted(row.items())) for row in table.to_pylist())


def expected(how, left, right, spec=(("k",), ("k",)), suffixes=("_x", "_y")):
    return ArrowJoin().join(left, right, JoinSpec(how, *spec, suffixes))


async def join(comm, how, left, right, /, **options):
    options = {"on": "k", **options}
    return await getattr(ucp.join, how)(left, right, comm=comm, **options)


# --- results ------------------------------------------------------------------


def keys(shape, rank, rng, count):
    numbers = {
        "unique": lambda: rng.permutation(count) + 1000 * rank,
        "duplicate": lambda: rng.integers(0, 30, count),
        "skewed": lambda: np.where(
            rng.random(count) < 0.5, 7, rng.integers(99, size=count)
        ),
        "null": lambda: rng.integers(0, 30, count),
        "string": lambda: rng.integers(0, 60, count),
        "dictionary": lambda: rng.integers(0, 20 + 5 * rank, count),
    }[shape]().tolist()
    if shape == "null":
        return pa.array([n if n % 3 else None for n in numbers], pa.int64())
    if shape in ("string", "dictionary"):
        array = pa.array(["x" * (n % 9) + str(n) for n in numbers], pa.string())
        return array.dictionary_encode() if shape == "dictionary" else array
    return pa.array(numbers, pa.int64())


def table_of(shape, rank, seed, names):
    """Up to 200 rows, whose other columns tell which they are."""
    rng = np.random.default_rng([seed, rank, len(names[0])])
    count = int(rng.choice([0, 1, 50, 200]))
    return pa.table(
        {
            "k": keys(shape, rank, rng, count),
            names[0]: pa.array(range(rank * 1000, rank * 1000 + count), pa.int64()),
            names[1]: keys("dictionary", rank, rng, count),
        }
    )


def both_of(shape, rank, seed, empty):
    """The two tables of a rank; ``empty`` says which rows are missing."""
    left = table_of(shape, rank, seed, ("a", "s"))
    right = table_of(shape, rank, seed, ("bb", "tt"))
    if empty == "left" or (empty == "rank" and rank == 0):
        left = left.slice(0, 0)
    if empty == "right" or (empty == "rank" and rank == 0):
        right = right.slice(0, 0)
    if empty == "none":
        left = None if rank == 1 else left
        right = None if rank == 1 else right
    return left, right


def whole(tables):
    return pa.concat_tables([t for t in tables if t is not None]).unify_dictionaries()


def test_keys_of_extension_types_are_joined_as_their_storage():
    def tables(kind):
        left = pa.array([b"1" * 16, b"2" * 16, None], pa.binary(16))
        right = pa.array([b"2" * 16, b"3" * 16], pa.binary(16))
        if kind == pa.uuid():
            left, right = (
                pa.ExtensionArray.from_storage(kind, k) for k in (left, right)
            )
        return pa.table({"k": left, "a": [1, 2, 3]}), pa.table(
            {"k": right, "b": [4, 5]}
        )

    async def main(comm):
        parts = []
        for how in HOWS:
            for kind in (pa.uuid(), pa.binary(16)):
                table = (await join(comm, how, *tables(kind))).table
                assert table.schema.field("k").type == kind
                keys = [getattr(key, "bytes", key) for key in table["k"].to_pylist()]
                rows = zip(keys, *table.to_pydict().values(), strict=True)
                parts.append([[key, *others] for key, _, *others in rows])
        return parts

    found = [first + second for first, second in zip(*good_world(2, main), strict=True)]
    assert [*map(len, found[::2])] == [4, 8, 6, 10, 2, 4]
    for own, storage in zip(found[::2], found[1::2], strict=True):
        assert sorted(map(repr, own)) == sorted(map(repr, storage))


SIZES = range(1, 6)


# Some joins cannot be made by a broadcast, and ranks without a table need another.
def is_possible(size, _shape, how, _pieces, empty):
    return how != ("outer", "broadcast") and (empty, size) != ("none", 1)


@functools.cache
def cases_of_joins():
    """Each kind of join by each strategy meets each value of the other parameters."""
    return pairwise(
        SIZES,
        ["unique", "duplicate", "skewed", "null", "string", "dictionary"],
        list(itertools.product(HOWS, ["shuffle", "broadcast", "auto"])),
        [None, 1, 2, 3, 8],
        ["nothing", "left", "right", "rank", "none"],
        allowed=is_possible,
    )


@pytest.mark.parametrize("size", SIZES)
def test_rows_are_those_of_one_process(size):
    cases = [case for case in enumerate(cases_of_joins()) if case[1][0] == size]

    async def main(comm):
        ends = []
        for seed, (_, shape, (how, strategy), pieces, empty) in cases:
            left, right = both_of(shape, comm.rank, seed, empty)
            options = {"strategy": strategy, "over_decomposition": pieces}
            found = await join(comm, how, left, right, seed=seed, **options)
            ends.append((left, right, found.table))
        return ends

    for case, *ends in zip(cases, *good_world(size, main), strict=True):
        _, (_, shape, (how, _), _, _) = case
        lefts, rights, found = zip(*ends, strict=True)
        left, right = whole(lefts), whole(rights)
        left, right = (
            t.set_column(0, "k", t["k"].cast(pa.string()))
            if shape == "dictionary"
            else t
            for t in (left, right)
        )
        assert rows_of(whole(found)) == rows_of(expected(how, left, right)), case


COLUMNS = [
    (pa.int8(), lambda r: r.randrange(-9, 9)),
    (pa.uint16(), lambda r: r.randrange(9)),
    (pa.int32(), lambda r: r.randrange(-9, 9)),
    (pa.int64(), lambda r: r.randrange(-9, 9)),
    (pa.uint64(), lambda r: 2**64 - 1 - r.randrange(9)),
    (pa.float32(), lambda r: r.choice([0.5, 1.5, 2.5])),
    (pa.float64(), lambda r: r.choice([0.5, 1.5, float("inf")])),
    (pa.bool_(), lambda r: r.random() < 0.5),
    (pa.string(), lambda r: "é" * r.randrange(5)),
    (pa.large_string(), lambda r: "x" * r.randrange(5)),
    (pa.binary(), lambda r: b"y" * r.randrange(5)),
    (pa.binary(3), lambda r: r.choice([b"abc", b"abd"])),
    (pa.decimal128(20, 2), lambda r: decimal.Decimal(r.randrange(9)) / 4),
    (pa.decimal256(50, 2), lambda r: decimal.Decimal(r.randrange(9)) / 4),
    (pa.date32(), lambda r: r.randrange(9)),
    (pa.timestamp("us", "UTC"), lambda r: r.randrange(9)),
    (pa.duration("ns"), lambda r: r.randrange(9)),
    (pa.dictionary(pa.int8(), pa.string()), lambda r: "z" * r.randrange(5)),
]


def random_schema(rng):
    count = rng.randrange(1, 5)
    left = [rng.randrange(len(COLUMNS)) for _ in range(count)]
    keys = rng.sample(range(count), rng.randrange(1, count + 1))
    others = [rng.randrange(len(COLUMNS)) for _ in range(rng.randrange(3))]
    names = [f"k{n}" if n in keys else f"v{n}" for n in range(count)]
    right = [(f"k{n}", left[n]) for n in keys]
    right += [(f"w{n}", kind) for n, kind in enumerate(others)]
    rng.shuffle(right)
    return [list(zip(names, left, strict=True)), right], [f"k{n}" for n in keys]


def random_table(columns, rng):
    count = rng.choice([0, 1, 7, 40])
    return pa.table(
        {
            name: pa.array(
                [
                    None if rng.random() < 0.1 else COLUMNS[kind][1](rng)
                    for _ in range(count)
                ],
                COLUMNS[kind][0],
            )
            for name, kind in columns
        }
    )


def plain(table):
    """Without dictionaries: they are the ranks' own."""
    for n, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            table = table.set_column(
                n, field.name, table.column(n).cast(field.type.value_type)
            )
    return table


@pytest.mark.timeout(60 + SCHEMAS)
def test_random_schemas():
    cases = range(SCHEMAS)

    async def main(comm):
        ends = []
        for case in cases:
            rng = random.Random(f"schema {case}")
            columns, on = random_schema(rng)
            how, strategy = rng.choice(HOWS), rng.choice(["auto", "shuffle"])
            mine = random.Random(f"{case} {comm.rank}")
            tables = [random_table(side, mine) for side in columns]
            found = await join(comm, how, *tables, on=on, strategy=strategy)
            ends.append((how, on, *tables, found.table))
        return ends

    for case, *ends in zip(cases, *good_world(3, main), strict=True):
        left, right, found = (plain(whole([end[n] for end in ends])) for n in (2, 3, 4))
        how, on = ends[0][:2]
        should_be = expected(how, left, right, (on, on))
        assert rows_of(found) == rows_of(should_be), case
        assert found.schema.names == should_be.schema.names


def test_names_suffixes_and_types():
    async def main(comm):
        left = pa.table({"id": pa.array([1, 2, 3], pa.int16()), "v": [1, 2, 3]})
        right = pa.table(
            {"key": pa.array([2, 3, 4], pa.int64()), "v": [4, 5, 6], "id": [7, 8, 9]}
        )
        if comm.rank:
            left = right = None
        options = {"on": None, "left_on": "id", "right_on": "key"}
        found = await join(comm, "outer", left, right, suffixes=("", "_r"), **options)
        return found.table

    found = whole(good_world(2, main))
    assert found.schema.names == ["id", "v", "v_r", "id_r"]
    assert found.schema.field("id").type == pa.int64()
    assert sorted(found["id"].to_pylist()) == [1, 2, 3, 4]


def test_keys_without_a_name():
    async def main(comm):
        left, right = pa.table({"": [1]}), pa.table({"y": [1], "b": [2]})
        if comm.rank:
            left = right = None
        options = {"on": None, "left_on": "", "right_on": "y"}
        return (await join(comm, "inner", left, right, **options)).table

    assert whole(good_world(2, main)).to_pydict() == {"": [1], "b": [2]}


KEY_TYPES = {
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), pa.large_string(), "x"),
    "dictionaries": (
        pa.dictionary(pa.int8(), pa.string()),
        pa.dictionary(pa.int32(), pa.large_string()),
        "x",
    ),
    "no value": (pa.null(), pa.dictionary(pa.int8(), pa.string()), None),
    "decimal": (pa.decimal256(5, 2), pa.decimal128(38, 2), decimal.Decimal("1.25")),
}


@pytest.mark.parametrize("case", KEY_TYPES)
def test_keys_of_two_types(case):
    *kinds, value = KEY_TYPES[case]

    async def main(comm):
        left, right = (pa.table({"k": pa.array([value], kind)}) for kind in kinds)
        if case == "decimal":
            large = pa.table({"k": pa.array([decimal.Decimal(10**30)], kinds[1])})
            right = pa.concat_tables([right, large])
        if comm.rank:
            left = right = None
        return (await join(comm, "inner", left, right)).table

    found = pa.concat_tables(good_world(2, main))
    assert found["k"].to_pylist() == ([] if value is None else [value])


def test_all_inputs_are_taken():
    class Stream:
        def __init__(self, table):
            self.__arrow_c_stream__ = table.__arrow_c_stream__

    left = {"k": np.arange(5), "a": np.arange(5)}
    right = pa.table({"k": range(3, 8), "b": range(5)})
    kinds = [right, right.to_batches()[0], Stream(right), pa.table(right)]

    async def main(comm):
        found = []
        for kind in kinds:
            found.append((await join(comm, "inner", left, kind)).table)
        return found

    (found,) = good_world(1, main)
    for table in found:
        assert rows_of(table) == rows_of(expected("inner", pa.table(left), right))


# --- local joins --------------------------------------------------------------


@pytest.mark.parametrize("how", HOWS)
def test_frames_are_joined_by_pandas(how):
    frames = [
        pd.DataFrame({"k": [1.0, 2, None, 2], "v": [1, 2, 3, 4]}),
        pd.DataFrame({"k": [2.0, None, 5], "v": [5, 6, 7]}),
    ]

    async def main(comm):
        left, right = frames if comm.rank == 0 else (None, None)
        found = await join(comm, how, left, right, strategy="shuffle")
        assert isinstance(found.table, pd.DataFrame)
        return found.table

    found = pd.concat(good_world(3, main), ignore_index=True)
    left, right = frames
    if how in ("semi", "anti"):
        is_there = left["k"].isin(right["k"])
        should_be = left[is_there if how == "semi" else ~is_there]
    else:
        should_be = left.merge(right, on="k", how=how)
    columns = list(should_be.columns)
    assert list(found.columns) == columns
    pd.testing.assert_frame_equal(
        found.sort_values(columns, ignore_index=True),
        should_be.sort_values(columns, ignore_index=True),
        check_dtype=False,
    )


def test_frames_are_no_views_of_other_ranks():
    """Or those would wait for as long as this one keeps the result."""
    frame = pd.DataFrame({"k": [str(n) for n in range(5000)]})

    async def main(comm):
        mine = frame if comm.rank == 0 else None
        found = await join(comm, "inner", mine, mine, strategy="shuffle")
        await comm.barrier()
        return found.table

    found = pd.concat(good_world(2, main))
    assert sorted(found["k"]) == sorted(frame["k"])


@pytest.mark.parametrize("how", ["inner", "semi"])
def test_large_integers_with_nulls_stay_integers(how):
    frame = pd.DataFrame({"k": pd.array([2**53, 2**53 + 1, None], "Int64")})

    async def main(comm):
        mine = (frame, frame[1:]) if comm.rank == 0 else (None, None)
        return (await join(comm, how, *mine, strategy="shuffle")).table

    found = pd.concat(good_world(2, main))
    assert sorted(found["k"].dropna()) == [2**53 + 1]


def test_local_join_that_keeps_views_is_refused():
    class Keeps(ArrowJoin):
        def join(self, left, right, spec):
            return left

    async def main(comm):
        table = pa.table({"k": np.arange(1000)})
        await join(comm, "inner", table, table, local=Keeps(), strategy="shuffle")

    for end in world(2, main):
        assert isinstance(end, (TypeError, ucp.exceptions.UCXRankFailed)), end
    assert any("keeps a view" in str(end) for end in world(2, main))


def test_a_result_that_keeps_views_is_refused():
    """What it is cannot be seen, but that it views what other ranks have."""

    class Kept:
        def __init__(self, tables):
            self.tables = tables

        def __len__(self):
            return sum(table.num_rows for table in self.tables)

    class Keeps:
        def join(self, left, right, spec):
            return Kept([left])

        def concat(self, parts):
            return Kept([table for part in parts for table in part.tables])

    async def main(comm):
        table = pa.table({"k": np.arange(100_000)})
        with pytest.raises((TypeError, ucp.exceptions.UCXRankFailed)) as caught:
            await join(comm, "inner", table, table, local=Keeps())
        await comm.barrier()
        return str(caught.value)

    assert any("keeps a view" in text for text in good_world(2, main))


# --- memory -------------------------------------------------------------------


def segments_of(pids):
    """System V segments that one of the processes has made, whoever uses them."""
    with open("/proc/sysvipc/shm") as table:
        rows = [line.split() for line in list(table)[1:]]
    return [row for row in rows if int(row[4]) in pids]


def big_table(comm, name, count=100_000):
    rng = np.random.default_rng([comm.rank, len(name)])
    return pa.table(
        {"k": rng.integers(0, 300_000, count), name: rng.integers(99, size=count)}
    )


def test_what_the_budget_does_not_hold_is_spilled(tmp_path):
    async def main(comm):
        left, right = big_table(comm, "a"), big_table(comm, "bb")
        small = {"budget": 1_000_000, "spill_dir": tmp_path, "over_decomposition": 4}
        found = await join(comm, "inner", left, right, strategy="shuffle", **small)
        return left, right, found

    ends = good_world(2, main)
    left, right = (whole([end[n] for end in ends]) for n in range(2))
    found = whole([end[2].table for end in ends])
    assert found.num_rows == expected("inner", left, right).num_rows
    assert found.sort_by("k")["k"].equals(
        expected("inner", left, right).sort_by("k")["k"]
    )
    for *_, its in (end[2] for end in ends):
        assert its.spilled > 1_000_000
        assert its.most_held <= 1_000_000
    assert not any(tmp_path.iterdir())


def test_a_copy_of_the_tables_is_never_in_memory(tmp_path):
    class Looks(ArrowJoin):
        def join(self, left, right, spec):
            rows = segments_of([os.getpid()])
            if left.num_rows:
                seen.append(sum(int(row[3]) for row in rows))
            return super().join(left, right, spec)

    seen = []

    async def main(comm):
        table = pa.table({"k": np.arange(1_000_000)})
        small = {"budget": 2_000_000, "spill_dir": tmp_path, "over_decomposition": 4}
        options = {"local": Looks(), "strategy": "shuffle", **small}
        before = sum(int(row[3]) for row in segments_of([os.getpid()]))
        await join(comm, "inner", table, table, **options)
        return before

    before = max(good_world(2, main))
    assert seen and max(seen) - before < 16_000_000  # of 32 MB


def test_the_smallest_budget_is_enough(tmp_path):
    async def main(comm):
        left, right = big_table(comm, "a"), big_table(comm, "bb")
        found = await join(
            comm, "inner", left, right, budget=1, spill_dir=tmp_path, strategy="shuffle"
        )
        return left, right, found.table

    left, right, found = map(whole, zip(*good_world(2, main), strict=True))
    assert found.num_rows == expected("inner", left, right).num_rows


def test_memory_is_not_given_back_while_it_is_written(monkeypatch):
    is_inside, may_go = threading.Event(), threading.Event()
    partition = ucp.join._one_rank.hash_partition_to

    def slow(allocate, *args):
        def give(nbytes):
            memory = allocate(nbytes)
            is_inside.set()
            assert may_go.wait(LIMIT)
            return memory

        return partition(give, *args)

    monkeypatch.setattr(ucp.join._one_rank, "hash_partition_to", slow)

    async def main(comm):
        with MemoryCache() as cache:
            task = asyncio.ensure_future(
                join(comm, "inner", LEFT, RIGHT, strategy="shuffle", cache=cache)
            )
            await asyncio.to_thread(is_inside.wait, LIMIT)
            task.cancel()
            done, _ = await asyncio.wait([task], timeout=0.02)
            assert not done and cache.free == 0 and cache.taken != 0
            may_go.set()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert cache.free != 0 and cache.taken == 0

    good_world(1, main)


def test_a_cache_gives_its_memory_again():
    async def main(comm):
        with MemoryCache() as cache:
            taken = set()
            for _ in range(4):
                left, right = big_table(comm, "a"), big_table(comm, "bb")
                await join(comm, "inner", left, right, cache=cache, strategy="shuffle")
                assert cache.taken == 0
                taken.add(cache.free)
            return taken

    for taken in good_world(2, main):
        assert len(taken) == 1 and 0 not in taken


def test_a_cache_may_have_its_old_name():
    async def main(comm):
        with pytest.deprecated_call(match=r"^ucp.shuffle.Store is ucp.*MemoryCache"):
            old = ucp.shuffle.Store
        assert old is MemoryCache
        with old() as cache:
            with pytest.deprecated_call(match="^store= of a join is cache=") as caught:
                await join(comm, "inner", LEFT, RIGHT, strategy="shuffle", store=cache)
            assert cache.free != 0
            with pytest.raises(TypeError, match=r"^rank 0: give cache, not store"):
                await join(comm, "inner", LEFT, RIGHT, store=cache, cache=cache)
        return [warning.filename for warning in caught]

    assert good_world(1, main) == [[__file__]]


def test_cache():
    cache = MemoryCache(keep=4 << 20)
    first = cache.take(3 << 20)
    assert cache.taken == first.nbytes == 3 << 20
    cache.put(first)
    assert (cache.taken, cache.free) == (0, 3 << 20)
    assert cache.take(2 << 20) is first
    second, read = cache.take(1 << 20), cache.take(1)
    cache.put(second)
    cache.put(read, is_read=True)
    assert cache.free == 1 << 20
    cache.put(first)
    assert cache.free <= 4 << 20
    with pytest.raises(ValueError, match="nbytes is -1"):
        cache.take(-1)
    with pytest.raises(ValueError, match="keep is -1"):
        MemoryCache(keep=-1)
    cache.close()
    assert cache.free == 0
    with pytest.raises(ValueError, match="closed"):
        cache.take(1)


def test_nothing_grows():
    async def main(comm):
        async def some(count):
            for n in range(count):
                how = HOWS[n % 6]
                left, right = both_of("duplicate", comm.rank, n, "nothing")
                await join(comm, how, left, right)
            await comm.barrier()

        def counts():
            gc.collect()
            fds = len(os.listdir("/proc/self/fd"))
            return live_objects(), fds, len(segments_of([os.getpid()]))

        def is_no_more_than(before):
            objects, fds, segments = counts()
            # The other rank may be in an operation.
            spare = {"requests": 2}
            return (
                all(objects[k] <= before[0][k] + spare.get(k, 0) for k in objects)
                and fds <= before[1] + 3
                and segments <= before[2] + 2
            )

        await some(12)
        before = counts()
        await comm.barrier()
        await some(60)
        await until(lambda: is_no_more_than(before))
        await comm.barrier()

    good_world(2, main)


# --- what is told -------------------------------------------------------------


def test_statistics_say_what_was_done():
    async def main(comm):
        left, right = big_table(comm, "a"), big_table(comm, "bb")
        found = await join(
            comm, "inner", left, right, over_decomposition=4, strategy="shuffle"
        )
        every = await ucp.join.gather_statistics(comm, found.statistics)
        assert every[comm.rank] == found.statistics
        assert found.statistics.result_rows == found.table.num_rows
        return every

    every = good_world(2, main)
    assert every[0] == every[1]
    for its in every[0]:
        assert its.strategy == "shuffle" and its.over_decomposition == 4
        assert its.rows == (200_000, 200_000)
        assert [peer.rank for peer in its.peers] == [0, 1]
        names = [span.name for span in its.spans]
        assert names.count("partition") == 2 and names.count("join") == 4
        text = ucp.join.explain(its)
        assert "the strategy was given" in text and "rank 1 (" in text
        assert 0 <= its.spent("idle") <= its.seconds
        assert its.spent("join") > 0
    sent = every[0][0].peers[1].sent
    assert sent == every[0][1].peers[0].mapped + every[0][1].peers[0].copied
    json.dumps([its.as_dict() for its in every[0]])


def test_timeline_is_drawn(tmp_path):
    async def main(comm):
        left, right = big_table(comm, "a"), big_table(comm, "bb")
        found = await join(comm, "inner", left, right)
        return await ucp.join.gather_statistics(comm, found.statistics)

    every = good_world(2, main)[0]
    path = tmp_path / "timeline.png"
    figure = ucp.join.plot(every, path)
    assert path.read_bytes().startswith(b"\x89PNG")
    labels = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert labels == ["rank 0", "rank 1"]


@pytest.mark.filterwarnings("ignore:.* rows of the:ucp.exceptions.UCXWarning")
def test_a_frequent_key_is_named():
    async def main(comm):
        rng = np.random.default_rng(comm.rank)
        frequent = np.where(
            rng.random(20_000) < 0.5, 42, rng.integers(1 << 40, size=20_000)
        )
        left = pa.table({"k": frequent})
        right = pa.table({"k": rng.integers(1 << 40, size=20_000)})
        found = await join(
            comm, "left", left, right, strategy="shuffle", over_decomposition=2
        )
        return found.statistics.skewed

    told = list(itertools.chain(*good_world(2, main)))
    assert len(told) == 1
    assert " of 40000 rows of the left table have the key 42, and rank " in told[0]


ODD_KEYS = {
    "no UTF-8": lambda n: pa.Array.from_buffers(
        pa.string(),
        n,
        [None, pa.py_buffer(np.arange(n + 1, dtype="i4")), pa.py_buffer(b"\xff" * n)],
    ),
    "no such date": lambda n: pa.array([2**30] * n, pa.int32()).view(pa.date32()),
    "no such time": lambda n: pa.array([2**60] * n).view(pa.timestamp("s")),
    "no such zone": lambda n: pa.array([7] * n).view(pa.timestamp("us", "X/Y")),
    "half": lambda n: pa.array([np.float16(1.5)] * n, pa.float16()),
    "uint64": lambda n: pa.array([2**64 - 1] * n, pa.uint64()),
    "nan": lambda n: pa.array([float("nan")] * n),
    "extension": lambda n: pa.ExtensionArray.from_storage(
        pa.uuid(), pa.array([b"0" * 16] * n, pa.binary(16))
    ),
}


@pytest.mark.filterwarnings("ignore:.* rows of the:ucp.exceptions.UCXWarning")
@pytest.mark.parametrize("case", ODD_KEYS)
def test_a_frequent_key_of_any_type_can_be_joined(case):
    rows = 12_000

    async def main(comm):
        left = right = None
        if comm.rank == 0:
            array = ODD_KEYS[case](rows)
            left, right = pa.table({"k": array}), pa.table({"k": array.slice(0, 1)})
        found = await join(comm, "semi", left, right, strategy="shuffle")
        return found.table.num_rows, found.statistics.skewed

    ends = good_world(2, main)
    assert sum(count for count, _ in ends) == rows
    told = [text for _, texts in ends for text in texts]
    assert case == "extension" or f"{rows} of {rows} rows of the left" in told[0]


# --- the plan -----------------------------------------------------------------


def test_broadcast_is_chosen_for_a_small_side():
    MB = 10**6
    for how, side in [("inner", 1), ("left", 1), ("semi", 1), ("anti", 1)]:
        assert choose_side(how, "auto", (100 * MB, MB), 4, False)[0] == side
    assert choose_side("right", "auto", (MB, 100 * MB), 4, False)[0] == 0
    for how, nbytes in [
        ("right", (100 * MB, MB)),
        ("left", (MB, 100 * MB)),
        ("outer", (1, 100)),
    ]:
        assert choose_side(how, "auto", nbytes, 4, False)[0] is None
    assert choose_side("inner", "auto", (100 * MB, 100 * MB), 4, False)[0] is None
    assert choose_side("inner", "auto", (100 * MB, 1), 1, False)[0] is None
    reason = choose_side("inner", "auto", (100 * MB, MB), 4, True)[1]
    assert "shuffle" in reason and "broadcast of the right table (1 MB)" in reason


def test_over_decomposition():
    assert choose_over_decomposition(0, 0, 2, None) == 1
    assert choose_over_decomposition(10**12, 10**9, 2, None) == 64
    assert choose_over_decomposition(10**12, 10**9, 10_000, None) == 3
    assert choose_over_decomposition(10**12, 30_000, 2, None) == 2  # wide rows
    assert choose_over_decomposition(0, 0, 2, 5) == 5
    for asked in (0, -1, 40_000):
        with pytest.raises(
            ValueError, match=f"over_decomposition is {asked}, not 1 to"
        ):
            choose_over_decomposition(0, 0, 2, asked)


def test_a_join_that_is_given_up_while_ranks_agree_ends_alone():
    async def main(comm):
        if comm.rank == 0:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(join(comm, "inner", LEFT, RIGHT), 0.1)
            await comm.barrier()
        else:
            await comm.barrier()  # it comes late
            with pytest.raises(ucp.exceptions.UCXRankFailed, match="the join"):
                await join(comm, "inner", LEFT, RIGHT)
        assert (await join(comm, "inner", LEFT, RIGHT)).statistics.rows == (4, 4)

    good_world(2, main)


@pytest.mark.parametrize("seed", range(4))
def test_joins_go_on_wherever_one_is_given_up(seed):
    """The nth part of a join belongs to the nth on the other ranks, always."""

    async def main(comm):
        rng = random.Random(seed)
        for _ in range(40):
            delay, who = rng.random() * 0.006, rng.randrange(2)
            joining = asyncio.ensure_future(
                join(comm, "inner", LEFT, RIGHT, strategy="shuffle")
            )
            if comm.rank == who:
                await asyncio.sleep(delay)
                joining.cancel()
            with contextlib.suppress(
                asyncio.CancelledError, ucp.exceptions.UCXRankFailed
            ):
                await asyncio.wait_for(joining, 20)
        found = await join(comm, "inner", LEFT, RIGHT)
        assert found.statistics.rows == (4, 4)
        await comm.barrier()

    good_world(2, main)


class _Unsaid(Exception):
    def __str__(self):
        raise RuntimeError("no text")


class _Exit(BaseException):
    """Not an Exception."""


class _Bad:
    """A table whose code raises."""

    def __init__(self, error):
        self.error = error

    def __arrow_c_stream__(self, requested_schema=None):
        raise self.error


@pytest.mark.parametrize("error", [_Unsaid(), _Exit()], ids=["no text", "exit"])
def test_whatever_a_table_raises_is_told(error):
    async def main(comm):
        left = _Bad(error) if comm.rank else LEFT
        with pytest.raises((Exception, _Exit)) as caught:
            await asyncio.wait_for(join(comm, "inner", left, RIGHT), 20)
        assert not isinstance(caught.value, TimeoutError)
        assert (await join(comm, "inner", LEFT, RIGHT)).statistics.rows == (4, 4)

    good_world(2, main)


def test_a_local_join_that_raises_stop_iteration_ends():
    class Stops(ArrowJoin):
        def join(self, left, right, spec):
            if left.num_rows:
                raise StopIteration
            return super().join(left, right, spec)

    async def main(comm):
        with pytest.raises((RuntimeError, ucp.exceptions.UCXRankFailed)) as caught:
            await asyncio.wait_for(join(comm, "inner", LEFT, LEFT, local=Stops()), 20)
        return str(caught.value)

    assert any("StopIteration" in text for text in good_world(2, main))


def test_dictionaries_with_nulls():
    async def main(comm):
        words = pa.DictionaryArray.from_arrays(
            pa.array([0, 1, 2]), pa.array(["a", None, f"r{comm.rank}"])
        )
        mine = pa.table({"k": [1, 2, 3], "s": words})
        found = await join(comm, "inner", mine, pa.table({"k": [1, 2, 3]}))
        return found.table["s"].to_pylist()

    found = sorted(map(str, itertools.chain(*good_world(2, main))))
    assert found == [*["None"] * 4, *["a"] * 4, *["r0"] * 2, *["r1"] * 2]


def test_a_frame_without_rows_may_have_other_categories():
    async def main(comm):
        frame = pd.DataFrame({"k": [1, 2], "s": pd.Categorical(["a", "b"])})
        empty = pd.DataFrame({"k": [1], "s": pd.Categorical([7])})[:0]
        mine = frame if comm.rank else empty
        return (await join(comm, "left", mine, pd.DataFrame({"k": [1]}))).table

    assert sorted(pd.concat(good_world(2, main))["s"]) == ["a", "a", "b"]


def test_keys_may_be_a_generator_and_suffixes_none():
    async def main(comm):
        names = (name for name in ["k"])
        found = await ucp.join.inner(
            LEFT, LEFT, comm=comm, on=names, suffixes=(None, "_r")
        )
        return found.table.column_names

    assert good_world(2, main)[0] == [
        *LEFT.column_names,
        *(f"{name}_r" for name in LEFT.column_names if name != "k"),
    ]


@pytest.mark.parametrize("empty", [[], [None, None]])
def test_a_frame_without_values_takes_the_types_of_the_others(empty):
    async def main(comm):
        frame = pd.DataFrame({"k": [1, 2], "s": ["a", "b"]})
        mine = frame if comm.rank else frame[: len(empty)].assign(s=empty)
        right = pd.DataFrame({"k": [1] if comm.rank else []})
        found = await join(comm, "left", mine, right)
        return found.table

    tables = good_world(2, main)
    assert sorted(pd.concat(tables)["s"].dropna()) == ["a", "b"]
    assert tables[0]["s"].dtype == tables[1]["s"].dtype


def test_frames_are_joined_by_two_keys():
    async def main(comm):
        left = pd.DataFrame({"a": ["x", "y"], "b": ["p", "q"], "v": [1, 2]})
        right = pd.DataFrame({"a": ["x", "y"], "b": ["p", "z"], "w": [1, 2]})
        if comm.rank:
            left, right = left[:0], right[:0]
        return (await join(comm, "outer", left, right, on=["a", "b"])).table

    assert sum(map(len, good_world(3, main))) == 3


@pytest.mark.parametrize("is_left", [True, False])
def test_strings_of_2_gib_in_a_batch(monkeypatch, is_left):
    """Offsets of 32 bits do not reach all of a batch of Arrow's join.

    Those on the right do so only for a lower limit, which is quicker.
    """
    count, size = 65, 32 << 20
    if not is_left:
        size >>= 10
        monkeypatch.setattr("ucp.join._local.MOST_BYTES", 2**21 - 1)
        monkeypatch.setattr("ucp._tables.rows.MOST_BYTES", 2**21 - 1)
    text = "x" * size
    long = pa.table({"k": [7], "s": [text]})
    many = pa.table({"k": np.full(count, 7), "b": np.arange(count)})
    left, right = (long, many) if is_left else (many, long)
    found = ArrowJoin().join(left, right, JoinSpec("inner", ("k",), ("k",), ("", "")))
    assert found.schema.field("s").type == pa.string()
    assert found["s"].num_chunks == 2 and len(found) == count
    assert found["s"][0].as_py() == found["s"][count - 1].as_py() == text


def test_a_narrow_result_of_wide_tables_holds_its_own_bytes():
    names = [f"a{number}" for number in range(300)]
    wide = pa.table({"k": np.arange(10), **{name: np.arange(10) for name in names}})
    other = wide.rename_columns(["k", *(f"b{name}" for name in names)])
    before = pa.total_allocated_bytes()
    found = ArrowJoin().join(wide, other, JoinSpec("inner", ("k",), ("k",), ("", "")))
    assert found.num_rows == 10 and found.num_columns == 601
    assert pa.total_allocated_bytes() - before < 4 * found.nbytes + (1 << 20)


def test_dictionaries_of_all_ranks_become_one():
    async def main(comm):
        words = pa.array([f"{comm.rank}{n}" for n in range(50)]).dictionary_encode()
        mine = pa.table({"k": np.arange(50) + 50 * comm.rank, "s": words})
        found = await join(comm, "inner", mine, pa.table({"k": np.arange(100)}))
        return found.table

    tables = good_world(2, main)
    whole = pa.concat_tables(tables)
    assert whole["s"].type == pa.dictionary(pa.int32(), pa.string())
    found = dict(zip(whole["k"].to_pylist(), whole["s"].to_pylist(), strict=True))
    assert found == {n: f"{n // 50}{n % 50}" for n in range(100)}
    assert len({chunk.dictionary.to_pylist()[99] for chunk in whole["s"].chunks}) == 1


def test_types_that_can_be_compared():
    def same(left, right):
        found = common_type(left, right)
        assert common_type(right, left) == found
        return found

    assert same(pa.int8(), pa.int64()) == pa.int64()
    assert same(pa.uint32(), pa.int64()) == pa.int64()
    assert same(pa.uint64(), pa.int64()) is None
    assert same(pa.float32(), pa.float64()) == pa.float64()
    assert same(pa.float64(), pa.int64()) is None
    assert same(pa.string(), pa.large_string()) == pa.large_string()
    assert same(pa.string(), pa.binary()) is None
    assert same(pa.decimal128(10, 2), pa.decimal256(50, 2)) == pa.decimal256(50, 2)
    assert same(pa.decimal128(10, 2), pa.decimal128(10, 3)) is None
    assert same(pa.timestamp("s"), pa.timestamp("ms")) is None
    assert same(pa.null(), pa.string()) == pa.string()
    assert same(pa.null(), pa.null()) == pa.int8()


# --- bad input ----------------------------------------------------------------

LEFT = pa.table({"k": [1, 2], "a": [1, 2]})
RIGHT = pa.table({"k": [1, 2], "b": [1, 2]})
LISTS = pa.table({"k": [1, 2], "b": [[1], [2]]})


class FailingStream:
    def __arrow_c_stream__(self, requested_schema=None):
        raise RuntimeError("no luck")


BAD = {
    "no such column": (
        LEFT,
        RIGHT,
        {"on": "z"},
        KeyError,
        "has no column 'z', only 'k', 'a'",
    ),
    "no column": (LEFT, RIGHT, {"on": []}, ValueError, "on names no column"),
    "no name": (LEFT, RIGHT, {"on": [1]}, TypeError, "on has 1, which is no name"),
    "twice": (LEFT, RIGHT, {"on": ["k", "k"]}, ValueError, "a name twice"),
    "no keys": (
        LEFT,
        RIGHT,
        {"on": None},
        ValueError,
        "give on, or left_on and right_on",
    ),
    "too many": (LEFT, RIGHT, {"on": "k", "left_on": "k"}, ValueError, "give on, or"),
    "lengths": (
        *(LEFT, RIGHT, {"on": None, "left_on": "k", "right_on": ["k", "b"]}),
        *(ValueError, "left_on has 1 columns, right_on has 2"),
    ),
    "types": (
        *(LEFT, pa.table({"k": ["1"]}), {}, TypeError),
        "'k' of the left table is int64, 'k' of the right one string: they cannot be",
    ),
    "key": (
        *(pa.table({"k": pa.array([None], pa.month_day_nano_interval())}),) * 2,
        *({}, TypeError, "column 'k' of type month_day_nano_interval cannot be a key"),
    ),
    "no bytes": (
        *(pa.table({"k": pa.array([b""], pa.binary(0))}),) * 2,
        *({}, TypeError, "the key 'k' has no bytes: its type is fixed_size_binary"),
    ),
    "lists": (LEFT, LISTS, {}, TypeError, "right table: column 'b' has type list"),
    "null column": (LEFT, pa.table({"k": [1], "b": [None]}), {}, ValueError, "null"),
    "keyword": (LEFT, RIGHT, {"keys": "k"}, TypeError, "no argument 'keys'"),
    "how": (LEFT, RIGHT, {"how": "left"}, TypeError, r"call ucp.join.left\(\)"),
    "local name": (LEFT, RIGHT, {"local": "pandas"}, TypeError, "not 'pandas'"),
    "local class": (
        *(LEFT, RIGHT, {"local": ArrowJoin}),
        *(TypeError, r"not ArrowJoin: give ArrowJoin\(\)"),
    ),
    "no table": (LEFT, 7, {}, TypeError, "right must be an Arrow table, .*, not int"),
    "no tables": (None, RIGHT, {}, ValueError, "no rank has a left table"),
    "suffixes": (LEFT, RIGHT, {"suffixes": "xyz"}, ValueError, "not two strings"),
    "names": (LEFT, LEFT, {"suffixes": ("", "")}, ValueError, "two columns 'a'"),
    "strategy": (LEFT, RIGHT, {"strategy": "fast"}, ValueError, "strategy is 'fast'"),
    "no partitions": (
        *(LEFT, RIGHT, {"over_decomposition": 0}),
        *(ValueError, "over_decomposition is 0, not 1 to"),
    ),
    "seed": (LEFT, RIGHT, {"seed": -1}, ValueError, "seed is -1"),
    "large budget": (LEFT, RIGHT, {"budget": 2**70}, ValueError, "budget is 1180"),
    "budget": (LEFT, RIGHT, {"budget": 0}, ValueError, "budget is 0"),
    "no number": (LEFT, RIGHT, {"budget": 1e6}, TypeError, "'float' object cannot"),
    "no cache": (LEFT, RIGHT, {"cache": 7}, TypeError, "cache must be a MemoryCache"),
    "no directory": (
        *(LEFT, RIGHT, {"budget": 1000, "spill_dir": "/no/such/directory"}),
        *(OSError, "spill_dir, '/no/such/directory', cannot be written to"),
    ),
    "number too large": ({"k": [2**70]}, RIGHT, {}, OverflowError, "too large"),
    "no stream": (FailingStream(), RIGHT, {}, ValueError, "RuntimeError: no luck"),
}


# A rank may have no table.
BAD_CASES = [
    (case, everywhere)
    for case in BAD
    for everywhere in (True, False)
    if everywhere or case not in ("no tables", "null column")
]


@pytest.mark.parametrize(("case", "everywhere"), BAD_CASES)
def test_bad_input_is_the_same_error_on_all_ranks(case, everywhere):
    left, right, options, error, text = BAD[case]

    async def main(comm):
        is_bad = everywhere or comm.rank == 1
        try:
            if is_bad:
                await join(comm, "inner", left, right, **options)
            else:
                await join(comm, "inner", LEFT, RIGHT)
        except Exception as exc:
            found = exc
        else:
            found = None
        # The communicator is as before.
        again = await join(comm, "inner", LEFT, RIGHT)
        assert again.statistics.rows == (4, 4)
        return (found,)

    (first,), (second,) = good_world(2, main)
    assert type(first) is type(second) and str(first) == str(second)
    if everywhere:
        with pytest.raises(error, match=text):
            raise first
    else:
        kinds = (KeyError, TypeError, ValueError, OverflowError, OSError)
        assert isinstance(first, kinds)
        assert "rank 1" in str(first)


def test_an_outer_join_has_no_broadcast():
    async def main(comm):
        with pytest.raises(
            ValueError, match="an outer join cannot be made by a broadcast"
        ):
            await join(comm, "outer", LEFT, RIGHT, strategy="broadcast")

    good_world(2, main)


def test_ranks_that_call_different_joins_are_told():
    async def main(comm):
        how = "inner" if comm.rank else "left"
        with pytest.raises(
            ValueError, match="rank 0 joins with how='left', rank 1 with 'inner'"
        ):
            await join(comm, how, LEFT, RIGHT)

    good_world(2, main)


# --- faults -------------------------------------------------------------------

KILLED = """
import pyarrow as pa
import ucp._tables.common
import ucp.join
import ucp.join._one_rank

PHASE = %r
VICTIM = 1

def die():
    os.kill(os.getpid(), signal.SIGKILL)

class Local(ucp.join.ArrowJoin):
    def join(self, left, right, spec):
        if PHASE == "join" and left.num_rows and comm.rank == VICTIM:
            die()
        return super().join(left, right, spec)

    def concat(self, parts):
        if PHASE == "concat" and comm.rank == VICTIM:
            die()
        return super().concat(parts)

def dies(name, fn):
    def call(*args, **kwargs):
        if PHASE == name and comm.rank == VICTIM:
            die()
        return fn(*args, **kwargs)
    return call

async def main():
    global comm
    comm = await connect()
    rng = np.random.default_rng(comm.rank)
    left = pa.table({"k": rng.integers(0, 9999, 20000), "a": np.arange(20000)})
    right = pa.table({"k": rng.integers(0, 9999, 20000), "b": np.arange(20000)})
    run = ucp.join._one_rank
    try:
        await ucp.join.inner(left, right, on="k", comm=comm)
        run.hash_partition_to = dies("partition", run.hash_partition_to)
        run.Shuffler.insert = dies("insert", run.Shuffler.insert)
        common = ucp._tables.common
        common.read_partition = dies("read", common.read_partition)
        if PHASE == "agree" and comm.rank == VICTIM:
            die()  # the others may still be in the first join
        await ucp.join.inner(
            left, right, on="k", comm=comm, local=Local(), over_decomposition=4,
            strategy=%r,
        )
        await comm.barrier()
    except ucp.exceptions.UCXRankFailed as exc:
        print("failed", exc.rank)
    else:
        print("done")

asyncio.run(main())
"""


# Before "partition" and from "concat" on both strategies do the same.
@pytest.mark.parametrize(
    ("phase", "strategy"),
    [
        *itertools.product(
            ["partition", "insert", "read", "join"], ["shuffle", "broadcast"]
        ),
        ("agree", "shuffle"),
        ("concat", "shuffle"),
    ],
)
def test_a_rank_that_is_killed_is_named(phase, strategy):
    with Ranks(3, KILLED % (phase, strategy)) as ranks:
        ends = [ranks.end(rank) for rank in (0, 2)]
    assert ends == ["failed 1"] * 2
    assert segments_of([process.pid for process in ranks.processes]) == []


def test_an_exception_of_one_rank_ends_the_join_of_all():
    class Fails(ArrowJoin):
        def __init__(self, comm):
            self.comm = comm

        def join(self, left, right, spec):
            if left.num_rows and self.comm.rank == 0:
                raise RuntimeError("no such luck")
            return super().join(left, right, spec)

    async def main(comm):
        table = pa.table({"k": np.arange(1000)})
        await join(comm, "inner", table, table, local=Fails(comm), strategy="shuffle")

    first, second = world(2, main)
    assert isinstance(first, RuntimeError)
    assert isinstance(second, ucp.exceptions.UCXRankFailed) and second.rank == 0
    assert "RuntimeError: no such luck" in str(second)


def test_a_join_can_be_cancelled():
    class Slow(ArrowJoin):
        def join(self, left, right, spec):
            started.set()
            return super().join(left, right, spec)

    started = threading.Event()

    async def main(comm):
        table = pa.table({"k": np.arange(50_000)})
        task = asyncio.ensure_future(
            join(comm, "inner", table, table, local=Slow(), over_decomposition=8)
        )
        if comm.rank == 0:
            while not started.is_set():
                await asyncio.sleep(0)
            task.cancel()
        return await asyncio.gather(task, return_exceptions=True)

    (first,), (second,) = good_world(2, main)
    assert isinstance(first, (asyncio.CancelledError, ucp.join.JoinResult)) or first
    assert isinstance(second, (ucp.exceptions.UCXRankFailed, ucp.join.JoinResult))


def test_a_rank_that_fails_before_it_sends_is_named():
    class Fails(ArrowJoin):
        def join(self, left, right, spec):
            raise RuntimeError("no such luck")

    Fails.__qualname__ = "ArrowJoin"

    async def main(comm):
        local = Fails() if comm.rank else None
        with pytest.raises((RuntimeError, ucp.UCXRankFailed)) as caught:
            await join(comm, "inner", LEFT, RIGHT, local=local)
        again = await join(comm, "inner", LEFT, RIGHT)
        assert again.statistics.rows == (4, 4)
        return (caught.value,)

    (first,), (second,) = good_world(2, main)
    assert first.rank == 1 and "RuntimeError: no such luck" in str(first)
    assert str(second) == "no such luck"


# Over tcp chunks are released when they have been read: rank 0 has its result,
# and all that it has sent is read, when the local join of rank 1 fails.
FAILS_LAST = """
import pathlib
import time
import pyarrow as pa
import ucp.join

FLAG = pathlib.Path(%r)

class Local(ucp.join.ArrowJoin):
    def join(self, left, right, spec):
        if comm.rank == 1 and left.num_rows:
            while not FLAG.exists():
                time.sleep(0.001)
            raise RuntimeError("at last")
        return super().join(left, right, spec)

    def concat(self, parts):
        if comm.rank == 0:
            FLAG.touch()
        return super().concat(parts)

async def main():
    global comm
    ucp.init(options={"TLS": "tcp"})
    comm = await connect()
    table = pa.table({"k": np.arange(1000)})
    try:
        await ucp.join.inner(table, table, on="k", comm=comm, local=Local())
    except (RuntimeError, ucp.exceptions.UCXRankFailed) as exc:
        print(type(exc).__name__, "at last" in str(exc))
    again = await ucp.join.inner(table, table, on="k", comm=comm)
    assert again.statistics.rows[0] == 2000, again.statistics
    await comm.barrier()
    comm.close()

asyncio.run(main())
"""


FULL_DISK = """
import resource
import pyarrow as pa
import ucp.join

async def main():
    async with await connect() as comm:
        keys = np.random.default_rng(comm.rank).integers(0, 10**6, 200_000)
        table = pa.table({"k": keys, "a": keys})
        local = ucp.join.ArrowJoin()
        small = {"budget": 1000, "spill_dir": %r, "strategy": "shuffle"}
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        if comm.rank == 1:
            resource.setrlimit(resource.RLIMIT_FSIZE, (3_000_000, hard))
        try:
            await ucp.join.inner(table, table, on="k", comm=comm, local=local, **small)
        except ucp.exceptions.UCXError as exc:
            print(type(exc).__name__, str(exc))
        found = await ucp.join.inner(table, table, on="k", comm=comm, local=local)
        assert found.statistics.rows[0] == 400_000

asyncio.run(main())
"""


def test_a_full_disk_is_one_error_on_every_rank(tmp_path):
    with Ranks(2, FULL_DISK % str(tmp_path)) as ranks:
        ends = [process.communicate(timeout=LIMIT) for process in ranks.processes]
    # The file may grow while a chunk is inserted, or while others are waited for.
    named = r"(?:insert|wait): the spill file cannot grow: \[Errno 27\] File too large"
    text = f"{named}: {re.escape(repr(str(tmp_path)))}\n"
    lost = f"UCXRankFailed rank 1 has aborted the join: UCXError: {text}"
    for (out, err), expected in zip(ends, (lost, f"UCXError {text}"), strict=True):
        assert re.fullmatch(expected, out), out
        assert err == ""
    assert os.listdir(tmp_path) == []


def test_a_rank_that_fails_last_fails_on_all(tmp_path):
    with Ranks(2, FAILS_LAST % str(tmp_path / "flag")) as ranks:
        ends = [ranks.end(rank) for rank in (0, 1)]
    assert ends == ["UCXRankFailed True", "RuntimeError True"]


def test_one_join_at_a_time():
    async def main(comm):
        task = asyncio.ensure_future(join(comm, "inner", LEFT, RIGHT))
        await asyncio.sleep(0)
        with pytest.raises(ucp.UCXBusy, match=r"^a join is under way on this comm"):
            await join(comm, "inner", LEFT, RIGHT)
        await task
        other = await comm.split(0)
        async with other:
            both = (join(c, "inner", LEFT, RIGHT) for c in (comm, other))
            for found in await asyncio.gather(*both):
                assert found.statistics.rows == (4, 4)

    good_world(2, main)


STALLS = """
import ucp.join._one_rank
from ucp.shuffle import Shuffler

async def main():
    ucp.init(options={"TLS": "tcp"})
    comm = await connect()
    shuffler = Shuffler(comm, 0, 2, owners=[0, 0], budget=260_000)
    if comm.rank == 1:
        shuffler.insert(0, bytes(100_000))
    shuffler.insert_finished(0)
    if comm.rank == 0:
        assert await ucp.join._one_rank._next(shuffler, {}, 1) == 0
    await comm.barrier()
    if comm.rank == 1:
        shuffler.insert(1, bytes(60_000))
    shuffler.insert_finished(1)
    if comm.rank == 0:
        try:
            await ucp.join._one_rank._next(shuffler, {0: 1}, 1)
        except ucp.UCXError as exc:
            assert "the budget holds no more" in str(exc), exc
        await shuffler.extract(0)
        assert await ucp.join._one_rank._next(shuffler, {0: 1}, 1) == 1
    await shuffler.close()
    await comm.barrier()
    comm.close()
    print("done")

asyncio.run(main())
"""


def test_a_budget_that_is_too_small_is_an_error():
    """Not a hang, if one side of a partition fits into it."""
    with Ranks(2, STALLS) as ranks:
        assert [ranks.end(rank) for rank in (0, 1)] == ["done", "done"]


# --- the examples -------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "rows", "prints"),
    [
        ("join.py", "20000", "6693 readings in the attic, 6669 in the cellar"),
        ("tpch.py", "20000", "the answer is the same as one process's"),
    ],
)
def test_the_examples_run(name, rows, prints):
    command = ["-P", "-m", "ucp", "run", "-n", "2", str(EXAMPLES / name), rows]
    done = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, timeout=50
    )
    assert done.returncode == 0, done.stderr
    result, figure = done.stdout.splitlines()
    assert result == f"[0] {prints}"
    assert re.match(r"\[0\] \d+\.\d+ (million readings a second|s on 2 ranks)$", figure)


def test_the_program_of_the_documentation_runs(tmp_path):
    page = (EXAMPLES.parent / "docs" / "joins.md").read_text()
    code = page.split("```python\n# program.py\n")[1].split("```")[0]
    (tmp_path / "program.py").write_text(code)
    command = ["-P", "-m", "ucp", "run", "-n", "2", str(tmp_path / "program.py")]
    done = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, timeout=50
    )
    assert done.returncode == 0, done.stderr
    lines = [line[4:] for line in done.stdout.splitlines()]
    rows = [int(line.split()[0]) for line in lines if line.endswith(" rows")]
    assert len(rows) == 2 and sum(rows) == 8
    assert sum(line.startswith("rank ") for line in lines) == 2


async def timed_out_at_once(join):
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(join, 0)


async def cancelled_at_once(join):
    task = asyncio.ensure_future(join)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def closed(join):
    join.close()


@pytest.mark.parametrize("end", [timed_out_at_once, cancelled_at_once, closed])
def test_a_join_that_ends_before_it_begins_is_told(end):
    async def main(comm):
        for number in range(3):
            table = pa.table({"k": [1, 2, 3][: number + 1]})
            join = ucp.join.inner(table, table, on="k", comm=comm)
            if number == 1 and comm.rank == 1:
                await end(join)
            elif number == 1:
                with pytest.raises(ucp.UCXRankFailed, match="before it began"):
                    await join
            else:
                rows = np.array([(await join).table.num_rows])
                await comm.allreduce(rows)
                assert rows[0] == 4 * (number + 1)

    good_world(2, main)


def test_a_busy_join_that_ends_before_it_begins_disturbs_nothing():
    async def main(comm):
        table = pa.table({"k": [1]})
        joins = [ucp.join.inner(table, table, on="k", comm=comm) for _ in range(2)]
        first = asyncio.ensure_future(joins[0])
        await asyncio.sleep(0)
        joins[1].close()
        rows = np.array([(await first).table.num_rows])
        await comm.allreduce(rows)
        assert rows[0] == 4

    good_world(2, main)


def test_a_timeout_of_a_join_is_a_timeout():
    texts = [f"text {i}" for i in range(2000)]

    async def main(comm):
        table = pa.table({"k": range(2000), "s": pa.array(texts).dictionary_encode()})
        for number in range(60):
            join = ucp.join.inner(table, table, on="k", comm=comm)
            limit = 0.0005 * (1 + number % 7) if comm.rank == number % 2 else 20
            with contextlib.suppress(TimeoutError, ucp.UCXRankFailed):
                async with asyncio.timeout(limit):
                    await join

    good_world(2, main)
