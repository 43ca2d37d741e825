"""Nobody sleeps through a message, and nobody is kept from the loop."""

import asyncio
import random

import pytest

import ucp

# Queues so short that they are full most of the time: a post waits for room
# then, and only a wake-up tells that there is some.
SHORT_QUEUES = {
    "shm": {"TLS": "posix,self", "POSIX_FIFO_SIZE": "16", "POSIX_SEG_SIZE": "1k"},
    "tcp": {"TLS": "tcp", "TCP_TX_SEG_SIZE": "2k", "TCP_RX_SEG_SIZE": "2k"},
}
WATCHDOG = 5  # seconds: far longer than any message takes

ECHO = """
async def echo(count, window):
    data = [bytearray(300_000) for _ in range(window)]
    lanes = [asyncio.create_task(echo_one(n, count, data[n])) for n in range(window)]
    await asyncio.gather(*lanes)

async def echo_one(tag, count, data):
    view = memoryview(data)
    for _ in range(count):
        size = await ep.recv_into(data, tag=tag)
        await ep.send(view[:size], tag=tag)
"""


def environment(options):
    return {f"UCX_{key}": value for key, value in options.items()}


async def watched(worker, request, lost):
    """Await; what only progress by hand completes was a lost wake-up."""
    waiting = asyncio.ensure_future(request)
    done, _ = await asyncio.wait([waiting], timeout=WATCHDOG)
    while not done:
        if worker.progress():
            lost.append(request)
        done, _ = await asyncio.wait([waiting], timeout=WATCHDOG)
    return waiting.result()


@pytest.mark.parametrize("spin", [0, 50_000])
@pytest.mark.parametrize("transport", SHORT_QUEUES)
async def test_no_wake_up_is_lost_where_queues_are_full(start_peer, transport, spin):
    count, window = 150, 6
    options = SHORT_QUEUES[transport]
    ucp.reset()
    ucp.init(options=options, config=ucp.Config(spin_ns=spin))
    try:
        peer = start_peer(**environment(options))
        ep = await ucp.create_endpoint("127.0.0.1", await peer.do("listener.port"))
        await peer.do("ep = await anext(listener)")
        await peer.do(ECHO)
        echoing = peer.begin(f"await echo({count}, {window})")
        worker = ucp.current_worker()
        lost = []

        async def lane(tag):
            sizes = random.Random(tag)
            for _ in range(count):
                size = sizes.choice([0, 8, 3000, 40_000, 300_000])
                sent = bytes([tag]) * size
                back = bytearray(size)
                receive = ep.recv(back, tag=tag)
                await watched(worker, ep.send(sent, tag=tag), lost)
                await watched(worker, receive, lost)
                assert back == sent

        await asyncio.gather(*(lane(tag) for tag in range(window)))
        await peer.result(echoing)
        assert lost == []
        await ep.close()
    finally:
        ucp.reset()


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
