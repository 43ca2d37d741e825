# SPDX-License-Identifier: BSD-3-Clause
"""Waiting, and the thousandth round, cost nothing."""

import asyncio
import gc
import resource
import sys

import pytest
from objects import kept_objects

import ucp
from ucp.testing import connected_pair, live_objects

pytestmark = pytest.mark.usefixtures("transport")


def cpu_seconds():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


async def settle():
    """Return to the loop, which holds what woke us; gather() makes cycles."""
    await asyncio.sleep(0)
    gc.collect()


async def test_waiting_uses_no_cpu(connect_peer, loop_factory):
    """Measure time by the clock, which no other test does."""
    peer, ep = await connect_peer()
    waiting = peer.begin("await ep.recv_obj()")
    pending = [asyncio.ensure_future(ep.recv(bytearray(8))) for _ in range(10)]
    await asyncio.sleep(0.2)  # lets the start-up work end
    before = cpu_seconds()
    await asyncio.sleep(5)
    used = cpu_seconds() - before
    await ep.send(b"wake up")
    await peer.result(waiting)
    await peer.do("for _ in range(10): await ep.send(bytes(8))")
    await asyncio.gather(*pending)
    assert used / 5 < 0.01


async def blocks_left_by(rounds, count, warm):
    """How many blocks more there are after ``count`` rounds."""
    await rounds(warm)
    gc.collect()
    before = sys.getallocatedblocks()
    await rounds(count)
    gc.collect()
    return sys.getallocatedblocks() - before


async def test_a_ping_pong_allocates_nothing():
    ping, pong = bytearray(8), bytearray(8)
    async with connected_pair() as (client, server):

        async def rounds(count):
            for _ in range(count):
                receive = server.recv(pong)
                await client.send(ping)
                await receive
                receive = client.recv(ping)
                await server.send(pong)
                await receive

        assert await blocks_left_by(rounds, 10_000, warm=2000) < 100


@pytest.mark.parametrize("size", [8, 20_000, 1 << 20])
async def test_buffers_of_a_pool_allocate_nothing(size):
    """test_steady_state.c counts calls of malloc, and registrations."""
    with ucp.BufferPool(2, size) as pool:
        async with connected_pair() as (client, server):

            async def rounds(count):
                for _ in range(count):
                    with await pool.acquire() as out, await pool.acquire() as back:
                        receive = server.recv(back)
                        await client.send(out)
                        await receive

            assert await blocks_left_by(rounds, 1000, warm=200) < 100


@pytest.mark.parametrize("size", [8, 20_000, 1 << 20])
async def test_requests_go_away(size):
    async with connected_pair() as (client, server):
        for _ in range(50):
            await asyncio.gather(client.send(bytes(size)), server.recv_obj())
        await settle()
        assert live_objects()["requests"] == 0


async def test_connections_leave_nothing():
    await settle()
    before = kept_objects()["endpoints"]
    for _ in range(100):
        async with connected_pair() as (client, server):
            await client.send(b"x")
            assert await server.recv_obj() == b"x"
            await client.close()
            await server.close()
    del client, server
    await settle()
    assert live_objects()["endpoints"] == before
