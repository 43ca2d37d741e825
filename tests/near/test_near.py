# SPDX-License-Identifier: BSD-3-Clause
"""Short messages through rings in memory that two processes map."""

import asyncio
import contextlib
import ctypes
import gc
import os
import random
import signal
import subprocess
import sys
import textwrap
import time

import pytest

import ucp
from ucp.testing import until

CHILD = """
import asyncio, os, random, sys, time, ucp

async def main():
    ucp.init(config=ucp.Config(near_max=1024))
    ep = await ucp.create_endpoint("127.0.0.1", int(sys.argv[1]))
    PROGRAM

asyncio.run(main())
"""

ECHO = """
while (data := await ep.recv_obj()) != b"end":
    await ep.send(data)
await ep.close()
"""


@pytest.fixture
def init(fresh_ucx):
    ucp.init(config=ucp.Config(near_max=1024))


@contextlib.asynccontextmanager
async def child(program, source=CHILD, **env):
    """A process that runs ``program``, and the endpoint to it."""
    listener = ucp.create_listener(host="127.0.0.1")
    body = textwrap.indent(textwrap.dedent(program).strip(), "    ").strip()
    source = source.replace("PROGRAM", body)
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", source, str(listener.port)],
        env=os.environ | env,
    )
    try:
        yield await anext(listener), process
    finally:
        process.kill()
        process.wait()
        listener.close()


def numbers():
    return ucp.current_worker().statistics


async def exchange(ep, data):
    request = ep.send(data)
    got = await ep.recv_obj()
    await request
    return got


async def open_rings(ep):
    while numbers().near_rings < 2:
        assert await exchange(ep, b"x") == b"x"


async def test_many_short_messages_open_rings(init):
    async with child(ECHO) as (ep, _):
        await open_rings(ep)
        before = numbers().near_messages
        for size in range(1, 1025, 41):
            data = random.randbytes(size)
            assert await exchange(ep, data) == data
        assert numbers().near_messages == before + 25


@pytest.mark.parametrize(
    "sizes", [[512, 2048], [8, 1024], [8, 1025, 100_000], [1, 64, 65, 600, 3000]]
)
async def test_messages_of_mixed_sizes_keep_their_order(init, sizes):
    async with child(ECHO) as (ep, _):
        await open_rings(ep)
        rng = random.Random(1)
        for burst in (1, 7, 300):
            sent = [rng.randbytes(rng.choice(sizes)) for _ in range(burst * 3)]
            requests = [ep.send(data) for data in sent]
            for data in sent:
                assert await ep.recv_obj() == data
            await asyncio.gather(*requests)


@pytest.mark.parametrize(
    ("count", "end", "error"),
    [
        (200, "await ep.close()", ucp.UCXCloseError),
        (100, "os.kill(os.getpid(), 9)", ucp.UCXConnectionReset),
    ],
    ids=["close", "kill"],
)
async def test_all_arrives_that_was_sent_before_the_end(init, count, end, error):
    program = f"""
    while await ep.recv_obj() != b"end":
        await ep.send(b"x")
    for i in range({count}):
        await ep.send(b"%d" % i)
    {end}
    """
    async with child(program) as (ep, process):
        while numbers().near_rings < 2:
            await exchange(ep, b"x")
        await ep.send(b"end")
        process.wait()
        for i in range(count):
            assert await ep.recv_obj() == b"%d" % i
        with pytest.raises(error):
            await ep.recv_obj()


async def test_to_a_stopped_process_messages_wait_in_order(init):
    async with child(ECHO) as (ep, process):
        await open_rings(ep)
        os.kill(process.pid, signal.SIGSTOP)
        sent = [b"%d" % i * 20 for i in range(2000)]
        requests = [ep.send(data) for data in sent]
        os.kill(process.pid, signal.SIGCONT)
        for data in sent:
            assert await ep.recv_obj() == data
        await asyncio.gather(*requests)


async def test_a_buffer_is_free_after_a_send_and_a_cancelled_receive(init):
    async with child(ECHO) as (ep, _):
        await open_rings(ep)
        for i in range(200):
            buffer = bytearray(b"%04d" % i * 50)
            request = ep.send(buffer)
            await request
            buffer[:] = bytes(200)
            other = bytearray(200)
            receive = ep.recv(other)
            if i % 2:
                receive.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await receive
                other[:] = b"\xff" * 200
            else:
                await receive
                assert other == b"%04d" % i * 50
            if i % 2:
                got = bytes(other) if other != b"\xff" * 200 else None
                assert got in (None, b"%04d" % i * 50)
                assert await ep.recv_obj() == b"%04d" % i * 50


async def test_a_forked_child_leaves_the_ring_alone(init):
    async with child(ECHO) as (ep, _):
        await open_rings(ep)
        pid = os.fork()
        if pid == 0:
            try:
                with contextlib.suppress(ucp.UCXError):
                    ep.send(b"child")
                gc.collect()
            finally:
                os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        for i in range(100):
            assert await exchange(ep, b"%d" % i) == b"%d" % i


# Each side is late by a random time, so that the other is about to sleep, or sleeps,
# when a message is written. tests/model/near.py looks at every interleaving.
async def test_no_wake_up_is_lost(init):
    program = """
    rng = random.Random(2)
    while (data := await ep.recv_obj()) != b"end":
        if rng.random() < 0.5:
            time.sleep(rng.random() * 1e-4)
        await ep.send(data)
    await ep.close()
    """
    async with child(program) as (ep, _):
        await open_rings(ep)
        rng = random.Random(3)
        for i in range(3000):
            if rng.random() < 0.5:
                time.sleep(rng.random() * 1e-4)
            request = ep.send(b"%d" % i)
            got = await asyncio.wait_for(ep.recv_obj(), 5)
            await request
            assert got == b"%d" % i


async def test_idle_rings_are_closed(init):
    async with child(ECHO) as (ep, _):
        await open_rings(ep)
        await until(lambda: numbers().near_rings == 0)
        before = numbers().near_messages
        assert await exchange(ep, b"x") == b"x"
        assert numbers().near_messages == before


@pytest.mark.parametrize(
    ("source", "env"),
    [(CHILD, {"UCX_TLS": "tcp"}), (CHILD.replace("1024", "0"), {})],
    ids=["tcp", "peer"],
)
async def test_without_shared_memory_or_the_peers_will_there_is_no_ring(
    init, source, env
):
    async with child(ECHO, source, **env) as (ep, _):
        for _ in range(500):
            await exchange(ep, b"x")
        assert numbers().near_rings == numbers().near_messages == 0


def segments():
    """Numbers of the segments of System V, as the system lists them."""
    with open("/proc/sysvipc/shm") as lines:
        return {int(line.split()[1]) for line in list(lines)[1:]}


@pytest.mark.skipif(not os.path.exists("/proc/sysvipc/shm"), reason="no list")
async def test_no_segment_is_left(init):
    async with child(ECHO) as (ep, process):
        await open_rings(ep)
        assert await exchange(ep, b"x") == b"x"
        process.kill()
        process.wait()
        ep.abort()
    ucp.reset()
    libc = ctypes.CDLL(None)
    for number in segments():
        stat = ctypes.create_string_buffer(512)
        assert (
            libc.shmctl(number, 2, stat) != 0
            or int.from_bytes(stat[48:56], "little") != 65536
        )


@pytest.mark.parametrize("value", [-1, 1025])
def test_the_limit_of_a_ring_is_1_kib(value):
    with pytest.raises((ValueError, OverflowError)):
        ucp.init(config=ucp.Config(near_max=value))
