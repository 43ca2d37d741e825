# SPDX-License-Identifier: BSD-3-Clause
"""A shuffle that spills: chunks of one size, none of which the budget holds.

Each rank inserts its bytes into a partition of every rank in turn, and then copies
what has come to an array. MB/s are the bytes that a rank inserts, by the time from
the first insert to the last byte copied, best of all rounds; `in memory` is the same
shuffle without a budget, `file` writes chunks of that size to a file in the
directory and reads it, in one process.

python -m ucp run -n 2 benchmarks/spill.py [--dir /tmp] [--nbytes 64000000] [--rounds 5]
    [--sizes 1024,4096]
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
import time
from collections.abc import Awaitable, Callable

import _interrupts  # noqa: F401
import numpy as np

import ucp
import ucp.shuffle

SIZES = (1024, 1040, 1500, 4096, 65536, 1 << 20)

Way = Callable[[], Awaitable[None]]


async def shuffle(
    comm: ucp.Communicator,
    memory: ucp.Memory,
    target: memoryview,
    size: int,
    budget: int | None,
    directory: str | None,
) -> None:
    async with ucp.shuffle.Shuffler(
        comm, 0, comm.size, budget=budget, spill_dir=directory
    ) as shuffler:
        with memoryview(memory) as view:
            for number, at in enumerate(range(0, len(view) - size + 1, size)):
                shuffler.insert(number % comm.size, view[at : at + size])
                if number % 256 == 0:
                    await asyncio.sleep(0)  # the worker sends
        shuffler.insert_finished()
        at = 0
        for chunk in await shuffler.extract(comm.rank):
            target[at : at + chunk.nbytes] = chunk
            at += chunk.nbytes
            chunk.release()
        its = shuffler.statistics
        assert budget is None or size <= 1024 or its.spilled_in + its.spilled_out


def file(memory: ucp.Memory, target: memoryview, size: int, directory: str) -> None:
    with (
        tempfile.TemporaryFile(dir=directory, buffering=0) as file,
        memoryview(memory) as view,
    ):
        for at in range(0, len(view) - size + 1, size):
            file.write(view[at : at + size])
        file.seek(0)
        at = 0
        while count := file.readinto(target[at : at + size]):  # type: ignore[attr-defined]
            at += count


async def main(directory: str, nbytes: int, rounds: int, sizes: list[int]) -> None:
    async with await ucp.Communicator.from_env() as comm:
        with ucp.Memory.allocate(nbytes) as memory:
            with memoryview(memory) as view:
                np.frombuffer(view, "u1")[:] = 1
            if comm.rank == 0:
                print(f"{nbytes} bytes of each of {comm.size} ranks; MB/s")
                print("chunk bytes   spilled  in memory      file")
            for size in sizes:
                await measure(comm, memory, size, directory, rounds)


async def measure(
    comm: ucp.Communicator, memory: ucp.Memory, size: int, directory: str, rounds: int
) -> None:
    target = memoryview(np.ones(2 * memory.nbytes, "u1"))
    ways: dict[str, Way] = {
        "spilled": lambda: shuffle(comm, memory, target, size, 1, directory),
        "in memory": lambda: shuffle(comm, memory, target, size, None, None),
    }
    best = dict.fromkeys([*ways, "file"], float("inf"))
    for number in range(rounds):
        for name in random.Random(number).sample(list(ways), len(ways)):
            await comm.barrier()
            start = time.perf_counter()
            await ways[name]()
            best[name] = min(best[name], time.perf_counter() - start)
        if comm.rank == 0:
            start = time.perf_counter()
            file(memory, target, size, directory)
            best["file"] = min(best["file"], time.perf_counter() - start)
    if comm.rank == 0:
        rates = [memory.nbytes / 1e6 / seconds for seconds in best.values()]
        print(f"{size:11}" + "".join(f"{rate:10.0f}" for rate in rates), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dir", default=tempfile.gettempdir())
    parser.add_argument("--nbytes", type=int, default=64_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    args = parser.parse_args()
    sizes = [int(size) for size in args.sizes.split(",")]
    asyncio.run(main(args.dir, args.nbytes, args.rounds, sizes))
