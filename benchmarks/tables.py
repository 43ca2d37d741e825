# SPDX-License-Identifier: BSD-3-Clause
"""Sort and group a table on two ranks, compared with other ways.

A table has an int64 key and a float64 value, 16 bytes a row. The ways take turns;
milliseconds, best of the rounds. Two ranks or workers, and one process for the
libraries. Tables of ucp, polars and pyarrow are Arrow's, those of dask are pandas'.

    sort    --megabytes of rows with random keys; the goals are a third of dask's time,
            and with polars 1.2 times that of polars with two threads, 3 times without
    group   sum and mean of --rows rows with a tenth as many keys; the goal is a third
            of dask's time

python benchmarks/tables.py [CASE ...] [--megabytes 256] [--rows 10000000] [--rounds 5]
    [--without-dask]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

os.environ.setdefault("POLARS_MAX_THREADS", "2")

import numpy as np
import pyarrow as pa
from join import RANKS, Ranks, Way, dask_cluster, interleaved, show

import ucp
import ucp.table
from ucp.shuffle import MemoryCache

ROW = 16  # bytes
PARTS = 8  # of dask's tables
WANTED = [("value", "sum"), ("value", "mean")]
CASES = ("sort", "group")


def table_of(seed: int, rows: int, keys: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    return pa.table({"key": rng.integers(0, keys, rows), "value": rng.random(rows)})


# --- a rank -------------------------------------------------------------------


async def rank_main(comm: ucp.Communicator) -> None:
    """Rank 0 reads commands, and all ranks follow them."""
    command = bytearray(4096)
    loop = asyncio.get_running_loop()
    table: Any = None
    with MemoryCache(keep=4 << 30) as cache:
        while True:
            if comm.rank == 0:
                line = await loop.run_in_executor(None, sys.stdin.readline)
                command[:] = line.encode().ljust(len(command))
            await comm.bcast(command)
            options = json.loads(bytes(command)) if command.strip() else {}
            if not options:
                return
            answer = {}
            if "rows" in options:
                table = table_of(comm.rank, options["rows"] // RANKS, options["keys"])
            else:
                answer["ms"] = await timed(comm, table, cache, **options)
            if comm.rank == 0:
                print(json.dumps(answer), flush=True)


async def timed(
    comm: ucp.Communicator,
    table: Any,
    cache: MemoryCache,
    operation: str,
    library: str | None,
) -> float:
    if library is not None:
        module: Any = sys.modules["ucp.table._plan"]
        module.choose_library = lambda *_: library
    options = {"comm": comm, "cache": cache}
    await comm.barrier()
    started = time.perf_counter()
    if operation == "sort":
        found = await ucp.table.sort(table, "key", **options)
    else:
        found = await ucp.table.group_by(table, "key", WANTED, **options)
    await comm.barrier()
    seconds = time.perf_counter() - started
    del found
    return seconds * 1e3


async def rank() -> None:
    root, number = os.environ["ROOT"], int(os.environ["RANK"])
    async with await ucp.Communicator.connect(root, number, RANKS) as comm:
        await rank_main(comm)


# --- others -------------------------------------------------------------------


def library_ways(operation: str, rows: int, keys: int) -> dict[str, Way]:
    parts = [table_of(number, rows // RANKS, keys) for number in range(RANKS)]
    table = pa.concat_tables(parts).combine_chunks()
    ways: dict[str, Way] = {
        "pyarrow": lambda: (
            table.sort_by("key")
            if operation == "sort"
            else table.group_by("key").aggregate(WANTED)
        )
    }
    with contextlib.suppress(ImportError):
        import polars

        frame: Any = polars.from_arrow(table)
        value = polars.col("value")
        wanted = [value.sum().alias("sum"), value.mean().alias("mean")]
        ways["polars, 2 threads"] = lambda: (
            frame.sort("key")
            if operation == "sort"
            else frame.group_by("key").agg(wanted)
        )
    return ways


def dask_part(number: int, rows: int, keys: int) -> Any:
    return table_of(number, rows, keys).to_pandas()


@contextlib.contextmanager
def dask_way(operation: str, rows: int, keys: int) -> Iterator[Way]:
    """dask on two workers; it ends when the result is there."""
    with dask_cluster() as dd:
        from distributed import wait

        table = dd.from_map(dask_part, range(PARTS), rows=rows // PARTS, keys=keys)
        table = table.persist()
        wait(table)

        def run() -> object:
            if operation == "sort":
                found = table.sort_values("key")
            else:
                groups = table.groupby("key")
                found = groups.agg({"value": ["sum", "mean"]}, split_out=PARTS)
            found = found.persist()
            wait(found)
            return None

        yield run


# --- cases --------------------------------------------------------------------


def measure(operation: str, rows: int, keys: int, args: argparse.Namespace) -> None:
    with contextlib.ExitStack() as stack:
        ways = library_ways(operation, rows, keys)
        ranks: dict[str, Ranks] = {}
        for name, library in (("ucp", None), ("ucp, without polars", "numpy")):
            ranks[name] = stack.enter_context(Ranks(program=__file__))
            ranks[name].ask(rows=rows, keys=keys)
            ways[name] = lambda name=name, library=library: ranks[name].ask(
                operation=operation, library=library
            )
        if not args.without_dask:
            way = dask_way(operation, rows, keys)
            ways["dask, 2 workers"] = stack.enter_context(way)
        print(f"{operation}: {rows} rows, {rows * ROW / 1e6:.0f} MB, {keys} keys")
        best = interleaved(ways, args.rounds)
        show(best, "ucp")
        for name in ("ucp", "ucp, without polars"):
            for other in ("dask, 2 workers", "polars, 2 threads"):
                if other in best:
                    print(f"{name}: {best[name] / best[other]:.2f} of {other}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", nargs="*", metavar="CASE", default=list(CASES))
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--without-dask", action="store_true")
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rank:
        asyncio.run(rank())
        return
    for case in args.cases:
        if case == "sort":
            measure("sort", args.megabytes * 1_000_000 // ROW, 1 << 60, args)
        elif case == "group":
            measure("group", args.rows, args.rows // 10, args)
        else:
            parser.error(f"no case {case!r}, only {', '.join(CASES)}")


if __name__ == "__main__":
    main()
