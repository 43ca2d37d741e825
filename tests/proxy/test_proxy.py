# SPDX-License-Identifier: BSD-3-Clause
# tests: ext/ring ucp/ring ucp/commands
"""``ucp.proxy``: proxies, rings and their commands."""

import asyncio
import ctypes
import gc
import os
import re
import shutil
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest
from paths import EXAMPLES, ROOT
from worlds import Ranks, good_world

import ucp
from ucp.proxy import (
    Proxy,
    barrier,
    nop,
    put,
    quiet,
    quiet_all,
    signal,
    wait_quiet_all,
)

SIGNALS = 8192  # slot: zeros are there


async def opened(comm, **options):
    """A proxy with a region of 1 MiB, whose first half has the rank + 1."""
    memory = ucp.Memory.allocate(1 << 20)
    np.asarray(memory)[: 1 << 16] = comm.rank + 1
    proxy = await Proxy.create(comm, **options)
    assert await proxy.add_region(memory) == 0
    return proxy, memory


def test_puts_and_signals_reach_the_other_rank():
    async def main(comm):
        proxy, memory = await opened(comm)
        other = 1 - comm.rank
        async with proxy:
            ring = proxy.ring()
            assert ring.put(other, 7168, 0, 1 << 18) == 0
            assert ring.signal(other, SIGNALS, 5) == 1
            await memory.wait_until(8 * SIGNALS, ">=", 5)
            assert (np.asarray(memory)[1 << 18 :][:7168] == other + 1).all()
            ring.signal(other, SIGNALS, 9, set=True)
            await memory.wait_until(8 * SIGNALS, "==", 9)
            await ring.quiet()
            ring.barrier(3)
            await ring.quiet()
            assert ring.statistics.puts == 1
            assert ring.statistics.nbytes == 7168
            assert ring.retired == 4
        assert proxy.closed()

    good_world(2, main)


def test_batches_of_commands_come_from_arrays():
    async def main(comm):
        proxy, memory = await opened(comm)
        async with proxy:
            ring = proxy.ring(64, producers="several")
            commands = np.array(
                [put(0, 16, 0, (1 << 18) + 16 * i) for i in range(500)], dtype="u8"
            )
            assert await ring.push(commands) == 499
            await ring.quiet()
            assert (np.asarray(memory)[1 << 18 :][: 16 * 500] == 1).all()
            ring.push_wait(np.array([nop()] * 200, "u8"))
            ring.wait_quiet(20)
            assert ring.statistics.nops == 200
            with pytest.raises(ValueError, match="these are 8 bytes"):
                await ring.push(b"12345678")

    good_world(1, main)


def test_threads_write_and_wait_without_an_event_loop():
    async def main(comm):
        proxy, _ = await opened(comm)
        async with proxy:
            rings = [proxy.ring(16), proxy.ring(16)]

            def produce(ring):
                for i in range(300):
                    number = ring.put(0, 16, 0, (1 << 18) + 16 * i)
                    if i % 50 == 0:
                        ring.wait(number, 20)
                ring.wait_quiet(20)

            threads = [threading.Thread(target=produce, args=[r]) for r in rings]
            for thread in threads:
                thread.start()
            for thread in threads:
                await asyncio.to_thread(thread.join)
            await quiet_all(rings)
            wait_quiet_all(rings, 20)
            assert [ring.statistics.puts for ring in rings] == [300, 300]

    good_world(1, main)


def test_a_full_ring_makes_a_producer_wait():
    async def main(comm):
        proxy, _ = await opened(comm)
        async with proxy:
            ring = proxy.ring(4)
            if comm.rank == 0:
                ring.barrier()
                for _ in range(3):
                    ring.nop()
                with pytest.raises(ucp.UCXTimeout):
                    ring.push_wait(np.array([nop()], "u8"), 0.01)
                with pytest.raises(ucp.UCXTimeout):
                    ring.wait_quiet(0.01)
                pushing = asyncio.ensure_future(ring.push(np.array([nop()], "u8")))
                await asyncio.sleep(0)
                pushing.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await pushing
            await comm.barrier()
            if comm.rank == 1:
                ring.barrier()
            await ring.quiet()
            ring.barrier()
            await ring.quiet()

    good_world(2, main)


@pytest.mark.parametrize(("capacity", "producers"), [(2, "one"), (4, "several")])
def test_many_commands_go_through_a_small_ring(capacity, producers):
    count = 10000

    async def main(comm):
        proxy, _ = await opened(comm)
        async with proxy:
            ring = proxy.ring(capacity, producers=producers)
            some = [put(0, 16, 0, 1 << 18), signal(0, SIGNALS), nop(), quiet()]
            commands = np.array(some * (count // 4), "u8")
            async with asyncio.timeout(20):
                assert await ring.push(commands) == count - 1
            assert ring.push_wait(commands, 20) == 2 * count - 1
            puts = [(0, 16, 0, 1 << 18)] * count
            thread = threading.Thread(
                target=lambda: [ring.put(*one) for one in puts], daemon=True
            )
            thread.start()
            await asyncio.to_thread(thread.join, 20)
            assert not thread.is_alive()
            await ring.quiet()
            assert ring.retired == 3 * count

    good_world(1, main)


def test_numbers_begin_again_after_the_largest():
    async def main(comm):
        proxy, _ = await opened(comm)
        async with proxy:
            ring = proxy.ring(4, first=2**64 - 2)
            assert await ring.push(b"") == 2**64 - 3
            numbers = [ring.nop() for _ in range(3)]
            assert numbers == [2**64 - 2, 2**64 - 1, 0]
            for number in numbers:
                await ring.retire(number)
            assert ring.push_wait(b"") == 0
            assert await proxy.ring(4).push(b"") == 2**64 - 1
            last = proxy.ring(4, first=2**64 - 1)
            assert last.push_wait(np.array([nop()], "u8")) == 2**64 - 1

    good_world(1, main)


def test_each_thread_gets_the_numbers_of_its_commands():
    async def main(comm):
        proxy, _ = await opened(comm)
        async with proxy:
            ring = proxy.ring()
            numbers = []

            def produce():
                numbers.extend([ring.nop() for _ in range(3000)])

            threads = [threading.Thread(target=produce) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                await asyncio.to_thread(thread.join)
            assert sorted(numbers) == list(range(12000))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        good_world(1, main)
    finally:
        sys.setswitchinterval(interval)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: put(0, 1, 8, 0), "local is 8, not a multiple of 16"),
        (lambda: put(0, 1, 0, 17), "remote is 17, not a multiple of 16"),
        (lambda: put(0, 1, 1 << 35, 0), "local is 34359738368, not 0 to"),
        (lambda: put(0, 1 << 32, 0, 0), "nbytes is 4294967296, not 0 to"),
        (lambda: put(-1, 1, 0, 0), "rank is -1, not 0 to"),
        (lambda: put(0, 1, 0, 0, 256), "region is 256, not 0 to 255"),
        (lambda: signal(0, 0, 1 << 31), "value is 2147483648, not 0 to"),
        (lambda: signal(0, -1), "slot is -1, not 0 to"),
        (lambda: barrier(256), "group is 256, not 0 to 255"),
    ],
)
def test_a_number_that_no_command_can_hold_is_named(make, text):
    with pytest.raises(ValueError, match=re.escape(text)):
        make()


def test_a_bad_command_ends_its_ring_and_says_what_was_given():
    async def main(comm):
        proxy, _ = await opened(comm)
        async with proxy:
            ring, other = proxy.ring(), proxy.ring()
            ring.nop()
            ring.put(3, 16, 0, 0)
            expected = (
                r"command 1, a put of 16 bytes from 0 to 0 in region 0 of rank 3: "
                r"there is no rank 3: there are 1"
            )
            with pytest.raises(IndexError, match=expected) as caught:
                await ring.quiet()
            assert caught.value.rank is None
            assert ring.error.number == 1
            assert ring.error.command == put(3, 16, 0, 0)
            with pytest.raises(IndexError, match=expected):
                ring.nop()
            with pytest.raises(IndexError, match=expected):
                ring.wait(5, 1)
            with pytest.raises(IndexError, match=expected):
                wait_quiet_all([other, ring], 1)
            assert "ended" in repr(ring)
            other.put(0, 16, 0, 1 << 18)
            await other.quiet()
            assert other.error is None

    good_world(1, main)


@pytest.mark.parametrize("op", [5, 14, 15])
def test_an_operation_that_does_not_exist_is_a_value_error(op):
    async def main(comm):
        proxy, _ = await opened(comm)
        async with proxy:
            ring = proxy.ring()
            ring.push_wait(np.array([(op, 1)], "u8"))
            with pytest.raises(
                ValueError, match=f"command 0, operation {op}"
            ) as caught:
                await ring.quiet()
            assert caught.value.rank is None
            assert ring.error.command == (op, 0)

    good_world(1, main)


def test_wrong_arguments_are_named():
    async def main(comm):
        proxy, _ = await opened(comm)
        async with proxy:
            with pytest.raises(ValueError, match="capacity is 48"):
                proxy.ring(48)
            with pytest.raises(ValueError, match="in_flight is 0"):
                proxy.ring(in_flight=0)
            with pytest.raises(ValueError, match="in_flight is 'much'"):
                proxy.ring(in_flight="much")
            with pytest.raises(ValueError, match="producers is 'two'"):
                proxy.ring(producers="two")
            with pytest.raises(TypeError, match="expected a Ring, got int"):
                wait_quiet_all([1])
            with pytest.raises(TypeError, match="expected a Ring, got NoneType"):
                await quiet_all([proxy.ring(), None])
            with pytest.raises(TypeError, match=r"seconds, not .soon"):
                await proxy.close("soon")
            assert not proxy.closed()
            with pytest.raises(TypeError, match="memory must be a Memory"):
                await proxy.add_region(b"")
            small = ucp.Memory.allocate(384)
            with pytest.raises(ucp.UCXError, match="16 for each"):
                proxy.ring(16, memory=small)
        with pytest.raises(IndexError, match="may not run on the CPU"):
            await Proxy.create(comm, cpu=4000)
        with pytest.raises(TypeError, match=r"made of a ucp\.Communicator"):
            await Proxy.create(ucp.sync.Communicator)
        with pytest.raises(ValueError, match="cpu is -1"):
            await Proxy.create(comm, cpu=-1)

    good_world(1, main)


def test_puts_read_another_memory_than_the_region_has():
    async def main(comm):
        proxy, memory = await opened(comm)
        async with proxy:
            source = np.full(4096, 77, "u1")
            given = await proxy.add_region(
                memory if comm.rank == 1 else None,
                ucp.Memory.register(source) if comm.rank == 0 else None,
            )
            ring = proxy.ring(in_flight="bulk")
            if comm.rank == 0:
                ring.put(1, 4096, 0, 1 << 18, given)
                ring.signal(1, SIGNALS, region=given)
                await ring.quiet()
            else:
                await memory.wait_until(8 * SIGNALS, ">=", 1)
                assert (np.asarray(memory)[1 << 18 :][:4096] == 77).all()
            ring.barrier()
            await ring.quiet()
            assert proxy.statistics.regions == 2

    good_world(2, main)


def test_closing_carries_out_what_is_left():
    async def main(comm):
        proxy, memory = await opened(comm)
        ring = proxy.ring()
        for i in range(200):
            ring.put(0, 16, 0, (1 << 18) + 16 * i)
        await proxy.close()
        assert (np.asarray(memory)[1 << 18 :][:3200] == 1).all()
        with pytest.raises(ucp.UCXCloseError, match="the proxy has been closed"):
            ring.nop()
        with pytest.raises(ucp.UCXCloseError):
            await ring.quiet()
        with pytest.raises(ucp.UCXCloseError):
            proxy.ring()
        await proxy.close()
        assert "closed" in repr(proxy)

    good_world(1, main)


def test_closing_gives_up_after_the_timeout():
    async def main(comm):
        proxy, _ = await opened(comm)
        if comm.rank == 0:
            ring = proxy.ring()
            ring.barrier()
            with pytest.raises(ucp.UCXTimeout, match="commands are left"):
                await proxy.close(0.05)
            with pytest.raises(ucp.UCXCloseError, match="the time was out"):
                await ring.quiet()
        await comm.barrier()
        proxy.abort()

    good_world(2, main)


def test_a_ring_says_that_abort_ended_its_proxy():
    async def main(comm):
        proxy, _ = await opened(comm)
        ring = proxy.ring()
        proxy.abort()
        with pytest.raises(ucp.UCXCloseError, match=r"ended by abort\(\)"):
            await ring.quiet()

    good_world(1, main)


def test_who_closes_a_proxy_that_is_being_closed_waits_for_that():
    async def main(comm):
        proxy, _ = await opened(comm)
        ring = proxy.ring()
        if comm.rank == 0:
            ring.barrier()
            async with proxy:
                first = asyncio.create_task(proxy.close(20))
                await asyncio.sleep(0)
                second = asyncio.create_task(proxy.close(20))
                third = asyncio.create_task(proxy.close(20))
                await asyncio.sleep(0)
                third.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await third
                assert not first.done()
                await comm.barrier()
            assert first.done()
            await asyncio.gather(first, second)
            await ring.retire(0)  # it has been carried out
        else:
            await comm.barrier()
            ring.barrier()
            await ring.quiet()
            await proxy.close()

    good_world(2, main)


def test_a_close_ends_as_the_first_does():
    async def main(comm):
        for how in "cancelled", "too late":
            proxy, _ = await opened(comm)
            if comm.rank == 0:
                ring = proxy.ring()
                ring.barrier()
                first = asyncio.create_task(
                    proxy.close(0.05 if how == "too late" else 20)
                )
                await asyncio.sleep(0)
                second = asyncio.create_task(proxy.close(20))
                await asyncio.sleep(0)
                if how == "cancelled":
                    first.cancel()
                ends = await asyncio.gather(first, second, return_exceptions=True)
                expected = (
                    [asyncio.CancelledError, ucp.UCXCanceled]
                    if how == "cancelled"
                    else [ucp.UCXTimeout, ucp.UCXTimeout]
                )
                assert [type(end) for end in ends] == expected
                assert proxy.closed()
            await comm.barrier()
            proxy.abort()

    good_world(2, main)


def test_a_rank_that_does_not_come_is_not_waited_for():
    async def main(comm):
        if comm.rank == 0:
            with pytest.raises(ucp.UCXTimeout, match="not all ranks"):
                await Proxy.create(comm, timeout=0.05)
        await comm.barrier()
        if comm.rank == 1:
            with pytest.raises(ucp.UCXRankFailed, match="not all ranks"):
                await Proxy.create(comm)
        await comm.barrier()

    good_world(2, main)


WRITER = """
#include <umx/ring.h>
umx_ring_u64 write_one(const umx_ring *ring)
{
    umx_ring_producer producer;
    umx_ring_command nop = umx_ring_nop();
    umx_ring_producer_init(&producer, ring);
    return umx_ring_push(&producer, &nop, 1);
}
"""


def test_a_producer_in_c_wakes_the_proxy(tmp_path):
    if shutil.which("cc") is None:
        pytest.skip("no cc")
    (tmp_path / "writer.c").write_text(WRITER)
    library = tmp_path / "writer.so"
    flags = ["-shared", "-fPIC", f"-I{ROOT / 'include'}"]
    subprocess.run(["cc", *flags, "-o", library, tmp_path / "writer.c"], check=True)
    write_one = ctypes.CDLL(str(library)).write_one
    write_one.argtypes, write_one.restype = [ctypes.c_void_p], ctypes.c_uint64

    async def main(comm):
        proxy, _ = await opened(comm, spin=0)
        async with proxy:
            before = proxy.statistics.sleeps
            ring = proxy.ring(producers="several")  # that wakes it
            while proxy.statistics.sleeps == before:
                await asyncio.sleep(0.001)
            for number in range(20):
                assert write_one(ring.view) == 0
                while ring.retired <= number:
                    await asyncio.sleep(0.0001)

    good_world(1, main)


def test_one_that_is_dropped_ends():
    async def main(comm):
        proxy, memory = await opened(comm)
        ring = proxy.ring()
        ring.put(0, 16, 0, 1 << 18)
        waiting = ring.quiet()
        there = weakref.ref(proxy)
        del proxy, memory
        await waiting
        del waiting, ring
        gc.collect()
        while there() is not None:  # the loop lets the last request go
            await asyncio.sleep(0)

    good_world(1, main)


def test_a_cancelled_quiet_changes_nothing():
    async def main(comm):
        proxy, _ = await opened(comm)
        async with proxy:
            ring = proxy.ring()
            if comm.rank == 0:
                ring.barrier()
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(ring.quiet(), 0.01)
            await comm.barrier()
            if comm.rank == 1:
                ring.barrier()
            await ring.quiet()
            ring.barrier()
            await ring.quiet()

    good_world(2, main)


def test_several_proxies_work_side_by_side():
    async def main(comm):
        first, memory = await opened(comm)
        second = await Proxy.create(comm)
        await second.add_region(memory)
        async with first, second:
            one, two = first.ring(), second.ring()
            one.signal(1 - comm.rank, SIGNALS)
            two.signal(1 - comm.rank, SIGNALS)
            await memory.wait_until(8 * SIGNALS, ">=", 2)
            with pytest.raises(ValueError, match="several proxies"):
                await quiet_all([one, two])
            for ring in one, two:
                ring.barrier()
                await ring.quiet()

    good_world(2, main)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_a_forked_child_is_told():
    async def main(comm):
        proxy, _ = await opened(comm)
        async with proxy:
            ring = proxy.ring()
            child = os.fork()
            if child == 0:
                try:
                    ring.nop()
                except RuntimeError:
                    os._exit(0)
                os._exit(1)
            assert os.waitpid(child, 0)[1] == 0
            ring.put(0, 16, 0, 1 << 18)
            await ring.quiet()

    good_world(1, main)


def test_a_rank_that_is_killed_ends_the_rings_that_need_it():
    program = """
    from ucp.proxy import Proxy

    async def main():
        async with await connect() as comm:
            memory = ucp.Memory.allocate(1 << 20)
            proxy = await Proxy.create(comm)
            await proxy.add_region(memory)
            ring, other = proxy.ring(), proxy.ring()

            def barrier(_):
                other.barrier()
                return other.quiet()

            await comm.barrier()
            if comm.rank == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            if comm.rank == 0:
                try:
                    while True:
                        ring.put(2, 16, 0, 0)
                        await ring.quiet()
                        await asyncio.sleep(0.001)
                except ucp.UCXError as exc:
                    assert exc.rank == 2, exc
                    assert "rank 2" in str(exc), exc
                    assert "ended" in str(exc) or "onnection" in str(exc), exc
                    assert ring.error.rank == 2
                other.put(1, 16, 0, 0)
                await other.quiet()
                other.signal(1, 100)
                await other.quiet()
                for call in proxy.add_region, barrier:
                    try:
                        await call(memory)
                    except ucp.UCXRankFailed as exc:
                        assert exc.rank == 2, exc
                        assert isinstance(exc.__cause__, ucp.UCXConnectionReset)
                        assert "rank 2 has ended" in str(exc), exc
                    else:
                        raise AssertionError(call)
            else:
                await memory.wait_until(800, ">=", 1)
            proxy.abort()
            print("good", flush=True)

    asyncio.run(main())
    """
    with Ranks(3, program) as ranks:
        assert ranks.end(0) == "good"
        assert ranks.end(1) == "good"


@pytest.mark.parametrize("kind", ["put", "signal"])
def test_closed_memory_is_written_by_no_rank(kind):
    async def main(comm):
        proxy, memory = await opened(comm)
        async with proxy:
            if comm.rank == 1:
                memory.close()
            await comm.barrier()
            ring = proxy.ring()
            if kind == "put":
                ring.put(1, 16, 0, 1 << 18)
            else:
                ring.signal(1, SIGNALS)
            expected = "rank 1: it has ended, or has closed its memory"
            with pytest.raises(ucp.UCXInvalidKey, match=expected) as caught:
                await ring.quiet()
            assert caught.value.rank == 1
            await comm.barrier()

    good_world(2, main)


def test_memories_of_a_region_are_kept():
    async def main(comm):
        proxy, memory = await opened(comm)
        there = weakref.ref(memory)
        del memory
        gc.collect()
        await comm.barrier()
        async with proxy:
            ring = proxy.ring()
            for rank in range(2):
                ring.put(rank, 16, 0, 1 << 18)
            ring.barrier()
            await ring.quiet()
            assert there() is not None
        assert there() is None

    good_world(2, main)


def test_a_quiet_command_stands_in_a_batch():
    async def main(comm):
        proxy, memory = await opened(comm)
        async with proxy:
            ring = proxy.ring()
            last = await ring.push(np.array([put(0, 16, 0, 1 << 18), quiet()], "u8"))
            await ring.retire(last)
            assert (np.asarray(memory)[1 << 18 :][:16] == 1).all()

    good_world(1, main)


def test_commands_of_a_compiled_producer():
    numba = pytest.importorskip("numba", reason="numba is not installed")

    @numba.njit
    def fill(commands, remote):
        for i in range(len(commands)):
            commands[i, 0] = 1 | 16 << 32
            commands[i, 1] = ((remote + 16 * i) >> 4) << 32

    async def main(comm):
        proxy, memory = await opened(comm)
        async with proxy:
            ring = proxy.ring()
            commands = np.zeros((100, 2), "u8")
            fill(commands, 1 << 18)
            await ring.push(commands)
            await ring.quiet()
            assert (np.asarray(memory)[1 << 18 :][:1600] == 1).all()

    good_world(1, main)


def test_the_example_runs():
    done = subprocess.run(
        [
            sys.executable,
            "-P",
            "-m",
            "ucp",
            "run",
            "-n",
            "2",
            EXAMPLES / "proxy_ring.py",
        ],
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert done.returncode == 0, done.stderr
    assert "[1] 100 blocks are there" in done.stdout
    assert "puts=100, signals=100" in done.stdout
