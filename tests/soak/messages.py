# SPDX-License-Identifier: BSD-3-Clause
"""Messages of all protocols, one after the other and many at once."""

import asyncio

from ucp.testing import connected_pair

_WINDOW = 100

# Of a hundred messages: how many bytes one of them has.
_SIZES = [8] * 90 + [0, 92, 129, 1000, 8192, 20_000, 60_000, 131_071] + [300_000] * 2


async def run(count):
    done = 0
    async with connected_pair() as (client, server):
        data = [bytes([size % 251]) * size for size in _SIZES]
        while done < count:
            await _one_by_one(client, server, data)
            await _one_by_one(server, client, data)
            await _at_once(client, server, data)
            done += 3 * len(data)
    return f"{done} messages"


async def _one_by_one(source, target, data):
    for number, each in enumerate(data):
        buffer = bytearray(len(each))
        receive = target.recv(buffer, tag=number)
        await source.send(each, tag=number)
        await receive
        assert buffer == each


async def _at_once(source, target, data):
    sends = asyncio.ensure_future(source.send_many(data))
    for each in data:
        assert await target.recv_obj() == each
    await sends
