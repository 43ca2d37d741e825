# SPDX-License-Identifier: BSD-3-Clause
"""Frames of Dask over ucp, compared with Dask's own p2p.

Two workers with a thread each, over tcp on the loopback. The ways take turns; seconds,
best of the rounds.

    merge       frames of pandas, in and out, of 1 MB and more on each side
    shuffle     64 MB: a key and a number
    sort        sort_values of the same
    groupby     sums of 10 million rows with a million keys, at most
    beside      tasks that have nothing to do with it, while merges run
    killed      what a killed worker costs a merge

python benchmarks/dask_join.py [CASE ...] [--rounds 5] [--most 256e6]
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import _interrupts  # noqa: F401
import numpy as np
import pandas as pd

HERE = os.path.dirname(os.path.abspath(__file__))
if HERE in sys.path:  # where dask.py is another thing
    sys.path.remove(HERE)
    sys.path.append(HERE)

import dask  # noqa: E402
import dask.dataframe as dd  # noqa: E402
from distributed import Client, LocalCluster, wait  # noqa: E402

import ucp.dask  # noqa: E402

CASES = ("merge", "shuffle", "sort", "groupby", "beside", "killed")
PARTS = 4
ROW = 16  # bytes
SELECTIVITY = 0.3
MOST = 256e6  # bytes of a side, in the largest merge

Way = Callable[[], Any]


def part(number: int, seed: int, rows: int, name: str) -> pd.DataFrame:
    """A partition of a table: a key and a number."""
    rng = np.random.default_rng([seed, number, len(name)])
    keys = rng.integers(0, int(PARTS * rows / SELECTIVITY), rows)
    return pd.DataFrame({"key": keys, name: np.arange(rows)})


def table(seed: int, nbytes: float, name: str) -> dd.DataFrame:
    """A table in the memory of the workers."""
    rows = int(nbytes / ROW / PARTS)
    made = dd.from_map(part, range(PARTS), seed=seed, rows=rows, name=name).persist()
    wait(made)
    return made


@contextlib.contextmanager
def cluster(workers: int = 2) -> Iterator[Client]:
    with (
        dask.config.set({"distributed.deploy.lost-worker-timeout": "300s"}),
        LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address=":0",
            silence_logs=logging.CRITICAL,
        ) as its,
        Client(its) as client,
    ):
        ucp.dask.bootstrap(client)
        yield client


def taken(way: Way) -> float:
    """Seconds until the result is in the memory of the workers."""
    begun = time.perf_counter()
    wait(way().persist())
    return time.perf_counter() - begun


def compare(rounds: int, make: Callable[[int], dict[str, Way]]) -> dict[str, float]:
    """The best time of each way; they begin in turns, with tables of their own."""
    best: dict[str, float] = {}
    for seed in range(rounds):
        ways = list(make(seed).items())
        for name, way in ways if seed % 2 else ways[::-1]:
            seconds = taken(way)
            best[name] = min(seconds, best.get(name, seconds))
    return best


def show(what: str, best: dict[str, float]) -> None:
    times = ", ".join(f"{name} {seconds:.3f}" for name, seconds in best.items())
    print(f"{what}: {times}; p2p / ucp {best['p2p'] / best['ucp']:.2f}", flush=True)


def run_merge(rounds: int, most: float) -> None:
    with cluster():
        nbytes = 1e6
        while nbytes <= most:

            def ways(seed: int, nbytes: float = nbytes) -> dict[str, Way]:
                left, right = table(seed, nbytes, "a"), table(seed, nbytes, "bb")
                return {
                    "ucp": lambda: ucp.dask.merge(left, right, on="key"),
                    "p2p": lambda: left.merge(right, on="key"),
                }

            show(f"merge, {nbytes / 1e6:g} MB a side", compare(rounds, ways))
            nbytes *= 4


def run_shuffle(rounds: int, most: float) -> None:
    def ways(seed: int) -> dict[str, Way]:
        its = table(seed, 64e6, "a")
        return {
            "ucp": lambda: ucp.dask.shuffle(its, "key"),
            "p2p": lambda: its.shuffle("key"),
        }

    with cluster():
        show("shuffle, 64 MB", compare(rounds, ways))


def run_sort(rounds: int, most: float) -> None:
    def ways(seed: int) -> dict[str, Way]:
        its = table(seed, 64e6, "a")
        return {
            "ucp": lambda: ucp.dask.sort_values(its, "key"),
            "p2p": lambda: its.sort_values("key"),
        }

    with cluster():
        show("sort_values, 64 MB", compare(rounds, ways))


def grouped(number: int, seed: int, rows: int) -> pd.DataFrame:
    rng = np.random.default_rng([seed, number])
    keys = rng.integers(0, max(1, PARTS * rows // 10), rows)
    return pd.DataFrame({"key": keys, "a": np.arange(rows)})


def run_groupby(rounds: int, most: float) -> None:
    rows = int(min(10e6, most / ROW)) // PARTS

    def ways(seed: int) -> dict[str, Way]:
        its = dd.from_map(grouped, range(PARTS), seed=seed, rows=rows).persist()
        wait(its)
        spec = {"a": ["sum", "mean"]}
        return {
            "ucp": lambda: ucp.dask.groupby(its, "key").agg(spec),
            "p2p": lambda: its.groupby("key").agg(spec, split_out=PARTS),
            "dask": lambda: its.groupby("key").agg(spec),
        }

    with cluster():
        show(f"groupby, {PARTS * rows / 1e6:g}M rows", compare(rounds, ways))


def busy(number: int) -> float:
    """A task of some milliseconds."""
    return float(np.random.default_rng(number).random(200_000).sum())


def run_beside(rounds: int, most: float) -> None:
    """The time of all tasks and a merge, which is that of both one after the other."""

    def merged(seed: int, name: str) -> Any:
        left, right = table(seed, 16e6, "a"), table(seed, 16e6, "bb")
        if name == "ucp":
            return ucp.dask.merge(left, right, on="key")
        return left.merge(right, on="key")

    best: dict[str, float] = {}
    with cluster() as client:
        for seed in range(rounds):
            for name in ("ucp", "p2p"):
                begun = time.perf_counter()
                wait(client.map(busy, range(400), pure=False))
                alone = time.perf_counter() - begun
                seconds = taken(lambda seed=seed, name=name: merged(seed, name))
                begun = time.perf_counter()
                its = merged(seed + 1000, name).persist()
                tasks = client.map(busy, range(400), pure=False)
                wait(tasks)
                wait(its)
                together = time.perf_counter() - begun
                rate = (alone + seconds) / together
                best[name] = max(rate, best.get(name, rate))
    for name, rate in best.items():
        print(f"beside {name}: {rate:.2f} of the rate one after the other", flush=True)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def run_killed(rounds: int, most: float) -> None:
    """A worker is killed when its inserts are there; the tables are made again."""

    def merged(seed: int) -> Any:
        rows = int(16e6 / ROW / PARTS)
        left, right = (
            dd.from_map(part, range(PARTS), seed=seed, rows=rows, name=name)
            for name in ("a", "bb")
        )
        return ucp.dask.merge(left, right, on="key")

    clean, killed = [], []
    with cluster(3) as client:
        for seed in range(rounds):
            client.wait_for_workers(3)
            clean.append(taken(lambda seed=seed: merged(seed)))
            begun = time.perf_counter()
            its = merged(seed + 1000).persist()
            while not client.run_on_scheduler(any_run):
                pass
            worker = sorted(client.scheduler_info(-1)["workers"])[seed % 3]
            with contextlib.suppress(OSError):
                client.run(die, workers=[worker], on_error="ignore")
            wait(its)
            killed.append(time.perf_counter() - begun)
            del its
    print(
        f"killed: {min(clean):.3f} s, with a killed worker {min(killed):.3f} to "
        f"{max(killed):.3f} s",
        flush=True,
    )


def any_run(dask_scheduler: Any) -> bool:
    return bool(dask_scheduler.plugins["ucp-shuffle"].runs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--most", type=float, default=MOST)
    arguments = parser.parse_args()
    for case in arguments.cases or CASES:
        if case not in CASES:
            parser.error(f"{case} is none of {', '.join(CASES)}")
        globals()[f"run_{case}"](arguments.rounds, arguments.most)


# The worker processes import this file, and must not start a cluster themselves.
if __name__ == "__main__":
    main()
