# SPDX-License-Identifier: BSD-3-Clause
# tests: ucp/join ucp/local ucp/plan ucp/one_rank ucp/tables
"""Joins of frames, compared with pandas' own and polars' own of the whole tables."""

import os
import random
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pairs import pairwise
from worlds import good_world

import ucp.join

HOWS = ("inner", "left", "right", "outer", "semi", "anti")
PROGRAMS = int(os.environ.get("UCP_FRAME_PROGRAMS", 60))


async def join(comm, how, left, right, /, **options):
    options = {"on": "k", **options}
    return await getattr(ucp.join, how)(left, right, comm=comm, **options)


async def refusal(comm, left, right):
    """Why all ranks refuse the tables."""
    with pytest.raises(TypeError) as told:
        await join(comm, "inner", left, right)
    await comm.barrier()
    return str(told.value)


# --- pandas -------------------------------------------------------------------


def nulled(rng, values, null):
    return [null if rng.random() < 0.2 else value for value in values]


def integers(rng, n):
    return [rng.randrange(-6, 6) for _ in range(n)]


def words(rng, n):
    return [rng.choice("abcdefgh") * 2 for _ in range(n)]


DAYS = pd.date_range("2024-01-01", periods=8)

COLUMNS = {
    "int64": lambda rng, n: pd.Series(integers(rng, n), dtype="int64"),
    "int8": lambda rng, n: pd.Series(integers(rng, n), dtype="int8"),
    "uint32": lambda rng, n: pd.Series(map(abs, integers(rng, n)), dtype="uint32"),
    "float64": lambda rng, n: pd.Series(
        nulled(rng, integers(rng, n), None), dtype="float64"
    ),
    "float32": lambda rng, n: pd.Series(integers(rng, n), dtype="float32"),
    "bool": lambda rng, n: pd.Series(
        [rng.random() < 0.5 for _ in range(n)], dtype=bool
    ),
    "str": lambda rng, n: pd.Series(nulled(rng, words(rng, n), None), dtype="str"),
    "string": lambda rng, n: pd.Series(
        nulled(rng, words(rng, n), None), dtype="string"
    ),
    "Int64": lambda rng, n: pd.Series(
        nulled(rng, integers(rng, n), None), dtype="Int64"
    ),
    "boolean": lambda rng, n: pd.Series(
        nulled(rng, [rng.random() < 0.5 for _ in range(n)], None), dtype="boolean"
    ),
    "datetime": lambda rng, n: pd.Series(
        nulled(rng, [rng.choice(DAYS) for _ in range(n)], pd.NaT),
        dtype="datetime64[us]",
    ),
    "zone": lambda rng, n: pd.Series(
        [rng.choice(DAYS).tz_localize("Europe/Berlin") for _ in range(n)],
        dtype="datetime64[us, Europe/Berlin]",
    ),
    "timedelta": lambda rng, n: pd.Series(integers(rng, n), dtype="timedelta64[s]"),
    "category": lambda rng, n: pd.Series(
        pd.Categorical(
            nulled(rng, words(rng, n), None), categories=[c * 2 for c in "hgfedcba"]
        )
    ),
    "arrow": lambda rng, n: pd.Series(
        nulled(rng, integers(rng, n), None), dtype="int32[pyarrow]"
    ),
}
KEYS = ("int64", "int8", "float64", "str", "Int64", "datetime", "category", "boolean")


def random_frame(rng, keys, side):
    n = rng.choice([0, 1, 5, 30])
    columns = {f"k{i}": COLUMNS[kind](rng, n) for i, kind in enumerate(keys)}
    kinds = rng.sample(list(COLUMNS), rng.randrange(1, 5))
    columns |= {
        (kind if rng.random() < 0.5 else side + kind): COLUMNS[kind](rng, n)
        for kind in kinds
    }
    return pd.DataFrame(columns)


def cut(frame, ranks, rng):
    """The rows of each rank; their order is that of the frame."""
    at = sorted(rng.randrange(len(frame) + 1) for _ in range(ranks - 1))
    return [frame.iloc[a:b] for a, b in zip([0, *at], [*at, len(frame)], strict=True)]


def merged(how, left, right, keys):
    if how in ("semi", "anti"):
        names = [*left.columns, "_there"]
        there = right[keys].drop_duplicates().assign(_there=True)
        both = left.merge(there, how="left", on=keys)[names]
        is_there = both.pop("_there").notna()
        return both[is_there if how == "semi" else ~is_there]
    return left.merge(right, how=how, on=keys)


def rows_of(frame):
    plain = frame.astype(object).where(frame.notna(), None)
    return sorted(map(repr, plain.itertuples(index=False, name=None)))


class Program:
    """A join of random frames, the rows of which are those of two ranks."""

    def __init__(self, seed):
        rng = random.Random(seed)
        keys = rng.sample(KEYS, rng.choice([1, 1, 2]))
        self.frames = [random_frame(rng, keys, side) for side in ("l", "r")]
        self.how, self.on = rng.choice(HOWS), [f"k{i}" for i in range(len(keys))]
        self.options = {"strategy": "shuffle"}
        if rng.random() < 0.5:
            self.options["over_decomposition"] = rng.choice([1, 3])
        self.parts = [cut(frame, 2, rng) for frame in self.frames]

    async def run(self, comm):
        tables = (part[comm.rank] for part in self.parts)
        return (await join(comm, self.how, *tables, on=self.on, **self.options)).table

    def check(self, seed, first, second):
        whole = merged(self.how, *self.frames, self.on)
        if len(first) + len(second):
            assert list(map(str, first.dtypes)) == list(map(str, second.dtypes)), seed
            assert first.dtypes.to_dict() == whole.dtypes.to_dict(), (seed, self.how)
        both = pd.concat([first, second])
        assert rows_of(both) == rows_of(whole), (seed, self.how)


@pytest.mark.parametrize("part", range(4))
def test_frames_are_joined_as_pandas_does(part):
    seeds = range(part * PROGRAMS // 4, (part + 1) * PROGRAMS // 4)
    programs = [Program(seed) for seed in seeds]

    async def main(comm):
        return [await program.run(comm) for program in programs]

    ends = good_world(2, main)
    for seed, program, *found in zip(seeds, programs, *ends, strict=True):
        program.check(seed, *found)


def test_a_frame_without_rows_on_one_rank_has_the_types_of_the_others():
    async def main(comm):
        count = 3 * comm.rank
        left = pd.DataFrame({"k": ["x"] * count, "a": range(count)})
        right = pd.DataFrame({"k": ["x", "y"], "b": [True, False]})
        return (await join(comm, "outer", left[: 3 * count], right)).table

    for found in good_world(2, main):
        text = str(pd.Series(["x"]).dtype)  # "object" before pandas 3
        assert list(map(str, found.dtypes)) == [text, "float64", "bool"]


# Tables of other libraries with frames, and types that metadata do not name.


def placed(rank, where, table):
    """The table on one rank, and None on the others."""
    return table if rank == where else None


NAN = float("nan")
WITH_NAN = {
    "dict": {"k": np.array([NAN, 1.0]), "b": np.array([3, 4])},
    "arrow": pa.table({"k": [NAN, 1.0], "b": [3, 4]}),
    "half": pa.table({"k": pa.array([NAN, 1.0], pa.float32()), "b": [3, 4]}),
}


@pytest.mark.parametrize(
    ("kind", "how", "ranks", "strategy"),
    pairwise(
        WITH_NAN,
        ["inner", "left", "semi", "anti"],
        [1, 2, 3],
        ["shuffle", "broadcast"],
    ),
)
def test_nan_of_a_table_that_is_no_frame_is_a_null_of_a_frame(
    kind, how, ranks, strategy
):
    frame = pd.DataFrame({"k": [NAN, 1.0], "a": [1, 2]})

    async def main(comm):
        tables = (placed(comm.rank, 0, it) for it in (frame, WITH_NAN[kind]))
        return (await join(comm, how, *tables, strategy=strategy)).table

    rows = rows_of(pd.concat(good_world(ranks, main)))
    wide = [(None, 1, 3), (1.0, 2, 4)] if how in ("inner", "left") else None
    narrow = [(None, 1), (1.0, 2)] if how == "semi" else []
    assert rows == sorted(map(repr, wide or narrow))


def test_nan_on_one_rank_is_a_null_on_another_for_pandas():
    kind = pa.float64()

    async def main(comm):
        key = float("nan") if comm.rank else None
        left = pa.table({"k": pa.array([key], kind), "a": [comm.rank]})
        right = {"k": np.array([float("nan")]), "b": np.array([5])}
        right = placed(comm.rank, 0, right)
        local = ucp.join.PandasJoin()
        options = {"local": local, "strategy": "shuffle", "over_decomposition": 4}
        return (await join(comm, "inner", left, right, **options)).table

    found = pd.concat(good_world(2, main))
    assert rows_of(found) == ["(None, 0, 5)", "(None, 1, 5)"]


def without_zeros(value):
    """All decimals of a column have as many digits."""
    return value.normalize() if isinstance(value, Decimal) else value


BIG = 2**60 + 1
OBJECTS = {
    "int": [[BIG, 5], [7, 8]],
    "int and None": [[BIG, None], [7, 8]],
    "bool": [[True, False], [True, True]],
    "bool and None": [[True, None], [False, True]],
    "float": [[0.5, 1.5], [2.5, 3.5]],
    "time": [[pd.Timestamp(2024, 1, 1), None], [pd.Timestamp(2024, 1, 2)] * 2],
    "decimal": [[Decimal("9.50"), None], [Decimal("12.755"), Decimal("1E+3")]],
    "wide decimal": [[Decimal("1e-30"), None], [Decimal("1e30"), Decimal(1)]],
}


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("kind", OBJECTS)
def test_objects_stay_objects(kind, how):
    def frames(rank):
        values = pd.Series(OBJECTS[kind][rank], dtype=object)
        left = pd.DataFrame({"k": [2 * rank, 2 * rank + 1], "v": values})
        keys = pd.DataFrame({"k": [2 * rank, 9 + rank], "w": values})
        return left, keys

    async def main(comm):
        return (await join(comm, how, *frames(comm.rank))).table

    left, right = map(pd.concat, zip(*map(frames, range(2)), strict=True))
    parts = good_world(2, main)
    whole = merged(how, left, right, ["k"])
    for part in parts:
        assert part.dtypes.to_dict() == whole.dtypes.to_dict()
    found = pd.concat(parts)
    assert rows_of(found.map(without_zeros)) == rows_of(whole.map(without_zeros))


@pytest.mark.parametrize("how", ["inner", "outer", "semi"])
@pytest.mark.parametrize("kind", OBJECTS)
def test_objects_are_keys(kind, how):
    def frames(rank):
        left = pd.Series(OBJECTS[kind][rank], dtype=object)
        right = pd.Series(OBJECTS[kind][rank][::-1], dtype=object)
        return (
            pd.DataFrame({"k": left, "a": range(len(left))}),
            pd.DataFrame({"k": right, "b": range(len(right))})[rank:],
        )

    async def main(comm):
        return (await join(comm, how, *frames(comm.rank))).table

    left, right = map(pd.concat, zip(*map(frames, range(2)), strict=True))
    parts = good_world(2, main)
    whole = merged(how, left, right, ["k"])
    for part in parts:
        assert part["k"].dtype == object
    found = pd.concat(parts)
    assert rows_of(found.map(without_zeros)) == rows_of(whole.map(without_zeros))


@pytest.mark.parametrize("values", ["xyq", [0.5, 1.5, 2.5]])
@pytest.mark.parametrize("how", ["inner", "left", "right", "outer"])
def test_keys_with_other_categories_lose_them(how, values):
    first, second, third = values

    def frames(rank):
        left = pd.Categorical([first, second], categories=[first, second])
        right = pd.Categorical([first, third], categories=[first, third])
        return pd.DataFrame({"k": left}), pd.DataFrame({"k": right})[rank:]

    async def main(comm):
        options = {"over_decomposition": 5, "strategy": "shuffle"}
        return (await join(comm, how, *frames(comm.rank), **options)).table

    left, right = map(pd.concat, zip(*map(frames, range(2)), strict=True))
    parts = good_world(2, main)
    whole = merged(how, left, right, ["k"])
    for part in parts:
        assert part.dtypes.to_dict() == whole.dtypes.to_dict()
    assert rows_of(pd.concat(parts)) == rows_of(whole)


def test_decimals_that_no_type_holds_are_refused():
    async def main(comm):
        value = Decimal("1e-50") if comm.rank else Decimal("1e50")
        frame = pd.DataFrame({"k": [1], "v": [value]})
        return await refusal(comm, frame, pd.DataFrame({"k": [1]}))

    for text in good_world(2, main):
        assert "column 'v' of the left table" in text
        assert "is decimal256(51, 0) on rank 0, decimal256(50, 50) on rank 1" in text


ARROW_TYPES = (
    pa.dictionary(pa.int32(), pa.string()),
    pa.binary(2),
    pa.decimal128(10, 2),
    pa.decimal256(50, 3),
    pa.null(),
    pa.string(),
    pa.large_string(),
    pa.timestamp("s", "UTC"),
    pa.float16(),
)


@pytest.mark.parametrize("how", ["inner", "left", "outer", "anti"])
@pytest.mark.parametrize("kind", ARROW_TYPES, ids=str)
def test_types_of_arrow_in_frames_stay_what_they_are(kind, how):
    texts = {pa.binary(2): [b"ab", None], pa.null(): [None, None]}
    numbers = [1, None] if kind in ARROW_TYPES[2:4] else ["a", None]
    if kind == pa.float16():
        numbers = [np.float16(1), None]
    if pa.types.is_timestamp(kind):
        numbers = [5, None]
    array = pa.array(texts.get(kind, numbers), kind)
    values = pd.Series(pd.arrays.ArrowExtensionArray(array))

    def frames(rank):
        left = pd.DataFrame({"k": [rank, 5], "n": [1, 2], "v": values})
        return left, pd.DataFrame({"k": [0, 7], "w": values})

    async def main(comm):
        return (await join(comm, how, *frames(comm.rank))).table

    left, right = map(pd.concat, zip(*map(frames, range(2)), strict=True))
    parts = good_world(2, main)
    whole = merged(how, left, right, ["k"])
    for part in parts:
        assert part.dtypes.to_dict() == whole.dtypes.to_dict()
    assert rows_of(pd.concat(parts)) == rows_of(whole)


@pytest.mark.parametrize("where", [0, 1])
def test_a_frame_on_one_rank_and_none_on_another_are_joined_by_pandas(where):
    async def main(comm):
        left = placed(comm.rank, where, pd.DataFrame({"k": [1, 2]}))
        done = await join(comm, "inner", left, pa.table({"k": [1, 3]}))
        assert done.statistics.local == "PandasJoin"
        return done.table

    assert pd.concat(good_world(2, main))["k"].tolist() == [1, 1]


# --- polars -------------------------------------------------------------------


def polars_frames(pl, rank):
    low, high = (rank * 4, rank * 4 + 6)
    names = [chr(97 + n % 9) for n in range(low, high)]
    enum = pl.Enum(["i", "h", "g", "f", "e", "d", "c", "b", "a"])
    columns = {
        "k": pl.Series(range(low, high), dtype=pl.Int64),
        "cat": pl.Series(names, dtype=pl.Categorical),
        "enum": pl.Series([*names[:-1], None], dtype=enum),
        "text": pl.Series(names),
        "bytes": pl.Series([name.encode() for name in names]),
        "f": pl.Series([float("nan"), -0.0, None, 1.0, 2.0, 3.0], dtype=pl.Float32),
        "day": pl.Series(range(low, high)).cast(pl.Date),
        "zone": pl.Series(range(low, high)).cast(pl.Datetime("us", "Europe/Berlin")),
        "span": pl.Series(range(low, high)).cast(pl.Duration("ms")),
        "time": pl.Series(range(low, high)).cast(pl.Time),
        "price": pl.Series(["1.25", None, "2.50"] * 2).cast(pl.Decimal(12, 2)),
        "yes": pl.Series([True, False, None] * 2),
    }
    left = pl.DataFrame(columns)
    right = left.select((pl.col("k") * 2 + rank).alias("k"), pl.exclude("k"))
    return left, right


@pytest.mark.parametrize("key", ["k", "cat", "enum", "text", "day", "zone", "bytes"])
@pytest.mark.parametrize("how", HOWS)
def test_frames_of_polars_give_frames_of_polars(how, key):
    pl = pytest.importorskip("polars")

    async def main(comm):
        frames = polars_frames(pl, comm.rank)
        return (await join(comm, how, *frames, on=key)).table

    left, right = (
        pl.concat(frames)
        for frames in zip(*(polars_frames(pl, rank) for rank in range(2)), strict=True)
    )
    name = "full" if how == "outer" else how
    coalesce = None if how in ("semi", "anti") else True
    whole = left.join(right, on=key, how=name, coalesce=coalesce, suffix="_y")
    parts = good_world(2, main)
    assert all(isinstance(part, pl.DataFrame) for part in parts)
    found = pl.concat(parts)
    renamed = {
        name: name.removesuffix("_x") for name in found.columns if name[-2:] == "_x"
    }
    found = found.rename(renamed).select(whole.columns)
    assert found.schema == whole.schema
    as_text = [sorted(map(repr, frame.rows())) for frame in (found, whole)]
    assert as_text[0] == as_text[1]


def test_types_of_polars_that_arrow_does_not_have_are_refused():
    pl = pytest.importorskip("polars")
    frames = {
        "Int128": pl.DataFrame({"k": [1], "wide": pl.Series([2], dtype=pl.Int128)}),
        "Object": pl.DataFrame({"k": [1], "wide": pl.Series([{}], dtype=pl.Object)}),
    }

    async def main(comm, frame):
        good = pl.DataFrame({"k": [1]})
        return await refusal(comm, good, frame if comm.rank else good)

    for name, frame in frames.items():
        for text in good_world(2, lambda comm, frame=frame: main(comm, frame)):
            assert "column 'wide' of the right table has polars' type" in text
            assert name in text


def test_an_enum_may_have_the_name_of_a_type_as_a_category():
    pl = pytest.importorskip("polars")
    kind = pl.Enum(["Known", "Unknown", "Object", "Int128"])

    async def main(comm):
        frame = pl.DataFrame({"k": pl.Series(["Known"], dtype=kind)})
        return (await join(comm, "inner", frame, frame)).table

    parts = good_world(2, main)
    assert pl.concat(parts)["k"].to_list() == ["Known"] * 4
    assert all(part.schema == {"k": kind} for part in parts)


def test_enums_that_differ_are_refused():
    pl = pytest.importorskip("polars")

    async def between_ranks(comm):
        kind = pl.Enum(["a", "b"] if comm.rank else ["b", "a"])
        frame = pl.DataFrame({"k": [1], "e": pl.Series(["a"], dtype=kind)})
        return await refusal(comm, frame, frame)

    async def between_tables(comm):
        kinds = pl.Enum(["a", "b"]), pl.Enum(["b", "a"])
        frames = [pl.DataFrame({"k": pl.Series(["a"], dtype=kind)}) for kind in kinds]
        return await refusal(comm, *frames)

    for text in good_world(2, between_ranks):
        assert "column 'e' of the left table is an Enum whose categories" in text
    for text in good_world(2, between_tables):
        assert "the key 'k' of the left table is an Enum with other" in text


# --- dictionaries -------------------------------------------------------------


@pytest.mark.parametrize("how", HOWS)
def test_dictionaries_of_floats_may_have_nan(how):
    def table(rank, name):
        values = [[float("nan"), 1.0], [2.0, float("nan"), 1.0]][rank]
        numbers = pa.array([*range(len(values)), None, 0], pa.int32())
        column = pa.DictionaryArray.from_arrays(numbers, pa.array(values))
        return pa.table({"k": column, name: range(len(numbers)), "p" + name: column})

    async def main(comm):
        tables = table(comm.rank, "a"), table(comm.rank, "b")
        return (await join(comm, how, *tables)).table

    parts = good_world(2, main)
    kind = pa.dictionary(pa.int32(), pa.float64())
    assert {part.schema.field("k").type for part in parts} == {kind}
    assert {part.schema.field("pa").type for part in parts} == {kind}
    found = pa.concat_tables(parts)
    left, right = (
        pa.concat_tables(
            table(rank, name).cast(
                pa.schema([("k", "f8"), (name, "i8"), ("p" + name, "f8")])
            )
            for rank in range(2)
        )
        for name in "ab"
    )
    plain = ucp.join.ArrowJoin().join(
        left, right, ucp.join.JoinSpec(how, ("k",), ("k",), ("_x", "_y"))
    )
    rows = [sorted(map(repr, each.to_pylist())) for each in (found, plain)]
    assert rows[0] == rows[1]


class Word(pa.ExtensionType):
    def __init__(self):
        super().__init__(pa.dictionary(pa.int32(), pa.string()), "ucp.test.word")

    def __arrow_ext_serialize__(self):
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, _storage, _data):
        return cls()


def test_an_extension_type_over_a_dictionary_is_refused():
    async def main(comm):
        good = pa.table({"k": [1], "w": ["a"]})
        words = pa.array(["a"]).dictionary_encode()
        bad = pa.table({"k": [1], "w": pa.ExtensionArray.from_storage(Word(), words)})
        return await refusal(comm, good, bad if comm.rank else good)

    for text in good_world(2, main):
        assert "column 'w' of the right table has type" in text
        assert "an extension type over a dictionary: cast it" in text


def test_keys_by_which_pandas_does_not_merge_are_refused():
    async def main(comm):
        keys = pa.array([b"1" * 16, b"2" * 16], pa.uuid())
        frame = pd.DataFrame({"k": pd.Series(pd.arrays.ArrowExtensionArray(keys))})
        objects = frame.astype(object)
        found = await join(comm, "outer", objects, objects)
        assert found.table.dtypes.tolist() == [object]
        return await refusal(comm, frame, frame), len(found.table)

    (text, first), (_, second) = good_world(2, main)
    assert text.startswith(
        "the key 'k' has pandas' type extension<arrow.uuid>[pyarrow]"
    )
    assert first + second == 8
