# SPDX-License-Identifier: BSD-3-Clause
"""Long messages over a slow network: they arrive whole, short ones do not wait for
them, and endpoints take turns."""

import pytest
from relay import HOSTS, joined_hosts, start

SERVER = f"""
import asyncio, signal, sys, ucp
signal.alarm(30)  # the time limit

async def echo(ep):  # each kind of message, there and back
    while True:
        data = await ep.recv_obj()
        await ep.send_obj(data)
        _, frames = await ep.recv_frames()
        await ep.send_frames(frames)
        got = bytearray(len(data))
        await ep.stream_recv(got, wait_all=True)
        await ep.stream_send(got)
        await ep.am_send(await ep.am_recv())

async def take(ep):
    while True:
        await ep.recv_obj()

async def stay(ep):  # while it receives the second message
    await ep.recv_obj()
    await asyncio.gather(ep.recv_obj(), asyncio.Event().wait())

async def serve(ep):
    programs = {{b"echo": echo, b"take": take, b"stay": stay}}
    try:
        await programs[bytes(await ep.recv_obj())](ep)
    except ucp.UCXError:
        pass  # the client has closed

async def main():
    listener = ucp.create_listener(host="{HOSTS[1]}")
    print(listener.port, flush=True)
    served = set()
    async for ep in listener:
        served.add(asyncio.create_task(serve(ep)))

asyncio.run(main())
"""

CLIENT = f"""
import asyncio, random, signal, sys, time, ucp
signal.alarm(30)

async def connect(program, server=1):
    ep = await ucp.create_endpoint("{HOSTS[1]}", int(sys.argv[server]))
    await ep.send_obj(program)
    return ep

"""

WHOLE = """
async def main():
    ep = await connect(b"echo")
    for size in (1, 16383, 16384, 49152, 262143, 262144, 3 << 20):
        data = random.Random(size).randbytes(size)
        await ep.send_obj(data)
        assert await ep.recv_obj() == data
        await ep.send_frames([data, b"", data])
        _, frames = await ep.recv_frames()
        assert list(map(bytes, frames)) == [data, b"", data]
        got = bytearray(size)
        await asyncio.gather(ep.stream_send(data), ep.stream_recv(got, wait_all=True))
        assert got == data
        await ep.am_send(data, header=b"h" * 1024)
        assert bytes(await ep.am_recv()) == data
    await ep.close()
    print("whole")

asyncio.run(main())
"""

# How many round trips there are while the other endpoint sends 4 MiB.
SHORT = """
async def main():
    ep, other = await connect(b"echo"), await connect(b"take")
    bulk = asyncio.ensure_future(SEND)
    count = 0
    while not bulk.done():
        await ep.send_obj(b"?")
        await ep.recv_obj()
        await ep.send_frames([])
        await ep.recv_frames()
        await ep.stream_send(b"?")
        await ep.stream_recv(bytearray(1))
        await ep.am_send(b"?")
        await ep.am_recv()
        count += 1
    print(count)

asyncio.run(main())
"""

# What each of three senders has sent when 6 MiB have gone: one message at a time of
# 100 kB, of 1 MiB, and four at a time of 1 MiB.
SHARES = """
async def main():
    sent = [0, 0, 0]
    over = asyncio.Event()

    async def send(index, ep, size):
        data = bytes(size)
        while True:
            await ep.send_obj(data)
            sent[index] += size
            if sum(sent) >= 6 << 20:
                over.set()

    tasks = []
    for index, (size, count) in enumerate([(100_000, 1), (1 << 20, 1), (1 << 20, 4)]):
        ep = await connect(b"take")
        tasks += [asyncio.create_task(send(index, ep, size)) for _ in range(count)]
    await over.wait()
    for task in tasks:
        task.cancel()
    print(*sent)

asyncio.run(main())
"""


# Its sends are announced when it stands still, until a line comes.
KILLED = """
async def main():
    ep = await connect(b"stay")
    data = [bytearray(1 << 20) for _ in range(30)]
    tasks = [asyncio.create_task(ep.send_obj(each)) for each in data]
    await tasks[0]
    print("begun", flush=True)
    sys.stdin.readline()
    time.sleep(0.3)  # it computes, and has not heard of that
    for task in reversed(tasks):
        task.cancel()
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    assert asyncio.CancelledError in map(type, ends)
    eps = [await connect(b"take", server=2) for _ in range(3)]
    await asyncio.gather(*(ep.send_obj(bytes(400_000)) for ep in eps * 8))
    print("goes on")

asyncio.run(main())
"""


def output(program, **settings):
    """What the client prints."""
    with joined_hosts(**settings) as link, start(link.namespaces[1], SERVER) as server:
        port = server.stdout.readline().strip()
        with start(link.namespaces[0], CLIENT + program, port) as client:
            text = client.stdout.read().strip()
            assert client.wait() == 0
            return text


def test_every_kind_of_message_arrives_whole():
    assert output(WHOLE) == "whole"


BULKS = [
    "other.send_obj(bytes(4 << 20))",
    "asyncio.gather(*(other.send_obj(bytes(64 << 10)) for _ in range(64)))",
]


@pytest.mark.parametrize("bulk", BULKS, ids=["one", "many"])
def test_short_messages_do_not_wait_for_long_ones(bulk):
    text = output(SHORT.replace("SEND", bulk), rate=100e6, queue=0.02)
    assert int(text) >= 2


def test_senders_have_equal_shares():
    shares = [int(word) for word in output(SHARES, rate=200e6, queue=0.02).split()]
    assert min(shares) > max(shares) / 4


def test_sends_are_cancelled_when_the_receiver_was_killed():
    with (
        joined_hosts(rate=200e6) as link,
        start(link.namespaces[1], SERVER) as killed,
        start(link.namespaces[1], SERVER) as server,
    ):
        ports = [each.stdout.readline().strip() for each in (killed, server)]
        with start(link.namespaces[0], CLIENT + KILLED, *ports) as client:
            assert client.stdout.readline() == "begun\n"
            killed.kill()
            killed.wait()
            assert client.communicate("\n", timeout=30)[0] == "goes on\n"
