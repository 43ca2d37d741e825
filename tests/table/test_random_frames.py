# SPDX-License-Identifier: BSD-3-Clause
# tests: ucp/plan
"""Random programs in which each rank makes its own frame, beside pandas.

Ranks have other types for a column, other units and categories, columns without
values, no rows, or no table.
"""

import datetime
import random

import pyarrow as pa
import pytest
from frame_programs import (
    EXTREMES,
    NAMES,
    NUMBERS,
    SIZES,
    START,
    are_equal,
    batches,
    known,
    some,
    sorted_rows,
)
from worlds import good_world

import ucp.join
import ucp.table

pd = pytest.importorskip("pandas")

# --- pandas -------------------------------------------------------------------


def integers(rng, rows):
    kind = rng.choice(
        ["i8", "i4", "u1", "Int64", "Int16", "f8", "f4", "int64[pyarrow]"]
    )
    values = [rng.randrange(9) for _ in range(rows)]
    if kind not in ("i8", "i4", "u1"):
        values = some(rng, range(9), rows)
    return pd.Series(values, dtype=kind)


def floats(rng, rows):
    values = some(rng, [-1.5, 0.25, 3.0], rows)
    return pd.Series(values, dtype=rng.choice(["f8", "f8", "Float64"]))


def texts(rng, rows):
    return pd.Series(some(rng, NAMES, rows), dtype=rng.choice(["str", object]))


def times(rng, rows):
    values = [START + datetime.timedelta(seconds=n) for n in range(4)]
    unit = rng.choice(["s", "ms", "us", "ns"])
    return pd.Series(some(rng, values, rows), dtype=f"datetime64[{unit}]")


def zoned(rng, rows):
    return times(rng, rows).dt.tz_localize("Europe/Rome")


def durations(rng, rows):
    values = [datetime.timedelta(seconds=n) for n in (-1, 0, 90)]
    unit = rng.choice(["s", "ms", "us", "ns"])
    return pd.Series(some(rng, values, rows), dtype=f"timedelta64[{unit}]")


def categories(rng, rows):
    known = rng.choice([NAMES, NAMES[::-1], NAMES[:2]])
    return pd.Series(pd.Categorical(some(rng, known, rows), known))


def ordered(rng, rows):
    known = rng.choice([SIZES, SIZES, SIZES[::2]])
    return pd.Series(pd.Categorical(some(rng, known, rows), known, ordered=True))


def missing(rng, rows):
    """A column without values, of a type that pandas gives such."""
    kind = rng.choice(["f8", object, "datetime64[s]", "category"])
    return pd.Series([None] * rows, dtype=kind)


KINDS = {
    "integers": (integers, NUMBERS),
    "floats": (floats, NUMBERS),
    "texts": (texts, [*EXTREMES, "nunique"]),
    "times": (times, [*EXTREMES, "mean"]),
    "zoned": (zoned, EXTREMES),
    "durations": (durations, [*EXTREMES, "mean", "sum"]),
    "categories": (categories, ["count", "first", "last", "nunique"]),
    "ordered": (ordered, EXTREMES),
}


def pandas_frame(rng, kinds, rank):
    """A frame of a rank; None: it has no table."""
    if rank and rng.random() < 0.1:
        return None
    rows = rng.choice([0, 1, 5, 30])
    columns = {
        name: (missing if rng.random() < 0.15 else KINDS[kind][0])(rng, rows)
        for name, kind in kinds.items()
    }
    columns["row"] = pd.Series(range(100 * rank, 100 * rank + rows), dtype="i8")
    return pd.DataFrame(columns)


def pandas_whole(frames, kinds):
    """What pandas makes of all of them; it knows no type of what is missing."""
    columns = {}
    for name in (*kinds, "row"):
        parts = [frame[name] for frame in frames]
        known = [part for part in parts if part.notna().any()] or parts[:1]
        kind = pd.concat(known).dtype
        if kinds.get(name) == "ordered":
            kind = pd.CategoricalDtype(SIZES, ordered=True)
        elif kind == "category" or kinds.get(name) == "categories":
            kind = object
        elif kind.kind in "iub" and not isinstance(
            kind, pd.api.extensions.ExtensionDtype
        ):
            kind = "Int64" if name != "row" else kind
        columns[name] = pd.concat([part.astype(object) for part in parts])
        columns[name] = columns[name].where(columns[name].notna(), None).astype(kind)
    return pd.DataFrame(columns).reset_index(drop=True)


def rows_of(frame):
    return [[known(value) for value in row] for row in frame.astype(object).to_numpy()]


def check_types(parts, kinds, frames):
    """All ranks have the types that pandas gives the whole."""
    for name, kind in kinds.items():
        types = {str(part[name].dtype) for part in parts}
        assert len(types) == 1, (name, types)
        its = [frame[name] for frame in frames if frame[name].notna().any()]
        if len(its) < 2 or kind in ("categories", "ordered"):
            continue
        own = pd.concat(its).dtype
        is_mixed = (
            kind == "integers" and str(own) == "object"
        )  # nullable ones, and Arrow's
        if own.kind not in "iu" and not is_mixed:  # integers may have become nullable
            assert types == {str(own)}, (name, own, [str(each.dtype) for each in its])


def pandas_program(size, seed):
    rng = random.Random(f"pandas {size} {seed}")
    names = rng.sample(["a", "b", "c", "d"], rng.choice([2, 3, 4]))
    kinds = {name: rng.choice(list(KINDS)) for name in names}
    frames = [pandas_frame(rng, kinds, rank) for rank in range(size)]
    operation = rng.choice(["sort", "sort", "group_by", "group_by", "repartition"])
    by = rng.sample(names, rng.choice([1, 1, 2]))
    return rng, kinds, frames, operation, by


def as_given(frames, seed):
    """Some ranks have read a table of Arrow where others have a frame."""
    rng = random.Random(f"arrow {seed}")
    return [
        pa.Table.from_pandas(frame, preserve_index=False)
        if rank and frame is not None and rng.random() < 0.1
        else frame
        for rank, frame in enumerate(frames)
    ]


def pandas_call(rng, kinds, frames, operation, by):
    if operation == "sort":
        descending = [rng.random() < 0.4 for _ in by]
        nulls = rng.choice(["first", "last"])
        return {"descending": descending, "nulls": nulls, "stable": True}
    if operation == "group_by":
        wanted = []
        for name in kinds:
            functions = KINDS[kinds[name]][1]
            if not any(its is not None and its[name].notna().any() for its in frames):
                functions = ["count", "first"]  # nobody knows the type
            for function in rng.sample(functions, 2):
                options = [{"min_count": 0}] if function == "sum" else []
                wanted.append((name, function, *options))
        return {"aggregations": [*wanted, ([], "size")], "dropna": rng.random() < 0.5}
    return {}


def pandas_result(whole, operation, by, options):
    """The result of pandas."""
    if operation == "sort":
        for name in by:  # categories that are not ordered are by their values
            assert whole[name].dtype != "category" or whole[name].cat.ordered
        up = [not each for each in options["descending"]]
        place = options["nulls"]
        return whole.sort_values(by, ascending=up, na_position=place, kind="stable")
    if operation == "group_by":
        groups = whole.groupby(by, dropna=options["dropna"], observed=True, sort=False)
        columns = {}
        for name, function, *_ in options["aggregations"][:-1]:
            columns[f"{name}_{function}"] = groups[name].agg(function)
        columns["size"] = groups.size()
        return pd.DataFrame(columns).reset_index(names=by)
    return whole


@pytest.mark.parametrize("seeds", batches())
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_frames_of_pandas(size, seeds):
    async def main(comm):
        ends = []
        for seed in seeds:
            rng, kinds, frames, operation, by = pandas_program(size, seed)
            options = pandas_call(rng, kinds, frames, operation, by)
            call = getattr(ucp.table, operation)
            if operation == "group_by":
                options["keys"] = by
            elif operation == "sort":
                options["by"] = by
            table = as_given(frames, seed)[comm.rank]
            ends.append(await call(table, **options, comm=comm))
        return ends

    for seed, *parts in zip(seeds, *good_world(size, main), strict=True):
        rng, kinds, frames, operation, by = pandas_program(size, seed)
        options = pandas_call(rng, kinds, frames, operation, by)
        about = (size, seed, operation, by, kinds, options)
        are_frames = not any(isinstance(t, pa.Table) for t in as_given(frames, seed))
        frames = [frame for frame in frames if frame is not None]
        whole = pandas_whole(frames, kinds)
        expected = rows_of(pandas_result(whole, operation, by, options))
        found = [row for part in parts for row in rows_of(part)]
        if operation == "group_by":
            expected, found = sorted_rows(expected), sorted_rows(found)
        elif are_frames:
            check_types(parts, kinds, frames)
        assert are_equal(found, expected), (about, found, expected)


HOWS = ["inner", "left", "right", "outer"]


def join_program(size, seed):
    """Two frames of each rank, whose keys are numbers or names, and a join."""
    rng = random.Random(f"join {size} {seed}")
    key = rng.choice(["Int64", "str", "f8"])
    values = NAMES if key == "str" else range(5)
    sides = []
    for name in ("a", "b"):
        kinds = {name: rng.choice(list(KINDS))}
        frames = [pandas_frame(rng, kinds, rank) for rank in range(size)]
        for rank, frame in enumerate(frames):
            if frame is not None:
                rows = len(frame)
                known = [] if rank and rng.random() < 0.2 else values
                keys = pd.Series(some(rng, known, rows), dtype=key if known else object)
                frame.insert(0, "k", keys)
                frames[rank] = frame.rename(columns={"row": f"row_{name}"})
        sides.append((kinds, frames))
    return sides, rng.choice(HOWS), rng.choice(["shuffle", "auto"])


@pytest.mark.parametrize("seeds", batches())
@pytest.mark.parametrize("size", [1, 2, 3])
def test_joins_of_frames_of_pandas(size, seeds):
    async def main(comm):
        ends = []
        for seed in seeds:
            sides, how, strategy = join_program(size, seed)
            left, right = (frames[comm.rank] for _, frames in sides)
            call = getattr(ucp.join, how)
            found = await call(left, right, on="k", comm=comm, strategy=strategy)
            ends.append(found.table)
        return ends

    for seed, *parts in zip(seeds, *good_world(size, main), strict=True):
        sides, how, _ = join_program(size, seed)
        whole = []
        for _, frames in sides:
            frames = [frame for frame in frames if frame is not None]
            objects = pd.concat([frame.astype(object) for frame in frames])
            whole.append(objects.where(objects.notna(), None))
        expected = whole[0].merge(whole[1], how=how, on="k")
        found = [row for part in parts for row in rows_of(part)]
        assert sorted_rows(found) == sorted_rows(rows_of(expected)), (size, seed, how)
