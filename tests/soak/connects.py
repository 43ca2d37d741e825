# SPDX-License-Identifier: BSD-3-Clause
"""Connect, say a word each way, close: from both sides, and by dropping."""

import asyncio

import ucp


async def run(count):
    """Returns what was done, in words."""
    listener = ucp.create_listener(host="127.0.0.1")
    try:
        for number in range(count):
            await _connect(listener, number)
    finally:
        listener.close()
    return f"{count} connects"


async def _connect(listener, number):
    client = await ucp.create_endpoint("127.0.0.1", listener.port)
    server = await anext(listener)
    await client.send(b"ping")
    assert await server.recv_obj() == b"ping"
    await server.send(b"pong")
    assert await client.recv_obj() == b"pong"
    match number % 5:
        case 0:
            await client.close()
            await server.close()
        case 1:
            await server.close()
            await client.close()
        case 2:
            await asyncio.gather(client.close(), server.close())
        case 3:
            client.abort()
            await server.close()
        case 4:
            pass  # dropped: closes in the background
