# SPDX-License-Identifier: BSD-3-Clause
"""Join two tables, compared with other ways.

Tables of two int64 columns, key and payload; --rows rows on each side, with 0.3
matches for a row of the left one. The ways take turns; milliseconds, best of the
rounds. Two ranks or workers, and one process for the libraries.

    contenders  ucp against dask's p2p merge, pyarrow, pandas, polars and DuckDB
    local       the local joins of ucp against polars and DuckDB, which have two threads
                in one process; and how much longer ucp takes than the better one
    wide        1000 rows of 501 columns on each side and rank, compared with pyarrow
    decomposition  over_decomposition 1 to 32
    crossover   shuffle, broadcast and auto; the right table gets smaller
    scale       1 to 16 million rows, with the memory of a rank
    overlap     two network namespaces with 1 Gbit/s (root only): M=8, and M=1, which
                begins to join when all rows have come

python benchmarks/join.py [CASE ...] [--rows 4000000] [--rounds 7]
    [--plot FILE] draws the timeline of the last join of contenders
    [--json FILE] writes what contenders took
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import os
import random
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import _veth
import numpy as np
import pyarrow as pa
from _process import LOOPBACK, Network, free_port

import ucp
import ucp.join
import ucp.shuffle

SELECTIVITY = 0.3
WIDE, WIDE_ROWS = 500, 1000
RANKS = 2
CASES = (
    "contenders",
    "local",
    "wide",
    "decomposition",
    "crossover",
    "scale",
    "overlap",
)

Way = Callable[[], object]


def table_of(seed: int, rows: int, keys: int, name: str) -> pa.Table:
    rng = np.random.default_rng([seed, len(name)])
    return pa.table(
        {"key": rng.integers(0, keys, rows), name: rng.integers(0, 1 << 40, rows)}
    )


def both(seed: int, left: int, right: int, keys: int) -> tuple[pa.Table, pa.Table]:
    return table_of(seed, left, keys, "a"), table_of(seed, right, keys, "bb")


def wide_tables() -> tuple[pa.Table, pa.Table]:
    numbers = np.arange(WIDE_ROWS)
    left, right = (
        pa.table({"key": numbers, **{f"{name}{i}": numbers for i in range(WIDE)}})
        for name in ("a", "b")
    )
    return left, right


# --- a rank -------------------------------------------------------------------


async def rank_main(comm: ucp.Communicator) -> None:
    """Rank 0 reads commands, and all ranks follow them."""
    cache = ucp.shuffle.MemoryCache(keep=4 << 30)
    tables: tuple[Any, Any] = (None, None)
    command = bytearray(4096)
    loop = asyncio.get_running_loop()
    while True:
        if comm.rank == 0:
            line = await loop.run_in_executor(None, sys.stdin.readline)
            command[:] = line.encode().ljust(len(command))
        await comm.bcast(command)
        options = json.loads(bytes(command) or b"{}") if command.strip() else {}
        answer: dict[str, Any]
        if not options:
            return
        if "wide" in options:
            tables = wide_tables()
            answer = {}
        elif "left" in options:
            sizes = [options[side] // comm.size for side in ("left", "right")]
            tables = both(comm.rank, *sizes, options["keys"])
            answer = {}
        else:
            answer = await timed_join(comm, tables, cache, **options)
        if comm.rank == 0:
            print(json.dumps(answer), flush=True)


async def timed_join(
    comm: ucp.Communicator,
    tables: tuple[Any, Any],
    cache: ucp.shuffle.MemoryCache,
    use_cache: bool = True,
    local: str | None = None,
    **options: Any,
) -> dict[str, Any]:
    if local is not None:
        options["local"] = getattr(ucp.join, local)()
    await comm.barrier()
    started = time.perf_counter()
    found = await ucp.join.inner(
        *tables, on="key", comm=comm, cache=cache if use_cache else None, **options
    )
    seconds = time.perf_counter() - started
    every = await ucp.join.gather_statistics(comm, found.statistics)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "ms": seconds * 1e3,
        "peak MB": peak,
        "statistics": [its.as_dict() for its in every],
    }


async def rank() -> None:
    async with await ucp.Communicator.connect(
        os.environ["ROOT"], int(os.environ["RANK"]), RANKS
    ) as comm:
        await rank_main(comm)


# --- the ranks from outside ---------------------------------------------------


class Ranks:
    """Two processes of a program; rank 0 takes commands."""

    def __init__(
        self,
        network: Network = LOOPBACK,
        program: str = __file__,
        **environment: str,
    ) -> None:
        root = f"tcp://{network.address}:{free_port()}"
        prefixes = (network.server, network.client)
        self.processes = [
            subprocess.Popen(
                [*prefixes[number], sys.executable, "-P", program, "--rank"],
                env={
                    **os.environ,
                    **environment,
                    "ROOT": root,
                    "RANK": str(number),
                    "PYTHONPATH": os.path.dirname(os.path.abspath(__file__)),
                },
                stdin=subprocess.PIPE if number == 0 else subprocess.DEVNULL,
                stdout=subprocess.PIPE if number == 0 else None,
                text=True,
            )
            for number in range(RANKS)
        ]

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, *exc: object) -> None:
        with contextlib.suppress(OSError):
            self._tell({})
        for process in self.processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()

    def _tell(self, options: dict[str, Any]) -> None:
        stdin = self.processes[0].stdin
        assert stdin is not None
        stdin.write(json.dumps(options) + "\n")
        stdin.flush()

    def ask(self, **options: Any) -> dict[str, Any]:
        self._tell(options)
        stdout = self.processes[0].stdout
        assert stdout is not None
        line = stdout.readline()
        if not line:
            raise RuntimeError("the ranks have ended")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def tables(self, left: int, right: int) -> None:
        self.ask(left=left, right=right, keys=int(left / SELECTIVITY))


# --- others -------------------------------------------------------------------


def whole_tables(rows: int) -> tuple[pa.Table, pa.Table]:
    keys = int(rows / SELECTIVITY)
    parts = [both(number, *[rows // RANKS] * 2, keys) for number in range(RANKS)]
    left, right = (pa.concat_tables(side) for side in zip(*parts, strict=True))
    return left.combine_chunks(), right.combine_chunks()


def pyarrow_way(left: pa.Table, right: pa.Table, threads: int) -> Way:
    def run() -> object:
        pa.set_cpu_count(threads)
        return left.join(right, "key", join_type="inner", use_threads=threads > 1)

    return run


def library_ways(rows: int) -> dict[str, Way]:
    left, right = whole_tables(rows)
    ways: dict[str, Way] = {
        "pyarrow, 1 thread": pyarrow_way(left, right, 1),
        "pyarrow, 2 threads": pyarrow_way(left, right, 2),
    }
    with contextlib.suppress(ImportError):
        import pandas  # noqa: F401

        frames = left.to_pandas(), right.to_pandas()
        ways["pandas"] = lambda: frames[0].merge(frames[1], on="key")
    with contextlib.suppress(ImportError):
        import polars

        tables = polars.from_arrow(left), polars.from_arrow(right)
        ways["polars, 2 threads"] = lambda: tables[0].join(tables[1], on="key")  # type: ignore[union-attr,arg-type]
        ways["polars, streaming"] = lambda: (
            tables[0]
            .lazy()
            .join(tables[1].lazy(), on="key")  # type: ignore[union-attr,arg-type]
            .collect(engine="streaming")
        )
    with contextlib.suppress(ImportError):
        import duckdb

        connection = duckdb.connect(config={"threads": 2})
        connection.execute("set preserve_insertion_order = false")
        connection.register("a", left)
        connection.register("b", right)
        query = "select * from a join b using (key)"
        ways["DuckDB, 2 threads"] = lambda: connection.sql(query).to_arrow_table()
    return ways


def dask_part(number: int, rows: int, keys: int, name: str) -> Any:
    return table_of(number, rows, keys, name).to_pandas()


@contextlib.contextmanager
def dask_cluster() -> Iterator[Any]:
    """Two workers with a thread each, which shuffle by p2p: ``dask.dataframe``."""
    here = os.path.dirname(os.path.abspath(__file__))
    if here in sys.path:  # where dask.py is another thing
        sys.path.remove(here)
        sys.path.append(here)
    import dask
    import dask.dataframe as dd
    from distributed import Client, LocalCluster

    logging.getLogger("distributed.shuffle").setLevel(logging.ERROR)
    settings = {
        "dataframe.shuffle.method": "p2p",
        "logging": {"distributed.shuffle": "error"},
    }
    with (
        dask.config.set(settings),
        LocalCluster(
            n_workers=RANKS, threads_per_worker=1, dashboard_address=None
        ) as cluster,
        Client(cluster),
    ):
        yield dd


@contextlib.contextmanager
def dask_way(rows: int, parts: int = 8) -> Iterator[Way]:
    """dask's p2p merge on two workers; it ends when the result is there."""
    with dask_cluster() as dd:
        from distributed import wait

        keys = int(rows / SELECTIVITY)
        sides = [
            dd.from_map(
                dask_part, range(parts), rows=rows // parts, keys=keys, name=name
            ).persist()
            for name in ("a", "bb")
        ]
        wait(sides)

        def run() -> object:
            found = sides[0].merge(sides[1], on="key").persist()
            wait(found)
            return None

        run()
        yield run


# --- cases --------------------------------------------------------------------


def interleaved(ways: dict[str, Way], rounds: int) -> dict[str, float]:
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(rounds):
        for name in random.sample(list(ways), len(ways)):
            started = time.perf_counter()
            found = ways[name]()
            elapsed = (time.perf_counter() - started) * 1e3
            if isinstance(found, dict):
                elapsed = found["ms"]
            best[name] = min(best[name], elapsed)
            del found
    return best


def show(best: dict[str, float], base: str) -> None:
    for name, value in sorted(best.items(), key=lambda item: item[1]):
        print(f"{name:28}{value:10.1f} ms  {best[base] / value:6.2f} x {base}")


def contenders(args: argparse.Namespace) -> None:
    with contextlib.ExitStack() as stack:
        ranks = stack.enter_context(Ranks())
        ranks.tables(args.rows, args.rows)
        last: dict[str, Any] = {}

        def ours(**options: Any) -> Way:
            def run() -> object:
                answer = ranks.ask(**options)
                last.update(answer)
                return answer

            return run

        ways = library_ways(args.rows)
        ways["ucp, 2 ranks"] = ours(strategy="shuffle")
        ways["ucp, 2 ranks, new memory"] = ours(strategy="shuffle", use_cache=False)
        try:
            ways["dask p2p, 2 workers"] = stack.enter_context(dask_way(args.rows))
        except ImportError as error:
            print(f"without dask: {error}")
        print(f"{args.rows} x {args.rows} rows")
        best = interleaved(ways, args.rounds)
        show(best, "ucp, 2 ranks")
        if args.json:
            args.json.write_text(json.dumps({"rows": args.rows, "ms": best}, indent=1))
        if args.plot:
            ranks.ask(strategy="shuffle")
            every = ranks.ask(strategy="shuffle")["statistics"]
            ucp.join.plot(
                [ucp.join.JoinStatistics.from_dict(its) for its in every], args.plot
            )


def local(args: argparse.Namespace) -> None:
    """The local joins, and the goal: 1.1 times the better of polars and DuckDB."""
    with Ranks() as ranks:
        ranks.tables(args.rows, args.rows)
        ways = {
            name: way
            for name, way in library_ways(args.rows).items()
            if name.startswith(("polars", "DuckDB"))
        }
        libraries = list(ways)
        ways["ucp, 2 ranks"] = lambda: ranks.ask(strategy="shuffle")
        for name in ("ArrowJoin", "PolarsJoin", "DuckDBJoin"):
            ways[f"ucp, {name}"] = lambda name=name: ranks.ask(
                strategy="shuffle", local=name
            )
        print(f"{args.rows} x {args.rows} rows")
        best = interleaved(ways, args.rounds)
        show(best, "ucp, 2 ranks")
        if libraries:
            better = min(libraries, key=best.__getitem__)
            ratio = best["ucp, 2 ranks"] / best[better]
            print(f"ucp takes {ratio:.2f} times as long as {better}")


def wide(args: argparse.Namespace) -> None:
    """Many columns, and the goal: 3 times pyarrow's time and 30 ms."""
    left, right = (pa.concat_tables([table] * RANKS) for table in wide_tables())
    with Ranks() as ranks:
        ranks.ask(wide=True)
        ways = {
            "pyarrow, 1 thread": pyarrow_way(left, right, 1),
            "ucp, 2 ranks": lambda: ranks.ask(strategy="shuffle"),
        }
        best = interleaved(ways, args.rounds)
        show(best, "ucp, 2 ranks")
        most = 3 * best["pyarrow, 1 thread"] + 30
        print(f"ucp takes {best['ucp, 2 ranks'] / most:.2f} of 3 x pyarrow + 30 ms")


def decomposition(args: argparse.Namespace) -> None:
    with Ranks() as ranks:
        ranks.tables(args.rows, args.rows)
        ways = {
            f"M={pieces}": lambda pieces=pieces: ranks.ask(
                strategy="shuffle", over_decomposition=pieces
            )
            for pieces in (1, 2, 4, 8, 16, 32)
        }
        show(interleaved(ways, args.rounds), "M=1")


def crossover(args: argparse.Namespace) -> None:
    print(f"left {args.rows} rows; ms, and auto against the better one")
    print(f"{'right rows':>12}{'shuffle':>10}{'broadcast':>11}{'auto':>10}")
    with Ranks() as ranks:
        for shift in range(11):
            ranks.tables(args.rows, args.rows >> shift)
            ways: dict[str, Way] = {
                name: lambda name=name: ranks.ask(strategy=name)
                for name in ("shuffle", "broadcast", "auto")
            }
            best = interleaved(ways, args.rounds)
            chosen = ranks.ask(strategy="auto")["statistics"][0]["strategy"]
            better = min(best["shuffle"], best["broadcast"])
            print(
                f"{args.rows >> shift:12}{best['shuffle']:10.1f}"
                f"{best['broadcast']:11.1f}{best['auto']:10.1f}"
                f"{best['auto'] / better:7.2f}  {chosen}"
            )


def scale(args: argparse.Namespace) -> None:
    print("million rows of each table; ms; ns for a row; peak MB of rank 0, its tables")
    for millions in (1, 2, 4, 8, 16):
        rows = millions * 1_000_000
        with Ranks() as ranks:
            ranks.tables(rows, rows)
            ways = {"": lambda: ranks.ask(strategy="shuffle")}
            best = interleaved(ways, args.rounds)[""]
            peak = ranks.ask(strategy="shuffle")["peak MB"]
        print(
            f"{millions:4}{best:10.1f}{best * 1e6 / rows:8.1f}{peak:10.0f}"
            f"{rows * 32 / RANKS / 1e6:8.0f}"
        )


def overlap(args: argparse.Namespace) -> None:
    if reason := _veth.missing():
        sys.exit(f"no overlap over veth: {reason}")
    settings = {"UCX_TLS": "tcp,self"}
    with _veth.network("1gbit") as network, Ranks(network, **settings) as ranks:
        ranks.tables(args.rows, args.rows)
        answers: dict[str, dict[str, Any]] = {}

        def way(name: str, **options: Any) -> Way:
            def run() -> object:
                answer = ranks.ask(strategy="shuffle", **options)
                if answer["ms"] < answers.get(name, answer | {"ms": 1e9})["ms"]:
                    answers[name] = answer
                return answer

            return run

        ways = {
            "M=8": way("M=8", over_decomposition=8),
            "M=1": way("M=1", over_decomposition=1),
        }
        best = interleaved(ways, args.rounds)
        show(best, "M=1")
        for name, answer in answers.items():
            print(name)
            for its in answer["statistics"]:
                print(ucp.join.explain(ucp.join.JoinStatistics.from_dict(its)))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", nargs="*", metavar="CASE", default=["contenders"])
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--plot")
    parser.add_argument("--json", type=Path, help="results of contenders")
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rank:
        asyncio.run(rank())
        return
    functions = dict(
        zip(
            CASES,
            (contenders, local, wide, decomposition, crossover, scale, overlap),
            strict=True,
        )
    )
    for case in args.cases:
        if case not in functions:
            parser.error(f"no case {case!r}, only {', '.join(CASES)}")
        functions[case](args)


if __name__ == "__main__":
    main()
