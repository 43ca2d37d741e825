# SPDX-License-Identifier: BSD-3-Clause
"""All libraries sort the rows of a rank as Arrow does."""

import decimal
import random

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from orders import VALUES, column_of, in_order

from ucp._tables import sorting
from ucp._tables.sorting import LIBRARIES, Order, choose_library, sort_rows

OTHERS = [
    *(pa.int16(), pa.float64(), pa.string(), pa.binary(3), pa.bool_(), pa.null()),
    *(pa.decimal128(30, 2), pa.dictionary(pa.int8(), pa.string())),
]


def table_of(kinds, rng, rows):
    columns = {f"k{n}": column_of(kind, rng, rows) for n, kind in enumerate(kinds)}
    others = rng.sample(OTHERS, 3)
    columns |= {f"x{n}": column_of(kind, rng, rows) for n, kind in enumerate(others)}
    whole = pa.table({**columns, "row": range(rows)}).unify_dictionaries()
    cut = rng.randrange(rows + 1)
    return pa.concat_tables([whole.slice(0, cut), whole.slice(cut)])


def assert_sorted(library, kinds, rng, rows):
    table = table_of(kinds, rng, rows)
    by = tuple(f"k{n}" for n in range(len(kinds)))
    descending = tuple(rng.random() < 0.5 for _ in by)
    nulls = rng.choice(["first", "last"])
    expected = table.take(in_order(table, by, descending, nulls))
    found = sort_rows(table, Order(by, descending, nulls, True), library)
    found.validate(full=True)
    assert found.schema.equals(table.schema)
    assert found["row"].to_pylist() == expected["row"].to_pylist()
    assert repr(found.to_pylist()) == repr(expected.to_pylist())
    loose = sort_rows(table, Order(by, descending, nulls), library)
    keys = loose.select(by).to_pylist()
    assert repr(keys) == repr(expected.select(by).to_pylist()).replace("-0.0", "0.0")
    assert sorted(loose["row"].to_pylist()) == list(range(rows))


@pytest.mark.parametrize("library", LIBRARIES)
def test_rows_are_in_the_order_of_arrow(library):
    if library == "polars":
        pytest.importorskip("polars")
    rng = random.Random(library)
    for kind in VALUES:
        for rows in (0, 1, 300):
            assert_sorted(library, [kind], rng, rows)
    for _ in range(30):
        kinds = rng.choices(list(VALUES), k=rng.choice([2, 3]))
        assert_sorted(library, kinds, rng, 200)


@pytest.mark.parametrize("library", LIBRARIES)
def test_one_number_without_nulls(library):
    if library == "polars":
        pytest.importorskip("polars")
    rng = random.Random(1)
    for kind in (pa.int8(), pa.uint64(), pa.float32(), pa.float64(), pa.date32()):
        for descending in (False, True):
            for nulls in ("first", "last"):
                pool = VALUES[kind]
                table = pa.table({"k": pa.array(rng.choices(pool, k=99), kind)})
                table = table.append_column("row", pa.array(range(99)))
                order = Order(("k",), (descending,), nulls, True)
                expected = in_order(table, ["k"], [descending], nulls)
                found = sort_rows(table, order, library)
                assert found["row"].to_pylist() == expected.to_pylist()


@pytest.mark.parametrize("library", LIBRARIES)
def test_several_numbers_without_nulls(library):
    if library == "polars":
        pytest.importorskip("polars")
    rng = random.Random(2)
    pools = {
        pa.bool_(): [False, True],
        pa.int8(): [-128, -1, 0, 127],
        pa.int64(): [-(2**63), -(2**63) + 1, 0, 1, 2**63 - 1],
        pa.uint64(): [0, 1, 2**64 - 2, 2**64 - 1],
        pa.date32(): [-3, 5],
        pa.float32(): [float("nan"), float("inf"), -0.0, 0.0, 1e-40, -1.5],
        pa.float64(): [float("nan"), -float("inf"), -0.0, 0.0, 1.0, 1.0 + 2**-52],
    }
    for _ in range(60):
        kinds = rng.choices([*pools], k=rng.choice([2, 3, 4]))
        by = tuple(f"k{n}" for n in range(len(kinds)))
        columns = [pa.array(rng.choices(pools[kind], k=99), kind) for kind in kinds]
        table = pa.table([*columns, pa.array(range(99))], names=[*by, "row"])
        descending = tuple(rng.random() < 0.5 for _ in by)
        nulls = rng.choice(["first", "last"])
        expected = in_order(table, by, descending, nulls)
        found = sort_rows(table, Order(by, descending, nulls, True), library)
        assert found["row"].to_pylist() == expected.to_pylist()


def test_polars_sorts_many_rows_if_all_ranks_have_it():
    both, one = ["polars", "numpy", "arrow"], ["numpy", "arrow"]
    assert choose_library([both, both], 1 << 20) == "polars"
    assert choose_library([both, one], 1 << 20) == "numpy"
    assert choose_library([both, both], 100) == "numpy"


def test_the_result_has_memory_of_its_own():
    table = pa.table({"k": [2, 1], "s": ["a", "b"]})
    found = sort_rows(table, Order(("k",), (False,)))
    views = {b.address for c in table.columns for b in c.chunk(0).buffers() if b}
    own = {b.address for c in found.columns for b in c.chunk(0).buffers() if b}
    assert not views & own
    assert pc.max(found["k"]).as_py() == 2


def places(table):
    chunks = [chunk for column in table.columns for chunk in column.chunks]
    return {its.address for chunk in chunks for its in chunk.buffers() if its}


def test_a_key_without_a_value_leaves_rows_in_memory_of_their_own():
    pytest.importorskip("polars")
    half = pa.table({"k": pa.nulls(500, pa.int64()), "row": range(500)})
    table = pa.concat_tables([half, half])
    order = Order(("k",), (False,))
    key = sorting._Key(table["k"], False)
    assert key.is_constant
    for found in (
        sort_rows(table, order, "polars"),
        sorting._by_polars(table, order, [key]),  # gives what it was given
    ):
        assert not places(table) & places(found)
        assert found.equals(table)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("kind", ["decimal32", "decimal64"])
def test_short_decimals_have_the_order_of_long_ones(library, kind):
    if library == "polars":
        pytest.importorskip("polars")
    if not hasattr(pa, kind):
        pytest.skip("Arrow 18 has no such type")
    kind = getattr(pa, kind)(9, 2)
    numbers = [-(10**6), -257, -1, 0, 255, 256, 65536]
    values = [decimal.Decimal(n).scaleb(-2) for n in numbers]
    mixed = random.Random(1).sample([*values, None], len(values) + 1)
    plain = pa.array(mixed, kind)
    for keys in (plain, plain.cast(pa.decimal128(15, 2)).dictionary_encode()):
        if pa.types.is_dictionary(keys.type):
            keys = pa.DictionaryArray.from_arrays(
                keys.indices, keys.dictionary.cast(kind)
            )
        table = pa.table({"k": keys, "one": [1] * len(mixed)})
        for by in (("k",), ("one", "k")):
            order = Order(by, (False,) * len(by))
            found = sort_rows(table, order, library)
            assert found["k"].to_pylist() == [*values, None]


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_dictionary_of_floats_has_the_order_of_its_values(library):
    if library == "polars":
        pytest.importorskip("polars")
    values = [1.0, float("nan"), 0.0, None, -0.0, 2.0]
    column = pa.array(values).dictionary_encode()
    for by in (("k",), ("k", "row")):
        table = pa.table({"k": column, "row": range(6)})
        for descending in (False, True):
            for nulls in ("first", "last"):
                order = Order(by, (descending, False)[: len(by)], nulls, True)
                plain = table.set_column(0, "k", column.cast(pa.float64()))
                ways = [descending, False][: len(by)]
                expected = in_order(plain, by, ways, nulls)
                found = sort_rows(table, order, library)
                assert found["row"].to_pylist() == expected.to_pylist()
