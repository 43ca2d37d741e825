# SPDX-License-Identifier: BSD-3-Clause
# tests: ext/endpoint_info ext/query ucp/peer
"""What an endpoint may ask of its peer."""

import asyncio
import os
import socket

import pytest

import ucp
from ucp.testing import connected_pair, until

pytestmark = pytest.mark.usefixtures("transport")

# Everything that waits for an answer of the peer's library.
QUESTIONS = [ucp.Endpoint.ping, ucp.Endpoint.peer_info, ucp.Listener.close_remote]


async def test_a_ping_gives_seconds(connect_peer):
    _, ep = await connect_peer()
    seconds = await ep.ping()
    assert isinstance(seconds, float)
    assert 0 < seconds < 60


async def test_a_ping_is_answered_while_the_peers_program_waits_for_data(connect_peer):
    peer, ep = await connect_peer()
    waiting = peer.begin("await ep.recv(bytearray(1))")
    await ep.ping()
    await ep.send(b"x")
    await peer.result(waiting)


async def test_more_pings_than_a_peer_takes_at_a_time():
    async with connected_pair() as (client, server):
        pings = [ep.ping() for ep in (client, server) for _ in range(500)]
        assert all([await ping > 0 for ping in pings])
        assert not client.closed()


async def test_a_peer_tells_of_itself(connect_peer):
    peer, ep = await connect_peer()
    info = await ep.peer_info()
    assert info.version == ucp.__version__
    assert info.ucx_version == ucp.__ucx_version__
    assert info.pid == peer.pid
    assert info.host == socket.gethostname()
    assert 0 < info.memory.available < info.memory.total
    assert 1 << 20 < info.memory.rss <= info.memory.peak < info.memory.total
    assert info.worker.endpoints == 1
    assert info.worker.unexpected_bytes == 0
    assert sorted(info.transports) == sorted(await peer.do("ep.transports()"))


async def test_unread_messages_show_in_the_peers_information(connect_peer):
    _, ep = await connect_peer()
    for _ in range(3):
        await ep.send(bytes(1000))
    await ep.ping()
    worker = (await ep.peer_info()).worker
    assert (worker.unexpected_messages, worker.unexpected_bytes) == (3, 3000)


async def test_who_the_peer_is_needs_no_question(connect_peer):
    peer, ep = await connect_peer()
    port = await peer.do("listener.port")
    assert ep.peer == ("127.0.0.1", port, peer.pid, ucp.__version__)
    theirs = await peer.do("tuple(ep.peer)")
    assert theirs == ("127.0.0.1", ep.local_address[1], os.getpid(), ucp.__version__)


# ---- statistics ----


async def test_statistics_count_messages_and_bytes():
    async with connected_pair() as (client, server):
        assert set(client.statistics.as_dict().values()) == {0}
        big = client.channel(1).send(bytes(1 << 20))
        await client.send(b"12345")
        await client.send(b"")
        await client.ping()
        statistics = server.statistics
        assert (statistics.received_messages, statistics.received_bytes) == (
            3,
            5 + (1 << 20),
        )
        assert (statistics.unexpected_messages, statistics.unexpected_bytes) == (
            3,
            5 + (1 << 20),
        )
        await server.channel(1).recv(bytearray(1 << 20))
        await big
        await server.recv(bytearray(5))
        assert server.statistics.unexpected_messages == 1
        assert client.statistics.sent_messages == 3
        assert client.statistics.sent_bytes == 5 + (1 << 20)
        assert client.statistics.pending_bytes == 0
        assert server.statistics.sent_messages == 0


async def test_statistics_of_a_closed_endpoint_stay_readable():
    async with connected_pair() as (client, _):
        await client.send(b"x")
        await client.close()
        assert client.statistics.sent_messages == 1


# ---- listeners ----


async def test_a_listener_may_be_closed_by_a_peer():
    listener = ucp.create_listener(host="127.0.0.1", remote_close=True)
    client = await ucp.create_endpoint("127.0.0.1", listener.port)
    server = await anext(listener)
    accepting = asyncio.ensure_future(anext(listener, None))
    await ucp.Listener.close_remote(client)
    with pytest.raises(ucp.UCXNotConnected):
        await ucp.create_endpoint("127.0.0.1", listener.port)
    assert await accepting is None
    assert listener.closed()
    listener.close()
    await server.send(b"lives on")
    assert await client.recv_obj() == b"lives on"
    await ucp.Listener.close_remote(client)  # closed is what it is
    await client.close()
    await server.close()


async def test_a_listener_in_another_process_is_closed(start_peer):
    peer = start_peer()
    await peer.do(
        "other = ucp.create_listener(lambda ep: kept.append(ep), host='127.0.0.1',"
        " remote_close=True); kept = []"
    )
    ep = await ucp.create_endpoint("127.0.0.1", await peer.do("other.port"))
    await ucp.Listener.close_remote(ep)
    assert await peer.do("int(other.closed())") == 1
    assert await peer.do("int(listener.closed())") == 0
    await ep.close()


async def test_a_listener_that_does_not_allow_it_stays(connect_peer):
    peer, ep = await connect_peer()
    with pytest.raises(ucp.UCXRejected, match=r"^close_listener: "):
        await ucp.Listener.close_remote(ep)
    assert await peer.do("int(listener.closed())") == 0


async def test_the_accepting_side_has_nothing_to_close():
    async with connected_pair() as (_, server):
        with pytest.raises(ucp.UCXError):
            await ucp.Listener.close_remote(server)


async def test_a_listener_that_was_dropped_is_closed():
    listener = ucp.create_listener(host="127.0.0.1", remote_close=True)
    client = await ucp.create_endpoint("127.0.0.1", listener.port)
    server = await anext(listener)
    del listener
    await ucp.Listener.close_remote(client)
    client.abort()
    server.abort()


# ---- when things go wrong ----


@pytest.mark.parametrize("ask", QUESTIONS)
async def test_a_peer_that_does_not_answer_is_waited_for(connect_peer, ask):
    peer, ep = await connect_peer()
    peer.stop()
    for _ in range(100):  # more than a peer takes at a time
        task = asyncio.ensure_future(ask(ep))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    peer.resume()
    await ep.ping()


async def test_a_ping_may_time_out(connect_peer):
    peer, ep = await connect_peer()
    peer.stop()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(ep.ping(), 0.01)
    peer.resume()
    await ep.ping()


@pytest.mark.parametrize("ask", QUESTIONS)
async def test_a_killed_peer_resets_questions(connect_peer, ask):
    peer, ep = await connect_peer()
    peer.stop()
    task = asyncio.ensure_future(ask(ep))
    await asyncio.sleep(0)
    peer.kill()
    with pytest.raises(ucp.UCXConnectionReset):
        await task
    with pytest.raises(ucp.UCXConnectionReset):
        await ask(ep)


@pytest.mark.parametrize("ask", QUESTIONS)
async def test_a_close_ends_questions(connect_peer, ask):
    peer, ep = await connect_peer()
    peer.stop()
    task = asyncio.ensure_future(ask(ep))
    await asyncio.sleep(0)
    closing = asyncio.ensure_future(ep.close())
    with pytest.raises(ucp.UCXPeerClosed):
        await task
    peer.resume()
    await closing
    with pytest.raises(ucp.UCXCloseError):
        await ask(ep)


@pytest.mark.parametrize("ask", QUESTIONS)
async def test_an_abort_cancels_questions(connect_peer, ask):
    peer, ep = await connect_peer()
    peer.stop()
    task = asyncio.ensure_future(ask(ep))
    await asyncio.sleep(0)
    ep.abort()
    with pytest.raises(ucp.UCXCanceled):
        await task


async def test_questions_after_the_peers_close_say_closed(connect_peer):
    peer, ep = await connect_peer()
    await peer.do("await ep.close()")
    await until(ep.closed)
    for ask in QUESTIONS:
        with pytest.raises(ucp.UCXCloseError):
            await ask(ep)
