# SPDX-License-Identifier: BSD-3-Clause
# tests: ext/step
"""ucp.gather(): results in order, failures, cancels, fairness."""

import asyncio
import contextvars
import gc
import time

import pytest

import ucp
from ucp import _ext
from ucp.testing import connected_pair, until

# How many messages, of how many bytes.
MANY = [
    (1, 0),
    (2, 0),
    (64, 0),
    (1, 8),
    (64, 8),
    (2, 100_000),
    (64, 100_000),
    (2, 3_000_000),
]


async def test_nothing_gives_an_empty_list():
    assert await ucp.gather() == []
    assert await ucp.gather(return_exceptions=True) == []


@pytest.mark.parametrize("return_exceptions", [False, True])
async def test_results_come_in_order(return_exceptions, loop_factory):
    async with connected_pair() as (left, right):
        for count, size in MANY:
            got = [bytearray(size) for _ in range(count)]
            sent = [bytes([n]) * size for n in range(count)]
            receives = [right.recv_into(buffer) for buffer in got]
            sends = [left.send(data) for data in sent]
            results = await ucp.gather(
                *receives, *sends, return_exceptions=return_exceptions
            )
            assert results == [size] * count + [None] * count
            assert got == sent
            assert await ucp.gather(*receives) == [size] * count  # once more


async def test_objects_that_are_received_come_in_order():
    async with connected_pair() as (left, right):
        receives = [right.recv_obj() for _ in range(10)]
        for n in range(10):
            await left.send_obj(bytes([n]))
        assert await ucp.gather(*receives) == [bytes([n]) for n in range(10)]


async def test_coroutines_tasks_and_futures_take_part():
    async def after(delay, value):
        await asyncio.sleep(delay)
        return value

    async with connected_pair() as (left, right):
        future = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(0.01, future.set_result, "future")
        results = await ucp.gather(
            after(0, "coroutine"),
            right.recv_obj(),
            asyncio.create_task(after(0.01, "task")),
            left.send_obj(b"sent"),
            future,
        )
        assert results == ["coroutine", b"sent", "task", None, "future"]


async def test_what_cannot_be_awaited_is_refused():
    with pytest.raises(TypeError):
        await ucp.gather(5)


async def test_the_first_failure_in_time_ends_the_wait_and_the_others_go_on():
    async with connected_pair() as (left, right):
        async with connected_pair() as (other, far):
            waiting = right.recv_obj()
            fails = other.recv_obj()
            asyncio.get_running_loop().call_later(0.02, far.abort)
            with pytest.raises(ucp.UCXError):
                await ucp.gather(waiting, fails, left.send_obj(b"x", tag=5))
            assert not waiting.done()
        await left.send_obj(b"late")
        assert await waiting == b"late"


async def test_one_that_has_failed_already_is_raised_at_once():
    async with connected_pair() as (left, right):
        waiting = right.recv_obj()
        failed = right.recv_into(bytearray(1), tag=1)
        await left.send(b"too long", tag=1)
        await asyncio.wait([asyncio.ensure_future(failed)])
        with pytest.raises(ucp.UCXMsgTruncated):
            await ucp.gather(waiting, failed)
        with pytest.raises(ucp.UCXMsgTruncated):
            await ucp.gather(failed, waiting)
        with pytest.raises(ucp.UCXMsgTruncated):
            await ucp.gather(failed)
        assert not waiting.done()
        waiting.cancel()


async def test_exceptions_are_returned_in_their_places():
    async with connected_pair() as (left, right):
        short = right.recv_into(bytearray(1), tag=1)
        whole = right.recv_into(bytearray(8), tag=2)
        given_up = right.recv_into(bytearray(8), tag=3)
        given_up.cancel()
        sends = [left.send(b"too long", tag=tag) for tag in (1, 2)]
        results = await ucp.gather(
            short, whole, given_up, *sends, return_exceptions=True
        )
        assert isinstance(results[0], ucp.UCXMsgTruncated)
        assert results[1] == 8
        assert isinstance(results[2], asyncio.CancelledError)
        assert results[3:] == [None, None]


async def test_a_cancelled_operation_cancels_as_with_asyncio():
    async with connected_pair() as (_, right):
        receives = [right.recv_into(bytearray(8)) for _ in range(3)]
        asyncio.get_running_loop().call_later(0.01, receives[1].cancel)
        with pytest.raises(asyncio.CancelledError):
            await ucp.gather(*receives)
        assert not receives[0].done()
        assert not receives[2].done()
        for receive in receives:
            receive.cancel()


@pytest.mark.parametrize("how", ["timeout", "cancel", "cancel before it begins"])
async def test_what_a_cancelled_gather_has_received_goes_to_the_next(how):
    async with connected_pair() as (left, right):
        for size in (8, 100_000, 3_000_000):
            await give_up(left, right, size, how)


async def give_up(left, right, size, how):
    got = [bytearray(size) for _ in range(4)]
    receives = [right.recv_into(buffer) for buffer in got]
    await left.send(b"a" * size)
    if how == "timeout":
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await ucp.gather(*receives)
    else:
        task = asyncio.ensure_future(ucp.gather(*receives))
        if how == "cancel":
            await asyncio.sleep(0)
            await until(receives[0].done)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert all(receive.done() for receive in receives)
    for buffer in got:
        buffer[:] = b"\0" * size  # the program's own again
    sending = left.send(b"b" * size)
    again = [bytearray(size) for _ in range(2)]
    assert await ucp.gather(*map(right.recv_into, again)) == [size, size]
    await sending
    assert again == [bytearray(b"a" * size), bytearray(b"b" * size)]
    assert not any(map(any, got))


@pytest.mark.parametrize("kind", ["obj", "pickle", "with a callback", "twice"])
async def test_whatever_has_come_of_a_cancelled_gather_comes_again(kind):
    async with connected_pair() as (left, right):
        is_pickle = kind == "pickle"

        def receive():
            return (
                right.recv_pickle(allow_pickle=True) if is_pickle else right.recv_obj()
            )

        first, second = receive(), receive()
        if kind == "with a callback":
            first.add_done_callback(lambda _: None)
        tasks = [asyncio.ensure_future(ucp.gather(first, second))]
        if kind == "twice":
            tasks.append(asyncio.ensure_future(ucp.gather(second, first)))
        await (left.send_pickle({"a": 1}) if is_pickle else left.send_obj(b"a"))
        await until(first.done)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        assert all(task.cancelled() for task in tasks)
        async with asyncio.timeout(5):
            assert await receive() == ({"a": 1} if is_pickle else b"a")


async def test_one_that_is_cancelled_when_all_is_done_gives_back_what_has_come():
    async with connected_pair() as (left, right):

        async def late():
            time.sleep(0.002)  # the loop is due
            await ucp.gather(receive)

        for number in range(20):
            receive = right.recv_obj()
            await left.send_obj(bytes([number]))
            await until(receive.done)
            task = asyncio.create_task(late())
            asyncio.get_running_loop().call_soon(task.cancel)
            await asyncio.wait([task])
            if task.cancelled():
                async with asyncio.timeout(5):
                    assert await right.recv_obj() == bytes([number])


async def test_what_is_given_twice_is_awaited_once():
    async def once():
        return 5

    coroutine = once()
    async with connected_pair() as (left, right):
        receive = right.recv_obj()
        sending = left.send_obj(b"x")
        results = await ucp.gather(coroutine, receive, coroutine, receive, sending)
        assert results == [5, b"x", 5, b"x", None]


async def test_what_is_of_another_loop_is_refused():
    loop = asyncio.new_event_loop()
    future = loop.create_future()
    with pytest.raises(RuntimeError, match="different event loop"):
        await ucp.gather(future)
    future.set_result(5)
    with pytest.raises(RuntimeError, match="different event loop"):
        await ucp.gather(future)
    loop.close()


async def test_exceptions_that_end_programs_are_returned_like_others():
    future = asyncio.get_running_loop().create_future()
    future.set_exception(SystemExit(3))
    [outcome] = await ucp.gather(future, return_exceptions=True)
    assert isinstance(outcome, SystemExit)


async def test_a_loop_of_gathers_that_are_done_at_once_lets_others_run():
    async with connected_pair() as (left, right):
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                await asyncio.sleep(0)
                ticks += 1

        task = asyncio.create_task(tick())
        buffer = bytearray(8)
        for _ in range(3000):
            await ucp.gather(left.send(b"12345678"), right.recv_into(buffer))
        assert ticks > 10
        task.cancel()


async def test_callbacks_see_the_context_of_the_caller():
    seen = []
    name = contextvars.ContextVar("name", default="none")

    async def main(receives, value):
        name.set(value)
        await ucp.gather(*receives)
        seen.append(name.get())

    async with connected_pair() as (left, right):
        receives = [right.recv_into(bytearray(1)) for _ in range(2)]
        task = asyncio.create_task(main(receives, "first"))
        await asyncio.sleep(0)
        await left.send(b"1")
        await until(receives[0].done)
        await left.send(b"2")
        await task
    assert seen == ["first"]


async def test_failures_that_come_later_are_not_reported_as_unseen(loop_factory):
    reports = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: reports.append(context))
    async with connected_pair() as (left, right):
        receives = [right.recv_obj() for _ in range(3)]
        left.abort()
        with pytest.raises(ucp.UCXError):
            await ucp.gather(*receives)
        await asyncio.wait(map(asyncio.ensure_future, receives))
        del receives
        gc.collect()
        await asyncio.sleep(0)
    assert reports == []


async def test_it_may_be_dropped_before_it_has_begun():
    async with connected_pair() as (left, right):
        receive = right.recv_obj()
        waiting = ucp.gather(receive)
        waiting.close()
        await left.send_obj(b"1")
        assert await receive == b"1"


async def test_the_callback_wants_its_own_state():
    for state in (None, [], [None, 1, None], [None, "1", None, True], (1, 2, 3, 4)):
        with pytest.raises(TypeError):
            _ext.gather_callback(state)
    with pytest.raises(TypeError):
        _ext.gather_results([])
    assert _ext.gather_results((1,)) is None
