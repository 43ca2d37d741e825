# SPDX-License-Identifier: BSD-3-Clause
# tests: ext/object_table ucp/columns ucp/data
"""``ucp.shuffle.hash_partition``: a table's rows by the hash of a key."""

import datetime
import decimal
import mmap
import subprocess
import sys
import threading
import time

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from partition_model import partition

import ucp
from ucp._data.partition import count_rows
from ucp.shuffle import hash_partition, read_partition

ONE_DAY = datetime.timedelta(days=1)


def where(partitions, column="row"):
    """The partition of each row, by a column that numbers the rows."""
    found = {}
    for n in range(len(partitions)):
        if partitions.num_rows(n) == 0:
            continue
        rows = partitions[n][column]
        rows = rows.to_pylist() if hasattr(rows, "to_pylist") else rows.tolist()
        assert rows == sorted(rows)  # they keep their order
        found |= dict.fromkeys(rows, n)
    return [found[row] for row in range(len(found))]


def ids(array, num_partitions=65535, seed=0):
    """The partition of each value of an Arrow array."""
    table = pa.table({"key": array, "row": range(len(array))})
    return where(hash_partition(table, "key", num_partitions, seed))


# --- which partition ----------------------------------------------------------


GOLDEN = {
    0: 25491,
    1: 36225,
    -1: 58522,
    2**63 - 1: 28536,
    "": 25491,
    "a": 57251,
    "abcdefgh": 23439,
    0.5: 23039,
    None: 35736,
}


@pytest.mark.parametrize("value", GOLDEN, ids=repr)
def test_partition_of_a_value_never_changes(value):
    assert partition([value], 65535) == GOLDEN[value]
    assert ids(pa.array([value, value])) == [GOLDEN[value]] * 2


def test_partition_of_several_columns_never_changes():
    table = pa.table({"a": [1], "b": pa.array([None], pa.float64()), "c": ["xyz"]})
    found = hash_partition(table, ["a", "b", "c"], 65535, seed=7)
    assert [p for p in range(65535) if found.num_rows(p)] == [24173]
    other = hash_partition(table, ["c", "b", "a"], 65535, seed=7)
    assert other.num_rows(24173) == 0


INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64()]
UNSIGNED = [pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]


@pytest.mark.parametrize("kind", [*INTEGERS, *UNSIGNED, pa.bool_()], ids=str)
def test_equal_integers_of_all_widths_are_together(kind):
    numbers = pa.array([0, 1, None] if kind == pa.bool_() else [0, 1, 5, 100, None])
    assert ids(numbers.cast(kind)) == ids(numbers)


@pytest.mark.parametrize("kind", INTEGERS, ids=str)
def test_negative_integers_of_all_widths_are_together(kind):
    assert ids(pa.array([-1, -100], kind)) == ids(pa.array([-1, -100], pa.int64()))


def test_equal_floats_of_all_widths_are_together():
    values = [0.0, 1.5, -2.25, float("inf"), float("nan"), 6e-8, None]
    half = np.array([0, 1.5, -2.25, np.inf, np.nan, 6e-8], np.float16)
    expected = ids(
        pa.array([None if x is None else float(np.float16(x)) for x in values])
    )
    assert ids(pa.array([*half, None], pa.float16())) == expected
    single = pa.array(values, pa.float32())
    assert ids(single) == ids(single.cast(pa.float64()))


def test_zeros_are_equal_and_nans_are_equal():
    payload = np.array([0x7FF0000000000001, -1], "i8").view("f8")
    values = pa.array([0.0, -0.0, float("nan"), *payload])
    zero, other_zero, *nans = ids(values)
    assert zero == other_zero
    assert len(set(nans)) == 1 and nans[0] != zero


def test_decimals_are_by_value_in_all_widths():
    values = [decimal.Decimal(n) for n in (0, 1, -1, 5, 10**8, -(10**8))]
    kinds = [pa.decimal128(38), pa.decimal256(76)]
    if hasattr(pa, "decimal32"):  # Arrow 18 has none
        kinds += [pa.decimal32(9), pa.decimal64(18)]
    found = [ids(pa.array(values, kind)) for kind in kinds]
    assert found == [ids(pa.array([int(n) for n in values]))] * len(kinds)
    large = [decimal.Decimal(n) for n in (2**64, -(2**64), 10**30, -(10**30))]
    expected = [partition([int(n)], 65535) for n in large]
    assert ids(pa.array(large, pa.decimal128(38))) == expected
    assert ids(pa.array(large, pa.decimal256(76))) == expected


def test_large_unsigned_integers_are_as_decimals():
    values = [2**63 - 1, 2**63, 2**64 - 1]
    decimals = pa.array([decimal.Decimal(n) for n in values], pa.decimal128(38))
    assert ids(pa.array(values, pa.uint64())) == ids(decimals)
    assert ids(decimals) == [partition([n], 65535) for n in values]


def test_strings_and_binary_of_all_layouts_are_together():
    values = ["", "a", "abcdefg", "abcdefgh", "abcdefghi", "é" * 30, None]
    kinds = [
        *(pa.string(), pa.large_string(), pa.binary(), pa.large_binary()),
        *(pa.string_view(), pa.binary_view()),
    ]
    expected = [partition([value], 65535) for value in values]
    for kind in kinds:
        assert ids(pa.array(values, pa.string()).cast(kind)) == expected
    fixed = pa.array([b"abcdefghi"], pa.binary(9))
    assert ids(fixed) == [partition([b"abcdefghi"], 65535)]


@pytest.mark.parametrize("index", [pa.int8(), pa.uint16(), pa.int32(), pa.int64()])
def test_dictionary_columns_are_as_their_values(index):
    values = ["x", None, "yy", "x", "zzz" * 9]
    plain = pa.array(values)
    encoded = plain.dictionary_encode().cast(pa.dictionary(index, pa.string()))
    assert ids(encoded) == ids(plain)
    with_null = pa.DictionaryArray.from_arrays(
        pa.array([0, 1, 2, 0, 3], index), pa.array(["x", None, "yy", "zzz" * 9])
    )
    assert ids(with_null) == ids(plain)


def test_dates_and_times_are_their_numbers():
    for kind in (pa.date32(), pa.time32("s")):
        numbers = pa.array([0, 1, 4000, None], pa.int32())
        assert ids(numbers.cast(kind)) == ids(numbers)
    for kind in (pa.timestamp("ns", "UTC"), pa.duration("ms"), pa.time64("us")):
        numbers = pa.array([0, 1, 4000, None], pa.int64())
        assert ids(numbers.cast(kind)) == ids(numbers)


def test_nulls_are_a_value_of_their_own():
    assert len(set(ids(pa.array([None, 0, None, ""][:2], pa.int64())))) == 2
    expected = ids(pa.nulls(1))
    for kind in (pa.int8(), pa.string(), pa.float64(), pa.bool_(), pa.decimal256(9)):
        assert ids(pa.array([None], kind)) == expected


@pytest.mark.parametrize("num_partitions", [2, 3, 8, 100])
def test_levels_of_other_seeds_are_independent(num_partitions):
    rows = 100_000
    outer = hash_partition({"k": np.arange(rows)}, "k", 8)
    for part in outer:
        inner = hash_partition(part, "k", num_partitions, seed=1)
        mean = len(part["k"]) / num_partitions
        worst = max(abs(inner.num_rows(p) - mean) for p in range(num_partitions))
        assert worst < 6 * mean**0.5


# --- all rows, all columns ----------------------------------------------------


def values(kind):
    """Values of a type."""
    plain = {
        pa.int8(): st.integers(-128, 127),
        pa.int32(): st.integers(-5, 5),
        pa.uint64(): st.integers(0, 2**64 - 1),
        pa.float32(): st.floats(width=32, allow_nan=False),
        pa.bool_(): st.booleans(),
        pa.string(): st.text("aé\0", max_size=20),
        pa.large_binary(): st.binary(max_size=20),
        pa.binary(3): st.binary(min_size=3, max_size=3),
        pa.date32(): st.dates(),
        pa.decimal128(10, 2): st.integers(-9999, 9999).map(
            lambda n: decimal.Decimal(n) / 100
        ),
        pa.dictionary(pa.int32(), pa.string()): st.sampled_from(["a", "bb", "ccc"]),
        pa.null(): st.none(),
    }
    return plain[kind]


KINDS = [
    *(pa.int8(), pa.int32(), pa.uint64(), pa.float32(), pa.bool_(), pa.string()),
    *(pa.large_binary(), pa.binary(3), pa.date32(), pa.decimal128(10, 2)),
    *(pa.dictionary(pa.int32(), pa.string()), pa.null()),
]


@st.composite
def tables(draw):
    rows = draw(st.sampled_from([0, 1, 2, 9, 64, 65, 200]))
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=5))
    columns = {}
    for n, kind in enumerate(kinds):
        items = values(kind)
        if draw(st.booleans()):
            items = st.none() | items
        pool = draw(st.lists(items, min_size=1, max_size=12))
        picked = draw(st.randoms(use_true_random=False)).choices(pool, k=rows)
        columns[f"c{n}"] = pa.array(picked, kind)
    columns["row"] = pa.array(range(rows), pa.int64())
    return pa.table(columns)


@st.composite
def cuts(draw, table):
    """The table in other chunks, which are slices of a larger one."""
    both = pa.concat_tables([table, table]).combine_chunks()
    table = both.slice(table.num_rows)
    chunks, left = [], table
    while left.num_rows and len(chunks) < 6:
        n = draw(st.integers(0, left.num_rows))
        chunks.append(left.slice(0, n))
        left = left.slice(n)
    return pa.concat_tables([*chunks, left])


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_rows_are_the_same_whatever_the_chunks(data):
    table = data.draw(tables())
    num_partitions = data.draw(st.sampled_from([1, 2, 3, 16, 300]))
    seed = data.draw(st.sampled_from([0, 1, 2**64 - 1]))
    names = st.sampled_from(table.column_names[:-1])
    on = data.draw(st.lists(names, min_size=1, max_size=3))
    found = hash_partition(table, on, num_partitions, seed)
    assert len(found) == num_partitions
    expected = [[] for _ in range(num_partitions)]
    rows = table.to_pylist()
    for row in rows:
        key = [plain_value(row[name], table[name].type) for name in on]
        expected[partition(key, num_partitions, seed)].append(row)
    for n, part in enumerate(found):
        part.validate(full=True)
        assert part.schema.equals(table.schema)
        assert part.to_pylist() == expected[n]
    cut = data.draw(cuts(table))
    again = hash_partition(cut, on, num_partitions, seed)
    assert where(again) == where(found)
    assert [part.to_pylist() for part in again] == expected


def plain_value(value, kind):
    """What the model hashes."""
    if isinstance(value, datetime.date):
        return (value - datetime.date(1970, 1, 1)) // ONE_DAY
    if isinstance(value, decimal.Decimal):
        return int(value.scaleb(kind.scale))
    return value


def test_a_table_of_many_types_is_moved_whole():
    rows = 500
    table = pa.table(
        {
            "key": pa.array([n % 17 if n % 5 else None for n in range(rows)]),
            "uuid": pa.array([bytes([n % 256]) * 16 for n in range(rows)], pa.uuid()),
            "interval": pa.array(
                [pa.MonthDayNano([n, 2, 3]) for n in range(rows)],
                pa.month_day_nano_interval(),
            ),
            "half": pa.array(np.arange(rows, dtype=np.float16)),
            "decimal": pa.array(
                [decimal.Decimal(n) for n in range(rows)], pa.decimal256(50)
            ),
            "category": pa.array([str(n % 3) for n in range(rows)]).dictionary_encode(),
            "nothing": pa.nulls(rows),
            "huge": pa.array(
                ["x" * 1_000_000 if n == 7 else str(n) for n in range(rows)]
            ),
        },
        metadata={"a": "b"},
    )
    found = hash_partition(table, "key", 9)
    assert found.schema.equals(table.schema, check_metadata=True)
    whole = pa.concat_tables(found)
    whole.validate(full=True)
    order = whole["half"].cast(pa.float64())
    assert whole.take(pa.compute.sort_indices(order)).to_pylist() == table.to_pylist()


def test_partitions_are_views():
    found = hash_partition(
        {"k": np.arange(1000), "x": np.ones((1000, 3), "f4")}, "k", 4
    )
    array = found[2]["x"]
    assert not array.flags.writeable and not array.flags.owndata
    assert np.shares_memory(array, np.frombuffer(found.buffer(2), np.uint8))
    table = hash_partition(pa.table({"k": range(1000)}), "k", 4)
    column = table[1]["k"].chunk(0).buffers()[1]
    region = np.frombuffer(table.buffer(1), np.uint8)
    assert 0 <= column.address - region.ctypes.data < region.nbytes
    assert column.address % 64 == 0


def test_views_keep_the_memory():
    table = hash_partition(pa.table({"k": ["abc"] * 100}), "k", 1)[0]
    array = hash_partition({"k": np.arange(1000)}, "k", 1)[0]["k"]
    assert table["k"].to_pylist() == ["abc"] * 100
    assert array.tolist() == list(range(1000))


def test_rows_of_a_region_are_counted():
    found = hash_partition({"k": np.arange(9)}, "k", 4)
    counts = [count_rows(found.buffer(p)) for p in range(4)]
    assert counts == [found.num_rows(p) for p in range(4)]
    with pytest.raises(ValueError):
        count_rows(bytes(16))


def test_what_partitions_tell():
    found = hash_partition(pa.table({"k": range(100)}), "k", 5)
    assert found.num_partitions == len(found) == len(list(found)) == 5
    assert len(found.offsets) == 6
    assert all(offset % 64 == 0 for offset in found.offsets)
    assert [found.nbytes(p) for p in range(5)] == np.diff(found.offsets).tolist()
    assert [found.buffer(p).nbytes for p in range(5)] == np.diff(found.offsets).tolist()
    assert [found.num_rows(p) for p in range(5)] == [t.num_rows for t in found]
    assert found[-1].equals(found[4])
    assert repr(found).startswith("<ucp.shuffle.Partitions: 100 rows in 5 partitions")
    for p in (5, -6):
        with pytest.raises(IndexError, match=r"^partition -?\d does not exist"):
            found[p]


@pytest.mark.parametrize("num_partitions", [1, 65535])
def test_tables_without_rows(num_partitions):
    kinds = [*KINDS, pa.string_view(), pa.uuid()]
    schema = pa.schema([(f"c{n}", kind) for n, kind in enumerate(kinds)])
    found = hash_partition(schema.empty_table(), ["c0", "c5"], num_partitions)
    assert sum(found.num_rows(p) for p in range(num_partitions)) == 0
    assert found[0].num_rows == 0
    assert found[0].schema.names == schema.names
    arrays = hash_partition({"k": np.array([], "i2")}, "k", num_partitions)
    assert arrays[0]["k"].dtype == np.int16 and len(arrays[0]["k"]) == 0


# --- kinds of tables ----------------------------------------------------------


def test_dict_of_arrays():
    rows = 1000
    table = {
        "k": np.arange(rows, dtype=">i4")[::-1],  # big-endian, with gaps
        "flag": np.arange(rows) % 3 == 0,
        "f2": np.arange(rows, dtype="f2"),
        "date": np.arange(rows).astype("M8[s]"),
        "text": np.array([f"é{n}" for n in range(rows)]),
        "matrix": np.arange(rows * 6).reshape(rows, 2, 3)[:, :, ::2],
        "record": np.zeros(rows, [("a", "i4"), ("b", "f8")]),
        "complex": np.arange(rows) * 1j,
        "nothing": np.zeros((rows, 0)),
    }
    found = hash_partition(table, ["k", "flag"], 7)
    assert found.schema["k"] == np.dtype("=i4")
    for name, array in table.items():
        whole = np.concatenate([part[name] for part in found])
        order = np.concatenate([part["k"] for part in found])
        assert (whole[np.argsort(-order)] == array).all()
    assert where(hash_partition({"row": np.arange(99)}, "row", 7)) == where(
        hash_partition(pa.table({"row": range(99)}), "row", 7)
    )


def test_pandas_frame():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(
        {"k": range(100), "text": ["a", None] * 50}, index=range(5, 105)
    )
    found = hash_partition(frame, "k", 4)
    whole = pa.concat_tables(found).to_pandas().sort_values("k")
    assert whole["k"].tolist() == frame["k"].tolist()
    assert whole["text"].isna().tolist() == frame["text"].isna().tolist()


def test_record_batch_and_objects_with_arrow_capsules():
    class Stream:
        def __arrow_c_stream__(self, requested_schema=None):
            return table.__arrow_c_stream__(requested_schema)

    class Array:
        def __arrow_c_array__(self, requested_schema=None):
            return batch.__arrow_c_array__(requested_schema)

    table = pa.table({"row": range(100)})
    batch = table.to_batches()[0]
    expected = where(hash_partition(table, "row", 9))
    for given_table in (batch, Stream(), Array(), batch.slice(0)):
        assert where(hash_partition(given_table, "row", 9)) == expected
    reader = pa.RecordBatchReader.from_batches(table.schema, table.to_batches())
    assert where(hash_partition(reader, "row", 9)) == expected


def test_chunks_with_different_dictionaries():
    first = pa.array(["a", "b"]).dictionary_encode()
    second = pa.array(["b", "c", None]).dictionary_encode()
    table = pa.table({"k": pa.chunked_array([first, second]), "row": range(5)})
    found = hash_partition(table, "k", 4)
    together = [item for part in found for item in part.to_pylist()]
    assert sorted(together, key=lambda item: item["row"]) == table.to_pylist()


def test_arrays_and_frames_need_no_pyarrow():
    program = """
import sys
sys.modules["pyarrow"] = None
import numpy as np
from ucp.shuffle import hash_partition
table = {"k": np.arange(100), "x": np.arange(100) / 2}
assert sum(len(part["x"]) for part in hash_partition(table, "k", 3)) == 100
try:
    import pandas as pd
except ImportError:
    sys.exit()
parts = hash_partition(pd.DataFrame(table), "k", 3)
assert sum(len(part["x"]) for part in parts) == 100
"""
    command = [sys.executable, "-P", "-W", "ignore", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stderr


# --- memory -------------------------------------------------------------------


def test_out_is_written_and_not_more_than_needed():
    table = {"k": np.arange(100)}
    nbytes = hash_partition(table, "k", 3).offsets[-1]
    with ucp.Memory.allocate(nbytes + 64) as memory:
        view = memoryview(memory)
        view[:] = b"x" * len(view)
        found = hash_partition(table, "k", 3, out=memory)
        assert bytes(found.buffer(1)) == bytes(view[slice(*found.offsets[1:3])])
        assert bytes(view[nbytes:]) == b"x" * 64
        assert bytes(view[:nbytes]) == b"".join(
            hash_partition(table, "k", 3).buffer(p) for p in range(3)
        )
        del found
        view.release()


@pytest.mark.parametrize("size", [0, 1, 1000])
def test_out_that_is_too_small_is_refused(size):
    table = {"k": np.arange(100)}
    nbytes = hash_partition(table, "k", 3).offsets[-1]
    out = bytearray(b"x" * size)
    text = rf"^out has {size} bytes, the partitions need {nbytes}$"
    with pytest.raises(ValueError, match=text):
        hash_partition(table, "k", 3, out=out)
    assert out == b"x" * size


def test_out_that_cannot_be_written_is_refused():
    table = {"k": np.arange(100)}
    with pytest.raises(BufferError, match=r"^out is read-only$"):
        hash_partition(table, "k", 3, out=bytes(10000))
    with pytest.raises(TypeError):
        hash_partition(table, "k", 3, out=7)
    memory = np.zeros(10001, np.uint8)
    offset = 1 if memory.ctypes.data % 8 == 0 else 0
    with pytest.raises(ValueError, match=r"^out begins at an address that is not"):
        hash_partition(table, "k", 3, out=memory[offset:])


def test_out_that_has_memory_of_the_table_is_refused():
    memory = np.zeros(1000, np.int64)
    with pytest.raises(ValueError, match=r"^out has memory of the table$"):
        hash_partition({"k": memory[20:30]}, "k", 3, out=memory)
    assert not memory.any()


def test_other_threads_run_meanwhile():
    def count():
        nonlocal turns
        while not is_over.is_set():
            turns += 1
            time.sleep(0)  # gives the GIL up

    table = {"k": np.arange(2_000_000)}
    is_over, turns = threading.Event(), 0
    thread = threading.Thread(target=count)
    interval = sys.getswitchinterval()
    thread.start()
    sys.setswitchinterval(1000)  # nobody is made to give the GIL up
    try:
        before = turns
        hash_partition(table, "k", 64)
        assert turns > before
    finally:
        is_over.set()
        sys.setswitchinterval(interval)
        thread.join()


def test_nothing_is_kept():
    def run():
        for _ in range(20):
            hash_partition(table, ["k", "s"], 5)[0]

    rows = 20_000
    table = pa.table({"k": range(rows), "s": [str(n) for n in range(rows)]})
    run()
    before = resident()
    for _ in range(5):
        run()
    assert resident() - before < 20 << 20


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * mmap.PAGESIZE


# --- what is refused ----------------------------------------------------------


@pytest.mark.parametrize("num_partitions", [0, -1, 65536, 2**70])
def test_numbers_of_partitions_that_are_refused(num_partitions):
    text = rf"^num_partitions is {num_partitions}, not 1 to 65535$"
    with pytest.raises(ValueError, match=text):
        hash_partition({"k": np.arange(3)}, "k", num_partitions)


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_seeds_that_are_refused(seed):
    with pytest.raises(ValueError, match=rf"^seed is {seed}, not 0 to \d+$"):
        hash_partition({"k": np.arange(3)}, "k", 2, seed)


@pytest.mark.parametrize("threads", [0, 65])
def test_numbers_of_threads_that_are_refused(threads):
    with pytest.raises(ValueError, match=rf"^threads is {threads}, not 1 to 64$"):
        hash_partition({"k": np.arange(3)}, "k", 2, threads=threads)


@pytest.mark.parametrize("threads", [2, 5, 64])
def test_threads_do_not_matter(threads):
    rng = np.random.default_rng(threads)
    keys = rng.integers(0, 9999, 50_000)
    texts = pa.array([None if key % 7 == 0 else str(key) for key in keys])
    table = pa.table({"k": keys, "s": texts, "f": rng.random(50_000)})
    one = hash_partition(table, ["s", "k"], 13)
    many = hash_partition(table, ["s", "k"], 13, threads=threads)
    for p in range(13):
        assert bytes(one.buffer(p)) == bytes(many.buffer(p))


def test_columns_that_are_not_there_are_refused():
    table = pa.table({"a": [1], "b": [2]})
    with pytest.raises(KeyError, match=r"there is no column 'c', only 'a', 'b'"):
        hash_partition(table, ["a", "c"], 2)
    with pytest.raises(ValueError, match=r"^on names no column$"):
        hash_partition(table, [], 2)
    twice = pa.Table.from_arrays([[1], [2]], names=["a", "a"])
    with pytest.raises(ValueError, match=r"^there are 2 columns 'a'$"):
        hash_partition(twice, "a", 2)


@pytest.mark.parametrize("table", [{}, pa.table({})], ids=["dict", "arrow"])
def test_tables_without_columns_are_refused(table):
    with pytest.raises(ValueError, match=r"^the table has no columns$"):
        hash_partition(table, "k", 2)


NUMBERS = pa.array([0], pa.int8())
NESTED = {
    "list": pa.array([[1]]),
    "fixed_size_list": pa.array([[1, 2]], pa.list_(pa.int8(), 2)),
    "struct": pa.array([{"a": 1}]),
    "map": pa.array([[(1, 2)]], pa.map_(pa.int8(), pa.int8())),
    "union": pa.UnionArray.from_sparse(NUMBERS, [pa.array([1])]),
    "run_end_encoded": pa.compute.run_end_encode(NUMBERS),
    "dictionary": pa.DictionaryArray.from_arrays(NUMBERS, pa.array([[1]])),
}


@pytest.mark.parametrize("name", NESTED)
def test_nested_types_are_refused_by_name(name):
    table = pa.table({"k": [1], "nested": NESTED[name]})
    for on in ("k", "nested"):
        with pytest.raises(TypeError, match=r"^column 'nested' has type .+"):
            hash_partition(table, on, 2)


def test_keys_that_cannot_be_hashed_are_refused_by_name():
    table = pa.schema({"x": pa.month_day_nano_interval()}).empty_table()
    with pytest.raises(TypeError, match=r"^column 'x' of type month_day_nano_int"):
        hash_partition(table, "x", 2)
    arrays = {
        "text": np.array(["a"]),
        "matrix": np.zeros((1, 2)),
        "complex": np.zeros(1, complex),
    }
    for name in arrays:
        with pytest.raises(TypeError, match=rf"^column '{name}' of dtype .* a key$"):
            hash_partition(arrays, name, 2)


def test_arrays_that_are_no_columns_are_refused():
    good = np.arange(3)
    with pytest.raises(TypeError, match=r"^column 'o' has objects"):
        hash_partition({"k": good, "o": np.array([[], 1, 2], object)}, "k", 2)
    with pytest.raises(TypeError, match=r"^column 'm' is a masked array"):
        hash_partition({"m": np.ma.masked_array(good, [0, 1, 0])}, "m", 2)
    with pytest.raises(ValueError, match=r"^the columns have different lengths"):
        hash_partition({"k": good, "x": good[1:]}, "k", 2)
    with pytest.raises(ValueError, match=r"^column 'x' has no rows: it is a scalar"):
        hash_partition({"x": 7}, "x", 2)
    for table in (7, "text", [1, 2], None):
        with pytest.raises(TypeError, match=r"^expected an Arrow table"):
            hash_partition(table, "k", 2)


@pytest.mark.parametrize("width", [4, 8])
def test_strings_with_bad_offsets_are_refused(width):
    buffers = [
        None,
        pa.py_buffer(np.array([0, 4, 2, 4], f"i{width}")),
        pa.py_buffer(b"abcd"),
    ]
    kind = pa.string() if width == 4 else pa.large_string()
    array = pa.Array.from_buffers(kind, 3, buffers)
    table = pa.table({"k": [1, 2, 3], "s": array})
    for on in ("k", "s"):
        with pytest.raises(ValueError, match=r"^column 's': the offsets of its str"):
            hash_partition(table, on, 2)


def test_buffers_that_are_too_short_are_refused():
    def call(*column):
        ucp._ext.hash_partition(
            [(9, [(*column, None)])], ("k",), [0], 2, 0, bytearray, 1
        )

    bits, numbers, offsets = bytes(2), bytes(72), bytes(40)
    call(2, 8, 0, bits, numbers, None)
    call(1, 0, 7, bits, bits, None)
    call(6, 4, 0, None, offsets, b"")
    with pytest.raises(ValueError, match=r"^values of 71 bytes cannot have 9 items"):
        call(2, 8, 0, bits, numbers[1:], None)
    with pytest.raises(ValueError, match=r"9 items from item 1 on$"):
        call(2, 8, 1, bits, numbers, None)
    with pytest.raises(ValueError, match=r"^validity of 1 bytes cannot have 9 items"):
        call(2, 8, 0, bits[1:], numbers, None)
    with pytest.raises(ValueError, match=r"^values of 2 bytes .* from item 8 on$"):
        call(1, 0, 8, None, bits, None)
    with pytest.raises(ValueError, match=r"^values of 39 bytes cannot have 10 items"):
        call(6, 4, 0, None, offsets[1:], b"")
    with pytest.raises(ValueError, match=r"^values of 0 bytes"):
        call(2, 8, 0, None, None, None)
    with pytest.raises(ValueError, match=r"^values of 72 bytes"):
        call(2, 8, sys.maxsize, None, numbers, None)
    for outside in ([0] * 9 + [1], [-1] + [0] * 9):
        with pytest.raises(ValueError, match=r"^column 'k': the offsets of its str"):
            call(6, 4, 0, None, np.array(outside, "i4"), b"")


@pytest.mark.parametrize("number", [2, -1, 127])
def test_dictionary_numbers_that_are_not_there_are_refused(number):
    array = pa.DictionaryArray.from_arrays(
        pa.array([0, 1, number], pa.int8()), pa.array(["a", "b"]), safe=False
    )
    with pytest.raises(ValueError, match=r"^column 'k': a row has a number that is"):
        hash_partition(pa.table({"k": array}), "k", 2)


# --- regions of other processes -----------------------------------------------


def test_region_is_read_in_another_process():
    table = pa.table({"k": range(100), "s": [str(n) for n in range(100)]})
    found = hash_partition(table, "k", 2)
    program = """
import sys, pyarrow as pa
from ucp.shuffle import read_partition
schema = pa.schema({"k": pa.int64(), "s": pa.string()})
table = read_partition(sys.stdin.buffer.read(), schema)
print([str(k) for k in table["k"].to_pylist()] == table["s"].to_pylist())
print(table.num_rows)
"""
    done = subprocess.run(
        [sys.executable, "-P", "-c", program],
        input=bytes(found.buffer(1)),
        capture_output=True,
        timeout=50,
    )
    assert done.stdout.split() == [b"True", b"%d" % found.num_rows(1)]


def test_region_with_a_dictionary():
    array = pa.array(["a", "b", "c", None] * 9).dictionary_encode()
    found = hash_partition(pa.table({"k": array}), "k", 1)
    region = found.buffer(0)
    whole = read_partition(region, found.schema, found.dictionaries)
    assert whole["k"].to_pylist() == ["a", "b", "c", None] * 9
    with pytest.raises(KeyError, match="k"):
        read_partition(region, found.schema)
    with pytest.raises(ValueError, match=r"^column 'k' has a number that is not in"):
        read_partition(region, found.schema, {0: pa.array(["a"])})


def test_two_dictionary_columns_of_one_name():
    arrays = [range(3), pa.array(list("abc")), pa.array(list("xyz"))]
    arrays[1:] = [array.dictionary_encode() for array in arrays[1:]]
    table = pa.Table.from_arrays(list(map(pa.array, arrays)), ["k", "d", "d"])
    found = hash_partition(table, "k", 1)
    part = found[0]
    assert part.column(1).to_pylist() == list("abc")
    assert part.column(2).to_pylist() == list("xyz")


def test_region_that_is_not_of_the_schema_is_refused():
    found = hash_partition({"a": np.arange(9), "b": np.arange(9.0)}, "a", 1)
    region = found.buffer(0)
    assert read_partition(region, {"a": "i8", "b": "f8"})["b"].tolist() == list(
        range(9)
    )
    with pytest.raises(ValueError, match=r"^the region has 2 columns, the schema 1$"):
        read_partition(region, {"a": "i8"})
    for kind in ("i8", "f4", "S8"):
        with pytest.raises(ValueError, match=r"another type of column 'b'$"):
            read_partition(region, {"a": "i8", "b": kind})


def test_nulls_are_no_array():
    found = hash_partition(pa.table({"k": pa.array([1, None])}), "k", 1)
    with pytest.raises(ValueError, match=r"^column 'k' has nulls"):
        read_partition(found.buffer(0), {"k": "i8"})


def test_damaged_regions_are_refused_or_valid():
    rows = 40
    table = pa.table(
        {
            "k": pa.array([n if n % 3 else None for n in range(rows)]),
            "s": pa.array([b"x" * n for n in range(rows)]),
        }
    )
    found = hash_partition(table, "k", 1)
    good = bytes(found.buffer(0))
    random = np.random.default_rng(1)
    outcomes = set()
    for _ in range(3000):
        bad = bytearray(good)
        header = random.integers(2)
        at = random.integers(96 if header else len(bad))
        bad[at] = random.integers(256)
        try:
            part = read_partition(bad, found.schema)
        except ValueError as error:
            assert str(error).startswith(("not the region", "the region has"))
            outcomes.add("refused")
        else:
            part.validate(full=True)
            outcomes.add("read")
    assert outcomes == {"read", "refused"}


def test_regions_that_are_cut_or_unaligned_are_refused():
    found = hash_partition({"k": np.arange(100)}, "k", 1)
    region = bytes(found.buffer(0))
    for cut in range(len(region)):
        with pytest.raises(ValueError, match=r"^not the region of a partition"):
            read_partition(region[:cut], found.schema)
    memory = np.zeros(len(region) + 8, np.uint8)
    start = 1 + -memory.ctypes.data % 8
    memory[start : start + len(region)] = np.frombuffer(region, np.uint8)
    with pytest.raises(ValueError, match=r"^the region begins at an address that"):
        read_partition(memory[start : start + len(region)], found.schema)


def test_the_extension_checks_what_it_is_given():
    column = (2, 8, 0, None, np.arange(4), None, None)

    def call(chunks, names=("k",), keys=(0,)):
        return ucp._ext.hash_partition(chunks, names, keys, 2, 0, bytearray, 1)

    assert len(call([(4, [column])])[1]) == 3
    bad_chunks = [7, [7], [(4, 7)], [(4, [7])], [(4, [column] * 2)], [(4, [])]]
    for chunks in bad_chunks:
        with pytest.raises((TypeError, ValueError)):
            call(chunks)
    with pytest.raises(ValueError, match="rows"):
        call([(-1, [column])])
    with pytest.raises(ValueError, match="offset"):
        call([(4, [(2, 8, -1, None, np.arange(4), None, None)])])
    for wrong in ((99, 8), (2, 3), (6, 1)):
        with pytest.raises(ValueError, match="k"):
            call([(4, [(*wrong, 0, None, np.zeros(99), None, None)])])
    for dictionary in (7, (1,), (-1, column), (4, 7)):
        with pytest.raises((TypeError, ValueError)):
            call([(4, [(*column[:6], dictionary)])])
    for keys in ((1,), (-1,), ("k",), 7, ()):
        with pytest.raises((ucp.UCXError, TypeError, ValueError, OverflowError)):
            call([(4, [column])], keys=keys)
