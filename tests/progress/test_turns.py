# SPDX-License-Identifier: BSD-3-Clause
# tests: ext/turn
"""The event loop gets its turn between awaits that need none."""

import asyncio
import threading
import time

import pytest
from conftest import TLS

import ucp
from ucp.testing import connected_pair


async def count_turns(work):
    """How many turns the loop had until ``work`` was done."""
    turns = 0

    async def count():
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counting = asyncio.create_task(count())
    await asyncio.sleep(0)
    await work
    counting.cancel()
    return turns


@pytest.fixture(params=TLS)
def no_budget(request):
    """Each turn is over as soon as it begins."""
    ucp.reset()
    ucp.init(TLS[request.param], config=ucp.Config(drain=0))
    yield
    ucp.reset()


async def arrive(client, server, messages):
    """Send them, and wait until the last one is there."""
    sending = client.send_many(messages)
    last = client.send(b"", tag=1)
    await server.recv(bytearray(), tag=1)
    await sending
    await last


async def receive(server, count, size):
    buffer = bytearray(size)
    for _ in range(count):
        await server.recv(buffer)


@pytest.mark.parametrize(("count", "size", "least"), [(160, 1, 9), (30, 8192, 4)])
async def test_messages_that_are_there_leave_the_loop_its_turns(
    no_budget, count, size, least
):
    """An await in sixteen; more often where much is copied."""
    async with connected_pair() as (client, server):
        await arrive(client, server, [bytes(size)] * count)
        assert await count_turns(receive(server, count, size)) >= least


async def test_who_waits_for_a_turn_before_it_receives_is_cancelled(no_budget):
    async with connected_pair() as (client, server):
        buffer = bytearray(1)
        receiving = asyncio.create_task(server.recv(buffer))
        await asyncio.sleep(0)
        receiving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await receiving
        await client.send(b"x")
        await server.recv(buffer)
        assert buffer == b"x"


async def test_large_messages_go_through_turns_without_a_budget(no_budget):
    async with connected_pair() as (client, server):
        sent = bytes(range(256)) * 65536
        buffer = bytearray(len(sent))
        sending = client.send(sent)
        await server.recv(buffer)
        await sending
        assert buffer == sent


async def test_wakes_that_a_turn_has_no_time_for_come_in_the_next(no_budget):
    async with connected_pair() as (client, server):
        buffers = [bytearray(1) for _ in range(100)]
        waiting = [
            asyncio.create_task(_awaited(server.recv(buffer))) for buffer in buffers
        ]
        await asyncio.sleep(0)
        await client.send_many([bytes([i]) for i in range(100)])
        await asyncio.gather(*waiting)
        assert b"".join(buffers) == bytes(range(100))


async def _awaited(request):
    return await request


async def test_a_probe_removes_a_message_in_any_turn(no_budget):
    """It waits for no turn: the message is taken whatever the time is."""
    ucxx = pytest.importorskip("ucp.compat.ucxx")
    async with connected_pair() as (client, server):
        for number in range(64):
            await client.send(bytes([number]), tag=5, force_tag=True)
        await client.send(b"", tag=6, force_tag=True)
        await server.worker.recv(bytearray(), 6)
        probing = ucxx.Endpoint(server)
        taken = [probing.tag_probe(5, True, remove=True) for _ in range(64)]
        assert all(found.matched and found.handle is not None for found in taken)
        buffer = bytearray(1)
        for number, found in enumerate(taken):
            await found.handle.recv(buffer)
            assert buffer[0] == number


async def test_callbacks_run_in_the_order_of_completion(no_budget):
    """What one turn has no time for is not overtaken by what comes in the next."""
    count = 300
    async with connected_pair() as (client, server):
        seen = []
        requests = [server.recv(bytearray(1)) for _ in range(count)]
        for number, request in enumerate(requests):
            request.add_done_callback(lambda _, number=number: seen.append(number))
        for number in range(count):
            await client.send(b"x")
            if number % 7 == 0:
                await requests[number]
        while len(seen) < count:
            await asyncio.sleep(0)
        assert seen == list(range(count))


@pytest.fixture
def short_budget():
    """Turns are over soon, and may be extended."""
    ucp.reset()
    ucp.init(TLS["shm"], config=ucp.Config(drain=1e-6))
    yield
    ucp.reset()


async def extended_turns(client, server):
    """How many turns became longer while 2000 messages went to and fro."""
    before = client.worker.statistics.extended_turns
    buffer = bytearray(1)
    for _ in range(1000):
        receiving = server.recv(buffer)
        await client.send(b"x")
        await receiving
        await server.send(b"x")
        await client.recv(buffer)
    return client.worker.statistics.extended_turns - before


async def test_a_turn_is_longer_if_nobody_waits_for_the_loop(short_budget):
    async with connected_pair() as (client, server):
        assert await extended_turns(client, server) > 0


async def test_no_turn_is_longer_while_a_callback_waits(short_budget):
    async with connected_pair() as (client, server):
        loop = asyncio.get_running_loop()
        handle = None

        def again():
            nonlocal handle
            handle = loop.call_soon(again)

        again()
        await asyncio.sleep(0)
        assert await extended_turns(client, server) == 0
        handle.cancel()


async def test_no_turn_is_longer_while_a_timer_is_due(short_budget):
    async with connected_pair() as (client, server):
        loop = asyncio.get_running_loop()
        timer = None

        def again():
            nonlocal timer
            timer = loop.call_at(loop.time() - 1, again)

        again()
        assert await extended_turns(client, server) == 0
        timer.cancel()


@pytest.fixture
def long_budget():
    """Turns are over when a test says so."""
    ucp.reset()
    ucp.init(TLS["shm"], config=ucp.Config(drain=0.2))
    yield 0.2
    ucp.reset()


async def test_no_turn_is_longer_while_another_request_waits_for_its_callback(
    long_budget,
):
    async with connected_pair() as (client, server):
        finished = await finished_receives(client, server, 32)
        await asyncio.sleep(0)
        seen = []
        other = server.recv(bytearray(1), tag=2)
        other.add_done_callback(seen.append)
        await client.send(b"x", tag=2)
        await arrive(client, server, [])
        assert other.done()
        assert seen == []
        before = client.worker.statistics.extended_turns
        end = time.perf_counter() + long_budget
        while time.perf_counter() < end:
            pass
        await await_each(finished)
        assert seen == [other]
        assert client.worker.statistics.extended_turns == before


class Loop(asyncio.SelectorEventLoop):
    """Notes which threads call it, and that a task makes it tell its timers."""

    def __init__(self):
        self.callers = set()
        self.look_at_timers = None
        super().__init__()

    def call_soon(self, *args, **kwargs):
        self.callers.add(threading.get_ident())
        return super().call_soon(*args, **kwargs)

    @property
    def _scheduled(self):
        if self.look_at_timers is not None and asyncio.current_task(self) is not None:
            self.look_at_timers()
        return self._timers

    @_scheduled.setter
    def _scheduled(self, timers):
        self._timers = timers


async def finished_receives(client, server, count):
    requests = [server.recv(bytearray(1)) for _ in range(count)]
    await arrive(client, server, [b"x"] * count)
    assert all(request.done() for request in requests)
    return requests


async def await_each(requests):
    for request in requests:
        await request


def test_a_task_of_another_loop_leaves_this_ones_turns_alone(no_budget):
    async def main():
        loop = asyncio.get_running_loop()
        async with connected_pair() as (client, server):
            finished = await finished_receives(client, server, 64)
            await asyncio.sleep(0)
            is_asleep = threading.Event()
            loop.call_later(0.001, is_asleep.set)

            def elsewhere():
                assert is_asleep.wait(50)
                asyncio.run(await_each(finished))

            before = client.worker.statistics.extended_turns
            await asyncio.to_thread(elsewhere)
            assert client.worker.statistics.extended_turns == before
        assert loop.callers == {threading.get_ident()}

    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(main())


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_what_ends_the_program_while_the_timers_are_looked_at_is_raised(
    no_budget, error
):
    async def main():
        loop = asyncio.get_running_loop()
        async with connected_pair() as (client, server):
            finished = await finished_receives(client, server, 64)

            def end():
                loop.look_at_timers = None
                raise error

            await asyncio.sleep(0)
            loop.look_at_timers = end
            await await_each(finished)

    with asyncio.Runner(loop_factory=Loop) as runner, pytest.raises(error):
        runner.run(main())


def test_other_errors_of_the_timers_leave_turns_as_they_are(no_budget):
    async def main():
        loop = asyncio.get_running_loop()
        async with connected_pair() as (client, server):
            finished = await finished_receives(client, server, 64)
            seen = []

            def fail():
                loop.look_at_timers = None
                seen.append(1)
                raise ValueError

            before = 0
            for first in range(0, 64, 16):  # what else is due is looked at before
                await asyncio.sleep(0)
                before = client.worker.statistics.extended_turns
                loop.look_at_timers = fail
                await await_each(finished[first : first + 16])
                if seen:
                    break
            assert seen == [1]
            assert client.worker.statistics.extended_turns == before

    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(main())


@pytest.mark.parametrize("tasks", [2, 5])
async def test_tasks_that_never_wait_share_the_turns(tasks):
    ucp.reset()
    ucp.init(TLS["shm"], config=ucp.Config(drain=1e-4))
    counts = [0] * tasks
    is_over = False

    async def exchange(client, server, i):
        buffer = bytearray(1)
        while not is_over:
            receiving = server.recv(buffer, tag=i)
            await client.send(b"x", tag=i)
            await receiving
            counts[i] += 1

    async with connected_pair() as (client, server):
        async with asyncio.TaskGroup() as group:
            for i in range(tasks):
                group.create_task(exchange(client, server, i))
            while max(counts) < 20000:
                await asyncio.sleep(0)
            is_over = True
    assert min(counts) > max(counts) / 4
