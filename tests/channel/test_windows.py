# SPDX-License-Identifier: BSD-3-Clause
# tests: channel/credit channel/keep_last ucp/window
"""What one connection may have unread, and messages of which the newest are kept."""

import asyncio
import contextlib
import gc

import numpy as np
import pytest

import ucp
from ucp import _ext
from ucp.testing import live_objects, until

pytestmark = pytest.mark.usefixtures("transport")

SIZES = [0, 10, 10_000, 1_000_000, 20_000_000]


@contextlib.asynccontextmanager
async def pair_of(connecting=None, listening=None):
    """A client and a server, whose connections have these windows."""
    async with ucp.create_listener(host="127.0.0.1", **listening or {}) as listener:
        client = await ucp.connect("127.0.0.1", listener.port, **connecting or {})
        server = await listener.accept()
        try:
            yield client, server
        finally:
            client.abort()
            server.abort()


async def settled(endpoint):
    """Let both sides run until nothing more arrives."""
    seen, turns = -1, 0
    while turns < 100:
        number = endpoint.statistics.received_messages
        turns = turns + 1 if number == seen else 0
        seen = number
        await asyncio.sleep(0)


# ---- windows -----------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("count", [1, 2, 9])
@pytest.mark.parametrize("reader", ["client", "server"])
async def test_no_more_messages_are_unread_than_were_asked_for(reader, count, size):
    window = {"receive_messages": count}
    sides = (window, None) if reader == "client" else (None, window)
    async with pair_of(*sides) as pair:
        reading, writing = pair if reader == "client" else pair[::-1]
        data = np.zeros(size, dtype=np.uint8)
        for of in (lambda ep: ep, lambda ep: ep.channel(7)):
            sends = [of(writing).send(data) for _ in range(count + 3)]
            await until(lambda: reading.statistics.unexpected_messages == count)
            await settled(reading)
            assert reading.statistics.unexpected_messages == count
            assert writing.statistics.waiting_sends == 3
            for _ in sends:
                assert len(await of(reading).recv_obj()) == size
            await asyncio.gather(*sends)


async def test_a_channel_does_not_wait_for_another_one():
    async with pair_of({"receive_messages": 2, "receive_bytes": 1}) as (client, server):
        data = np.zeros(10_000, dtype=np.uint8)
        sends = [server.channel(n).send(data) for n in range(1, 50) for _ in range(2)]
        for n in reversed(range(1, 50)):
            for _ in range(2):
                await client.channel(n).recv(np.empty_like(data))
        await asyncio.gather(*sends)


async def test_bytes_beyond_the_window_stay_with_the_sender():
    async with pair_of({"receive_bytes": 100_000}) as (client, server):
        sends = [server.send(np.zeros(30_000, dtype=np.uint8)) for _ in range(20)]
        await until(lambda: client.statistics.unexpected_messages == 20)
        assert sum(send.done() for send in sends) <= 3
        for _ in sends:
            assert len(await client.recv_obj()) == 30_000
        await asyncio.gather(*sends)


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("size", [10, 100_000, 3_000_000])
async def test_all_kinds_of_messages_pass_a_narrow_window(count, size):
    window = {"receive_messages": count}
    async with pair_of(window, window) as (client, server):
        data = np.arange(size, dtype=np.uint32).view(np.uint8)
        rounds = range(5)

        async def write():
            for n in rounds:
                await server.send_frames([data, data[:5], data, data[: n + 1]], b"head")
            for n in rounds:
                await server.send(data, n)
            await server.send_many([data] * 6, 77)
            await server.send_pickle({"a": data, "b": [data] * 3})
            await server.stream_send(data)
            await server.am_send(data, id=90)

        writing = asyncio.create_task(write())
        for n in rounds:
            header, frames = await client.recv_frames()
            assert bytes(header) == b"head"
            assert bytes(frames[2]) == bytes(data)
            assert bytes(frames[3]) == bytes(data[: n + 1])
        for n in rounds:
            assert await client.recv_into(np.empty_like(data), n) == len(data)
        many = [np.empty_like(data) for _ in range(6)]
        await client.recv_many(many, 77)
        assert all((each == data).all() for each in many)
        value = await client.recv_pickle(allow_pickle=True)
        assert (value["b"][2] == data).all()
        streamed = np.empty_like(data)
        await client.stream_recv(streamed, wait_all=True)
        assert (streamed == data).all()
        assert bytes(await client.am_recv(id=90)) == bytes(data)
        await writing


async def test_remote_memory_is_not_held_up_by_unread_messages():
    window = {"receive_messages": 1}
    async with pair_of(window, window) as (client, server):
        with ucp.Memory.allocate(1000) as memory:
            sends = [client.send(b"x") for _ in range(5)]
            remote = client.remote(memory.key)
            await asyncio.gather(*(remote.put(b"y" * 1000) for _ in range(100)))
            await until(lambda: bytes(memory) == b"y" * 1000)
            for _ in sends:
                await server.recv(bytearray(1))
            await asyncio.gather(*sends)
            remote.close()


async def test_cancelled_sends_and_receives_cost_no_credit():
    async with pair_of({"receive_messages": 2}) as (client, server):
        data = np.zeros(3_000_000, dtype=np.uint8)
        for n in range(50):
            sends = [server.send(data) for _ in range(4)]
            if n % 2:
                await settled(client)
            receive = client.recv(np.empty_like(data))
            if n % 3 == 0:
                await asyncio.sleep(0)
            receive.cancel()
            for send in sends:
                send.cancel()
            await asyncio.gather(*sends, receive, return_exceptions=True)
            server.send(b"last", 1)
            while bytes(await client.recv_obj(ucp.ANY)) != b"last":
                pass


@pytest.mark.parametrize("name", ["receive_messages", "receive_bytes"])
async def test_a_window_is_a_number_of_one_or_more(name):
    for start in (
        lambda **window: ucp.create_listener(host="127.0.0.1", **window),
        lambda **window: ucp.connect("127.0.0.1", 1, **window),
    ):
        with pytest.raises(ValueError, match=f"^{name} must be from 1 to .* not 0$"):
            start(**{name: 0})
        with pytest.raises(ValueError, match=f"^{name} must be from 1 to .* not 1844"):
            start(**{name: 1 << 64})
        with pytest.raises(TypeError, match=f"^{name} must be an int or None, not str"):
            start(**{name: "5"})


# ---- the newest messages -----------------------------------------------------


def numbered(n, size):
    data = np.zeros(max(size, 1), dtype=np.uint8)
    data[0] = n
    return data


async def until_dropped(endpoint, number):
    await until(lambda: endpoint.statistics.dropped_messages == number)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("count", [1, 3])
async def test_the_newest_messages_are_kept(count, size):
    async with pair_of() as (client, server):
        client.set_keep_last(count)
        client.channel(3).set_keep_last(count)
        dropped = 0
        for of in (lambda ep: ep, lambda ep: ep.channel(3)):
            sends = [of(server).send(numbered(n, size), n % 4) for n in range(20)]
            dropped += 20 - count
            await until_dropped(client, dropped)
            await asyncio.gather(*sends[:-count])  # though nobody receives
            got = [await of(client).recv_obj(ucp.ANY) for _ in range(count)]
            assert [each[0] for each in got] == list(range(20 - count, 20))
            await asyncio.gather(*sends)
            assert client.statistics.unexpected_messages == 0


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("count", [1, 3])
async def test_the_newest_messages_of_frames_are_kept(count, size):
    async with pair_of() as (client, server):
        client.set_keep_last(count)
        sends = [
            server.send_frames([numbered(n, size), b"abc", numbered(n, 9)], bytes([n]))
            for n in range(20)
        ]
        await until(lambda: client.statistics.dropped_messages == 20 - count)
        for n in range(20 - count, 20):
            header, frames = await client.recv_frames()
            assert bytes(header) == bytes([n])
            assert frames[0][0] == frames[2][0] == n
        await asyncio.gather(*sends)
        assert client.statistics.unexpected_messages == 0
        receiving = client.recv_frames()
        await server.send_frames([b"more"], b"")
        assert bytes((await receiving)[1][0]) == b"more"


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("window", [1, 2, 9])
async def test_more_may_be_kept_than_a_window_holds(window, size):
    async with pair_of({"receive_messages": window}) as (client, server):
        sends = []
        for n in range(20):
            sends.append(server.send(numbered(n, size)))
            sends.append(server.send_frames([numbered(n, size), numbered(n, 9)], b""))
        await until(lambda: client.statistics.unexpected_messages >= window)
        client.set_keep_last(3)  # while senders wait for credit
        await until(lambda: client.statistics.dropped_messages == 34)
        assert [(await client.recv_obj())[0] for _ in range(3)] == [17, 18, 19]
        for n in range(17, 20):
            _, frames = await client.recv_frames()
            assert frames[0][0] == frames[1][0] == n
        await asyncio.gather(*sends)


@pytest.mark.parametrize("method", ["send_multi", "send_pickle"])
async def test_messages_of_many_parts_do_not_wait_for_a_reader(method):
    parts = [numbered(1, 100_000) for _ in range(20)]
    window = {"receive_messages": 1}
    async with pair_of(window) as (client, server):
        client.set_keep_last(1)
        for _ in range(3):
            sending = getattr(server, method)(parts)
        await until(lambda: client.statistics.dropped_messages == 2)
        if method == "send_multi":
            got = await client.recv_multi()
        else:
            got = await client.recv_pickle(allow_pickle=True)
        assert [len(each) for each in got] == [100_000] * 20
        await sending


async def test_what_was_kept_is_unread_once_all_is_kept():
    async with pair_of({"receive_messages": 4}) as (client, server):
        client.set_keep_last(4)
        sends = [server.send(bytes([n])) for n in range(6)]
        await until_dropped(client, 2)
        client.set_keep_last(None)
        sends += [server.send(bytes([n])) for n in range(6, 20)]
        await until(lambda: client.statistics.unexpected_messages == 8)
        await settled(client)
        assert client.statistics.unexpected_messages == 8  # 4 and a window
        assert [(await client.recv_obj())[0] for _ in range(18)] == [*range(2, 20)]
        await asyncio.gather(*sends)


async def test_what_is_there_already_is_dropped_at_once():
    async with pair_of() as (client, server):
        for n in range(10):
            await server.send(bytes([n]))
            await server.send_frames([bytes([n])], b"")
        await until(lambda: client.statistics.unexpected_messages >= 20)
        client.set_keep_last(2)
        assert client.statistics.dropped_messages == 16
        assert [(await client.recv_obj())[0] for _ in range(2)] == [8, 9]
        assert bytes((await client.recv_frames())[1][0]) == b"\x08"
        client.set_keep_last(None)
        for n in range(5):
            await server.send(bytes([n]))
        assert [(await client.recv_obj())[0] for _ in range(5)] == [*range(5)]


async def test_a_message_that_is_given_back_is_not_the_newest():
    async with pair_of() as (client, server):
        client.set_keep_last(1)
        await server.send(b"old")
        await until(lambda: client.statistics.unexpected_messages)
        message = await client.recv_message()
        await server.send(b"new")
        await until(lambda: client.statistics.unexpected_messages)
        del message
        assert bytes(await client.recv_obj()) == b"new"
        assert client.statistics.unexpected_messages == 0


@pytest.mark.parametrize("size", [10_000, 1_000_000])
async def test_receives_and_cancels_between_newer_messages(size):
    """What is received is whole, and in order."""
    async with pair_of({"receive_messages": 8}) as (client, server):
        client.set_keep_last(2)
        last = 60

        async def write():
            for n in range(last + 1):
                await server.send(np.full(size, n, dtype=np.uint8))
                if n % 3 == 0:
                    await server.send_frames([np.full(size, n, dtype=np.uint8)], b"")

        async def read(receive):
            seen = -1
            while seen < last:
                try:
                    async with asyncio.timeout(0.002 * (1 + seen % 4)):
                        data = np.asarray(await receive())
                except TimeoutError:
                    await asyncio.sleep(0)
                    continue
                assert data.min() == data.max() > seen
                seen = int(data[0])

        async def frames():
            return (await client.recv_frames())[1][0]

        writing = asyncio.create_task(write())
        async with asyncio.TaskGroup() as group:
            group.create_task(read(client.recv_obj))
            group.create_task(read(frames))
        await writing


async def test_dropped_messages_leave_nothing():
    gc.collect()
    before = live_objects()["messages"]
    async with pair_of() as (client, server):
        client.set_keep_last(1)
        for n in range(200):
            sending = server.send(bytes(50_000 * (n % 3)))
        await until(lambda: client.statistics.dropped_messages == 199)
        await client.recv_obj()
        await sending
        gc.collect()
        assert live_objects()["messages"] == before


async def test_the_number_of_kept_messages_is_checked():
    async with pair_of() as (client, server):
        server.set_keep_last(np.int64(2))
        for subject in (client, client.channel(2)):
            with pytest.raises(ValueError, match=r"^count must be from 1 to .* not 0$"):
                subject.set_keep_last(0)
            with pytest.raises(TypeError, match=r"^count must be an int or None"):
                subject.set_keep_last(1.5)
        client.abort()
        client.set_keep_last(1)  # of nothing


async def test_a_client_of_another_thread_has_windows_too():
    assert _ext.ANY is ucp.ANY

    def talk():
        with ucp.sync.listen(host="127.0.0.1", receive_messages=3) as listener:
            with ucp.sync.connect(
                "127.0.0.1", listener.port, receive_messages=2, timeout=20
            ) as client:
                with listener.accept(timeout=20) as server:
                    server.send(b"x")
                    return bytes(client.recv_obj())

    assert await asyncio.to_thread(talk) == b"x"
