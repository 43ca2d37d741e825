# SPDX-License-Identifier: BSD-3-Clause
"""A thread without a worker writes commands, which a proxy carries out.

Rank 0 has a producer: a thread that knows a ring, and nothing of endpoints. The
proxy puts its blocks into the memory of rank 1, and counts each by a signal.

    python -m ucp run -n 2 examples/proxy_ring.py
"""

import asyncio
import sys
import threading

import numpy as np

import ucp
from ucp.proxy import Proxy, Ring

BLOCK = 4096  # bytes
BLOCKS = 100
COUNT = BLOCK * BLOCKS  # where rank 1 counts, after the blocks


def produce(ring: Ring) -> None:
    """Send every block, and signal it."""
    for i in range(BLOCKS):
        ring.put(1, BLOCK, local=i * BLOCK, remote=i * BLOCK)
        ring.signal(1, slot=COUNT // 8)
    ring.wait_quiet()


async def main() -> None:
    async with await ucp.Communicator.from_env() as comm:
        memory = ucp.Memory.allocate(COUNT + 8)
        numbers = np.asarray(memory)[:COUNT].view("u4")
        async with await Proxy.create(comm) as proxy:
            await proxy.add_region(memory)
            ring = proxy.ring()
            if comm.rank == 0:
                numbers[:] = np.arange(len(numbers))
                producer = threading.Thread(target=produce, args=[ring])
                producer.start()
                await asyncio.to_thread(producer.join)
                print(ring.statistics)
            elif comm.rank == 1:
                await memory.wait_until(COUNT, "==", BLOCKS)
                assert (numbers == np.arange(len(numbers))).all()
                print(f"{BLOCKS} blocks are there")
            await comm.barrier()


try:
    asyncio.run(main())
except KeyboardInterrupt:
    sys.exit(130)
