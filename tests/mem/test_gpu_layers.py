# SPDX-License-Identifier: BSD-3-Clause
# tests: proxy/take
"""Memory of a device given to what is made of communicators."""

import asyncio

import gpu
import numpy as np
import pytest
from worlds import good_world

import ucp
import ucp.moe
import ucp.proxy
import ucp.shmem
import ucp.shuffle
from ucp.proxy import Proxy

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not ucp.cuda.is_available(), reason="no CUDA device"),
]

NBYTES = 4096


class CuPy:
    """An array of CuPy as Python sees it: its buffer protocol raises."""

    def __init__(self, memory):
        self.memory = memory
        self.__cuda_array_interface__ = memory.__cuda_array_interface__


def pattern(first):
    return bytes((first + i) % 251 for i in range(NBYTES))


def memory(kind, data):
    if kind == "host":
        made = ucp.Memory.allocate(len(data))
        memoryview(made)[:] = data
        return made, lambda: bytes(made)
    array = gpu.Memory(len(data), kind)
    array.write(data)
    return ucp.Memory.register(array), array.read


@pytest.mark.parametrize("target", ["host", "pinned", "managed", "device"])
@pytest.mark.parametrize("source", ["host", "pinned", "managed", "device"])
def test_a_put_of_a_ring_to_the_own_rank(source, target):
    async def main(comm):
        own, _ = memory(source, pattern(0))
        there, read = memory(target, pattern(100))
        async with await Proxy.create(comm) as proxy:
            region = await proxy.add_region(there, own)
            ring = proxy.ring(16)
            command = ucp.proxy.put(0, 512, 1024, 256, region)
            await ring.push(np.array([command], np.uint64))
            await ring.quiet()
        expected = bytearray(pattern(100))
        expected[256 : 256 + 512] = pattern(0)[1024 : 1024 + 512]
        assert read() == expected

    good_world(1, main)


def test_a_put_of_a_device_onto_what_it_reads_is_refused():
    async def main(comm):
        own, read = memory("device", pattern(0))
        async with await Proxy.create(comm) as proxy:
            region = await proxy.add_region(own)
            ring = proxy.ring(16)
            command = ucp.proxy.put(0, 512, 0, 256, region)
            await ring.push(np.array([command], np.uint64))
            with pytest.raises(ValueError, match="onto the bytes it reads"):
                await ring.quiet()
        assert read() == pattern(0)

    good_world(1, main)


def test_queues_shuffles_outputs_and_heaps_name_memory_of_a_device():
    text = "not memory of a device"

    async def main(comm):
        array = gpu.Memory(NBYTES)
        for given in (array, ucp.Memory.allocate(NBYTES, "cuda")):
            async with await ucp.shuffle.StagingQueue.create(comm) as queue:
                with pytest.raises(TypeError, match=f"{text} .*communicator sends"):
                    await queue.send(given, 0)
                with pytest.raises(TypeError, match=text):
                    await queue.recv(given, 0)
                await asyncio.gather(queue.send(b"ok", 0), queue.recv(bytearray(2), 0))
        async with ucp.shuffle.Shuffler(comm, 1, 2) as shuffler:
            with pytest.raises(TypeError, match=text):
                shuffler.insert(0, array)
            shuffler.insert_finished()  # nothing has failed
            while await shuffler.wait() is not None:
                pass
        heap = await ucp.shmem.SymmetricHeap.create(comm, 1 << 20)
        async with heap:
            there = await heap.empty(NBYTES, "u1")
            with pytest.raises(TypeError, match="memory of a device cannot be put"):
                await heap.put(there, array, 0)

    good_world(1, main)


def test_experts_take_managed_memory_that_has_a_buffer():
    async def main(comm):
        async with await ucp.moe.Buffer.create(comm, 2, 4, 64, "float32") as buffer:
            for kind in ("host", "cuda-managed"):
                rows = ucp.Memory.allocate(4 * 64 * 4, kind)
                x = memoryview(rows).cast("B").cast("f", (4, 64))
                x[1, 2] = 5.0
                chosen = np.zeros((4, 1), "i8")
                got = (await buffer.low_latency_dispatch(x, chosen))[0]
                assert np.asarray(got)[0, 0, 1, 2] == 5.0
                with pytest.raises(ValueError, match="x has dtype uint8"):
                    await buffer.low_latency_dispatch(rows, chosen)
            for kind in ("managed", "device"):
                given = CuPy(gpu.Memory(4 * 64 * 4, kind))
                with pytest.raises(TypeError, match="x is in memory of a device"):
                    await buffer.low_latency_dispatch(given, chosen)

    good_world(1, main)
