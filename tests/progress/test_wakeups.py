# SPDX-License-Identifier: BSD-3-Clause
# tests: ext/loop ucp/testing
"""Nobody sleeps through a message, and nobody is kept from the loop."""

import asyncio
import random

import pytest

import ucp
from ucp.testing import Watchdog

# Queues so short that they are full most of the time: a post waits for room
# then, and only a wake-up tells that there is some.
SHORT_QUEUES = {
    "posix": {"TLS": "posix,self", "POSIX_FIFO_SIZE": "16", "POSIX_SEG_SIZE": "1k"},
    "sysv": {"TLS": "sysv,self", "SYSV_FIFO_SIZE": "16", "SYSV_SEG_SIZE": "1k"},
    "tcp": {
        "TLS": "tcp",
        "TCP_TX_SEG_SIZE": "2k",
        "TCP_RX_SEG_SIZE": "2k",
        "TCP_SNDBUF": "8k",  # a TCP_RCVBUF as short makes the kernel drop packets
    },
}
SIZES = [0, 8, 3000, 3000, 40_000, 300_000]
BURST = 10  # messages of a round; all are posted, then awaited

ECHO = f"""
from ucp.testing import Watchdog

async def echo(lanes, rounds):
    with Watchdog() as watchdog:
        await asyncio.gather(*(echo_one(tag, rounds, watchdog) for tag in range(lanes)))

async def echo_one(tag, rounds, watchdog):
    for _ in range(rounds):
        if watchdog.lost:
            ep.abort()
        received = [await ep.recv_obj(tag) for _ in range({BURST})]
        await ep.send_many(received, tag)
"""


def environment(options):
    return {f"UCX_{key}": value for key, value in options.items()}


async def settled(request):
    """Wait without an await of the request, which would drain the worker."""
    done = asyncio.Event()
    request.add_done_callback(lambda _: done.set())
    await done.wait()
    request.result()


# With one lane there is no other whose messages would wake it up.
@pytest.mark.parametrize(
    "lanes, rounds, spin", [(1, 20, 0), (1, 20, 50_000), (4, 5, 50_000)]
)
@pytest.mark.parametrize("transport", SHORT_QUEUES)
async def test_no_wake_up_is_lost_where_queues_are_full(
    start_peer, fresh_ucx, loop_factory, transport, lanes, rounds, spin
):
    options = SHORT_QUEUES[transport]
    ucp.init(options=options, config=ucp.Config(spin_ns=spin))
    peer = start_peer(**environment(options))
    ep = await ucp.create_endpoint("127.0.0.1", await peer.do("listener.port"))
    await peer.do("ep = await anext(listener)")
    await peer.do(ECHO)
    echoing = peer.begin(f"await echo({lanes}, {rounds})")

    async def lane(tag):
        sizes = random.Random(tag)
        for i in range(rounds):
            sent = [bytes([tag]) * sizes.choice(SIZES) for _ in range(BURST)]
            back = [bytearray(len(data)) for data in sent]
            receiving = ep.recv_many(back, tag)
            sending = ep.send_many(sent, tag)
            if i % 3 == 0:
                await sending
                await receiving
            else:
                await settled(sending)
                await settled(receiving)
            assert back == sent
            assert watchdog.lost == 0

    with Watchdog() as watchdog:
        await asyncio.gather(*(lane(tag) for tag in range(lanes)))
        await peer.result(echoing)
    assert watchdog.lost == 0
    await ep.close()


FLOOD = """
async def flood(size):
    data = bytes(size)
    while True:
        await ep.send(data)
"""


@pytest.mark.usefixtures("transport")
@pytest.mark.parametrize("size", [8, 20_000, 1_000_000])
async def test_a_stream_of_messages_lets_others_run(connect_peer, size):
    """Messages come as fast as they are taken, until others have had their
    turns: for ever, if they get none."""
    peer, ep = await connect_peer()
    await peer.do(FLOOD)
    peer.begin(f"await flood({size})")

    async def take_turns():
        for _ in range(50):
            await asyncio.sleep(0)

    others = asyncio.create_task(take_turns())
    data = bytearray(size)
    while not others.done():
        await ep.recv(data)
    assert await peer.do("1 + 1") == 2  # the sender's loop has its turns, too
    ep.abort()
