# SPDX-License-Identifier: BSD-3-Clause
# tests: ucp/plan
"""Random programs in which each rank makes its own frame, beside polars.

Ranks have columns without values, of any type, no rows, or no table.
"""

import datetime
import random

import pytest
from frame_programs import (
    NAMES,
    SIZES,
    START,
    are_equal,
    batches,
    known,
    some,
    sorted_rows,
)
from worlds import good_world

import ucp.table

polars = pytest.importorskip("polars")

OWN = {
    "integers": (polars.Int32, range(9)),
    "floats": (polars.Float64, [-1.5, 0.25, 3.0]),
    "texts": (polars.String, NAMES),
    "times": (
        polars.Datetime("us"),
        [START + datetime.timedelta(seconds=n) for n in range(4)],
    ),
    "dates": (polars.Date, [START.date() + datetime.timedelta(n) for n in range(4)]),
    "durations": (
        polars.Duration("ms"),
        [datetime.timedelta(seconds=n) for n in (-1, 0, 90)],
    ),
    "bools": (polars.Boolean, [True, False]),
    "ordered": (polars.Enum(SIZES), SIZES),
}
FUNCTIONS = {
    "integers": ["sum", "mean", "std", "var"],
    "floats": ["sum", "mean", "std", "var"],
    "times": ["mean"],
    "dates": ["mean"],
    "durations": ["mean", "sum"],
}
OPTIONS = {
    "sum": {"min_count": 0},
    "first": {"skip_nulls": False},
    "last": {"skip_nulls": False},
    "nunique": {"mode": "all"},
}
OF_POLARS = {"nunique": "n_unique"}


def polars_frame(rng, kinds, rank):
    if rank and rng.random() < 0.1:
        return None
    rows = rng.choice([0, 1, 5, 30])
    columns = {}
    for name, kind in kinds.items():
        dtype, values = OWN[kind]
        if rng.random() < 0.15:
            dtype = rng.choice([polars.Null, polars.String, polars.Float64])
            values = []
        columns[name] = polars.Series(name, some(rng, values, rows), dtype)
    columns["row"] = polars.Series(
        "row", range(100 * rank, 100 * rank + rows), polars.Int64
    )
    return polars.DataFrame(columns)


def polars_program(size, seed):
    rng = random.Random(f"polars {size} {seed}")
    names = rng.sample(["a", "b", "c", "d"], rng.choice([2, 3, 4]))
    kinds = {name: rng.choice(list(OWN)) for name in names}
    frames = [polars_frame(rng, kinds, rank) for rank in range(size)]
    for name, kind in kinds.items():  # somebody knows the type
        frames[0] = frames[0].with_columns(frames[0][name].cast(OWN[kind][0]))
    known = {name: [OWN[kind][1][0]] for name, kind in kinds.items()}
    row = polars.DataFrame(known, {name: OWN[kind][0] for name, kind in kinds.items()})
    row = row.with_columns(polars.lit(99, polars.Int64).alias("row"))
    frames[0] = polars.concat([frames[0], row])
    operation = rng.choice(["sort", "group_by"])
    by = rng.sample(names, rng.choice([1, 1, 2]))
    if operation == "sort":
        descending = [rng.random() < 0.4 for _ in by]
        nulls = rng.choice(["first", "last"])
        options = {"by": by, "descending": descending, "nulls": nulls, "stable": True}
        return frames, kinds, operation, options
    wanted = []
    for name, kind in kinds.items():
        functions = [
            "count",
            "min",
            "max",
            "first",
            "last",
            "nunique",
            *FUNCTIONS.get(kind, ()),
        ]
        for function in rng.sample(functions, 2):
            options = [OPTIONS[function]] if function in OPTIONS else []
            wanted.append((name, function, *options))
    options = {"keys": by, "aggregations": [*wanted, ([], "size")]}
    return frames, kinds, operation, options


def polars_result(frames, kinds, operation, options):
    types = {name: OWN[kind][0] for name, kind in kinds.items()} | {"row": polars.Int64}
    whole = polars.concat([frame.cast(types) for frame in frames if frame is not None])
    if operation == "sort":
        last = options["nulls"] == "last"
        down = options["descending"]
        return whole.sort(
            options["by"], descending=down, nulls_last=last, maintain_order=True
        )
    wanted = [
        getattr(polars.col(name), OF_POLARS.get(function, function))().alias(
            f"{name}_{function}"
        )
        for name, function, *_ in options["aggregations"][:-1]
    ]
    return whole.group_by(options["keys"]).agg(*wanted, polars.len().alias("size"))


@pytest.mark.parametrize("seeds", batches())
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_frames_of_polars(size, seeds):
    async def main(comm):
        ends = []
        for seed in seeds:
            frames, _, operation, options = polars_program(size, seed)
            call = getattr(ucp.table, operation)
            ends.append(await call(frames[comm.rank], **options, comm=comm))
        return ends

    for seed, *parts in zip(seeds, *good_world(size, main), strict=True):
        program = polars_program(size, seed)
        about = (size, seed, *program[1:])
        whole = polars_result(*program)
        expected = [[*map(known, row)] for row in whole.rows()]
        found = [[*map(known, row)] for part in parts for row in part.rows()]
        if program[2] == "group_by":
            expected, found = sorted_rows(expected), sorted_rows(found)
        assert are_equal(found, expected), (about, found, expected)
        kept = [*program[1], "row"]
        if program[2] == "group_by":
            kept = program[3]["keys"]
            kept += [
                f"{name}_{function}"
                for name, function, *_ in program[3]["aggregations"][:-1]
                if function in ("min", "max", "first", "last", "mean")
            ]
        for part in parts:
            assert [part.schema[name] for name in kept] == [
                whole.schema[name] for name in kept
            ], about
