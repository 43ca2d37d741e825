# SPDX-License-Identifier: BSD-3-Clause
"""Buffers of a pool: sent, received into, given up, waited for."""

import asyncio

import ucp
from ucp.testing import connected_pair, until

_SIZE = 300_000


async def run(count):
    done = 0
    with ucp.BufferPool(4, _SIZE) as pool:
        async with connected_pair() as (client, server):
            while done < count:
                await _one_by_one(pool, client, server)
                await _at_once(pool, client, server)
                await _given_up(pool, client, server)
                done += 12
        await until(lambda: pool.free == 4)
    return f"{done} loans"


async def _one_by_one(pool, client, server):
    with await pool.acquire() as out, await pool.acquire() as back:
        receive = server.recv(back)
        await client.send(out)
        await receive


async def _at_once(pool, client, server):
    """More tasks than buffers."""

    async def send():
        with await pool.acquire() as buffer:
            await client.send(buffer)

    async def receive():
        with await pool.acquire() as buffer:
            await server.recv(buffer)

    await asyncio.gather(*(each() for _ in range(4) for each in (receive, send)))


async def _given_up(pool, client, server):
    """A receive into which bytes may land still, and one who waits."""
    held = [pool.acquire_nowait()]
    receive = asyncio.create_task(server.recv(held[0]))
    while pool.free:
        held.append(await pool.acquire())
    waiting = asyncio.create_task(pool.acquire())
    await asyncio.sleep(0)
    send = client.send(bytes(_SIZE))
    ucp.progress()
    for task in (receive, waiting):
        task.cancel()
    await asyncio.wait([receive, waiting])
    for buffer in held:
        buffer.release()
    assert len(await server.recv_obj()) == _SIZE
    await send
