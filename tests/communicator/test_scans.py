# SPDX-License-Identifier: BSD-3-Clause
# tests: ext/alltoall ext/reduce
"""scan, exscan and reduce_scatter, and alltoall in place; the reference is NumPy."""

import asyncio
import contextlib
from itertools import accumulate

import numpy as np
import pytest
from worlds import free_root, good_world, sync_world, world

import ucp

SIZES = (1, 2, 3, 4)
COUNTS = (0, 1, 60, 40_000)  # items that go whole, and in blocks

every_size = pytest.mark.parametrize("size", SIZES)
every_count = pytest.mark.parametrize("count", COUNTS)

OPS = {
    "sum": np.add,
    "prod": np.multiply,
    "max": np.maximum,
    "bxor": np.bitwise_xor,
    "lor": lambda a, b: ((a != 0) | (b != 0)).astype(a.dtype),
}


def alone():
    return ucp.Communicator.connect(free_root(), 0, 1)


def items(rank, count, dtype="f8"):
    """What a rank contributes; sums of these are not the same in another order."""
    numbers = np.random.default_rng(rank).integers(-100, 100, count).astype(dtype)
    return numbers / 7 if numbers.dtype.kind == "f" else numbers


def prefixes(size, count, op, dtype):
    """What is combined up to each rank."""
    every = [items(rank, count, dtype) for rank in range(size)]
    if op == "lor":
        every[0] = (every[0] != 0).astype(dtype)
    return [*accumulate(every, OPS[op])]


@every_size
@every_count
@pytest.mark.parametrize("op", OPS)
def test_scan_and_exscan(size, count, op):
    async def main(comm):
        rank = comm.rank
        for dtype in ("i2", "u8") if op in ("bxor", "lor") else ("i4", "f8"):
            expected = prefixes(size, count, op, dtype)
            own = items(rank, count, dtype)
            recv = np.full_like(own, 77)
            await comm.scan(own, recv, op)
            np.testing.assert_array_equal(recv, expected[rank], strict=True)
            recv[:] = 77
            await comm.exscan(own, recv, op)
            before = expected[rank - 1] if rank else np.full_like(own, 77)
            np.testing.assert_array_equal(recv, before, strict=True)
            np.testing.assert_array_equal(own, items(rank, count, dtype))

    good_world(size, main)


@every_size
@every_count
def test_scans_in_place(size, count):
    async def main(comm):
        rank = comm.rank
        expected = prefixes(size, count, "sum", "f8")
        before = expected[rank - 1] if rank else items(0, count)
        one, two, three, four = (items(rank, count) for _ in range(4))
        most = items(rank, count)
        await asyncio.gather(
            comm.scan(one),
            comm.scan(ucp.IN_PLACE, two),
            comm.exscan(three),
            comm.exscan(ucp.IN_PLACE, four),
            comm.scan(most, "max"),
        )
        np.testing.assert_array_equal(one, expected[rank])
        np.testing.assert_array_equal(two, expected[rank])
        np.testing.assert_array_equal(three, before)
        np.testing.assert_array_equal(four, before)
        np.testing.assert_array_equal(most, prefixes(size, count, "max", "f8")[rank])

    good_world(size, main)


@pytest.mark.parametrize("count", [3, 20_000])
@pytest.mark.parametrize("dtype", ["f2", "f4", "c16"])
def test_the_average_of_a_scan_is_that_of_the_ranks_combined(count, dtype):
    async def main(comm):
        rank = comm.rank
        await comm.scan(
            np.full(count, rank, dtype), recv := np.empty(count, dtype), "avg"
        )
        assert (recv == rank / 2).all()
        await comm.exscan(np.full(count, rank, dtype), recv, "avg")
        assert (recv == (rank / 2 if rank == 0 else (rank - 1) / 2)).all()

    good_world(4, main)


@every_size
@every_count
@pytest.mark.parametrize("in_place", [False, True])
def test_reduce_scatter_of_equal_parts(size, count, in_place):
    async def main(comm):
        rank = comm.rank
        expected = prefixes(size, count * size, "sum", "f8")[-1]
        own = items(rank, count * size)
        if in_place:
            behind = own[count:].copy()
            await comm.reduce_scatter(ucp.IN_PLACE, own)
            recv = own[:count]
            np.testing.assert_array_equal(own[count:], behind)
        else:
            await comm.reduce_scatter(own, recv := np.empty(count))
            np.testing.assert_array_equal(own, items(rank, count * size))
        np.testing.assert_array_equal(recv, expected[rank * count :][:count])

    good_world(size, main)


@every_size
@pytest.mark.parametrize("scale", [1, 10_000])
@pytest.mark.parametrize("op", ["sum", "max"])
@pytest.mark.parametrize("in_place", [False, True])
def test_reduce_scatter_of_uneven_parts(size, scale, op, in_place):
    async def main(comm):
        rank = comm.rank
        counts = [(3 - part) * scale for part in range(size)]  # the last one is empty
        start, total = sum(counts[:rank]), sum(counts)
        expected = prefixes(size, total, op, "i4")[-1][start:][: counts[rank]]
        own = items(rank, total, "i4")
        if in_place:
            await comm.reduce_scatter(ucp.IN_PLACE, own, op, counts=counts)
            recv = own[: counts[rank]]
        else:
            recv = np.empty(counts[rank], "i4")
            await comm.reduce_scatter(own, recv, op, counts=tuple(counts))
        np.testing.assert_array_equal(recv, expected, strict=True)

    good_world(size, main)


@every_size
@pytest.mark.parametrize("count", [0, 1, 50_000])
def test_alltoall_in_place(size, count):
    async def main(comm):
        def part(source, dest):
            return np.arange(count) * 100 + source * 10 + dest

        rank, ranks = comm.rank, range(size)
        data = np.concatenate([part(rank, other) for other in ranks])
        await comm.alltoall(ucp.IN_PLACE, data)
        np.testing.assert_array_equal(
            data, np.concatenate([part(other, rank) for other in ranks])
        )
        counts = [(rank + other) * count for other in ranks]
        displs = [sum(counts[other + 1 :]) + 1 for other in ranks]  # the last is first
        data = np.full(sum(counts) + 2, -1)
        for other in ranks:
            data[displs[other] :][: counts[other]] = rank * 10 + other
        await comm.alltoallv(ucp.IN_PLACE, None, data, counts, recv_displs=displs)
        for other in ranks:
            assert (data[displs[other] :][: counts[other]] == other * 10 + rank).all()
        assert data[0] == data[-1] == -1

    good_world(size, main)


def test_the_blocking_methods():
    def main(comm):
        rank = comm.rank
        comm.scan(one := np.array([rank + 1]), timeout=20)
        comm.exscan(ucp.IN_PLACE, two := np.array([rank + 1]))
        comm.scan(three := np.array([-rank]), "max")
        comm.reduce_scatter(np.arange(3), four := np.zeros(1, int))
        comm.reduce_scatter(ucp.IN_PLACE, five := np.arange(4), counts=[1, 2, 1])
        comm.alltoall(ucp.IN_PLACE, six := np.full(3, rank))
        counts = [1, 1, 1]
        comm.alltoallv(ucp.IN_PLACE, None, six, counts, recv_displs=[2, 1, 0])
        return [each.tolist() for each in (one, two, three, four, five, six)]

    assert sync_world(3, main) == [
        [[1], [1], [0], [0], [0, 1, 2, 3], [2, 2, 2]],
        [[3], [1], [0], [3], [3, 6, 2, 3], [1, 1, 1]],
        [[6], [3], [0], [6], [9, 1, 2, 3], [0, 0, 0]],
    ]


def test_the_futures():
    def main(comm):
        one, two, three = (np.array([comm.rank + 1]) for _ in range(3))
        four, five = np.array([3, 4]), np.zeros(1, int)
        futures = [
            comm.iscan(one),
            comm.iscan(two, "max"),
            comm.iexscan(ucp.IN_PLACE, three, "sum"),
            comm.iexscan(np.array([7]), "min"),
            comm.ireduce_scatter(four, five, "prod", counts=[1, 1]),
            comm.ialltoallv(ucp.IN_PLACE, None, four, [1, 1]),
        ]
        assert ucp.sync.waitall(futures, 20) == [None] * 6
        return [each.tolist() for each in (one, two, three, four, five)]

    assert sync_world(2, main) == [
        [[1], [1], [1], [3, 3], [9]],
        [[3], [2], [1], [4, 4], [16]],
    ]


# ---- what is wrong -------------------------------------------------------------


def fails_with(size, main, text):
    ends = world(size, main)
    assert all(isinstance(end, ucp.UCXRankFailed) for end in ends), ends
    assert any(text in str(end) for end in ends), ends


@pytest.mark.parametrize("count", [4, 40_000])
def test_a_rank_that_calls_another_operation_is_named(count):
    async def main(comm):
        call = comm.scan if comm.rank == 0 else comm.exscan
        await call(np.zeros(count))
        await comm.barrier()

    fails_with(2, main, "scan")


def test_a_rank_that_combines_otherwise_is_named():
    async def main(comm):
        await comm.reduce_scatter(np.zeros(2), np.zeros(1), ["sum", "max"][comm.rank])

    fails_with(2, main, "combines float64 by sum, rank")


def test_ranks_with_other_counts_are_named():
    async def main(comm):
        counts = [[1, 3], [2, 2]][comm.rank]
        await comm.reduce_scatter(ucp.IN_PLACE, np.zeros(4), counts=counts)

    fails_with(2, main, "bytes")


def test_wrong_arguments_are_named_before_anything_is_sent():
    async def main(comm):
        two, four = np.zeros(2), np.zeros(4)
        for call in (comm.scan, comm.exscan):
            with pytest.raises(ValueError, match=r"^the recv buffer: 32 bytes, "):
                call(two, four)
            with pytest.raises(ValueError, match=r"overlaps the send buffer"):
                call(four, four)
            with pytest.raises(ValueError, match=r"^'land' is for ints and bools, "):
                call(two, "land")
            with pytest.raises(ValueError, match=r"read-only"):
                call(b"\0" * 8)
            with pytest.raises(TypeError, match=call.__name__):
                call()
        scatter = comm.reduce_scatter
        with pytest.raises(
            ValueError, match=r"^the recv buffer: 16 bytes, expected 8$"
        ):
            scatter(two, np.zeros(2))
        with pytest.raises(ValueError, match=r"send buffer of 3 items has no 2 equal"):
            scatter(np.zeros(3), np.zeros(1))
        with pytest.raises(
            ValueError, match=r"^the recv buffer of 3 items has no 2 equ"
        ):
            scatter(ucp.IN_PLACE, np.zeros(3))
        with pytest.raises(
            ValueError,
            match=r"^the counts are 3 items together, the send buffer has 4$",
        ):
            scatter(four, np.zeros(1), counts=[1, 2])
        with pytest.raises(
            ValueError, match=r"does not lie in the recv buffer of 4 it"
        ):
            scatter(ucp.IN_PLACE, four, counts=[1, 4])
        with pytest.raises(ValueError, match=r"^send counts has 1 items for 2 ranks$"):
            scatter(four, two, counts=[4])
        with pytest.raises(ValueError, match=r"^send counts\[0\] is -1$"):
            scatter(four, two, counts=[-1, 5])
        with pytest.raises(ValueError, match=r"overlaps the send buffer"):
            scatter(four, four[:2])
        with pytest.raises(ValueError, match=r"send are float64, those of recv int64"):
            scatter(four, np.zeros(2, int))
        with pytest.raises(TypeError):
            scatter(four, two, "sum", [2, 2])
        with pytest.raises(
            ValueError, match=r"^alltoallv\(\) with ucp\.IN_PLACE sends"
        ):
            comm.alltoallv(ucp.IN_PLACE, [1, 1], two, [1, 1])
        with pytest.raises(ValueError, match=r"give None for send_counts and send_dis"):
            comm.alltoallv(ucp.IN_PLACE, None, two, [1, 1], send_displs=[0, 1])
        with pytest.raises(ValueError, match=r"pieces of the ranks 0 and 1 overlap"):
            comm.alltoallv(ucp.IN_PLACE, None, two, [2, 2], recv_displs=[0, 0])
        await comm.barrier()

    good_world(2, main)


@pytest.mark.parametrize("count", [8, 50_000])
def test_a_scan_whose_rank_fails_writes_nothing(count):
    async def main(comm):
        array = np.full(count, comm.rank)
        if comm.rank == 1:  # the others wait for this rank
            comm.abort("no")
        for call in (comm.scan, comm.exscan):
            fails = pytest.raises(ucp.UCXRankFailed)
            if comm.rank == 0:  # this one needs nobody, and may end before it hears
                fails = contextlib.suppress(ucp.UCXRankFailed)
            with fails:
                await call(array)
        assert (array == comm.rank).all()

    good_world(3, main)
