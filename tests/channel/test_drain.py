# SPDX-License-Identifier: BSD-3-Clause
"""Backpressure for programs that send without awaiting each send."""

import asyncio

import numpy as np
import pytest

import ucp

pytestmark = pytest.mark.usefixtures("transport")

MIB = 1 << 20


async def test_drain_is_done_at_once_below_the_high_limit(connect_peer):
    _peer, ep = await connect_peer()
    assert ep.pending_bytes == 0
    assert ep.drain().done()
    ep.set_limits(2 * MIB)
    send = ep.send(np.zeros(MIB, "u1"))  # nobody receives it
    assert ep.pending_bytes == MIB
    assert ep.drain().done()
    ep.abort()
    with pytest.raises(ucp.UCXCanceled):
        await send


async def test_drain_waits_for_the_low_limit(connect_peer):
    peer, ep = await connect_peer()
    ep.set_limits(2 * MIB, MIB)
    sends = [ep.send(np.zeros(MIB, "u1")) for _ in range(4)]
    drained = asyncio.ensure_future(ep.drain())
    await peer.do("await ep.recv(np.empty(1 << 20, 'u1'))")
    await sends[0]
    assert ep.pending_bytes == 3 * MIB
    assert not drained.done()
    for _ in range(2):
        await peer.do("await ep.recv(np.empty(1 << 20, 'u1'))")
    await drained
    assert ep.pending_bytes == MIB
    await peer.do("await ep.recv(np.empty(1 << 20, 'u1'))")
    await asyncio.gather(*sends)
    assert ep.pending_bytes == 0


async def test_a_cancelled_drain_changes_nothing(connect_peer):
    peer, ep = await connect_peer()
    ep.set_limits(0)
    send = ep.send(np.zeros(MIB, "u1"))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(ep.drain(), 0.01)
    await peer.do("await ep.recv(np.empty(1 << 20, 'u1'))")
    await ep.drain()
    await send


async def test_drain_fails_with_the_endpoint(connect_peer):
    peer, ep = await connect_peer()
    ep.set_limits(0)
    send = ep.send(np.zeros(MIB, "u1"))
    drained = asyncio.ensure_future(ep.drain())
    await asyncio.sleep(0)
    peer.kill()
    with pytest.raises(ucp.UCXConnectionReset):
        await drained
    with pytest.raises(ucp.UCXConnectionReset):
        await send
    with pytest.raises(ucp.UCXConnectionReset):
        await ep.drain()
    assert ep.pending_bytes == 0


async def test_bad_limits_are_refused(connect_peer):
    _peer, ep = await connect_peer()
    with pytest.raises(ValueError, match=r"low \(2\) must not be above high \(1\)"):
        ep.set_limits(1, 2)
    with pytest.raises(OverflowError):
        ep.set_limits(-1)
    with pytest.raises(TypeError):
        ep.set_limits("many")
