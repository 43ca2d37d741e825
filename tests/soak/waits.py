# SPDX-License-Identifier: BSD-3-Clause
"""Wait for numbers in memory: what comes, what is cancelled, what is closed."""

import asyncio

import numpy as np

import ucp
from ucp.testing import connected_pair

_ROUND = 20  # waits for each memory


async def run(count):
    done = 0
    async with connected_pair() as (client, _server):
        while done < count:
            for memory in (
                ucp.Memory.allocate(64),
                ucp.Memory.register(np.zeros(8, "u8")),
            ):
                done += await _one_memory(client, memory)
    return f"{done} waits"


async def _one_memory(client, memory):
    remote = client.remote(memory.key)
    for number in range(1, _ROUND):
        waiting = asyncio.ensure_future(memory.wait_until(0, ">=", number))
        await asyncio.sleep(0)
        if number % 4 == 0:
            await _cancelled(waiting)
        await remote.put_signal(b"x", 8, 0, number)
        if number % 4 != 0:
            await waiting
    waiting = asyncio.ensure_future(memory.wait_until(0, ">=", _ROUND))
    await asyncio.sleep(0)
    remote.close()
    memory.close()
    try:
        await waiting
    except ucp.UCXInvalidKey:
        return _ROUND
    raise AssertionError("the memory is closed")


async def _cancelled(task):
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        return
    raise AssertionError("not cancelled")
