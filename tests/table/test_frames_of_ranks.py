# SPDX-License-Identifier: BSD-3-Clause
# tests: ucp/plan
"""Tables of which each rank has made its own: by reading a file, for example."""

import datetime
import io

import numpy as np
import pyarrow as pa
import pytest
from worlds import good_world

import ucp
import ucp.table

pd = pytest.importorskip("pandas")

READ = ["k,v\n2,2020-01-01 10:00\n1,2020-01-02 11:00\n", "k,v\n3,\n4,\n"]
STAMPS = ["2020-01-01", "2020-01-01 10:00:00.123456789"]


def read(text, **options):
    return pd.read_csv(io.StringIO(text), **options)["v"]


# The column of each of two ranks.
COLUMNS = {
    "times that are all missing": [read(text, parse_dates=["v"]) for text in READ],
    "strings that are all missing": [read(text) for text in READ],
    "units": [pd.Series(pd.to_datetime([each])) for each in STAMPS],
    "units of time zones": [
        pd.Series(pd.to_datetime([each], utc=True)) for each in STAMPS
    ],
    "durations": [pd.Series([pd.Timedelta(1, "s")]), pd.Series([pd.NaT])],
    "units of durations": [
        pd.Series(pd.to_timedelta([n], unit=unit)) for n, unit in ((9, "s"), (8, "ns"))
    ],
    "an integer with NaN": [pd.Series([1, 2]), pd.Series([5.0, np.nan])],
    "integers of two sizes": [pd.Series([1, 2], dtype=t) for t in ("i1", "u8")],
    "integers and nothing": [pd.Series([1, 2]), pd.Series([np.nan])],
    "nullable integers and floats": [
        pd.Series([1, None], dtype="Int32"),
        pd.Series([0.5]),
    ],
    "integers, some nullable": [pd.Series([1]), pd.Series([2], dtype="Int64")],
    "bools and None": [pd.Series([True, False]), pd.Series([None])],
    "categories and None": [
        pd.Series(["b", "a"], dtype="category"),
        pd.Series([None]).astype("category"),
    ],
    "strings and objects": [pd.Series(["b"]), pd.Series(["a"], dtype=object)],
    "no rows": [pd.Series(["b", "a"]), pd.Series([], dtype="f4")],
}


@pytest.mark.parametrize("swaps", [False, True])
def test_columns_are_put_together_as_pandas_does(swaps):
    async def main(comm):
        found = []
        for columns in COLUMNS.values():
            mine = columns[comm.rank ^ swaps].to_frame("v")
            found.append(await ucp.table.sort(mine, "v", comm=comm))
        return found

    for (name, columns), *parts in zip(
        COLUMNS.items(), *good_world(2, main), strict=True
    ):
        first, second = (part["v"] for part in parts)
        known = [each for each in columns if each.notna().any()]
        whole = pd.concat(known)
        assert first.dtype == second.dtype, name
        if whole.dtype not in (np.int64, bool) or len(known) == 2:
            assert first.dtype == whole.dtype, name
        assert first.isna().sum() + second.isna().sum() == sum(
            each.isna().sum() for each in columns
        )
        found = pd.concat([first, second]).dropna()
        expected = whole.dropna().sort_values()
        assert found.tolist() == expected.tolist(), name


def test_types_that_differ_are_refused_on_all_ranks():
    async def main(comm):
        values = [["a"], [1]][comm.rank]
        text = r"^column 'v' of the table is int64 on rank 1|is large_string on rank 0"
        with pytest.raises(TypeError, match=text):
            await ucp.table.sort(pd.DataFrame({"v": values}), "v", comm=comm)
        arrow = pa.table({"v": [[1], [0.5]][comm.rank]})
        text = (
            r"^column 'v' of the table is int64 on rank 0, double on rank 1: cast one"
        )
        with pytest.raises(TypeError, match=text):
            await ucp.table.sort(arrow, "v", comm=comm)

    good_world(2, main)


def test_a_column_of_arrow_without_values_has_the_type_of_others():
    async def main(comm):
        kind = [pa.string(), pa.int8()][comm.rank]
        table = pa.table({"v": pa.array([["a"], [None]][comm.rank], kind)})
        return (await ucp.table.sort(table, "v", comm=comm))["v"]

    found = pa.chunked_array([one.combine_chunks() for one in good_world(2, main)])
    assert found.type == pa.string() and found.to_pylist() == ["a", None]


# --- groups of categories and times -------------------------------------------

SIZES = ["small", "medium", "large"]


def test_a_key_has_its_categories_on_ranks_without_groups():
    kind = pd.CategoricalDtype(["c", "b", "a"])

    async def main(comm):
        frame = pd.DataFrame({"k": pd.Series(["a", "a"], dtype=kind), "v": [1, 2]})
        found = [await ucp.table.group_by(frame, "k", [("v", "sum")], comm=comm)]
        async with ucp.table.stream(
            "group_by", frame, "k", [([], "size")], comm=comm
        ) as s:
            found += [part async for part in s]
        nothing = frame.iloc[:0]
        found.append(await ucp.table.group_by(nothing, "k", [([], "size")], comm=comm))
        return found

    for parts in zip(*good_world(3, main), strict=True):
        assert all(part["k"].dtype == kind for part in parts)
        assert pd.concat(parts)["k"].dtype == kind


def values_of_rank(rank, rows=300):
    """Sizes, names and times; some are missing."""
    rng = np.random.default_rng(rank)

    def some(values):
        return [None if n == len(values) else values[n] for n in numbers(values)]

    def numbers(values):
        return rng.integers(0, len(values) + 1, rows)

    return {
        "k": rng.integers(0, 5, rows),
        "size": some(SIZES),
        "name": some(["b", "a", "c"]),
        "time": some([pd.Timestamp(2020, 1, n, n) for n in (1, 5, 9)]),
        "lasts": some([pd.Timedelta(hours=n) for n in (7, 5, -9)]),
    }


EXTREMES = ["min", "max", "first", "last"]
TIMES = [*EXTREMES, "mean"]


def keyed(rows):
    """Rows by their first value; times may differ in their last digits."""

    def known(value):
        is_time = isinstance(value, datetime.datetime | datetime.timedelta)
        start = datetime.datetime(1970, 1, 1)
        if is_time and not isinstance(value, datetime.timedelta):
            value -= start
        return pytest.approx(value.total_seconds(), abs=2e-6) if is_time else value

    return {key: [None if v != v else known(v) for v in its] for key, *its in rows}


def test_extremes_of_categories_and_means_of_times_are_those_of_pandas():
    def frame_of(rank):
        frame = pd.DataFrame(values_of_rank(rank))
        frame["size"] = pd.Categorical(frame["size"], SIZES, ordered=True)
        frame["name"] = frame["name"].astype("category")
        return frame

    wanted = [("size", name) for name in EXTREMES]
    wanted += [("time", name) for name in TIMES]
    wanted += [("lasts", name) for name in (*TIMES, "sum")]
    named = {f"{column}_{name}": (column, name) for column, name in wanted}

    async def main(comm):
        frame = frame_of(comm.rank)
        found = await ucp.table.group_by(frame, "k", wanted, comm=comm)
        names = [("name", "first"), ("name", "last"), ("name", "min"), ("name", "max")]
        names = await ucp.table.group_by(frame, "k", names, comm=comm)
        return found, names

    found, names = map(pd.concat, zip(*good_world(2, main), strict=True))
    whole = pd.concat([frame_of(rank) for rank in range(2)])
    groups = whole.groupby("k").agg(**named).reset_index()
    assert keyed(found.to_numpy(object)) == keyed(groups.to_numpy(object))
    assert found.dtypes.to_dict() == groups.dtypes.to_dict()
    whole["name"] = whole["name"].astype(object)
    wanted = {name: ("name", name) for name in ("first", "last", "min", "max")}
    whole = whole.groupby("k").agg(**wanted).reset_index()
    assert keyed(names.astype(object).to_numpy()) == keyed(whole.to_numpy(object))


@pytest.mark.parametrize("library", ["polars", "arrow"])
def test_they_are_those_of_polars(library, monkeypatch):
    polars = pytest.importorskip("polars")
    monkeypatch.setattr("ucp.table._plan.choose_library", lambda *_: library)

    def frame_of(rank):
        return polars.DataFrame(values_of_rank(rank)).with_columns(
            polars.col("size").cast(polars.Enum(SIZES)),
            polars.col("time").dt.date().alias("day"),
        )

    wanted = [("size", "min"), ("size", "max"), ("lasts", "sum"), ("day", "min")]
    wanted += [(name, "mean") for name in ("time", "lasts", "day")]

    async def main(comm):
        found = await ucp.table.group_by(frame_of(comm.rank), "k", wanted, comm=comm)
        text = r"^the table cannot be grouped so: 'sum' of the column 'day', which"
        with pytest.raises(TypeError, match=text):
            await ucp.table.group_by(
                frame_of(comm.rank), "k", [("day", "sum")], comm=comm
            )
        return found

    found = polars.concat(good_world(2, main))
    whole = polars.concat([frame_of(rank) for rank in range(2)])
    own = [
        getattr(polars.col(column), name)().alias(f"{column}_{name}")
        for column, name in wanted
    ]
    groups = whole.group_by("k").agg(own)
    assert found.schema == groups.schema
    assert keyed(found.rows()) == keyed(groups.rows())
