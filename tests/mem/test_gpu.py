# SPDX-License-Identifier: BSD-3-Clause
"""Arrays in the memory of a real device; test_cuda.py has those without one."""

import asyncio
import itertools
import zlib

import gpu
import numpy as np
import pytest
from conftest import TLS
from pairs import pairwise
from paths import EXAMPLES, TESTS
from script import run_script

import ucp
from ucp.testing import connected_pair

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not ucp.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.timeout(300),
]

KINDS = ("host", "pinned", "managed", "device")
# Eager, announced, in fragments, in many.
SIZES = (1, 8, 1000, 8192, 65_536, 300_000, 4 << 20)
LARGE = (256 << 20, 1 << 30)
# How two processes reach each other's devices.
WAYS = {
    "all": {},
    "without cuda_ipc": {"TLS": "^cuda_ipc"},
    "tcp and copies": {"TLS": "tcp,cuda_copy"},
}


HAS_DEVICE = ucp.cuda.is_available() and not gpu.is_fake()


def combined(*parameters):
    """All combinations with a device; without one test_cuda.py has the others."""
    return list(itertools.product(*parameters)) if HAS_DEVICE else pairwise(*parameters)


def largest(size):
    """Sizes that take too long without a device are left to those that have."""
    if gpu.is_fake() and size > 16 << 20:
        pytest.skip("the memory is the host's")
    return size


def pattern(size):
    """Bytes that differ where a fragment is out of place."""
    return (np.arange(size, dtype=np.uint32) * 2654435761 >> 24).astype("u1").tobytes()


class Host(bytearray):
    """Memory of the host with the methods of gpu.Memory."""

    def write(self, data):
        self[:] = data

    def read(self):
        return bytes(self)


def memory(kind, size):
    return Host(size) if kind == "host" else gpu.Memory(size, kind)


async def exchange(sending, receiving):
    return (await asyncio.gather(sending, receiving))[1]


@pytest.mark.parametrize(
    ("transport", "source", "target", "size"),
    combined(TLS, KINDS, KINDS, SIZES),
    indirect=["transport"],
)
async def test_every_memory_reaches_every_other(transport, source, target, size):
    data = pattern(size)
    sent, got = memory(source, size), memory(target, size)
    sent.write(data)
    async with connected_pair() as (left, right):
        await exchange(left.send(sent), right.recv(got))
        assert got.read() == data
        got.write(bytes(size))
        sending = asyncio.ensure_future(left.send(sent, tag=5))
        await asyncio.sleep(0)
        assert await right.recv_into(got) == size
        await sending
        assert got.read() == data
        assert await exchange(left.send_obj(sent), right.recv_obj()) == data
        assert await exchange(left.am_send(sent), right.am_recv()) == data
    assert gpu.current_device() is None


@pytest.mark.parametrize("size", LARGE)
@pytest.mark.parametrize("target", KINDS)
async def test_large_arrays(target, size):
    data = pattern(1 << 20) * (largest(size) >> 20)
    sent, got = gpu.Memory(size), memory(target, size)
    sent.write(data)
    async with connected_pair() as (left, right):
        await exchange(left.send(sent), right.recv(got))
        assert got.read() == data


@pytest.fixture(params=WAYS)
def way(request, fresh_ucx):
    """Use one way between devices, for both processes."""
    ucp.init(options=WAYS[request.param])
    return {f"UCX_{key}": value for key, value in WAYS[request.param].items()}


IMPORTS = f"""
import sys, zlib
sys.path.append({str(TESTS)!r})
import gpu
"""


@pytest.mark.parametrize(
    ("way", "here", "size"),
    combined(WAYS, ["device", "host"], (*SIZES, *LARGE)),
    indirect=["way"],
)
async def test_two_processes(way, connect_peer, here, size):
    data = pattern(min(size, 1 << 20)) * (largest(size) + (1 << 20) - 1 >> 20)
    peer, ep = await connect_peer(**way)
    await peer.do(IMPORTS)
    await peer.do(f"there = gpu.Memory({size}, 'device')")
    sent, got = memory(here, size), memory(here, size)
    sent.write(data)
    for _ in range(3):
        receiving = peer.begin("await ep.recv(there)")
        await ep.send(sent)
        await peer.result(receiving)
        assert await peer.do("zlib.crc32(there.read())") == zlib.crc32(data)
        sending = peer.begin("await ep.send(there)")
        await ep.recv(got)
        await peer.result(sending)
        assert got.read() == data


@pytest.mark.parametrize("by", ["interface", "argument"])
@pytest.mark.parametrize("size", [8, 300_000, 64 << 20])
async def test_what_a_stream_still_writes_is_waited_for(by, size):
    """Kernels that take long: the message has what the last of them writes."""
    sent, got = gpu.Memory(largest(size)), gpu.Memory(size)
    work, stream = gpu.Memory(1 << 20 if gpu.is_fake() else 1 << 30), gpu.Stream()
    options = {"stream": stream} if by == "argument" else {}
    if by == "interface":
        sent.stream = got.stream = stream.handle
    async with connected_pair() as (left, right):
        for value in range(1, 4):
            stream.fill(work, 0, 3)  # milliseconds
            stream.fill(sent, value)
            stream.fill(got, 99)  # before the message
            await exchange(left.send(sent, **options), right.recv(got, **options))
            assert got.read() == bytes([value]) * size


async def test_a_cancelled_receive_loses_nothing():
    async with connected_pair() as (left, right):
        for size in SIZES:
            sent, lost, got = (gpu.Memory(size) for _ in range(3))
            sent.write(pattern(size))
            for steps in range(6):
                sending = asyncio.ensure_future(left.send(sent))
                receiving = asyncio.ensure_future(right.recv(lost))
                for _ in range(steps):
                    await asyncio.sleep(0)
                if receiving.cancel():
                    await right.recv(got)
                    assert got.read() == pattern(size)
                await sending


async def test_freed_and_wild_pointers_are_refused():
    freed, short = gpu.Memory(100), gpu.Memory(100)
    freed.free()
    short.nbytes = 1 << 40
    async with connected_pair() as (left, _right):
        for array in (freed, short):
            for call in (left.send, left.recv, left.am_send):
                with pytest.raises(ValueError, match="CUDA has no memory"):
                    call(array)


async def test_the_callers_context_stays():
    device = gpu.num_devices() - 1
    sent, got = gpu.Memory(300_000, device=0), gpu.Memory(300_000, device=device)
    sent.write(pattern(300_000))
    async with connected_pair() as (left, right):
        with gpu.Context(device):
            receiving = right.recv(got)
            sending = left.send(sent)
            assert gpu.current_device() == device
            await exchange(sending, receiving)
            assert gpu.current_device() == device
    assert got.read() == pattern(300_000)


def library_of_a_device(name):
    """A library that needs a device: it is none that the tests' own driver serves."""
    if gpu.is_fake():
        pytest.skip("the libraries need a device")
    return pytest.importorskip(name)


def test_the_cupy_example_runs():
    library_of_a_device("cupy")
    example = EXAMPLES / "cupy_roundtrip.py"
    assert run_script(example.read_text()).startswith("same\nthere and back in ")


@pytest.mark.parametrize("library", ["cupy", "torch"])
async def test_arrays_of_a_library_go_round(library):
    module = library_of_a_device(library)
    ucp.cuda.use(library)
    async with connected_pair() as (left, right):
        for size in SIZES:
            host = np.frombuffer(pattern(size), "u1").copy()
            if library == "cupy":
                sent = module.asarray(host)
            else:
                sent = module.from_numpy(host).cuda()
            got = await exchange(
                left.send_obj(sent), right.recv_obj(allocator=ucp.cuda.allocator)
            )
            assert type(got).__module__.startswith(library)
            back = np.empty(size, "u1")
            await exchange(right.send(got), left.recv(back))
            assert (back == host).all()
    ucp.cuda.use(None)
