# SPDX-License-Identifier: BSD-3-Clause
"""Closing: gracefully, twice, by both, by force, by dropping."""

import asyncio

import numpy as np
import pytest
from objects import kept_objects

import ucp
from ucp.testing import connected_pair, live_objects, until

pytestmark = pytest.mark.usefixtures("transport")

_MIB = 1 << 20


async def test_the_peer_reads_all_that_was_sent_before_a_close(connect_peer):
    peer, ep = await connect_peer()
    sizes = [1, 9000, 200_000, 3 * _MIB]
    sends = [ep.send(bytes(size)) for size in sizes]
    read = peer.begin("[len(await ep.recv_obj()) for _ in range(4)]")
    await asyncio.gather(*sends)
    await ep.close()
    assert await peer.result(read) == sizes


async def test_a_late_receiver_reads_what_was_sent_before_a_close(connect_peer):
    peer, ep = await connect_peer()
    await ep.send(b"small")
    send = asyncio.ensure_future(ep.send(bytes(_MIB)))
    close = asyncio.ensure_future(ep.close())
    await peer.do("while not ep.closed(): await asyncio.sleep(0)")
    assert await peer.do("await ep.recv_obj()") is None  # a bytearray
    assert await peer.do("len(await ep.recv_obj())") == _MIB
    await send
    await close


async def test_a_receive_pending_at_the_peers_close_raises_peer_closed(
    connect_peer,
):
    peer, ep = await connect_peer()
    pending = [ep.recv(bytearray(8)), ep.recv(bytearray(8), tag=1)]
    await peer.do("await ep.close()")
    for request in pending:
        with pytest.raises(ucp.UCXPeerClosed) as caught:
            await request
        assert isinstance(caught.value, ucp.UCXCloseError)
        assert isinstance(caught.value, ucp.UCXCanceled)


RECEIVES = {
    "recv": lambda ep: ep.recv(bytearray(8)),
    "recv_obj": lambda ep: ep.recv_obj(),
    "am_recv": lambda ep: ep.am_recv(),
    "stream_recv": lambda ep: ep.stream_recv(bytearray(8)),
}


@pytest.mark.parametrize("recv", RECEIVES.values(), ids=RECEIVES)
async def test_a_receive_beside_ones_own_close_raises_peer_closed_in_any_order(recv):
    """A task that receives may begin after the close, or when that is over."""

    async def receive():
        await recv(client)

    text = "^Endpoint closed by close\\(\\) in this process"
    async with connected_pair() as (client, _server):
        with pytest.raises(ucp.UCXPeerClosed, match=text) as caught:
            await asyncio.gather(receive(), client.close())
        assert isinstance(caught.value, ucp.UCXCanceled)  # as in ucx-py
        with pytest.raises(ucp.UCXPeerClosed, match=text):
            await receive()
        with pytest.raises(ucp.UCXCloseError, match=text) as caught:
            await client.send(b"")
        assert not isinstance(caught.value, ucp.UCXCanceled)


async def test_a_receive_pending_at_ones_own_close_raises_peer_closed():
    async with connected_pair() as (client, _server):
        pending = client.recv(bytearray(8))
        closing = asyncio.ensure_future(client.close())
        text = r"^recv: endpoint closed by close\(\) in this process: "
        with pytest.raises(ucp.UCXPeerClosed, match=text):
            await pending
        await closing


WAYS = {
    "recv": (
        lambda ep, data: ep.send(data),
        lambda ep, buffer: ep.recv(buffer),
    ),
    "recv_frames": (
        lambda ep, data: ep.send_frames([data[: 1 << 20], data[1 << 20 :]]),
        lambda ep, buffer: ep.recv_frames(
            into=[memoryview(buffer)[: 1 << 20], memoryview(buffer)[1 << 20 :]]
        ),
    ),
    "stream_recv": (
        lambda ep, data: ep.stream_send(data),
        lambda ep, buffer: ep.stream_recv(buffer, wait_all=True),
    ),
}


@pytest.mark.parametrize("way", WAYS)
async def test_ones_own_close_waits_for_a_receive_whose_bytes_are_coming(way):
    """The message comes whole, and its sender hears that; others hear the end."""
    send, receive = WAYS[way]
    data = bytes(range(256)) * (8 << 12)
    async with connected_pair() as (left, right):
        sends = [asyncio.ensure_future(send(left, data))]
        sends.append(asyncio.ensure_future(left.send(data, tag=1)))
        await until(lambda: right.statistics.received_messages >= 2)
        buffer = bytearray(len(data))
        receiving = receive(right, buffer)
        waiting = right.recv(bytearray(1), tag=2)
        await right.close()
        await receiving
        assert buffer == data
        with pytest.raises((ucp.UCXPeerClosed, ucp.UCXCloseError)):
            await waiting
        await sends[0]
        with pytest.raises(ucp.UCXPeerClosed):
            await sends[1]


async def test_calls_after_a_close_raise_close_error():
    async with connected_pair() as (client, server):
        await client.close()
        await until(server.closed)
        for ep in (client, server):
            with pytest.raises(ucp.UCXCloseError):
                await ep.send(b"x")
            with pytest.raises(ucp.UCXCloseError):
                await ep.recv(bytearray(1))
            with pytest.raises(ucp.UCXCloseError):
                await ep.recv_obj()


async def test_closing_twice_and_after_the_peer_is_fine():
    async with connected_pair() as (client, server):
        await client.close()
        await client.close()
        await server.close()
        await asyncio.gather(client.close(), server.close())
        assert client.closed() and server.closed()


async def test_two_closers_at_once(connect_peer):
    peer, ep = await connect_peer()
    other = peer.begin("await ep.close()")
    await ep.close()
    await peer.result(other)
    assert ep.closed()


async def test_two_closers_at_once_in_one_loop():
    async with connected_pair() as (client, server):
        await client.send(b"1")
        await server.send(b"2")
        await asyncio.gather(client.close(), server.close(), client.close())
        assert client.state == server.state == "closed"


async def test_async_with_closes():
    async with connected_pair() as (client, server):
        async with client:
            await client.send(b"x")
        assert client.closed()
        assert await server.recv_obj() == b"x"


async def test_an_endpoint_dropped_after_send_has_sent(connect_peer):
    peer, ep = await connect_peer()
    await ep.send(b"last words")
    await ep.send(bytes(50_000))
    del ep
    text = "bytes(await ep.recv_obj())"
    assert await peer.do(text) == b"last words"
    assert await peer.do("len(await ep.recv_obj())") == 50_000


async def test_a_dropped_endpoint_goes_away(connect_peer):
    peer, ep = await connect_peer()
    before = kept_objects()["endpoints"]
    del ep
    assert live_objects()["endpoints"] == before - 1
    await peer.do("while not ep.closed(): await asyncio.sleep(0)")
    await until(lambda: ucp.current_worker().statistics.endpoints == 0)


async def test_a_close_past_its_deadline_raises_and_counts(connect_peer):
    peer, ep = await connect_peer()
    peer.stop()
    send = asyncio.ensure_future(ep.send(np.zeros(64 * _MIB, dtype="u1")))
    await asyncio.sleep(0)
    with pytest.raises(ucp.UCXTimeout) as caught:
        await ep.close(timeout=0.2)
    assert caught.value.unsent_bytes == 64 * _MIB
    assert ep.closed()
    with pytest.raises(ucp.UCXBaseException):
        await send


async def test_a_cancelled_close_goes_on(connect_peer):
    peer, ep = await connect_peer()
    task = asyncio.ensure_future(ep.close())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await until(ep.closed)
    await peer.do("while not ep.closed(): await asyncio.sleep(0)")


async def test_abort_cancels_what_is_pending():
    async with connected_pair() as (client, server):
        pending = client.recv(bytearray(8))
        client.abort()
        with pytest.raises(ucp.UCXCanceled):
            await pending
        assert client.closed()
        with pytest.raises(ucp.UCXBaseException):
            await server.recv(bytearray(8))
        assert server.closed()


async def test_the_close_callback_runs_once_at_ones_own_close():
    calls = []
    async with connected_pair() as (client, server):
        client.set_close_callback(lambda: calls.append("client"))
        server.set_close_callback(lambda: calls.append("server"))
        await client.close()
        await until(server.closed)
        await server.close()
        await until(lambda: len(calls) == 2)
    assert sorted(calls) == ["client", "server"]


async def test_the_close_callback_runs_once_at_an_abort():
    calls = []
    async with connected_pair() as (client, _server):
        client.set_close_callback(lambda: calls.append(1))
        client.abort()
        await until(lambda: calls)
        await client.close()
    assert calls == [1]


async def test_the_close_callback_runs_when_the_endpoint_is_dropped():
    calls = []
    listener = ucp.create_listener(host="127.0.0.1")
    client = await ucp.create_endpoint("127.0.0.1", listener.port)
    client.set_close_callback(lambda: calls.append(1))
    del client
    await until(lambda: calls)
    assert calls == [1]


async def test_the_close_callback_of_a_closed_endpoint_is_called():
    calls = []
    async with connected_pair() as (client, _server):
        await client.close()
        client.set_close_callback(lambda: calls.append(1))
        await until(lambda: calls)


async def test_close_after_n_recv_closes_after_n():
    async with connected_pair() as (client, server):
        await client.send_many([b"1", b"2", b"3"])
        await server.recv_obj()
        server.close_after_n_recv(2)
        assert await server.recv_obj() == b"2"
        assert not server.closed()
        assert await server.recv_obj() == b"3"
        await until(server.closed)


async def test_close_after_n_recv_counts_from_the_beginning_when_asked():
    async with connected_pair() as (client, server):
        await client.send_many([b"1", b"2"])
        await server.recv_obj()
        server.close_after_n_recv(2, count_from_ep_creation=True)
        await server.recv_obj()
        await until(server.closed)


async def test_close_after_n_recv_that_is_reached_closes_now():
    async with connected_pair() as (client, server):
        await client.send(b"1")
        await server.recv_obj()
        server.close_after_n_recv(1, count_from_ep_creation=True)
        await until(server.closed)


async def test_close_after_n_recv_refuses_what_is_past():
    async with connected_pair() as (client, server):
        await client.send(b"1")
        await server.recv_obj()
        with pytest.raises(
            ucp.UCXError,
            match=r"^`n` cannot be less than current recv_count: "
            r"0 \(abs\) < 1 \(abs\)$",
        ):
            server.close_after_n_recv(0, count_from_ep_creation=True)


async def test_close_after_n_recv_is_set_once():
    async with connected_pair() as (_client, server):
        server.close_after_n_recv(10)
        with pytest.raises(
            ucp.UCXError,
            match=r"^close_after_n_recv has already been set to: 10 \(abs\)$",
        ):
            server.close_after_n_recv(5)


async def test_repr_is_honest_in_every_state():
    async with connected_pair() as (client, _server):
        port = client.peer_address[1]
        uid = client.uid
        text = f"<ucp.Endpoint {uid} to 127.0.0.1:{port}, open>"
        assert repr(client) == text
        await client.close()
        assert repr(client).endswith(", closed>")
