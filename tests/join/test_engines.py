# SPDX-License-Identifier: BSD-3-Clause
# tests: ucp/libraries
"""The local joins of libraries give what Arrow's gives, in types and rows."""

import datetime
import decimal
import random

import numpy as np
import pyarrow as pa
import pytest
from pairs import pairwise
from worlds import good_world

import ucp.join
import ucp.join._plan
from ucp.join import ArrowJoin, DuckDBJoin, JoinSpec, PolarsJoin

HOWS = ("inner", "left", "right", "outer", "semi", "anti")
LIBRARIES = {"polars": PolarsJoin, "duckdb": DuckDBJoin}

every_library = pytest.mark.parametrize("library", LIBRARIES)
every_how = pytest.mark.parametrize("how", HOWS)


def join_by(library):
    pytest.importorskip(library)
    return LIBRARIES[library]()


NAN = np.array([0x7FF8000000000001, 0xFFF8000000000000], "u8").view("f8")
FLOATS = [0.0, -0.0, 1.5, float("nan"), *NAN, float("inf")]
ZONE = pa.timestamp("ns", "America/New_York")

# A type, and a function that makes a value of it.
KINDS = {
    "int64": (pa.int64(), lambda r: r.randrange(-9, 9)),
    "uint64": (pa.uint64(), lambda r: r.choice([0, 1, 2**64 - 1, 2**63])),
    "int8": (pa.int8(), lambda r: r.randrange(-4, 4)),
    "double": (pa.float64(), lambda r: r.choice(FLOATS)),
    "float": (pa.float32(), lambda r: r.choice(FLOATS)),
    "bool": (pa.bool_(), lambda r: r.random() < 0.5),
    "string": (pa.string(), lambda r: "é" * r.randrange(5)),
    "large_string": (pa.large_string(), lambda r: "z" * r.randrange(5)),
    "binary": (pa.binary(), lambda r: bytes([255]) * r.randrange(4)),
    "fixed": (pa.binary(3), lambda r: bytes([r.randrange(3)]) * 3),
    "date": (pa.date32(), lambda r: datetime.date(2024, 1, r.randrange(1, 9))),
    "zone": (ZONE, lambda r: r.randrange(9)),
    "offset": (pa.timestamp("s", "+01:00"), lambda r: r.randrange(9)),
    "time": (pa.time64("ns"), lambda r: r.randrange(9)),
    "duration": (pa.duration("s"), lambda r: r.randrange(9)),
    "decimal": (pa.decimal128(30, 2), lambda r: decimal.Decimal(r.randrange(9)) / 4),
    "dictionary": (
        pa.dictionary(pa.int32(), pa.string()),
        lambda r: r.choice("abcd"),
    ),
    "dictionary of floats": (
        pa.dictionary(pa.int32(), pa.float64()),
        lambda r: r.choice(FLOATS),
    ),
}
KEYS = [
    kind for kind in KINDS if kind not in ("list", "struct", "dictionary of floats")
]


def column(kind, count, rng):
    type_, make = KINDS[kind]
    values = [None if rng.random() < 0.15 else make(rng) for _ in range(count)]
    if pa.types.is_dictionary(type_):
        return pa.array(values, type_.value_type).dictionary_encode()
    return pa.array(values, type_)


def random_table(rng, keys, count, names):
    """A table of two chunks, the second of which begins inside its buffers."""
    columns = {f"k{i}": column(kind, count, rng) for i, kind in enumerate(keys)}
    for kind in rng.sample(list(KINDS), rng.randrange(1, 5)):
        columns[rng.choice(names) + kind] = column(kind, count, rng)
    whole = pa.table(columns)
    cut = rng.randrange(count + 1)
    return pa.concat_tables([whole.slice(0, cut), whole.slice(cut)])


def rows_of(table):
    """The rows as bits: every NaN is itself."""
    columns = []
    for name in table.column_names:
        one = table[name]
        if pa.types.is_dictionary(one.type):
            one = one.cast(one.type.value_type)
        if pa.types.is_floating(one.type):
            bits = {32: pa.int32(), 64: pa.int64()}[one.type.bit_width]
            one = pa.chunked_array([chunk.view(bits) for chunk in one.chunks], bits)
        if pa.types.is_timestamp(one.type):
            one = one.cast(pa.int64())
        columns.append(map(repr, one.to_pylist()))
    return sorted(zip(*columns, strict=True))


def check(library, how, left, right, keys):
    names = tuple(f"k{i}" for i in range(len(keys)))
    spec = JoinSpec(how, names, names, ("_x", "_y"))
    expected = ArrowJoin().join(left, right, spec)
    found = join_by(library).join(left, right, spec)
    assert found.schema == expected.schema
    found.validate(full=True)
    assert rows_of(found) == rows_of(expected)


@every_library
@every_how
@pytest.mark.parametrize("seed", range(12))
def test_results_are_those_of_arrow(library, how, seed):
    rng = random.Random(f"{how} {seed}")
    keys = rng.sample(KEYS, rng.choice([1, 1, 1, 2, 3]))
    left = random_table(rng, keys, rng.choice([0, 1, 40]), ["l", "b"])
    right = random_table(rng, keys, rng.choice([0, 1, 40]), ["r", "b"])
    check(library, how, left, right, keys)


@pytest.mark.parametrize(("library", "how", "key"), pairwise(LIBRARIES, HOWS, KEYS))
def test_every_key_is_found_as_arrow_finds_it(library, how, key):
    rng = random.Random(f"{how} {key}")
    left, right = (random_table(rng, [key], 30, [side, "b"]) for side in "lr")
    check(library, how, left, right, [key])


@every_library
@every_how
def test_results_have_their_own_memory(library, how):
    join = join_by(library)
    left = pa.table({"k": np.arange(5000), "s": [str(i) for i in range(5000)]})
    right = left.slice(2500 if how != "anti" else 5000).rename_columns(["k", "t"])
    if how == "anti":
        right = pa.table({"k": [-1], "t": ["x"]})
    found = join.join(left, right, JoinSpec(how, ("k",), ("k",), ("_x", "_y")))
    assert found.num_rows
    given = {
        buffer.address
        for table in (left, right)
        for one in table.columns
        for buffer in one.chunk(0).buffers()
        if buffer is not None
    }
    for one in found.columns:
        for chunk in one.chunks:
            assert not given & {b.address for b in chunk.buffers() if b is not None}


@every_library
def test_strings_that_are_too_long_are_joined_by_arrow(library, monkeypatch):
    asked = []
    monkeypatch.setattr("ucp.join._engines.MOST_BYTES", 1000)
    monkeypatch.setattr(
        ArrowJoin, "join", lambda self, *args: asked.append(args) or "of Arrow"
    )
    table = pa.table({"k": [1] * 20, "s": ["long" * 3] * 20})
    spec = JoinSpec("inner", ("k",), ("k",), ("_x", "_y"))
    assert join_by(library).join(table, table, spec) == "of Arrow"
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("installed", "name"),
    [
        ({"polars", "duckdb"}, "PolarsJoin"),
        ({"duckdb"}, "DuckDBJoin"),
        (set(), "ArrowJoin"),
    ],
)
def test_the_first_library_that_is_installed_joins(installed, name, monkeypatch):
    for library in ("polars", "duckdb"):
        pytest.importorskip(library)

    async def main(comm, rows, **options):
        table = pa.table({"k": np.arange(rows)})
        found = await ucp.join.inner(table, table, on="k", comm=comm, **options)
        return found.statistics.local, found.table.num_rows

    monkeypatch.setattr(ucp.join._plan, "is_installed", installed.__contains__)
    least = ucp.join._plan.LEAST_ROWS // 4
    for found in good_world(2, lambda comm: main(comm, least)):
        assert found[0] == name
    for found in good_world(2, lambda comm: main(comm, least - 1)):
        assert found[0] == "ArrowJoin"
    given = DuckDBJoin()
    for found in good_world(2, lambda comm: main(comm, 10, local=given)):
        assert found[0] == "DuckDBJoin"
