# SPDX-License-Identifier: BSD-3-Clause
# tests: ext/buffer ext/compat
"""What may be sent and received into; what is refused, and how."""

import array
import mmap

import numpy as np
import pytest

from ucp.testing import connected_pair

SENDABLE = [
    b"12345678",
    bytearray(b"12345678"),
    memoryview(b"x12345678")[1:],
    array.array("I", [0x34333231, 0x38373635]),
    np.frombuffer(b"12345678", dtype="<i4"),
    np.frombuffer(b"12345678", dtype="<M8[ns]"),
    np.frombuffer(b"15263748", dtype="S1").reshape(2, 4),
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


def read_only(array):
    array.flags.writeable = False
    return array


STRIDED = [
    (np.arange(8.0)[::2], r"\(16,\)", 8),
    (np.zeros((4, 4), "i4")[:, 1:3], r"\(16, 4\)", 4),
    (memoryview(bytearray(9))[::3], r"\(3,\)", 1),
    (np.arange(4)[::-1], r"\(-8,\)", 8),
    (Interface(np.arange(6, dtype="u2")[::3]), r"\(6,\)", 2),
]


@pytest.mark.parametrize(("buffer", "strides", "itemsize"), STRIDED)
async def test_a_strided_buffer_is_refused(buffer, strides, itemsize):
    text = (
        rf"^expected a contiguous buffer, got strides {strides} for "
        rf"itemsize {itemsize}: give a contiguous copy; Endpoint\.send\(\) and "
        r"recv\(\) take it with strided=True, SymmetricHeap\.iput\(\) takes a stride$"
    )
    async with connected_pair() as (client, server):
        with pytest.raises(ValueError, match=text):
            await client.send(buffer)
        with pytest.raises(ValueError, match=text):
            await client.recv(buffer)
        with pytest.raises(ValueError, match=text):
            await client.send_many([b"x", buffer])
        await client.send(b"only this")
        assert await server.recv_obj() == b"only this"


@pytest.mark.parametrize(
    ("buffer", "name"),
    [
        (b"12345678", "bytes"),
        (memoryview(b"12345678"), "memoryview"),
        (read_only(np.zeros(8)), "numpy.ndarray"),
        (Interface(read_only(np.zeros(8))), "Interface"),
        (mmap.mmap(-1, 8, access=mmap.ACCESS_READ), "mmap.mmap"),
    ],
)
async def test_receiving_into_a_read_only_buffer_is_refused(buffer, name):
    text = rf"^cannot receive into a read-only buffer \({name}\)$"
    async with connected_pair() as (client, server):
        await client.send(b"12345678")
        with pytest.raises(ValueError, match=text):
            await server.recv(buffer)
        with pytest.raises(ValueError, match=text):
            await server.recv_into(buffer)
        assert await server.recv_obj() == b"12345678"


async def test_python_objects_are_refused():
    text = (
        r"^expected a buffer of plain data, got Python objects "
        r"\(dtype object of numpy.ndarray\)$"
    )
    async with connected_pair() as (client, _server):
        for buffer in (np.array([{}]), np.zeros(2, [("a", "O"), ("b", "i4")])):
            with pytest.raises(ValueError, match=text):
                await client.send(buffer)
            with pytest.raises(ValueError, match=text):
                await client.recv(buffer)


@pytest.mark.parametrize(
    ("thing", "name"),
    [(1, "int"), ("text", "str"), ([1, 2], "list"), (None, "NoneType")],
)
async def test_what_has_no_memory_is_refused(thing, name):
    text = (
        r"^expected an object with the buffer protocol, __array_interface__, "
        rf"__cuda_array_interface__ or __dlpack__, got {name}"
    )
    advice = (
        r": give its bytes, text\.encode\(\)" if name == "str" else "; calls with .*"
    )
    async with connected_pair() as (client, _server):
        with pytest.raises(TypeError, match=f"{text}{advice}$"):
            await client.send(thing)
        with pytest.raises(TypeError, match=f"{text}{advice}$"):
            await client.send_frames([thing])
        advice = r": receive into a writable buffer, such as bytearray\(nbytes\)"
        with pytest.raises(TypeError, match=f"{text}{advice}$"):
            await client.recv(thing)
        with pytest.raises(TypeError, match=f"{text}{advice}$"):
            await client.recv_into(thing)


async def test_a_header_that_is_a_text_is_refused():
    text = r"^a header is bytes, not str: give text\.encode\(\)$"
    async with connected_pair() as (client, _server):
        with pytest.raises(TypeError, match=text):
            await client.send_frames([], header="text")
        with pytest.raises(TypeError, match=text):
            await client.am_send(b"", id=16, header="text")


async def test_a_message_is_not_received_into_less_memory():
    async with connected_pair() as (client, server):
        await client.send(b"12345")
        message = await server.recv_message()
        with pytest.raises(
            ValueError,
            match=r"^the message has 5 bytes, the buffer has room for 4$",
        ):
            await message.recv(bytearray(4))
        buffer = bytearray(6)
        assert await message.recv(buffer) == 5
        assert buffer == b"12345\0"


async def test_a_buffer_in_flight_cannot_be_resized():
    buffer = bytearray(5)
    async with connected_pair() as (client, server):
        request = server.recv(buffer)
        with pytest.raises(BufferError):
            buffer.append(0)
        await client.send(b"12345")
        await request
    buffer.append(6)
    assert buffer == b"12345\x06"


async def test_malformed_interfaces_are_refused():
    good = np.arange(4, dtype="u1").__array_interface__
    async with connected_pair() as (client, _server):
        for change in (
            {"shape": (-1,)},
            {"shape": [4]},
            {"typestr": "bogus"},
            {"data": (0, False)},
            {"data": "text"},
            {"strides": (1, 1)},
        ):
            face = Interface(np.empty(0))
            face.__array_interface__ = {**good, **change}
            with pytest.raises((ValueError, TypeError)):
                await client.send(face)
