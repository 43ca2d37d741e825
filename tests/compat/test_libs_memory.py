# SPDX-License-Identifier: BSD-3-Clause
# tests: compat/memory
"""``ucp._libs.ucx_api``: memory of the peer's."""

import io
import pickle

import numpy as np
import pytest
from low_level import Call, Pair

import ucp
from ucp._libs import ucx_api
from ucp._libs.arr import Array

# For what is refused before anything is sent.
over_shm = pytest.mark.parametrize("pair", [{}], ids=["shm"], indirect=True)


@pytest.fixture(params=[{}, {"TLS": "tcp"}], ids=["shm", "tcp"])
def pair(request):
    pair = Pair(request.param)
    yield pair
    pair.close()


@pytest.fixture(params=["alloc", "map"])
def memory(request, pair):
    """1 MiB of the server's, whose numbers count up."""
    if request.param == "alloc":
        handle = pair.context.alloc(1 << 20)
    else:
        handle = pair.context.map(np.zeros(1 << 20, "u1"))
    np.frombuffer(handle, "u4")[:] = np.arange(1 << 18)
    return handle


@pytest.fixture
def remote(pair, memory):
    """The client's face of it."""
    packed = ucx_api.PackedRemoteKey.from_buffer(bytes(memory.pack_rkey()))
    rkey = pair.client.unpack_rkey(packed)
    assert rkey.ep is pair.client
    return ucx_api.RemoteMemory(rkey, memory.address, memory.length)


def flush(pair, thing):
    call = Call()
    pair.done(thing.flush(call), call)


@pytest.mark.parametrize("size", [1, 8, 1 << 13, 1 << 17, 1 << 20])
def test_put_and_get_call_back_or_are_done(pair, memory, remote, size):
    data = np.random.default_rng(0).integers(0, 256, size, "u1")
    buffer = np.zeros(size, "u1")
    calls = [Call(), Call()]
    pair.done(remote.put_nb(Array(data), calls[0]), calls[0])
    pair.done(remote.get_nb(Array(buffer), calls[1]), calls[1])
    assert all(exc is None for call in calls for _, exc, _, _ in call.calls)
    np.testing.assert_array_equal(np.frombuffer(memory, "u1")[:size], data)
    np.testing.assert_array_equal(buffer, data)


def test_offset_and_size_are_of_both_memories(pair, memory, remote):
    call = Call()
    pair.done(remote.put_nb(b"\xff" * 8, call, offset=4, size=2), call)
    assert bytes(memoryview(memory)[:8]) == b"\0\0\0\0\xff\xff\0\0"
    buffer, call = bytearray(4), Call()
    pair.done(remote.get_nb(buffer, call, offset=3, size=2), call)
    assert buffer == b"\0\xff\0\0"


@pytest.mark.parametrize("is_worker", [False, True], ids=["endpoint", "worker"])
def test_a_flush_ends_what_has_no_callback(pair, memory, remote, is_worker):
    thing = pair.here if is_worker else pair.client
    data, buffer = bytes(range(256)) * 16, bytearray(4096)
    if not remote.put_nbi(data, offset=100):
        flush(pair, thing)
    assert bytes(memoryview(memory)[100:4196]) == data
    if not remote.get_nbi(buffer, offset=100):
        flush(pair, thing)
    assert buffer == data


def test_a_range_that_begins_later(pair, memory, remote):
    rkey = pair.client.unpack_rkey(memory.pack_rkey())
    part = ucx_api.RemoteMemory(rkey, memory.address + 400, 8)
    buffer, call = np.zeros(2, "u4"), Call()
    pair.done(part.get_nb(buffer, call), call)
    assert buffer.tolist() == [100, 101]


@pytest.mark.parametrize(
    ("offset", "size"), [(1 << 20, 1), (-1, 1), (0, -1), ((1 << 20) - 1, 2), (1, 0)]
)
@over_shm
def test_what_is_out_of_range_is_refused(pair, memory, remote, offset, size):
    buffer = bytearray(1 << 20)
    for operation in (remote.put_nbi, remote.get_nbi):
        with pytest.raises(IndexError, match="Out of bounds"):
            operation(buffer, offset=offset, size=size)


def test_a_lying_range_is_stopped_by_the_key(pair, memory, remote):
    rkey = pair.client.unpack_rkey(memory.pack_rkey())
    lie = ucx_api.RemoteMemory(rkey, memory.address, 1 << 30)
    call = Call()
    with pytest.raises((ucp.UCXError, IndexError)):
        request = lie.put_nb(b"x", call, offset=1 << 20)
        pair.done(request, call)
        raise call.exception


def test_a_readonly_buffer_is_not_written(pair):
    handle = pair.context.map(b"abcd")
    rkey = pair.client.unpack_rkey(handle.pack_rkey())
    remote = ucx_api.RemoteMemory(rkey, handle.address, handle.length)
    buffer, call = bytearray(4), Call()
    pair.done(remote.get_nb(buffer, call), call)
    assert buffer == b"abcd"
    with pytest.raises(ucp.UCXBaseException):
        refused = Call()
        pair.done(remote.put_nb(b"x", refused), refused)
        raise refused.exception


@pytest.mark.parametrize("change", [slice(0, 3), slice(0, 20)], ids=["short", "cut"])
@over_shm
def test_what_is_no_key_is_refused(pair, memory, change):
    packed = memory.pack_rkey()
    with pytest.raises((ValueError, ucp.UCXError)):
        pair.client.unpack_rkey(packed[change])


def test_a_key_travels_by_any_means(memory):
    packed = memory.pack_rkey()
    again = pickle.loads(pickle.dumps(packed))
    assert type(again) is ucx_api.PackedRemoteKey
    assert again == packed and hash(again) == hash(packed)
    assert packed.length == len(bytes(packed))
    assert packed.key != 0


def test_memory_of_nothing_has_a_key(pair):
    assert pair.context.map(b"").pack_rkey().length > 0


def test_a_file_reads_what_was_written():
    context = ucx_api.UCXContext()
    worker = ucx_api.UCXWorker(context)
    memory = context.alloc(100)
    ep = ucx_api.UCXEndpoint.create_from_worker_address(
        worker, worker.get_address(), True
    )
    rkey = ep.unpack_rkey(memory.pack_rkey())
    with ucx_api.UCXIO(memory.address, 100, rkey) as file:
        assert file.seekable() and file.readable() and file.writable()
        assert file.write(bytes(range(100))) == 100
        assert file.write(b"more") == 0
        assert file.read(1) == b""
        for position, whence, there in (
            (10, io.SEEK_SET, 10),
            (5, io.SEEK_CUR, 15),
            (-20, io.SEEK_END, 80),
            (-500, io.SEEK_CUR, 0),
            (500, io.SEEK_SET, 100),
        ):
            assert file.seek(position, whence) == there == file.tell()
        file.seek(98)
        assert file.read() == b"bc"
        with pytest.raises(ValueError, match="whence"):
            file.seek(0, 7)
    worker.close()
