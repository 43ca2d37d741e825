# SPDX-License-Identifier: BSD-3-Clause
"""Waiting for a number in memory of one's own."""

import asyncio
import threading

import numpy as np
import pytest

import ucp
import ucp.sync

# Peers map what is allocated, and ask this process for what is registered.
MEMORIES = {
    "mapped": lambda: ucp.Memory.allocate(64),
    "executed": lambda: ucp.Memory.register(np.zeros(8, "u8")),
}

CHANGES = [
    "await remote.put(np.array([1], 'u8'), 8)",
    "await remote.put_many([(np.array([1], 'u8'), 8), (b'x', 40)])",
    "await remote.put_signal(b'data', 32, 8, 1)",
    "await remote.put_signal(b'data', 32, 8, 1, 'add')",
    "await remote.add(8, 1)",
    "await remote.swap(8, 1)",
    "await remote.cswap(8, 0, 1)",
]


@pytest.fixture(params=MEMORIES)
def memory(request, transport):
    with MEMORIES[request.param]() as memory:
        yield memory


@pytest.fixture
def plain_memory(fresh_ucx):
    with ucp.Memory.allocate(64) as memory:
        yield memory


def numbers(memory):
    return np.asarray(memory).view("u8")


@pytest.fixture
def connect_writer(connect_peer):
    """A peer that has opened ``memory`` as ``remote``."""

    async def connect(memory):
        peer, ep = await connect_peer()
        await peer.do(f"remote = ep.remote({memory.key!r})")
        return peer, ep

    return connect


async def until_unused():
    while ucp.current_worker().statistics.requests_in_use:
        await asyncio.sleep(0)


async def asleep(awaitable):
    """A task that waits, in a loop that has had nothing to do since."""
    task = asyncio.ensure_future(awaitable)
    await asyncio.to_thread(int)
    assert not task.done()
    return task


# ---- waking ----------------------------------------------------------------


class TestWaking:
    @pytest.mark.parametrize("change", CHANGES)
    async def test_each_operation_wakes(self, connect_writer, memory, change):
        peer, _ep = await connect_writer(memory)
        for round in range(3):
            numbers(memory)[:] = 0
            waiting = await asleep(memory.wait_until(8, "==", 1))
            await peer.do(change)
            async with asyncio.timeout(10):
                await waiting
            assert numbers(memory)[1] == 1, round

    async def test_who_waits_sees_what_came_before_the_signal(
        self, connect_writer, memory
    ):
        peer, _ep = await connect_writer(memory)
        await peer.do(
            "async def write():\n"
            "    for i in range(1, 301):\n"
            "        await remote.put_signal(np.array([i], 'u8'), 16, 8, i)\n"
            "        while i % 3 == 0 and not await remote.fetch_add(24, 0) == i:\n"
            "            await asyncio.sleep(0)"
        )
        writing = peer.begin("await write()")
        async with asyncio.timeout(30):
            for i in range(3, 301, 3):
                await memory.wait_until(8, ">=", i)
                assert numbers(memory)[2] >= i
                numbers(memory)[3] = i
        await peer.result(writing)

    async def test_stores_of_a_peer_need_its_notify(self, fresh_ucx, connect_writer):
        with ucp.Memory.allocate(64) as memory:
            peer, _ep = await connect_writer(memory)
            await peer.do("view = np.frombuffer(remote.view(), 'u8')")
            waiting = await asleep(memory.wait_until(8, ">", 4))
            await peer.do("view[1] = 5")
            await peer.do("remote.notify()")
            async with asyncio.timeout(10):
                await waiting

    async def test_stores_of_its_own_need_notify(self, memory):
        waiting = await asleep(memory.wait_until(8, "!=", 0))
        numbers(memory)[1] = 2
        memory.notify()
        async with asyncio.timeout(10):
            await waiting

    async def test_a_thread_may_notify(self, plain_memory):
        waiting = await asleep(plain_memory.wait_until(0, "!=", 0))

        def store():
            numbers(plain_memory)[0] = 1
            plain_memory.notify()

        await asyncio.to_thread(store)
        async with asyncio.timeout(10):
            await waiting

    async def test_a_dead_writer_is_noticed(self, fresh_ucx, connect_writer):
        with ucp.Memory.allocate(64) as memory:
            peer, _ep = await connect_writer(memory)
            await peer.do("view = np.frombuffer(remote.view(), 'u8')")
            waiting = await asleep(memory.wait_until(8, "==", 5))
            await peer.do("view[1] = 5")  # which wakes nobody by itself
            peer.kill()
            async with asyncio.timeout(10):
                await waiting

    async def test_a_second_thread_hears_of_it(self, connect_writer, memory):
        peer, _ep = await connect_writer(memory)
        with ucp.current_worker().run_in_thread():
            waiting = asyncio.ensure_future(memory.wait_until(8, "==", 3))
            await asyncio.to_thread(int)
            await peer.do("await remote.put_signal(b'', 0, 8, 3)")
            async with asyncio.timeout(10):
                await waiting

    async def test_many_wait_at_once(self, connect_writer, memory):
        peer, _ep = await connect_writer(memory)
        waiting = [
            asyncio.ensure_future(memory.wait_until(8, ">=", i + 1)) for i in range(20)
        ]
        for i in range(20):
            assert not waiting[i].done()
            await peer.do("await remote.put_signal(b'', 0, 8, 1, 'add')")
            async with asyncio.timeout(10):
                await waiting[i]

    async def test_what_is_true_is_done_at_once(self, plain_memory):
        assert plain_memory.wait_until(0, "==", 0).done()

    def test_each_loop_waits_in_its_own_worker(self, plain_memory):
        """The worker that was used last is kept in mind."""

        async def wait():
            waiting = await asleep(plain_memory.wait_until(0, "==", 1))
            asyncio.get_running_loop().call_later(0.01, store)
            await waiting
            numbers(plain_memory)[0] = 0

        def store():
            numbers(plain_memory)[0] = 1
            plain_memory.notify()

        for _ in range(3):
            asyncio.run(wait())
        thread = threading.Thread(target=asyncio.run, args=(wait(),))
        thread.start()
        thread.join()
        asyncio.run(wait())


# ---- conditions ------------------------------------------------------------


class TestConditions:
    @pytest.mark.parametrize("bits", [32, 64])
    @pytest.mark.parametrize(
        ("cmp", "enough"),
        [
            ("==", [5]),
            ("!=", [4, 6]),
            (">", [6]),
            (">=", [5, 6]),
            ("<", [4]),
            ("<=", [4, 5]),
        ],
    )
    async def test_comparisons(self, plain_memory, bits, cmp, enough):
        numbers = np.asarray(plain_memory).view(f"u{bits // 8}")
        for number in (4, 5, 6):
            numbers[2] = number
            request = plain_memory.wait_until(2 * bits // 8, cmp, 5, bits)
            test = plain_memory.test(2 * bits // 8, cmp, 5, bits=bits)
            assert test is (number in enough)
            assert request.done() == (number in enough)
            request.cancel()

    async def test_numbers_have_no_sign(self, plain_memory):
        numbers(plain_memory)[0] = (1 << 64) - 1
        assert plain_memory.wait_until(0, ">=", (1 << 64) - 1).done()
        assert plain_memory.wait_until(0, ">", 5).done()

    @pytest.mark.parametrize(
        ("arguments", "error", "text"),
        [
            ((64, "==", 1), IndexError, "8 bytes at offset 64 are out of .* 64"),
            ((60, "==", 1), IndexError, "8 bytes at offset 60 are out of .* 64"),
            ((-1, "==", 1), IndexError, "the offset -1 is not a number of 64 bits .*"),
            ((4, "==", 1), ValueError, "the number of 8 bytes at offset 4 is not al.*"),
            ((2, "==", 1, 32), ValueError, "the number of 4 bytes at offset 2 is .*"),
            ((0, "=>", 1), ValueError, "the comparison is '==', .*, not '=>'"),
            ((0, None, 1), ValueError, "the comparison is '==', .*, not None"),
            ((0, "==", -1), OverflowError, "the value -1 is not a number of 64 .*"),
            ((0, "==", 1 << 32, 32), OverflowError, "the value 4294967296 is not .*"),
            ((0, "==", 1, 16), ValueError, "bits is 32 or 64, not 16"),
            ((0, "==", 1.5), TypeError, ".*float.*"),
            (("0", "==", 1), TypeError, ".*str.*"),
        ],
    )
    async def test_bad_arguments_are_named(self, plain_memory, arguments, error, text):
        for call in (plain_memory.wait_until, plain_memory.test):
            with pytest.raises(error, match=rf"^{text}$"):
                call(*arguments)

    async def test_a_closed_memory_is_not_tested(self, plain_memory):
        plain_memory.close()
        with pytest.raises(ucp.UCXInvalidKey):
            plain_memory.test(0, "==", 0)

    def test_any_thread_may_test(self, plain_memory):
        results = []
        thread = threading.Thread(
            target=lambda: results.append(plain_memory.test(0, "==", 0))
        )
        thread.start()
        thread.join()
        assert results == [True]


# ---- ends ------------------------------------------------------------------


class TestEnds:
    async def test_a_timeout_ends_it(self, plain_memory):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await plain_memory.wait_until(0, "==", 1)
        await until_unused()

    async def test_a_cancelled_one_is_over(self, memory):
        waiting = await asleep(memory.wait_until(0, "==", 1))
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await until_unused()

    async def test_closing_the_memory_ends_it(self, memory):
        waiting = await asleep(memory.wait_until(0, "==", 1))
        memory.close()
        async with asyncio.timeout(10):
            with pytest.raises(ucp.UCXInvalidKey, match="the memory is closed"):
                await waiting
        with pytest.raises(ucp.UCXInvalidKey):
            memory.wait_until(0, "==", 1)
        with pytest.raises(ucp.UCXInvalidKey):
            memory.notify()

    async def test_a_thread_may_close_it(self, plain_memory):
        waiting = await asleep(plain_memory.wait_until(0, "==", 1))
        await asyncio.to_thread(plain_memory.close)
        async with asyncio.timeout(10):
            with pytest.raises(ucp.UCXInvalidKey):
                await waiting

    async def test_the_end_of_the_worker_ends_it(self, plain_memory):
        waiting = await asleep(plain_memory.wait_until(0, "==", 1))
        ucp.current_worker().abort()
        with pytest.raises(ucp.UCXCanceled):
            await waiting

    async def test_a_wait_keeps_the_memory(self, fresh_ucx):
        memory = ucp.Memory.allocate(8)
        view = numbers(memory)
        request = memory.wait_until(0, "==", 1)
        del memory
        view[0] = 1
        async with asyncio.timeout(10):
            await request

    async def test_one_that_is_dropped_is_withdrawn(self, plain_memory):
        request = plain_memory.wait_until(0, "==", 1)
        with pytest.warns(RuntimeWarning, match=r"wait_until\(\) was dropped"):
            del request
        await until_unused()


# ---- a signal elsewhere ----------------------------------------------------


class TestSignalMemory:
    @pytest.mark.parametrize("data", MEMORIES)
    async def test_it_follows_the_bytes(self, connect_writer, memory, data):
        with MEMORIES[data]() as bytes_here:
            peer, _ep = await connect_writer(memory)
            await peer.do(f"data = ep.remote({bytes_here.key!r})")
            waiting = await asleep(memory.wait_until(16, "==", 7))
            await peer.do("await data.put_signal(b'12345678', 8, 16, 7, 'set', remote)")
            async with asyncio.timeout(10):
                await waiting
            assert bytes(bytes_here)[8:16] == b"12345678"
            assert numbers(memory)[2] == 7

    async def test_it_is_of_the_same_endpoint(self, fresh_ucx, connect_peer):
        _peer, ep = await connect_peer()
        peer, other = await connect_peer()
        await peer.do("memory = ucp.Memory.allocate(64)")
        key = await peer.do("memory.key")
        remote = other.remote(key)
        with pytest.raises(TypeError, match=r"^signal_memory is a RemoteMemory, not"):
            remote.put_signal(b"", 0, 8, 1, signal_memory=key)
        await _peer.do("memory = ucp.Memory.allocate(16)")
        elsewhere = ep.remote(await _peer.do("memory.key"))
        with pytest.raises(ValueError, match=r"^signal_memory is of another endpoint$"):
            remote.put_signal(b"", 0, 8, 1, signal_memory=elsewhere)
        with pytest.raises(IndexError):
            remote.put_signal(b"", 0, 64, 1, signal_memory=remote)
        await remote.put_signal(b"", 0, 8, 1, signal_memory=remote)
        assert await remote.fetch_add(8, 0) == 1


# ---- blocking --------------------------------------------------------------


class TestBlocking:
    def test_a_thread_waits(self, plain_memory):
        def store():
            numbers(plain_memory)[0] = 3
            plain_memory.notify()

        timer = threading.Timer(0.05, store)
        timer.start()
        ucp.sync.wait_until(plain_memory, 0, ">=", 3, timeout=10)
        timer.join()

    def test_a_timeout_names_itself(self, plain_memory):
        with pytest.raises(
            ucp.UCXTimeout, match=r"^wait_until: not done within 0.01 s$"
        ):
            ucp.sync.wait_until(plain_memory, 0, ">=", 3, timeout=0.01)
        with pytest.raises(IndexError):
            ucp.sync.wait_until(plain_memory, 64, ">=", 3)
