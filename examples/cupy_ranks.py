# SPDX-License-Identifier: BSD-3-Clause
"""Arrays of CuPy between ranks: to a neighbour, to all, and their sums.

    python -m ucp run -n 2 examples/cupy_ranks.py [MEGABYTES]

With --device the arrays are CuPy's, each rank's on a device of its own if there are
enough; without it they are NumPy's, and the program is the same. A send waits for what
the array's stream has to do before; what was received can be used at once.
"""

import asyncio
import sys
import time

import numpy as np

import ucp

if "--device" in sys.argv:
    sys.argv.remove("--device")
    import cupy as xp
else:
    xp = np

ROUNDS = 10


async def shift(comm, array, received):
    """Send an array to the right neighbour, and receive one from the left."""
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    receiving = comm.recv(received, left)
    await comm.send(array, right)
    await receiving


async def timed(comm, operation):
    """Seconds that an operation takes, the mean of some."""
    await operation()  # what is needed once is made
    await comm.barrier()
    begun = time.perf_counter()
    for _ in range(ROUNDS):
        await operation()
    return (time.perf_counter() - begun) / ROUNDS


async def main(megabytes):
    async with ucp.Communicator.from_env() as comm:
        if xp is not np:
            xp.cuda.Device(comm.rank % xp.cuda.runtime.getDeviceCount()).use()
        count = megabytes * 1_000_000 // 4
        array = xp.full(count, float(comm.rank + 1), dtype="f4")
        received = xp.zeros(count, dtype="f4")
        gathered = xp.zeros((comm.size, count), dtype="f4")

        shifting = await timed(comm, lambda: shift(comm, array, received))
        await comm.allgather(array, gathered)
        sums = array[:1000].copy()  # a reduction of a device is for few numbers
        await comm.allreduce(sums)

        assert bool((received == (comm.rank - 1) % comm.size + 1).all())
        assert bool((gathered[:, 0] == xp.arange(1, comm.size + 1)).all())
        assert bool((sums == comm.size * (comm.size + 1) / 2).all())
        if comm.rank == 0:
            print(f"{comm.size} ranks have sent, gathered and added arrays", flush=True)
            print(f"{array.nbytes / shifting / 1e9:.1f} GB/s to the neighbour")


if __name__ == "__main__":
    try:
        asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 8))
    except KeyboardInterrupt:
        sys.exit(130)
