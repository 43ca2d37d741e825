# SPDX-License-Identifier: BSD-3-Clause
# tests: endpoint/defer
"""Cancelled operations whose buffer cannot be given back at once.

``Config(cancel_bytes=0)`` allows no copies, so each operation whose bytes have begun
to move is deferred: it ends when the peer has done its part.
"""

import asyncio

import numpy as np
import pytest

import ucp

TLS = {"shm": {}, "tcp": {"TLS": "tcp"}}
_SIZE = 64 << 20


@pytest.fixture(params=TLS)
def transport(request):
    ucp.reset()
    ucp.init(
        options=TLS[request.param],
        config=ucp.Config(cancel_bytes=0, cancel_timeout=0.4),
    )
    yield request.param
    ucp.reset()


async def received(peer, ep, receiving):
    """Wait for the receive of the peer, with another message of the same bytes.

    The one that was cancelled may have been withdrawn; then the receive waits again.
    """
    another = ep.send(np.full(_SIZE, 7, dtype=np.uint8))
    await peer.result(receiving)
    another.cancel()


async def begun(connect_peer):
    """A cancelled send of which bytes have gone, to a peer that is stopped."""
    peer, ep = await connect_peer()
    data = np.full(_SIZE, 7, dtype=np.uint8)
    await peer.do(f"data = np.zeros({_SIZE}, dtype='u1')")
    for turns in range(200):
        receiving = peer.begin("await ep.recv(data)")
        sending = ep.send(data)
        for _ in range(turns):
            await asyncio.sleep(0)
        peer.stop()
        sending.cancel("first")
        if not sending.done():
            return peer, ep, data, sending, receiving
        peer.resume()
        await received(peer, ep, receiving)
    raise AssertionError("no send was caught in the middle")


async def test_a_deferred_send_ends_when_its_peer_has_the_bytes(
    connect_peer, transport
):
    peer, ep, data, sending, receiving = await begun(connect_peer)
    assert sending.cancel("second") is True
    assert not sending.done()
    assert not sending.cancelled()
    peer.resume()
    with pytest.raises(asyncio.CancelledError, match=r"^first$"):
        await sending
    data[:] = 9
    assert sending.cancelled()
    await received(peer, ep, receiving)
    assert await peer.do("bool((data == 7).all())")


async def test_a_stopped_peer_ends_what_is_deferred_by_name(connect_peer, transport):
    peer, ep, _data, sending, _receiving = await begun(connect_peer)
    with pytest.raises(asyncio.CancelledError):
        await sending
    with pytest.raises(ucp.UCXConnectionReset):
        await ep.send(b"x")
    assert "for which a cancelled operation waits" in str(ep.error)
    peer.resume()


async def test_close_of_a_coroutine_does_not_wait(connect_peer, transport):
    peer, ep, data, sending, receiving = await begun(connect_peer)
    sending.close()
    assert sending.done()
    data[:] = 9
    peer.resume()
    await received(peer, ep, receiving)
    assert await peer.do("bool((data == 7).all())")


async def test_a_task_that_is_cancelled_waits(connect_peer, transport):
    peer, ep, data, sending, receiving = await begun(connect_peer)

    async def wait():
        try:
            await sending
        finally:
            data[:] = 9

    task = asyncio.ensure_future(wait())
    await asyncio.sleep(0)
    for _ in range(5):
        task.cancel()
        await asyncio.sleep(0)
    assert not task.done()
    peer.resume()
    with pytest.raises(asyncio.CancelledError):
        await task
    await received(peer, ep, receiving)
    assert await peer.do("bool((data == 7).all())")


async def test_operations_without_memory_are_never_deferred(connect_peer, transport):
    peer, ep = await connect_peer()
    peer.stop()
    sending = ep.send(bytes(_SIZE))
    for request in (ep.flush(), ep.ping(), ep.recv_message()):
        await asyncio.sleep(0)
        request.cancel()
        assert request.done()
    sending.cancel()
    peer.resume()
