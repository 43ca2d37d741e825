# SPDX-License-Identifier: BSD-3-Clause
# tests: ext/channel
"""Channels: each with a queue, an order and a limit of its own."""

import asyncio
import gc

import numpy as np
import pytest
from conftest import TLS
from objects import kept_objects

import ucp
from ucp.testing import connected_pair, live_objects, until

pytestmark = pytest.mark.usefixtures("transport")

_KIB = 1024
SIZES = [0, 1, 8 * _KIB, 64 * _KIB - 1, 64 * _KIB, 512 * _KIB, 1024 * _KIB + 1]
RENDEZVOUS = 4 << 20


@pytest.mark.parametrize("number", [1, 7, 65535])
async def test_bytes_of_every_size_arrive(connect_peer, number):
    peer, ep = await connect_peer()
    echo = peer.begin(
        f"channel = ep.channel({number})\n"
        f"for size in {SIZES}:\n"
        "    data = np.empty(size, dtype='u1')\n"
        "    await channel.recv(data)\n"
        "    await channel.send(data)\n"
    )
    channel = ep.channel(number)
    for size in SIZES:
        data = np.random.default_rng(size).integers(0, 256, size, dtype="u1")
        back = np.zeros(size, dtype="u1")
        await channel.send(data)
        await channel.recv(back)
        np.testing.assert_array_equal(data, back)
    await peer.result(echo)


async def test_channels_do_not_wait_for_each_other():
    async with connected_pair() as (client, server):
        waiting = [server.channel(n).recv(bytearray(1)) for n in (1, 2)]
        await client.send(b"0")
        await client.channel(3).send(b"3")
        assert await server.channel(3).recv_obj() == b"3"
        assert await server.recv_obj() == b"0"
        assert not any(request.done() for request in waiting)
        await client.channel(2).send(b"2")
        await waiting[1]
        assert not waiting[0].done()
        waiting[0].cancel()


async def test_each_channel_keeps_its_order():
    async with connected_pair() as (client, server):
        for number in range(20):
            await client.channel(1).send(bytes([number]))
            await client.channel(2).send(bytes([100 + number]))
        for number in range(20):
            assert await server.channel(2).recv_obj() == bytes([100 + number])
        for number in range(20):
            assert await server.channel(1).recv_obj() == bytes([number])


async def test_an_unread_flood_on_one_channel_leaves_the_others_free(transport):
    ucp.reset()
    ucp.init(TLS[transport], config=ucp.Config(credit_messages=8, credit_rndv=2))
    async with connected_pair() as (client, server):
        flood = [client.channel(1).send(bytes(100)) for _ in range(100)]
        await client.control.send(b"stop")
        assert await server.control.recv_obj() == b"stop"
        assert not flood[-1].done()
        for _ in flood:
            await server.channel(1).recv(bytearray(100))
        await asyncio.gather(*flood)


async def test_tags_are_a_channels_own():
    async with connected_pair() as (client, server):
        await client.channel(1).send(b"one", tag=5)
        await client.channel(2).send(b"two", tag=5)
        buffer = bytearray(8)
        assert await server.channel(2).recv_into(buffer, tag=5) == 3
        assert buffer[:3] == b"two"
        assert server.channel(2).probe() is None
        assert server.channel(1).probe() == (3, 5)
        assert server.probe() is None
        message = await server.channel(1).recv_message(tag=5)
        assert (message.nbytes, message.tag) == (3, 5)
        assert await message.recv(buffer) == 3
        assert buffer[:3] == b"one"


async def test_many_messages_in_one_call():
    async with connected_pair() as (client, server):
        data = [bytes([number]) * 1000 for number in range(50)]
        buffers = [bytearray(1000) for _ in data]
        await client.channel(9).send_many(data)
        await server.channel(9).recv_many(buffers)
        assert buffers == data


async def test_lengths_that_differ_are_told():
    async with connected_pair() as (client, server):
        await client.channel(1).send(b"12345")
        with pytest.raises(ucp.UCXMsgTruncated, match=r"length mismatch: 5 \(got\)"):
            await server.channel(1).recv(bytearray(3))


@pytest.mark.parametrize("size", [8, RENDEZVOUS])
async def test_a_cancelled_receive_loses_nothing(connect_peer, size):
    peer, ep = await connect_peer()
    channel = ep.channel(4)
    for _ in range(3):
        task = asyncio.ensure_future(channel.recv(bytearray(size)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await peer.do(f"sent = ep.channel(4).send(b'x' * {size})")
    assert await channel.recv_obj() == b"x" * size
    await peer.do("await sent")


@pytest.mark.parametrize("size", [8, RENDEZVOUS])
async def test_a_result_nobody_took_returns_to_its_channel(size):
    async with connected_pair() as (client, server):
        sent = client.channel(4).send(b"x" * size)
        request = server.channel(4).recv(bytearray(size))
        await until(request.done)
        request.close()
        many = server.channel(4).recv_many([bytearray(size)])
        await until(many.done)
        many.close()
        message = await server.channel(4).recv_message()
        del message
        gc.collect()
        assert await server.channel(4).recv_obj() == b"x" * size
        await sent
        assert server.channel(4).probe() is None


async def test_a_dropped_message_of_a_channel_returns_to_it():
    async with connected_pair() as (client, server):
        await client.channel(3).send(b"data")
        request = (await server.channel(3).recv_message()).recv(bytearray(4))
        await until(request.done)
        request.close()
        assert server.probe() is None
        assert await server.channel(3).recv_obj() == b"data"


async def test_a_graceful_close_ends_every_channel():
    async with connected_pair() as (client, server):
        await client.channel(1).send(b"last")
        pending = server.channel(2).recv(bytearray(1))
        await client.close()
        with pytest.raises(ucp.UCXPeerClosed):
            await pending
        assert await server.channel(1).recv_obj() == b"last"
        with pytest.raises(ucp.UCXCloseError):
            await server.channel(1).recv(bytearray(1))
        with pytest.raises(ucp.UCXCloseError):
            await client.channel(1).send(b"x")


async def test_a_killed_peer_resets_every_channel(connect_peer):
    peer, ep = await connect_peer()
    pending = [ep.channel(n).recv(bytearray(1)) for n in (1, 65535)]
    peer.stop()
    send = ep.channel(2).send(np.zeros(RENDEZVOUS, dtype="u1"))
    peer.kill()
    for request in [*pending, send]:
        with pytest.raises(ucp.UCXConnectionReset):
            await request


async def test_a_channel_keeps_its_endpoint():
    async with connected_pair() as (client, server):
        channel = server.channel(1)
        uid = server.uid
        del server
        gc.collect()
        await client.channel(1).send(b"here")
        assert await channel.recv_obj() == b"here"
        assert channel.endpoint.uid == uid


async def test_channels_are_told_by_endpoint_and_number():
    async with connected_pair() as (client, server):
        assert client.channel(1) == client.channel(1)
        assert client.channel(1) != client.channel(2)
        assert client.channel(1) != server.channel(1)
        assert client.control == client.channel(65535)
        assert len({client.channel(1), client.channel(1)}) == 1
        assert client.channel(1) != 1
        assert repr(client.channel(5)) == f"<ucp.Channel 5 of {client!r}>"


@pytest.mark.parametrize("number", [0, -1, 65536])
async def test_a_number_that_is_none_is_refused(number):
    async with connected_pair() as (client, _):
        with pytest.raises(
            ValueError, match=f"^a channel is 1 to 65535, not {number}$"
        ):
            client.channel(number)


async def test_raw_tags_are_the_endpoints():
    async with connected_pair() as (client, _):
        with pytest.raises(TypeError, match="force_tag"):
            client.channel(1).send(b"x", tag=1, force_tag=True)


async def test_using_many_channels_leaves_no_objects():
    async with connected_pair() as (client, server):
        gc.collect()
        before = kept_objects()
        for number in range(1, 500):
            await client.channel(number).send(b"x")
            await server.channel(number).recv(bytearray(1))
        gc.collect()
        assert live_objects() == before


async def test_a_channel_beyond_the_peers_limit_fails_by_name(transport):
    ucp.reset()
    ucp.init(TLS[transport], config=ucp.Config(channels_max=3))
    async with connected_pair() as (client, server):
        for number in (7, 8, 9):
            await client.channel(number).send(b"x")
        message = (
            r"^send: the peer accepts no more channels: "
            r"channel 10 is one more than the 3 of the peer's Config\.channels_max$"
        )
        with pytest.raises(ucp.UCXError, match=message):
            await client.channel(10).send(b"y")
        with pytest.raises(ucp.UCXError, match=r"channel 11 is one more than the 3 "):
            await client.channel(11).send_frames([b"y", b"z"])
        await client.channel(9).send(b"z")
        await client.send(b"0")
        assert await server.recv_obj() == b"0"
        assert await server.channel(9).recv_obj() == b"x"
        assert await server.channel(9).recv_obj() == b"z"
        with pytest.raises(ucp.UCXError, match="id 16 is one more than the 3 "):
            await client.am_send(b"y", id=16)
