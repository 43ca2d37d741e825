# SPDX-License-Identifier: BSD-3-Clause
# tests: ucp/rows
"""What ``group_by`` makes of its arguments, and of a rank's rows."""

import pyarrow as pa
import pytest

from ucp._tables.grouping import Aggregation, Grouping, _estimate, read_aggregations
from ucp._tables.rows import narrow, own_rows, take_rows

SCHEMA = pa.schema([("k", pa.int64()), ("x", pa.float64()), ("l", pa.list_(pa.int8()))])


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ([], ValueError, r"^there is no aggregation$"),
        ("sum", TypeError, r"^aggregations are 'sum', not a list of pairs$"),
        (["sum"], TypeError, r"^an aggregation is 'sum', not a pair of a column and"),
        ([("x", 5)], TypeError, r"^the function of an aggregation is 5, no name$"),
        ([(["x"], "sum")], TypeError, r"^the column of 'sum' is \['x'\], no name$"),
        ([("x", "sum")] * 2, ValueError, r"^two columns of the result are named 'x_s"),
        ([("x", "sum", {"ddof": 1})], ValueError, r"^'sum' has no option 'ddof'$"),
    ],
)
def test_what_makes_no_sense_is_refused(given, error, text):
    with pytest.raises(error, match=text):
        read_aggregations(given)


def test_aggregations_are_read():
    assert read_aggregations([("x", "var", {"ddof": 1}), ([], "size")]) == (
        Aggregation("x_var", "x", "variance", (("ddof", 1),)),
        Aggregation("size", "", "count_all"),
    )
    assert read_aggregations({"n": (None, "count_all")})[0].name == "n"


def test_columns_that_cannot_be_grouped_are_named():
    wanted = read_aggregations([("l", "sum")])
    with pytest.raises(TypeError, match=r"^the table cannot be grouped so: "):
        Grouping(SCHEMA, ["k"], wanted)
    with pytest.raises(KeyError, match="the table has no column 'y'"):
        Grouping(SCHEMA, ["k"], read_aggregations([("y", "sum")]))
    with pytest.raises(ValueError, match=r"^'k' is a key, and an aggregation$"):
        Grouping(SCHEMA, ["k"], read_aggregations({"k": ("x", "sum")}))


def test_parts_are_put_together():
    table = pa.table({"k": [1, 1, 2, None], "x": [1.0, None, 3.0, -0.0]})
    wanted = read_aggregations([("x", "mean"), ("x", "count"), ("x", "first")])
    grouping = Grouping(table.schema, ["k"], wanted, drop_nulls=True)
    assert grouping.can_reduce and grouping.columns == ("k", "x")
    prepared = grouping.prepare(table)
    parts = [grouping.reduce(prepared.slice(at, 1)) for at in range(3)]
    found = grouping.finish(pa.concat_tables(parts), True)
    assert found.sort_by("k").to_pylist() == [
        {"k": 1, "x_mean": 1.0, "x_count": 1, "x_first": 1.0},
        {"k": 2, "x_mean": 3.0, "x_count": 1, "x_first": 3.0},
    ]
    assert grouping.finish(prepared, False).schema == found.schema


def test_equal_floats_are_one_key():
    table = pa.table({"k": [0.0, -0.0, float("nan"), -float("nan")], "x": [1.0] * 4})
    grouping = Grouping(table.schema, ["k"], read_aggregations([([], "size")]))
    found = grouping.finish(grouping.prepare(table), False)
    assert found["size"].to_pylist() == [2, 2]


def test_how_many_keys_a_sample_tells():
    assert _estimate(20_000, 20_000) == float("inf")
    assert 90 < _estimate(100, 20_000) < 110
    assert 9_000 < _estimate(8_647, 20_000) < 11_000


def test_rows_are_taken_with_their_types():
    chunks = [pa.array([b"a", b"bb", None]), pa.array([b"cc"])]
    table = pa.table(
        {
            "b": pa.chunked_array(chunks),
            "d": pa.array(["x", "y", None, "x"]).dictionary_encode(),
            "u": pa.array([bytes([n]) * 16 for n in range(4)], pa.uuid()),
            "n": pa.nulls(4),
        }
    )
    found = take_rows(table, [3, 0, 2])
    found.validate(full=True)
    assert found.to_pylist() == [table.to_pylist()[row] for row in (3, 0, 2)]
    assert found.schema == table.schema
    assert own_rows(table).equals(table)
    assert own_rows(table.slice(0, 0)).schema == table.schema


def test_long_strings_are_cut_into_chunks(monkeypatch):
    monkeypatch.setattr("ucp._tables.rows.MOST_BYTES", 10)
    column = pa.chunked_array([pa.array(["aaaa", "bbbb", "cccc", None, "d"])])
    found = narrow(column.cast(pa.large_string()), pa.string())
    assert found.to_pylist() == column.to_pylist()
    assert found.num_chunks == 2
    table = take_rows(pa.table({"s": column}), [4, 2, 1, 0])
    assert table["s"].to_pylist() == ["d", "cccc", "bbbb", "aaaa"]
    assert table["s"].num_chunks > 1
