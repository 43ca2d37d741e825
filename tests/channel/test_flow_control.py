# SPDX-License-Identifier: BSD-3-Clause
"""A receiver that does not read bounds what a sender can push."""

import asyncio

import numpy as np
import pytest

import ucp
from ucp.testing import until

pytestmark = pytest.mark.usefixtures("transport")

_MIB = 1 << 20

# The peer's memory now, in bytes.
_RSS = "int(open('/proc/self/statm').read().split()[1]) * 4096"


async def settled(tasks, peer):
    """Let both processes run until no more sends complete; how many have."""
    while True:
        done = sum(task.done() for task in tasks)
        for _ in range(10):
            await peer.do("None")
        if done == sum(task.done() for task in tasks):
            return done


async def test_small_messages_wait_for_credit_and_arrive_in_order(connect_peer):
    peer, ep = await connect_peer()
    limit = ucp.core._ctx.config["credit_messages"]
    count = limit + 5000
    tasks = [
        asyncio.ensure_future(ep.send(number.to_bytes(8))) for number in range(count)
    ]
    assert await settled(tasks, peer) <= limit
    in_order = (
        f"[int.from_bytes(await ep.recv_obj()) for _ in range({count})]"
        f" == list(range({count}))"
    )
    assert await peer.do(in_order)
    await asyncio.gather(*tasks)


async def test_a_flood_stays_under_the_byte_limit(connect_peer):
    peer, ep = await connect_peer()
    limit = ucp.core._ctx.config["credit_bytes"]
    before = await peer.do(_RSS)
    data = np.ones(60_000, dtype=np.uint8)
    count = 4 * limit // len(data)
    tasks = [asyncio.ensure_future(ep.send(data)) for _ in range(count)]
    done = await settled(tasks, peer)
    assert done * len(data) <= limit
    assert await peer.do(_RSS) - before < 1.1 * limit + 32 * _MIB
    await peer.do(f"for _ in range({count}): await ep.recv_obj()")
    await asyncio.gather(*tasks)


async def test_big_messages_wait_for_their_receiver(connect_peer):
    peer, ep = await connect_peer()
    before = await peer.do(_RSS)
    data = np.ones(4 * _MIB, dtype=np.uint8)
    tasks = [asyncio.ensure_future(ep.send(data)) for _ in range(200)]
    assert await settled(tasks, peer) == 0
    assert await peer.do(_RSS) - before < 64 * _MIB
    await peer.do("for _ in range(200): await ep.recv_obj()")
    await asyncio.gather(*tasks)


async def test_credit_comes_back_without_traffic_the_other_way(connect_peer):
    peer, ep = await connect_peer()
    limit = ucp.core._ctx.config["credit_messages"]
    reading = peer.begin(f"for _ in range({3 * limit}): await ep.recv(bytearray(1))")
    for _ in range(3 * limit):
        await ep.send(b"x")
    await peer.result(reading)


async def test_one_full_endpoint_does_not_stop_another(connect_peer):
    _full_peer, full = await connect_peer()
    peer, ep = await connect_peer()
    data = bytes(60_000)
    limit = ucp.core._ctx.config["credit_bytes"]
    tasks = [
        asyncio.ensure_future(full.send(data)) for _ in range(2 * limit // len(data))
    ]
    await asyncio.sleep(0)
    await ep.send(b"free")
    assert await peer.do("bytes(await ep.recv_obj())") == b"free"
    full.abort()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_credit_comes_back_for_messages_that_were_there_already(connect_peer):
    """Reading them takes no turn of the loop, and nothing follows."""
    peer, ep = await connect_peer()
    limit = ucp.core._ctx.config["credit_messages"]
    await peer.do(
        f"sends = [asyncio.ensure_future(ep.send(b'x')) for _ in range({2 * limit})]"
    )
    worker = ucp.current_worker()
    await until(lambda: worker.statistics.unexpected_messages >= limit)
    num_sent = "sum(send.done() for send in sends)"
    while await peer.do(num_sent) < limit:
        pass
    buffer = bytearray(1)
    for _ in range(limit // 2 + 2):
        await ep.recv(buffer)
    while await peer.do(num_sent) == limit:
        pass


async def test_channels_share_the_byte_limit(connect_peer):
    peer, ep = await connect_peer()
    limit = ucp.core._ctx.config["credit_bytes"]
    data = bytes(60_000)
    count = 2 * limit // len(data) // 16
    tasks = [
        asyncio.ensure_future(ep.channel(number).send(data))
        for number in range(1, 17)
        for _ in range(count)
    ]
    assert await settled(tasks, peer) * len(data) <= limit
    await peer.do(
        "for number in range(1, 17):\n"
        f"    for _ in range({count}): await ep.channel(number).recv_obj()"
    )
    await asyncio.gather(*tasks)


async def test_flush_covers_what_waits_for_credit(connect_peer):
    peer, ep = await connect_peer()
    count = 2 * ucp.core._ctx.config["credit_messages"]
    sends = [ep.send(b"x" * 100) for _ in range(count)]
    flushing = asyncio.ensure_future(ep.flush())
    assert await settled(sends, peer) < count
    assert not flushing.done()
    await peer.do(f"for _ in range({count}): await ep.recv_obj()")
    await flushing
    await asyncio.gather(*sends)


async def test_flush_covers_short_messages_that_are_announced(connect_peer):
    """More are sent than credit lets go, while the peer receives all the time."""
    peer, ep = await connect_peer()
    count = 5 * ucp.core._ctx.config["credit_messages"]
    receiving = asyncio.ensure_future(
        peer.do(f"for _ in range({count}): await ep.recv_obj()")
    )
    sends = [ep.send(b"x" * 1000) for _ in range(count)]
    await ep.flush()
    assert all(send.done() for send in sends)
    assert ep.pending_bytes == 0
    await asyncio.gather(receiving, *sends)


async def test_flush_covers_short_messages_that_are_never_received(connect_peer):
    """As it covers those that wait for credit; a timeout ends the wait."""
    peer, ep = await connect_peer()
    count = ucp.core._ctx.config["credit_messages"] + 10
    sends = [ep.send(b"x") for _ in range(count)]
    flushing = asyncio.ensure_future(ep.flush())
    assert await settled(sends, peer) < count
    assert not flushing.done()
    await peer.do("await ep.close()")
    with pytest.raises(ucp.UCXPeerClosed):
        await flushing
    await asyncio.gather(*sends, return_exceptions=True)


async def test_flush_leaves_out_messages_that_wait_for_their_receive(connect_peer):
    """The peer may receive them after it has heard of the flush."""
    peer, ep = await connect_peer()
    long = ep.send(bytes(4 * _MIB))
    short = ep.send(b"short", tag=1)
    await ep.flush()
    await short
    assert not long.done()
    assert await peer.do("len(await ep.recv_obj(tag=1))") == 5
    assert await peer.do("len(await ep.recv_obj())") == 4 * _MIB
    await long
