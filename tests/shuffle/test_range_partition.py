# SPDX-License-Identifier: BSD-3-Clause
"""``ucp.shuffle.range_partition``: a table's rows by their place in an order."""

import random

import numpy as np
import pyarrow as pa
import pytest
from orders import VALUES, column_of, in_order

from ucp.shuffle import range_partition, read_partition


def assert_between(table, by, splitters, descending, nulls):
    """Rows and splitters are in the order in which Arrow sorts both together."""
    found = range_partition(table, by, splitters, descending=descending, nulls=nulls)
    assert len(found) == splitters.num_rows + 1
    both = pa.concat_tables([splitters.select(by), table.select(by)])
    order = in_order(both.unify_dictionaries(), by, descending, nulls).to_pylist()
    place, expected = 0, {}
    for row in order:  # a splitter is before rows that are equal to it
        if row < splitters.num_rows:
            place += 1
        else:
            expected[row - splitters.num_rows] = place
    for number, part in enumerate(found):
        part.validate(full=True)
        rows = part["row"].to_pylist()
        assert rows == sorted(rows)
        assert {expected[row] for row in rows} <= {number}


@pytest.mark.parametrize("kind", VALUES, ids=str)
def test_rows_are_between_splitters(kind):
    rng = random.Random(str(kind))
    for descending in (False, True):
        for nulls in ("first", "last"):
            rows = rng.choice([0, 1, 50, 700])
            table = pa.table({"k": column_of(kind, rng, rows), "row": range(rows)})
            splitters = pa.table({"k": column_of(kind, rng, rng.choice([0, 1, 9]))})
            order = in_order(splitters, ["k"], [descending], nulls)
            splitters = splitters.take(order)
            assert_between(table, ["k"], splitters, [descending], nulls)


def test_rows_are_between_splitters_of_several_keys():
    rng = random.Random(1)
    for _ in range(40):
        kinds = rng.choices(list(VALUES), k=rng.choice([2, 3]))
        by = [f"k{n}" for n in range(len(kinds))]
        rows = rng.choice([1, 50, 300])
        table = pa.table(
            {k: column_of(kind, rng, rows) for k, kind in zip(by, kinds, strict=True)}
        )
        table = table.append_column("row", pa.array(range(rows)))
        splitters = pa.table(
            {k: column_of(kind, rng, 8) for k, kind in zip(by, kinds, strict=True)}
        )
        descending = [rng.random() < 0.5 for _ in by]
        nulls = rng.choice(["first", "last"])
        splitters = splitters.take(in_order(splitters, by, descending, nulls))
        assert_between(table, by, splitters, descending, nulls)


def test_threads_and_chunks_do_not_matter():
    rng = np.random.default_rng(0)
    table = pa.table({"k": rng.integers(0, 1000, 100_000), "row": np.arange(100_000)})
    splitters = {"k": np.arange(0, 1000, 7)}
    found = range_partition(table, "k", splitters)
    cut = pa.concat_tables([table.slice(0, 33_333), table.slice(33_333)])
    again = range_partition(cut, "k", splitters, threads=3)
    assert [*found] == [*again]
    assert found.offsets == again.offsets


def test_arrays_and_regions():
    table = {"k": np.array([5, 1, 3], "i2"), "x": np.ones((3, 2))}
    found = range_partition(table, "k", {"k": np.array([3, 5], "i2")}, descending=False)
    assert [part["k"].tolist() for part in found] == [[1], [3], [5]]
    part = read_partition(found.buffer(2), found.schema)
    assert part["x"].tolist() == [[1, 1]]


TABLE = pa.table({"k": [1, 2, 3], "s": ["a", "b", "c"]})


@pytest.mark.parametrize(
    ("splitters", "options", "error", "text"),
    [
        ({"k": np.array([2, 1])}, {}, ValueError, "^the splitters are not in order$"),
        ({"k": np.array([1, 2])}, {"descending": True}, ValueError, "not in order$"),
        ({"s": np.array([1])}, {}, KeyError, "there is no column 'k', only 's'"),
        ({"k": np.array([1], "i4")}, {}, TypeError, "^column 'k' has another type in"),
        ({"k": np.arange(65535)}, {}, ValueError, "^65535 splitters are more than"),
        ({"k": np.array([1])}, {"nulls": "no"}, ValueError, "^nulls is 'no', not 'fir"),
        (
            {"k": np.array([1])},
            {"descending": [True] * 2},
            ValueError,
            "2 values, there",
        ),
        (
            {"k": np.array([1])},
            {"descending": ["no"]},
            TypeError,
            "'no', which is no b",
        ),
        (
            {"k": np.array([1])},
            {"threads": 0},
            ValueError,
            "^threads is 0, not 1 to 64$",
        ),
        (5, {}, TypeError, "^expected an Arrow table"),
    ],
)
def test_what_makes_no_sense_is_refused(splitters, options, error, text):
    with pytest.raises(error, match=text):
        range_partition(TABLE, "k", splitters, **options)


def test_a_number_that_no_dictionary_has_is_refused():
    numbers = pa.array([0, 1], pa.int8())
    bad = pa.DictionaryArray.from_arrays(numbers, pa.array(["a"]), safe=False)
    table = pa.table({"k": bad})
    with pytest.raises(ValueError, match=r"column 'k': a row has a number that is not"):
        range_partition(table, "k", pa.table({"k": ["a"]}))


KINDS = [
    (pa.timestamp("ms"), pa.timestamp("s")),
    (pa.duration("us"), pa.duration("ns")),
    (pa.decimal128(5, 0), pa.decimal128(5, 1)),
    (pa.dictionary(pa.int8(), pa.timestamp("ms")), pa.timestamp("s")),
    (pa.int64(), pa.timestamp("s")),
    (pa.date32(), pa.int32()),
]


@pytest.mark.parametrize(("kind", "other"), KINDS, ids=str)
def test_splitters_of_another_unit_are_refused(kind, other):
    table, splitters = (pa.table({"k": pa.nulls(1, its)}) for its in (kind, other))
    with pytest.raises(TypeError, match=r"^column 'k' has another type in the spl"):
        range_partition(table, "k", splitters)


def test_splitters_of_another_unit_are_refused_in_arrays():
    times = [{"k": np.array([5], f"datetime64[{unit}]")} for unit in ("s", "ms")]
    with pytest.raises(TypeError, match=r"^column 'k' has another type in the spl"):
        range_partition(times[0], "k", times[1])
    assert range_partition(times[0], "k", times[0]).num_rows(1) == 1


@pytest.mark.parametrize(
    ("kind", "other"),
    [
        (pa.timestamp("s", "UTC"), pa.timestamp("s", "Europe/Berlin")),
        (pa.decimal128(9, 2), pa.decimal128(5, 2)),
        (pa.string(), pa.large_binary()),
        (pa.dictionary(pa.int8(), pa.timestamp("s")), pa.timestamp("s")),
    ],
    ids=str,
)
def test_splitters_of_a_type_with_the_same_order(kind, other):
    table, splitters = (pa.table({"k": pa.nulls(1, its)}) for its in (kind, other))
    assert range_partition(table, "k", splitters).num_rows(1) == 1


def test_a_direction_is_a_bool():
    table = {"k": np.arange(3)}
    with pytest.raises(TypeError, match=r"^descending is 1, not a bool or one for e"):
        range_partition(table, "k", table, descending=1)
