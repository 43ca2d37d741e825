# SPDX-License-Identifier: BSD-3-Clause
# tests: ext/bytes_block
"""Messages of frames: every protocol, cancelling, the peer's end, limits."""

import asyncio
import gc
import pickle
import weakref

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from objects import kept_objects

import ucp
from ucp.testing import connected_pair, live_objects, until

pytestmark = pytest.mark.usefixtures("transport")

_KIB = 1024
# In the head, copied and gathered; in parts of several; alone; and mixed.
SHAPES = [
    [],
    [0],
    [1],
    [64] * 16,
    [64, 0, 64, 7, 300],
    [4000, 4100],
    [9000, 1, 9000, 0, 9000],
    [10 * _KIB] * 30,
    [64 * _KIB - 1, 64 * _KIB, 64 * _KIB + 1],
    [1024 * _KIB, 5, 1024 * _KIB, 0, 300, 70000],
    [40000, 0, 40000, 100000, 40000, 300000, 40000],
]
LONG = [100, 1024 * _KIB, 40000, 1024 * _KIB]


def frames_of(sizes, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 256, size, dtype=np.uint8) for size in sizes]


def same(frames, sent):
    return [bytes(frame) for frame in frames] == [bytes(frame) for frame in sent]


async def test_frames_arrive_whether_they_are_waited_for_or_not():
    async with connected_pair() as (left, right):
        for number, sizes in enumerate(SHAPES):
            sent = frames_of(sizes, number)
            receiving = right.recv_frames()
            sending = left.send_frames(sent, header=b"first")
            assert await receiving == (b"first", [bytes(frame) for frame in sent])
            await sending
            sending = left.send_frames(sent)
            await right.send_frames([], b"meanwhile")
            await left.recv_frames()
            header, frames = await right.recv_frames()
            assert header == b""
            assert all(type(frame) is bytearray for frame in frames)
            assert same(frames, sent)
            await sending


async def test_frames_arrive_from_another_process(connect_peer):
    peer, ep = await connect_peer()
    echo = peer.begin(
        f"for _ in range({len(SHAPES)}):\n"
        "    header, frames = await ep.recv_frames()\n"
        "    await ep.channel(9).send_frames(frames, header * 2)\n"
    )
    for number, sizes in enumerate(SHAPES):
        sent = frames_of(sizes, number)
        await ep.send_frames(sent, b"ab")
        header, frames = await ep.channel(9).recv_frames()
        assert header == b"abab"
        assert same(frames, sent)
    await peer.result(echo)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_any_messages_arrive_in_order(data):
    size = st.one_of(
        st.integers(0, 300),
        st.sampled_from([8191, 8192, 8193, 65535, 65536, 65537, 262144, 1 << 20]),
    )
    messages = data.draw(
        st.lists(
            st.tuples(st.lists(size, max_size=20), st.binary(max_size=200)),
            max_size=6,
        )
    )
    late = data.draw(st.integers(0, len(messages)))

    async def exchange():
        async with connected_pair() as (left, right):
            early = [right.recv_frames() for _ in messages[late:]]
            sent = [frames_of(sizes) for sizes, _ in messages]
            sends = [
                left.send_frames(frames, header)
                for frames, (_, header) in zip(sent, messages, strict=True)
            ]
            got = [await receive for receive in early]
            got += [await right.recv_frames() for _ in messages[:late]]
            for (header, frames), (_, expected), buffers in zip(
                got, messages, sent, strict=True
            ):
                assert header == expected
                assert same(frames, buffers)
            for sending in sends:
                await sending

    asyncio.run(exchange())


async def test_messages_of_many_tasks_stay_whole_and_in_order():
    count = 60

    async def send(ep, number):
        sizes = SHAPES[number % len(SHAPES)]
        await ep.send_frames(frames_of(sizes, number), number.to_bytes(4, "little"))

    async with connected_pair() as (left, right):
        receives = [right.recv_frames() for _ in range(count // 2)]
        sends = [asyncio.create_task(send(left, number)) for number in range(count)]
        got = [await receive for receive in receives]
        got += [await right.recv_frames() for _ in range(count - count // 2)]
        await asyncio.gather(*sends)
        for number, (header, frames) in enumerate(got):
            assert int.from_bytes(header, "little") == number
            assert same(frames, frames_of(SHAPES[number % len(SHAPES)], number))


async def test_channels_are_independent():
    async with connected_pair() as (left, right):
        sending = left.channel(1).send_frames(frames_of(LONG), b"one")
        await left.send_frames([b"two"])
        await left.channel(2).send_frames([b"three"])
        await left.send(b"a message")
        assert await right.channel(2).recv_frames() == (b"", [b"three"])
        assert await right.recv_frames() == (b"", [b"two"])
        header, frames = await right.channel(1).recv_frames()
        assert header == b"one"
        assert same(frames, frames_of(LONG))
        await right.recv(bytearray(9))
        await sending


# ---- memory of the receiver's choice ----


@pytest.mark.parametrize("sizes", SHAPES, ids=str)
async def test_into_buffers_gives_lengths(sizes):
    sent = frames_of(sizes)
    into = [np.zeros(size + 3, dtype=np.uint8) for size in [*sizes, 5]]
    async with connected_pair() as (left, right):
        receiving = right.recv_frames(into=into)
        sending = left.send_frames(sent, b"h")
        assert await receiving == (b"h", sizes)
        await sending
    assert same([buf[:size] for buf, size in zip(into, sizes, strict=False)], sent)


async def test_frames_that_buffers_do_not_suffice_for_are_for_the_next_receive():
    async with connected_pair() as (left, right):
        few = right.recv_frames(into=[bytearray(9)])
        whole = right.recv_frames()
        sending = left.send_frames(frames_of(LONG, 1))
        with pytest.raises(ucp.UCXMsgTruncated):
            await few
        _, frames = await whole
        assert same(frames, frames_of(LONG, 1))
        await sending


@pytest.mark.parametrize("lengths", [[], LONG[:3], [99, *LONG[1:]], [*LONG[:3], 7]])
async def test_buffers_that_do_not_suffice(lengths):
    async with connected_pair() as (left, right):
        sends = [left.send_frames(frames_of(LONG, seed)) for seed in range(2)]
        into = [bytearray(length) for length in lengths]
        text = (
            r"^the buffers are too few or too short for the frames, which have "
            r"\d+ bytes: the next receive gets the message; recv_frames\(\) without "
        )
        with pytest.raises(ucp.UCXMsgTruncated, match=text) as excinfo:
            await right.recv_frames(into=into)
        assert excinfo.value.nbytes == sum(LONG)
        assert not any(map(any, into))
        for seed in range(2):
            _, frames = await right.recv_frames()
            assert same(frames, frames_of(LONG, seed))
        for sending in sends:
            await sending


@pytest.mark.parametrize("sizes", [[5, 0, 7], LONG], ids=str)
async def test_an_allocator_is_asked_for_each_frame(sizes):
    made = []

    def allocator(nbytes):
        made.append(np.empty(nbytes, dtype=np.uint8))
        return made[-1]

    async with connected_pair() as (left, right):
        sending = left.send_frames(frames_of(sizes))
        _, frames = await right.recv_frames(allocator)
        assert [buf.nbytes for buf in made] == sizes
        assert all(a is b for a, b in zip(frames, made, strict=True))
        assert same(frames, frames_of(sizes))
        await sending


@pytest.mark.parametrize("sizes", [[5, 0, 7], LONG], ids=str)
async def test_a_message_stays_when_its_allocator_fails(sizes):
    def fails(nbytes):
        if nbytes == sizes[-1]:
            raise ZeroDivisionError
        return bytearray(nbytes)

    async with connected_pair() as (left, right):
        sending = left.send_frames(frames_of(sizes), b"h")
        with pytest.raises(ZeroDivisionError):
            await right.recv_frames(fails)
        with pytest.raises(ValueError, match="was asked for"):
            await right.recv_frames(lambda nbytes: bytearray(nbytes + 1))
        header, frames = await right.recv_frames()
        assert header == b"h"
        assert same(frames, frames_of(sizes))
        await sending


async def test_arguments_are_checked():
    async with connected_pair() as (left, right):
        with pytest.raises(TypeError):
            left.send_frames(5)
        with pytest.raises(TypeError):
            left.send_frames([b"", None])
        with pytest.raises(ValueError, match="at most 65536 bytes"):
            left.send_frames([], bytes(65537))
        with pytest.raises(ValueError, match="read-only"):
            right.recv_frames(into=[b"x"])
        with pytest.raises(ValueError, match="does not go with into"):
            right.recv_frames(bytearray, into=[])
        with pytest.raises(TypeError, match="must be callable"):
            right.recv_frames(5)
        sending = left.send_frames([], bytes(65536))
        assert await right.recv_frames() == (bytes(65536), [])
        await sending


async def test_buffers_are_held_until_they_are_sent():
    buffer = np.zeros(1 << 20, dtype=np.uint8)
    alive = weakref.ref(buffer)
    async with connected_pair() as (left, right):
        sending = left.send_frames([buffer, buffer])
        del buffer
        gc.collect()
        assert alive() is not None
        _, frames = await right.recv_frames()
        assert [len(frame) for frame in frames] == [1 << 20] * 2
        await sending
        assert alive() is None


async def test_buffers_of_a_cancelled_send_are_not_held():
    buffer = np.zeros(1 << 20, dtype=np.uint8)
    alive = weakref.ref(buffer)
    async with connected_pair() as (left, right):
        sending = left.send_frames([buffer, buffer])
        del buffer
        sending.cancel()
        gc.collect()
        assert alive() is None
        _, frames = await right.recv_frames()
        assert [len(frame) for frame in frames] == [1 << 20] * 2


# ---- cancelling ----


@pytest.mark.parametrize("sizes", SHAPES, ids=str)
async def test_a_cancelled_receive_loses_nothing_at_any_step(sizes):
    async with connected_pair() as (left, right):
        for step in range(30):
            sent = frames_of(sizes, step)
            receiving = asyncio.ensure_future(right.recv_frames())
            sending = left.send_frames(sent, b"h")
            for _ in range(step):
                await asyncio.sleep(0)
            if receiving.done():
                break
            receiving.cancel()
            header, frames = await right.recv_frames()
            assert header == b"h"
            assert same(frames, sent)
            await sending
            with pytest.raises(asyncio.CancelledError):
                await receiving


@pytest.mark.parametrize("sizes", [[5, 7], LONG], ids=str)
async def test_a_request_that_is_dropped_loses_nothing(sizes):
    async with connected_pair() as (left, right):
        receiving = right.recv_frames()
        sending = left.send_frames(frames_of(sizes), b"h")
        await until(receiving.done)
        del receiving
        header, frames = await right.recv_frames()
        assert header == b"h"
        assert same(frames, frames_of(sizes))
        await sending


@pytest.mark.parametrize("sizes", [[5, 7], LONG], ids=str)
async def test_given_buffers_are_not_written_after_a_cancelled_receive(sizes):
    async with connected_pair() as (left, right):
        into = [bytearray(size) for size in sizes]
        receiving = right.recv_frames(into=into)
        receiving.cancel()
        sending = left.send_frames([np.ones(size, np.uint8) for size in sizes])
        _, frames = await right.recv_frames()
        assert all(all(frame) for frame in frames)
        assert not any(map(any, into))
        await sending
        for buffer in into:
            buffer.append(0)  # no export is left


# ---- buffers of cancelled operations ----


def poison(buffers):
    for buffer in buffers:
        buffer[:] = 0xDD


async def stop(task):
    """Cancel ``task``; False if it had ended before."""
    if task.done():
        await task
        return False
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    return True


@pytest.mark.parametrize("sizes", [*SHAPES, LONG], ids=str)
async def test_the_buffers_of_a_cancelled_receive_are_free(sizes):
    async with connected_pair() as (left, right):
        for step in range(20):
            sent = frames_of(sizes, step)
            into = [np.empty(size, np.uint8) for size in sizes]
            receiving = asyncio.ensure_future(right.recv_frames(into=into))
            sending = left.send_frames(sent)
            for _ in range(step):
                await asyncio.sleep(0)
            if not await stop(receiving):
                assert same(into, sent)
                break
            poison(into)
            _, frames = await right.recv_frames()
            assert same(frames, sent)
            await sending
            assert all((buffer == 0xDD).all() for buffer in into)


@pytest.mark.parametrize("sizes", [*SHAPES, LONG], ids=str)
async def test_a_cancelled_send_arrives_as_it_was_or_never(sizes):
    async with connected_pair() as (left, right):
        for step in range(20):
            sent = frames_of(sizes, step)
            copies = [buffer.copy() for buffer in sent]
            receiving = right.recv_frames()
            sending = asyncio.ensure_future(left.send_frames(sent, b"first"))
            for _ in range(step):
                await asyncio.sleep(0)
            is_over = not await stop(sending)
            poison(sent)
            await left.send_frames([], b"second")
            header, frames = await receiving
            if header == b"first":
                assert same(frames, copies)
                assert (await right.recv_frames())[0] == b"second"
            if is_over:
                assert header == b"first"
                break


async def test_a_cancelled_send_that_nobody_takes_needs_no_receiver():
    async with connected_pair() as (left, right):
        sent = frames_of(LONG)
        copies = [buffer.copy() for buffer in sent]
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(left.send_frames(sent, b"first"), 0.01)
        poison(sent)
        header, frames = await right.recv_frames()
        assert header == b"first"
        assert same(frames, copies)


async def test_a_timeout_loses_nothing():
    async with connected_pair() as (left, right):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(right.recv_frames(), 0.01)
        await left.send_frames([b"x"])
        assert await right.recv_frames() == (b"", [b"x"])


# ---- limits and the peer's end ----


async def test_a_flood_waits_for_its_reader():
    ucp.reset()
    ucp.init(config=ucp.Config(credit_messages=16, credit_bytes=200_000, credit_rndv=4))
    async with connected_pair() as (left, right):
        sends = [
            left.send_frames(frames_of(SHAPES[number % len(SHAPES)], number))
            for number in range(200)
        ]
        await left.ping()
        statistics = right.worker.statistics
        # 16 short ones, 4 announced ones, and 4 of the channel's reserve
        assert statistics.unexpected_messages <= 24
        assert statistics.unexpected_bytes <= 200_000 + 8 * 1024 * _KIB
        assert not sends[-1].done()
        for number in range(200):
            _, frames = await right.recv_frames()
            assert same(frames, frames_of(SHAPES[number % len(SHAPES)], number))
        for sending in sends:
            await sending


async def test_sends_beyond_the_limits_are_refused():
    ucp.reset()
    ucp.init(config=ucp.Config(frames_max=3, frames_bytes_max=100))
    async with connected_pair() as (left, right):
        for frames in ([b""] * 4, [bytes(50), bytes(51)]):
            with pytest.raises(ucp.exceptions.UCXError, match=r"frames_max"):
                await left.send_frames(frames)
        await left.send_frames([b"", bytes(50), bytes(50)])
        _, frames = await right.recv_frames()
        assert frames == [b"", bytes(50), bytes(50)]


async def test_frames_beyond_the_receivers_limits_end_the_connection(connect_peer):
    ucp.reset()
    ucp.init(config=ucp.Config(frames_max=3))
    peer, ep = await connect_peer()
    receiving = ep.recv_frames()
    peer.begin("await ep.send_frames([b''] * 4)")
    with pytest.raises(ucp.exceptions.UCXProtocolError):
        await receiving


@pytest.mark.parametrize("step", [0, 1, 3])
async def test_the_peer_is_killed_in_the_middle(connect_peer, step):
    peer, ep = await connect_peer()
    peer.begin(
        "await ep.send_frames([b'connected'])\n"
        "for _ in range(8):\n"
        f"    ep.send_frames([bytes(size) for size in {LONG}] * 50)\n"
    )
    await ep.recv_frames()
    receives = [ep.recv_frames() for _ in range(9)]
    for receive in receives[:step]:
        await receive
    peer.kill()
    results = await asyncio.gather(*receives[step:], return_exceptions=True)
    failed = [result for result in results if isinstance(result, Exception)]
    assert all(isinstance(exc, ucp.exceptions.UCXConnectionReset) for exc in failed)
    assert failed  # the last one, at least
    with pytest.raises(
        (ucp.exceptions.UCXConnectionReset, ucp.exceptions.UCXCloseError)
    ):
        await ep.send_frames([b"x"])


async def test_what_was_sent_before_a_close_can_be_read(connect_peer):
    peer, ep = await connect_peer()
    closing = peer.begin(
        f"frames = [bytes(size) for size in {LONG}]\n"
        "sends = [ep.send_frames(frames) for _ in range(5)]\n"
        "await ep.close()\n"
    )
    await peer.result(closing)
    for _ in range(5):
        _, frames = await ep.recv_frames()
        assert [len(frame) for frame in frames] == LONG
    with pytest.raises(ucp.exceptions.UCXCloseError):
        await ep.recv_frames()


async def test_a_receive_ends_with_the_peers_close():
    async with connected_pair() as (left, right):
        receiving = right.recv_frames()
        await left.close()
        with pytest.raises(ucp.exceptions.UCXPeerClosed):
            await receiving


async def test_nothing_is_left_alive():
    async with connected_pair() as (left, right):
        gc.collect()
        before = kept_objects()
        for sizes in SHAPES:
            sending = left.send_frames(frames_of(sizes))
            await right.recv_frames()
            await sending
            right.recv_frames().cancel()
        del sending
        gc.collect()
        await until(lambda: live_objects() == before)


async def test_a_request_made_in_another_thread():
    async with connected_pair() as (left, right):
        loop = asyncio.get_running_loop()
        sending = await loop.run_in_executor(None, left.send_frames, [b"x", b"yy"])
        receiving = await loop.run_in_executor(None, right.recv_frames)
        await sending
        assert await receiving == (b"", [b"x", b"yy"])


# ---- objects ----


async def test_pickles_travel_with_their_buffers_out_of_band():
    array = np.arange(200_000)
    obj = {"a": array, "b": [1, "two", None], "c": np.ones((3, 5)).T}
    async with connected_pair() as (left, right):
        sending = left.send_pickle(obj)
        got = await right.recv_pickle(allow_pickle=True)
        await sending
        assert got["b"] == obj["b"]
        assert np.array_equal(got["a"], array)
        assert np.array_equal(got["c"], obj["c"])
        got["a"][0] = 7  # the receiver owns the memory


async def test_pickles_are_received_only_if_asked_for():
    async with connected_pair() as (left, right):
        await left.channel(1).send_pickle([1])
        with pytest.raises(ValueError, match="allow_pickle=True"):
            await right.channel(1).recv_pickle()
        with pytest.raises(ValueError, match="allow_pickle=True"):
            await right.channel(1).recv_pickle(allow_pickle="yes")
        assert await right.channel(1).recv_pickle(allow_pickle=True) == [1]


async def test_other_frames_are_not_unpickled():
    async with connected_pair() as (left, right):
        await left.send_frames([pickle.dumps([1])])
        with pytest.raises(ucp.exceptions.UCXError, match="no pickled object"):
            await right.recv_pickle(allow_pickle=True)


async def test_multi():
    async with connected_pair() as (left, right):
        for sizes in SHAPES:
            sending = left.send_multi(frames_of(sizes))
            assert same(await right.recv_multi(), frames_of(sizes))
            await sending
        await left.send_multi([b"12", b"345"])
        made = await right.recv_multi(lambda nbytes: np.empty(nbytes, "u1"))
        assert [type(buf) for buf in made] == [np.ndarray] * 2
