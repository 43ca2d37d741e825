# SPDX-License-Identifier: BSD-3-Clause
"""A cancelled operation gives its buffer back; a cancelled receive, its message."""

import asyncio
import gc

import numpy as np
import pytest

import ucp
from ucp.testing import connected_pair, until

pytestmark = pytest.mark.usefixtures("transport")

_BIG = 64 << 20


def cancelled(task):
    """A coroutine that waits for the cancelled ``task``."""

    async def wait():
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    return wait()


async def test_a_timed_out_big_send_is_withdrawn(connect_peer):
    peer, ep = await connect_peer()
    data = np.full(_BIG, 7, dtype=np.uint8)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await ep.send(data)
    data[:] = 8
    sending = ep.send(data)
    await peer.do("data = np.zeros(64 << 20, dtype='u1')")
    await peer.do("await ep.recv(data)")
    await sending
    assert await peer.do("bool((data == 8).all())")
    assert await peer.do("ep.probe() is None")


async def test_a_big_send_to_a_stopped_peer_can_be_cancelled(connect_peer):
    peer, ep = await connect_peer()
    peer.stop()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(ep.send(np.ones(_BIG, dtype=np.uint8)), 0.1)
    gc.collect()
    peer.resume()
    await ep.send(b"next")
    assert await peer.do("bytes(await ep.recv_obj())") == b"next"


async def test_a_big_send_dies_with_its_killed_peer(connect_peer):
    peer, ep = await connect_peer()
    task = asyncio.ensure_future(ep.send(np.ones(_BIG, dtype=np.uint8)))
    await asyncio.sleep(0)
    peer.stop()
    await cancelled(task)
    peer.kill()
    await until(ep.closed)
    gc.collect()


async def test_a_cancelled_queued_receive_leaves_the_queue(connect_peer):
    peer, ep = await connect_peer()
    untouched = bytearray(b"....")
    task = asyncio.ensure_future(ep.recv(untouched))
    await asyncio.sleep(0)
    await cancelled(task)
    await peer.do("await ep.send(b'data')")
    assert await ep.recv_obj() == b"data"
    assert untouched == b"...."


async def test_a_timed_out_receive_loses_nothing(connect_peer):
    peer, ep = await connect_peer()
    for number in range(5):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(ep.recv(bytearray(8)), 0.01)
        await peer.do(f"await ep.send(({number}).to_bytes(8))")
        assert int.from_bytes(await ep.recv_obj()) == number


async def test_a_receive_cancelled_while_landing_gives_its_message_back(
    connect_peer,
):
    peer, ep = await connect_peer()
    await peer.do("data = np.full(64 << 20, 9, dtype='u1')")
    buffer = np.empty(_BIG, dtype=np.uint8)
    while True:  # until a receive is seen half done
        buffer[:] = 0
        sent = peer.begin("await ep.send(data)")
        task = asyncio.ensure_future(ep.recv(buffer))
        await until(lambda task=task: buffer[0] == 9 or task.done())
        if not task.done():
            break
        await peer.result(sent)
    await cancelled(task)
    back = np.zeros(_BIG, dtype=np.uint8)
    await ep.recv(back)
    assert (back == 9).all()
    await peer.result(sent)
    await peer.do("await ep.send(b'after')")
    assert await ep.recv_obj() == b"after"


@pytest.mark.parametrize("size", [8, 20_000, 4 << 20])
async def test_a_receive_cancelled_when_done_gives_its_message_back(size):
    async with connected_pair() as (client, server):
        request = server.recv(bytearray(size))
        task = asyncio.ensure_future(_wait(request))
        await asyncio.sleep(0)
        send = client.send(b"a" * size)
        while not request.done():
            ucp.progress()  # not the loop: it would resume the task
        await cancelled(task)
        await send
        await client.send(b"after")
        assert await server.recv_obj() == b"a" * size
        assert await server.recv_obj() == b"after"


@pytest.mark.parametrize("method", ["recv", "recv_many"])
async def test_a_cancelled_receive_of_a_short_message_gives_it_back(method):
    async with connected_pair() as (client, server):
        buffer = bytearray(100)
        receive = {"recv": server.recv, "recv_many": server.recv_many}[method]
        request = receive(buffer if method == "recv" else [buffer])
        await client.send(b"short")
        while not request.done():
            ucp.progress()
        await cancelled(asyncio.get_running_loop().create_task(request))
        assert await server.recv_obj() == b"short"


@pytest.mark.parametrize("size", [8, 20_000, 4 << 20])
async def test_a_message_cancelled_when_read_goes_back(size):
    async with connected_pair() as (client, server):
        send = client.send(b"a" * size)
        request = (await server.recv_message()).recv(bytearray(size))
        while not request.done():
            ucp.progress()  # not the loop: it would resume the task
        await cancelled(asyncio.get_running_loop().create_task(request))
        await send
        await client.send(b"after")
        assert await server.recv_obj() == b"a" * size
        assert await server.recv_obj() == b"after"


async def _wait(request):
    await request


@pytest.mark.parametrize("size", [8, 4 << 20])
async def test_a_cancelled_recv_obj_loses_nothing(connect_peer, size):
    peer, ep = await connect_peer()
    task = asyncio.ensure_future(ep.recv_obj())
    await asyncio.sleep(0)
    await cancelled(task)
    sent = peer.begin(f"await ep.send(bytes({size}))")
    assert len(await ep.recv_obj()) == size
    await peer.result(sent)


async def test_cancelling_one_of_many_receives_skips_only_it(connect_peer):
    peer, ep = await connect_peer()
    buffers = [bytearray(1) for _ in range(5)]
    tasks = [asyncio.ensure_future(ep.recv(buffer)) for buffer in buffers]
    await asyncio.sleep(0)
    await cancelled(tasks.pop(2))
    await peer.do("await ep.send_many([bytes([i]) for i in range(4)])")
    await asyncio.gather(*tasks)
    assert [buffer[0] for buffer in buffers] == [0, 1, 0, 2, 3]


async def test_a_send_without_credit_is_withdrawn(connect_peer):
    peer, ep = await connect_peer()
    tasks = [asyncio.ensure_future(ep.send(bytes(4096))) for _ in range(5000)]
    await asyncio.sleep(0)
    waiting = [task for task in tasks if not task.done()]
    assert waiting
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    done = len(tasks) - sum(task.cancelled() for task in tasks)
    reading = peer.begin("n = 0\nwhile len(await ep.recv_obj()) == 4096: n += 1")
    await ep.send(b"last")
    await peer.result(reading)
    config = ucp.core._ctx.config
    posted = config["credit_bytes"] // 4096 + config["credit_rndv"]
    assert done <= await peer.do("n") <= posted < len(tasks)


async def test_messages_of_a_cancelled_recv_many_come_first():
    async with connected_pair() as (client, server):
        receiving = server.recv_many([bytearray(1) for _ in range(4)])
        await client.send_many([b"0", b"1"])
        await until(lambda: server.statistics.received_messages == 2)
        receiving.cancel()
        sending = client.send_many([b"2", b"3"])
        got = [bytes(await server.recv_obj()) for _ in range(4)]
        assert got == [b"0", b"1", b"2", b"3"]
        await sending
