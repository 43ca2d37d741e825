# SPDX-License-Identifier: BSD-3-Clause
# tests: ext/send_recv ext/collective ext/reduce ext/alltoall ext/gather ext/put_get
"""Ranks exchange arrays in Fortran order: their items go in C order."""

import numpy as np
import pytest
from worlds import free_root, good_world, sync_world

import ucp
from ucp.shmem import SymmetricHeap

SIZE = 3
orders = pytest.mark.parametrize("order", ["CC", "CF", "FC", "FF"])
# A message of one fragment, and one that is lent.
rows = pytest.mark.parametrize("rows", [2, 6000])


def numbers(rank, rows, columns=SIZE):
    return np.arange(rows * columns, dtype="f8").reshape(rows, columns) + 1000.0 * rank


def arrays(rank, rows, order, shape=None):
    """What a rank sends, and an array to receive into, each in its order."""
    mine = np.array(numbers(rank, rows), order=order[0])
    return mine, np.zeros(shape or mine.shape, order=order[1])


@rows
@orders
def test_messages(order, rows):
    async def main(comm):
        mine, got = arrays(comm.rank, rows, order)
        source = (comm.rank - 1) % SIZE
        sending = comm.isend(mine, (comm.rank + 1) % SIZE)
        assert (await comm.recv(got, source)).nbytes == got.nbytes
        await sending
        assert np.array_equal(got, numbers(source, rows))
        sending = comm.isend(mine, comm.rank, 5)  # to itself, before the receive
        await comm.recv(got, comm.rank)
        await sending
        assert np.array_equal(got, mine)
        receiving = comm.irecv(got, comm.rank)
        await comm.send(2 * mine, comm.rank)
        await receiving
        assert np.array_equal(got, 2 * mine)
        both = np.array(mine, order=order[1])
        await comm.sendrecv(both, (comm.rank + 1) % SIZE, both, source)
        assert np.array_equal(both, numbers(source, rows))

    good_world(SIZE, main)


@rows
@orders
def test_a_message_that_was_looked_for_first(order, rows):
    async def main(comm):
        mine, got = arrays(comm.rank, rows, order)
        if comm.rank == 0:
            await comm.send(mine, 1)
        elif comm.rank == 1:
            await comm.probe(0)
            await comm.improbe(0).recv(got)
            assert np.array_equal(got, numbers(0, rows))
        await comm.barrier()

    good_world(SIZE, main)


@rows
@orders
def test_bcast_and_reductions(order, rows):
    async def main(comm):
        mine, got = arrays(comm.rank, rows, order)
        every = [numbers(r, rows) for r in range(SIZE)]
        await comm.allreduce(mine, got, "max")
        assert np.array_equal(got, every[-1])
        await comm.reduce(mine, got, root=1)
        assert comm.rank != 1 or np.array_equal(got, sum(every))
        await comm.scan(mine, got)
        assert np.array_equal(got, sum(every[: comm.rank + 1]))
        got[...] = 0
        await comm.exscan(mine, got)
        assert comm.rank == 0 or np.array_equal(got, sum(every[: comm.rank]))
        both = np.array(mine, order=order[1])
        await comm.allreduce(ucp.IN_PLACE, both)
        assert np.array_equal(both, sum(every))
        both = np.array(mine, order=order[comm.rank % 2])
        await comm.bcast(both, 1)
        assert np.array_equal(both, every[1])

    good_world(SIZE, main)


@rows
@orders
def test_gather_scatter_and_alltoall(order, rows):
    async def main(comm):
        mine, got = arrays(comm.rank, rows, order, (SIZE, rows, SIZE))
        every = np.stack([numbers(r, rows) for r in range(SIZE)])
        await comm.allgather(mine, got)
        assert np.array_equal(got, every)
        await comm.gather(mine, got, root=2)
        assert comm.rank != 2 or np.array_equal(got, every)
        part = np.zeros((rows, SIZE), order=order[1])
        await comm.scatter(np.array(every, order=order[0]), part, root=0)
        assert np.array_equal(part, every[comm.rank])
        await comm.alltoall(np.array(every + comm.rank, order=order[0]), got)
        expected = [numbers(comm.rank, rows) + r for r in range(SIZE)]
        assert np.array_equal(got, expected)
        parts = await comm.alltoall_buffers([mine] * SIZE)
        assert [bytes(p) for p in parts] == [one.tobytes() for one in every]

    good_world(SIZE, main)


def test_the_blocking_calls():
    def main(comm):
        items = np.arange(6.0).reshape(2, 3)
        array = np.asfortranarray(items) if comm.rank == 0 else np.zeros((2, 3))
        comm.bcast(array, 0)
        assert np.array_equal(array, items)
        got = np.zeros((3, 2)).T
        comm.allreduce(np.asfortranarray(items), got)
        assert np.array_equal(got, 2 * items)

    sync_world(2, main)


@rows
@orders
def test_symmetric_heaps(order, rows):
    async def main(comm):
        async with await SymmetricHeap.create(comm, 1 << 22) as heap:
            x = await heap.zeros((rows, SIZE))
            signal = await heap.zeros(1, "u8")
            mine, got = arrays(comm.rank, rows, order)
            right, left = (comm.rank + 1) % SIZE, (comm.rank - 1) % SIZE
            await heap.put(x, mine, right)
            await heap.barrier_all()
            assert np.array_equal(x.local, numbers(left, rows))
            await heap.barrier_all()
            await heap.put_signal(x, 2 * mine, right, signal, 1)
            await signal.wait_until("==", 1)
            assert np.array_equal(x.local, 2 * numbers(left, rows))
            await heap.barrier_all()
            for pe in range(SIZE):
                await heap.get(got, x, pe)
                assert np.array_equal(got, 2 * numbers((pe - 1) % SIZE, rows))
            await heap.barrier_all()
            await heap.iput(x, mine, 1, 1, mine.size, right)
            await heap.barrier_all()
            assert np.array_equal(x.local, numbers(left, rows))
            if order[1] == "F":
                with pytest.raises(ValueError, match=r"^expected a buffer in C order"):
                    heap.iget(got, x, 1, 1, got.size, right)

    good_world(SIZE, main)


async def test_a_result_is_not_written_if_the_operation_fails():
    async with await ucp.Communicator.connect(free_root(), 0, 1) as comm:
        got = np.full((2, 3), 7.0, order="F")
        with pytest.raises(ValueError, match="recv buffer"):
            await comm.allreduce(np.zeros((3, 3), order="F"), got)
        assert (got == 7).all()
