# SPDX-License-Identifier: BSD-3-Clause
"""send(strided=True) and recv(strided=True): arrays with gaps, over both transports."""

import asyncio
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import over_shm
from numpy.lib.stride_tricks import as_strided

from ucp._libs.arr import Array
from ucp.testing import connected_pair

pytestmark = pytest.mark.usefixtures("transport")

VIEWS = {
    "every second": lambda n: np.zeros(2 * n, np.uint8)[::2],
    "backwards": lambda n: np.zeros(n, np.uint8)[::-1],
    "a column": lambda n: np.zeros((n, 3), np.uint8)[:, 1],
    "transposed": lambda n: np.zeros((n // 2, 2), np.uint8).T,
    "fortran": lambda n: np.zeros((n // 2, 2), np.uint8, order="F"),
    "wide items": lambda n: np.zeros(n // 4, np.complex64)[: n // 8],
    "a box": lambda n: np.zeros((n // 8, 8, 4), np.uint8)[:, 2:6, 1:3],
    "in C order": lambda n: np.zeros(n, np.uint8),
}
# In one fragment; announced; in many.
SIZES = [64, 6000, 300_000, 2_000_000]


def fill(view):
    items = np.arange(view.size, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    view[...] = (items >> np.uint64(56)).reshape(view.shape)


async def exchange(left, right, sent, received):
    await asyncio.gather(
        left.send(sent, strided=True), right.recv(received, strided=True)
    )


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
async def test_items_arrive_in_c_order(view, size):
    sent, plain = view(size), np.empty(view(size).shape, view(size).dtype)
    received = view(size)
    fill(sent)
    async with connected_pair() as (left, right):
        await exchange(left, right, sent, received)
        np.testing.assert_array_equal(received, sent)
        await exchange(left, right, sent, plain)
        np.testing.assert_array_equal(plain, sent)
        received[...] = 0
        sending = asyncio.ensure_future(left.send(sent.tobytes()))
        await asyncio.sleep(0)
        await right.recv(received, strided=True)
        np.testing.assert_array_equal(received, sent)
        await sending


def any_view(rng):
    """Any shape, order, steps and type; sometimes with items more than once."""
    dtype = rng.choice(["u1", "<u2", ">i4", "f8", "c16", "S3", "M8[s]"])
    shape = rng.integers(1, 7, rng.integers(1, 6))
    base = np.arange(np.prod(shape)).astype(np.uint8).reshape(shape).astype(dtype)
    view = base[tuple(slice(None, None, rng.choice([1, 2, -1, -2])) for _ in shape)]
    view = view.transpose(rng.permutation(view.ndim))
    return np.broadcast_to(view, (2, *view.shape)) if rng.integers(2) else view


@over_shm
async def test_any_view_is_sent_as_numpy_would_copy_it():
    rng = np.random.default_rng(6)
    async with connected_pair() as (left, right):
        for _ in range(200):
            view = any_view(rng)
            received = bytearray(view.nbytes)
            await asyncio.gather(left.send(view, strided=True), right.recv(received))
            assert received == view.tobytes(), (view.shape, view.strides, view.dtype)


async def test_channels_and_tags_take_it_too():
    sent, received = np.arange(20)[::2], np.zeros(20, int)[::2]
    async with connected_pair() as (left, right):
        await asyncio.gather(
            left.channel(3).send(sent, tag=9, strided=True),
            right.channel(3).recv(received, tag=9, strided=True),
        )
    np.testing.assert_array_equal(received, sent)


@pytest.mark.parametrize("size", [10, 2_000_000])
async def test_a_cancelled_receive_loses_nothing(size):
    sent = np.arange(size, dtype=np.uint8)
    async with connected_pair() as (left, right):
        for turns in range(8):
            sending = asyncio.ensure_future(left.send(sent))
            view = np.zeros((size, 2), np.uint8)[:, 0]
            receiving = asyncio.ensure_future(right.recv(view, strided=True))
            for _ in range(turns):
                await asyncio.sleep(0)
            receiving.cancel()
            if isinstance(
                (await asyncio.gather(receiving, return_exceptions=True))[0],
                asyncio.CancelledError,
            ):
                again = np.zeros(size, np.uint8)
                await right.recv(again)
                np.testing.assert_array_equal(again, sent)
            else:
                np.testing.assert_array_equal(view, sent)
            await sending


@over_shm
async def test_arrays_and_interfaces_and_memoryviews():
    base = np.arange(24, dtype=np.int32).reshape(4, 6)
    view = base[::2, 1::2]
    described = SimpleNamespace(__array_interface__=view.__array_interface__, base=base)
    async with connected_pair() as (left, right):
        for given in (Array(view), described, memoryview(view)):
            received = np.zeros((2, 6), np.int32)[:, ::2]
            await exchange(left, right, given, Array(received))
            np.testing.assert_array_equal(received, view)


@pytest.mark.parametrize(
    ("offset", "strides", "fits"),
    [(0, (8,), True), (24, (-8,), True), (0, (9,), False), (23, (-8,), False)],
)
@over_shm
async def test_items_beyond_their_buffer_are_refused(offset, strides, fits):
    described = SimpleNamespace(
        __array_interface__={
            "shape": (4,),
            "strides": strides,
            "typestr": "<u4",
            "data": bytes(range(28)),
            "offset": offset,
            "version": 3,
        }
    )
    async with connected_pair() as (left, right):
        if not fits:
            with pytest.raises(ValueError, match="'shape' is larger than 'data'"):
                left.send(described, strided=True)
            return
        received = bytearray(16)
        await asyncio.gather(left.send(described, strided=True), right.recv(received))
        assert received[::4] == bytes(range(28))[::8][:: 1 if offset == 0 else -1]


@over_shm
async def test_without_it_gaps_are_refused():
    view = np.zeros(8)[::2]
    async with connected_pair() as (left, right):
        for post in (left.send, right.recv, left.channel(1).send):
            with pytest.raises(ValueError, match="contiguous"):
                post(view)
            with pytest.raises(ValueError, match="contiguous"):
                post(view, strided=False)


@over_shm
async def test_what_cannot_be_taken_is_refused_by_name():
    device = SimpleNamespace(
        __cuda_array_interface__={
            "shape": (4,),
            "strides": (16,),
            "typestr": "<f8",
            "data": (4096, False),
            "version": 3,
        }
    )
    frozen = np.zeros(8)[::2]
    frozen.flags.writeable = False
    async with connected_pair() as (left, right):
        with pytest.raises(ValueError, match="SimpleNamespace is in device memory"):
            left.send(device, strided=True)
        with pytest.raises(ValueError, match="read-only buffer"):
            right.recv(frozen, strided=True)
        with pytest.raises(ValueError, match="has a stride of 0"):
            right.recv(as_strided(np.zeros(1), (8,), (0,)), strided=True)
        with pytest.raises(ValueError, match="Python objects"):
            left.send(np.zeros(4, object)[::2], strided=True)
        with pytest.raises(TypeError, match="got int"):
            left.send(7, strided=True)
        with pytest.raises(TypeError, match="positional"):
            left.channel(1).send(b"", None, True)


@pytest.mark.parametrize("size", SIZES)
async def test_raw_tags_take_any_strides(size):
    sent, received = np.arange(size, dtype="u1"), np.zeros(2 * size, "u1")[::2]
    async with connected_pair() as (left, right):
        await asyncio.gather(
            left.send(sent[::-1], 3, force_tag=True, strided=True),
            right.recv(received, 3, force_tag=True, strided=True),
        )
        np.testing.assert_array_equal(received, sent[::-1])


async def test_the_buffer_is_held_until_the_end():
    memory = bytearray(4_000_000)
    async with connected_pair() as (left, right):
        sending = left.send(memoryview(memory)[::2], strided=True)
        with pytest.raises(BufferError):
            memory.clear()
        await right.recv(bytearray(2_000_000))
        await sending
        del sending
        memory.clear()
