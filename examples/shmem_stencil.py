# SPDX-License-Identifier: BSD-3-Clause
# A stencil in two dimensions: heat spreads over a plate whose rows are distributed.
# Each rank puts its edge rows into the halo of its neighbours, with a signal.
#
# python -m ucp run -n 3 examples/shmem_stencil.py [steps]

import asyncio
import sys

import numpy as np

import ucp

ROWS, COLUMNS = 24, 40  # of each rank


def step(plate):
    """The mean of the four neighbours; the edges stay as they are."""
    new = plate.copy()
    new[1:-1, 1:-1] = (
        plate[:-2, 1:-1] + plate[2:, 1:-1] + plate[1:-1, :-2] + plate[1:-1, 2:]
    ) / 4
    return new


def alone(size, steps):
    """The same plate in one process."""
    plate = np.zeros((size * ROWS + 2, COLUMNS))
    plate[0] = 100
    for _ in range(steps):
        plate = step(plate)
    return plate


async def main(steps):
    async with (
        await ucp.Communicator.from_env() as comm,
        await ucp.shmem.SymmetricHeap.create(comm, 1 << 20) as heap,
    ):
        rank, size = comm.rank, comm.size
        # Two plates, so that a neighbour that is a step ahead disturbs nothing.
        plates = await heap.zeros((2, ROWS + 2, COLUMNS))
        from_above = await heap.zeros(1, "u8")
        from_below = await heap.zeros(1, "u8")
        if rank == 0:
            plates.local[:, 0] = 100
        await heap.barrier_all()

        for number in range(1, steps + 1):
            new = step(plates.local[(number - 1) % 2])
            plate = plates[number % 2]
            plate.local[1:-1] = new[1:-1]
            if rank > 0:
                await heap.put_signal(plate[-1], new[1], rank - 1, from_below, number)
            if rank < size - 1:
                await heap.put_signal(plate[0], new[-2], rank + 1, from_above, number)
            if rank > 0:
                await from_above.wait_until(">=", number)
            if rank < size - 1:
                await from_below.wait_until(">=", number)

        mine = plates.local[steps % 2][1:-1]
        whole = alone(size, steps)[1 + rank * ROWS : 1 + (rank + 1) * ROWS]
        assert np.allclose(mine, whole)
        print(f"rank {rank}: mean {mine.mean():.3f}, as in one process")


try:
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 200))
except KeyboardInterrupt:
    sys.exit(130)
