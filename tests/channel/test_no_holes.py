# SPDX-License-Identifier: BSD-3-Clause
"""A peer ends while a long message of its is not read.

What it sent before that can be read; the long message cannot, and nothing that
it sent behind it is handed out.
"""

import pytest

import ucp
from ucp.message import MessageListener
from ucp.testing import until

pytestmark = pytest.mark.usefixtures("transport")

LONG = 4 << 20
FIRST, LAST = b"first...", b"last...."

# How the peer sends `data`, and how it is received.
SENDS = {
    "messages": "ep.send(data)",
    "channel": "ep.channel(5).send(data)",
    "frames": "ep.send_frames([data, data])",
    "am": "ep.am_send(data, id=20, header=b'h')",
    "stream": "ep.stream_send(data)",
}


async def receive(kind, ep):
    if kind == "messages":
        return await ep.recv_obj()
    if kind == "channel":
        return await ep.channel(5).recv_obj()
    if kind == "frames":
        _, (data, again) = await ep.recv_frames()
        assert data == again
        return data
    if kind == "am":
        return await ep.am_recv(id=20)
    data = bytearray(len(FIRST))
    assert await ep.stream_recv(data) == len(data)
    return data


async def send_three(peer, ep, sending):
    """The peer has sent three messages, of which the second is long."""
    await peer.do(
        f"sends = []\nfor data in {FIRST!r}, bytes({LONG}), {LAST!r}:\n"
        f"    sends.append({sending})\n"
    )
    await peer.do("await ep.channel(9).send(b'that was all')")
    assert await ep.channel(9).recv_obj() == b"that was all"


async def end(how, peer, ep):
    if how == "kill":
        peer.kill()
    else:
        await peer.do("ep.abort()")
    await until(ep.closed)


@pytest.mark.parametrize("how", ["kill", "abort"])
@pytest.mark.parametrize("kind", SENDS)
async def test_nothing_behind_what_is_lost_is_received(kind, how, connect_peer):
    peer, ep = await connect_peer()
    await send_three(peer, ep, SENDS[kind])
    await end(how, peer, ep)
    assert bytes(await receive(kind, ep)) == FIRST
    for _ in range(3):
        with pytest.raises(ucp.UCXConnectionReset):
            await receive(kind, ep)


@pytest.mark.parametrize("how", ["kill", "abort"])
async def test_a_message_listener_ends_at_what_is_lost(how, connect_peer):
    peer, ep = await connect_peer()
    await peer.do("from ucp.message import MessageSender\nsender = MessageSender()")
    await send_three(peer, ep, "sender.send(ep, {'n': len(sends)}, [data])")
    await peer.do("sender.send_now()")
    await end(how, peer, ep)
    numbers = []

    def route(metadata):
        numbers.append(metadata["n"])

    listener = MessageListener(ep, route)
    with pytest.raises(ucp.UCXConnectionReset):
        await listener.wait_closed()
    assert numbers == [0]


@pytest.mark.parametrize("how", ["kill", "abort"])
async def test_nothing_behind_a_message_in_hand_is_received(how, connect_peer):
    """The long one has been taken off its queue, without its bytes."""
    peer, ep = await connect_peer()
    await send_three(peer, ep, "ep.am_send(data, id=20)")
    assert await ep.am_recv(id=20) == FIRST
    taken = await ep.am_recv_message(id=20)
    await end(how, peer, ep)
    with pytest.raises(ucp.UCXConnectionReset):
        await ep.am_recv(id=20)
    with pytest.raises(ucp.UCXConnectionReset):
        await taken.recv(bytearray(LONG))
