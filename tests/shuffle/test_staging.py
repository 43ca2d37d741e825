# SPDX-License-Identifier: BSD-3-Clause
"""``ucp.shuffle.StagingQueue``: messages through buffers of registered memory."""

import asyncio
import gc
import tracemalloc

import numpy as np
import pytest
from worlds import Ranks, good_world, world

import ucp
from ucp.shuffle import StagingQueue, pack_tag
from ucp.testing import live_objects

SIZES = [0, 1, 4096, 4097, 65535, 65536, 65537, 300_000]


def bytes_of(size, *seed):
    return np.random.default_rng(seed).integers(0, 256, size, "u1")


def queue_world(size, main, **options):
    """``good_world()`` of ``main(queue, rank)``; every buffer is free at its end."""
    options = {"nbytes": 1 << 16, "count": 2, "stage_all": True, **options}

    async def with_queue(comm):
        async with await StagingQueue.create(comm, **options) as queue:
            result = await main(queue, comm.rank)
            await comm.barrier()
        for pool in (queue._send_pool, queue._recv_pool):
            assert pool.free in (0, options["count"])  # it is closed
        return result

    return good_world(size, with_queue)


both_paths = pytest.mark.parametrize("stage_all", [True, False])


@both_paths
@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("settings", [(1 << 16, 2, 2), (1000, 1, 1), (1 << 20, 3, 8)])
def test_all_to_all(size, settings, stage_all):
    nbytes, count, depth = settings

    async def main(queue, rank):
        for length in SIZES:
            got = [np.empty(length, "u1") for _ in range(size)]
            lengths = await asyncio.gather(
                *[queue.recv(got[r], r) for r in range(size)],
                *[queue.send(bytes_of(length, rank, r), r) for r in range(size)],
            )
            assert lengths[:size] == [length] * size
            for source in range(size):
                np.testing.assert_array_equal(
                    got[source], bytes_of(length, source, rank)
                )
        return queue.statistics

    total = size * sum(SIZES)
    for have in queue_world(
        size, main, nbytes=nbytes, count=count, depth=depth, stage_all=stage_all
    ):
        assert have.num_sent == have.num_received == size * len(SIZES)
        inline = 2 * size * (1 + 4096)
        assert have.inline == inline
        bulk = 2 * total - inline
        assert (have.staged, have.direct) == ((bulk, 0) if stage_all else (0, bulk))


@both_paths
def test_messages_of_one_tag_are_in_order(stage_all):
    lengths = [5, 70_000, 4097, 0, 200_000, 4096, 100_000] * 3

    async def main(queue, rank):
        if rank == 0:
            await asyncio.gather(
                *[queue.send(bytes_of(n, i), 1) for i, n in enumerate(lengths)]
            )
            return
        got = [np.empty(200_000, "u1") for _ in lengths]
        assert lengths == await asyncio.gather(*[queue.recv(g, 0) for g in got])
        for i, n in enumerate(lengths):
            np.testing.assert_array_equal(got[i][:n], bytes_of(n, i))

    queue_world(2, main, stage_all=stage_all)


def test_a_message_that_is_not_received_holds_up_no_other():
    async def main(queue, rank):
        if rank == 0:
            await asyncio.gather(
                *[queue.send(bytes_of(200_000, n), 1, tag=n) for n in range(5)]
            )
            return
        for n in reversed(range(5)):
            got = np.empty(200_000, "u1")
            await queue.recv(got, 0, tag=n)
            np.testing.assert_array_equal(got, bytes_of(200_000, n))

    queue_world(2, main, count=1)


def test_a_circle_needs_no_more_buffers():
    async def main(queue, rank):
        for _ in range(5):
            sent = [
                queue.send(bytes_of(500_000, rank, r), r, tag=t)
                for r in range(4)
                for t in range(3)
            ]
            got = {(r, t): np.empty(500_000, "u1") for t in range(3) for r in range(4)}
            received = [queue.recv(got[key], *key) for key in got]
            await asyncio.gather(*sent, *received)
            for source, tag in got:
                np.testing.assert_array_equal(
                    got[source, tag], bytes_of(500_000, source, rank)
                )
        return queue.statistics.num_waits

    assert min(queue_world(4, main, count=1, depth=4)) > 0


def test_batches_are_numbered_again():
    async def main(queue, rank):
        got = np.empty(70_000, "u1")
        await asyncio.gather(
            queue.send(bytes_of(70_000, rank), rank), queue.recv(got, rank)
        )
        np.testing.assert_array_equal(got, bytes_of(70_000, rank))

    queue_world(1, main, nbytes=1, count=4)


def test_arrays_of_any_type():
    arrays = [
        np.arange(10_000, dtype=">i4"),
        np.zeros(3000, dtype=[("a", "i4"), ("b", "f8")]),
        np.array(["2020-01-01", "1999-12-31"], dtype="M8[D]").view("i8"),
        np.array(3.5),
        np.ones((30, 40, 50), "f4"),
        np.empty((0, 5)),
    ]

    async def main(queue, rank):
        for array in arrays:
            got = np.empty_like(array)
            await asyncio.gather(queue.send(array, rank), queue.recv(got, rank))
            np.testing.assert_array_equal(got, array)

    queue_world(1, main)


# ---- cancellation -----------------------------------------------------------


@both_paths
@pytest.mark.parametrize("length", [100, 300_000])
def test_a_cancelled_receive_loses_no_message(length, stage_all):
    async def main(queue, rank):
        if rank == 0:
            for n in range(60):
                await queue.send(bytes_of(length, n), 1)
            return None
        cancelled = n = 0
        for turns in range(200):
            scratch = np.empty(length, "u1")
            task = asyncio.create_task(queue.recv(scratch, 0))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            try:
                await task
            except asyncio.CancelledError:
                cancelled += 1
                scratch[:] = 0  # it is the caller's again
                if n % 3:
                    continue
                got = np.empty(length, "u1")
                await queue.recv(got, 0)
            else:
                got = scratch
            np.testing.assert_array_equal(got, bytes_of(length, n))
            n += 1
            if n == 60:
                return cancelled
        while n < 60:
            await queue.recv(got := np.empty(length, "u1"), 0)
            np.testing.assert_array_equal(got, bytes_of(length, n))
            n += 1
        return cancelled

    assert queue_world(2, main, stage_all=stage_all)[1] > 0


@both_paths
def test_a_cancelled_receive_leaves_its_message_to_the_one_that_waits(stage_all):
    async def main(queue, rank):
        if rank == 0:
            await queue.send(bytes_of(300_000, 1), 1)
            await queue.send(bytes_of(300_000, 2), 1)
            return
        got = [np.empty(300_000, "u1") for _ in range(3)]
        tasks = [asyncio.create_task(queue.recv(g, 0)) for g in got]
        while queue.statistics.num_received == 0:
            await asyncio.sleep(0)
        tasks[0].cancel()
        done = await asyncio.gather(*tasks[:2], return_exceptions=True)
        assert isinstance(done[0], asyncio.CancelledError)
        await tasks[2]
        np.testing.assert_array_equal(got[1], bytes_of(300_000, 1))
        np.testing.assert_array_equal(got[2], bytes_of(300_000, 2))

    queue_world(2, main, stage_all=stage_all)


@both_paths
def test_a_cancelled_send_is_sent_whole_or_not_at_all(stage_all):
    async def main(queue, rank):
        if rank == 1:
            seen = []
            while not seen or seen[-1] != -1:
                got = np.empty(100_000, "i4")
                await queue.recv(got, 0)
                assert (got == got[0]).all()
                seen.append(int(got[0]))
            assert seen[:-1] == sorted(set(seen[:-1]))
            return
        for n in range(40):
            arrays = [np.full(100_000, 2 * n + i, "i4") for i in range(2)]
            first, queued = (
                asyncio.create_task(queue.send(array, 1)) for array in arrays
            )
            for _ in range(n):
                await asyncio.sleep(0)
            queued.cancel()
            first.cancel()
            await asyncio.gather(first, queued, return_exceptions=True)
            for array in arrays:
                array[:] = np.arange(100_000)  # it is the caller's again
        await queue.send(np.full(100_000, -1, "i4"), 1)

    queue_world(2, main, stage_all=stage_all)


# ---- lengths ----------------------------------------------------------------


@both_paths
@pytest.mark.parametrize("length", [50, 5000, 300_000])
def test_a_message_that_is_too_long_is_named(length, stage_all):
    async def main(queue, rank):
        if rank == 0:
            await queue.send(bytes_of(length, 1), 1)
            await queue.send(b"next", 1)
            return
        text = rf"^the message of rank 0 has {length} bytes, the buffer 10$"
        with pytest.raises(ucp.UCXMsgTruncated, match=text):
            await queue.recv(bytearray(10), 0)
        got = bytearray(10)
        assert await queue.recv(got, 0) == 4
        assert got[:4] == b"next"

    queue_world(2, main, stage_all=stage_all)


# ---- the end ----------------------------------------------------------------


def test_close_ends_who_waits_and_finishes_what_is_under_way():
    async def main(comm):
        queue = await StagingQueue.create(comm, nbytes=1 << 16, stage_all=True)
        got = np.empty(3_000_000, "u1")
        if comm.rank == 0:
            task = asyncio.create_task(queue.send(bytes_of(3_000_000, 1), 1))
            await comm.barrier()
            await queue.close()
            await task
        else:
            waits = asyncio.create_task(queue.recv(bytearray(10), 0, tag=7))
            task = asyncio.create_task(queue.recv(got, 0))
            while queue.statistics.num_received == 0:
                await asyncio.sleep(0)
            await comm.barrier()
            await queue.close()
            await task
            np.testing.assert_array_equal(got, bytes_of(3_000_000, 1))
            with pytest.raises(ucp.UCXCloseError, match="staging queue is closed"):
                await waits
        assert queue.closed() and "closed" in repr(queue)
        await queue.close()
        with pytest.raises(ucp.UCXCloseError, match="staging queue is closed"):
            await queue.send(b"", 0)

    good_world(2, main)


def test_an_exception_ends_it_on_every_rank():
    async def main(comm):
        async with await StagingQueue.create(comm) as queue:
            if comm.rank == 0:
                raise ZeroDivisionError("here")
            await queue.recv(bytearray(10), 2)

    ends = world(3, main)
    assert isinstance(ends[0], ZeroDivisionError)
    for end in ends[1:]:
        assert isinstance(end, ucp.UCXRankFailed)
        assert end.rank == 0
        assert "ZeroDivisionError: here" in str(end)


@pytest.mark.parametrize("stage_all", [True, False])
def test_a_rank_that_is_killed_is_named(stage_all):
    program = f"""
    import ucp.shuffle

    async def main():
        comm = await connect()
        queue = await ucp.shuffle.StagingQueue.create(comm, stage_all={stage_all})
        me, data = comm.rank, np.zeros(20_000_000, "u1")
        if me == 1:
            asyncio.get_running_loop().call_later(
                0.05, os.kill, os.getpid(), signal.SIGKILL
            )
        try:
            while True:
                await asyncio.gather(
                    queue.send(data, (me + 1) % 3),
                    queue.recv(np.empty(20_000_000, "u1"), (me - 1) % 3),
                )
        except ucp.UCXRankFailed as exc:
            print("failed", exc.rank)

    asyncio.run(main())
    """
    with Ranks(3, program) as ranks:
        assert [ranks.end(rank) for rank in (0, 2)] == ["failed 1"] * 2


# ---- mistakes ---------------------------------------------------------------


def test_tags():
    assert pack_tag(0x20, 26, 2) == 0x00000020001A0002
    assert pack_tag(2**32 - 1, 65535, 65535) == 2**64 - 1
    for numbers, text in [
        ((2**32, 0, 0), "user tag 4294967296 does not fit into 32 bits"),
        ((-1, 0, 0), "user tag -1 does"),
        ((0, 65536, 0), "rank 65536 does not fit into 16 bits"),
        ((0, 0, 65536), "batch 65536 does"),
    ]:
        with pytest.raises(ValueError, match=text):
            pack_tag(*numbers)


def test_wrong_arguments():
    class OfDevice:
        @property
        def __cuda_array_interface__(self):
            return {
                "shape": (5000,),
                "typestr": "|u1",
                "data": (1 << 40, False),
                "version": 3,
            }

    async def main(queue, rank):
        for args, error, text in [
            ((bytearray(1), 1), ValueError, "there is no rank 1 of 1"),
            ((bytearray(1), -1), ValueError, "there is no rank -1 of 1"),
            ((bytearray(1), 0, -1), ValueError, "user tag -1"),
            ((bytearray(1), 0, 2**32), ValueError, "user tag 4294967296"),
            ((7, 0), TypeError, "takes host memory, not int"),
            ((OfDevice(), 0), TypeError, "not memory of a device .OfDevice.,"),
            ((np.zeros((9, 9))[:, 1], 0), BufferError, "contiguous"),
            ((np.zeros((9, 9), order="F"), 0), BufferError, "contiguous"),
        ]:
            with pytest.raises(error, match=text):
                await queue.send(*args)
            with pytest.raises(error, match=text):
                await queue.recv(*args)
        with pytest.raises(BufferError, match="read-only"):
            await queue.recv(b"read", 0)

    queue_world(1, main)


def test_wrong_settings():
    async def main(comm):
        for name in ("nbytes", "count", "depth"):
            # The other rank hears of it.
            with pytest.raises(ValueError, match=f"^rank 1: {name} is 0$"):
                await StagingQueue.create(comm, **({name: 0} if comm.rank else {}))
        text = "^rank 0 has a staging queue with nbytes=1000, rank 1 with 1001$"
        with pytest.raises(ValueError, match=text):
            await StagingQueue.create(comm, nbytes=1000 + comm.rank)
        async with await StagingQueue.create(comm) as queue:
            assert queue.nbytes == 1 << 20
            assert repr(queue) == (
                f"<ucp.shuffle.StagingQueue of 8 x 1048576 bytes, "
                f"rank {comm.rank} of 2>"
            )

    good_world(2, main)


# ---- memory -----------------------------------------------------------------


def test_messages_allocate_nothing_of_their_size():
    data = bytes_of(8 << 20, 1)
    got = np.empty_like(data)

    async def main(queue, rank):
        async def some(count):
            for _ in range(count):
                await asyncio.gather(queue.send(data, 0), queue.recv(got, 0))

        await some(2)
        tracemalloc.start()
        try:
            await some(3)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert queue_world(1, main, nbytes=1 << 20)[0] < 1 << 19
    np.testing.assert_array_equal(got, data)


def test_nothing_grows():
    async def main(comm):
        async def some(count):
            for n in range(count):
                async with await StagingQueue.create(
                    comm, nbytes=1000, count=2, stage_all=True
                ) as queue:
                    got = bytearray(5000)
                    task = asyncio.create_task(queue.recv(got, comm.rank))
                    for _ in range(n % 7):
                        await asyncio.sleep(0)
                    task.cancel()
                    await asyncio.gather(
                        task,
                        queue.send(bytes(5000), comm.rank),
                        queue.recv(got, comm.rank),
                        return_exceptions=True,
                    )
            gc.collect()

        await some(3)
        before = live_objects()
        await some(20)
        return before, live_objects()

    [(before, after)] = good_world(1, main)
    assert before == after
