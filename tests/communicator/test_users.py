# SPDX-License-Identifier: BSD-3-Clause
# tests: endpoint/apart
"""Communicators whose ranks are processes of different users of one host."""

import pytest
from users import ONE, OTHER, SUPERUSER, as_user
from worlds import Ranks

PROGRAM = """
import ucp.shmem
from ucp.shuffle import MapOutputs, Reader, Writer

async def messages(comm):
    other = 1 - comm.rank
    for size in (8, 64 << 10, 4 << 20):
        sent, got = np.full(size, comm.rank, "u1"), np.empty(size, "u1")
        await asyncio.gather(comm.send(sent, other), comm.recv(got, other))
        assert (got == other).all()
        total = np.full(size // 8, comm.rank + 1.0)
        await comm.allreduce(total)
        assert (total == 3).all()
    path = comm.explain()[other].path
    assert path == "shared memory" or comm.worker.statistics.loans == 0
    return path

async def heap(comm):
    async with await ucp.shmem.SymmetricHeap.create(comm, 1 << 20) as heap:
        x, signal = await heap.zeros(1000, "i8"), await heap.zeros(1, "u8")
        other = 1 - comm.rank
        await heap.put_signal(x, np.full(1000, comm.rank), other, signal, 1)
        await signal.wait_until(">=", 1)
        assert (x.local == other).all()
        await heap.atomic_add(signal, 5, other)
        await heap.barrier_all()
        assert signal.local[0] == 6
        got = np.empty(1000, "i8")
        await heap.get(got, x, other)
        assert (got == comm.rank).all()
        await heap.barrier_all()

async def outputs(comm):
    outputs = await MapOutputs.create(comm, num_maps=2, num_partitions=2)
    async with Writer(outputs, comm.rank) as writer:
        for partition in range(2):
            writer.write(partition, bytes([comm.rank]) * 100_000)
        await writer.commit()
    reader, got = Reader(outputs), set()
    async for block in reader.fetch(0, timeout=30):
        got.add(bytes(block))
        block.release()
    assert got == {bytes(100_000), bytes([1]) * 100_000}
    await comm.barrier()
    reader.close()
    await outputs.close(30)

async def main():
    async with await connect() as comm:
        print(await messages(comm))
        await heap(comm)
        await outputs(comm)
        await comm.barrier()

asyncio.run(main())
"""


@pytest.mark.parametrize("users", [(SUPERUSER, ONE), (ONE, OTHER), (ONE, ONE)])
def test_ranks_of_two_users_share_no_memory(users):
    before = [as_user(user) for user in users]
    expected = "shared memory" if users[0] == users[1] else "messages"
    with Ranks(2, PROGRAM, before=before) as ranks:
        assert [ranks.end(rank) for rank in range(2)] == [expected] * 2
