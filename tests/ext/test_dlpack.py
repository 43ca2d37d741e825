# SPDX-License-Identifier: BSD-3-Clause
# tests: ext/dlpack_export
"""Memory handed out by __dlpack__: a round trip, or a clear error."""

import sys

import numpy as np
import pytest
from conftest import over_shm
from handmade import (
    COPIED,
    CPU,
    CUDA,
    CUDA_HOST,
    MANAGED,
    MEMORY,
    OPENCL,
    READ_ONLY,
    Handmade,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from objects import kept_objects

import ucp
from ucp import _ext
from ucp.testing import connected_pair, live_objects


class Proxy:
    """A NumPy array's DLPack, and nothing else of it."""

    def __init__(self, array):
        self.array = array

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, **kwargs):
        return self.array.__dlpack__(**kwargs)


class OldProxy(Proxy):
    """From before DLPack 1.0."""

    def __dlpack__(self, stream=None):
        return self.array.__dlpack__()


ARRAYS = {
    "C order": np.arange(12.0).reshape(3, 4),
    "Fortran order": np.asfortranarray(np.arange(12, dtype="i2").reshape(3, 4)),
    "no dimension": np.array(7, dtype="u8"),
    "no item": np.empty((3, 0), dtype="f4"),
    "complex": np.arange(3, dtype="c16"),
    "bool": np.array([True, False]),
    "a part": np.arange(10)[3:7],
}


@pytest.mark.parametrize("kind", [Proxy, OldProxy])
@pytest.mark.parametrize("name", ARRAYS)
@over_shm
async def test_tensors_go_round(transport, kind, name):
    array = ARRAYS[name]
    back = np.zeros_like(array)
    async with connected_pair() as (client, server):
        sent = client.send(kind(array))
        await server.recv(kind(back))
        await sent
    assert (back == array).all()


@pytest.mark.parametrize("name", [b"dltensor", b"dltensor_versioned"])
@pytest.mark.parametrize("device", [CPU, CUDA_HOST])
async def test_offsets_and_lanes_count(name, device):
    tensor = Handmade(
        name, device_type=device, byte_offset=8, shape=[3], bits=16, lanes=2
    )
    async with connected_pair() as (client, server):
        await client.send(tensor)
        assert await server.recv_obj() == bytes(range(8, 20))


async def test_a_tensor_is_held_while_it_is_used():
    array = np.zeros(8, dtype="u1")
    before = sys.getrefcount(array)
    async with connected_pair() as (client, server):
        request = server.recv(Proxy(array))
        assert sys.getrefcount(array) > before
        await client.send(b"12345678")
        await request
        del request
        assert bytes(array) == b"12345678"
    assert sys.getrefcount(array) == before


WRONG = {
    "read-only": ({"flags": READ_ONLY}, r"cannot receive into a read-only buffer"),
    "a copy": ({"flags": COPIED}, r"it hands out a copy, which cannot be received"),
    "newer": ({"major": 2}, r"version 2\.0, expected 1\.x"),
    "used": ({"name": b"used_dltensor"}, r"returned no unused capsule"),
    "device": ({"device_type": OPENCL}, r"memory of device type 4 cannot be sent"),
    "4 bits": ({"bits": 4}, r"items of 4 bits are not whole bytes"),
    "no bits": ({"lanes": 0}, r"items of 0 bits are not whole bytes"),
    "null": ({"data": None}, r"the data is a null pointer"),
    "ndim": ({"ndim": -1}, r"the shape is malformed"),
    "many": ({"ndim": 65}, r"the shape is malformed"),
    "no shape": ({"shape": None, "ndim": 1}, r"the shape is malformed"),
    "negative": ({"shape": [4, -1]}, r"the shape has no possible size"),
    "large": ({"shape": [2**62, 8]}, r"the shape has no possible size"),
    "larger": ({"shape": [2**62], "bits": 64}, r"the shape has no possible size"),
    "far": (
        {"shape": [2], "strides": [2**62], "bits": 64},
        r"the strides are too large",
    ),
    "beyond": ({"byte_offset": 2**64 - 1}, r"the offset is beyond all memory"),
    "gaps": (
        {"shape": [2], "strides": [2], "bits": 16},
        r"expected a contiguous buffer, got strides \(4,\) for itemsize 2",
    ),
}


@pytest.mark.parametrize("name", WRONG)
async def test_what_is_wrong_with_a_tensor_is_said(name):
    fields, text = WRONG[name]
    async with connected_pair() as (client, _server):
        with pytest.raises(ValueError, match=text):
            client.recv(Handmade(**fields))


async def test_read_only_tensors_and_copies_can_be_sent():
    async with connected_pair() as (client, server):
        for flags in (READ_ONLY, COPIED):
            await client.send(Handmade(flags=flags))
            assert await server.recv_obj() == MEMORY.tobytes()


class Failing:
    """A producer that does something else."""

    def __init__(self, result):
        self._result = result

    def __dlpack_device__(self):
        return (CPU, 0)

    def __dlpack__(self, **kwargs):
        if isinstance(self._result, type):
            raise self._result("not now")
        return self._result


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (BufferError, BufferError),
        (TypeError, TypeError),
        (RuntimeError, RuntimeError),
        (None, ValueError),
        (7, ValueError),
    ],
)
async def test_what_a_producer_raises_is_raised(result, expected):
    async with connected_pair() as (client, _server):
        with pytest.raises(expected):
            client.send(Failing(result))


@pytest.mark.parametrize(
    ("device", "is_cuda"),
    [(CPU, False), (CUDA, True), (CUDA_HOST, False), (MANAGED, True)],
)
def test_array_tells_the_device(device, is_cuda):
    array = _ext.Array(Handmade(device_type=device, flags=READ_ONLY))
    assert (array.cuda, array.readonly, array.nbytes) == (is_cuda, True, 64)


def test_array_takes_gaps():
    array = _ext.Array(Handmade(shape=[4, 2], strides=[8, 2], bits=16))
    assert (array.shape, array.strides, array.itemsize) == ((4, 2), (16, 4), 2)
    assert not array.contiguous


numbers = st.sampled_from([0, 1, 2, 3, 8, -1, 2**31, 2**62, 2**63 - 1, -(2**63)])


async def test_no_tensor_crashes():
    async with connected_pair() as (client, _server):
        before = kept_objects()["requests"]

        @settings(max_examples=500, derandomize=True, database=None, deadline=None)
        @given(
            fields=st.fixed_dictionaries(
                {
                    "name": st.sampled_from([b"dltensor", b"dltensor_versioned"]),
                    "shape": st.lists(numbers, max_size=4),
                },
                optional={
                    "strides": st.lists(numbers, min_size=4, max_size=4),
                    "device_type": st.sampled_from([CPU, CUDA_HOST, OPENCL, 0, -1]),
                    "bits": st.integers(0, 255),
                    "lanes": st.integers(0, 2**16 - 1),
                    "byte_offset": st.sampled_from([0, 8, 2**63, 2**64 - 1]),
                    "flags": st.integers(0, 2**64 - 1),
                    "major": st.integers(0, 2),
                },
            )
        )
        def check(fields):
            fields["ndim"] = len(fields["shape"])
            # A receive that gets no message touches no memory.
            try:
                request = client.recv(Handmade(**fields))
            except ValueError:
                return
            assert request.cancel()

        check()
        for _ in range(3):
            ucp.progress()
        assert live_objects()["requests"] == before


# ---- a Memory as a tensor ----------------------------------------------------


def test_memory_is_a_tensor(fresh_ucx):
    before = kept_objects()["memories"]
    memory = ucp.Memory.allocate(64)
    array = np.from_dlpack(memory)
    array[3] = 7
    assert memoryview(memory)[3] == 7
    assert memory.__dlpack_device__() == (CPU, 0)
    old = memory.__dlpack__()
    assert '"dltensor"' in repr(old)
    assert '"dltensor_versioned"' in repr(memory.__dlpack__(max_version=(1, 1)))
    memory.close()
    assert array[3] == 7  # the view keeps the memory
    del memory, array
    assert live_objects()["memories"] == before + 1
    del old
    assert live_objects()["memories"] == before


def test_read_only_memory_is_a_read_only_tensor(fresh_ucx):
    with ucp.Memory.register(bytes(range(9))) as memory:
        assert not np.from_dlpack(memory).flags.writeable
        with pytest.raises(BufferError, match="read-only memory needs DLPack"):
            memory.__dlpack__()


@pytest.mark.parametrize(
    ("kwargs", "error", "text"),
    [
        ({"copy": True}, BufferError, "there is no copy"),
        ({"dl_device": (CUDA, 0)}, BufferError, r"on device \(1, 0\), not on \(2, 0\)"),
        ({"max_version": 1}, TypeError, "max_version must be two numbers, not 1"),
        ({"max_version": ("1", 0)}, TypeError, "integer"),
    ],
)
def test_what_a_consumer_cannot_have(fresh_ucx, kwargs, error, text):
    with ucp.Memory.allocate(8) as memory:
        with pytest.raises(error, match=text):
            memory.__dlpack__(**kwargs)
        memory.__dlpack__(copy=False, dl_device=(CPU, 0), max_version=(1, 0), stream=1)
        memory.close()
        with pytest.raises(ucp.UCXInvalidKey):
            memory.__dlpack__()
        with pytest.raises(ucp.UCXInvalidKey):
            memory.__dlpack_device__()
