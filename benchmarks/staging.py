# SPDX-License-Identifier: BSD-3-Clause
"""Receives into memory that is new each time, used again, and through a staging queue.

Rank 0 sends, rank 1 receives; milliseconds for a message on rank 1, best of all
rounds. `fresh` maps new pages for each message and gives them back, `again` receives
into the same array, `staged` goes through a StagingQueue's buffers into the same
array. Set UCX_TLS=tcp,self to see the path between hosts.

python -m ucp run -n 2 benchmarks/staging.py [--nbytes 16777216] [--rounds 30]
"""

from __future__ import annotations

import argparse
import asyncio
import mmap
import time
from collections.abc import Awaitable, Callable

import _interrupts  # noqa: F401
import numpy as np

import ucp
import ucp.shuffle


async def main(nbytes: int, rounds: int) -> None:
    async with await ucp.Communicator.from_env() as comm:
        options = {"nbytes": 1 << 20, "count": 8, "depth": 4, "stage_all": True}
        async with await ucp.shuffle.StagingQueue.create(comm, **options) as queue:
            data = np.ones(nbytes, "u1")
            again = np.zeros(nbytes, "u1")

            async def fresh() -> None:
                with mmap.mmap(-1, nbytes) as memory:
                    await comm.recv(memory, 0)

            ways: dict[str, tuple[Callable[[], Awaitable[object]], ...]] = {
                "fresh": (lambda: comm.send(data, 1), fresh),
                "again": (lambda: comm.send(data, 1), lambda: comm.recv(again, 0)),
                "staged": (lambda: queue.send(data, 1), lambda: queue.recv(again, 0)),
            }
            best = dict.fromkeys(ways, float("inf"))
            for _ in range(rounds):
                for name, way in ways.items():
                    await comm.barrier()
                    start = time.perf_counter()
                    await way[comm.rank]()
                    best[name] = min(best[name], time.perf_counter() - start)
            if comm.rank == 1:
                for name, seconds in best.items():
                    ratio = best["fresh"] / seconds
                    print(f"{name:8} {seconds * 1e3:8.2f} ms  {ratio:5.2f}x fresh")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nbytes", type=int, default=16 << 20)
    parser.add_argument("--rounds", type=int, default=30)
    args = parser.parse_args()
    asyncio.run(main(args.nbytes, args.rounds))
