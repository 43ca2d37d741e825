# SPDX-License-Identifier: BSD-3-Clause
# tests: ext/buffer ext/collective
"""Collective operations on arrays with gaps; point-to-point messages take none."""

from types import SimpleNamespace

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided
from worlds import free_root, good_world, sync_world

import ucp

SIZE = 3
GAP = -7

counts = pytest.mark.parametrize("count", [1, 4, 9000])


def alone():
    return ucp.Communicator.connect(free_root(), 0, 1)


def column(values, dtype="f8"):
    """A column of a matrix of which all else is GAP."""
    matrix = np.full((len(values), 3), GAP, dtype)
    matrix[:, 1] = values
    return matrix[:, 1]


def backwards(values, dtype="f8"):
    return np.array(values[::-1], dtype)[::-1]


def field(values, dtype="f8"):
    """A field of packed records, whose items are not aligned."""
    records = np.zeros(len(values), [("tag", "i1"), ("value", dtype)])
    records["value"] = values
    return records["value"]


LAYOUTS = [column, backwards, field]
layouts = pytest.mark.parametrize("layout", LAYOUTS)


def check(array, expected):
    np.testing.assert_array_equal(array, expected)
    matrix = array.base
    if matrix is not None and matrix.shape[1:] == (3,):
        assert (matrix[:, [0, 2]] == GAP).all()


def numbers(rank, count):
    return np.arange(count) + 100.0 * rank


@layouts
@counts
def test_bcast(layout, count):
    async def main(comm):
        array = layout(numbers(comm.rank, count))
        await comm.bcast(array, 1)
        check(array, numbers(1, count))

    good_world(SIZE, main)


@layouts
@counts
def test_gather_scatter_and_allgather(layout, count):
    async def main(comm):
        rank, every = comm.rank, [numbers(each, count) for each in range(SIZE)]
        whole = np.concatenate(every)
        await comm.gather(layout(every[rank]), got := layout(0 * whole), 2)
        check(got, whole if rank == 2 else 0 * whole)
        await comm.scatter(
            layout(whole) if rank == 1 else None, got := layout(every[0]), 1
        )
        check(got, every[rank])
        await comm.allgather(layout(every[rank]), got := layout(0 * whole))
        check(got, whole)
        got = layout(0 * whole)
        got[rank * count :][:count] = every[rank]
        await comm.allgather(ucp.IN_PLACE, got)
        check(got, whole)

    good_world(SIZE, main)


@layouts
def test_pieces_are_counted_in_items_without_the_gaps(layout):
    async def main(comm):
        sizes, displs = [1, 0, 2], [3, 0, 1]
        send = layout(numbers(comm.rank, sizes[comm.rank]))
        await comm.allgatherv(send, got := layout(np.full(5, -1)), sizes, displs)
        check(got, [-1, 200, 201, 0, -1])

    good_world(SIZE, main)


@layouts
@counts
def test_alltoall(layout, count):
    async def main(comm):
        rank, ranks = comm.rank, range(SIZE)
        out = np.concatenate([numbers(10 * rank + other, count) for other in ranks])
        expected = np.concatenate(
            [numbers(10 * other + rank, count) for other in ranks]
        )
        await comm.alltoall(layout(out), got := layout(0 * out))
        check(got, expected)
        got = layout(out)
        await comm.alltoall(ucp.IN_PLACE, got)
        check(got, expected)
        await comm.alltoallv(
            out, [count] * SIZE, got := layout(0 * out), [count] * SIZE
        )
        check(got, expected)
        parts = await comm.alltoall_buffers([layout(out)] * SIZE)
        for other, part in enumerate(parts):
            start = np.frombuffer(part, "f8")[: count * SIZE]
            assert start[0] == 1000 * other

    good_world(SIZE, main)


@layouts
@counts
def test_reductions(layout, count):
    async def main(comm):
        rank, every = comm.rank, [numbers(each, count) for each in range(SIZE)]
        total = sum(every)
        await comm.allreduce(layout(every[rank]), got := layout(every[0]))
        check(got, total)
        await comm.allreduce(got := layout(every[rank]), "max")
        check(got, every[-1])
        got = layout(every[0])
        await comm.reduce(layout(every[rank]), got if rank == 0 else None)
        check(got, total if rank == 0 else every[0])
        await comm.scan(every[rank].astype("f8"), got := layout(every[0]))
        check(got, sum(every[: rank + 1]))
        await comm.exscan(got := layout(every[rank]))
        check(got, sum(every[:rank]) if rank else every[0])
        whole = layout(np.concatenate(every))
        await comm.reduce_scatter(whole, got := layout(every[0]))
        check(got, SIZE * every[rank])
        await comm.reduce_scatter(ucp.IN_PLACE, whole)
        check(whole[:count], SIZE * every[rank])

    good_world(SIZE, main)


@counts
def test_arrays_that_are_not_aligned_are_combined(count):
    def of(values, dtype):
        room = np.zeros(len(values) * np.dtype(dtype).itemsize + 1, "u1")[1:]
        (array := room.view(dtype))[:] = values
        return array

    async def main(comm):
        for dtype in ("i2", "f4", "f8", "c16"):
            await comm.allreduce(array := of(numbers(comm.rank, count), dtype))
            check(array, sum(numbers(rank, count) for rank in range(SIZE)))
            await comm.scan(of(numbers(0, count), dtype), got := of(array, dtype))
            check(got, (comm.rank + 1) * numbers(0, count))

    good_world(SIZE, main)


async def test_what_is_sent_may_lie_in_the_gaps_of_what_is_received():
    async with await alone() as comm:
        both = np.arange(8.0)
        await comm.allgather(both[::2], both[1::2])
        assert both.tolist() == [0, 0, 2, 2, 4, 4, 6, 6]


def test_the_blocking_methods_take_them():
    def main(comm):
        comm.allreduce(array := column([comm.rank, 1]))
        return array.tolist()

    assert sync_world(2, main) == [[1, 2], [1, 2]]


# ---- what is wrong -------------------------------------------------------------


@pytest.mark.parametrize("count", [4, 9000])
def test_nothing_is_written_when_the_operation_fails(count):
    async def main(comm):
        if comm.rank == 2:
            comm.abort("no")
        for call in (comm.allreduce, comm.reduce_scatter, comm.alltoall):
            array = column(numbers(comm.rank, SIZE * count))
            arguments = [array] if call == comm.allreduce else [ucp.IN_PLACE, array]
            with pytest.raises(ucp.UCXRankFailed):
                await call(*arguments)
            check(array, numbers(comm.rank, SIZE * count))

    good_world(SIZE, main)


def test_other_lengths_are_told_apart():
    async def main(comm):
        array = column(numbers(0, 3 + comm.rank))
        with pytest.raises(ucp.UCXRankFailed, match="bytes"):
            await comm.allreduce(array)
        check(array, numbers(0, 3 + comm.rank))

    good_world(2, main)


async def test_what_cannot_be_taken_is_named():
    frozen = np.zeros(8)[::2]
    frozen.flags.writeable = False
    device = SimpleNamespace(
        __cuda_array_interface__={
            "shape": (4,),
            "strides": (16,),
            "typestr": "<f8",
            "data": (4096, False),
            "version": 3,
        }
    )
    async with await alone() as comm:
        with pytest.raises(ValueError, match=r"^cannot receive into a read-only buf"):
            comm.allreduce(frozen)
        with pytest.raises(
            ValueError, match=r"share memory: numpy.ndarray has a stride"
        ):
            comm.allgather(np.zeros(8), as_strided(np.zeros(1), (8,), (0,)))
        with pytest.raises(ValueError, match="Python objects"):
            comm.bcast(np.zeros(4, object)[::2])
        with pytest.raises(ValueError, match="masked arrays"):
            comm.bcast(np.ma.zeros(4)[::2])
        with pytest.raises(ValueError, match=r"taken in host memory only, .*SimpleN"):
            comm.allgather(device, np.zeros(4))
        with pytest.raises(
            ValueError, match=r"^the recv buffer: 32 bytes, expected 16$"
        ):
            comm.allreduce(np.zeros(4)[::2], np.zeros(8)[::2])
        with pytest.raises(ValueError, match=r"^expected a contiguous buffer, got str"):
            comm.send(np.zeros(8)[::2], 0)
        with pytest.raises(ValueError, match=r"^expected a contiguous buffer, got str"):
            comm.recv(np.zeros(8)[::2])
        await comm.barrier()
