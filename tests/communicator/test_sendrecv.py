# SPDX-License-Identifier: BSD-3-Clause
"""A send and a receive in one operation."""

import asyncio

import numpy as np
import pytest
from worlds import good_world, sync_world, world

import ucp

BIG = 300_000
YES = {"allow_pickle": True}


@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize("count", [0, 1, BIG])
def test_ranks_in_a_ring_pass_arrays_on(size, count):
    async def main(comm):
        after, before = (comm.rank + 1) % size, (comm.rank - 1) % size
        own, got = np.full(count, comm.rank), np.full(count, -1)
        status = await comm.sendrecv(own, after, got, before, 3, 3)
        assert (got == before).all()
        assert tuple(status) == (before, 3, got.nbytes)

    good_world(size, main)


def test_the_same_buffer_is_replaced():
    async def main(comm):
        array = np.full(BIG, comm.rank)
        await comm.sendrecv(array, 1 - comm.rank, array, 1 - comm.rank)
        assert (array == 1 - comm.rank).all()

    good_world(2, main)


def test_the_same_buffer_with_gaps_is_refused():
    async def main(comm):
        array = np.arange(10)[::2]
        with pytest.raises(
            TypeError,
            match=r"^sendrecv\(\) with one buffer for both takes contiguous memory",
        ):
            await comm.sendrecv(array, 0, array)
        assert comm.iprobe() is None

    good_world(1, main)


def test_source_and_tags_may_be_any():
    async def main(comm):
        got = bytearray(3)
        status = await comm.sendrecv(b"abc", 1 - comm.rank, got, send_tag=7 + comm.rank)
        assert got == b"abc"
        assert (status.source, status.tag) == (1 - comm.rank, 8 - comm.rank)

    good_world(2, main)


def test_objects_are_passed_on():
    async def main(comm):
        after, before = (comm.rank + 1) % 3, (comm.rank - 1) % 3
        own = {"array": np.full(BIG, comm.rank), "rank": comm.rank}
        got = await comm.sendrecv_pickle(own, after, before, 3, 3, **YES)
        assert got["rank"] == before
        assert (got["array"] == before).all()
        got, status = await comm.sendrecv_pickle(
            comm.rank, after, with_status=True, **YES
        )
        assert (got, status.source) == (before, before)

    good_world(3, main)


def test_objects_are_received_only_if_asked_for():
    async def main(comm):
        with pytest.raises(ValueError, match=r"^sendrecv_pickle\(\) runs"):
            comm.sendrecv_pickle(1, 0)
        assert comm.iprobe() is None

    good_world(1, main)


def test_an_object_that_cannot_be_pickled_takes_no_message():
    async def main(comm):
        await comm.send_pickle("next", 0)
        with pytest.raises((TypeError, AttributeError), match="pickle"):
            await comm.sendrecv_pickle(lambda: 1, 0, **YES)
        assert await comm.recv_pickle(**YES) == "next"

    good_world(1, main)


def test_wrong_arguments_take_no_message():
    async def main(comm):
        await comm.send(b"next", 0)
        for call in (
            comm.sendrecv(b"x", 1, bytearray(4)),
            comm.sendrecv(5, 0, bytearray(4)),
            comm.sendrecv(b"x", 0, b"read-only"),
            comm.sendrecv(b"x", 0, bytearray(4), source=1),
        ):
            with pytest.raises((TypeError, ValueError, BufferError)):
                await call
        buffer = bytearray(4)
        await comm.recv(buffer)
        assert buffer == b"next"

    good_world(1, main)


def test_a_message_that_is_too_long_is_named():
    async def main(comm):
        with pytest.raises(ucp.UCXMsgTruncated, match="has 4 bytes, the buffer 2"):
            await comm.sendrecv(b"long", 1 - comm.rank, bytearray(2))
        await comm.barrier()

    good_world(2, main)


async def send(comm, array, dest, is_object):
    await (comm.send_pickle if is_object else comm.send)(array, dest)


async def receive(comm, is_object):
    if is_object:
        return await comm.recv_pickle(**YES)
    got = np.full(BIG, -1)
    status = await comm.recv(got)
    return got[: status.nbytes // got.itemsize]


@pytest.mark.parametrize("steps", range(5))
@pytest.mark.parametrize("is_object", [False, True])
def test_when_cancelled_no_message_is_lost(steps, is_object):
    own, theirs = np.full(BIG, 0), np.full(BIG, 1)

    async def main(comm):
        if comm.rank == 0:
            call = (
                comm.sendrecv_pickle(own, 1, **YES)
                if is_object
                else comm.sendrecv(own, 1, np.empty_like(own))
            )
            for _ in range(steps):
                await asyncio.sleep(0)
            if call.cancel():
                with pytest.raises(asyncio.CancelledError):
                    await call
                assert (await receive(comm, is_object) == theirs).all()
            await send(comm, own[:1], 1, is_object)
            return
        sending = asyncio.ensure_future(send(comm, theirs, 0, is_object))
        while len(got := await receive(comm, is_object)) > 1:
            assert (got == own).all()  # all of it has come, or nothing
        await sending

    good_world(2, main)


async def cancelled(operation):
    operation.cancel()
    with pytest.raises(asyncio.CancelledError):
        await operation


@pytest.mark.parametrize("is_object", [False, True])
def test_what_has_come_is_given_back_when_the_send_is_cancelled(is_object):
    big = np.zeros(BIG * 10)

    async def main(comm):
        if comm.rank == 0:
            got = np.full(1, -1)
            call = (
                comm.sendrecv_pickle(big, 1, 1, 5, **YES)
                if is_object
                else comm.sendrecv(big, 1, got, 1, 5)
            )
            while comm.iprobe(1, 6) is None:  # the other message has come
                await asyncio.sleep(0)
            assert not call.done()
            await cancelled(call)
            assert await receive(comm, is_object) == 7
            await comm.barrier()
            return
        await send(comm, np.full(1, 7), 0, is_object)
        await comm.send(b"", 0, 6)
        await comm.barrier()

    good_world(2, main)


def test_a_rank_that_has_left_is_named():
    async def main(comm):
        if comm.rank == 0:
            return
        got = bytearray(1)
        with pytest.raises(ucp.UCXRankFailed, match="rank 0 has left"):
            await comm.sendrecv(b"x", 1, got, 0)

    good_world(2, main)


def test_a_communicator_that_fails_ends_it():
    async def main(comm):
        if comm.rank == 0:
            while comm.iprobe(1, 9) is None:
                await asyncio.sleep(0)
            comm.abort("enough")
            return
        waiting = comm.sendrecv_pickle(np.arange(BIG), 0, 0, **YES)
        await comm.send(b"", 0, 9)
        await waiting

    end = world(2, main)[1]
    assert isinstance(end, ucp.UCXRankFailed)
    assert "enough" in str(end)


def test_threads_pass_arrays_and_objects_on():
    def main(comm):
        after, before = (comm.rank + 1) % 3, (comm.rank - 1) % 3
        own, got = np.full(BIG, comm.rank), np.full(BIG, -1)
        status = comm.sendrecv(own, after, got, before)
        assert (got == before).all()
        assert status.source == before
        got = comm.sendrecv_pickle(own, after, before, **YES)
        assert (got == before).all()
        with pytest.raises(ucp.UCXTimeout):
            comm.sendrecv(b"x", comm.rank, bytearray(1), before, timeout=0.01)
        comm.barrier()

    sync_world(3, main)
