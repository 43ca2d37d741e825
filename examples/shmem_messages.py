# SPDX-License-Identifier: BSD-3-Clause
# Message passing by put_signal(): each rank sends blocks to the one on its right,
# through two slots that are used in turn, and never more than the other has room for.
#
# python -m ucp run -n 3 examples/shmem_messages.py [blocks]

import asyncio
import sys

import numpy as np

import ucp

SLOTS = 2
LENGTH = 10_000


async def main(blocks):
    async with (
        await ucp.Communicator.from_env() as comm,
        await ucp.shmem.SymmetricHeap.create(comm, 1 << 20) as heap,
    ):
        slots = await heap.zeros((SLOTS, LENGTH), "i8")
        filled = await heap.zeros(1, "u8")  # blocks that have come here
        emptied = await heap.zeros(1, "u8")  # blocks that the right rank has read
        right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
        total = 0

        for block in range(1, blocks + 1):
            if block > SLOTS:
                await emptied.wait_until(">=", block - SLOTS)
            data = np.full(LENGTH, comm.rank + block)
            slot = slots[block % SLOTS]
            await heap.put_signal(slot, data, right, filled, block)

            await filled.wait_until(">=", block)
            total += int(slot.local.sum())
            await heap.atomic_set(emptied, block, left)

        assert total == LENGTH * (blocks * left + blocks * (blocks + 1) // 2)
        print(f"rank {comm.rank}: {blocks} blocks of rank {left}, sum {total}")


try:
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 50))
except KeyboardInterrupt:
    sys.exit(130)
