# SPDX-License-Identifier: BSD-3-Clause
"""Programs that benchmarks/dask.py runs in processes of their own; they print JSON.

python -P _dask.py comm SCHEME SECONDS SIZE...      half round trips, us
python -P _dask.py serve SCHEME                     the other end
python -P _dask.py cluster SCHEME REPEATS           whatever a cluster does
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from distributed import Client, LocalCluster, wait
from distributed.comm import CommClosedError, connect, listen
from distributed.protocol import to_serialize

MIB = 1 << 20
IDLE_SECONDS = 3.0
TRANSFERS = 250


def array(size: int) -> Any:
    return np.zeros(size, "u1")


# ---- one connection ----------------------------------------------------------


async def echo(comm: Any) -> None:
    with contextlib.suppress(CommClosedError):
        while True:
            message = await comm.read()
            await comm.write({"x": to_serialize(message.pop("x"))})


async def serve(scheme: str) -> None:
    async with listen(f"{scheme}://127.0.0.1:0", echo) as listener:
        print(listener.contact_address, flush=True)
        await asyncio.to_thread(sys.stdin.read)


async def measure(address: str, size: int, seconds: float) -> float:
    """Median half round trip in us, without the first ones."""
    comm = await connect(address)
    message = {"x": to_serialize(array(size))}
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < 6 or time.perf_counter() < end:
        start = time.perf_counter()
        await comm.write(message)
        answer = await comm.read()
        times.append(time.perf_counter() - start)
        del answer
    await comm.close()
    return 0.5e6 * statistics.median(times[len(times) // 5 :])


def comm(scheme: str, seconds: str, *sizes: str) -> dict[str, float]:
    command = [sys.executable, "-P", __file__, "serve", scheme]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdin is not None and server.stdout is not None
        address = server.stdout.readline().strip()
        values = {
            size: asyncio.run(measure(address, int(size), float(seconds)))
            for size in sizes
        }
        server.stdin.close()
    return values


# ---- a cluster ---------------------------------------------------------------


class Bench:
    """Two workers of one thread, each in a process."""

    def __init__(self, client: Client, repeats: int) -> None:
        self.client = client
        self.repeats = repeats
        self.a, self.b = client.scheduler_info()["workers"]
        self.pids = [os.getpid(), *client.run(os.getpid).values()]

    def best_ms(self, run: Callable[[], object]) -> float:
        times = []
        for _ in range(self.repeats + 1):
            start = time.perf_counter()
            result = run()
            times.append(time.perf_counter() - start)
            del result
        return 1e3 * min(times[1:])

    def scatter(self, size: int) -> float:
        data = array(size)
        return self.best_ms(
            lambda: self.client.scatter(data, workers=[self.a], hash=False)
        )

    def gather(self, size: int) -> float:
        future = self.client.submit(array, size, workers=[self.a], pure=False)
        wait(future)
        return self.best_ms(future.result)

    def worker_to_worker(self, size: int) -> float:
        """Between workers, with what the scheduler has to do."""
        return 1e3 * min(self.transfer(size) for _ in range(self.repeats + 1))

    def transfer(self, size: int) -> float:
        source = self.client.submit(array, size, workers=[self.a], pure=False)
        wait(source)
        start = time.perf_counter()
        self.client.submit(len, source, workers=[self.b], pure=False).result()
        return time.perf_counter() - start

    def transpose(self, chunk: int) -> float:
        import dask.array as da

        def run() -> Any:
            x = da.random.random((4000, 4000), chunks=(chunk, chunk))
            return (x + x.T).sum().compute()

        return self.best_ms(run)

    def shuffle(self) -> float:
        return self.best_ms(lambda: frame(2_000_000).shuffle("key").count().compute())

    def merge(self) -> float:
        def run() -> Any:
            left, right = frame(1_000_000), frame(1_000_000)
            return left.merge(right, on="row").count().compute()

        return self.best_ms(run)

    def tasks_per_second(self) -> float:
        def run() -> Any:
            return wait(self.client.map(abs, range(3000), pure=False))

        return 3000e3 / self.best_ms(run)

    def idle_percent(self) -> float:
        """Of a core: client and scheduler, and both workers."""
        before = sum(map(cpu_seconds, self.pids))
        time.sleep(IDLE_SECONDS)
        return 100 * (sum(map(cpu_seconds, self.pids)) - before) / IDLE_SECONDS

    def growth_mb(self) -> float:
        """Memory of a worker that has got and given up many messages."""
        self.transfer(MIB)
        before = sum(map(resident, self.pids[1:]))
        for _ in range(TRANSFERS):
            self.transfer(MIB)
        return (sum(map(resident, self.pids[1:])) - before) / 2e6


def frame(rows: int) -> Any:
    import dask.dataframe as dd
    import pandas as pd

    rng = np.random.default_rng()
    columns = {
        "key": rng.integers(0, 1000, rows),
        "row": rng.permutation(rows),
        "value": rng.random(rows),
    }
    return dd.from_pandas(pd.DataFrame(columns), npartitions=8)


def cpu_seconds(pid: int) -> float:
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9


def resident(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def cases(bench: Bench) -> dict[str, Callable[[], float]]:
    found: dict[str, Callable[[], float]] = {}
    for size in (1, 16, 256):
        nbytes = size * MIB
        found[f"scatter {size}M, ms"] = partial(bench.scatter, nbytes)
        found[f"gather {size}M, ms"] = partial(bench.gather, nbytes)
        found[f"worker to worker {size}M, ms"] = partial(bench.worker_to_worker, nbytes)
    for chunk in (500, 2000):
        found[f"x + x.T, chunks {chunk}, ms"] = partial(bench.transpose, chunk)
    return {
        **found,
        "p2p shuffle, ms": bench.shuffle,
        "merge, ms": bench.merge,
        "tasks, 1/s": bench.tasks_per_second,
        "idle, % of a core": bench.idle_percent,
        "growth, MB": bench.growth_mb,
    }


def cluster(scheme: str, repeats: str) -> dict[str, float | str]:
    values: dict[str, float | str] = {}
    options = {"dashboard_address": ":0", "threads_per_worker": 1}
    with LocalCluster(
        n_workers=2, processes=True, protocol=scheme, silence_logs=50, **options
    ) as local:
        with Client(local) as client:
            bench = Bench(client, int(repeats))
            for name, run in cases(bench).items():
                try:
                    values[name] = run()
                except Exception as error:
                    values[name] = f"{type(error).__name__}: {error}"
    return values


def main(what: str, *arguments: str) -> None:
    logging.disable()
    if what == "serve":
        asyncio.run(serve(*arguments))
        return
    results = {"comm": comm, "cluster": cluster}[what](*arguments)
    print(json.dumps(results), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
