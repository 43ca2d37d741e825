# SPDX-License-Identifier: BSD-3-Clause
# tests: endpoint/settle
"""Closes that the peer does not answer, as it computes, or is stopped.

Closes have no deadline here but where a test is about that: one that waits for what
it should not wait for runs into a time limit.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time

import pytest
from zygote import Popen

import ucp
from ucp.testing import until

HOUR = 3600  # seconds; longer than any test may last
LIMIT = 30
COUNT = 64
BIG = 4 << 20  # bytes
LONG = 2000  # bytes, more than are in an element of UCX's queue

PRELUDE = f"""
import asyncio, sys, ucp

ucp.init(config=ucp.Config(close_timeout={HOUR}))

async def connect():
    ep = await ucp.create_endpoint("127.0.0.1", int(sys.argv[1]))
    for _ in range(100):
        await ep.send_obj(await ep.recv_obj())
    return ep

async def send(ep):
    for i in range(int(sys.argv[3])):
        await ep.send_obj(bytes([i]) * int(sys.argv[2]))
"""

CLOSE = """
async def main():
    async with await connect() as ep:
        await send(ep)
asyncio.run(main())
"""

RETURN = """
async def main():
    await send(await connect())
asyncio.run(main())
"""

DROP_BLOCKING = """
async def main():
    ep = await connect()
    await send(ep)
    del ep
loop = asyncio.new_event_loop()
loop.run_until_complete(main())
loop.close()
"""


@contextlib.asynccontextmanager
async def connected_script(source, size=100, count=COUNT):
    """A process that runs `source`, and a connection with it, that has been used.

    It sends `count` messages of `size` bytes.
    """
    async with ucp.create_listener(host="127.0.0.1") as listener:
        process = Popen(
            [
                *(sys.executable, "-P", "-c", PRELUDE + source),
                *(str(listener.port), str(size), str(count)),
            ],
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            ep = await listener.accept()
            for _ in range(100):
                await ep.send_obj(b"x" * LONG)
                assert await ep.recv_obj() == b"x" * LONG
            yield process, ep
        finally:
            process.kill()
            process.wait()
            process.stderr.close()


@pytest.fixture
def tcp_or_not(transport, monkeypatch):
    if transport == "tcp":
        monkeypatch.setenv("UCX_TLS", "tcp")
    return transport


async def read_all(ep, size=100, count=COUNT):
    for i in range(count):
        assert await ep.recv_obj() == bytes([i]) * size
    with pytest.raises(ucp.UCXError):
        await ep.recv_obj()


@pytest.mark.parametrize("source", [CLOSE, RETURN, DROP_BLOCKING])
async def test_a_process_ends_while_its_peer_computes(source, tcp_or_not):
    async with connected_script(source) as (process, ep):
        assert process.wait(timeout=LIMIT) == 0  # nothing of ucp runs here meanwhile
        await read_all(ep)


# Messages whose bytes follow behind their header, in UCX's queue over shared memory.
async def test_long_messages_lie_in_the_queue_too():
    async with connected_script(RETURN, 20000, 16) as (process, ep):
        assert process.wait(timeout=LIMIT) == 0
        await read_all(ep, 20000, 16)


@pytest.mark.parametrize(
    "send",
    [
        lambda ep: ep.send_obj(bytes(4000)),
        lambda ep: ep.send(bytes(4000), tag=5, force_tag=True),
    ],
    ids=["messages", "raw tags"],
)
async def test_the_last_messages_survive_what_is_sent_first(send, tcp_or_not):
    """Over tcp, the second send to a process that is gone breaks the connection."""
    async with connected_script(CLOSE) as (process, ep):
        assert process.wait(timeout=LIMIT) == 0
        sends = []
        for _ in range(20):
            with contextlib.suppress(ucp.UCXError):
                sends.append(send(ep))
        await read_all(ep)
        await asyncio.gather(*sends, return_exceptions=True)


# ---- what has to be waited for ------------------------------------------------


async def connect_ucx(peer, ep):
    """Let UCX connect: it does so for the first message that does not fit an element
    of its queue."""
    await ep.send_obj(bytes(LONG))
    assert await peer.do("len(await ep.recv_obj())") == LONG


@pytest.fixture
def stopped_peer(tcp_or_not, connect_peer):
    """Connect to a peer that is stopped then."""

    async def connect():
        peer, ep = await connect_peer()
        await connect_ucx(peer, ep)
        peer.stop()
        return peer, ep

    return connect


async def test_an_announced_message_is_waited_for(stopped_peer, caplog):
    peer, ep = await stopped_peer()
    for i in range(10):
        await ep.send_obj(bytes([i]) * 100)
    sending = ep.send_obj(bytes(BIG))
    closing = asyncio.ensure_future(ep.close(timeout=HOUR))
    await until(lambda: "closing the connection to 127.0.0.1:" in caplog.text)
    assert f"the peer has not read {BIG} bytes" in caplog.text
    assert not closing.done()
    peer.resume()
    await closing
    await sending
    for i in range(10):
        assert await peer.do("bytes(await ep.recv_obj())") == bytes([i]) * 100
    assert await peer.do("len(await ep.recv_obj())") == BIG


async def test_a_close_in_vain_says_what_it_has_waited_for(stopped_peer):
    _, ep = await stopped_peer()
    sending = ep.send_obj(bytes(BIG))
    with pytest.raises(ucp.UCXTimeout) as caught:
        await ep.close(timeout=0.3)
    assert f"the peer has not read {BIG} bytes" in str(caught.value)
    host, port = ep.peer_address
    assert f"close of the endpoint to {host}:{port}: " in str(caught.value)
    with pytest.raises(ucp.UCXError):
        await sending


async def test_messages_without_credit_are_waited_for(fresh_ucx, connect_peer):
    peer, ep = await connect_peer()
    await peer.do(
        "ep.abort(); listener.close(); await listener.wait_closed(); ucp.reset(); "
        "ucp.init(config=ucp.Config(credit_messages=8, credit_rndv=2)); "
        "listener = ucp.create_listener(host='127.0.0.1')"
    )
    ep = await ucp.create_endpoint("127.0.0.1", await peer.do("listener.port"))
    await peer.do("ep = await anext(listener)")
    await connect_ucx(peer, ep)
    peer.stop()
    sends = [ep.send_obj(bytes([i])) for i in range(100)]
    with pytest.raises(ucp.UCXTimeout, match=r"messages wait until the peer has read"):
        await ep.close(timeout=0.3)
    await asyncio.gather(*sends, return_exceptions=True)


async def test_bytes_in_the_kernel_are_waited_for(fresh_ucx, monkeypatch, connect_peer):
    """What the peer's system has not taken would be lost with this process."""
    monkeypatch.setenv("UCX_TLS", "tcp")
    peer, ep = await connect_peer()
    peer.stop()
    data = os.urandom(1 << 20)
    parts = [data[i : i + 16384] for i in range(0, len(data), 16384)]
    sends = [ep.send_obj(part) for part in parts]
    closing = asyncio.ensure_future(ep.close(timeout=HOUR))
    await asyncio.wait([closing], timeout=0.5)
    assert not closing.done()
    peer.resume()
    await closing
    await asyncio.gather(*sends)
    for part in parts:
        assert await peer.do("bytes(await ep.recv_obj())") == part


# ---- ends -----------------------------------------------------------------------


async def test_who_has_heard_of_the_peers_close_does_not_wait_for_it(
    tcp_or_not, connect_peer
):
    peer, ep = await connect_peer()
    await connect_ucx(peer, ep)
    peer.begin(
        "import os, signal\n"
        "closing = asyncio.ensure_future(ep.close())\n"
        "for _ in range(5): await asyncio.sleep(0)\n"
        "os.kill(os.getpid(), signal.SIGSTOP)"
    )
    peer.wait_stopped()
    await until(ep.closed)
    await ep.close(timeout=HOUR)
    peer.resume()
    await peer.do("await closing")


async def test_an_answer_that_has_come_by_the_deadline_counts(tcp_or_not, connect_peer):
    peer, ep = await connect_peer()
    await connect_ucx(peer, ep)
    closing = asyncio.ensure_future(ep.close(timeout=0.2))
    for _ in range(5):
        await asyncio.sleep(0)  # the peer is told
    time.sleep(2)
    await closing


async def test_no_message_of_an_aborted_connection_is_made_of_zeros(connect_peer):
    """Another connection between the two keeps UCX's."""
    peer, ep = await connect_peer()
    await peer.do("first = ep")
    other = await ucp.create_endpoint("127.0.0.1", await peer.do("listener.port"))
    await peer.do("other = await anext(listener)")
    await connect_ucx(peer, ep)
    peer.stop()
    sends = [ep.send_obj(b"x" * 4000) for _ in range(1000)]
    ep.abort()
    for sending in sends:
        sending.cancel()
    peer.resume()
    await peer.do(
        "got = set()\n"
        "while True:\n"
        "    try: got.add(bytes(await first.recv_obj()))\n"
        "    except ucp.UCXError: break"
    )
    assert await peer.do("got == {b'x' * 4000}")
    await other.send_obj(b"y")
    assert await peer.do("bytes(await other.recv_obj())") == b"y"
    await asyncio.gather(*sends, return_exceptions=True)


# ---- Ctrl-C -------------------------------------------------------------------

# Its loop wakes now and then: a signal that comes between CPython's last look and its
# sleep is heard of then.
SERVE = f"""
import asyncio, ucp

ucp.init(config=ucp.Config(close_timeout={HOUR}))

async def answer(ep):
    async for message in ep:
        ep.send_obj(bytes(len(message)))
        print("answered", flush=True)

async def wake():
    while True:
        await asyncio.sleep(0.1)

async def main():
    waking = asyncio.ensure_future(wake())
    async with ucp.create_listener(answer, host="127.0.0.1") as listener:
        print(listener.port, flush=True)
        await listener.serve_forever()

asyncio.run(main())
"""


@contextlib.asynccontextmanager
async def interrupted_server(size):
    """A server that has answered with `size` bytes, and is interrupted then."""
    with Popen(
        [sys.executable, "-P", "-c", SERVE],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as server:
        try:
            ep = await ucp.create_endpoint("127.0.0.1", int(server.stdout.readline()))
            await ep.send_obj(bytes(size))
            assert await asyncio.to_thread(server.stdout.readline) == "answered\n"
            server.send_signal(signal.SIGINT)
            yield server, ep
        finally:
            server.kill()


async def test_ctrl_c_of_a_server_waits_for_no_idle_client(tcp_or_not):
    async with interrupted_server(10) as (server, ep):
        assert server.wait(timeout=LIMIT) == -signal.SIGINT
        assert await ep.recv_obj() == bytes(10)


async def test_a_second_ctrl_c_ends_the_process(tcp_or_not):
    async with interrupted_server(BIG) as (server, _):
        line = server.stderr.readline()  # it waits for this client
        assert f"the peer has not read {BIG} bytes" in line
        server.send_signal(signal.SIGINT)
        assert server.wait(timeout=LIMIT) == -signal.SIGINT
        err = server.stderr.read()
        assert "Exception ignored" not in err
