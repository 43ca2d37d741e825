# SPDX-License-Identifier: BSD-3-Clause
# tests: ucp/plan ucp/array ucp/heap ext/collective_calls
"""What ranks ask a symmetric heap for: bad, different, or at once."""

import asyncio

import numpy as np
import pytest
from worlds import good_world, sync_world, world

import ucp
from ucp.shmem import SymmetricHeap


def heaps(size, main, nbytes=1 << 16):
    """What ``main(heap)`` returns on each rank."""

    async def run(comm):
        async with await SymmetricHeap.create(comm, nbytes) as heap:
            return await main(heap)

    return good_world(size, run)


async def raised(awaitable):
    """The exception of an allocation, after which the heap is as it was."""
    with pytest.raises(Exception) as caught:
        await awaitable
    return caught.value


BAD = {
    "objects": (lambda heap: heap.zeros(4, "O"), TypeError, "has Python objects"),
    "objects inside": (
        lambda heap: heap.full(4, None, [("a", "i4"), ("b", "O")]),
        TypeError,
        "has Python objects",
    ),
    "half an item": (lambda heap: heap.zeros(1.5), TypeError, r"and has 1\.5$"),
    "a text": (lambda heap: heap.zeros((3, "x")), TypeError, "and has 'x'$"),
    "below zero": (lambda heap: heap.zeros((2, -1)), ValueError, "negative length"),
    "no dtype": (lambda heap: heap.empty(1, "nonsense"), TypeError, "nonsense"),
    "many dimensions": (lambda heap: heap.empty([1] * 70, "u1"), ValueError, "dim"),
    "value": (lambda heap: heap.full(4, "abc", "i8"), ValueError, "abc"),
    "values": (lambda heap: heap.full(4, [1, 2], "i8"), ValueError, "broadcast"),
    "align": (lambda heap: heap.zeros(4, align=-64), ValueError, "align is -64"),
    "big align": (lambda heap: heap.zeros(4, align=2**64 + 64), ValueError, "align is"),
    "memory": (lambda heap: heap.free(np.zeros(1)), TypeError, "not ndarray$"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_arguments_of_one_rank_are_told_to_all(name):
    call, error, text = BAD[name]

    async def main(heap):
        for is_all in (False, True):
            if heap.my_pe == 0 or is_all:
                with pytest.raises(error, match=text):
                    await call(heap)
            else:
                exc = await raised(heap.zeros(4))
                assert isinstance(exc, ucp.UCXError)
                assert str(exc).startswith(
                    f"the call of rank 0 is refused there: {error.__name__}: "
                )
        x = await heap.zeros(4)
        assert (x.offset, heap.available) == (0, heap.nbytes - 64)

    heaps(2, main)


def test_bad_arguments_of_one_rank_are_told_to_all_that_block():
    def main(comm):
        with ucp.sync.SymmetricHeap.create(comm, 4096, timeout=20) as heap:
            x = heap.zeros(4, timeout=20)
            if comm.rank == 0:
                with pytest.raises(TypeError, match="has Python objects"):
                    heap.full(4, None, "O", timeout=20)
                with pytest.raises(ValueError, match="is a part of another one"):
                    heap.free(x[:2], timeout=20)
            else:
                for call in (lambda: heap.zeros(4), lambda: heap.free(x)):
                    with pytest.raises(ucp.UCXError, match=r"^the call of rank 0 is "):
                        call()
            heap.free(x, timeout=20)
            with pytest.raises(ValueError, match="has been freed"):
                heap.free(x, timeout=20)
            assert heap.available == 4096

    sync_world(2, main)


@pytest.mark.parametrize(
    "calls",
    [
        (lambda heap: heap.zeros(4, "i8"), lambda heap: heap.zeros(4, "f8")),
        (lambda heap: heap.zeros((4, 2)), lambda heap: heap.zeros((2, 4))),
        (lambda heap: heap.zeros(4), lambda heap: heap.empty(4)),
        (lambda heap: heap.zeros(4), lambda heap: heap.full(4, 0)),
        (lambda heap: heap.zeros(4), lambda heap: heap.zeros(4, align=128)),
        (lambda heap: heap.zeros([1] * 30), lambda heap: heap.zeros([1] * 31)),
    ],
)
def test_calls_that_differ_raise_the_same(calls):
    async def main(heap):
        exc = await raised(calls[heap.my_pe](heap))
        assert isinstance(exc, ucp.UCXError)
        assert heap.available == heap.nbytes
        return str(exc)

    first, second = heaps(2, main)
    assert first == second
    assert first.startswith("rank 0 calls zeros((")


def test_what_cannot_have_room_changes_nothing():
    async def main(heap):
        for shape in (2**61 + 1, (2**40, 2**40), 2**63):
            exc = await raised(heap.zeros(shape, "i8"))
            assert str(exc).endswith(": there is no room for it")
        for shape in ((), iter((2, 3)), np.array([2, 3]), np.int64(3), (0, 4)):
            await heap.free(await heap.zeros(shape, "i8"))
        x = await heap.zeros(3, "(2,3)i4")
        assert (x.shape, x.dtype) == ((3, 2, 3), np.dtype("i4"))
        await heap.free(x)
        assert heap.available == heap.nbytes

    heaps(2, main)


def test_allocations_at_once_are_carried_out_in_order():
    async def main(heap):
        offsets = []
        for _ in range(20):
            x, _, y, z = await asyncio.gather(
                heap.zeros(10, "i8"),
                heap.barrier_all(),
                heap.full(20, 3, "i8"),
                heap.empty(1000 if heap.my_pe else 1001, "i8"),
                return_exceptions=True,
            )
            assert isinstance(z, ucp.UCXError)
            offsets += [x.offset, y.offset]
            await asyncio.gather(heap.free(x), heap.free(y), heap.sync_all())
        assert heap.available == heap.nbytes
        return offsets

    first, *others = heaps(3, main)
    assert others == [first, first]


def test_a_heap_has_room_for_all_its_bytes():
    async def main(heap):
        assert (heap.nbytes, heap.available) == (1024, 1024)
        await heap.zeros(125, "f8")
        assert heap.available == 0

    heaps(2, main, 1000)


def test_an_array_is_freed_once_and_as_a_whole():
    async def main(heap):
        x = await heap.zeros(16, "u8")
        for part in (x[:1], x[:], x[1:], x[:0], x[...]):
            with pytest.raises(ValueError, match="is a part of another one"):
                await heap.free(part)
        await heap.free(x)
        assert x.is_freed
        y = await heap.zeros(16, "u8")
        assert y.offset == x.offset
        with pytest.raises(ValueError, match="array has been freed"):
            await heap.free(x)
        assert heap.available == heap.nbytes - 128

    heaps(2, main)


def test_numbers_of_other_machines_are_refused():
    async def main(heap):
        order = "<" if np.dtype(">u8").isnative else ">"
        x = await heap.zeros(2, order + "u8")
        for call in (
            lambda: heap.atomic_add(x, 1, 0),
            lambda: heap.atomic_fetch(x, 0),
            lambda: heap.put_signal(x, b"", 0, x, 1),
            lambda: x.wait_until("==", 0),
            lambda: x.test("==", 0),
            lambda: x.test_all("==", 0),
            x.signal_fetch,
        ):
            with pytest.raises(TypeError, match="in the order of other machines"):
                call()
        await heap.put(x, np.array([1, 2], x.dtype), heap.my_pe)
        assert list(x.local) == [1, 2]

    heaps(1, main)


def test_waits_for_no_items_return():
    async def main(heap):
        none = (await heap.zeros(4, "u8"))[:0]
        await none.wait_until_all("==", 1)
        assert await none.wait_until_any("==", 1) is None
        assert await none.wait_until_some("==", 1) == []
        assert none.test_all("==", 1)
        assert none.test_any("==", 1) is None
        assert none.test_some("==", 1, []) == []

    def blocking(comm):
        with ucp.sync.SymmetricHeap.create(comm, 4096) as heap:
            none = heap.zeros(0, "u8")
            none.wait_until_all("==", 1, timeout=5)
            assert none.wait_until_any("==", 1, timeout=5) is None

    heaps(1, main)
    sync_world(1, blocking)


def test_items_and_parts_are_checked():
    async def main(heap):
        x = await heap.zeros((4, 2), "u8")
        with pytest.raises(ValueError, match=r"^value has the shape \(3,\), and is no"):
            heap.p(x, [1, 2, 3], 0)
        for key in (x.local > 0, [0, 1], np.array([1]), True, np.True_, np.array(1)):
            with pytest.raises(TypeError, match="makes a copy, which is not in"):
                x[key]
        with pytest.raises(TypeError, match="makes a copy, which is not in"):
            x[0, [1]]
        assert x[np.int64(1)].shape == x[1].shape == (2,)
        assert x[None].shape == (1, 4, 2)

    heaps(1, main)


def test_an_own_close_ends_allocations_as_closed():
    async def main(comm):
        heap = await SymmetricHeap.create(comm, 1000)
        await heap.barrier_all()
        if comm.rank == 0:
            begun = [asyncio.ensure_future(heap.zeros(1)) for _ in range(2)]
            await asyncio.sleep(0)
            heap.close()
            for ended in await asyncio.gather(*begun, return_exceptions=True):
                assert isinstance(ended, ucp.UCXCloseError), ended
        await comm.barrier()
        heap.close()

    for end in world(2, main):
        assert not isinstance(end, BaseException), end


def test_a_cancelled_allocation_ends_the_calls_of_all():
    async def main(comm):
        heap = await SymmetricHeap.create(comm, 1000)
        await heap.barrier_all()
        room = heap.available
        if comm.rank == 0:
            first, second = (asyncio.ensure_future(heap.zeros(1)) for _ in range(2))
            await asyncio.sleep(0)
            second.cancel()
            with pytest.raises(asyncio.CancelledError):
                await second
            await comm.send(b"1", 1)  # the first has waited until now
            await first
        else:
            await comm.recv(bytearray(1), 0)
            await heap.zeros(1)
            with pytest.raises(ucp.UCXRankFailed):
                await heap.zeros(1)
        with pytest.raises(ucp.UCXRankFailed):
            await heap.barrier_all()
        with pytest.raises(ucp.UCXRankFailed):
            await heap.zeros(1)
        assert heap.available == room - 64  # the first array is there still
        heap.close()

    for end in world(2, main):
        assert not isinstance(end, BaseException), end


def test_an_allocation_that_waits_for_its_turn_times_out():
    async def main(comm):
        heap = await SymmetricHeap.create(comm, 1 << 16)
        array = await heap.zeros(1000)
        if comm.rank == 1:
            await comm.recv(bytearray(1), 0)
        freed = asyncio.ensure_future(heap.free(array))
        waiting = asyncio.ensure_future(heap.zeros(10))
        if comm.rank == 0:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(waiting, 0.05)
            await comm.send(b"1", 1)
        else:
            with pytest.raises(ucp.UCXRankFailed):
                await waiting
        await freed
        assert heap.available == 1 << 16
        heap.close()

    for end in world(2, main):
        assert not isinstance(end, BaseException), end
