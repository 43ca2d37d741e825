# SPDX-License-Identifier: BSD-3-Clause
# tests: ext/symmetric_heap ext/symmetric_memory ext/put_get ext/atomic_calls
# tests: ext/wait_calls ext/collective_calls ext/call ucp/array ucp/heap ucp/shmem
"""``ucp.shmem.SymmetricHeap``."""

import asyncio
import gc
import os

import numpy as np
import pytest
from worlds import good_world, world

import ucp
from ucp.shmem import SymmetricArray, SymmetricHeap

SIZE = 12345 * 64  # bytes: no other segment has them


def heaps(size, main, nbytes=1 << 20):
    """What ``main(heap)`` returns on each rank."""

    async def run(comm):
        async with await SymmetricHeap.create(comm, nbytes) as heap:
            return await main(heap)

    return good_world(size, run)


# ---- life ------------------------------------------------------------------


def test_a_heap_says_what_it_is():
    async def main(heap):
        assert heap.my_pe == heap.comm.rank
        assert (heap.num_pes, heap.nbytes, heap.available) == (2, 4096, 4096)
        assert repr(heap) == (
            f"<ucp.shmem.SymmetricHeap, PE {heap.my_pe} of 2, "
            "4096 of 4096 bytes are free>"
        )
        assert [heap.pe_accessible(pe) for pe in (-1, 0, 1, 2)] == [0, 1, 1, 0]
        assert heap.is_mapped(0)
        assert heap.is_mapped(1)
        with pytest.raises(ValueError, match=r"^pe is 2, but the heap has the PEs 0 "):
            heap.is_mapped(2)
        x = await heap.zeros((3, 5), "f4")
        assert (x.shape, x.dtype, x.size, len(x), x.nbytes) == ((3, 5), "f4", 15, 3, 60)
        assert x.heap is heap
        assert heap.addr_accessible(x, 1)
        assert not heap.addr_accessible(x, 2)
        assert not heap.addr_accessible(x.local, 1)
        assert repr(x) == "<ucp.shmem.SymmetricArray float32 (3, 5) at offset 0>"
        return heap

    for heap in heaps(2, main, 4096):
        assert heap.closed()
        assert repr(heap) == "<ucp.shmem.SymmetricHeap, closed>"


def test_different_sizes_raise_the_same_on_every_rank():
    async def main(comm):
        with pytest.raises(
            ucp.UCXError, match=r"^rank 0 gives 4096 bytes, and rank 1 8192$"
        ):
            await SymmetricHeap.create(comm, 4096 * (1 + comm.rank))

    good_world(2, main)


def test_a_size_that_makes_no_sense_is_refused():
    async def main(comm):
        for nbytes in (0, -1, (1 << 46) + 1):
            with pytest.raises(ValueError, match="and not 1 to"):
                await SymmetricHeap.create(comm, nbytes)
        with pytest.raises(TypeError):
            await SymmetricHeap.create(comm, 1.5)

    good_world(1, main)


def test_a_closed_heap_refuses_calls_and_keeps_memory():
    async def main(heap):
        x = await heap.full(4, 7, "u8")
        await heap.barrier_all()
        there = x.on(1 - heap.my_pe)
        heap.close()
        heap.close()
        for call in (
            lambda: heap.put(x, b"1", 0),
            lambda: heap.put_signal(x, b"1", 0, x, 1),
            lambda: heap.get(bytearray(1), x, 0),
            lambda: heap.atomic_add(x, 1, 0),
            lambda: heap.zeros(1),
            lambda: heap.free(x),
            lambda: heap.quiet(),
            lambda: heap.sync_all(),
            lambda: x.wait_until("==", 8),
            lambda: x.wait_until_all("==", 8),
        ):
            with pytest.raises(ucp.UCXCloseError):
                await call()
        for now in (heap.fence, lambda: x.test("==", 7), lambda: x.test_all("==", 7)):
            with pytest.raises(ucp.UCXCloseError):
                now()
        assert list(x.local) == [7] * 4
        assert list(there) == [7] * 4
        return x, there

    ends = heaps(2, main)
    gc.collect()
    for x, there in ends:
        assert x.local.sum() == there.sum() == 28


# ---- allocation ------------------------------------------------------------


def test_all_ranks_allocate_alike():
    async def main(heap):
        x = await heap.zeros(10, "i8")
        y = await heap.full((2, 2), 3.5)
        z = await heap.empty(3, "u1", align=4096)
        offsets = [x.offset, y.offset, z.offset]
        assert (y.local == 3.5).all()
        assert z.local.ctypes.data % 4096 == 0
        x.local[:] = 9
        await heap.free(x)
        await heap.free(None)
        again = await heap.zeros(12, "i8")
        assert again.offset == x.offset
        assert not again.local.any()
        nothing = await heap.zeros((0, 4))
        assert nothing.size == 0
        await heap.free(nothing)
        return offsets

    first, *others = heaps(3, main)
    assert others == [first, first]


def test_addresses_are_aligned_on_every_rank():
    async def main(heap):
        for count in (1, 7, 1000):
            for align in (64, 128, 512, 1024, 2048, 4096, 8192, 65536):
                x = await heap.zeros(count, align=align)
                assert x.local.ctypes.data % align == 0
                for pe in range(2):
                    assert x.on(pe).ctypes.data % min(align, 4096) == 0
        with pytest.raises(ValueError, match=r"^align is 131072, .* up to 65536$"):
            await heap.zeros(1, align=131072)

    heaps(2, main)


def test_ranks_that_disagree_raise_the_same_and_go_on():
    async def main(heap):
        with pytest.raises(ucp.UCXError) as caught:
            await heap.zeros(1 + heap.my_pe, "u8")
        x = await heap.zeros(1, "u8")
        with pytest.raises(ucp.UCXError, match=r"^free\(\) at offset 8: nothing is"):
            await heap.free(SymmetricArray.make(heap, 8, 1, "u8"))
        with pytest.raises(ucp.UCXError, match="there is no room for it"):
            await heap.zeros(heap.nbytes, "u8")
        with pytest.raises(ucp.UCXError, match="no power of two"):
            await heap.zeros(1, align=24)
        return str(caught.value), x.offset

    first, second = heaps(2, main)
    assert first == second
    assert first == (
        "rank 0 calls zeros((1,), uint64), and rank 1 zeros((2,), uint64)",
        0,
    )


# ---- put and get -----------------------------------------------------------


@pytest.mark.parametrize("count", [1, 100, 100_000])
def test_put_and_get_reach_every_pe(count):
    async def main(heap):
        x = await heap.zeros((heap.num_pes, count), "i8")
        mine = np.arange(count) + heap.my_pe
        for pe in range(heap.num_pes):
            await heap.put(x[heap.my_pe], mine, pe)
        await heap.barrier_all()
        assert (x.local == np.arange(count) + np.arange(3)[:, None]).all()
        got = np.empty(count, "i8")
        for pe in range(heap.num_pes):
            await heap.get(got, x[2], pe)
            assert (got == np.arange(count) + 2).all()
            assert (x.on(pe) == x.local).all()

    heaps(3, main, 1 << 22)


def test_one_item():
    async def main(heap):
        x = await heap.zeros(4, "f4")
        pe = 1 - heap.my_pe
        await heap.p(x[2], 2.5 + heap.my_pe, pe)
        await heap.barrier_all()
        assert x.local[2] == 2.5 + pe
        assert await heap.g(x[2], pe) == 2.5 + heap.my_pe

    heaps(2, main)


def test_items_at_distances():
    async def main(heap):
        x = await heap.zeros(12, "u4")
        values = np.arange(8, dtype="u4")
        pe = 1 - heap.my_pe
        await heap.iput(x, values, 3, 2, 4, pe)
        await heap.barrier_all()
        assert list(x.local[::3]) == [0, 2, 4, 6]
        assert x.local.sum() == 12
        got = np.zeros(8, "u4")
        await heap.iget(got, x, 2, 3, 4, pe)
        assert list(got) == [0, 0, 2, 0, 4, 0, 6, 0]
        with pytest.raises(ValueError, match=r"^dest has 48 bytes, too few for 5 item"):
            await heap.iput(x, values, 3, 1, 5, pe)
        with pytest.raises(ValueError, match=r"^source has 32 bytes, too few for 4"):
            await heap.iput(x, values, 3, 4, 4, pe)
        with pytest.raises(ValueError, match=r"^a stride is 0, and not 1 or more$"):
            await heap.iget(got, x, 0, 3, 4, pe)
        with pytest.raises(ValueError, match=r"^count is -1$"):
            await heap.iget(got, x, 1, 3, -1, pe)
        await heap.iput(x, values, 100, 100, 0, pe)

    heaps(2, main)


def test_quiet_ends_what_was_not_awaited():
    async def main(heap):
        x, signal = await heap.zeros(100, "u8"), await heap.zeros(1, "u8")
        pe = 1 - heap.my_pe
        values = np.arange(100, dtype="u8")
        for i in range(100):
            heap.put_nbi(x[i], values[i : i + 1], pe)
        heap.fence()
        heap.put_signal_nbi(x[:0], b"", pe, signal, 5, "add")
        await heap.quiet()
        await signal.wait_until("==", 5)
        assert (x.local == values).all()
        got = np.zeros(100, "u8")
        heap.get_nbi(got, x, pe)
        await heap.quiet()
        assert (got == values).all()

    heaps(2, main)


def test_arguments_are_checked():
    async def main(heap):
        x = await heap.zeros(4, "u8")
        signal = await heap.zeros(2, "u4")
        for call, error, text in (
            (lambda: heap.put(b"x", b"1", 0), TypeError, "dest is an array of the sym"),
            (lambda: heap.put(x, b"1", 2), ValueError, "pe is 2, but the heap has"),
            (lambda: heap.put(x, b"1", -1), ValueError, "pe is -1, but"),
            (lambda: heap.put(x, bytes(33), 1), ValueError, "dest has 32 bytes, and"),
            (lambda: heap.put(x, bytes(33), 0), ValueError, "dest has 32 bytes, and"),
            (lambda: heap.put(x, 5, 0), TypeError, "."),
            (lambda: heap.put(x), TypeError, "put"),
            (lambda: heap.get(b"1", x, 0), (TypeError, ValueError, BufferError), "."),
            (lambda: heap.get(bytearray(33), x, 0), ValueError, "source has 32 bytes"),
            (
                lambda: heap.put_signal(x, b"1", 0, signal, 1),
                TypeError,
                "signal must have items of 8 bytes",
            ),
            (
                lambda: heap.put_signal(x, b"1", 0, x, 1, "and"),
                ValueError,
                "op is 'set' or 'add', not 'and'",
            ),
            (
                lambda: heap.put_signal(x, b"1", 0, x, 1 << 64),
                OverflowError,
                "does not fit",
            ),
            (lambda: heap.put_signal(x, bytes(33), 0, x, 1), ValueError, "dest has 32"),
            (lambda: heap.atomic_add(x.local, 1, 0), TypeError, "target is an array"),
            (lambda: heap.atomic_add(x[:0], 1, 0), ValueError, "target has no item"),
            (
                lambda: heap.atomic_add(signal, 1 << 32, 0),
                OverflowError,
                "does not fit",
            ),
            (lambda: x.test("=>", 1), ValueError, "the comparison is"),
            (
                lambda: x.wait_until(
                    "==",
                ),
                TypeError,
                "takes 2 arguments",
            ),
            (lambda: x.on(2), ValueError, "pe is 2"),
            (lambda: x[::2], ValueError, "is a part with gaps"),
            (lambda: x[[1, 2]], TypeError, "makes a copy"),
            (lambda: heap.p(x, [1, 2], 0), ValueError, "is not one item"),
        ):
            with pytest.raises(error, match=text):
                call()
        floats = await heap.zeros(1, "f8")
        with pytest.raises(TypeError, match=r"^target has items of kind 'f' and 8 byt"):
            heap.atomic_add(floats, 1, 0)
        signed = await heap.zeros(1, "i8")
        with pytest.raises(TypeError, match=r"^numbers with a sign are compared by"):
            signed.test(">=", 0)
        assert signed.test("==", 0)

    heaps(2, main)


def test_arrays_of_another_heap_are_refused():
    async def main(comm):
        async with (
            await SymmetricHeap.create(comm, 4096) as one,
            await SymmetricHeap.create(comm, 4096) as other,
        ):
            x = await one.zeros(1, "u8")
            with pytest.raises(ValueError, match=r"^dest is of another symmetric heap"):
                other.put(x, b"1", 0)
            assert not other.addr_accessible(x, 0)

    good_world(1, main)


def test_parts_of_arrays_are_symmetric():
    async def main(heap):
        x = await heap.zeros((4, 6), "u8")
        assert isinstance(x[1], SymmetricArray)
        for part, shape, offset in (
            (x[1], (6,), 48),
            (x[1:3], (2, 6), 48),
            (x[2, 3], (), 120),
            (x[2, 3:5], (2,), 120),
            (x[...], (4, 6), 0),
            (x[3][2:], (4,), 160),
        ):
            assert (part.shape, part.offset) == (shape, x.offset + offset)
        x[2, 3].local[...] = 5
        assert x.local[2, 3] == 5
        assert np.asarray(x).base is not None
        assert bytes(memoryview(x[2, 3])) == (5).to_bytes(8, "little")

    heaps(1, main)


# ---- signals, atomic operations, waits -------------------------------------


@pytest.mark.parametrize("op", ["set", "add"])
def test_a_signal_comes_behind_its_bytes(op):
    async def main(heap):
        x, signal = await heap.zeros(1000, "i8"), await heap.zeros(1, "u8")
        left, right = (heap.my_pe - 1) % 3, (heap.my_pe + 1) % 3
        for round in range(1, 20):
            data = np.full(1000, round * 10 + heap.my_pe)
            value = round if op == "set" else 1
            await heap.put_signal(x, data, right, signal, value, op)
            await signal.wait_until(">=", round)
            assert signal.signal_fetch() == round
            assert signal.test("==", round)
            assert (x.local == round * 10 + left).all()
            await heap.sync_all()

    heaps(3, main)


@pytest.mark.parametrize("dtype", ["u8", "i8", "u4", "i4"])
def test_numbers_are_changed_in_one_step(dtype):
    async def main(heap):
        x = await heap.zeros(1, dtype)
        if heap.my_pe == 0:
            for pe in range(2):
                await heap.atomic_set(x, 12, pe)
                assert await heap.atomic_fetch(x, pe) == 12
                await heap.atomic_add(x, 3, pe)
                assert await heap.atomic_fetch_add(x, -5, pe) == 15
                await heap.atomic_and(x, 6, pe)
                assert await heap.atomic_fetch_or(x, 5, pe) == 2
                await heap.atomic_or(x, 8, pe)
                assert await heap.atomic_fetch_and(x, 13, pe) == 15
                await heap.atomic_xor(x, 1, pe)
                assert await heap.atomic_fetch_xor(x, 4, pe) == 12
                assert await heap.atomic_swap(x, 20, pe) == 8
                assert await heap.atomic_compare_swap(x, 21, 1, pe) == 20
                assert await heap.atomic_compare_swap(x, 20, 2, pe) == 20
                assert await heap.atomic_fetch(x, pe) == 2
                await heap.atomic_set(x, -1, pe)
                most = (1 << (8 * x.dtype.itemsize)) - 1
                assert await heap.atomic_fetch(x, pe) == (
                    -1 if dtype[0] == "i" else most
                )
        await heap.barrier_all()
        assert x.signal_fetch() == (x.local[0])

    heaps(2, main)


def test_ranks_that_add_at_once_lose_nothing():
    async def main(heap):
        x = await heap.zeros(1, "u8")
        for _ in range(1000):
            await heap.atomic_add(x, 1, 0)
        await heap.barrier_all()
        return int(x.local[0])

    assert heaps(4, main)[0] == 4000


def test_several_numbers_are_waited_for():
    async def main(heap):
        flags = await heap.zeros(4, "u8")
        pe = 1 - heap.my_pe
        assert flags.test_all("==", 0)
        assert flags.test_any("!=", 0) is None
        assert flags.test_some("==", [0, 1, 0, 1]) == [0, 2]
        await heap.sync_all()
        for index in (2, 0, 3, 1):
            await heap.atomic_set(flags[index], index + 1, pe)
        await flags.wait_until_all("==", [1, 2, 3, 4])
        assert await flags.wait_until_any(">", 0, [1, 0, 1, 1]) == 1
        assert await flags.wait_until_some(">=", 3, np.array([0, 0, 1, 0])) == [3]
        assert await flags.wait_until_any(">", 0, [1] * 4) is None
        assert await flags.wait_until_some(">", 0, [1] * 4) == []
        await flags.wait_until_all("==", 99, [1] * 4)
        assert flags.test_any("==", 3) == 2
        assert flags.test_all(">=", 1, [0, 0, 1, 1])
        with pytest.raises(ValueError, match=r"^status has 2 items for 4$"):
            flags.test_all("==", 1, [0, 0])
        with pytest.raises(ValueError, match=r"^3 values for 4 numbers$"):
            flags.test_all("==", [1, 2, 3])

    heaps(2, main)


def test_stores_by_a_view_are_told():
    async def main(heap):
        flag = await heap.zeros(1, "u8")
        wait = asyncio.ensure_future(_wait(flag))
        await asyncio.sleep(0.05)  # it is asleep, most likely
        pe = 1 - heap.my_pe
        flag.on(pe)[0] = 1
        heap.notify(pe)
        await wait
        flag.local[0] = 0
        wait = asyncio.ensure_future(_wait(flag))
        await asyncio.sleep(0.01)
        flag.local[0] = 1
        heap.notify(heap.my_pe)
        await wait

    async def _wait(flag):
        await flag.wait_until("==", 1)

    heaps(2, main)


def test_a_wait_is_cancelled():
    async def main(heap):
        flag = await heap.zeros(4, "u8")
        for wait in (flag.wait_until("==", 1), flag.wait_until_all("==", 1)):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await wait
        await heap.put(flag, np.ones(4, "u8"), heap.my_pe)
        await flag.wait_until_all("==", 1)

    heaps(1, main)


# ---- collective operations -------------------------------------------------


def test_collective_operations():
    async def main(heap):
        rank, size = heap.my_pe, heap.num_pes
        x = await heap.full(2, rank, "i8")
        y = await heap.zeros(2, "i8")
        many = await heap.zeros(2 * size, "i8")
        await heap.broadcast(y, x, 1)
        assert list(y.local) == [1, 1]
        await heap.fcollect(many, x)
        assert list(many.local) == [0, 0, 1, 1, 2, 2]
        await heap.alltoall(many, np.arange(6) + 10 * rank)
        mine = [2 * rank, 2 * rank + 1]
        assert list(many.local[:4]) == [*mine, *(10 + number for number in mine)]
        await heap.collect(many, np.full(rank + 1, rank))
        assert list(many.local) == [0, 1, 1, 2, 2, 2]
        await heap.reduce(y, x, "max")
        assert list(y.local) == [2, 2]

    heaps(3, main)


def test_an_exit_of_one_ends_all():
    async def main(comm):
        heap = await SymmetricHeap.create(comm, 4096)
        flag = await heap.zeros(1, "u8")
        if comm.rank == 0:
            with pytest.raises(SystemExit) as caught:
                heap.global_exit(3)
            assert caught.value.code == 3
        else:
            with pytest.raises(ucp.UCXRankFailed, match=r"global_exit\(3\) of rank 0"):
                await flag.wait_until("==", 1)
            with pytest.raises(ucp.UCXRankFailed):
                await heap.barrier_all()
        heap.close()

    world(2, main)


def test_nothing_is_left():
    async def main(comm):
        heap = await SymmetricHeap.create(comm, SIZE)
        await heap.zeros(1)
        heap.close()
        del heap
        gc.collect()

    good_world(2, main)
    gc.collect()
    with open("/proc/sysvipc/shm") as lines:
        rows = [[int(word) for word in line.split()] for line in list(lines)[1:]]
    sizes = [row[3] for row in rows if row[4] == os.getpid()]  # not of other tests
    assert [size for size in sizes if SIZE <= size < SIZE + (1 << 17)] == []
