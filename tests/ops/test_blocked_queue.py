# SPDX-License-Identifier: BSD-3-Clause
"""A process that dies, or stops, while it writes into a queue that all share.

UCX takes an element of the receiver's queue in shared memory, and then has the
bytes of a message of some kilobytes copied into it. What is sent here lies in
memory that cannot be read: the sender ends, or stops, just between the two.
"""

import asyncio
import signal

import pytest

import ucp
from ucp.testing import connected_pair, until

# The memory of UCX's queue is written to.
pytestmark = pytest.mark.default_workers

_NO_MEMORY = """
import mmap, signal, tempfile
file = tempfile.TemporaryFile()
file.truncate(4096)
nothing = memoryview(mmap.mmap(file.fileno(), 4096))[:3000]
file.truncate(0)
signal.signal(signal.SIGBUS, signal.SIG_DFL)
"""

# Readable again as soon as the process goes on.
_STOPS = """
import ctypes, mmap, os, signal
libc = ctypes.CDLL(None, use_errno=True)
map = mmap.mmap(-1, 4096)
map.write(b"x" * 3000)
stops = memoryview(map)[:3000]
place = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(map)))

@ctypes.CFUNCTYPE(None, ctypes.c_int)
def stop(number):
    os.kill(os.getpid(), signal.SIGSTOP)
    libc.mprotect(place, 4096, mmap.PROT_READ | mmap.PROT_WRITE)

libc.signal(signal.SIGSEGV, stop)
assert libc.mprotect(place, 4096, 0) == 0
"""

_REASON = "a process that was killed blocks the queue in shared memory"


@pytest.fixture
def connect(fresh_ucx, connect_peer):
    """Over shared memory, with nothing in the environment."""
    return connect_peer


async def _die_in_a_send(connect):
    victim, ep = await connect()
    await _check(victim, ep)
    await victim.do(_NO_MEMORY)
    victim.begin("await ep.send(nothing)")
    assert victim.wait() == -signal.SIGBUS
    with pytest.raises(ucp.UCXConnectionReset):
        await ep.recv_obj()


def _renewals():
    return ucp.current_worker().statistics.renewals


async def _check(peer, ep):
    """Check both directions, and each kind of protocol."""
    for size in (1, 5000, 300_000):
        answer = peer.begin("await ep.send(await ep.recv_obj())")
        await ep.send(bytes(size))
        assert await ep.recv_obj() == bytes(size)
        await peer.result(answer)


async def test_a_sender_that_dies_while_it_writes_blocks_nobody_for_long(connect):
    peer, ep = await connect()
    await _check(peer, ep)
    await _die_in_a_send(connect)
    sending = peer.begin("await ep.send_many([bytes(8)] * 1000)")
    with pytest.raises(ucp.UCXConnectionReset, match=f"{_REASON}$"):
        await ep.recv_obj()
    assert _renewals() == 1
    with pytest.raises(AssertionError, match="UCXError"):
        await peer.result(sending)
    await _check(*await connect())


async def test_so_do_several_one_after_the_other(connect):
    for number in (1, 2, 3):
        await _die_in_a_send(connect)
        while _renewals() != number:  # a renewal takes two seconds
            await asyncio.sleep(0.01)
        await _check(*await connect())


async def test_a_connection_to_itself_ends_and_the_next_one_works(fresh_ucx, connect):
    listener = ucp.create_listener(host="127.0.0.1")
    own = await ucp.create_endpoint("127.0.0.1", listener.port)
    other = await anext(listener)
    await _die_in_a_send(connect)
    with pytest.raises(ucp.UCXConnectionReset, match=f"{_REASON}$"):
        await other.recv_obj()
    own = await ucp.create_endpoint("127.0.0.1", listener.port)
    other = await anext(listener)
    await own.send(b"again")
    assert await other.recv_obj() == b"again"
    await asyncio.gather(own.close(), other.close())


async def test_connections_that_begin_meanwhile_wait(fresh_ucx, connect, start_peer):
    peer = start_peer()
    port = await peer.do("listener.port")
    async with ucp.create_listener(host="127.0.0.1") as listener:
        await _die_in_a_send(connect)
        # This process tells its address as the one that accepts, and as the one
        # that connects.
        calling = peer.begin(
            f"ep = await ucp.create_endpoint('127.0.0.1', {listener.port})"
        )
        other = await ucp.create_endpoint("127.0.0.1", port)
        assert _renewals() == 1
        ep = await anext(listener)
        await peer.result(calling)
        await _check(peer, ep)
        await peer.do("ep = await anext(listener)")
        await _check(peer, other)
    assert _renewals() == 1


async def test_so_does_a_connection_to_itself(fresh_ucx, connect):
    await _die_in_a_send(connect)
    async with ucp.create_listener(host="127.0.0.1") as listener:
        with pytest.raises(ucp.UCXTimeout, match="blocks the queue"):
            await ucp.create_endpoint("127.0.0.1", listener.port, connect_timeout=0.1)
    async with connected_pair() as (left, right):
        for size in (1, 5000, 1 << 20):
            received = bytearray(size)
            await asyncio.gather(left.send(bytes(size)), right.recv(received))
    assert _renewals() == 1


async def test_connections_over_tcp_live_on(connect):
    peer, ep = await connect(UCX_TLS="tcp")
    assert {name for name, _ in ep.transports()} == {"tcp"}
    waiting = ep.recv(buffer := bytearray(5), tag=7, force_tag=True)
    await _die_in_a_send(connect)
    await until(lambda: _renewals() == 1)
    await _check(peer, ep)
    # UCX's own tags: posted before, posted after, and kept.
    await peer.do("await ep.send(b'first', tag=7, force_tag=True)")
    await waiting
    assert buffer == b"first"
    await peer.do("await ep.send(b'later', tag=8, force_tag=True)")
    await ep.recv(buffer, tag=8, force_tag=True)
    assert buffer == b"later"
    await ep.flush()
    await ucp.flush()
    # The next connection to that peer, and the first one's end.
    port = await peer.do("listener.port")
    accepting = peer.begin("first, ep = ep, await anext(listener)")
    second = await ucp.create_endpoint("127.0.0.1", port)
    await peer.result(accepting)
    await _check(peer, second)
    closing = peer.begin("await first.close()")
    await ep.close()
    await peer.result(closing)
    await _check(peer, second)
    peer.kill()
    with pytest.raises(ucp.UCXConnectionReset):
        await second.recv_obj()


async def test_a_sender_that_is_stopped_while_it_writes_is_waited_for(connect):
    peer, ep = await connect()
    stopped, other = await connect()
    await _check(stopped, other)
    await stopped.do(_STOPS)
    stopped.begin("await ep.send(stops)")
    receiving = asyncio.ensure_future(other.recv_obj())
    await until(lambda: _state(stopped.pid) == "T")
    # This message is behind the one that blocks the queue.
    await peer.do("sending = ep.send(b'behind')")
    behind = asyncio.ensure_future(ep.recv_obj())
    assert not behind.done()
    stopped.resume()
    assert await receiving == b"x" * 3000
    assert await behind == b"behind"
    assert _renewals() == 0


async def test_one_that_is_killed_while_it_is_stopped_there_is_not(connect):
    _, waiting = await connect()
    stopped, ep = await connect()
    await _check(stopped, ep)
    await stopped.do(_STOPS)
    stopped.begin("await ep.send(stops)")
    await until(lambda: _state(stopped.pid) == "T")
    stopped.kill()
    with pytest.raises(ucp.UCXConnectionReset, match=f"{_REASON}$"):
        await waiting.recv_obj()
    await _check(*await connect())


async def test_a_death_that_blocks_nothing_resets_nobody(connect):
    peer, ep = await connect()
    for _ in range(3):
        victim, other = await connect()
        victim.kill()
        with pytest.raises(ucp.UCXConnectionReset):
            await other.recv_obj()
    await _check(peer, ep)
    assert _renewals() == 0


def _state(pid):
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().rsplit(")", 1)[1].split()[0]
