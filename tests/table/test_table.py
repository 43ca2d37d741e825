# SPDX-License-Identifier: BSD-3-Clause
# tests: ucp/jobs ucp/parts ucp/plan ucp/one_rank
"""``ucp.table``: operations on tables whose rows are on many ranks."""

import asyncio
import gc
import random

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from orders import VALUES, column_of, in_order
from worlds import Ranks, good_world

import ucp
import ucp.table
from ucp.shuffle import MemoryCache
from ucp.testing import live_objects


def whole(tables):
    return pa.concat_tables([t for t in tables if t is not None]).unify_dictionaries()


def texts(table):
    """The rows, in their order; NaNs are equal."""
    return [repr(row) for row in table.to_pylist()]


def table_of(kinds, rank, seed):
    """Some rows with keys of these types; some ranks have few or none."""
    rng = random.Random(f"{rank} {seed}")
    rows = rng.choice([0, 1, 40, 200])
    columns = {f"k{n}": column_of(kind, rng, rows) for n, kind in enumerate(kinds)}
    columns["s"] = column_of(pa.string(), rng, rows)
    columns["d"] = column_of(pa.dictionary(pa.int8(), pa.string()), rng, rows)
    columns["row"] = pa.array(range(rank * 1000, rank * 1000 + rows), pa.int64())
    return pa.table(columns)


# --- sort ---------------------------------------------------------------------


def sort_cases(size):
    rng = random.Random(size)
    singles = [[kind] for kind in VALUES]
    several = [rng.choices(list(VALUES), k=rng.choice([2, 3])) for _ in range(10)]
    for number, kinds in enumerate([*singles, *several]):
        by = [f"k{n}" for n in range(len(kinds))]
        yield {
            "kinds": kinds,
            "seed": number,
            "by": by,
            "descending": [rng.random() < 0.5 for _ in by],
            "nulls": rng.choice(["first", "last"]),
            "over_decomposition": rng.choice([None, 1, 4]),
            "none": rng.random() < 0.2,
        }


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_rows_are_in_the_order_of_one_process(size):
    async def main(comm):
        ends = []
        for case in sort_cases(size):
            table = table_of(case["kinds"], comm.rank, case["seed"])
            if case["none"] and comm.rank == size - 1 and size > 1:
                table = None
            found = await ucp.table.sort(
                table,
                case["by"],
                comm=comm,
                descending=case["descending"],
                nulls=case["nulls"],
                stable=True,
                over_decomposition=case["over_decomposition"],
            )
            found.validate(full=True)
            ends.append((table, found))
        return ends

    for case, *ends in zip(sort_cases(size), *good_world(size, main), strict=True):
        given, found = zip(*ends, strict=True)
        table = whole(given)
        order = in_order(table, case["by"], case["descending"], case["nulls"])
        assert texts(whole(found)) == texts(table.take(order)), case


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_ordered_categories_are_sorted_by_their_order(library):
    module = pytest.importorskip(library)
    sizes = ["small", "medium", "large"]
    rows = ["large", None, "small", "medium"]

    def make():
        if library == "polars":
            return module.DataFrame({"s": rows}, {"s": module.Enum(sizes)})
        if library == "pandas":
            return module.DataFrame(
                {"s": module.Categorical(rows, sizes, ordered=True)}
            )
        numbers = [None if row is None else sizes.index(row) for row in rows]
        numbers = pa.array(numbers, pa.int8())
        column = pa.DictionaryArray.from_arrays(numbers, sizes, ordered=True)
        return pa.table({"s": column})

    def lists(parts):
        tables = [pa.table(p) if library == "polars" else p for p in parts]
        if library == "pandas":
            tables = [pa.Table.from_pandas(part) for part in parts]
        return [each for table in tables for each in table["s"].to_pylist()]

    async def main(comm):
        up = await ucp.table.sort(make(), "s", comm=comm, stable=True)
        down = await ucp.table.sort(
            make(), "s", comm=comm, descending=True, nulls="first", over_decomposition=3
        )
        return up, down

    up, down = zip(*good_world(2, main), strict=True)
    assert lists(up) == [each for size in sizes for each in (size, size)] + [None] * 2
    assert lists(down) == lists(up)[::-1]
    if library == "pandas":
        assert all(part["s"].dtype == make()["s"].dtype for part in (*up, *down))
    elif library == "polars":
        assert all(part.schema == make().schema for part in (*up, *down))


def test_ordered_categories_without_a_common_order_are_refused():
    async def main(comm):
        names = [["a", "b", "c"], ["c", "a"]][comm.rank]
        column = pa.DictionaryArray.from_arrays([0, 1], names, ordered=True)
        text = (
            r"^column 's' of the table has the ordered categories \['a', 'b', 'c'\] on"
        )
        with pytest.raises(TypeError, match=text):
            await ucp.table.sort(pa.table({"s": column}), "s", comm=comm)
        names = [["c", "a"], ["b", "c", "a"]][comm.rank]
        column = pa.DictionaryArray.from_arrays([1, 0], names, ordered=True)
        return (await ucp.table.sort(pa.table({"s": column}), "s", comm=comm))["s"]

    found = [each for part in good_world(2, main) for each in part.to_pylist()]
    assert found == ["b", "c", "c", "a"]


@pytest.mark.parametrize("library", ["polars", "arrow"])
def test_many_rows_are_sorted_by_any_library(library, monkeypatch):
    if library == "polars":
        pytest.importorskip("polars")
    monkeypatch.setattr("ucp.table._plan.choose_library", lambda *_: library)

    async def main(comm):
        rng = np.random.default_rng(comm.rank)
        keys = rng.integers(0, 1 << 40, 30_000)
        table = pa.table({"k": keys, "s": pa.array(keys).cast(pa.string())})
        found = await ucp.table.sort(table, "k", comm=comm, over_decomposition=3)
        return table, found

    given, found = zip(*good_world(2, main), strict=True)
    expected = whole(given).sort_by("k")
    assert whole(found).equals(expected)
    assert all(len(part) > 10_000 for part in found)  # ranks have about as many


@pytest.mark.parametrize("count", [100, 1 << 40])
def test_few_groups_are_in_few_partitions(count):
    async def main(comm):
        keys = np.random.default_rng(comm.rank).integers(0, count, 1 << 20)
        done = []
        found = await ucp.table.group_by(
            {"k": keys, "x": keys},
            "k",
            [("x", "max")],
            comm=comm,
            progress=lambda *its: done.append(its),
        )
        return found.num_rows, done[-1]

    found = good_world(2, main)
    assert [done for _, done in found] == [(1, 1) if count == 100 else (2, 2)] * 2
    assert count > 100 or sum(rows for rows, _ in found) == 100


def test_one_key_of_most_rows_is_told():
    async def main(comm):
        keys = np.where(np.arange(20_000) % 2, 7, np.arange(20_000))
        table = pa.table({"k": keys})
        if comm.rank == 1:  # it gets them, and catches the warning
            with pytest.warns(ucp.UCXWarning, match=r"^20000 of 40000 rows have the k"):
                return await ucp.table.sort(table, "k", comm=comm, descending=True)
        return await ucp.table.sort(table, "k", comm=comm, descending=True)

    found = good_world(2, main)
    assert whole(found)["k"].to_pylist() == sorted(
        whole(found)["k"].to_pylist(), reverse=True
    )


# --- repartition --------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 3])
def test_rows_are_divided_evenly_in_their_order(size):
    async def main(comm):
        ends = []
        for seed in range(6):
            table = table_of([pa.float64()], comm.rank, seed)
            ranks = [None, 1, size][seed % 3]
            pieces = [None, 3][seed % 2]
            found = await ucp.table.repartition(
                table, comm=comm, n=ranks, over_decomposition=pieces
            )
            ends.append((table, found, ranks or size))
        return ends

    for ends in zip(*good_world(size, main), strict=True):
        given, found, ranks = zip(*ends, strict=True)
        assert texts(whole(found)) == texts(whole(given))
        counts = [part.num_rows for part in found]
        assert max(counts[: ranks[0]]) - min(counts[: ranks[0]]) <= 3
        assert not any(counts[ranks[0] :])


def test_equal_keys_come_to_one_rank():
    async def main(comm):
        rng = np.random.default_rng(comm.rank)
        table = pa.table({"k": rng.integers(0, 50, 500), "x": rng.random(500)})
        return table, await ucp.table.repartition(table, "k", comm=comm)

    given, found = zip(*good_world(3, main), strict=True)
    keys = [set(part["k"].to_pylist()) for part in found]
    assert sum(map(len, keys)) == len(set.union(*keys)) == 50
    assert sorted(texts(whole(found))) == sorted(texts(whole(given)))


# --- group_by -----------------------------------------------------------------

ALL = [
    *(("x", name) for name in ("sum", "count", "mean", "min", "max", "first", "last")),
    *(("f", name) for name in ("sum", "mean", "max")),
    *(("b", "any"), ("b", "all"), ([], "count_all")),
]
MORE = [("x", "variance", {"ddof": 1}), ("f", "stddev"), ("s", "count_distinct")]
FORMS = {
    "reduced": ALL,
    "whole": [*ALL, *MORE],
    "options": [
        ("x", "sum", {"min_count": 0}),
        ("f", "sum", {"skip_nulls": False}),
        ("x", "mean", {"min_count": 2}),
        ("s", "count", {"mode": "only_null"}),
        ("x", "first", {"skip_nulls": False}),
    ],
}


def groups_of(rank, seed, kind):
    rng = random.Random(f"{rank} {seed}")
    rows = rng.choice([0, 1, 60, 300])
    numbers = [rng.choice([None, *range(-5, 9)]) for _ in range(rows)]
    floats = [rng.choice([None, 0.5, 1.25, -3.0]) for _ in range(rows)]
    return pa.table(
        {
            "k": column_of(kind, rng, rows),
            "j": pa.array(rng.choices([1, 2, None], k=rows), pa.int32()),
            "x": pa.array(numbers, pa.int32()),
            "f": pa.array(floats, pa.float64()),
            "b": pa.array(rng.choices([True, False, None], k=rows), pa.bool_()),
            "s": column_of(pa.string(), rng, rows),
            "unused": pa.array([[n] for n in range(rows)], pa.list_(pa.int64())),
        }
    )


def arrow_options(form):
    found = []
    for column, function, *rest in form:
        options = dict(rest[0]) if rest else {}
        if function in ("variance", "stddev"):
            options = pc.VarianceOptions(**options)
        elif function in ("count", "count_distinct"):
            options = pc.CountOptions(**options)
        elif function == "count_all":
            options = None
        else:
            options = pc.ScalarAggregateOptions(**{"min_count": 1, **options})
        found.append((column, function, options))
    return found


def rounded(table):
    """Rows by their text, whose floats may differ in the last bits."""
    rows = []
    for row in table.to_pylist():
        items = sorted(row.items())
        rows.append(
            repr([(k, round(v, 9) if isinstance(v, float) else v) for k, v in items])
        )
    return sorted(rows)


KEYS = [kind for kind in VALUES if not pa.types.is_float32(kind)]


@pytest.mark.parametrize("library", ["polars", "arrow"])
@pytest.mark.parametrize("size", [1, 2, 4])
def test_groups_are_those_of_one_process(size, library, monkeypatch):
    if library == "polars":
        pytest.importorskip("polars")
    monkeypatch.setattr("ucp.table._plan.choose_library", lambda *_: library)
    cases = [
        (kind, keys, form)
        for kind in KEYS
        for keys, form in ((["k"], "reduced"), (["k", "j"], "whole"))
    ]
    cases += [(pa.string(), ["j"], "options"), (pa.int8(), ["j", "k"], "options")]

    async def main(comm):
        ends = []
        for seed, (kind, keys, form) in enumerate(cases):
            table = groups_of(comm.rank, seed, kind)
            found = await ucp.table.group_by(table, keys, FORMS[form], comm=comm)
            found.validate(full=True)
            ends.append((table, found))
        return ends

    for (kind, keys, form), *ends in zip(cases, *good_world(size, main), strict=True):
        given, found = zip(*ends, strict=True)
        table, found = whole(given), whole(found)
        if pa.types.is_dictionary(kind):
            plain = table["k"].cast(pa.string())
            table = table.set_column(0, "k", plain)
        grouped = table.group_by(keys, use_threads=False)
        expected = grouped.aggregate(arrow_options(FORMS[form]))
        assert rounded(found) == rounded(expected), (kind, keys, form)
        assert found.schema.types[1:] == expected.schema.types[1:]


def test_rows_that_become_few_are_reduced_first(monkeypatch):
    reduced = []
    reduce = ucp.table._plan.Grouping.reduce

    def count(self, table, *rest):
        found = reduce(self, table, *rest)
        if table.num_rows:
            reduced.append(found.num_rows)
        return found

    monkeypatch.setattr(ucp.table._plan.Grouping, "reduce", count)

    async def main(comm, keys):
        table = pa.table({"k": np.arange(50_000) % keys, "x": np.ones(50_000)})
        found = await ucp.table.group_by(table, "k", [("x", "sum")], comm=comm)
        return found.num_rows, pc.sum(found["x_sum"]).as_py()

    for keys, calls in ((40, [40, 40]), (20_000, [])):
        reduced.clear()
        ends = good_world(2, lambda comm, keys=keys: main(comm, keys))
        assert [sum(each) for each in zip(*ends, strict=True)] == [keys, 100_000]
        assert reduced == calls


def test_names_of_results():
    async def main(comm):
        table = pa.table({"k": [1, 1], "x": [1.0, 3.0]})
        wanted = {"total": ("x", "sum"), "rows": ([], "size"), "v": ("x", "var")}
        named = await ucp.table.group_by(table, "k", wanted, comm=comm)
        listed = [("x", "nunique"), ([], "size"), ("x", "std", {"ddof": 1})]
        other = await ucp.table.group_by(table, "k", listed, comm=comm)
        return named.to_pylist(), other.column_names

    ((named, other),) = good_world(1, main)
    assert named == [{"k": 1, "total": 4.0, "rows": 2, "v": 1.0}]
    assert other == ["k", "x_nunique", "size", "x_std"]


# --- frames -------------------------------------------------------------------


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_deviations_are_those_of_the_library(library):
    module = pytest.importorskip(library)

    def make(values):
        table = pa.table({"k": [1] * len(values), "x": values})
        if library == "polars":
            return module.from_arrow(table)
        return table.to_pandas() if library == "pandas" else table

    def rows(table):
        if library == "pandas":
            return table.to_numpy().tolist()
        if library == "polars":
            return table.rows()
        return [tuple(row.values()) for row in table.to_pylist()]

    async def main(comm):
        table = make([1.0 + 2 * comm.rank])
        wanted = [("x", "var"), ("x", "std"), ("x", "variance", {"ddof": 0})]
        wanted = dict(zip("abc", wanted, strict=True))
        found = await ucp.table.group_by(table, "k", wanted, comm=comm)
        other = await ucp.table.group_by(table, "k", wanted, comm=comm, ddof=0)
        return rows(found) + rows(other)

    def own(frame):
        if library == "polars":
            its = frame["x"]
            return its.var(), its.std()
        if library == "pandas":
            its = frame.groupby("k")["x"]
            return its.var().iloc[0], its.std().iloc[0]
        return pc.variance(frame["x"]).as_py(), pc.stddev(frame["x"]).as_py()

    found = [list(row) for its in good_world(2, main) for row in its]
    expected = [1, *own(make([1.0, 3.0])), 1.0]
    assert found == [pytest.approx(expected), [1, 1.0, 1.0, 1.0]]


def test_frames_of_pandas_stay_frames():
    pd = pytest.importorskip("pandas")

    async def main(comm):
        frame = pd.DataFrame(
            {
                "k": [3, 1, 2],
                "n": pd.array([1, None, 3], "Int64"),
                "s": ["c", "a", None],
                "c": pd.Categorical(["x", "y", "x"]),
                "t": pd.to_datetime(["2026-01-01"] * 3).astype("datetime64[us]"),
            }
        )
        mine = frame if comm.rank == 0 else None
        found = await ucp.table.sort(mine, ["k"], comm=comm)
        even = await ucp.table.repartition(mine, comm=comm)
        wanted = [("n", "sum"), ("k", "mean"), ("k", "max"), ([], "size")]
        groups = await ucp.table.group_by(mine, ["s", "c"], wanted, comm=comm)
        return frame, found, even, groups

    frames, found, even, groups = zip(*good_world(2, main), strict=True)
    for parts in (found, even):
        for part in parts:
            assert part.dtypes.equals(frames[0].dtypes)
    assert pd.concat(found)["k"].tolist() == [1, 2, 3]
    assert pd.concat(found)["n"].fillna(0).tolist() == [0, 3, 1]
    both = pd.concat(groups, ignore_index=True).sort_values("s")
    assert both["s"].tolist() == ["a", "c"]  # pandas drops rows without a key
    expected = (
        frames[0]
        .groupby(["s", "c"], observed=True)
        .agg(n_sum=("n", "sum"), k_mean=("k", "mean"), k_max=("k", "max"))
    )
    for part in groups:
        for name in expected:
            assert part[name].dtype == expected[name].dtype


def test_frames_of_polars_stay_frames():
    polars = pytest.importorskip("polars")

    async def main(comm):
        frame = polars.DataFrame(
            {
                "k": [3, 1, None],
                "e": polars.Series(["b", "a", "b"], dtype=polars.Enum(["b", "a"])),
            }
        )
        found = await ucp.table.sort(frame, "k", comm=comm)
        groups = await ucp.table.group_by(frame, "e", [("k", "sum")], comm=comm)
        return frame, found, groups

    frames, found, groups = zip(*good_world(2, main), strict=True)
    assert all(part.schema == frames[0].schema for part in found)
    assert polars.concat(found)["k"].to_list() == [1, 1, 3, 3, None, None]
    assert sorted(polars.concat(groups).rows()) == [("a", 2), ("b", 6)]


# --- streams ------------------------------------------------------------------


def test_parts_come_in_their_order():
    async def main(comm):
        rng = np.random.default_rng(comm.rank)
        table = pa.table({"k": rng.integers(0, 1000, 5000)})
        options = {"comm": comm, "over_decomposition": 6}
        stream = ucp.table.stream("sort", table, "k", **options)
        parts = [part async for part in stream]
        async with ucp.table.stream(
            "group_by", table, "k", [([], "size")], comm=comm
        ) as groups:
            found = [part async for part in groups]
        return table, parts, found

    given, parts, groups = zip(*good_world(2, main), strict=True)
    assert all(len(its) > 3 for its in parts)
    sorted_rows = whole([part for its in parts for part in its])
    assert sorted_rows.equals(whole(given).sort_by("k"))
    assert sum(pc.sum(part["size"]).as_py() for its in groups for part in its) == 10_000


def test_tasks_share_the_parts_of_a_stream():
    async def main(comm):
        table = pa.table({"k": np.random.default_rng(0).permutation(5000)})
        options = {"comm": comm, "over_decomposition": 6}
        stream = ucp.table.stream("sort", table, "k", **options)

        async def take():
            found = []
            async for part in stream:
                found.append(part.num_rows)
                await asyncio.sleep(0)
            return found

        async with asyncio.timeout(20):
            found = await asyncio.gather(*[take() for _ in range(3)])
            bad = ucp.table.stream("sort", table, "x", comm=comm)
            ends = await asyncio.gather(
                *[anext(bad) for _ in range(3)], return_exceptions=True
            )
        assert sorted(map(type, ends), key=str) == [
            *(KeyError, StopAsyncIteration, StopAsyncIteration)
        ]
        return [sum(each) for each in found]

    ((*counts,),) = good_world(1, main)
    assert sum(counts) == 5000 and min(counts[:2]) > 0


def test_a_stream_without_rows_has_one_part():
    async def main(comm):
        table = pa.table({"k": pa.array([], pa.int64())})
        stream = ucp.table.stream("sort", table, "k", comm=comm)
        return [part.num_rows async for part in stream]

    assert good_world(2, main) == [[0], [0]]


@pytest.mark.parametrize("way", ["break", "close", "never"])
def test_a_stream_that_is_left_ends_on_all_ranks(way):
    async def main(comm):
        table = pa.table({"k": np.arange(20_000)})
        options = {"comm": comm, "over_decomposition": 8}
        stream = ucp.table.stream("sort", table, "k", **options)
        failed = None
        if comm.rank == 0 and way == "never":
            del stream
        elif comm.rank == 0:
            async for _ in stream:
                break
            if way == "close":
                await stream.aclose()
            del stream
        else:
            try:
                async for _ in stream:
                    pass
            except ucp.exceptions.UCXRankFailed as exc:
                failed = exc.rank
        gc.collect()
        again = await ucp.table.sort(table, "k", comm=comm)
        return failed, again.num_rows

    (_, first), (failed, second) = good_world(2, main)
    assert failed == 0
    assert first + second == 40_000


# --- faults -------------------------------------------------------------------

GOOD = pa.table({"k": [1, 2, 3], "s": ["a", "b", "c"]})
LISTS = pa.table({"k": [[1]]})


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (("sort", GOOD, "x"), KeyError, "the table has no column 'x', only 'k', 's'"),
        (("sort", GOOD, []), ValueError, "rank 1: by names no column"),
        (("sort", 5, "k"), TypeError, "rank 1: table must be an Arrow table"),
        (("sort", LISTS, "k"), TypeError, "rank 1: the table: column 'k' has type l"),
        (("sort", GOOD, "s"), ValueError, "rank 0 calls sort with by="),
        (("group_by", GOOD, "k", []), ValueError, "rank 1: there is no aggregation"),
        (("repartition", GOOD, "k"), ValueError, "rank 0 calls with operation='sort'"),
        (
            ("group_by", GOOD, "k", [("s", "no")]),
            ValueError,
            "rank 1: there is no function 'no', only all, any, count",
        ),
        (
            ("group_by", GOOD, "k", [("s", "sum", {"ddof": 1})]),
            ValueError,
            "rank 1: 'sum' has no option 'ddof'",
        ),
    ],
)
def test_a_bad_argument_of_one_rank_is_raised_on_all(call, error, text):
    async def main(comm):
        name, *arguments = call if comm.rank else ("sort", GOOD, "k")
        with (
            pytest.raises(error, match=text)
            if error is not KeyError
            else (pytest.raises(ValueError))
        ):
            await getattr(ucp.table, name)(*arguments, comm=comm)
        return (await ucp.table.sort(GOOD, "k", comm=comm)).num_rows

    assert sum(good_world(2, main)) == 6


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (("sort", GOOD, "x"), KeyError, "the table has no column 'x', only 'k', 's'"),
        (("group_by", GOOD, "x", [("k", "sum")]), KeyError, "has no column 'x'"),
        (
            ("group_by", GOOD, "k", [("s", "sum")]),
            TypeError,
            "so: 'sum' of the column 's'",
        ),
        (("repartition", GOOD, "x"), KeyError, "the table has no column 'x'"),
        (("sort", None, "x"), ValueError, "no rank has a table with columns"),
    ],
)
def test_a_bad_argument_of_all_ranks_is_raised(call, error, text):
    async def main(comm):
        name, *arguments = call
        with pytest.raises(error, match=text):
            await getattr(ucp.table, name)(*arguments, comm=comm)
        with pytest.raises(ValueError, match=r"^n is 3, and there are 2 ranks$"):
            await ucp.table.repartition(GOOD, comm=comm, n=3)

    good_world(2, main)


def test_bad_options_are_named():
    async def main(comm):
        for options, error in (
            ({"unknown": 1}, TypeError),
            ({"progress": 5}, TypeError),
            ({"budget": 0}, ValueError),
            ({"seed": -1}, ValueError),
            ({"over_decomposition": 0}, ValueError),
            ({"descending": [True, False]}, ValueError),
            ({"descending": 1}, TypeError),
            ({"nulls": "no"}, ValueError),
        ):
            with pytest.raises(error, match=str(next(iter(options))).split("_")[0]):
                await ucp.table.sort(GOOD, "k", comm=comm, **options)
        with pytest.raises(TypeError, match="needs the argument 'comm'"):
            await ucp.table.sort(GOOD, "k")
        with pytest.raises(ValueError, match=r"^rank 0: ddof is -1, not 0 or more$"):
            await ucp.table.group_by(GOOD, "k", [("x", "std")], comm=comm, ddof=-1)
        with pytest.raises(ValueError, match=r"^there is no operation 'join'"):
            ucp.table.stream("join", GOOD)
        with pytest.raises(TypeError, match="needs the argument 'comm'"):
            ucp.table.stream("sort", GOOD, "k")
        gc.collect()

    good_world(1, main)


def test_an_operation_at_a_time():
    async def main(comm):
        calls = [ucp.table.sort(GOOD, "k", comm=comm) for _ in range(2)]
        ends = await asyncio.gather(*calls, return_exceptions=True)
        assert isinstance(ends[1], ucp.exceptions.UCXBusy)
        return ends[0].num_rows

    assert sum(good_world(2, main)) == 6


@pytest.mark.parametrize("where", ["prepare", "partition", "finish", "progress"])
def test_a_rank_that_raises_ends_the_call_on_all(where, monkeypatch):
    job = ucp.table._plan.SortJob
    bad = []

    def fail(*_):
        raise RuntimeError("on purpose")

    async def main(comm):
        table = pa.table({"k": np.arange(1000)})
        options = {"comm": comm, "over_decomposition": 3}
        if comm.rank == 1:
            bad.append(comm.rank)
            if where == "progress":
                options["progress"] = fail
        with pytest.raises(
            (RuntimeError, ucp.exceptions.UCXRankFailed), match="purpose"
        ):
            await ucp.table.sort(table, "k", **options)
        assert comm.failure is None
        await comm.barrier()
        monkeypatch.undo()
        await comm.barrier()
        return (await ucp.table.sort(table, "k", comm=comm)).num_rows

    if where != "progress":
        monkeypatch.setattr(job, where, fail)
    assert sum(good_world(2, main)) == 2000


def test_a_cancelled_call_ends_on_all_and_leaves_nothing():
    async def main(comm):
        table = pa.table({"k": np.arange(200_000)})
        with MemoryCache() as cache:
            options = {"comm": comm, "over_decomposition": 8, "cache": cache}
            task = asyncio.ensure_future(ucp.table.sort(table, "k", **options))
            if comm.rank == 0:
                while cache.taken == 0:
                    await asyncio.sleep(0)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            else:
                with pytest.raises(ucp.exceptions.UCXRankFailed):
                    await task
            found = await ucp.table.sort(table, "k", comm=comm)
        return found.num_rows

    assert sum(good_world(2, main)) == 400_000
    gc.collect()
    assert live_objects().get("Memory", 0) == 0


KILLED = """
import pyarrow as pa
import ucp.table

async def main():
    comm = await connect()
    table = pa.table({"k": np.arange(100_000)})
    await ucp.table.sort(table, "k", comm=comm)
    try:
        stream = ucp.table.stream("sort", table, "k", comm=comm, over_decomposition=8)
        async for part in stream:
            if comm.rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
    except ucp.exceptions.UCXRankFailed as exc:
        print("failed", exc.rank)

asyncio.run(main())
"""


def test_a_rank_that_is_killed_is_named():
    with Ranks(2, KILLED) as ranks:
        assert ranks.end(0) == "failed 1"


def test_a_budget_and_a_spill_file(tmp_path):
    async def main(comm):
        rng = np.random.default_rng(comm.rank)
        table = pa.table(
            {"k": rng.integers(0, 1 << 30, 300_000), "x": rng.random(300_000)}
        )
        done = []
        found = await ucp.table.sort(
            table,
            "k",
            comm=comm,
            stable=True,
            budget=1 << 20,
            spill_dir=tmp_path,
            progress=lambda *its: done.append(its),
        )
        return table, found, done

    given, found, done = zip(*good_world(2, main), strict=True)
    assert whole(found).equals(whole(given).sort_by("k"))
    for its in done:
        assert its == [(n + 1, len(its)) for n in range(len(its))]


def test_results_have_memory_of_their_own():
    async def main(comm):
        table = pa.table({"k": np.arange(10), "s": ["text"] * 10})
        found = await ucp.table.repartition(table, comm=comm)
        return found, found.get_total_buffer_size()

    for found, nbytes in good_world(2, main):
        assert nbytes < 1000
        assert found["s"].to_pylist() == ["text"] * 10
