# SPDX-License-Identifier: BSD-3-Clause
"""Partition a table by the hash of a key, compared with other ways.

One process; milliseconds, best of the rounds, all ways of a case in random order
in each. `ucp` writes to memory that has been used before, as a copy does;
`2 threads` does so with two threads, `ucp new` writes to new memory. pandas is what
Dask does: hash_pandas_object, groupsort_indexer, one take, a slice for each
partition. pyarrow sorts by the remainder of the key, as it has no hash for programs;
polars makes a frame for each hash.

python benchmarks/partition.py [--rounds 7] [--rows 4000000] [--only NAMES]
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import random
import time
from collections.abc import Callable
from typing import Any

import _interrupts  # noqa: F401
import numpy as np

from ucp.shuffle import hash_partition

PARTITIONS = (2, 8, 16, 64, 1024)
Way = Callable[[int], object]


def aligned(nbytes: int) -> Any:
    """Memory at a multiple of 64 that has been written to."""
    memory = np.ones(nbytes + 64, np.uint8)
    return memory[-memory.ctypes.data % 64 :]


def ucp_ways(table: dict[str, Any]) -> dict[str, Way]:
    nbytes = sum(array.nbytes for array in table.values())
    out = aligned(nbytes + max(PARTITIONS) * 256)
    target = aligned(nbytes)

    def copy(_partitions: int) -> None:
        at = 0
        for array in table.values():
            target[at : at + array.nbytes] = array.view(np.uint8)
            at += array.nbytes

    return {
        "memcpy": copy,
        "ucp": lambda p: hash_partition(table, "key", p, out=out),
        "2 threads": lambda p: hash_partition(table, "key", p, out=out, threads=2),
        "ucp new": lambda p: hash_partition(table, "key", p),
    }


def pandas_way(table: dict[str, Any]) -> Way:
    pd = importlib.import_module("pandas")
    algorithms = importlib.import_module("pandas._libs.algos")
    frame = pd.DataFrame(table)

    def run(partitions: int) -> object:
        hashes = pd.util.hash_pandas_object(frame[["key"]], index=False).to_numpy()
        ids = (hashes % np.uint64(partitions)).astype(np.intp)
        order, counts = algorithms.groupsort_indexer(ids, partitions)
        moved = frame.take(order)
        ends = counts.cumsum()  # what comes first are rows without a partition
        return [moved.iloc[begin:end] for begin, end in itertools.pairwise(ends)]

    return run


def pyarrow_way(table: dict[str, Any]) -> Way:
    pa = importlib.import_module("pyarrow")
    compute = importlib.import_module("pyarrow.compute")
    whole = pa.table(table)

    def run(partitions: int) -> object:
        key = whole["key"]
        quotient = compute.multiply(compute.divide(key, partitions), partitions)
        ids = compute.subtract(key, quotient).cast(pa.uint16())
        moved = whole.take(compute.array_sort_indices(ids))
        counts = np.bincount(ids.to_numpy(), minlength=partitions)
        begins = np.cumsum(counts) - counts
        return [moved.slice(*part) for part in zip(begins, counts, strict=True)]

    return run


def polars_way(table: dict[str, Any]) -> Way:
    pl = importlib.import_module("polars")
    frame = pl.DataFrame(table)

    def run(partitions: int) -> object:
        ids = (pl.col("key").hash() % partitions).alias("id")
        return frame.with_columns(ids).partition_by("id", include_key=False)

    return run


def find_ways(table: dict[str, Any]) -> dict[str, Way]:
    ways = ucp_ways(table)
    makers = {"pandas": pandas_way, "pyarrow": pyarrow_way, "polars": polars_way}
    for name, make in makers.items():
        try:
            ways[name] = make(table)
        except ImportError:
            print(f"{name} is not installed")
    return ways


def measure(ways: dict[str, Way], partitions: int, rounds: int) -> dict[str, float]:
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(rounds):
        for name in random.sample(list(ways), len(ways)):
            started = time.perf_counter()
            result = ways[name](partitions)
            best[name] = min(best[name], (time.perf_counter() - started) * 1e3)
            del result
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--only", help="names, separated by commas")
    args = parser.parse_args()
    generator = np.random.default_rng(1)
    table = {
        "key": generator.integers(0, 2**60, args.rows),
        "value": np.arange(args.rows),
    }
    ways = find_ways(table)
    if args.only:
        ways = {name: ways[name] for name in args.only.split(",")}
    print(f"{args.rows} rows of two int64")
    print("partitions" + "".join(f"{name:>10}" for name in ways))
    for partitions in PARTITIONS:
        best = measure(ways, partitions, args.rounds)
        row = "".join(f"{best[name]:10.1f}" for name in ways)
        print(f"{partitions:10}{row}")
        if {"ucp", "pandas", "memcpy"} <= ways.keys():
            print(
                f"{'':10}{best['pandas'] / best['ucp']:10.1f} times as fast as pandas,"
                f" {best['memcpy'] / best['ucp']:.2f} of memcpy's speed"
            )
        if {"2 threads", "pandas"} <= ways.keys():
            ratio = best["pandas"] / best["2 threads"]
            print(f"{'':10}{ratio:10.1f} times as fast as pandas with two threads")


if __name__ == "__main__":
    main()
