# SPDX-License-Identifier: BSD-3-Clause
# tests: ext/symmetric_memory ucp/array
"""Symmetric arrays as NumPy takes them, by the buffer protocol."""

import gc

import ml_dtypes
import numpy as np
import pytest
from worlds import free_root, good_world

import ucp.sync
from ucp.shmem import SymmetricHeap

PAIR = np.dtype([("number", "i4"), ("weights", "f8", (2,))])
DTYPES = ["?", "i1", "u8", ">i4", "f2", "f4", "f8", "c8", "c16", "S3", "U2", PAIR]
WITHOUT_FORMAT = ["M8[s]", "m8[us]", ml_dtypes.bfloat16]


def heap_of_one(main, nbytes=1 << 16):
    async def run(comm):
        async with await SymmetricHeap.create(comm, nbytes) as heap:
            return await main(heap)

    return good_world(1, run)


@pytest.mark.parametrize("shape", [(), (5,), (2, 3), (0, 4), (3, 1, 2)])
@pytest.mark.parametrize("dtype", [*DTYPES, *WITHOUT_FORMAT])
def test_asarray_gives_the_array_itself(dtype, shape):
    async def main(heap):
        x = await heap.zeros(shape, dtype)
        array = np.asarray(x)
        assert (array.dtype, array.shape) == (x.dtype, shape)
        array[...] = np.ones(shape, "i1").astype(dtype)
        assert x.local.tobytes() == array.tobytes()
        assert np.array_equal(np.array(x), x.local)

    heap_of_one(main)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_memoryview_has_format_shape_and_strides(dtype):
    async def main(heap):
        x = await heap.zeros((2, 3), dtype)
        view, local = memoryview(x), memoryview(x.local)
        assert view.format == local.format
        assert (view.shape, view.strides) == (local.shape, local.strides)
        assert not view.readonly
        assert memoryview(x[1]).shape == (3,)

    heap_of_one(main)


@pytest.mark.parametrize("dtype", WITHOUT_FORMAT)
def test_a_type_without_a_format_has_no_memoryview_but_bytes(dtype):
    async def main(heap):
        x = await heap.zeros(4, dtype)
        with pytest.raises(BufferError, match=r"^the dtype .* has no format in the b"):
            memoryview(x)
        y = await heap.zeros(4, dtype)
        x.local[...] = np.ones(4, "i1").astype(dtype)
        await heap.put(y, x, 0)
        await heap.comm.bcast(x, 0)
        assert y.local.tobytes() == x.local.tobytes()

    heap_of_one(main)


def test_views_of_another_rank_have_shape_and_type():
    async def main(comm):
        async with await SymmetricHeap.create(comm, 4096) as heap:
            x = await heap.full((2, 3), comm.rank, "c8")
            there = x.on(1 - comm.rank)
            assert (there.shape, there.dtype) == ((2, 3), "c8")
            assert (there == 1 - comm.rank).all()
            await heap.barrier_all()

    good_world(2, main)


def test_an_array_of_blocking_calls_is_as_the_other():
    with (
        ucp.sync.Communicator.connect(free_root(), 0, 1) as comm,
        ucp.sync.SymmetricHeap.create(comm, 4096) as heap,
    ):
        x = heap.full((2, 2), 7, "f2")
        assert np.asarray(x).dtype == "f2"
        assert (np.asarray(x) == 7).all()
        assert np.asarray(x[1]).shape == (2,)


def test_collective_operations_see_the_type():
    async def main(heap):
        x = await heap.full(4, 1.5)
        got = np.zeros(4)
        await heap.comm.allreduce(x, got)
        assert (got == 1.5).all()

    heap_of_one(main)


def test_an_array_keeps_the_memory_that_its_buffer_shows():
    async def main(heap):
        return np.asarray(await heap.full(4, 3, "i8"))

    (array,) = heap_of_one(main)
    gc.collect()
    assert array.tolist() == [3] * 4
