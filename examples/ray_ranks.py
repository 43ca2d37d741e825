# SPDX-License-Identifier: BSD-3-Clause
# python examples/ray_ranks.py [RANKS]
"""Ranks that are actors of Ray: they meet by from_allgather(), and add arrays.

Ray starts the actors and carries the addresses by which they meet; arrays go from
actor to actor over ucp. An actor with coroutines has an event loop, as ucp needs it.
"""

import asyncio
import sys
import time

import numpy as np
import ray

import ucp


@ray.remote
class Board:
    """Where the ranks exchange bytes once."""

    def __init__(self, size):
        self.parts = [None] * size
        self.is_full = asyncio.Event()

    async def allgather(self, rank, part):
        """Return the parts of all ranks when all have come."""
        self.parts[rank] = part
        if None not in self.parts:
            self.is_full.set()
        await self.is_full.wait()
        return self.parts


@ray.remote
class Rank:
    async def add(self, rank, size, board):
        """Add an array of each rank: the last number of the sum, and seconds."""

        def allgather(part):
            return board.allgather.remote(rank, part)  # can be awaited

        async with await ucp.Communicator.from_allgather(rank, size, allgather) as comm:
            array = np.full(1_000_000, rank + 1.0)
            await comm.barrier()
            begun = time.perf_counter()
            await comm.allreduce(array)
            return float(array[-1]), time.perf_counter() - begun


def main(size):
    ray.init(num_cpus=size + 1, include_dashboard=False, log_to_driver=False)
    board = Board.remote(size)
    ranks = [Rank.remote() for _ in range(size)]
    found = ray.get([each.add.remote(i, size, board) for i, each in enumerate(ranks)])
    sums, seconds = zip(*found, strict=True)
    print(f"{size} ranks have the sums", *sums)
    print(f"8 MB were added in {max(seconds) * 1e3:.1f} ms")
    ray.shutdown()


if __name__ == "__main__":
    try:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 2)
    except KeyboardInterrupt:
        sys.exit(130)
