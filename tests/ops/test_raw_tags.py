# SPDX-License-Identifier: BSD-3-Clause
# tests: ext/tag ext/tag_message
"""UCX's own tags: 64 bits, matched by the worker, whoever sends."""

import asyncio
import gc

import numpy as np
import pytest

import ucp
from ucp.testing import connected_pair, until

ALL = 2**64 - 1

# Around the switches between protocols.
SIZES = [0, 1, 8, 1000, 8191, 8193, 65_535, 65_537, 524_288, 1 << 20, (4 << 20) + 3]


def pattern(size):
    return np.resize((np.arange(256) * 7 + size).astype(np.uint8), size)


@pytest.mark.parametrize("sync", [False, True])
async def test_every_size_arrives(transport, connect_peer, sync):
    peer, ep = await connect_peer()
    echo = peer.begin(
        f"worker = ucp.current_worker()\n"
        f"for size in {SIZES}:\n"
        f"    data = np.empty(size, 'u1')\n"
        f"    assert await worker.recv(data, size) == size\n"
        f"    await worker.send(ep, data, 2**64 - 1 - size, sync={sync})\n"
    )
    worker = ucp.current_worker()
    for size in SIZES:
        await worker.send(ep, pattern(size), size, sync=sync)
        back = np.zeros(size, "u1")
        await ep.recv(back, tag=ALL - size, force_tag=True)
        np.testing.assert_array_equal(back, pattern(size))
    await peer.result(echo)


async def test_unexpected_messages_of_every_size_are_kept(transport, connect_peer):
    peer, _ep = await connect_peer()
    sends = peer.begin(
        f"await asyncio.gather(*(ep.send(np.full(size, number, 'u1'), tag=number,"
        f" force_tag=True) for number, size in enumerate({SIZES})))"
    )
    worker = ucp.current_worker()
    for number, size in reversed([*enumerate(SIZES)]):
        assert await worker.probe(number) == (size, number)
        assert worker.tag_probe(number) == (size, number)
        back = np.zeros(size, "u1")
        assert await worker.recv(back, number) == size
        assert (back == number).all()
    await peer.result(sends)


async def test_messages_are_taken_before_their_bytes(transport, connect_peer):
    peer, _ep = await connect_peer()
    sends = peer.begin(
        f"for size in {SIZES}:\n    await ep.send(bytes(size), tag=7, force_tag=True)"
    )
    worker = ucp.current_worker()
    for size in SIZES:
        message = await worker.recv_message(7)
        assert (message.nbytes, message.tag) == (size, 7)
        back = bytearray(b"x" * size)
        assert await message.recv(back) == size
        assert back == bytes(size)
    await peer.result(sends)


async def test_a_mask_selects_bits(transport):
    async with connected_pair() as (client, server):
        worker = server.worker
        for tag in (0x101, 0x202, 0x301):
            await client.send(tag.to_bytes(8, "little"), tag=tag, force_tag=True)
        buffer = bytearray(8)
        assert await worker.recv(buffer, 0x300, 0xF00) == 8
        assert int.from_bytes(buffer, "little") == 0x301
        await worker.probe(2, 0xF)
        assert worker.tag_probe(2, 0xF) == (8, 0x202)
        assert worker.tag_probe(4, 0xF) is None
        message = await worker.recv_message(0, 0)
        assert message.tag == 0x101
        await message.recv(buffer)
        assert await worker.recv(buffer, 2, 3) == 8


async def test_raw_tags_and_channels_never_match():
    async with connected_pair() as (client, server):
        await client.send(b"raw", tag=5, force_tag=True)
        await client.send(b"channel", tag=5)
        assert await server.recv_obj(tag=5) == b"channel"
        back = bytearray(3)
        await ucp.recv(back, 5)
        assert back == b"raw"


async def test_any_endpoint_may_have_sent_it():
    async with connected_pair() as (_client, server), connected_pair() as (other, _):
        await other.send(b"abc", tag=5, force_tag=True)
        back = bytearray(3)
        await server.recv(back, tag=5, force_tag=True)
        assert back == b"abc"


async def test_without_a_tag_there_is_nothing_to_force():
    async with connected_pair() as (client, server):
        await client.send(b"abc", force_tag=True)
        assert await server.recv_obj() == b"abc"


async def test_a_synchronous_send_waits_for_the_receiver(transport, connect_peer):
    peer, ep = await connect_peer()
    worker = ucp.current_worker()
    sent = asyncio.ensure_future(worker.send(ep, b"abc", 1, sync=True))
    assert await peer.do("await ucp.current_worker().probe(1)") == (3, 1)
    await peer.do("await ep.send(b'seen')")
    assert await ep.recv_obj() == b"seen"
    assert not sent.done()
    await peer.do("await ucp.recv(bytearray(3), 1)")
    await sent


@pytest.mark.parametrize("length", [2, 4])
async def test_another_length_is_an_error(transport, length):
    async with connected_pair() as (client, server):
        for receive in (
            lambda buffer: ucp.recv(buffer, 1),
            lambda buffer: server.recv(buffer, tag=1, force_tag=True),
        ):
            await client.send(b"abc", tag=1, force_tag=True)
            with pytest.raises(
                ucp.UCXMsgTruncated,
                match=rf"length mismatch: 3 \(got\) != {length} \(expected\)",
            ) as caught:
                await receive(bytearray(length))
            assert caught.value.nbytes == 3
        assert server.worker.tag_probe(1) is None


async def test_worker_recv_takes_shorter_messages_only(transport):
    async with connected_pair() as (client, server):
        await client.send(b"abc", tag=1, force_tag=True)
        buffer = bytearray(b"....")
        assert await server.worker.recv(buffer, 1) == 3
        assert buffer == b"abc."
        await client.send(b"abc", tag=1, force_tag=True)
        with pytest.raises(ucp.UCXMsgTruncated) as caught:
            await server.worker.recv(bytearray(2), 1)
        assert caught.value.nbytes == 3


# ---- giving up ---------------------------------------------------------------


@pytest.mark.parametrize("call", ["recv", "_tag_recv", "recv_message", "probe"])
async def test_what_waits_can_be_cancelled(transport, call):
    async with connected_pair() as (client, server):
        worker = server.worker
        arguments = (bytearray(3), 1) if "message" not in call else (1,)
        if call == "probe":
            arguments = (1,)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(getattr(worker, call)(*arguments), 0.01)
        await client.send(b"abc", tag=1, force_tag=True)
        back = bytearray(3)
        await ucp.recv(back, 1)
        assert back == b"abc"


@pytest.mark.parametrize("call", ["recv", "_tag_recv", "recv_message"])
async def test_a_message_that_came_with_the_cancel_is_kept(call):
    async with connected_pair() as (client, server):
        worker = server.worker
        arguments = (1,) if call == "recv_message" else (bytearray(3), 1)

        async def receive():
            return await getattr(worker, call)(*arguments)

        task = asyncio.ensure_future(receive())
        await asyncio.sleep(0)  # the task has yielded
        await client.send(b"abc", tag=1, force_tag=True)
        await client.send(b"def", tag=1, force_tag=True)
        await client.send(b"last")
        await server.recv_obj()  # both messages came; the task has hardly run
        left = [b"abc", b"def"] if task.cancel() else [b"def"]
        await asyncio.wait([task])
        assert task.cancelled() == (len(left) == 2)
        for expected in left:
            back = bytearray(3)
            await ucp.recv(back, 1)
            assert back == expected


async def test_a_large_receive_cancelled_while_it_lands_is_kept(
    transport, connect_peer
):
    peer, _ep = await connect_peer()
    size = 64 << 20
    sent = peer.begin(f"await ep.send(bytes({size}), tag=1, force_tag=True)")
    worker = ucp.current_worker()
    await worker.probe(1)
    request = worker.recv(np.ones(size, "u1"), 1)
    request.cancel()
    back = np.ones(size, "u1")
    assert await worker.recv(back, 1) == size
    assert not back.any()
    await peer.result(sent)


POISON = 0xEE


async def is_cancelled(request, turns):
    """Whether it was cancelled after so many turns of the loop."""

    async def wait():
        await request

    task = asyncio.create_task(wait())
    for _ in range(turns + 1):  # in the first one it begins to wait
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    return task.cancelled()


@pytest.mark.parametrize("sync", [False, True])
@pytest.mark.parametrize("size", [100, 30_000, 200_000, 8 << 20])
async def test_a_cancelled_send_arrives_as_it_was(transport, connect_peer, size, sync):
    peer, ep = await connect_peer()
    worker = ucp.current_worker()
    echo = peer.begin(
        "worker = ucp.current_worker()\n"
        "for _ in range(12):\n"
        f"    data = np.empty({size}, 'u1')\n"
        "    await worker.recv(data, 1)\n"
        "    await worker.send(ep, data, 2)\n"
    )
    expected = pattern(size)
    for turns in range(12):
        data = expected.copy()
        await is_cancelled(worker.send(ep, data, 1, sync=sync), turns)
        data[:] = POISON
        back = np.zeros(size, "u1")
        await worker.recv(back, 2)
        np.testing.assert_array_equal(back, expected)
    await peer.result(echo)


@pytest.mark.parametrize("size", [100, 30_000, 200_000, 8 << 20])
async def test_a_cancelled_receive_leaves_its_buffer(transport, connect_peer, size):
    peer, ep = await connect_peer()
    worker = ucp.current_worker()
    sends = peer.begin(
        "worker = ucp.current_worker()\n"
        "for number in range(12):\n"
        "    await worker.recv(bytearray(1), 2)\n"
        f"    await ep.send(np.full({size}, number, 'u1'), tag=1, force_tag=True)\n"
    )
    for number in range(12):
        given_up = []
        await worker.send(ep, b"x", 2)
        for turns in range(number):
            data = np.zeros(size, "u1")
            if not await is_cancelled(worker.recv(data, 1), turns):
                break
            data[:] = POISON
            given_up.append(data)
        else:
            data = np.zeros(size, "u1")
            await worker.recv(data, 1)
        assert (data == number).all()
        assert all((other == POISON).all() for other in given_up)
    await peer.result(sends)


async def test_a_message_that_is_dropped_goes_to_who_waits(transport):
    async with connected_pair() as (client, server):
        worker = server.worker
        await client.send(b"abc", tag=1, force_tag=True)
        message = await worker.recv_message(1)
        back = bytearray(3)
        waiting = asyncio.ensure_future(worker.recv(back, 1))
        await asyncio.sleep(0)
        del message
        gc.collect()
        assert await waiting == 3
        assert back == b"abc"


async def test_a_message_is_received_once():
    async with connected_pair() as (client, server):
        await client.send(b"abc", tag=1, force_tag=True)
        message = await server.worker.recv_message(1)
        with pytest.raises(ValueError, match="the message has 3 bytes"):
            message.recv(bytearray(2))
        await message.recv(bytearray(3))
        with pytest.raises(RuntimeError, match=r"^the message was received$"):
            message.recv(bytearray(3))


# ---- the end of the peer -----------------------------------------------------


async def test_receives_of_an_endpoint_end_with_its_peer(transport, connect_peer):
    peer, ep = await connect_peer()
    bound = ep.recv(bytearray(1), tag=1, force_tag=True)
    free = ucp.current_worker().recv(bytearray(1), 1)
    peer.kill()
    with pytest.raises(ucp.UCXConnectionReset):
        await bound
    with pytest.raises(ucp.UCXConnectionReset):
        await ep.send(b"x", tag=1, force_tag=True)
    with pytest.raises(ucp.UCXConnectionReset):
        await ep.recv(bytearray(1), tag=1, force_tag=True)
    assert not free.done()
    free.cancel()


@pytest.mark.parametrize("size", [8, 4 << 20])
async def test_a_synchronous_send_ends_with_its_peer(transport, connect_peer, size):
    peer, ep = await connect_peer()
    sent = ucp.current_worker().send(ep, bytes(size), 1, sync=True)
    await peer.do("await ucp.current_worker().probe(1)")
    peer.kill()
    with pytest.raises(ucp.UCXConnectionReset):
        await sent


async def test_receives_of_an_endpoint_end_with_the_peers_close(
    transport, connect_peer
):
    peer, ep = await connect_peer()
    bound = ep.recv(bytearray(1), tag=1, force_tag=True)
    await peer.do("await ep.send(b'last', tag=2, force_tag=True)")
    await peer.do("await ep.close()")
    with pytest.raises(ucp.UCXPeerClosed):
        await bound
    with pytest.raises(ucp.UCXCloseError):
        await ep.send(b"x", tag=1, force_tag=True)
    back = bytearray(4)
    await ucp.recv(back, 2)
    assert back == b"last"


@pytest.mark.parametrize("is_killed", [False, True])
async def test_what_has_come_is_received_after_the_end_of_its_endpoint(
    transport, connect_peer, is_killed
):
    peer, ep = await connect_peer()
    await peer.do("await ep.send(b'last', tag=2, force_tag=True)")
    await ucp.current_worker().probe(2)
    if is_killed:
        peer.kill()
    else:
        await peer.do("await ep.close()")
    await until(ep.closed)
    with pytest.raises(ucp.UCXBaseException):
        await ep.recv(bytearray(4), tag=1, force_tag=True)
    back = bytearray(4)
    await ep.recv(back, tag=2, force_tag=True)
    assert back == b"last"
    with pytest.raises(ucp.UCXBaseException):
        await ep.recv(back, tag=2, force_tag=True)


async def test_what_a_dead_peer_still_had_is_reset(transport, connect_peer):
    """Announced only; not cancelled, which would be the receiver's doing."""
    peer, ep = await connect_peer()
    peer.begin("sending = ep.send(bytes(8 << 20), tag=2, force_tag=True)")
    await ucp.current_worker().probe(2)
    peer.kill()
    await until(ep.closed)
    with pytest.raises(ucp.UCXConnectionReset):
        await ep.recv(bytearray(8 << 20), tag=2, force_tag=True)


async def test_what_waits_ends_with_the_worker(fresh_ucx):
    async with connected_pair() as (client, server):
        worker = server.worker
        await client.send(b"abc", tag=1, force_tag=True)
        message = await worker.recv_message(1)
        waiting = [
            worker.recv(bytearray(1), 2),
            worker.recv_message(2),
            worker.probe(2),
        ]
    ucp.reset()
    for request in waiting:
        with pytest.raises(ucp.UCXCanceled):
            await request
    with pytest.raises(RuntimeError, match=r"^the worker is closed$"):
        message.recv(bytearray(3))


# ---- arguments ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("tag", "error"),
    [
        *((-1, OverflowError), (2**64, OverflowError), (-(2**70), OverflowError)),
        *((1.0, TypeError), ("tag", TypeError), (b"1", TypeError)),
        *(((1,), TypeError), (ucp.ANY, TypeError)),
    ],
    ids=repr,
)
async def test_what_is_no_raw_tag_is_refused(tag, error):
    async with connected_pair() as (client, server):
        worker = server.worker
        for call in (
            lambda: worker.send(client, b"", tag),
            lambda: worker.recv(bytearray(1), tag),
            lambda: worker.recv(bytearray(1), 0, tag),
            lambda: worker.recv_message(tag),
            lambda: worker.probe(0, tag),
            lambda: worker.tag_probe(tag),
            lambda: server.recv(bytearray(1), tag=tag, force_tag=True),
        ):
            with pytest.raises(error, match=r"^(tag|mask) must be "):
                call()
        if tag is not ucp.ANY:
            with pytest.raises(error, match=r"^tag must be "):
                client.send(b"", tag=tag, force_tag=True)
        with pytest.raises(error):
            await ucp.recv(bytearray(1), tag)


async def test_numpy_integers_are_tags():
    async with connected_pair() as (client, server):
        await client.send(b"abc", tag=np.uint64(ALL), force_tag=True)
        assert await server.worker.probe(np.uint8(1), np.int32(1)) == (3, ALL)
        await ucp.recv(bytearray(3), np.uint64(ALL))


async def test_bad_arguments_are_named():
    async with connected_pair() as (client, server):
        worker = server.worker
        with pytest.raises(TypeError, match=r"^ep must be an Endpoint, not int$"):
            worker.send(1, b"", 1)
        with pytest.raises(TypeError):
            worker.send(client, 1.5, 1)
        with pytest.raises(ValueError, match=r"read-?only|writable"):
            worker.recv(b"abc", 1)
        with pytest.raises(TypeError):
            worker.recv(bytearray(1))


async def test_an_endpoint_of_another_worker_is_refused():
    async with connected_pair() as (client, _server):
        other = await asyncio.to_thread(ucp.current_worker)
        with pytest.raises(ValueError, match=r"is not of this worker$"):
            other.send(client, b"", 1)
