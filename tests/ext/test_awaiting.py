# SPDX-License-Identifier: BSD-3-Clause
# tests: ext/future ext/internal ext/kind ext/life ext/request ext/step ext/wake
"""All of asyncio's and anyio's ways to wait take a Request, whatever becomes of it."""

import asyncio
import contextvars
import functools
import gc
import sys
import weakref

import anyio
import pytest

import ucp
from ucp.exceptions import UCXCloseError, UCXError, UCXMsgTruncated
from ucp.testing import connected_pair, until


async def _await(request):
    return await request


async def _gather(request):
    return (await asyncio.gather(request))[0]


async def _wait(request):
    done, _ = await asyncio.wait([asyncio.create_task(request)])
    return done.pop().result()


async def _wait_ensured(request):
    done, _ = await asyncio.wait([asyncio.ensure_future(request)])
    return done.pop().result()


async def _first_completed(request):
    other = asyncio.get_running_loop().create_future()
    done, _ = await asyncio.wait(
        {asyncio.ensure_future(request), other},
        return_when=asyncio.FIRST_COMPLETED,
    )
    return done.pop().result()


async def _await_ensured(request):
    return await asyncio.ensure_future(request)


async def _wait_for_ensured(request):
    return await asyncio.wait_for(asyncio.ensure_future(request), 50)


async def _gather_ensured(request):
    return (await asyncio.gather(*[asyncio.ensure_future(request)]))[0]


async def _task_of_ensured(request):
    return await asyncio.create_task(_await(asyncio.ensure_future(request)))


async def _as_completed(request):
    for first in asyncio.as_completed([request]):
        return await first


async def _shield(request):
    return await asyncio.shield(request)


async def _wait_for(request):
    return await asyncio.wait_for(request, 50)


async def _timeout(request):
    async with asyncio.timeout(50):
        return await request


async def _create_task(request):
    return await asyncio.create_task(request)


async def _task_group(request):
    async with asyncio.TaskGroup() as group:
        task = group.create_task(request)
    return task.result()


async def _move_on_after(request):
    with anyio.move_on_after(50):
        return await request


async def _fail_after(request):
    with anyio.fail_after(50):
        return await request


async def _anyio_task_group(request):
    results = []

    async def wait():
        results.append(await request)

    async with anyio.create_task_group() as group:
        group.start_soon(wait)
    return results[0]


WAYS = [
    _await,
    _gather,
    _wait,
    _wait_ensured,
    _first_completed,
    _await_ensured,
    _wait_for_ensured,
    _gather_ensured,
    _task_of_ensured,
    _as_completed,
    _shield,
    _wait_for,
    _timeout,
    _create_task,
    _task_group,
    _move_on_after,
    _fail_after,
    _anyio_task_group,
]

every_way = pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__[1:])


async def _until_unread(ep):
    while ep.probe() is None:
        await asyncio.sleep(0)


@every_way
async def test_a_finished_receive(way, loop_factory):
    async with connected_pair() as (client, server):
        await client.send(b"12345678")
        await _until_unread(server)
        buffer = bytearray(9)
        assert await way(server.recv_into(buffer)) == 8
        assert buffer == b"12345678\0"


@every_way
async def test_a_pending_receive(way, loop_factory):
    async with connected_pair() as (client, server):
        task = asyncio.create_task(way(server.recv_into(bytearray(9))))
        await asyncio.sleep(0)
        await client.send(b"12345678")
        assert await task == 8


@every_way
async def test_a_failing_receive(way, loop_factory):
    async with connected_pair() as (client, server):
        task = asyncio.create_task(way(server.recv(bytearray(3))))
        await asyncio.sleep(0)
        await client.send(b"12345678")
        with pytest.raises((UCXMsgTruncated, ExceptionGroup)) as caught:
            await task
        errors = getattr(caught.value, "exceptions", (caught.value,))
        assert [type(error) for error in errors] == [UCXMsgTruncated]


@every_way
async def test_a_cancelled_receive_takes_no_message(way, loop_factory):
    async with connected_pair() as (client, server):
        request = server.recv(bytearray(8))
        task = asyncio.create_task(way(request))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        request.cancel()  # shield() leaves it to us
        await client.send(b"12345678")
        assert await server.recv_into(bytearray(8)) == 8


def _complete(request, ep):
    """Have it complete within this turn of the loop: its callbacks wait."""
    while not request.done():
        ep.worker.progress()


@every_way
async def test_a_receive_cancelled_between_completion_and_callback_loses_nothing(
    way, loop_factory
):
    async with connected_pair() as (client, server):
        buffer = bytearray(8)
        request = server.recv(buffer)
        task = asyncio.create_task(way(request))
        for _ in range(3):
            await asyncio.sleep(0)
        sending = client.send(b"12345678")
        _complete(request, server)
        assert not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        # Of ways that do not cancel what they wait for it is left to us.
        if request.cancel() or request.cancelled():
            assert await server.recv_into(bytearray(8)) == 8
        else:
            assert buffer == b"12345678"
        await sending


async def test_a_cancelled_gather_gives_back_what_came_before_its_callbacks(
    loop_factory,
):
    async with connected_pair() as (client, server):
        requests = [server.recv(bytearray(8)) for _ in range(3)]
        gathering = asyncio.gather(*requests)
        sending = [client.send(b"message%d" % i) for i in range(2)]
        _complete(requests[1], server)
        assert not gathering.done()
        assert gathering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gathering
        assert all(request.cancelled() for request in requests)
        for i in range(2):
            buffer = bytearray(8)
            await server.recv(buffer)
            assert buffer == b"message%d" % i
        await asyncio.gather(*sending)


async def test_a_cancelled_as_completed_leaves_its_receives_to_the_program(
    loop_factory,
):
    async with connected_pair() as (client, server):
        request = server.recv(bytearray(8))
        task = asyncio.create_task(_as_completed(request))
        await asyncio.sleep(0)
        sending = client.send(b"12345678")
        _complete(request, server)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not request.cancelled()
        assert request.cancel()
        assert await server.recv_into(bytearray(8)) == 8
        await sending


# A receive, its send, and what the receive gives.
COMPLETED = {
    "recv": (
        lambda ep, data: ep.recv(bytearray(len(data))),
        lambda ep, data: ep.send(data),
    ),
    "recv_into": (
        lambda ep, data: ep.recv_into(bytearray(len(data) + 1)),
        lambda ep, data: ep.send(data),
    ),
    "recv_message": (
        lambda ep, data: ep.recv_message(),
        lambda ep, data: ep.send(data),
    ),
    "recv_many": (
        lambda ep, data: ep.recv_many([bytearray(len(data))] * 2),
        lambda ep, data: ep.send_many([data, data]),
    ),
    "recv_frames": (
        lambda ep, data: ep.recv_frames(),
        lambda ep, data: ep.send_frames([data]),
    ),
    "am_recv": (lambda ep, data: ep.am_recv(), lambda ep, data: ep.am_send(data)),
    "am_recv_message": (
        lambda ep, data: ep.am_recv_message(),
        lambda ep, data: ep.am_send(data),
    ),
    "stream_recv": (
        lambda ep, data: ep.stream_recv(bytearray(len(data))),
        lambda ep, data: ep.stream_send(data),
    ),
    "worker.recv": (
        lambda ep, data: ep.worker.recv(bytearray(len(data)), 1),
        lambda ep, data: ep.worker.send(ep, data, 1),
    ),
    "worker.recv_message": (
        lambda ep, data: ep.worker.recv_message(1),
        lambda ep, data: ep.worker.send(ep, data, 1),
    ),
}
every_completed = pytest.mark.parametrize(
    ("receive", "send"), COMPLETED.values(), ids=COMPLETED
)


@every_completed
@pytest.mark.parametrize("size", [8, 1 << 20])
async def test_cancel_gives_the_message_of_a_complete_receive_back(receive, send, size):
    async with connected_pair() as (client, server):
        data = bytes(size)
        first = receive(server, data)
        sending = send(client, data)
        _complete(first, server)
        assert first.cancel("why")
        assert first.cancelled()
        assert not first.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            first.result()
        assert caught.value.args == ("why",)
        again = receive(server, data)
        _complete(again, server)
        assert await again == again.result()
        if hasattr(again.result(), "recv"):
            buffer = bytearray(size)
            await again.result().recv(buffer)
        await sending


@every_completed
async def test_cancel_of_what_was_handed_out_is_refused(receive, send):
    for look in ("result", "exception"):
        async with connected_pair() as (client, server):
            request = receive(server, bytes(8))
            sending = send(client, bytes(8))
            _complete(request, server)
            getattr(request, look)()
            assert not request.cancel()
            assert not request.cancelled()
            assert request.exception() is None
            result = request.result()
            if hasattr(result, "recv"):
                await result.recv(bytearray(8))
            await sending


async def test_cancel_of_a_complete_send_is_refused():
    async with connected_pair() as (client, server):
        sending = client.send(b"12345678")
        _complete(sending, client)
        assert not sending.cancel()
        assert await server.recv_into(bytearray(8)) == 8
        await sending


@pytest.mark.parametrize("room", [7, 9])
async def test_cancel_of_a_receive_whose_length_differs_is_refused(room):
    async with connected_pair() as (client, server):
        request = server.recv(bytearray(room))
        sending = client.send(b"12345678")
        _complete(request, server)
        assert not request.cancel()
        with pytest.raises(UCXMsgTruncated):
            await request
        buffer = bytearray(8)
        await server.recv(buffer)
        assert buffer == b"12345678"
        await sending


async def test_cancel_gives_a_shorter_message_of_ucxs_own_tags_back():
    async with connected_pair() as (client, server):
        request = server.recv(bytearray(9), 1, True)
        sending = client.send(b"12345678", 1, True)
        _complete(request, server)
        assert request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        buffer = bytearray(8)
        await server.recv(buffer, 1, True)
        assert buffer == b"12345678"
        await sending


async def test_a_callback_and_a_task_get_the_same_message(loop_factory):
    async with connected_pair() as (client, server):
        for gather_first in (False, True):
            request = server.recv_message()
            waiting = [_gather(request), _await(request)]
            if not gather_first:
                waiting.reverse()
            tasks = [asyncio.create_task(each) for each in waiting]
            await asyncio.sleep(0)
            await client.send(b"12345678")
            first, second = [await task for task in tasks]
            assert first is second
            await first.recv(bytearray(8))


RECEIVES = {
    "recv": lambda ep: ep.recv(bytearray(8)),
    "recv_obj": lambda ep: ep.recv_obj(),
    "recv_many": lambda ep: ep.recv_many([bytearray(8)]),
    "recv_frames": lambda ep: ep.recv_frames(),
    "am_recv": lambda ep: ep.am_recv(),
    "stream_recv": lambda ep: ep.stream_recv(bytearray(8)),
    "worker.recv": lambda ep: ep.worker.recv(bytearray(8), 1),
    "channel": lambda ep: ep.channel(1).recv_message(),
}
every_receive = pytest.mark.parametrize("receive", RECEIVES.values(), ids=RECEIVES)


@every_receive
async def test_anyios_scopes_know_their_own_cancellation(receive, loop_factory):
    async with connected_pair() as (_client, server):
        with anyio.move_on_after(0.01) as scope:
            await receive(server)
        assert scope.cancelled_caught
        with pytest.raises(TimeoutError):
            with anyio.fail_after(0.01):
                await receive(server)
        async with anyio.create_task_group() as group:

            async def wait():
                await receive(server)

            group.start_soon(wait)
            await anyio.sleep(0)
            group.cancel_scope.cancel()
        assert group.cancel_scope.cancelled_caught


async def test_a_receive_that_an_anyio_scope_ends_takes_no_message(loop_factory):
    async with connected_pair() as (client, server):
        for _ in range(3):
            with anyio.move_on_after(0.01):
                await server.recv_obj()
        await client.send(b"12345678")
        assert await server.recv_obj() == b"12345678"


async def test_a_failing_task_of_an_anyio_group_ends_the_others(loop_factory):
    async with connected_pair() as (client, server):

        async def fail():
            await client.send(b"12345678", tag=1)
            await server.recv(bytearray(3), tag=1)

        with pytest.raises(ExceptionGroup) as caught:
            async with anyio.create_task_group() as group:
                group.start_soon(functools.partial(_await, server.recv(bytearray(8))))
                group.start_soon(fail)
        assert [type(error) for error in caught.value.exceptions] == [UCXMsgTruncated]


async def _pending_future(_ep):
    return asyncio.get_running_loop().create_future()


async def _pending_request(ep):
    return ep.recv(bytearray(8))


pending = pytest.mark.parametrize(
    "pending", [_pending_future, _pending_request], ids=["future", "request"]
)


@pending
@pytest.mark.parametrize(
    ("message", "args"), [("why", ("why",)), (None, ()), (0, (0,))], ids=str
)
async def test_the_message_of_cancel_is_everywhere(
    pending, message, args, loop_factory
):
    async with connected_pair() as (_client, server):
        waiting = await pending(server)
        assert waiting._cancel_message is None
        assert waiting.cancel(message)
        assert not waiting.cancel("too late")
        assert waiting._cancel_message == message
        assert waiting._make_cancelled_error().args == args
        for look in (waiting.result, waiting.exception):
            with pytest.raises(asyncio.CancelledError) as caught:
                look()
            assert caught.value.args == args
        with pytest.raises(asyncio.CancelledError) as caught:
            await waiting
        assert caught.value.args == args


async def test_the_message_of_cancel_goes_with_its_request():
    message = object()
    before = sys.getrefcount(message)
    async with connected_pair() as (_client, server):
        waiting = server.recv(bytearray(8))
        assert waiting.cancel(message)
        assert sys.getrefcount(message) > before
        del waiting
        await asyncio.sleep(0)
        assert sys.getrefcount(message) == before


@pending
async def test_the_message_of_a_tasks_cancel_arrives(pending, loop_factory):
    async with connected_pair() as (_client, server):
        waiting = await pending(server)
        caught = []

        async def wait():
            try:
                await waiting
            except asyncio.CancelledError as exc:
                caught.append(exc.args)
                raise

        task = asyncio.create_task(wait())
        await asyncio.sleep(0)
        task.cancel("why")
        with pytest.raises(asyncio.CancelledError) as outer:
            await task
        assert caught == [("why",)]
        assert outer.value.args == ("why",)


async def test_the_message_of_cancel_is_seen_by_the_collector():
    async with connected_pair() as (_client, server):
        request = server.recv(bytearray(8))

        class Message:
            pass

        message = Message()
        message.request = request
        request.cancel(message)
        alive = weakref.ref(message)
        del request, message

        def is_gone():
            gc.collect()
            return alive() is None

        await until(is_gone)


async def test_a_finished_send_is_awaited_again(loop_factory):
    async with connected_pair() as (client, server):
        request = client.send(b"x")
        assert await request is None
        assert await request is None
        assert await server.recv_into(bytearray(1)) == 1


async def test_wait_takes_tasks_only_as_with_coroutines(loop_factory):
    async with connected_pair() as (client, server):
        request = client.send(b"x")
        with pytest.raises(TypeError, match=r"^Passing coroutines is forbidden"):
            await asyncio.wait([request])
        await request
        await server.recv(bytearray(1))


async def test_a_request_is_a_future_from_the_start(loop_factory):
    async with connected_pair() as (client, server):
        for request in (client.send(b"12345678"), server.recv(bytearray(8))):
            assert asyncio.iscoroutine(request)
            assert asyncio.isfuture(request)
            assert not asyncio.iscoroutine(request)
            assert asyncio.ensure_future(request) is request
            assert isinstance(request, ucp.Request)
            assert request.get_loop() is asyncio.get_running_loop()
            await request


async def test_gather_makes_no_task_of_a_request(loop_factory):
    async with connected_pair() as (client, server):
        requests = [client.send(b"x"), server.recv(bytearray(1))]
        before = asyncio.all_tasks()
        gathering = asyncio.gather(*requests)
        assert asyncio.all_tasks() == before
        assert await gathering == [None, None]


async def test_create_task_refuses_what_has_been_asked_as_it_does_a_future(
    loop_factory,
):
    async with connected_pair() as (client, server):
        request = client.send(b"x")
        assert asyncio.isfuture(request)
        with pytest.raises(TypeError, match=r"^a coroutine was expected"):
            await asyncio.create_task(request)
        await request
        await server.recv(bytearray(1))


async def test_what_a_task_awaits_stays_a_coroutine(loop_factory):
    """The task calls its send and throw."""
    async with connected_pair() as (client, server):
        request = server.recv_into(bytearray(8))
        task = asyncio.create_task(_await(request))
        await asyncio.sleep(0)
        assert asyncio.isfuture(request)
        assert asyncio.iscoroutine(request)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert request.cancelled()
        await client.send(b"x")
        assert await server.recv_into(bytearray(8)) == 1


async def test_a_future_may_be_awaited_again_and_by_several(loop_factory):
    async with connected_pair() as (client, server):
        receiving = asyncio.ensure_future(server.recv_into(bytearray(8)))
        tasks = [asyncio.create_task(_await(receiving)) for _ in range(3)]
        await asyncio.sleep(0)
        await client.send(b"123")
        assert await asyncio.gather(*tasks) == [3, 3, 3]
        assert await receiving == 3


async def test_the_next_request_is_a_coroutine_again(loop_factory):
    """Requests are used again."""
    async with connected_pair() as (client, server):
        for i in range(600):
            sending, receiving = client.send(b"x"), server.recv(bytearray(1))
            assert asyncio.iscoroutine(sending)
            assert asyncio.iscoroutine(receiving)
            if i % 3:
                await asyncio.wait([asyncio.ensure_future(receiving)])
            await receiving
            await sending


async def test_a_request_cannot_be_made_by_programs():
    class Mine(ucp.Request):
        pass

    for cls in (ucp.Request, Mine):
        with pytest.raises(TypeError, match=r"^cannot create"):
            cls()


async def test_a_callback_has_the_context_it_was_added_in(loop_factory):
    name = contextvars.ContextVar("name", default="none")
    async with connected_pair() as (client, server):
        seen = []
        requests = [server.recv(bytearray(1)) for _ in range(2)]
        name.set("added")
        for request in requests:
            request.add_done_callback(lambda _: seen.append(name.get()))
        own = contextvars.copy_context()
        own.run(name.set, "own")
        requests[0].add_done_callback(lambda _: seen.append(name.get()), context=own)
        name.set("later")
        for request in requests:
            await client.send(b"x")
            await request
        await until(lambda: len(seen) == 3)
        assert seen == ["added", "own", "added"]


async def test_gather_raises_what_a_request_of_a_closed_endpoint_raises(loop_factory):
    async with connected_pair() as (client, _server):
        await client.close()
        with pytest.raises(UCXCloseError):
            await asyncio.gather(client.send(b"x"))


@every_way
async def test_a_request_made_in_another_thread_starts_when_it_is_waited_for(
    way, loop_factory
):
    async with connected_pair() as (client, server):
        request = await asyncio.to_thread(server.recv_into, bytearray(9))
        task = asyncio.create_task(way(request))
        await asyncio.sleep(0)
        await client.send(b"12345678")
        assert await task == 8


async def test_a_request_made_in_another_thread_starts_in_the_loop(loop_factory):
    async with connected_pair() as (client, server):
        loop = asyncio.get_running_loop()

        def receive():
            request = server.recv_into(bytearray(8))
            return asyncio.run_coroutine_threadsafe(request, loop).result(50)

        received = loop.run_in_executor(None, receive)
        await client.send(b"12345678")
        assert await received == 8


@pytest.mark.filterwarnings("ignore:.*and never started:RuntimeWarning")
async def test_a_request_of_another_thread_cannot_be_awaited_there(loop_factory):
    async with connected_pair() as (_client, server):
        loop = asyncio.get_running_loop()

        def receive(way):
            async def main():
                await way(server.recv(bytearray(8)))

            # From CPython 3.14 on gather() compares the loops before it asks.
            if way is _gather and sys.version_info >= (3, 14):
                refused = pytest.raises(ValueError, match="different loop")
            else:
                refused = pytest.raises(RuntimeError, match="another thread")
            with refused:
                asyncio.run(main())

        for way in (_await, _gather, _shield, _create_task):
            await loop.run_in_executor(None, receive, way)
    gc.collect()  # asyncio's own exception does not say which call it was


async def test_many_failures_are_listed():
    async with connected_pair() as (client, server):
        await client.send_many([b"1", b"22", b"333"])
        await _until_unread(server)
        with pytest.raises(UCXError) as caught:
            await server.recv_many([bytearray(1), bytearray(1), bytearray(2)])
        first, second, third = caught.value.results
        assert first is None and third is None
        assert isinstance(second, UCXMsgTruncated)
        assert await server.recv_obj() == b"333"


def test_run_until_complete_takes_a_request(loop_factory):
    loop = loop_factory()

    async def connect():
        pair = connected_pair()
        return pair, await pair.__aenter__()

    try:
        pair, (client, server) = loop.run_until_complete(connect())
        loop.run_until_complete(client.send(b"12345678"))
        assert loop.run_until_complete(server.recv_into(bytearray(8))) == 8
        loop.run_until_complete(pair.__aexit__(None, None, None))
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()
