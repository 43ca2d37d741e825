# SPDX-License-Identifier: BSD-3-Clause
"""The peer is killed: everything pending fails, with the right class."""

import asyncio

import numpy as np
import pytest

import ucp
from ucp.testing import until

pytestmark = pytest.mark.usefixtures("transport")


async def test_a_killed_peer_resets_posted_receives(connect_peer):
    peer, ep = await connect_peer()
    pending = [
        ep.recv(bytearray(8)),
        ep.recv(np.zeros(1 << 20), tag="x"),
        ep.recv_into(bytearray(8)),
        asyncio.ensure_future(ep.recv_obj()),
    ]
    peer.kill()
    for request in pending:
        with pytest.raises(ucp.UCXConnectionReset) as caught:
            await request
        assert isinstance(caught.value, ConnectionResetError)
        assert not isinstance(caught.value, ucp.UCXPeerClosed)
    assert ep.state == "failed"


async def test_a_killed_peer_resets_sends(connect_peer):
    peer, ep = await connect_peer()
    peer.stop()
    send = asyncio.ensure_future(ep.send(np.zeros(64 << 20, dtype="u1")))
    await asyncio.sleep(0)
    peer.kill()
    with pytest.raises(ucp.UCXConnectionReset):
        await send


async def test_a_peer_killed_in_the_middle_of_big_messages_resets_them(connect_peer):
    """Over shared memory its queue may be full then, for ever."""
    for _ in range(5):
        peer, ep = await connect_peer()
        peer.begin("while True: await ep.recv_obj()")
        sends = asyncio.ensure_future(ep.send_many([bytes(4 << 20)] * 8))
        peer.kill()
        with pytest.raises(ucp.UCXError) as caught:
            await sends
        assert isinstance(caught.value.results[-1], ucp.UCXConnectionReset)


async def test_a_peer_killed_before_ucx_has_mapped_its_memory_is_gone(connect_peer):
    peer, ep = await connect_peer()
    receiving = ep.recv(bytearray(8 << 20))
    peer.begin("sends = [ep.send(bytearray(8 << 20)) for _ in range(4)]")
    peer.wait_answer()
    peer.kill()
    with pytest.raises(ucp.UCXConnectionReset):
        await receiving


async def test_a_peer_killed_with_a_full_queue_does_not_stop_a_flush(connect_peer):
    """UCX does not get done with such an endpoint."""
    peer, ep = await connect_peer()
    other, to_other = await connect_peer()
    peer.stop()
    sends = [ep.send(bytes(8)) for _ in range(20000)]
    await until(lambda: ep.statistics.waiting_sends and ep.statistics.sent_messages)
    flushing = asyncio.ensure_future(ucp.flush())
    peer.kill()
    await asyncio.gather(*sends, return_exceptions=True)
    await flushing
    sending = to_other.send(bytes(100_000))
    await ucp.flush()
    assert await other.do("bytes(await ep.recv_obj()) == bytes(100_000)")
    await sending


async def test_a_killed_peer_calls_the_close_callback(connect_peer):
    peer, ep = await connect_peer()
    calls = []
    ep.set_close_callback(lambda: calls.append(1))
    peer.kill()
    await until(lambda: calls)
    assert ep.closed()
    await ep.close()
    assert calls == [1]


async def test_calls_after_the_peers_death_say_reset(connect_peer):
    peer, ep = await connect_peer()
    peer.kill()
    await until(ep.closed)
    with pytest.raises(ucp.UCXConnectionReset):
        await ep.send(b"x")
    with pytest.raises(ucp.UCXConnectionReset):
        await ep.recv(bytearray(1))
    assert isinstance(ep.error, ucp.UCXConnectionReset)


async def test_small_messages_outlive_the_peer(connect_peer):
    peer, ep = await connect_peer()
    await peer.do("await ep.send(b'testament'); await ep.flush()")
    await until(ep.probe)
    peer.kill()
    await until(ep.closed)
    assert await ep.recv_obj() == b"testament"
    with pytest.raises(ucp.UCXConnectionReset):
        await ep.recv_obj()


async def test_one_peers_death_leaves_the_others(connect_peer):
    dead, dead_ep = await connect_peer()
    alive, alive_ep = await connect_peer()
    dead.kill()
    await until(dead_ep.closed)
    await alive_ep.send(b"hello")
    assert await alive.do("len(await ep.recv_obj())") == 5


async def test_a_peer_that_exits_without_closing_is_gone(connect_peer):
    peer, ep = await connect_peer()
    await peer.do("import os")
    peer.begin("os._exit(3)")
    with pytest.raises(ucp.UCXConnectionReset):
        await ep.recv(bytearray(1))
    assert peer.wait() == 3


async def test_a_peer_that_calls_sys_exit_has_closed(connect_peer):
    """The peer's loop ends in order, and its endpoints with it."""
    peer, ep = await connect_peer()
    await peer.do("import sys")
    await peer.do("await ep.send(b'last words')")
    peer.begin("asyncio.get_running_loop().call_soon(sys.exit, 4)")
    pending = ep.recv(bytearray(1), tag=1)
    assert await ep.recv_obj() == b"last words"
    with pytest.raises(ucp.UCXPeerClosed):
        await pending
    assert await asyncio.to_thread(peer.wait) == 4
