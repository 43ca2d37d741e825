# SPDX-License-Identifier: BSD-3-Clause
"""A peer that is silent: given up if it does not move, kept if it only has
nothing to say."""

import asyncio
import time

import numpy as np
import pytest
from conftest import TLS

import ucp

ENDPOINT_TIMEOUT = -80
QUICK = 0.2  # seconds


@pytest.fixture(params=TLS)
def heartbeat(request):
    ucp.reset()
    ucp.init(options=TLS[request.param], config=ucp.Config(heartbeat=QUICK))
    yield
    ucp.reset()


pytestmark = pytest.mark.usefixtures("heartbeat")


async def test_a_stopped_peer_is_given_up(connect_peer):
    peer, ep = await connect_peer()
    peer.stop()
    with pytest.raises(ucp.UCXConnectionReset) as caught:
        await ep.recv(bytearray(1))
    assert caught.value.status == ENDPOINT_TIMEOUT
    assert str(caught.value).startswith("recv: endpoint timeout: <[Recv] ep: ")
    assert ep.state == "failed"


async def test_a_stopped_peer_ends_a_large_send(connect_peer):
    peer, ep = await connect_peer()
    peer.stop()
    data = np.zeros(64 << 20, dtype="u1")
    with pytest.raises(ucp.UCXConnectionReset):
        await ep.send(data)


async def test_a_peer_with_nothing_to_say_is_kept(connect_peer):
    peer, ep = await connect_peer()
    receiving = asyncio.ensure_future(ep.recv_obj())
    done, _ = await asyncio.wait([receiving], timeout=5 * QUICK)
    assert not done
    await peer.do("await ep.send_obj(b'late')")
    assert await receiving == b"late"


async def test_our_own_pause_is_not_the_peers(connect_peer):
    peer, ep = await connect_peer()
    time.sleep(5 * QUICK)
    await peer.do("await ep.send_obj(b'x')")
    assert await ep.recv_obj() == b"x"


async def test_a_peer_resumed_in_time_is_kept(connect_peer):
    peer, ep = await connect_peer()
    for _ in range(3):
        peer.stop()
        peer.resume()
        await peer.do("await ep.send_obj(b'x')")
        assert await ep.recv_obj() == b"x"


async def test_closing_to_a_stopped_peer_does_not_wait_for_its_deadline(connect_peer):
    peer, ep = await connect_peer()
    peer.stop()
    sending = ep.send(bytes(16 << 20))  # announced: only the peer can end it
    await ep.close(timeout=3600)
    with pytest.raises(ucp.UCXError):
        await sending
    assert ep.error.status == ENDPOINT_TIMEOUT


@pytest.mark.parametrize("value", [1, 999_999])
def test_a_heartbeat_below_a_millisecond_is_refused(value):
    ucp.reset()
    with pytest.raises((ValueError, ucp.UCXError)):
        ucp.init(config=ucp.Config(heartbeat_ns=value))
