# SPDX-License-Identifier: BSD-3-Clause
# tests: ucp/plan
"""Tables of which each rank has made its own: by reading a file, for example."""

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
