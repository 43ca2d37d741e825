"""What may be sent and received into; what is refused, and how."""

import array
import mmap

import numpy as np
import pytest

from ucp.testing import connected_pair


@pytest.fixture
def pair(request):
    return connected_pair


SENDABLE = [
    b"12345678",
    bytearray(b"12345678"),
    memoryview(b"x12345678")[1:],
    array.array("I", [0x34333231, 0x38373635]),
    np.frombuffer(b"12345678", dtype="<i4"),
    np.frombuffer(b"12345678", dtype="<M8[ns]"),
    np.frombuffer(b"1526374 8"[:8], dtype="S1").reshape(2, 4),
    np.frombuffer(b"12345678", dtype="<f4").reshape(2, 1).T,
]


@pytest.mark.parametrize("data", SENDABLE, ids=lambda data: type(data).__name__)
async def test_any_contiguous_buffer_can_be_sent(data):
    async with connected_pair() as (client, server):
        await client.send(data)
        assert await server.recv_obj() == np.asarray(data).tobytes()


@pytest.mark.parametrize(
    "buffer",
    [
        bytearray(8),
        memoryview(bytearray(9))[1:],
        array.array("d", [0]),
        mmap.mmap(-1, 8),
        np.zeros(2, "f4"),
        np.zeros(1, "M8[s]"),
        np.zeros((2, 2), "u2"),
        np.zeros((), "u8"),
    ],
    ids=lambda buffer: type(buffer).__name__,
)
async def test_any_writable_buffer_can_be_filled(buffer):
    async with connected_pair() as (client, server):
        await client.send(b"12345678")
        await server.recv(buffer)
    assert np.asarray(buffer).tobytes() == b"12345678"


class Interface:
    """Has an array interface and no buffer protocol."""

    def __init__(self, array):
        self.__array_interface__ = array.__array_interface__
        self.array = array


async def test_an_array_interface_is_enough():
    source, target = np.arange(5), np.zeros(5, dtype=int)
    async with connected_pair() as (client, server):
        await client.send(Interface(source))
        await server.recv(Interface(target))
    np.testing.assert_array_equal(source, target)
