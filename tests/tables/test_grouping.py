# SPDX-License-Identifier: BSD-3-Clause
# tests: ucp/rows ucp/encoded
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


def test_several_functions_of_a_column():
    its = [Aggregation("v_sum", "v", "sum"), Aggregation("v_mean", "v", "mean")]
    assert [*read_aggregations({"v": ["sum", "mean"]})] == its
    assert [*read_aggregations([("v", ["sum", "mean"])])] == its
    its = [Aggregation("v_std", "v", "stddev", (("ddof", 0),))]
    assert [*read_aggregations([("v", ["std"], {"ddof": 0})])] == its
    named = [Aggregation("total", "v", "sum")]
    assert [*read_aggregations({"total": ["v", "sum"]})] == named
    with pytest.raises(ValueError, match=r"^there is no function 'no', only all, any"):
        read_aggregations({"v": ["sum", "no"]})
    with pytest.raises(ValueError, match=r"^two columns of the result are named 'v_su"):
        read_aggregations([("v", ["sum", "sum"])])


def test_columns_that_cannot_be_grouped_are_named():
    wanted = read_aggregations([("l", "sum")])
    with pytest.raises(
        TypeError, match=r"^the table cannot be grouped so: 'sum' of the"
    ):
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


def grouped(parts, keys, wanted, is_reduced=True, library="arrow"):
    """The groups of the rows of several ranks."""
    wanted = read_aggregations(wanted)
    grouping = Grouping(parts[0].schema, keys, wanted)
    prepared = [grouping.prepare(part) for part in parts]
    if is_reduced:
        assert grouping.can_reduce
        prepared = [grouping.reduce(part, library) for part in prepared]
    whole = pa.concat_tables(prepared)
    return grouping.finish(whole, is_reduced, library).to_pylist()


@pytest.mark.parametrize("library", ["polars", "arrow"])
def test_the_mean_of_large_integers(library):
    if library == "polars":
        pytest.importorskip("polars")
    for value, kind in ((2**62, pa.int64()), (2**63 + 2**62, pa.uint64())):
        part = pa.table({"k": [1] * 9, "x": pa.array([value] * 9, kind)})
        for is_reduced in (True, False):
            found = grouped([part] * 2, ["k"], [("x", "mean")], is_reduced, library)
            assert found == [{"k": 1, "x_mean": float(value)}]
    one = pa.table({"k": [1], "x": [17 * 10**14 + 1]})  # and more than 2**53
    (found,) = grouped([one] * 9, ["k"], [("x", "mean"), ("x", "sum")])
    assert found == {"k": 1, "x_mean": 17e14 + 1, "x_sum": 9 * (17 * 10**14 + 1)}


@pytest.mark.parametrize("library", ["polars", "arrow"])
@pytest.mark.parametrize("kind", [pa.int8(), pa.uint16(), pa.float32(), pa.float64()])
def test_groups_without_a_value(library, kind):
    if library == "polars":
        pytest.importorskip("polars")
    values = pa.array([100, None, 100, None, None], kind)
    part = pa.table({"k": [1, 1, 1, 2, 2], "x": values})
    wanted = [("x", ["sum", "mean", "count", "max"]), ([], "size")]
    whole = {"x_sum": 400, "x_mean": 100.0, "x_count": 4, "x_max": 100, "size": 6}
    nothing = {"x_sum": None, "x_mean": None, "x_count": 0, "x_max": None, "size": 4}
    for is_reduced in (True, False):
        found = grouped([part] * 2, ["k"], wanted, is_reduced, library)
        assert sorted(found, key=str) == [{"k": 1, **whole}, {"k": 2, **nothing}]


def test_what_two_functions_need_is_computed_once():
    wanted = read_aggregations([("x", ["sum", "mean", "count"])])
    assert len(Grouping(SCHEMA, ["k"], wanted).reduced_schema) == 3  # and the key


@pytest.mark.parametrize("is_reduced", [True, False])
def test_keys_are_aggregated_as_the_columns_that_they_are(is_reduced):
    part = pa.table({"k": pa.array(["b", "a", "b", None]).dictionary_encode()})
    wanted = {"k 0": ("k", "count"), "n": ([], "size")}
    found = grouped([part] * 2, ["k"], wanted, is_reduced)
    assert sorted(found, key=str) == [
        {"k": "a", "k 0": 2, "n": 2},
        {"k": "b", "k 0": 4, "n": 4},
        {"k": None, "k 0": 0, "n": 2},
    ]
    found = grouped([part], ["k"], [("k", "min")], is_reduced)
    assert all(its["k"] == its["k_min"] for its in found) and len(found) == 3
    plain = pa.table({"k": [2, 1, 2], "x": [1, 2, 3]})
    found = grouped([plain], ["k"], {"k 0": ("k", "max")}, is_reduced, "polars")
    assert sorted(its["k 0"] for its in found) == [1, 2]


def test_a_null_of_any_rank_makes_a_sum_null_that_does_not_skip_them():
    parts = [pa.table({"k": [1], "x": pa.array([x], pa.int64())}) for x in (1, None)]
    wanted = {
        "s": ("x", "sum", {"skip_nulls": False, "min_count": 0}),
        "n": ("x", "sum", {"min_count": 0}),
    }
    for order in (parts, parts[::-1]):
        assert grouped(order, ["k"], wanted) == [{"k": 1, "s": None, "n": 1}]


def test_equal_floats_of_a_dictionary_are_one_key():
    values = pa.array([0.0, 1.0, -0.0, float("nan"), -float("nan")], pa.float32())
    numbers = pa.array([0, 2, 1, 3, 4, None], pa.int8())
    column = pa.DictionaryArray.from_arrays(numbers, values)
    part = pa.table({"k": column, "x": [1] * 6})
    for is_reduced in (True, False):
        found = grouped([part, part], ["k"], [("x", "sum")], is_reduced)
        assert sorted(repr(its["k"]) for its in found) == ["0.0", "1.0", "None", "nan"]
        sums = {repr(its["k"]): its["x_sum"] for its in found}
        assert sums == {"0.0": 4, "1.0": 2, "None": 2, "nan": 4}
        empty = grouped([part.slice(0, 0)], ["k"], [("x", "sum")], is_reduced)
        assert empty == []


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
