# SPDX-License-Identifier: BSD-3-Clause
# tests: ucp/parcels ext/pickled
"""Arrays in memory of a device, in objects that go between ranks.

The driver is the tests' own, and so is CuPy.
"""

import textwrap
from types import SimpleNamespace

import pytest
import standin
from paths import TESTS
from script import run_script
from worlds import Ranks

from ucp._communicator import parcels
from ucp._core import arrays

PRELUDE = f"""
import asyncio, functools, pickle, signal, sys
sys.path.append({str(TESTS)!r})
import array_libraries, gpu
import numpy as np
import ucp
from array_libraries import CupyArray
array_libraries.install("cupy")
"""

# Behind it, in a program whose ranks are its threads.
THREADS = """
import ucp.sync
from worlds import good_world, sync_world
signal.alarm(50)  # the time limit
world = functools.partial(good_world, allow_pickle=True)

def values(rank, place=0, count=5000):
    return np.arange(count) * 7 + rank * 10 + place

def array(*args):
    return CupyArray.of(values(*args))

def check(got, *args):
    assert type(got) is CupyArray and got.memory.kind == "device"
    assert np.array_equal(got.read(), values(*args))
"""


def run(body):
    """Run a program on the driver."""
    run_script(PRELUDE + THREADS + textwrap.dedent(body), **standin.settings())


def test_every_operation_takes_them():
    run("""
    async def main(comm):
        rank, size = comm.rank, comm.size
        everyone = range(size)
        own = array(rank)
        for root in everyone:
            check(await comm.bcast_pickle(own if rank == root else None, root), root)
            got = await comm.gather_pickle([own, "x" * 9000], root)
            for each in everyone if rank == root else ():
                check(got[each][0], each)
            given = [array(rank, each) for each in everyone]
            got = await comm.scatter_pickle(given if rank == root else None, root)
            check(got, root, rank)
        for each, got in enumerate(await comm.allgather_pickle({"own": own})):
            check(got["own"], each)
        got = await comm.alltoall_pickle([array(rank, each) for each in everyone])
        for each in everyone:
            check(got[each], each, rank)
        total = await comm.allreduce_pickle(own)
        assert np.array_equal(total.read(), sum(map(values, everyone)))
        total = await comm.scan_pickle(own)
        assert np.array_equal(total.read(), sum(map(values, range(rank + 1))))
        sending = comm.send_pickle([own, own], (rank + 1) % size, tag=4)
        sent = asyncio.ensure_future(sending)
        got = await comm.recv_pickle((rank - 1) % size, 4)
        await sent
        assert got[0] is got[1]
        check(got[0], (rank - 1) % size)

    world(3, main)
    world(1, main)
    """)


def test_ranks_whose_objects_are_of_the_host_and_of_a_device():
    run("""
    async def main(comm):
        mine = [array(comm.rank), values(comm.rank), "short"][comm.rank]
        got = await comm.allgather_pickle(mine)
        check(got[0], 0)
        assert np.array_equal(got[1], values(1)) and got[2] == "short"

    world(3, main)
    """)


def test_arrays_without_items_and_short_ones():
    run("""
    async def main(comm):
        for count in (0, 1, 3, 200_000):
            for each, got in enumerate(
                await comm.allgather_pickle(array(comm.rank, 0, count))
            ):
                check(got, each, 0, count)
            if comm.rank:
                await comm.send_pickle(array(1, 0, count), 0)
            else:
                got, status = await comm.recv_pickle(1, with_status=True)
                check(got, 1, 0, count)
                assert status.nbytes > count * 8

    world(2, main)

    def blocking(comm):
        for count in (0, 3, 200_000):
            got = comm.allgather_pickle(array(comm.rank, 0, count), allow_pickle=True)
            for each in range(2):
                check(got[each], each, 0, count)
            if comm.rank:
                comm.send_pickle(array(1, 0, count), 0)
            else:
                check(comm.recv_pickle(1, allow_pickle=True), 1, 0, count)

    sync_world(2, blocking)
    """)


def test_a_cancelled_receive_loses_no_array():
    run("""
    async def main(comm):
        for turns in range(25):
            if comm.rank:
                await comm.send_pickle([array(1, turns, 90_000), "x" * 9000], 0)
                continue
            receiving = asyncio.ensure_future(comm.recv_pickle(1))
            for _ in range(turns):
                await asyncio.sleep(0)
            receiving.cancel()
            await asyncio.gather(receiving, return_exceptions=True)
            if receiving.cancelled():
                got = await comm.recv_pickle(1)
            else:
                got = receiving.result()
            check(got[0], 1, turns, 90_000)
        await comm.barrier()

    world(2, main)
    """)


def test_a_cancelled_send_arrives_whole_or_not_at_all():
    run("""
    async def main(comm):
        for turns in range(12):
            if comm.rank:
                sending = comm.send_pickle(array(1, turns, 90_000), 0)
                task = asyncio.ensure_future(sending)
                for _ in range(turns):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                await comm.send_pickle("next", 0)
            else:
                got = await comm.recv_pickle(1)
                if not isinstance(got, str):
                    check(got, 1, turns, 90_000)
                    got = await comm.recv_pickle(1)
                assert got == "next"
        await comm.barrier()

    world(2, main)
    """)


@pytest.mark.parametrize("text", ["short", "long"])
def test_a_device_without_memory_loses_no_message(text):
    """A pickle in the head, and one that is a frame."""
    run(f"""
    long = "x" * 20_000 if {text!r} == "long" else ""
    cupy = sys.modules["cupy"]
    empty = cupy.empty

    def refuse(nbytes, dtype):
        raise MemoryError("the device is full")

    async def main(comm):
        if comm.rank:
            await comm.send_pickle([array(1), long], 0)
            await comm.send_pickle("next", 0)
            return
        cupy.empty = refuse
        for _ in range(2):
            try:
                await comm.recv_pickle(1)
                raise AssertionError
            except MemoryError as error:
                assert str(error) == "the device is full"
        cupy.empty = empty
        got = await comm.recv_pickle(1)
        check(got[0], 1)
        assert got[1] == long
        assert await comm.recv_pickle(1) == "next"

    world(2, main)
    """)


def test_a_device_without_memory_does_not_end_a_collective_operation():
    run("""
    cupy = sys.modules["cupy"]
    empty, asarray = cupy.empty, cupy.asarray

    def refuse(*args):
        raise MemoryError("the device is full")

    async def main(comm):
        own = array(comm.rank)
        cupy.empty = cupy.asarray = refuse
        try:
            await comm.allgather_pickle(own)
            raise AssertionError
        except pickle.UnpicklingError as error:
            assert str(error).endswith("MemoryError: the device is full"), error
        await comm.barrier()
        cupy.empty, cupy.asarray = empty, asarray
        for each, got in enumerate(await comm.allgather_pickle(own)):
            check(got, each)

    world(2, main)
    """)


def test_an_array_that_was_freed_ends_a_send_alone():
    run("""
    async def main(comm):
        if comm.rank == 0:
            assert await comm.recv_pickle(1) == "next"
            return
        freed = array(1)
        freed.memory.free()
        try:
            await comm.send_pickle(freed, 0)
            raise AssertionError
        except ValueError as error:
            assert "CUDA has no memory" in str(error), error
        await comm.send_pickle("next", 0)

    world(2, main)
    """)


def test_an_array_of_a_tebibyte_is_announced_as_that():
    frame = arrays.Frame(None, 4096, 1 << 40)
    comm = SimpleNamespace()
    packed = b"pickle", [memoryview(bytes(20_000)), frame]
    parcel = parcels.parcel_of(comm, "send_pickle", packed, parcels.MESSAGE_HEAD_SIZE)
    head = parcels.read_head(parcel.head)
    coming = parcels.Coming(head, 0, lambda nbytes: ("memory of a device", nbytes))
    assert coming.lengths == [20_000, 1 << 40]
    assert len(coming.frames[0]) == 20_000
    assert coming.frames[1] == ("memory of a device", 1 << 40)
    assert coming.nbytes == 6 + 20_000 + (1 << 40)


def test_a_rank_that_dies_ends_the_objects_of_the_others():
    source = f"""{PRELUDE}
import os
root = os.environ["ROOT_OF_TEST"]
rank = int(os.environ["RANK_OF_TEST"])
with ucp.sync.Communicator.connect(root, rank, 2, 30, allow_pickle=True) as comm:
    array = CupyArray.of(np.arange(3_000_000))
    comm.barrier()
    if rank == 1:
        future = comm.isend_pickle([array, array[::2]], 0)  # it is not received yet
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        while True:
            comm.recv_pickle(1)
    except ucp.UCXRankFailed as error:
        print("rank 1 has died")
    del array
"""
    before = [["env", *(f"{k}={v}" for k, v in standin.settings().items())]] * 2
    with Ranks(2, source, before=before) as ranks:
        assert ranks.end(0) == "rank 1 has died"


@pytest.mark.parametrize("receiver", ["device", "none"])
def test_ranks_of_which_one_may_have_no_device(receiver):
    """It gets an error that says what to do, and nobody waits for it."""
    source = f"""{PRELUDE}
has_device = ucp.cuda.is_available()
values = np.arange(20_000)

def check(call, name):
    if has_device:
        got = call()
        assert np.array_equal(got.read(), values), name
        return
    try:
        call()
        raise AssertionError(name)
    except (ucp.UCXError, pickle.UnpicklingError) as error:
        assert "this process has no CUDA device: its sender has to copy" in str(error)

import os
root = os.environ["ROOT_OF_TEST"]
rank = int(os.environ["RANK_OF_TEST"])
with ucp.sync.Communicator.connect(root, rank, 2, 30, allow_pickle=True) as comm:
    if rank == 0:
        array = CupyArray.of(values)
        comm.send_pickle(array, 1)
        comm.send_pickle("next", 1)
        comm.bcast_pickle(array)
        comm.scatter_pickle([array, array])
        assert comm.allgather_pickle(array)[1] == "host"
    else:
        check(lambda: comm.recv_pickle(0), "recv_pickle")
        assert comm.recv_pickle(0) == "next"
        check(comm.bcast_pickle, "bcast_pickle")
        check(comm.scatter_pickle, "scatter_pickle")
        check(lambda: comm.allgather_pickle("host")[0], "allgather_pickle")
    assert comm.allgather_pickle(rank) == [0, 1]
    comm.barrier()
"""
    before = [["env", *(f"{k}={v}" for k, v in standin.settings().items())]] * 2
    if receiver == "none":
        before[1] = [*before[1], "CUDA_VISIBLE_DEVICES="]
    with Ranks(2, source, before=before) as ranks:
        for rank in range(2):
            ranks.end(rank)
