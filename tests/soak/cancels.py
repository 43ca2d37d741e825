# SPDX-License-Identifier: BSD-3-Clause
"""Cancel sends, receives and connects at every stage; nothing gets lost."""

import asyncio

import ucp
from ucp.testing import connected_pair

_SIZES = [8, 20_000, 300_000]


async def run(count):
    done = 0
    async with connected_pair() as (client, server):
        while done < count:
            for size in _SIZES:
                done += await _cancel_all(client, server, b"a" * size)
            if done % 1200 == 0:
                done += await _cancel_connect()
    return f"{done} cancels"


async def _cancel_all(client, server, data):
    stages = [_queued, _landing, _done, _message, _sent]
    for stage in stages:
        await stage(client, server, data)
    return len(stages)


async def _cancelled(task):
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        return
    raise AssertionError("not cancelled")


async def _back(server, data):
    """The message that a cancelled receive had is there again."""
    assert await server.recv_obj() == data


async def _queued(client, server, data):
    task = asyncio.ensure_future(server.recv(bytearray(len(data))))
    await asyncio.sleep(0)
    await _cancelled(task)


async def _landing(client, server, data):
    """Somewhere on the way of the message."""
    task = asyncio.ensure_future(server.recv(bytearray(len(data))))
    await asyncio.sleep(0)
    send = client.send(data)
    ucp.progress()
    await _cancelled(task)
    await asyncio.gather(_back(server, data), send)


async def _done(client, server, data):
    loop = asyncio.get_running_loop()
    request = server.recv(bytearray(len(data)))
    send = client.send(data)
    while not request.done():
        ucp.progress()
    await _cancelled(loop.create_task(request))
    await asyncio.gather(_back(server, data), send)


async def _message(client, server, data):
    task = asyncio.ensure_future(server.recv_obj())
    await asyncio.sleep(0)
    send = client.send(data)
    ucp.progress()
    await _cancelled(task)
    await asyncio.gather(_back(server, data), send)


async def _sent(client, server, data):
    """Cancel the wait for a send that was posted: it arrives, or is withdrawn."""
    await _cancelled(asyncio.get_running_loop().create_task(client.send(data)))
    end = client.send(b"end")
    message = await server.recv_obj()
    if message != b"end":
        assert message == data
        await _back(server, b"end")
    await end


async def _cancel_connect():
    listener = ucp.create_listener(lambda ep: None, host="127.0.0.1")
    for turns in range(5):
        task = asyncio.ensure_future(ucp.create_endpoint("127.0.0.1", listener.port))
        for _ in range(turns):
            await asyncio.sleep(0)
        if task.done():  # the endpoint connected first
            (await task).abort()
        else:
            await _cancelled(task)
    listener.close()
    return 5
