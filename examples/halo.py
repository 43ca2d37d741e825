# SPDX-License-Identifier: BSD-3-Clause
"""Heat in a rod that is cut into parts: each rank computes one, and exchanges
its outermost cells (the halo) with its neighbours before each step.

    python -m ucp run -n 4 examples/halo.py
"""

import asyncio
import sys

import numpy as np

import ucp

CELLS = 50  # of each rank
STEPS = 100


async def exchange(comm, rod):
    """Fill the first and the last cell from the neighbours' parts."""
    requests = []
    if comm.rank > 0:
        requests.append(comm.recv(rod[:1], comm.rank - 1))
        requests.append(comm.send(rod[1:2], comm.rank - 1))
    if comm.rank < comm.size - 1:
        requests.append(comm.recv(rod[-1:], comm.rank + 1))
        requests.append(comm.send(rod[-2:-1], comm.rank + 1))
    await asyncio.gather(*requests)


async def main():
    async with await ucp.Communicator.from_env() as comm:
        rod = np.zeros(CELLS + 2)
        if comm.rank == 0:
            rod[1] = 1000.0
        for _ in range(STEPS):
            rod[0], rod[-1] = rod[1], rod[-2]  # no heat leaves at the ends
            await exchange(comm, rod)
            rod[1:-1] += 0.25 * (rod[:-2] - 2 * rod[1:-1] + rod[2:])
        heat = np.array([rod[1:-1].sum()])
        await comm.reduce(heat, total := np.zeros(1))
        if comm.rank == 0:
            print(f"heat {total[0]:.3f}")


try:
    asyncio.run(main())
except KeyboardInterrupt:
    sys.exit(130)
