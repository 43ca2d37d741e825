# SPDX-License-Identifier: BSD-3-Clause
# tests: ext/strided ext/buffer
"""Arrays of several dimensions go in C order at both ends, however they lie."""

import asyncio
import pickle
import tracemalloc

import numpy as np
import pytest
from conftest import over_shm

import ucp
from ucp._libs.arr import Array
from ucp.testing import connected_pair

pytestmark = pytest.mark.usefixtures("transport")

# In one fragment; announced; lent or in pieces.
ROWS = [3, 1500, 40_000]
TAG = 7


def matrix(rows):
    return np.arange(rows * 5, dtype="f8").reshape(rows, 5)


def fortran(rows):
    return np.zeros((rows, 5), order="F")


class Interface:
    """An object that has the interface of an array, and no buffer."""

    def __init__(self, array):
        self.array = array
        self.__array_interface__ = array.__array_interface__


class Tensor:
    """An object that has DLPack, and no buffer."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


VIEWS = {"ndarray": lambda a: a, "memoryview": memoryview, "DLPack": Tensor}
VIEWS["interface"] = Interface


async def pass_message(left, right, sent, received):
    await asyncio.gather(left.send(sent), right.recv(received))


async def pass_tagged(left, right, sent, received):
    await asyncio.gather(left.send(sent, TAG), right.recv_into(received, TAG))


async def pass_raw_tag(left, right, sent, received):
    await asyncio.gather(
        left.send(sent, TAG, force_tag=True), right.recv(received, TAG, force_tag=True)
    )


async def pass_raw_tag_late(left, right, sent, received):
    sending = left.send(sent, TAG, force_tag=True)
    while right.worker.tag_probe(TAG) is None:
        await asyncio.sleep(0)
    await right.worker.recv(received, TAG)
    await sending


async def pass_object(left, right, sent, received):
    _, got = await asyncio.gather(
        left.send_obj(sent), right.recv_obj(allocator=lambda _: received)
    )
    assert got is received


async def pass_many(left, right, sent, received):
    await asyncio.gather(left.send_many([sent]), right.recv_many([received]))


async def pass_frames(left, right, sent, received):
    _, (header, lengths) = await asyncio.gather(
        left.send_frames([b"first", sent], b"header"),
        right.recv_frames(into=[bytearray(5), received]),
    )
    assert (header, lengths[0]) == (b"header", 5)


async def pass_allocated_frames(left, right, sent, received):
    _, frames = await asyncio.gather(
        left.send_multi([sent]), right.recv_multi(lambda _: received)
    )
    assert frames[0] is received


async def pass_active_message(left, right, sent, received):
    ucp.register_am_allocator(lambda _: received, "host")
    try:
        _, got = await asyncio.gather(left.am_send(sent), right.am_recv())
    finally:
        ucp.register_am_allocator(None, "host")
    assert got is received


async def pass_channel(left, right, sent, received):
    await asyncio.gather(left.channel(2).send(sent), right.channel(2).recv(received))


async def pass_mapped_memory(left, right, sent, received):
    with ucp.Memory.allocate(sent.nbytes) as memory:
        remote = left.remote(memory.key)
        await remote.put(sent)
        await remote.get(received)


async def pass_registered_memory(left, right, sent, received):
    with ucp.Memory.register(bytearray(sent.nbytes + 8)) as memory:
        remote = left.remote(memory.key)
        await remote.put_signal(sent, 8, 0, 1)
        await remote.get_many([(received, 8)])


async def pass_pieces(left, right, sent, received):
    with ucp.Memory.allocate(sent.nbytes) as memory:
        remote = left.remote(memory.key)
        await remote.put_many(sent, np.array([0, 40]), np.array([40, sent.nbytes - 40]))
        plain = np.zeros(received.shape)
        await remote.get_many(plain, np.array([0]), np.array([sent.nbytes]))
        received[...] = plain


WAYS = {
    name.removeprefix("pass_"): way
    for name, way in list(globals().items())
    if name.startswith("pass_")
}


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
async def test_items_go_in_c_order_at_both_ends(way, rows):
    items = matrix(rows)
    transposed = np.asfortranarray(items)
    assert not transposed.flags.c_contiguous
    async with connected_pair() as (left, right):
        for sent in (items, transposed):
            for received in (np.zeros_like(items), fortran(rows)):
                await way(left, right, sent, received)
                np.testing.assert_array_equal(received, items)


@pytest.mark.parametrize("received", VIEWS.values(), ids=VIEWS.keys())
@pytest.mark.parametrize("sent", VIEWS.values(), ids=VIEWS.keys())
@over_shm
async def test_whatever_describes_the_array(sent, received):
    items = matrix(4)
    got = fortran(4)
    async with connected_pair() as (left, right):
        await pass_message(left, right, sent(items.T.copy().T), received(got))
        np.testing.assert_array_equal(got, items)


@pytest.mark.parametrize(
    "shape",
    [(1, 6), (6, 1), (1, 1), (), (0, 3), (3, 0), (2, 1, 3), (2, 3, 4, 2), (1, 4, 3)],
)
@over_shm
async def test_any_shape_and_type(shape):
    numbers = np.arange(np.prod(shape, dtype=int)).astype("u1").reshape(shape)
    async with connected_pair() as (left, right):
        for dtype in ("?", "u1", ">i4", "c16", "S3", "M8[s]"):
            items, got = numbers.astype(dtype), np.zeros(shape, dtype, order="F")
            await pass_message(left, right, np.asfortranarray(items), got)
            assert np.array_equal(got, items), dtype


@over_shm
async def test_axes_in_another_order_are_gaps():
    async with connected_pair() as (left, _):
        items = np.zeros((2, 3, 4)).transpose(1, 0, 2)
        with pytest.raises(ValueError, match=r"^expected a contiguous buffer, got str"):
            left.send(items)
        with pytest.raises(ValueError, match=r"^expected a contiguous buffer, got str"):
            left.send(matrix(3)[::-1].T)


@over_shm
async def test_what_was_copied_is_freed_once_it_is_sent():
    items, got = np.asfortranarray(matrix(ROWS[1])), fortran(ROWS[1])
    async with connected_pair() as (left, right):
        await pass_message(left, right, items, got)
        tracemalloc.start()
        try:
            for _ in range(5):
                await pass_message(left, right, items, got)
            assert tracemalloc.get_traced_memory()[0] < items.nbytes
        finally:
            tracemalloc.stop()


@over_shm
async def test_a_read_only_array_is_sent_and_not_received_into():
    items = np.asfortranarray(matrix(3))
    items.flags.writeable = False
    got = np.zeros((3, 5))
    async with connected_pair() as (left, right):
        await pass_message(left, right, items, got)
        assert np.array_equal(got, items)
        for frozen in (items, memoryview(items)):
            with pytest.raises(ValueError, match=r"^cannot receive into a read-only"):
                right.recv(frozen)


@over_shm
async def test_frames_of_pandas():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1, 2, 3], "b": [10, 20, 30]})
    got = np.empty(frame.shape, int)
    async with connected_pair() as (left, right):
        await pass_message(left, right, frame.to_numpy(), got)
        assert np.array_equal(got, frame.to_numpy())


@over_shm
async def test_tensors_of_torch():
    torch = pytest.importorskip("torch")
    items = torch.arange(6.0).reshape(2, 3)
    got = torch.zeros(2, 3).t()
    async with connected_pair() as (left, right):
        await pass_message(left, right, items.t(), got)
        assert torch.equal(got, items.t())


async def test_views_of_registered_memory():
    with ucp.Memory.allocate(120) as memory:
        array = np.frombuffer(memory).reshape(5, 3).T
        array[...] = np.arange(15.0).reshape(3, 5)
        got = np.zeros((3, 5))
        async with connected_pair() as (left, right):
            await pass_message(left, right, array, got)
            assert np.array_equal(got, array)
            await pass_message(left, right, 2 * got, array)
            assert np.array_equal(2 * got, array)
        del array


@over_shm
async def test_a_pickle_buffer_is_the_memory_that_it_shows():
    items = np.asfortranarray(matrix(3))
    got = bytearray(items.nbytes)
    async with connected_pair() as (left, right):
        await pass_message(left, right, pickle.PickleBuffer(items), got)
        assert got == items.tobytes("F")


@over_shm
async def test_an_array_of_ucx_py_is_the_memory_that_it_shows():
    items = np.asfortranarray(matrix(3))
    got = bytearray(items.nbytes)
    async with connected_pair() as (left, right):
        await pass_message(left, right, Array(items), got)
        assert got == items.tobytes("F")


async def test_objects_keep_their_order():
    items = np.asfortranarray(matrix(2000))
    async with connected_pair() as (left, right):
        _, got = await asyncio.gather(
            left.send_pickle(items), right.recv_pickle(allow_pickle=True)
        )
        assert np.array_equal(got, items)


async def test_a_stream_sends_c_order_and_receives_into_c_order_only():
    items = matrix(3)
    async with connected_pair() as (left, right):
        got = np.zeros((3, 5))
        await asyncio.gather(
            left.stream_send(np.asfortranarray(items)),
            right.stream_recv(got, wait_all=True),
        )
        assert np.array_equal(got, items)
        with pytest.raises(
            ValueError, match=r"^expected a buffer in C order, got Fort"
        ):
            right.stream_recv(fortran(3))


@pytest.mark.parametrize("rows", ROWS)
async def test_a_receive_that_is_cancelled_loses_nothing(rows):
    items, got = matrix(rows), fortran(rows)
    async with connected_pair() as (left, right):
        for options in ({}, {"force_tag": True}):
            receiving = asyncio.ensure_future(right.recv(got, TAG, **options))
            await asyncio.sleep(0)
            sending = asyncio.ensure_future(
                left.send(np.asfortranarray(items), TAG, **options)
            )
            await asyncio.sleep(0)
            receiving.cancel()
            await asyncio.wait([receiving])
            if receiving.cancelled():
                got[...] = 0
                await right.recv(got, TAG, **options)
            await sending
            np.testing.assert_array_equal(got, items)
            got[...] = 0
