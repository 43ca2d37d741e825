# SPDX-License-Identifier: BSD-3-Clause
# tests: ext/rma_pieces
"""``get_many`` and ``put_many`` with arrays that say where the pieces are."""

import array
import asyncio

import numpy as np
import pytest
from conftest import TLS

import ucp

MIB = 1 << 20


@pytest.fixture(params=["mapped", "shm", "tcp"])
def connect(request):
    """A MiB of this process with a pattern, and the same as a peer has it."""
    ucp.reset()
    ucp.init(options=TLS["tcp" if request.param == "tcp" else "shm"])
    kept = []

    async def connect():
        pattern = np.random.default_rng(1).bytes(MIB)
        if request.param == "mapped":
            memory = ucp.Memory.allocate(MIB)
            memoryview(memory)[:] = pattern
        else:
            memory = ucp.Memory.register(bytearray(pattern))
        listener = ucp.create_listener(host="127.0.0.1")
        endpoint = await ucp.create_endpoint("127.0.0.1", listener.port)
        kept.extend([memory, listener, await anext(listener)])
        return memory, endpoint.remote(memory.key)

    yield connect
    kept.clear()
    ucp.reset()


def random_pieces(rng, count):
    """Offsets, lengths, and places one behind the other in another order."""
    lengths = rng.integers(0, 3 * MIB // count // 4, count).astype("u8")
    offsets = (rng.random(count) * (MIB - lengths)).astype("u8")
    order = rng.permutation(count)
    at = np.zeros(count, "u8")
    at[order] = np.cumsum(lengths[order]) - lengths[order]
    return offsets, lengths, at


@pytest.mark.parametrize("dtype", ["u8", "i8"])
async def test_pieces_come_where_arrays_say(connect, dtype):
    memory, remote = await connect()
    offsets, lengths, at = random_pieces(np.random.default_rng(2), 500)
    whole, buffer = bytes(memory), bytearray(MIB)
    await remote.get_many(
        buffer, offsets.astype(dtype), lengths.astype(dtype), at.astype(dtype)
    )
    for offset, length, place in zip(offsets, lengths, at, strict=True):
        assert buffer[place : place + length] == whole[offset : offset + length]


async def test_without_places_they_come_one_behind_the_other(connect):
    memory, remote = await connect()
    offsets = np.arange(0, MIB, 8192, dtype="u8")[::-1].copy()
    buffer = np.zeros(len(offsets) * 100, "u1")
    await remote.get_many(buffer, offsets, 100)
    whole = np.frombuffer(bytes(memory), "u1").reshape(-1, 8192)
    assert (buffer.reshape(-1, 100) == whole[::-1, :100]).all()


async def test_pieces_are_put(connect):
    memory, remote = await connect()
    rng = np.random.default_rng(3)
    expected = np.frombuffer(bytes(memory), "u1").copy()
    source = rng.integers(0, 256, 100 * 512).astype("u1")
    places = rng.permutation(MIB // 512)[:100] * 512
    expected.reshape(-1, 512)[places // 512] = source.reshape(-1, 512)
    await remote.put_many(source, places, 512)
    assert bytes(memory) == expected.tobytes()
    await remote.put_many(
        source,
        offsets=array.array("Q", [1, 7]),
        lengths=array.array("q", [2, 3]),
        at=array.array("L", [40, 8]),
    )
    expected[1:3], expected[7:10] = source[40:42], source[8:11]
    assert bytes(memory) == expected.tobytes()


async def test_no_pieces_are_done(connect):
    _memory, remote = await connect()
    none = np.zeros(0, "u8")
    await remote.get_many(bytearray(0), none, none)
    await remote.get_many(bytearray(8), np.array([1, 2]), 0)


async def test_arrays_are_read_during_the_call(connect):
    memory, remote = await connect()
    offsets = np.array([5, MIB - 1000], "u8")
    buffer = bytearray(2000)
    getting = remote.get_many(buffer, offsets, 1000)
    offsets[:] = 2**63
    await getting
    whole = bytes(memory)
    assert buffer == whole[5:1005] + whole[-1000:]


async def test_a_cancelled_get_leaves_the_buffer_alone(connect):
    _memory, remote = await connect()
    buffer = bytearray(MIB)
    getting = asyncio.ensure_future(
        remote.get_many(buffer, np.arange(0, MIB, 4096), 4096)
    )
    await asyncio.sleep(0)
    getting.cancel()
    await asyncio.gather(getting, return_exceptions=True)
    buffer[:] = bytes(MIB)
    await remote.get(bytearray(1))
    assert not any(buffer)


@pytest.mark.parametrize("connect", ["mapped"], indirect=True)
class TestBadArguments:
    async def test_a_piece_that_is_not_in_the_memory(self, connect):
        _memory, remote = await connect()
        for offset in (MIB - 7, 2**63, 2**64 - 8):
            with pytest.raises(IndexError, match=rf"^8 bytes at offset {offset} are"):
                remote.get_many(bytearray(16), np.array([0, offset], "u8"), 8)
        with pytest.raises(IndexError, match=r"^offsets\[1\] is -1$"):
            remote.get_many(bytearray(16), np.array([0, -1]), 8)
        with pytest.raises(IndexError, match=r"^lengths\[0\] is -3$"):
            remote.get_many(bytearray(16), np.array([0]), np.array([-3]))
        for length in (-1, 2**64):
            with pytest.raises(IndexError, match=f"^lengths is {length}, "):
                remote.get_many(bytearray(16), np.array([0]), length)

    async def test_a_piece_that_is_not_in_the_buffer(self, connect):
        _memory, remote = await connect()
        text = r"^piece 1, 8 bytes at 8, is out of the buffer's 15$"
        with pytest.raises(IndexError, match=text):
            remote.get_many(bytearray(15), np.array([0, 8]), 8)
        with pytest.raises(IndexError, match=r"^piece 0, 8 bytes at 9, is out"):
            remote.get_many(bytearray(16), np.array([0]), 8, np.array([9]))
        with pytest.raises(IndexError, match=r"^at\[0\] is -1$"):
            remote.get_many(bytearray(16), np.array([0]), 8, np.array([-1]))

    async def test_arrays_of_different_lengths(self, connect):
        _memory, remote = await connect()
        text = r"^offsets has 2 numbers, lengths has 3$"
        with pytest.raises(ValueError, match=text):
            remote.get_many(bytearray(16), np.arange(2), np.arange(3))
        with pytest.raises(ValueError, match=r"^offsets has 2 numbers, at has 1$"):
            remote.get_many(bytearray(16), np.arange(2), 1, np.arange(1))

    @pytest.mark.parametrize(
        "wrong",
        [
            [0, 8],
            np.arange(2, dtype="i4"),
            np.arange(2.0),
            np.arange(2).reshape(2, 1),
            np.arange(2).astype(">u8"),
            b"12345678",
            "text",
        ],
        ids=["list", "i4", "f8", "two dimensions", "byte order", "bytes", "str"],
    )
    async def test_no_array_of_such_numbers(self, connect, wrong):
        _memory, remote = await connect()
        good = np.arange(2)
        with pytest.raises(TypeError, match=r"^offsets must be an array of uint64"):
            remote.get_many(bytearray(16), wrong, good)
        with pytest.raises(TypeError, match=r"^lengths must be an array of uint64"):
            remote.get_many(bytearray(16), good, wrong)
        with pytest.raises(TypeError, match=r"^at must be an array of uint64"):
            remote.get_many(bytearray(16), good, good, wrong)

    async def test_gaps_and_memory_that_cannot_be_written(self, connect):
        _memory, remote = await connect()
        with pytest.raises(ValueError, match="contiguous"):
            remote.get_many(bytearray(16), np.arange(4)[::2], 1)
        with pytest.raises(ValueError, match="contiguous"):
            remote.get_many(np.zeros((4, 4), "u1")[:, :2], np.arange(1), 1)
        with pytest.raises((BufferError, ValueError)):
            remote.get_many(bytes(16), np.arange(1), 1)

    async def test_arguments_that_are_missing(self, connect):
        _memory, remote = await connect()
        with pytest.raises(TypeError, match="lengths"):
            remote.get_many(bytearray(16), np.arange(1))
        with pytest.raises(TypeError, match="tuple"):
            remote.get_many(bytearray(16))
