# SPDX-License-Identifier: BSD-3-Clause
# tests: ext/many ext/message ucp/objects
"""What send and recv promise, over both transports, in both directions."""

import asyncio

import numpy as np
import pytest

import ucp
from ucp.testing import connected_pair, until

pytestmark = pytest.mark.usefixtures("transport")

_KIB = 1024
_MIB = 1024 * _KIB

# Around the switches between protocols: one frame, several, rendezvous.
SIZES = [
    *(1, 2, 7, 8, 9, 63, 64, 65, 255, 256, 1000, 4096),
    *(8 * _KIB - 17, 8 * _KIB, 8 * _KIB + 1, 9 * _KIB),
    *(64 * _KIB - 16, 64 * _KIB, 64 * _KIB + 1, 127 * _KIB, 128 * _KIB),
    *(256 * _KIB, 512 * _KIB - 1, 512 * _KIB, _MIB - 16, _MIB, _MIB + 1),
    *(4 * _MIB + 3, 16 * _MIB, 64 * _MIB),
]

DTYPES = [
    *("?", "u1", "<i2", ">i4", "<f8", "<c16", "<M8[ns]", "<m8[s]", "S7", "<U3"),
    [("id", "<u4"), ("xyz", "<f8", (3,))],
]


def random_bytes(count, seed=0):
    return np.random.default_rng(seed).integers(0, 256, count, dtype=np.uint8)


async def test_bytes_of_every_size_arrive(connect_peer):
    peer, ep = await connect_peer()
    echo = peer.begin(
        f"for size in {SIZES}:\n"
        "    data = np.empty(size, dtype='u1')\n"
        "    await ep.recv(data)\n"
        "    await ep.send(data)\n"
    )
    for size in SIZES:
        data, back = random_bytes(size, size), np.zeros(size, dtype=np.uint8)
        await ep.send(data)
        await ep.recv(back)
        np.testing.assert_array_equal(data, back)
    await peer.result(echo)


@pytest.mark.usefixtures("loop_factory")
async def test_a_ping_pong_works_in_every_loop(connect_peer, loop_factory):
    peer, ep = await connect_peer()
    echo = peer.begin("for _ in range(200):\n    await ep.send(await ep.recv_obj())\n")
    for number in range(200):
        await ep.send(number.to_bytes(8))
        back = bytearray(8)
        await ep.recv(back)
        assert int.from_bytes(back) == number
    await peer.result(echo)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
async def test_arrays_of_every_dtype_arrive(dtype):
    data = random_bytes(40 * np.dtype(dtype).itemsize).view(dtype)
    async with connected_pair() as (client, server):
        back = np.zeros_like(data)
        await asyncio.gather(client.send(data), server.recv(back))
    assert back.tobytes() == data.tobytes()


async def test_multidimensional_arrays_arrive():
    data = np.arange(24, dtype="f4").reshape(2, 3, 4)
    async with connected_pair() as (client, server):
        back = np.zeros_like(data)
        await client.send(data)
        await server.recv(back)
    np.testing.assert_array_equal(data, back)


async def test_an_empty_message_is_a_message():
    async with connected_pair() as (client, server):
        await client.send(b"")
        await client.send(np.empty((0, 3)))
        await client.send(b"x")
        await server.recv(bytearray())
        await server.recv(bytearray())
        assert await server.recv_obj() == b"x"


async def test_messages_keep_their_order_across_protocols(connect_peer):
    sizes = [1, 64 * _KIB, 4 * _MIB, 8, 300_000, 2, _MIB, 9000] * 3
    peer, ep = await connect_peer()
    pending = peer.begin(
        f"[len(await ep.recv_obj()) for _ in range({len(sizes)})] == {sizes}"
    )
    await asyncio.gather(*[ep.send(bytes(size)) for size in sizes])
    assert await peer.result(pending)


async def test_receives_may_be_posted_before_the_sends(connect_peer):
    peer, ep = await connect_peer()
    buffers = [bytearray(8) for _ in range(100)]
    requests = [ep.recv(buffer) for buffer in buffers]
    await peer.do("for i in range(100): await ep.send(i.to_bytes(8))")
    await asyncio.gather(*requests)
    assert [int.from_bytes(buffer) for buffer in buffers] == list(range(100))


async def test_both_directions_at_once(connect_peer):
    peer, ep = await connect_peer()
    await peer.do("data = np.full(8 << 20, 7, dtype='u1')")
    await peer.do("back = np.zeros(8 << 20, dtype='u1')")
    other = peer.begin("await asyncio.gather(ep.send(data), ep.recv(back))")
    data, back = np.full(8 << 20, 5, dtype="u1"), np.zeros(8 << 20, dtype="u1")
    await asyncio.gather(ep.send(data), ep.recv(back))
    await peer.result(other)
    assert (back == 7).all()
    assert await peer.do("bool((back == 5).all())")


@pytest.mark.parametrize("size", [0, 1, 10_000, 3 * _MIB])
async def test_recv_obj_learns_the_length(size):
    data = random_bytes(size).tobytes()
    async with connected_pair() as (client, server):
        send = client.send_obj(data)
        received, _ = await asyncio.gather(server.recv_obj(), send)
    assert type(received) is bytearray
    assert received == data


async def test_recv_obj_uses_the_allocator():
    async with connected_pair() as (client, server):
        await client.send_obj(b"12345678")
        received = await server.recv_obj(
            allocator=lambda size: np.empty(size, dtype="u1")
        )
    assert isinstance(received, np.ndarray)
    assert received.tobytes() == b"12345678"


@pytest.mark.parametrize("size", [8, 2 * _MIB])
async def test_a_failing_allocator_leaves_the_message(size):
    def allocator(size):
        raise MemoryError(f"{size} are too many")

    async with connected_pair() as (client, server):
        send = asyncio.ensure_future(client.send_obj(bytes(size)))
        with pytest.raises(MemoryError, match=rf"^{size} are too many$"):
            await server.recv_obj(allocator=allocator)
        assert await server.recv_obj() == bytes(size)
        await send


def mismatch(got, expected):
    """The text of an exception about lengths, which names the next step."""
    return (
        rf"^length mismatch: {got} \(got\) != {expected} \(expected\): "
        r"the message is for the next receive; recv_obj\(\) takes it whatever "
        r"its length$"
    )


@pytest.mark.parametrize("is_there_first", [False, True])
@pytest.mark.parametrize("size", [9, 2 * _MIB])
@pytest.mark.parametrize("room", [4, 3 * _MIB])
async def test_a_message_that_does_not_fit_is_for_the_next_receive(
    transport, size, room, is_there_first
):
    data = bytes(range(1, 10)) if size == 9 else bytes([7]) * size
    async with connected_pair() as (client, server):
        buffer = bytearray(room)
        if not is_there_first:
            receiving = asyncio.ensure_future(asyncio.wait_for(server.recv(buffer), 9))
            await asyncio.sleep(0)
        sends = [client.send(data), client.send(b"next")]
        await until(lambda: server.statistics.received_messages == 2)
        if is_there_first:
            receiving = server.recv(buffer)
        with pytest.raises(ucp.UCXMsgTruncated, match=mismatch(size, room)) as caught:
            await receiving
        assert caught.value.nbytes == size
        assert not any(buffer)
        assert server.probe() == (size, None)
        into = bytearray(size)
        assert await server.recv_into(into) == size
        assert into == data
        assert await server.recv_obj() == b"next"
        await asyncio.gather(*sends)


@pytest.mark.parametrize("is_there_first", [False, True])
async def test_a_receive_that_a_message_does_not_fit_leaves_it_to_the_next_one(
    is_there_first,
):
    """Whether it comes before or after they were posted."""
    async with connected_pair() as (client, server):
        short, exact = bytearray(4), bytearray(9)
        if is_there_first:
            await client.send(b"123456789")
            await until(lambda: server.probe() is not None)
        receives = [server.recv(buffer) for buffer in (short, exact)]
        if not is_there_first:
            await client.send(b"123456789")
        results = await asyncio.gather(*receives, return_exceptions=True)
        assert [type(result) for result in results] == [
            ucp.UCXMsgTruncated,
            type(None),
        ]
        assert exact == b"123456789" and not any(short)
        assert server.probe() is None


def dropped(caplog):
    return [
        record.getMessage()
        for record in caplog.records
        if record.levelname == "WARNING" and "is dropped" in record.getMessage()
    ]


@pytest.mark.parametrize("is_there_first", [False, True])
@pytest.mark.parametrize("size", [9, 40 << 10, 4 * _MIB])
async def test_a_message_that_two_receives_cannot_take_is_dropped(
    transport, caplog, size, is_there_first
):
    """A program that catches the error and goes on has all messages behind it."""
    async with connected_pair() as (client, server):
        buffers = [bytearray(4) for _ in range(11)]
        if not is_there_first:
            receives = [server.recv(buffer) for buffer in buffers]
        long = asyncio.ensure_future(client.send(bytes(size)))
        await asyncio.sleep(0)
        await asyncio.gather(*(client.send(bytes([i]) * 4) for i in range(10)))
        if is_there_first:
            await until(lambda: server.statistics.received_messages == 11)
            receives = [server.recv(buffer) for buffer in buffers]
        with pytest.raises(ucp.UCXMsgTruncated, match=mismatch(size, 4)):
            await receives[0]
        await asyncio.gather(*receives[1:])
        assert buffers[1:] == [bytes([i]) * 4 for i in range(10)]
        assert server.probe() is None
        await long
        await until(lambda: dropped(caplog))
    (line,) = dropped(caplog)
    assert f"a message of {size} bytes is dropped" in line
    assert "a receive of 4 bytes" in line


async def test_receives_between_may_take_the_message_or_give_it_back(caplog):
    """Other tags and cancelled receives do not count."""
    async with connected_pair() as (client, server):
        await asyncio.gather(client.send(b"123", tag=1), client.send(b"4", tag=2))
        await until(lambda: server.statistics.received_messages == 2)
        one = bytearray(1)
        with pytest.raises(ucp.UCXMsgTruncated):
            await server.recv(one, tag=1)
        await server.recv(one, tag=2)
        assert one == b"4"
        waiting = server.recv(one, tag=3)
        waiting.cancel()
        message = await server.recv_message(tag=1)
        del message
        with pytest.raises(ucp.UCXMsgTruncated):
            await server.recv(one, tag=1)
        assert await server.recv_into(bytearray(8), tag=1) == 3
        assert not dropped(caplog)


async def test_recv_into_drops_what_is_too_long_twice():
    async with connected_pair() as (client, server):
        await client.send_many([b"123", b"4567", b"8"])
        results = await asyncio.gather(
            *(server.recv_into(bytearray(2)) for _ in range(3)), return_exceptions=True
        )
        assert [type(result) for result in results] == [
            ucp.UCXMsgTruncated,
            ucp.UCXMsgTruncated,
            int,
        ]


async def test_a_failed_receive_that_is_cancelled_gives_nothing_back():
    """Nobody has asked for its result: it had no message."""
    async with connected_pair() as (client, server):
        await client.send(b"123")
        await until(lambda: server.probe() is not None)
        request = server.recv(bytearray(8))
        assert request.done()
        request.cancel()
        assert await server.recv_obj() == b"123"
        assert server.probe() is None


async def test_recv_into_takes_shorter_messages_and_any_tag():
    async with connected_pair() as (client, server):
        await client.send(b"123", tag=77)
        buffer = bytearray(8)
        assert await server.recv_into(buffer) == 3
        assert buffer == b"123\0\0\0\0\0"


async def test_probe_sees_and_takes_nothing():
    async with connected_pair() as (client, server):
        assert server.probe() is None
        await client.send(b"12345")
        await ucp.testing.until(server.probe)
        assert server.probe()[0] == 5
        assert server.probe(tag=1) is None
        assert await server.recv_obj() == b"12345"
        assert server.probe() is None


async def test_send_many_is_that_many_messages():
    data = [bytes([i]) * (i + 1) for i in range(50)]
    async with connected_pair() as (client, server):
        await client.send_many(data)
        assert [await server.recv_obj() for _ in data] == data


async def test_recv_many_fills_every_buffer():
    buffers = [bytearray(8) for _ in range(50)]
    async with connected_pair() as (client, server):
        receive = asyncio.ensure_future(server.recv_many(buffers))
        await client.send_many([i.to_bytes(8) for i in range(50)])
        await receive
    assert [int.from_bytes(buffer) for buffer in buffers] == list(range(50))


async def test_recv_many_reports_each_failure():
    async with connected_pair() as (client, server):
        await client.send_many([b"12345678", b"short", b"87654321"])
        with pytest.raises(ucp.UCXError) as caught:
            await server.recv_many([bytearray(8) for _ in range(3)])
        results = caught.value.results
        assert [type(result) for result in results] == [
            type(None),
            ucp.UCXMsgTruncated,
            type(None),
        ]
        assert server.probe() is None  # what does not fit the next one, either, is lost


@pytest.mark.parametrize("method", ["recv", "recv_into", "recv_many"])
async def test_a_failure_that_was_waited_for_loses_no_message(method):
    async with connected_pair() as (client, server):
        buffers = [bytearray(1 if method == "recv_into" else 100), bytearray(8)]
        receives = {
            "recv": lambda: server.recv(buffers[0]),
            "recv_into": lambda: server.recv_into(buffers[0]),
            "recv_many": lambda: server.recv_many(buffers),
        }
        task = asyncio.ensure_future(receives[method]())
        await asyncio.sleep(0)  # the task has yielded
        await client.send(b"12345678")
        if method == "recv_many":
            await client.send(b"12345678")
        with pytest.raises(ucp.UCXError if method == "recv_many" else ValueError):
            await task
        await client.send(b"next")
        assert await server.recv_obj() == b"12345678"
        assert await server.recv_obj() == b"next"


async def test_worker_recv_gets_forced_tags():
    async with connected_pair() as (client, _server):
        back = np.zeros(10)
        request = asyncio.ensure_future(ucp.recv(back, tag=0xDEADBEEF))
        await client.send(np.arange(10.0), tag=0xDEADBEEF, force_tag=True)
        await request
    np.testing.assert_array_equal(back, np.arange(10.0))


async def test_endpoint_recv_gets_forced_tags():
    async with connected_pair() as (client, server):
        back = bytearray(3)
        request = server.recv(back, tag=9, force_tag=True)
        await client.send(b"abc", tag=9, force_tag=True)
        await request
        assert back == b"abc"


async def test_flush_waits_for_what_was_sent(connect_peer):
    peer, ep = await connect_peer()
    for size in (8, 50_000):
        await ep.send(bytes(size))
    await ep.flush()
    await ucp.flush()
    assert await peer.do("[len(await ep.recv_obj()) for _ in (1, 2)]") == [8, 50_000]
