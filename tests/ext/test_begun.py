# SPDX-License-Identifier: BSD-3-Clause
# tests: ext/object ucp/operation
"""Operations on objects, questions, closes and accepts begin when they are called."""

import asyncio
import gc
import inspect
import pickle
import threading
import weakref

import anyio
import pytest

import ucp
from ucp.testing import connected_pair, until

LARGE = 1 << 20

# How a message is sent, received, and what the receive gives.
KINDS = {
    "recv_obj": (
        lambda ep, data: ep.send_obj(data),
        lambda ep: ep.recv_obj(),
        bytes,
    ),
    "recv_obj of an allocator": (
        lambda ep, data: ep.send_obj(data),
        lambda ep: ep.recv_obj(allocator=lambda nbytes: bytearray(nbytes)),
        bytes,
    ),
    "recv_multi": (
        lambda ep, data: ep.send_multi([data]),
        lambda ep: ep.recv_multi(),
        lambda frames: b"".join(frames),
    ),
    "recv_pickle": (
        lambda ep, data: ep.send_pickle(pickle.PickleBuffer(data)),
        lambda ep: ep.recv_pickle(allow_pickle=True),
        bytes,
    ),
}
every_kind = pytest.mark.parametrize(
    ("send", "receive", "content"), KINDS.values(), ids=KINDS
)
sizes = pytest.mark.parametrize("size", [0, 8, LARGE])
channels = pytest.mark.parametrize(
    "on", [lambda ep: ep, lambda ep: ep.channel(3)], ids=["endpoint", "channel"]
)


@channels
@every_kind
async def test_both_sides_may_call_the_receive_and_then_send(
    send, receive, content, on, loop_factory
):
    async def exchange(ep, data):
        receiving = receive(on(ep))
        await send(on(ep), data)
        return content(await receiving)

    async with connected_pair() as (left, right):
        assert await asyncio.gather(
            exchange(left, b"a" * LARGE), exchange(right, b"b" * LARGE)
        ) == [b"b" * LARGE, b"a" * LARGE]


@sizes
@every_kind
async def test_messages_come_in_the_order_of_the_calls(send, receive, content, size):
    async with connected_pair() as (left, right):
        first, second = receive(right), receive(right)
        sends = [send(left, b"1" * size), send(left, b"22" * size)]
        assert content(await second) == b"22" * size
        assert content(await first) == b"1" * size
        assert content(await first) == b"1" * size  # a second await
        await asyncio.gather(*sends)


@sizes
@every_kind
async def test_a_dropped_receive_leaves_its_message(send, receive, content, size):
    async with connected_pair() as (left, right):
        dropped = receive(right)
        with pytest.warns(RuntimeWarning, match="was dropped while it waited"):
            del dropped
        sending = send(left, b"1" * size)
        dropped = receive(right)
        await until(dropped.done)
        del dropped
        assert content(await receive(right)) == b"1" * size
        await sending


@sizes
@every_kind
async def test_a_cancelled_receive_gives_its_message_back(
    send, receive, content, size, loop_factory
):
    async with connected_pair() as (left, right):
        receiving = receive(right)
        sending = send(left, b"1" * size)
        await until(receiving.done)
        assert receiving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await receiving
        assert content(await receive(right)) == b"1" * size
        await sending


@every_kind
async def test_timeouts_and_scopes_end_a_receive(send, receive, content, loop_factory):
    async with connected_pair() as (left, right):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(receive(right), 0.001)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.001):
                await receive(right)
        with anyio.move_on_after(0.001) as scope:
            await receive(right)
        assert scope.cancelled_caught
        receives = [asyncio.ensure_future(receive(right)) for _ in range(2)]
        await send(left, b"12345678")
        done, pending = await asyncio.wait(
            receives, return_when=asyncio.FIRST_COMPLETED
        )
        assert [content(each.result()) for each in done] == [b"12345678"]
        pending.pop().cancel()


@every_kind
async def test_one_of_another_thread_begins_when_it_is_awaited(send, receive, content):
    async with connected_pair() as (left, right):
        await send(left, b"12345678")
        receiving = await asyncio.to_thread(receive, right)
        assert not receiving.done()
        assert content(await receive(right)) == b"12345678"
        await send(left, b"2")
        assert content(await receiving) == b"2"


def test_they_are_no_coroutine_functions():
    for function in (
        *(ucp.Endpoint.recv_obj, ucp.Endpoint.recv_multi, ucp.Endpoint.recv_pickle),
        *(ucp.Channel.recv_obj, ucp.Channel.recv_multi, ucp.Channel.recv_pickle),
        *(ucp.Endpoint.peer_info, ucp.Endpoint.close, ucp.Listener.accept),
    ):
        assert not inspect.iscoroutinefunction(function)


# ---- allocators ----------------------------------------------------------------


@sizes
async def test_an_allocator_is_asked_once_for_the_length(size):
    asked = []

    def allocate(nbytes):
        asked.append(nbytes)
        return bytearray(nbytes + 4)  # more than is needed

    async with connected_pair() as (left, right):
        sending = left.send_obj(b"1" * size)
        got = await right.recv_obj(None, allocate)
        assert got == b"1" * size + bytes(4)
        assert asked == [size]
        await sending


@pytest.mark.parametrize("size", [8, LARGE])
async def test_the_message_of_an_allocator_that_fails_is_for_the_next_receive(size):
    def fail(nbytes):
        raise ArithmeticError(nbytes)

    async with connected_pair() as (left, right):
        sending = left.send_obj(b"1" * size)
        with pytest.raises(ArithmeticError):
            await right.recv_obj(allocator=fail)
        [failure] = await asyncio.gather(
            right.recv_obj(allocator=fail), return_exceptions=True
        )
        assert isinstance(failure, ArithmeticError)
        with pytest.raises(ValueError, match=f"{size}"):
            await right.recv_obj(allocator=lambda nbytes: bytearray(nbytes - 1))
        with pytest.raises(TypeError, match=r"^allocator must be callable, not int$"):
            right.recv_obj(allocator=5)
        with pytest.raises(TypeError, match=r"^allocator must be callable, not int$"):
            right.recv_multi(5)
        assert await right.recv_obj() == b"1" * size
        await sending


async def failure_of_await(receiving):
    with pytest.raises(ArithmeticError) as caught:
        await receiving
    return caught.value


async def failure_of_gather(receiving):
    with pytest.raises(ArithmeticError) as caught:
        await asyncio.gather(receiving)
    return caught.value


async def failure_among_results(receiving):
    [failure] = await asyncio.gather(receiving, return_exceptions=True)
    return failure


async def failure_after_wait(receiving):
    [future], _ = await asyncio.wait([asyncio.ensure_future(receiving)])
    assert isinstance(future.exception(), ArithmeticError)
    return await failure_of_await(future)


@pytest.mark.parametrize("is_early", [True, False])
@pytest.mark.parametrize(
    "failure_of",
    [failure_of_await, failure_of_gather, failure_among_results, failure_after_wait],
)
@pytest.mark.parametrize("size", [8, LARGE])
@pytest.mark.parametrize("kind", ["obj", "multi", "frames"])
async def test_whoever_asks_first_hears_of_an_allocator_that_fails(
    kind, size, failure_of, is_early, loop_factory
):
    def fail(nbytes):
        raise ArithmeticError(nbytes)

    async with connected_pair() as (left, right):
        sending = (
            left.send_obj(b"1" * size)
            if kind == "obj"
            else left.send_multi([b"1" * size])
        )
        if is_early:
            await until(lambda: right.statistics.unexpected_messages)
        receiving = getattr(right, f"recv_{kind}")(allocator=fail)
        assert isinstance(await failure_of(receiving), ArithmeticError)
        del receiving
        if kind == "obj":
            assert await right.recv_obj() == b"1" * size
        else:
            assert await right.recv_multi() == [b"1" * size]
        await sending


@pytest.mark.parametrize("size", [8, 2000, LARGE])
async def test_the_failure_of_an_allocator_of_active_messages_is_heard(size):
    def fail(nbytes):
        raise ArithmeticError(nbytes)

    async with connected_pair() as (left, right):
        ucp.register_am_allocator(fail, "host")
        try:
            sending = left.am_send(b"1" * size)
            with pytest.raises(ArithmeticError):
                await asyncio.gather(right.am_recv())
        finally:
            ucp.register_am_allocator(bytearray, "host")
        assert await right.am_recv() == b"1" * size
        await sending


async def test_an_allocator_may_cancel_its_receive():
    async with connected_pair() as (left, right):

        def allocate(nbytes):
            receiving.cancel()
            return bytearray(nbytes)

        receiving = right.recv_obj(allocator=allocate)
        sending = left.send_obj(b"1" * LARGE)
        with pytest.raises(asyncio.CancelledError):
            await receiving
        assert await right.recv_obj() == b"1" * LARGE
        await sending


# ---- pickles -------------------------------------------------------------------

UNPICKLED = []


def note(value):
    UNPICKLED.append(value)
    if value < 0:
        raise ArithmeticError(value)
    return value


class Noted:
    """An object that notes where it is unpickled."""

    def __init__(self, value, padding=b""):
        self.value = value
        self.padding = padding

    def __reduce_ex__(self, protocol):
        return pickled, (self.value, pickle.PickleBuffer(self.padding))


def pickled(value, _padding):
    return note(value)


@pytest.mark.parametrize("size", [8, LARGE])
async def test_an_object_is_unpickled_once_by_who_gets_it(size):
    UNPICKLED.clear()
    async with connected_pair() as (left, right):
        given_up = right.recv_pickle(allow_pickle=True)
        sending = left.send_pickle(Noted(7, bytes(size)))
        await until(given_up.done)
        assert given_up.cancel()
        receiving = right.recv_pickle(allow_pickle=True)
        assert await asyncio.gather(receiving) == [7]
        assert await receiving == 7
        assert UNPICKLED == [7]
        await sending


@pytest.mark.parametrize("size", [8, LARGE])
@pytest.mark.parametrize("way", ["await", "gather", "result", "task"])
async def test_an_object_that_cannot_be_unpickled_is_consumed(size, way, loop_factory):
    async with connected_pair() as (left, right):
        receiving = right.recv_pickle(allow_pickle=True)
        if way == "task":
            receiving = asyncio.create_task(receiving)
            await asyncio.sleep(0)
        sends = [left.send_pickle(Noted(-1, bytes(size))), left.send_pickle(2)]
        if way == "gather":
            [failure] = await asyncio.gather(receiving, return_exceptions=True)
            assert isinstance(failure, ArithmeticError)
        elif way == "result":
            await until(receiving.done)
            with pytest.raises(ArithmeticError):
                receiving.result()
        with pytest.raises(ArithmeticError):
            await receiving
        assert await right.recv_pickle(allow_pickle=True) == 2
        await asyncio.gather(*sends)


async def test_frames_that_are_no_pickle_are_consumed():
    async with connected_pair() as (left, right):
        await left.send_multi([b"1"])
        await left.send_pickle("2")
        with pytest.raises(ucp.UCXError, match=r"^the message is no pickled object$"):
            await right.recv_pickle(allow_pickle=True)
        assert await right.recv_pickle(allow_pickle=True) == "2"


async def test_a_receive_of_objects_that_is_in_a_cycle_is_collected():
    async with connected_pair() as (_left, right):

        class Allocator:
            def __call__(self, nbytes):
                return bytearray(nbytes)

        allocator = Allocator()
        allocator.request = right.recv_obj(allocator=allocator)
        here = weakref.ref(allocator)
        del allocator
        with pytest.warns(RuntimeWarning, match="was dropped while it waited"):
            gc.collect()
        await until(lambda: here() is None)


# ---- questions and closes --------------------------------------------------------


async def test_a_question_is_asked_when_it_is_called():
    async with connected_pair() as (left, _right):
        asking = left.peer_info()
        await until(asking.done)
        left.abort()
        info = await asking
        assert info == await asking
        assert info.pid > 0


async def test_a_close_begins_when_it_is_called(loop_factory):
    async with connected_pair() as (left, right):
        closing = left.close()
        with pytest.raises(ucp.UCXPeerClosed):
            await right.recv(bytearray(1))
        await closing
        assert left.closed() and right.closed()


async def test_a_close_that_is_dropped_goes_on():
    async with connected_pair() as (left, right):
        await left.send(b"1")
        left.close()
        assert await right.recv_obj() == b"1"
        await until(right.closed)


async def test_the_close_to_a_peer_that_dies_meanwhile_succeeds(connect_peer):
    peer, ep = await connect_peer()
    peer.stop()
    closing = ep.close(30)
    peer.kill()
    assert await closing is None


# ---- accepts ---------------------------------------------------------------------


def listen():
    return ucp.create_listener(host="127.0.0.1")


async def test_accepts_get_the_connections_in_the_order_of_their_calls():
    async with listen() as listener:
        accepts = [listener.accept() for _ in range(2)]
        ends = []
        for number in (1, 2):
            ends.append(await ucp.connect("127.0.0.1", listener.port))
            await ends[-1].send(b"%d" % number)
        second, first = [await accept for accept in reversed(accepts)]
        assert await first.recv_obj() == b"1"
        assert await second.recv_obj() == b"2"
        assert await accepts[0] is first
        for ep in (*ends, first, second):
            ep.abort()


@pytest.mark.parametrize("way", ["cancel", "drop", "drop in a thread"])
@pytest.mark.parametrize("is_there", [False, True])
async def test_an_accept_that_is_given_up_loses_no_connection(
    way, is_there, loop_factory
):
    async with listen() as listener:
        accept = listener.accept()
        if is_there:
            ep = await ucp.connect("127.0.0.1", listener.port)
            await until(accept.done)
        if way == "cancel":
            assert accept.cancel()
            with pytest.raises(asyncio.CancelledError):
                await accept
        elif way == "drop in a thread":
            box = [accept]
            del accept
            if is_there:
                thread = threading.Thread(target=box.clear)
                thread.start()
                await asyncio.to_thread(thread.join)
            else:
                with pytest.warns(RuntimeWarning, match=r"accept\(\) returned was dro"):
                    await asyncio.to_thread(box.clear)
        elif is_there:
            del accept
        else:
            with pytest.warns(RuntimeWarning, match=r"accept\(\) returned was dropped"):
                del accept
        if not is_there:
            ep = await ucp.connect("127.0.0.1", listener.port)
        await ep.send(b"x")
        other = await listener.accept()
        assert await other.recv_obj() == b"x"
        ep.abort()
        other.abort()


async def test_a_task_that_is_cancelled_when_its_connection_has_come_gives_it_back(
    loop_factory,
):
    async with listen() as listener:
        accept = listener.accept()
        tasks = []
        accept.add_done_callback(lambda _: tasks[0].cancel())
        tasks.append(asyncio.create_task(accept))
        await asyncio.sleep(0)
        async with ucp.connect("127.0.0.1", listener.port) as ep:
            with pytest.raises(asyncio.CancelledError):
                await tasks[0]
            await ep.send(b"x")
            assert await (await listener.accept()).recv_obj() == b"x"


async def test_an_accept_is_a_coroutine_and_a_future(loop_factory):
    async with listen() as listener:
        accepts = [
            asyncio.create_task(listener.accept()),
            asyncio.ensure_future(listener.accept()),
            asyncio.gather(listener.accept()),
        ]
        ends = [await ucp.connect("127.0.0.1", listener.port) for _ in accepts]
        await asyncio.wait(accepts)
        got = [accepts[0].result(), accepts[1].result(), *accepts[2].result()]
        assert len(set(got)) == 3
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(listener.accept(), 0.001)
        with anyio.move_on_after(0.001) as scope:
            await listener.accept()
        assert scope.cancelled_caught
        listener.accept().close()
        with pytest.raises(ZeroDivisionError):
            listener.accept().throw(ZeroDivisionError())
        ends.append(await ucp.connect("127.0.0.1", listener.port))
        got.append(await asyncio.wait_for(listener.accept(), 30))
        for ep in (*ends, *got):
            ep.abort()


async def test_an_accept_of_another_thread_begins_when_it_is_awaited():
    async with listen() as listener:
        accept = await asyncio.to_thread(listener.accept)
        async with ucp.connect("127.0.0.1", listener.port):
            await (await listener.accept()).close()
        async with ucp.connect("127.0.0.1", listener.port):
            await (await accept).close()


async def test_the_close_of_the_listener_ends_accepts_that_were_called():
    listener = listen()
    accept = listener.accept()
    listener.close()
    with pytest.raises(ucp.UCXCloseError, match=r"^the listener is closed$"):
        await accept
