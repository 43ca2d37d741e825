# SPDX-License-Identifier: BSD-3-Clause
"""Active messages: ids, headers, handlers, allocators, over both transports."""

import asyncio
import gc
import re

import numpy as np
import pytest

import ucp
from ucp.testing import connected_pair

pytestmark = pytest.mark.usefixtures("transport")

_KIB = 1024
SIZES = [
    0,
    1,
    8,
    64,
    65,
    128,
    129,
    4000,
    9 * _KIB,
    64 * _KIB,
    300 * _KIB,
    1024 * _KIB + 1,
]


def random_bytes(count, seed=0):
    return np.random.default_rng(seed).integers(0, 256, count, dtype=np.uint8)


async def test_bytes_of_every_size_arrive(connect_peer):
    peer, ep = await connect_peer()
    echo = peer.begin(
        f"for size in {SIZES}:\n    await ep.am_send(await ep.am_recv(), id=77)\n"
    )
    for size in SIZES:
        data = random_bytes(size, size)
        await ep.am_send(data)
        back = await ep.am_recv(id=77)
        assert type(back) is bytearray
        assert back == data.tobytes()
    await peer.result(echo)


@pytest.mark.parametrize("size", [0, 5, 1024])
async def test_a_header_goes_with_the_bytes(size):
    header = bytes(random_bytes(size))
    async with connected_pair() as (left, right):
        for length in SIZES:
            sending = left.am_send(bytes(length), id=16, header=header)
            message = await right.am_recv_message(id=16)
            assert message.header == header
            assert message.nbytes == length
            assert message.endpoint is right
            assert await message.recv(bytearray(length)) == length
            await sending


async def test_ids_do_not_meet():
    async with connected_pair() as (left, right):
        await left.am_send(b"a", id=16)
        await left.am_send(b"b", id=65535)
        await left.am_send(b"c")
        await left.send(b"d")
        data = bytearray(1)
        await right.recv(data)
        assert data == b"d"
        assert await right.am_recv() == b"c"
        assert await right.am_recv(id=65535) == b"b"
        assert await right.am_recv(id=16) == b"a"


async def test_eager_bytes_are_seen_where_they_lie():
    async with connected_pair() as (left, right):
        data = bytes(random_bytes(5000))
        await left.am_send(data)
        message = await right.am_recv_message()
        assert message.is_here
        view = memoryview(message)
        assert view.readonly
        assert view == data
        with pytest.raises(BufferError, match="memoryviews"):
            message.recv(bytearray(5000))
        del message
        gc.collect()
        assert view == data


async def test_views_outlive_endpoint_and_worker():
    async with connected_pair() as (left, right):
        datas = [bytes(random_bytes(size)) for size in (1, 1000, 40 * _KIB)]
        for data in datas:
            await left.am_send(data)
        views = [memoryview(await right.am_recv_message()) for _ in datas]
    ucp.current_worker().abort()
    for view, data in zip(views, datas, strict=True):
        assert view == data


async def test_announced_bytes_are_not_here():
    async with connected_pair() as (left, right):
        data = random_bytes(1024 * _KIB)
        sending = left.am_send(data)
        message = await right.am_recv_message()
        assert not message.is_here
        with pytest.raises(BufferError, match=r"await recv\(\)"):
            memoryview(message)
        back = bytearray(len(data))
        await message.recv(back)
        assert back == data.tobytes()
        await sending
        with pytest.raises(BufferError, match="received"):
            memoryview(message)
        assert message.header == b""


@pytest.mark.parametrize("size", [0, 10, 1024 * _KIB])
async def test_an_allocator_makes_what_am_recv_gives(size):
    ucp.register_am_allocator(lambda n: np.zeros(n, dtype=np.uint8))
    async with connected_pair() as (left, right):
        for receives_first in (True, False):
            receiving = right.am_recv() if receives_first else None
            sending = left.am_send(random_bytes(size))
            back = await (receiving or right.am_recv())
            assert isinstance(back, np.ndarray)
            np.testing.assert_array_equal(back, random_bytes(size))
            await sending


@pytest.mark.parametrize("header", [b"", b"h"])
@pytest.mark.parametrize("receives_first", [True, False])
@pytest.mark.parametrize("size", [10, 1024 * _KIB])
async def test_a_failing_allocator_loses_nothing(size, receives_first, header):
    def fail(count):
        raise LookupError(f"no {count} bytes")

    async with connected_pair() as (left, right):
        receiving = right.am_recv() if receives_first else None
        sending = left.am_send(random_bytes(size), header=header)
        ucp.register_am_allocator(fail)
        with pytest.raises(LookupError, match=f"no {size} bytes"):
            await (receiving or right.am_recv())
        del receiving
        ucp.register_am_allocator(lambda n: bytearray(n + 1))
        with pytest.raises(ValueError, match=f"asked for {size} bytes and gave"):
            await right.am_recv()
        ucp.register_am_allocator(bytes)
        with pytest.raises((ValueError, BufferError, TypeError)):
            await right.am_recv()
        ucp.register_am_allocator(None)
        assert await right.am_recv() == random_bytes(size).tobytes()
        await sending


async def test_a_handler_gets_messages_of_every_endpoint():
    heard = []
    done = asyncio.Event()
    worker = ucp.current_worker()

    @worker.am_handler(20)
    def handle(ep, message):
        heard.append((ep, message.header, bytes(memoryview(message))))
        if len(heard) == 4:
            done.set()

    async with connected_pair() as (a, b), connected_pair() as (c, d):
        for left in (a, c):
            await left.am_send(b"one", id=20, header=b"1")
            await left.am_send(b"two", id=20, header=b"2")
        await done.wait()
        for right in (b, d):
            mine = [rest for ep, *rest in heard if ep is right]
            assert mine == [[b"1", b"one"], [b"2", b"two"]]


async def test_a_handler_may_be_a_coroutine_function_that_answers():
    worker = ucp.current_worker()

    @worker.am_handler(20)
    async def handle(ep, message):
        data = bytearray(message.nbytes)
        await message.recv(data)
        await ep.am_send(data, id=21, header=message.header)

    async with connected_pair() as (left, _right):
        for size in SIZES:
            data = random_bytes(size, size)
            await left.am_send(data, id=20, header=b"head")
            message = await left.am_recv_message(id=21)
            assert message.header == b"head"
            back = bytearray(size)
            await message.recv(back)
            assert back == data.tobytes()


async def test_a_receive_goes_before_the_handler():
    heard = asyncio.Queue()
    worker = ucp.current_worker()
    worker.set_am_handler(20, lambda ep, message: heard.put_nowait(message))
    async with connected_pair() as (left, right):
        receiving = right.am_recv(id=20)
        await left.am_send(b"a", id=20)
        await left.am_send(b"b", id=20)
        assert await receiving == b"a"
        assert memoryview(await heard.get()) == b"b"


async def test_without_its_handler_messages_wait_again():
    worker = ucp.current_worker()
    worker.set_am_handler(20, lambda ep, message: pytest.fail("called"))
    worker.set_am_handler(20, None)
    async with connected_pair() as (left, right):
        await left.am_send(b"a", id=20)
        assert await right.am_recv(id=20) == b"a"


async def test_exceptions_of_a_handler_reach_the_loop():
    reported = asyncio.Queue()
    asyncio.get_running_loop().set_exception_handler(
        lambda loop, context: reported.put_nowait(context)
    )
    worker = ucp.current_worker()

    @worker.am_handler(20)
    async def handle(ep, message):
        raise LookupError(message.header)

    async with connected_pair() as (left, _right):
        await left.am_send(b"", id=20, header=b"h")
        context = await reported.get()
    assert context["message"] == "exception in the handler of active messages 20"
    assert repr(context["exception"]) == "LookupError(b'h')"


@pytest.mark.parametrize("size", [1, 1024 * _KIB])
async def test_a_cancelled_receive_loses_nothing(size):
    async with connected_pair() as (left, right):
        data = random_bytes(size)
        receiving = asyncio.ensure_future(right.am_recv(id=16))
        await asyncio.sleep(0)
        sending = left.am_send(data, id=16, header=b"h")
        receiving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await receiving
        message = await right.am_recv_message(id=16)
        assert message.header == b"h"
        back = bytearray(size)
        await message.recv(back)
        assert back == data.tobytes()
        await sending


@pytest.mark.parametrize("elsewhere", [False, True])
@pytest.mark.parametrize("size", [1, 1000])
async def test_a_receive_that_nobody_awaits_loses_nothing(size, elsewhere):
    async with connected_pair() as (left, right):
        receiving = [right.am_recv()]
        await left.am_send(random_bytes(size))
        while not receiving[0].done():
            await asyncio.sleep(0)
        if elsewhere:
            await asyncio.to_thread(receiving.clear)
        else:
            receiving.clear()
        assert await right.am_recv() == random_bytes(size).tobytes()


async def test_an_await_given_up_at_any_moment_loses_nothing():
    async def give_up_after(request, turns):
        task = asyncio.ensure_future(request)
        for _ in range(turns):
            await asyncio.sleep(0)
        if not task.done():
            task.cancel()
        (result,) = await asyncio.gather(task, return_exceptions=True)
        return result

    async with connected_pair() as (left, right):
        for size in (1, 1024 * _KIB):
            for turns in range(12):
                data = random_bytes(size, turns)
                sending = asyncio.ensure_future(left.am_send(data, id=16))
                got = await give_up_after(right.am_recv(id=16), turns)
                if isinstance(got, asyncio.CancelledError):
                    got = await right.am_recv(id=16)
                assert got == data.tobytes()
                await sending


async def test_probe_tells_the_length():
    async with connected_pair() as (left, right):
        assert right.am_probe(id=16) is None
        await left.am_send(b"abc", id=16)
        await left.send(b"")
        await right.recv(bytearray(0))
        assert await right.am_recv(id=16) == b"abc"
        assert right.am_probe(id=16) is None


async def test_a_receive_fails_when_the_peer_closes():
    async with connected_pair() as (left, right):
        receiving = asyncio.ensure_future(right.am_recv())
        await asyncio.sleep(0)
        await left.close()
        with pytest.raises(ucp.UCXPeerClosed):
            await receiving
        with pytest.raises(ucp.UCXCloseError):
            await right.am_recv()
        with pytest.raises(ucp.UCXCloseError):
            await right.am_send(b"x")


async def test_a_receive_fails_when_the_peer_dies(connect_peer):
    peer, ep = await connect_peer()
    receiving = asyncio.ensure_future(ep.am_recv())
    await asyncio.sleep(0)
    peer.kill()
    with pytest.raises(ucp.UCXConnectionReset):
        await receiving


async def test_unread_messages_hold_the_sender_back():
    limit = ucp.core._ctx.config["credit_messages"]
    async with connected_pair() as (left, right):
        sends = [left.am_send(b"", header=b"%d" % n) for n in range(limit + 4)]
        messages = [await right.am_recv_message() for _ in range(limit)]
        assert not any(send.done() for send in sends[limit:])
        for number in range(limit + 4):
            if number >= limit:
                messages.append(await right.am_recv_message())
            message = messages[number]
            assert message.header == b"%d" % number
            await message.recv(bytearray(0))
        await asyncio.gather(*sends)


@pytest.mark.parametrize("id", [0, 1, 15, -1, 65536])
async def test_ids_out_of_range_are_refused(id):
    text = re.escape(f"id must be 16 to 65535, not {id}")
    async with connected_pair() as (left, _right):
        for call in (
            lambda: left.am_send(b"", id=id),
            lambda: left.am_recv(id=id),
            lambda: left.am_recv_message(id=id),
            lambda: left.am_probe(id=id),
            lambda: ucp.current_worker().set_am_handler(id, print),
        ):
            with pytest.raises(ValueError, match=f"^{text}$"):
                call()


async def test_bad_arguments_are_refused():
    async with connected_pair() as (left, _right):
        with pytest.raises(ValueError, match="at most 1024 bytes, this one has 1025"):
            left.am_send(b"", header=bytes(1025))
        with pytest.raises(TypeError):
            left.am_send(b"", header="text")
        with pytest.raises(TypeError):
            left.am_send(3)
        with pytest.raises(TypeError):
            left.am_recv(id="a")
        with pytest.raises(TypeError, match="3 is not"):
            ucp.current_worker().set_am_handler(20, 3)
        with pytest.raises(TypeError, match="3 is not"):
            ucp.register_am_allocator(3)
        with pytest.raises(ValueError, match="not 'rocm'"):
            ucp.register_am_allocator(bytearray, "rocm")
