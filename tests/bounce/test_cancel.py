# SPDX-License-Identifier: BSD-3-Clause
# tests: bounce/fill bounce/fetch bounce/direct worker/dma
"""Cancelled messages of memory of devices, slots that a peer keeps, and failures."""

import pytest
import standin
from paths import TESTS
from script import run_script

pytestmark = pytest.mark.timeout(120)

PRELUDE = f"""
import asyncio, os, signal, sys, ucp
sys.path.append({str(TESTS)!r})
import standin
from devices.memory import Memory
from peer import Peer
from ucp.testing import connected_pair
"""

# The sender's part of frames goes on from a copy: what the receiver's device reads
# of the program's memory afterwards is the program's own.
FRAMES = """
async def main():
    for delay in (0, 0.001, 0.003, 0.01, 0.03):
        async with connected_pair() as (left, right):
            sent = [Memory(KIND, 5 << 20, seed) for seed in (1, 2)]
            got = [Memory("device", 5 << 20, ~seed) for seed in (1, 2)]
            sending = asyncio.ensure_future(
                left.send_frames([memory.buffer for memory in sent])
            )
            receiving = asyncio.ensure_future(
                right.recv_frames(into=[memory.buffer for memory in got])
            )
            await asyncio.sleep(delay)
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            for memory in sent:
                memory.fill(1000)
            await receiving
            assert not got[0].wrong(1) and not got[1].wrong(2), delay

asyncio.run(main())
"""


@pytest.mark.parametrize("kind", ["device", "bytearray", "pinned"])
def test_a_part_that_is_cancelled_is_sent_as_it_was(kind):
    source = f"{PRELUDE}KIND = {kind!r}\n{FRAMES}"
    run_script(source, **standin.settings(ucx=True, STANDIN_STEP_US="500"))


# Three peers share the slots; each time the sender's loop turns it has had them for
# too long. Who has emptied them hears of that.
BUSY = """
import time

async def serve(ep):
    for _ in range(2):
        await ep.send(memory.buffer)
    await ep.recv_obj()

async def main():
    global memory
    listener = ucp.create_listener(host="127.0.0.1")
    peers = [Peer({}) for _ in range(3)]
    begun = []
    for peer in peers:
        await peer.result(peer.begin(f"import sys; sys.path.append({TESTS!r})"))
        await peer.result(peer.begin("from devices.memory import Memory"))
        await peer.result(peer.begin(
            f"ep = await ucp.create_endpoint('127.0.0.1', {listener.port})"
        ))
        begun.append(peer.begin('''
got = Memory("device", 8 << 20, 1)
wrong = []
for _ in range(2):
    got.fill(~7)
    await ep.recv(got.buffer)
    wrong.append(got.wrong(7))
await ep.send_obj(b"x")
wrong'''))
    memory = Memory("numpy", 8 << 20, 7)
    eps = [await listener.accept() for _ in peers]
    serving = asyncio.gather(*map(serve, eps))
    while not serving.done():
        await asyncio.sleep(0.001)
        time.sleep(0.15)
    await serving
    for peer in peers:
        peer.kill()

asyncio.run(main())
"""


def test_slots_that_are_taken_back_are_fetched_again():
    source = f"{PRELUDE}TESTS = {str(TESTS)!r}\n{BUSY}"
    run_script(source, **standin.settings(ucx=True))


# An error of the driver that does not last says nothing about the copy.
ERROR = """
async def main():
    async with connected_pair() as (left, right):
        got = Memory("device", 2 << 20, 9)
        standin.fail(NAME, CODE, AT)
        sending = asyncio.ensure_future(left.send(Memory("numpy", 2 << 20, 1).buffer))
        results = await asyncio.gather(
            right.recv(got.buffer), return_exceptions=True
        )
        standin.fail(None, 0, 0)
        got.fill(5)
        await asyncio.sleep(0.1)
        assert not got.wrong(5), (NAME, results)
        await asyncio.gather(sending, return_exceptions=True)

asyncio.run(main())
"""


@pytest.mark.parametrize("name", ["cuEventQuery", "cuCtxPushCurrent_v2"])
def test_nothing_is_written_after_an_error(name):
    source = f"""
import logging
logging.disable()
{PRELUDE}NAME, CODE, AT = {name!r}, 1, {2 if name.startswith("cuCtx") else 1}
{ERROR}"""
    run_script(source, **standin.settings(STANDIN_STEP_US="500"))
