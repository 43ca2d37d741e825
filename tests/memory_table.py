# SPDX-License-Identifier: BSD-3-Clause
"""What the table "What takes which memory" of docs/devices.md says, tried.

    PYTHONPATH=tests python -P tests/memory_table.py [ROW...]

prints, as JSON, how each of the trials below ended in each kind of memory: "yes", or an
exception; only of rows that contain one of the arguments, if there are any. It runs on
any driver with a device.
"""

import asyncio
import ctypes
import json
import signal
import sys

import array_libraries
import gpu
import numpy as np
from worlds import world

import ucp
import ucp.moe
import ucp.shmem
import ucp.shuffle
from ucp.proxy import Proxy
from ucp.testing import connected_pair

LIMIT = 10  # seconds of a trial
SIZE = 5000
DATA = bytes(i * 7 % 251 for i in range(SIZE))
NAMES = {"host": "host", "pinned": "pinned", "managed": "cuda-managed"}
# "managed array" has no buffer protocol, as CuPy's.
KINDS = ("host", "pinned", "managed", "managed array", "device")


# ---- memory --------------------------------------------------------------------


def make(kind, data=bytes(SIZE)):
    if kind in ("device", "managed array"):
        memory = gpu.Memory(len(data), kind.partition(" ")[0])
        memory.write(data)
    elif kind == "host":
        return bytearray(data)
    else:
        memory = ucp.Memory.allocate(len(data), NAMES[kind])
        memoryview(memory)[:] = data
    return memory


def make_remote(kind, data=bytes(SIZE)):
    """Memory that peers may access."""
    if kind not in ("device", "managed array"):
        memory = ucp.Memory.allocate(len(data), NAMES[kind])
        memoryview(memory)[:] = data
        return memory
    return ucp.Memory.register(make(kind, data))


def read(memory):
    if isinstance(memory, gpu.Memory):
        return memory.read()
    try:
        return bytes(memory)
    except (BufferError, TypeError):
        data = ctypes.create_string_buffer(memory.nbytes)
        address = ctypes.c_void_p(memory.address)
        with gpu.Context(0):
            gpu.call("cuMemcpyDtoH_v2", data, address, ctypes.c_size_t(memory.nbytes))
        return data.raw


class Shown:
    """An array that begins where a memory does."""

    def __init__(self, memory, shape, typestr, strides):
        self.memory = memory
        layout = {"shape": shape, "typestr": typestr, "strides": strides}
        self.__cuda_array_interface__ = {**memory.__cuda_array_interface__, **layout}


def shown(kind, memory, shape, typestr, strides=None):
    """The array of a library: of NumPy, where that has any of such memory."""
    if kind in ("device", "managed array"):
        return Shown(memory, shape, typestr, strides)
    return np.ndarray(shape, typestr, memoryview(memory), 0, strides)


# ---- trials: each is called for each kind ------------------------------------------


async def both(sending, receiving):
    return (await asyncio.gather(sending, receiving))[1]


def of_pair(trial):
    """A trial of two endpoints."""

    async def run(kind):
        async with asyncio.timeout(LIMIT), connected_pair() as (left, right):
            await trial(kind, left, right)

    return lambda kind: asyncio.run(run(kind))


def of_ranks(size):
    """A trial of so many ranks."""

    def wrap(trial):
        async def run(kind, comm):
            async with asyncio.timeout(LIMIT):
                await trial(kind, comm)

        def start(kind):
            ends = world(size, lambda comm: run(kind, comm), allow_pickle=True)
            errors = [end for end in ends if isinstance(end, BaseException)]
            # A rank that is left by the others only says so.
            errors.sort(key=lambda error: isinstance(error, ucp.UCXRankFailed))
            if errors:
                raise errors[0]

        return start

    return wrap


@of_pair
async def messages(kind, left, right):
    sent, got = make(kind, DATA), make(kind)
    await both(left.send(sent), right.recv(got))
    assert read(got) == DATA
    got = make(kind)
    await both(left.send(sent, tag=3), right.recv_into(got))
    assert read(got) == DATA
    assert await both(left.send_obj(sent), right.recv_obj()) == DATA
    assert await both(left.am_send(sent), right.am_recv()) == DATA


@of_pair
async def frames(kind, left, right):
    got = [make(kind), make(kind)]
    sending = left.send_frames([make(kind, DATA), make(kind, DATA)])
    await both(sending, right.recv_frames(into=got))
    assert [read(each) for each in got] == [DATA, DATA]


@of_pair
async def stream_send(kind, left, right):
    got = bytearray(SIZE)
    await both(left.stream_send(make(kind, DATA)), right.stream_recv(got, True))
    assert got == DATA


@of_pair
async def stream_recv(kind, left, right):
    got = make(kind)
    await both(left.stream_send(DATA), right.stream_recv(got, True))
    assert read(got) == DATA


@of_pair
async def strided_send(kind, left, right):
    every_other = shown(kind, make(kind, DATA), (SIZE // 2,), "|u1", (2,))
    got = bytearray(SIZE // 2)
    await both(left.send(every_other, strided=True), right.recv(got))
    assert got == DATA[::2]


@of_pair
async def strided_recv(kind, left, right):
    memory = make(kind)
    every_other = shown(kind, memory, (SIZE // 2,), "|u1", (2,))
    receiving = right.recv(every_other, strided=True)
    await both(left.send(DATA[::2]), receiving)
    assert read(memory)[::2] == DATA[::2]


@of_pair
async def force_tag(kind, left, right):
    got = make(kind)
    sending = left.send(make(kind, DATA), tag=5, force_tag=True)
    await both(sending, right.recv(got, tag=5, force_tag=True))
    assert read(got) == DATA


@of_pair
async def put_and_get(kind, left, right):
    memory = make_remote(kind)
    remote = left.remote(memory.key)
    await remote.put(make(kind, DATA))
    await left.flush()
    got = make(kind)
    await remote.get(got)
    assert read(got) == DATA


@of_pair
async def fetch_add(kind, left, right):
    memory = make_remote(kind, bytes(64))
    remote = left.remote(memory.key)
    assert await remote.fetch_add(8, 5) == 0
    assert await remote.fetch_add(8, 1) == 5


@of_pair
async def wait_until(kind, left, right):
    memory = make_remote(kind, bytes(64))
    waiting = memory.wait_until(8, "==", 7)
    left.remote(memory.key).put((7).to_bytes(8, "little"), 8)
    await waiting


@of_pair
async def memories(kind, left, right):
    name = {"device": "cuda", "managed array": "cuda-managed"}.get(kind, kind)
    name = NAMES.get(name, name)
    memory = ucp.Memory.allocate(SIZE, name)
    with ucp.BufferPool(2, SIZE, name) as pool, await pool.acquire() as buffer:
        await both(left.send(DATA), right.recv(buffer))
        await both(left.send(buffer), right.recv(memory))
        del buffer
    assert read(memory) == DATA

    class Tensor:
        __dlpack__ = memory.__dlpack__
        __dlpack_device__ = memory.__dlpack_device__

    got = ucp.Memory.allocate(SIZE, name)
    await both(left.send(Tensor()), right.recv(got))
    assert read(got) == DATA


@of_ranks(2)
async def rank_messages(kind, comm):
    other, got = 1 - comm.rank, make(kind)
    sent = make(kind, DATA)
    await comm.sendrecv(sent, other, got, other)
    assert read(got) == DATA
    got = make(kind)
    await both(comm.send(sent, comm.rank), comm.recv(got, comm.rank))
    assert read(got) == DATA
    got = make(kind, DATA if comm.rank == 0 else bytes(SIZE))
    await comm.bcast(got)
    assert read(got) == DATA


@of_ranks(2)
async def rank_parts(kind, comm):
    sent, got = make(kind, DATA), make(kind, bytes(2 * SIZE))
    await comm.allgather(sent, got)
    assert read(got) == DATA * 2
    await comm.gather(sent, got)
    whole, got = make(kind, DATA * 2), make(kind)
    await comm.scatter(whole if comm.rank == 0 else None, got)
    assert read(got) == DATA
    got = make(kind, bytes(2 * SIZE))
    await comm.alltoall(whole, got)
    assert read(got) == DATA * 2


def reduction(name):
    @of_ranks(2)
    async def trial(kind, comm):
        got = make(kind, bytes(SIZE // 2 if name == "reduce_scatter" else SIZE))
        await getattr(comm, name)(make(kind, DATA), got, op="max")
        if name in ("allreduce", "scan"):
            assert read(got) == DATA

    return trial


@of_ranks(2)
async def objects(kind, comm):
    if kind in ("device", "managed array"):
        layout = np.empty(SIZE, "u1")
        array = array_libraries.CupyArray(make(kind, DATA), layout, layout)
    else:
        array = np.asarray(make(kind, DATA))
    got = (await comm.allgather_pickle({"array": array}))[1 - comm.rank]["array"]
    assert type(got) is type(array)
    values = got if isinstance(got, np.ndarray) else got.read()
    assert values.tobytes() == DATA


@of_ranks(1)
async def insert(kind, comm):
    async with ucp.shuffle.Shuffler(comm, 0, 1) as shuffler:
        inserted = shuffler.insert(0, make(kind, DATA))
        shuffler.insert_finished()
        async for partition in shuffler:
            chunks = await shuffler.extract(partition)
            assert [bytes(chunk) for chunk in chunks] == [DATA]
            del chunks
        await inserted


@of_ranks(1)
async def staging(kind, comm):
    async with await ucp.shuffle.StagingQueue.create(comm) as queue:
        got = make(kind)
        await both(queue.send(make(kind, DATA), 0), queue.recv(got, 0))
        assert read(got) == DATA


@of_ranks(1)
async def outputs(kind, comm):
    made = await ucp.shuffle.MapOutputs.create(comm, num_maps=1, num_partitions=1)
    async with ucp.shuffle.Writer(made, 0) as writer:
        writer.write(0, make(kind, DATA))
        await writer.commit()


@of_ranks(1)
async def heap_put(kind, comm):
    async with await ucp.shmem.SymmetricHeap.create(comm, 1 << 16) as heap:
        array = await heap.zeros(SIZE, "u1")
        await heap.put(array, make(kind, DATA), 0)
        assert bytes(array.local) == DATA


@of_ranks(1)
async def heap_get(kind, comm):
    async with await ucp.shmem.SymmetricHeap.create(comm, 1 << 16) as heap:
        array, got = await heap.zeros(SIZE, "u1"), make(kind, DATA)
        await heap.get(got, array, 0)
        assert read(got) == bytes(SIZE)


@of_ranks(1)
async def experts(kind, comm):
    async with await ucp.moe.Buffer.create(comm, 2, 4, 256, "float32") as buffer:
        x = shown(kind, make(kind, bytes(4 * 4 * 256)), (4, 256), "<f4")
        topk_idx = np.zeros((4, 1), "i8")
        await buffer.low_latency_dispatch(x, topk_idx)


@of_ranks(2)
async def region(kind, comm):
    half, block = bytes(4096), DATA[:4096]
    memory = make_remote(kind, (half if comm.rank else block) + half)
    async with await Proxy.create(comm) as proxy:
        await proxy.add_region(memory)
        ring = proxy.ring()
        if comm.rank == 0:
            ring.put(1, 4096, local=0, remote=4096)
            await ring.quiet()
        await comm.barrier()
        assert read(memory)[4096:] == (block if comm.rank else half)
        await comm.barrier()


@of_ranks(1)
async def ring_memory(kind, comm):
    async with await Proxy.create(comm) as proxy:
        await proxy.add_region(ucp.Memory.allocate(4096))
        proxy.ring(16, memory=make_remote(kind, bytes(384 + 256)))


@of_ranks(1)
async def own_signal(kind, comm):
    memory = make_remote(kind, bytes(4096))
    async with await Proxy.create(comm) as proxy:
        await proxy.add_region(memory)
        ring = proxy.ring()
        ring.signal(0, slot=1)
        await ring.quiet()
        assert read(memory)[8] == 1


# By the begin of the row.
TRIALS = {
    "`send`, `recv`": (messages, frames),
    "`stream_send`, `stream_recv`": (stream_send, stream_recv),
    "`strided=True`": (strided_send, strided_recv),
    "`force_tag=True`": (force_tag,),
    "`put`, `get`": (put_and_get,),
    "`fetch_add`": (fetch_add, wait_until),
    "`ucp.Memory`": (memories,),
    "communicators: `send`": (rank_messages, rank_parts),
    "communicators: reductions": tuple(
        map(reduction, ("allreduce", "reduce", "reduce_scatter", "scan"))
    ),
    "objects": (objects,),
    "`Shuffler.insert`": (insert, staging, outputs),
    "symmetric heaps": (heap_put, heap_get),
    "`ucp.moe`": (experts,),
    "regions of a proxy": (region,),
    "the memory of a ring": (ring_memory,),
    "signals of a ring": (own_signal,),
}


def end_of(trial, kind):
    try:
        trial(kind)
    except BaseException as error:
        if isinstance(error, AssertionError | TimeoutError | KeyboardInterrupt):
            raise
        return f"{type(error).__name__}: {error}"
    return "yes"


if __name__ == "__main__":
    signal.alarm(100)
    array_libraries.install("cupy")
    only = sys.argv[1:]
    found = {
        row: {kind: [end_of(trial, kind) for trial in trials] for kind in KINDS}
        for row, trials in TRIALS.items()
        if not only or any(each in row for each in only)
    }
    print(json.dumps(found))
