# SPDX-License-Identifier: BSD-3-Clause
# tests: ucp/frames ucp/keys ucp/pairs
"""Frames that move as tables, the keys by which they do, and merges by pairs."""

import pickle
import random
from decimal import Decimal

import numpy as np
import pytest

pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")
pytest.importorskip("dask.dataframe")

from ucp.dask._frames import decode, encode  # noqa: E402
from ucp.dask._keys import key_columns, make_keys  # noqa: E402
from ucp.shuffle import hash_partition, read_partition  # noqa: E402

N = 60

COLUMNS = {
    "int64": lambda: np.arange(N),
    "uint8": lambda: np.arange(N, dtype="u1"),
    "float64": lambda: np.r_[np.nan, np.arange(N - 1) / 2],
    "float16": lambda: np.arange(N, dtype="f2"),
    "big endian": lambda: np.arange(N).astype(">i4").astype("i4"),
    "bool": lambda: np.arange(N) % 3 == 0,
    "datetime": lambda: pd.Series([pd.NaT, *pd.date_range("2024", periods=N - 1)]),
    "zone": lambda: pd.date_range("2024", periods=N, tz="Europe/Berlin"),
    "timedelta": lambda: pd.to_timedelta(np.arange(N), unit="s"),
    "period": lambda: pd.period_range("2024", periods=N, freq="M"),
    "str": lambda: pd.array(["a", None] * (N // 2), "str"),
    "string": lambda: pd.array(["a", None] * (N // 2), "string"),
    "python string": lambda: pd.array(["a", None] * (N // 2), "string[python]"),
    "category": lambda: pd.Categorical(["x", None, "y"] * (N // 3), list("zyx"), True),
    "Int64": lambda: pd.array([None, *range(N - 1)], "Int64"),
    "Float32": lambda: pd.array([None, *range(N - 1)], "Float32"),
    "boolean": lambda: pd.array([None, True, False] * (N // 3), "boolean"),
    "arrow": lambda: pd.array(["a", None] * (N // 2), pd.ArrowDtype(pa.string())),
    "arrow dictionary": lambda: pd.array(
        ["a", "b"] * (N // 2), pd.ArrowDtype(pa.dictionary(pa.int32(), pa.string()))
    ),
    "arrow decimal": lambda: pd.array(
        [Decimal("1.50"), None] * (N // 2), pd.ArrowDtype(pa.decimal128(5, 2))
    ),
    "texts": lambda: pd.Series(["a", None] * (N // 2), dtype=object),
    "texts with NaN": lambda: pd.Series(["a", np.nan] * (N // 2), dtype=object),
    "texts with both": lambda: pd.Series(["a", np.nan, None] * (N // 3), dtype=object),
    "bytes": lambda: pd.Series([b"a", b"bc"] * (N // 2), dtype=object),
    "decimals": lambda: pd.Series([Decimal("1.5"), None] * (N // 2), dtype=object),
    "mixed": lambda: pd.Series([1, "a", (2,)] * (N // 3), dtype=object),
    "lists": lambda: pd.Series([[1], []] * (N // 2), dtype=object),
    "surrogates": lambda: pd.Series(["\ud800", "a"] * (N // 2), dtype=object),
    "nothing": lambda: pd.Series([None] * N, dtype=object),
}


def moved(frame, with_index=True, on=("key",), parts=3):
    """The frame after it was partitioned, each part of its own."""
    keys = make_keys([frame], [on])[0]
    names, extra = key_columns(frame, keys)
    table, layout = encode(frame, with_index, extra)
    layout = pickle.loads(pickle.dumps(layout))
    found = hash_partition(table, names, parts)
    return [
        decode([(read_partition(found.buffer(i), layout.schema), layout)], frame)
        for i in range(parts)
    ]


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_are_what_they_were(name):
    frame = pd.DataFrame({"key": np.arange(N), "x": COLUMNS[name]()})
    parts = moved(frame)
    assert all(0 < len(part) < N for part in parts)
    pd.testing.assert_frame_equal(pd.concat(parts).sort_index(), frame)
    pd.testing.assert_frame_equal(moved(frame[:0])[0], frame[:0])


@pytest.mark.parametrize("name", ["int64", "datetime", "category", "texts", "zone"])
def test_levels_of_an_index_are_what_they_were(name):
    index = pd.Index(COLUMNS[name](), name="level")
    if name == "zone":
        index.freq = None  # which no partition has
    frame = pd.DataFrame({"key": np.arange(N)}, index=index)
    found = moved(frame, parts=1)[0]
    pd.testing.assert_frame_equal(found, frame)
    both = pd.MultiIndex.from_arrays([index, np.arange(N)], names=["a", None])
    frame.index = both
    found = moved(frame, parts=1)[0]
    pd.testing.assert_frame_equal(found, frame)


def test_labels_may_be_anything():
    frame = pd.DataFrame(np.arange(12).reshape(3, 4), columns=[0, ("a", 1), None, "c0"])
    found = pd.concat(moved(frame, on=[("a", 1)])).sort_index()
    pd.testing.assert_frame_equal(found, frame)


def test_frames_have_memory_of_their_own():
    frame = pd.DataFrame({"key": np.arange(N), "x": np.arange(N) / 2, "s": ["a"] * N})
    table, layout = encode(frame, False)
    region = bytearray(1 << 16)
    parts = hash_partition(table, ["c0"], 1, out=memoryview(region))
    found = decode([(read_partition(parts.buffer(0), layout.schema), layout)], frame)
    del parts
    region[:] = bytes(len(region))
    pd.testing.assert_frame_equal(found, frame)
    found.iloc[0, 0] = 7
    found["x"] += 1


def test_parts_with_other_types_come_together_as_in_dask():
    frames = [
        pd.DataFrame({"x": [1, 2], "c": pd.Categorical(["a", "b"])}),
        pd.DataFrame({"x": [0.5], "c": pd.Categorical(["c"])}),
    ]
    parts = [encode(frame, False) for frame in frames]
    found = decode(parts, frames[0])
    assert found["x"].tolist() == [1, 2, 0.5]
    assert found["c"].tolist() == ["a", "b", "c"]
    assert found["c"].dtype == "category"
    pd.testing.assert_frame_equal(decode([], frames[0]), frames[0][:0])


@pytest.mark.parametrize(
    "values", [pd.arrays.SparseArray([0, 1]), np.array([1j, 2]), np.array([b"a", b"b"])]
)
def test_other_types_are_refused(values):
    frame = pd.DataFrame({"x": [0, 1]})
    frame["x"] = pd.Series(values)
    if frame["x"].dtype == object:
        assert encode(frame, False)
    else:
        with pytest.raises(TypeError, match="do not move"):
            encode(frame, False)


# --- keys ---------------------------------------------------------------------

TYPES = {
    "int64": lambda values: pd.Series(values, dtype="int64"),
    "int8": lambda values: pd.Series(values, dtype="int8"),
    "Int32": lambda values: pd.Series([*values[:-1], None], dtype="Int32"),
    "float64": lambda values: pd.Series([*values[:-1], None], dtype="float64"),
    "float32": lambda values: pd.Series(values, dtype="float32"),
    "Float64": lambda values: pd.Series([*values[:-1], None], dtype="Float64"),
    "category": lambda values: pd.Series(pd.Categorical(values, values[::-1])),
    "arrow": lambda values: pd.Series(values, dtype="int32[pyarrow]"),
    "object": lambda values: pd.Series([*values[:-1], "text"], dtype=object),
    "decimal": lambda values: pd.Series([*map(Decimal, values)], dtype=object),
}
TEXTS = {
    "str": lambda values: pd.Series([*values[:-1], None], dtype="str"),
    "string": lambda values: pd.Series([*values[:-1], None], dtype="string"),
    "object": lambda values: pd.Series([*values[:-1], None], dtype=object),
    "category": lambda values: pd.Series(pd.Categorical(values, values[::-1])),
    "arrow": lambda values: pd.Series(values, dtype=pd.ArrowDtype(pa.string())),
}
TIMES = {
    unit: lambda values, unit=unit: pd.Series(values, dtype=f"datetime64[{unit}]")
    for unit in ("s", "ms", "us", "ns")
}
ZONES = {
    unit: lambda values, unit=unit: pd.Series(values, dtype=f"datetime64[{unit}, UTC]")
    for unit in ("s", "ns")
}
SPANS = {
    unit: lambda values, unit=unit: pd.Series(values, dtype=f"timedelta64[{unit}]")
    for unit in ("ms", "ns")
}
VALUES = {
    "numbers": (TYPES, [*range(40)]),
    "texts": (TEXTS, [f"text{i}" for i in range(40)]),
    "times": (TIMES, [*pd.date_range("1960-01-01", periods=39, freq="1234h"), pd.NaT]),
    "zones": (ZONES, [*pd.date_range("1960-01-01", periods=40, freq="9h", tz="UTC")]),
    "spans": (SPANS, [*pd.timedelta_range("-3 days", periods=40, freq="1234s")]),
}


def places(frame, keys, parts=7):
    names, extra = key_columns(frame, keys)
    table, _ = encode(frame.assign(row=np.arange(len(frame))), False, extra)
    found = hash_partition(table, names, parts)
    column = f"c{frame.shape[1]}"
    return {row: p for p in range(parts) for row in found[p][column].to_pylist()}


@pytest.mark.parametrize("name", VALUES)
def test_equal_keys_of_any_types_meet(name):
    types, values = VALUES[name]
    for one in types.values():
        for two in types.values():
            frames = [pd.DataFrame({"k": make(values)}) for make in (one, two)]
            keys = make_keys([frame[:0] for frame in frames], [["k"], ["k"]])
            ways = [places(*pair) for pair in zip(frames, keys, strict=True)]
            for row in range(39):
                assert ways[0][row] == ways[1][row], (row, one, two)


def test_a_partition_with_other_keys_than_meta_says():
    meta = pd.DataFrame({"k": [1, 2]})
    keys = make_keys([meta], [["k"]])[0]
    floats = pd.DataFrame({"k": [1.0, 2.0, np.nan]})
    as_they_are = places(meta, keys)
    assert {row: places(floats, keys)[row] for row in range(2)} == as_they_are
    with pytest.raises(TypeError, match="float64, which are not what _meta says"):
        key_columns(pd.DataFrame({"k": [1.5]}), keys)


def test_a_partition_with_times_of_another_unit_than_meta_says():
    days = pd.date_range("2020-01-01", periods=20, unit="s")
    meta, others = (pd.DataFrame({"k": days.as_unit(unit)}) for unit in ("ms", "ns"))
    keys = make_keys([meta], [["k"]])[0]
    assert places(meta, keys) == places(others, keys)
    assert places(meta, keys) == places(pd.DataFrame({"k": days}), keys)
    far = pd.DataFrame({"k": pd.Series([2**60], dtype="datetime64[s]")})
    with pytest.raises(TypeError, match="which are not what _meta says"):
        places(far, keys)


# --- pairs --------------------------------------------------------------------


TAKEN = ("float64", "bool", "zone", "str", "category", "Int64", "arrow", "mixed")


def side(rng, kind, name, misses):
    values = [rng.randrange(400 if misses else 20) for _ in range(300)]
    values[:20] = range(20)
    texts = [None if value == 3 else f"text {value}" for value in values]
    days = [pd.NaT if value == 3 else pd.Timestamp(value) for value in values]
    made = {"text": lambda: pd.array(texts, "str"), "day": lambda: pd.Series(days)}
    columns = {"k": made.get(kind, lambda: values)(), "v": range(300)}
    for label in TAKEN:
        column = pd.Series(COLUMNS[label]()).sample(300, replace=True, random_state=1)
        columns[label] = column.reset_index(drop=True)
    columns |= {"k2": [value % 2 for value in values], name: range(300)}
    return pd.DataFrame(columns)


@pytest.mark.parametrize("how", ["inner", "left", "right"])
@pytest.mark.parametrize("kind", ["number", "two", "text", "day"])
@pytest.mark.parametrize("misses", [True, False])
def test_pairs_give_the_frame_that_pandas_gives(monkeypatch, how, kind, misses):
    pytest.importorskip("polars")
    from ucp.dask import _pairs

    monkeypatch.setattr(_pairs, "_LEAST_ROWS", 0)
    monkeypatch.setattr(_pairs, "_LEAST_ROWS_TO_LOAD", 0)
    rng = random.Random(f"{how} {kind} {misses}")
    left, right = (side(rng, kind, name, misses) for name in "ab")
    on = ["k", "k2"] if kind == "two" else ["k"]
    wanted = left.merge(right, how=how, on=on)
    found = _pairs.merge_pairs(left, right, how, on, on, wanted.columns)
    pd.testing.assert_frame_equal(found, wanted)
    right = right.rename(columns={"k": "key", "k2": "key2"})
    other = [{"k": "key", "k2": "key2"}[label] for label in on]
    wanted = left.merge(right, how=how, left_on=on, right_on=other)
    found = _pairs.merge_pairs(left, right, how, on, other, wanted.columns)
    pd.testing.assert_frame_equal(found, wanted)
    found.iloc[0, 1] = 5


def test_pandas_merges_what_pairs_cannot():
    from ucp.dask._pairs import merge_pairs

    frame = pd.DataFrame({"k": np.arange(2e5), "v": 0})
    for how, left, right in (
        ("outer", frame.astype(int), frame.astype(int)),  # is sorted by its keys
        ("inner", frame, frame),  # floats
        ("inner", frame.astype(int), frame.astype({"k": "int32"})),
        ("inner", frame.astype(int)[:5], frame.astype(int)[:5]),  # not worth it
        ("inner", frame.astype(int), frame[:0].astype(int)),
    ):
        assert merge_pairs(left, right, how, ["k"], ["k"], ["k", "v", "v"]) is None
