# SPDX-License-Identifier: BSD-3-Clause
# tests: ext/alltoall ext/bcast ext/collective ext/create ext/gather ext/pieces
# tests: ext/reduce ext/send_recv ext/split ext/type ucp/agree
"""``ucp.Communicator``: ranks, messages between them, collective operations."""

import array
import asyncio
import contextlib
import errno
import gc
import os
import re
import signal
import subprocess
import sys
import weakref
from threading import Barrier, Thread

import numpy as np
import pytest
from objects import kept_objects
from paths import EXAMPLES, TESTS
from script import run_script
from worlds import Ranks, free_port, free_root, good_world, sync_world, world

import ucp
from ucp._commands.limits import _cpu_quota
from ucp.testing import live_objects, until

SIZES = (1, 2, 3, 4)

every_size = pytest.mark.parametrize("size", SIZES)
two_and_more = pytest.mark.parametrize("size", SIZES[1:])


def alone(**options):
    return ucp.Communicator.connect(free_root(), 0, 1, **options)


def items(rank, count, dtype="f8"):
    """What a rank contributes; whole numbers, so that sums are exact."""
    return (np.arange(count) * (rank + 1) + rank).astype(dtype)


# ---- what it is ----------------------------------------------------------------


@every_size
def test_ranks_have_numbers_and_a_name(size):
    async def main(comm):
        return comm.rank, comm.size, comm.name, comm.closed(), comm.failure

    assert good_world(size, main, name="a name") == [
        (rank, size, "a name", False, None) for rank in range(size)
    ]


async def test_repr_tells_rank_and_state():
    comm = await alone(name="x")
    assert repr(comm) == "<ucp.Communicator 'x', rank 0 of 1>"
    comm.close()
    assert repr(comm) == "<ucp.Communicator 'x', rank 0 of 1, closed>"
    assert comm.closed()


def test_explain_tells_the_path_to_each_rank():
    async def main(comm):
        for _ in range(20):  # inboxes are offered beside the operations
            await comm.barrier()
        return comm.explain()

    for rank, paths in enumerate(good_world(2, main)):
        assert [path.rank for path in paths] == [0, 1]
        assert paths[rank] == (rank, "self", "copies")
        assert paths[1 - rank].path == "shared memory"
        assert paths[1 - rank].reason.startswith("its inbox; from ")


def test_explain_tells_why_memory_is_not_shared():
    source = """
        ucp.init(options={"TLS": "tcp"})
        async def main():
            async with await connect() as comm:
                for _ in range(20):
                    await comm.barrier()
                path = comm.explain()[1 - comm.rank]
                print(f"{path.path}: {path.reason}")
        asyncio.run(main())
        """
    with Ranks(2, source) as ranks:
        ends = [ranks.end(rank) for rank in range(2)]
    assert ends == ["messages: its inbox cannot be mapped"] * 2


async def test_explain_of_a_closed_communicator_still_tells():
    comm = await alone()
    comm.close()
    assert comm.explain() == [(0, "self", "copies")]


# ---- messages ------------------------------------------------------------------


@every_size
@pytest.mark.parametrize("length", [0, 5, 100_000, 3_000_000])
def test_a_ring_of_messages(size, length):
    async def main(comm):
        right, left = (comm.rank + 1) % size, (comm.rank - 1) % size
        out, into = items(comm.rank, length, "u1"), np.zeros(length + 3, "u1")
        sending = comm.isend(out, right, tag=2**64 - 1)
        status = await comm.recv(into, left, 2**64 - 1)
        await sending
        assert status == (left, 2**64 - 1, length)
        assert (status.source, status.tag, status.nbytes) == status
        np.testing.assert_array_equal(into[:length], items(left, length, "u1"))
        assert not into[length:].any()

    good_world(size, main)


@two_and_more
def test_any_source_takes_messages_of_all_in_the_order_of_each(size):
    async def main(comm):
        count = 50
        if comm.rank:
            for number in range(count):
                await comm.send(b"%d" % number, 0, tag=number)
            return
        heard = {rank: [] for rank in range(1, size)}
        for _ in range(count * (size - 1)):
            buffer = bytearray(8)
            status = await comm.recv(buffer)
            assert int(buffer[: status.nbytes]) == status.tag
            heard[status.source].append(status.tag)
        assert all(tags == [*range(count)] for tags in heard.values())

    good_world(size, main)


def test_tags_are_matched():
    async def main(comm):
        if comm.rank == 0:
            await asyncio.gather(comm.send(b"one", 1, 1), comm.send(b"two", 1, 2))
            return
        buffer = bytearray(3)
        assert await comm.recv(buffer, tag=2) == (0, 2, 3)
        assert buffer == b"two"
        assert await comm.recv(buffer, 0, ucp.ANY) == (0, 1, 3)
        assert buffer == b"one"

    good_world(2, main)


def test_a_longer_message_is_an_error_that_tells_its_length():
    async def main(comm):
        if comm.rank == 0:
            await comm.send(b"12345", 1, 7)
            return
        with pytest.raises(
            ucp.UCXMsgTruncated,
            match=r"^recv: the message of rank 0 with tag 7 has 5 bytes, the buffer 2$",
        ) as caught:
            await comm.recv(bytearray(2))
        assert caught.value.nbytes == 5

    good_world(2, main)


def test_probing_takes_nothing_and_mprobe_takes_the_message():
    async def main(comm):
        if comm.rank == 0:
            assert comm.iprobe(tag=9) is None
            assert comm.improbe(tag=9) is None
            await comm.send(b"abc", 1, 3)
            return
        assert await comm.probe() == (0, 3, 3)
        assert comm.iprobe(0, 3) == (0, 3, 3)
        message = await comm.mprobe(0)
        assert comm.iprobe() is None
        assert (message.source, message.tag, message.nbytes) == (0, 3, 3)
        assert repr(message) == "<ucp.CommMessage of rank 0, tag 3, 3 bytes>"
        with pytest.raises(ValueError, match=r"^the message has 3 bytes, .* for 2$"):
            message.recv(bytearray(2))
        buffer = bytearray(3)
        assert await message.recv(buffer) == (0, 3, 3)
        assert buffer == b"abc"
        with pytest.raises(RuntimeError, match=r"^the message was received$"):
            message.recv(buffer)

    good_world(2, main)


async def test_a_message_that_is_dropped_returns_to_its_place():
    async with await alone() as comm:
        await asyncio.gather(*(comm.send(b"%d" % n, 0, n) for n in range(3)))
        message = comm.improbe()
        assert message.tag == 0
        assert comm.iprobe().tag == 1
        del message
        assert [(await comm.recv(bytearray(1))).tag for _ in range(3)] == [0, 1, 2]


async def test_a_message_outlives_its_communicator():
    comm = await alone()
    await comm.send(b"x", 0)
    message = comm.improbe()
    comm.close()
    with pytest.raises(ucp.UCXCloseError, match=r"^the communicator is closed$"):
        await message.recv(bytearray(1))


async def test_a_cancelled_receive_takes_no_message():
    async with await alone() as comm:
        task = asyncio.ensure_future(comm.recv(bytearray(5)))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await comm.send(b"hello", 0)
        buffer = bytearray(5)
        await comm.recv(buffer)
        assert buffer == b"hello"


@pytest.mark.parametrize("size", [8, 20_000, 4 << 20])
@pytest.mark.parametrize("by", ["recv", "mprobe"])
def test_a_receive_cancelled_when_done_gives_its_message_back(size, by):
    async def main(comm):
        if comm.rank == 0:
            sends = [comm.isend(text * size, 1, 5) for text in (b"a", b"b")]
            await asyncio.gather(*sends, comm.send(b"c", 1, 6))
            return
        buffer = bytearray(size)
        if by == "recv":
            request = comm.recv(buffer, 0, 5)
        else:
            request = (await comm.mprobe(0, 5)).recv(buffer)
        while not request.done():
            ucp.progress()
        task = asyncio.get_running_loop().create_task(request)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        for text in (b"a", b"b"):
            assert await comm.recv(buffer) == (0, 5, size)
            assert buffer == text * size
        assert (await comm.recv(buffer)).tag == 6

    good_world(2, main)


LENGTHS = [10, 2_500, 20_000, 500_000]  # items of 8 bytes
POISON = -7.0


async def turns(number):
    for _ in range(number):
        await asyncio.sleep(0)


@pytest.mark.parametrize("length", LENGTHS)
def test_the_buffer_of_a_cancelled_receive_is_the_programs(length):
    async def main(comm):
        for number in range(12):
            if comm.rank == 0:
                await comm.send(np.full(length, float(number)), 1)
                continue
            buffer, other = np.zeros(length), np.zeros(length)
            request = comm.recv(buffer)
            await turns(number % 6)
            if request.cancel():
                with pytest.raises(asyncio.CancelledError):
                    await request
                buffer[:] = POISON
                await comm.recv(other)
                assert (buffer == POISON).all()
            else:
                await request
                other = buffer
            assert (other == number).all()
        await comm.barrier()

    good_world(2, main)


@pytest.mark.parametrize("length", LENGTHS)
def test_a_cancelled_send_is_received_whole_or_never(length):
    async def main(comm):
        buffer = np.zeros(length)
        if comm.rank == 0:
            for number in range(18):
                buffer[:] = number
                request = comm.send(buffer, 1, 1)
                await turns(number % 6)
                request.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await request
                buffer[:] = POISON
            await comm.send(b"", 1, 2)
            await comm.barrier()
            return
        await comm.probe(0, 2)
        last = -1
        while comm.iprobe(0, 1) is not None:
            await comm.recv(buffer, 0, 1)
            assert buffer[0] > last
            assert (buffer == buffer[0]).all()
            last = buffer[0]
        await comm.recv(bytearray(), 0, 2)
        await comm.barrier()

    good_world(2, main)


def test_a_message_in_hand_that_is_withdrawn_is_an_error():
    async def main(comm):
        if comm.rank == 0:
            request = comm.send(bytes(4 << 20), 1)
            await comm.recv(bytearray(1), 1)
            assert request.cancel()
            await comm.send(b"x", 1, 2)
            await comm.barrier()
            return
        message = await comm.mprobe(0, 0)
        await comm.send(b"x", 0)
        await comm.recv(bytearray(1), 0, 2)
        with pytest.raises(ucp.UCXCanceled, match="the sender has cancelled"):
            await message.recv(bytearray(4 << 20))
        assert comm.iprobe() is None
        await comm.barrier()

    good_world(2, main)


async def test_a_time_limit_ends_a_receive_and_nothing_else():
    async with await alone() as comm:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await comm.recv(bytearray(1))
        await comm.send(b"x", 0)
        assert (await comm.recv(bytearray(1))).nbytes == 1


async def test_wrong_arguments_of_messages_are_named():
    async with await alone() as comm:
        ranks = r", but the communicator has the ranks 0 to 0$"
        with pytest.raises(ValueError, match=r"^dest is 1" + ranks):
            comm.send(b"", 1)
        with pytest.raises(ValueError, match=r"^source is -2" + ranks):
            comm.recv(bytearray(1), -2)
        with pytest.raises(TypeError):
            comm.send(b"", "0")
        with pytest.raises(OverflowError, match=r"^tag must be 0 to 2\*\*64-1"):
            comm.send(b"", 0, -1)
        with pytest.raises(ValueError, match=r"^cannot receive into a read-only"):
            comm.recv(b"abc")
        with pytest.raises(ValueError, match=r"^expected a contiguous buffer"):
            comm.send(np.zeros((4, 4))[:, 1], 0)


# ---- collective operations -----------------------------------------------------


@every_size
def test_bcast(size):
    async def main(comm):
        for root in range(size):
            for count in (0, 1, 70_000):
                buffer = items(comm.rank, count)
                await comm.bcast(buffer, root)
                np.testing.assert_array_equal(buffer, items(root, count))
        data = b"root" if comm.rank == 0 else bytearray(4)
        await comm.bcast(data)  # the root's may be read-only
        assert data == b"root"

    good_world(size, main)


def uneven(size):
    return [(3 * rank) % 5 * 1000 for rank in range(size)]


@every_size
@pytest.mark.parametrize("in_place", [False, True])
def test_gather_and_scatter_of_equal_parts(size, in_place):
    async def main(comm):
        every = np.concatenate([items(rank, 10) for rank in range(size)])
        for root in range(size):
            is_root = comm.rank == root
            recv = np.zeros_like(every) if is_root else None
            send = items(comm.rank, 10)
            if is_root and in_place:
                recv[10 * root : 10 * root + 10] = send
                send = ucp.IN_PLACE
            await comm.gather(send, recv, root)
            if is_root:
                np.testing.assert_array_equal(recv, every)
            part = ucp.IN_PLACE if is_root and in_place else np.zeros(10)
            await comm.scatter(recv, part, root)
            if part is not ucp.IN_PLACE:
                np.testing.assert_array_equal(part, items(comm.rank, 10))

    good_world(size, main)


@every_size
def test_gather_and_scatter_of_uneven_parts_with_gaps(size):
    counts = uneven(size)
    displs = [sum(counts[:rank]) + 2 * rank for rank in range(size)]

    async def main(comm):
        every = np.full(sum(counts) + 2 * size, -1.0)
        for rank in range(size):
            every[displs[rank] :][: counts[rank]] = items(rank, counts[rank])
        root = size - 1
        recv = np.full_like(every, -1) if comm.rank == root else None
        part = items(comm.rank, counts[comm.rank])
        await comm.gather(part, recv, root, counts=counts, displs=displs)
        if recv is not None:
            np.testing.assert_array_equal(recv, every)
        back = np.zeros_like(part)
        await comm.scatter(recv, back, root, counts=counts, displs=displs)
        np.testing.assert_array_equal(back, part)

    good_world(size, main)


@every_size
@pytest.mark.parametrize("in_place", [False, True])
def test_allgather(size, in_place):
    async def main(comm):
        for count in (0, 1, 50_000):
            every = [items(rank, count) for rank in range(size)]
            recv = np.zeros(count * size)
            send = every[comm.rank]
            if in_place:
                recv[comm.rank * count :][:count] = send
                send = ucp.IN_PLACE
            await comm.allgather(send, recv)
            np.testing.assert_array_equal(recv, np.concatenate(every))
        counts = uneven(size)
        recv = np.zeros(sum(counts))
        await comm.allgatherv(items(comm.rank, counts[comm.rank]), recv, counts)
        every = [items(rank, counts[rank]) for rank in range(size)]
        np.testing.assert_array_equal(recv, np.concatenate(every))

    good_world(size, main)


@every_size
def test_alltoall_of_equal_and_of_uneven_parts(size):
    async def main(comm):
        table = np.arange(size * size * 3).reshape(size, size, 3)
        recv = np.zeros((size, 3), table.dtype)
        await comm.alltoall(table[comm.rank], recv)
        np.testing.assert_array_equal(recv, table[:, comm.rank])

        count = lambda source, dest: (source * 5 + dest * 3) % 7 * 4000  # noqa: E731
        out = [count(comm.rank, rank) for rank in range(size)]
        into = [count(rank, comm.rank) for rank in range(size)]
        send = np.concatenate([items(comm.rank * 10 + r, out[r]) for r in range(size)])
        recv = np.zeros(sum(into))
        await comm.alltoallv(send, out, recv, into)
        expected = [items(r * 10 + comm.rank, into[r]) for r in range(size)]
        np.testing.assert_array_equal(recv, np.concatenate(expected))

    good_world(size, main)


@every_size
def test_alltoall_of_buffers_whose_lengths_only_the_sender_knows(size):
    async def main(comm):
        def part(source, dest):
            return items(source, (source * 5 + dest * 3) % 4 * 30_000, "u1")

        got = await comm.alltoall_buffers([part(comm.rank, r) for r in range(size)])
        assert all(isinstance(view, memoryview) and not view.readonly for view in got)
        for rank, view in enumerate(got):
            np.testing.assert_array_equal(np.asarray(view), part(rank, comm.rank))

    good_world(size, main)


NUMPY = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}
DTYPES = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8", "c8", "c16", "?"]


@every_size
@pytest.mark.parametrize("op", NUMPY)
def test_reduce_of_every_dtype(size, op):
    async def main(comm):
        for dtype in DTYPES:
            if dtype[0] == "c" and op in ("min", "max"):
                continue
            every = [items(rank, 33, dtype) for rank in range(size)]
            expected = every[0]
            for other in every[1:]:
                expected = NUMPY[op](expected, other)
            own, recv = every[comm.rank], np.zeros(33, dtype)
            await comm.allreduce(own, recv, op)
            np.testing.assert_array_equal(recv, expected, strict=True)
            root = size // 2
            recv[:] = 0
            await comm.reduce(own, recv if comm.rank == root else None, op, root)
            if comm.rank == root:
                np.testing.assert_array_equal(recv, expected, strict=True)

    good_world(size, main)


@every_size
@pytest.mark.parametrize("count", [0, 1, 100_000])
def test_reduce_in_place(size, count):
    expected = sum(items(rank, count) for rank in range(size))

    async def main(comm):
        one, two, three = (items(comm.rank, count) for _ in range(3))
        await asyncio.gather(
            comm.allreduce(one),
            comm.allreduce(ucp.IN_PLACE, two),
            comm.allreduce(three, "max"),
        )
        np.testing.assert_array_equal(one, expected)
        np.testing.assert_array_equal(two, expected)
        np.testing.assert_array_equal(three, items(size - 1, count))
        four = items(comm.rank, count)
        if comm.rank == 0:
            await comm.reduce(ucp.IN_PLACE, four)
            np.testing.assert_array_equal(four, expected)
        else:
            await comm.reduce(four)

    good_world(size, main)


async def test_arrays_of_other_packages_are_reduced():
    async with await alone() as comm:
        numbers = array.array("l", [1, 2, 3])
        into = array.array("q", bytes(24))
        await comm.allreduce(numbers, into)
        assert into.tolist() == [1, 2, 3]
        memory = ucp.Memory.allocate(16)
        await comm.allreduce(memory)  # bytes are numbers of 8 bits
        memory.close()


@every_size
def test_memories_are_sent_and_received_into(size):
    async def main(comm):
        with ucp.Memory.allocate(8 * size) as send, ucp.Memory.allocate(8 * size) as to:
            np.asarray(send)[:] = comm.rank
            await comm.alltoall(send, to)
            expected = np.repeat(np.arange(size, dtype="u1"), 8)
            np.testing.assert_array_equal(np.asarray(to), expected)

    good_world(size, main)


def test_several_are_under_way_and_the_calls_decide_their_order():
    async def main(comm):
        arrays = [np.full(5, comm.rank + number, "i8") for number in range(20)]
        requests = []
        for number, one in enumerate(arrays):
            requests += [comm.allreduce(one), comm.barrier()]
            requests.append(comm.alltoall_buffers([b"x" * number] * comm.size))
        for request in reversed(requests):
            await request
        return [int(one[0]) for one in arrays]

    assert good_world(3, main) == [[3 * number + 3 for number in range(20)]] * 3


def test_two_communicators_take_turns():
    async def main(comm):
        other = await comm.split(0, -comm.rank)
        assert (other.rank, other.size) == (comm.size - 1 - comm.rank, comm.size)
        for number in range(10):
            one, two = np.array([number]), np.array([number * 2])
            first = comm.allreduce(one)
            await other.allreduce(two)
            await first
            assert (one[0], two[0]) == (number * comm.size, number * 2 * comm.size)
            sending = comm.send(b"a", other.size - 1 - other.rank, 1)
            assert other.iprobe() is None
            await asyncio.gather(sending, comm.recv(bytearray(1)))
        other.close()

    good_world(3, main)


def test_split_by_color():
    async def main(comm):
        part = await comm.split(comm.rank % 2 if comm.rank != 3 else None)
        if part is None:
            return None
        total = np.array([comm.rank])
        await part.allreduce(total)
        part.close()
        return part.rank, part.size, int(total[0])

    assert good_world(4, main) == [(0, 2, 2), (0, 1, 1), (1, 2, 2), None]


async def test_wrong_arguments_of_collective_operations_are_named():
    async with await alone() as comm:
        eight, four = np.zeros(8), np.zeros(4, "f4")
        with pytest.raises(ValueError, match=r"^root is 1, but the communicator has"):
            comm.bcast(eight, 1)
        with pytest.raises(ValueError, match=r"^cannot receive into a read-only"):
            comm.allgather(eight, bytes(64))
        with pytest.raises(ValueError, match=r"overlaps the send buffer .*IN_PLACE"):
            comm.allgather(eight, eight)
        with pytest.raises(
            ValueError, match=r"^the send buffer: 64 bytes, expected 16$"
        ):
            comm.allgather(eight, four)
        with pytest.raises(ValueError, match=r"^recv counts has 2 items for 1 ranks$"):
            comm.allgatherv(eight, np.zeros(8), [1, 2])
        with pytest.raises(
            ValueError,
            match=r"^the piece of rank 0, 8 items at 1, does not lie in the recv "
            r"buffer of 8 items$",
        ):
            comm.allgatherv(eight, np.zeros(8), [8], [1])
        with pytest.raises(ValueError, match=r"^recv counts\[0\] is -1$"):
            comm.allgatherv(eight, np.zeros(8), [-1])
        with pytest.raises(TypeError, match=r"^send counts must be a sequence of ints"):
            comm.alltoallv(eight, 8, np.zeros(8), [8])
        with pytest.raises(TypeError, match=r"^gather\(\) on the root needs .* recv$"):
            comm.gather(eight)
        part = bytearray(1)
        before = sys.getrefcount(part)
        with pytest.raises(ValueError, match=r"^2 buffers for 1 ranks$"):
            comm.alltoall_buffers([part, part])
        assert sys.getrefcount(part) == before
        with pytest.raises(ValueError, match=r"^a color is 0 or more, not -1$"):
            comm.split(-1)
        await comm.barrier()  # nothing of it has begun


async def test_wrong_reductions_are_named():
    async with await alone() as comm:
        eight = np.zeros(8)
        with pytest.raises(ValueError, match=r"^the operation is 'sum', .* not 'mean'"):
            comm.allreduce(eight, "mean")
        with pytest.raises(ValueError, match=r"items of send are float64, .* float32$"):
            comm.allreduce(eight, np.zeros(8, "f4"))
        with pytest.raises(ValueError, match=r"^the recv buffer: 32 bytes"):
            comm.allreduce(eight, np.zeros(4))
        with pytest.raises(ValueError, match=r"^items of the format 'g' \(16 bytes\)"):
            comm.allreduce(np.zeros(8, "g"))
        with pytest.raises(ValueError, match=r"^items of the format '>d'"):
            comm.allreduce(np.zeros(8, ">f8"))
        with pytest.raises(ValueError, match=r"^'min' is for .*, not for complex64$"):
            comm.allreduce(np.zeros(8, "c8"), "min")
        with pytest.raises(TypeError, match=r"^expected an array of numbers"):
            comm.allreduce([1, 2])
        with pytest.raises(
            ValueError, match=r"^cannot receive into a read-only buffer"
        ):
            comm.allreduce(np.broadcast_to(np.zeros(1), (4,)))


# ---- failures ------------------------------------------------------------------


def failures(ends):
    assert all(isinstance(end, ucp.UCXRankFailed) for end in ends), ends
    return ends


def test_different_operations_are_told_apart_by_name():
    async def main(comm):
        await (comm.barrier() if comm.rank else comm.bcast(bytearray(1), 1))

    ends = failures(world(2, main))
    for end in ends:
        assert "has called" in str(end)
        assert "barrier" in str(end) and "bcast" in str(end)
    assert [end.op for end in ends] == ["bcast", "barrier"]
    assert [end.op_id for end in ends] == [1, 1]


def test_different_lengths_are_told_apart():
    async def main(comm):
        await comm.allreduce(np.zeros(2 + comm.rank))

    for end in failures(world(2, main)):
        assert "gives 24 bytes" in str(end) or "gives 16 bytes" in str(end)


def test_cancelling_a_collective_revokes():
    async def main(comm):
        if comm.rank == 1:
            request = comm.barrier()
            assert request.cancel()
            with pytest.raises(asyncio.CancelledError):
                await request
        with pytest.raises(ucp.UCXRankFailed) as caught:
            while True:  # rank 1 has been in the first barrier
                await comm.barrier()
        exc = caught.value
        assert exc.rank == 1
        if comm.rank != 2:  # which may connect to rank 1 before it is told
            assert "cancelled by rank 1" in str(exc)
            assert isinstance(exc.cause, ucp.UCXCanceled)
        assert isinstance(comm.failure, ucp.UCXRankFailed)
        for late in (comm.send(b"", 0), comm.recv(bytearray(1)), comm.probe()):
            with pytest.raises(ucp.UCXRankFailed) as again:
                await late
            assert str(again.value) == str(exc)
        with pytest.raises(ucp.UCXRankFailed):
            comm.iprobe()

    good_world(3, main)


LENT = """
async def main():
    loans = sys.argv[1:] == ["loans"]
    ucp.init(config=ucp.Config(cma_max=1 << 40 if loans else 0))
    comm = await connect()
    await comm.barrier()
    for number in range(24):
        part = await comm.split(0)
        length = (10, 2_500, 20_000, 500_000)[number % 4]
        own, every = np.full(length, comm.rank + 1.0), np.zeros(2 * length)
        request = part.allgather(own, every)
        try:
            if comm.rank == number % 2:
                for _ in range(number // 4):
                    await asyncio.sleep(0)
                request.cancel()
            await request
            assert (every == np.repeat([1.0, 2.0], length)).all()
        except (asyncio.CancelledError, ucp.UCXRankFailed):
            pass
        own[:] = every[:] = -7
        await comm.barrier()
        await comm.barrier()
        assert (every == -7).all()
        part.close()
    print("good", flush=True)
    comm.close()
asyncio.run(main())
"""


@pytest.mark.parametrize("tls", ["all", "tcp,self"])
@pytest.mark.parametrize("loans", ["loans", "none"])
def test_buffers_of_a_cancelled_collective_are_the_programs(monkeypatch, tls, loans):
    monkeypatch.setenv("UCX_TLS", tls)
    source = LENT.replace("sys.argv[1:]", repr([loans]))
    with Ranks(2, source) as ranks:
        assert [ranks.end(rank) for rank in range(2)] == ["good"] * 2


def test_a_time_limit_on_a_collective_revokes():
    async def main(comm):
        if comm.rank == 0:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await comm.barrier()
        with pytest.raises(ucp.UCXRankFailed) as caught:
            await comm.recv(bytearray(1), 0)
        assert caught.value.rank == 0

    good_world(2, main)


def test_an_exception_in_the_block_aborts_and_is_told():
    async def main(comm):
        if comm.rank == 1:
            raise ZeroDivisionError("of rank 1")
        await comm.barrier()

    ends = world(3, main)
    assert isinstance(ends[1], ZeroDivisionError)
    root, other = failures([ends[0], ends[2]])
    assert "aborted the communicator: ZeroDivisionError: of rank 1" in str(root)
    # The other may connect to rank 1, which has gone, before the root has told it.
    assert root.rank == other.rank == 1


def test_dropping_the_last_reference_leaves():
    async def main(comm):
        other = await comm.split(0)
        await other.barrier()
        if comm.rank == 1:
            gone = weakref.ref(other)
            del other
            await until(lambda: (gc.collect(), gone() is None)[1])
        else:
            with pytest.raises(
                ucp.UCXRankFailed, match=r"^rank 1 has left the communicator$"
            ) as caught:
                await other.barrier()
            assert caught.value.rank == 1
        await comm.barrier()

    good_world(2, main)


def test_a_rank_that_has_left_is_named_by_who_needs_it():
    async def main(comm):
        if comm.rank == 1:
            await comm.send(b"last", 0)
            return
        buffer = bytearray(4)
        await comm.recv(buffer, 1)
        assert buffer == b"last"
        with pytest.raises(
            ucp.UCXRankFailed, match=r"^rank 1 has left the communicator$"
        ) as caught:
            await comm.recv(buffer, 1)
        assert (caught.value.rank, caught.value.op_id) == (1, None)
        assert caught.value.op == "recv"
        with pytest.raises(ucp.UCXRankFailed, match="rank 1 has left"):
            await comm.barrier()

    good_world(2, main)


def test_a_receive_of_any_rank_ends_when_all_others_have_left():
    async def main(comm):
        if comm.rank:
            await comm.send(b"last", 0)
            return
        waiting = [comm.recv(bytearray(4), tag=1), comm.probe(tag=1)]
        for _ in range(2):
            await comm.recv(bytearray(4))
        waiting.append(comm.mprobe())
        for each in waiting:
            with pytest.raises(
                ucp.UCXRankFailed, match=r"^all other ranks have left the communicator$"
            ) as caught:
                await each
            assert caught.value.rank is None
        assert comm.iprobe() is None
        assert comm.failure is None

    good_world(3, main)


async def test_a_receive_of_any_rank_waits_for_ones_own_message_if_one_is_alone():
    comm = await alone()
    receiving = comm.recv(bytearray(1))
    await asyncio.sleep(0)
    assert not receiving.done()
    await comm.send(b"x", 0)
    assert (await receiving).source == 0
    comm.close()


async def test_a_closed_communicator_refuses():
    comm = await alone()
    waiting = comm.recv(bytearray(1))
    comm.close()
    comm.close()
    with pytest.raises(ucp.UCXCanceled):
        await waiting
    with pytest.raises(ucp.UCXCloseError, match=r"^the communicator is closed$"):
        await comm.barrier()
    comm.abort("nothing happens")


def test_the_end_of_the_loop_ends_it():
    async def main():
        comm = await alone()
        await comm.send(b"x", 0)
        return comm, comm.improbe(), comm.recv(bytearray(1))

    comm, message, request = asyncio.run(main())
    assert comm.closed() and request.done()
    with pytest.raises(ucp.UCXCloseError, match=r"^the communicator is closed$"):
        comm.iprobe()
    comm.abort()
    comm.close()
    del message, comm, request
    gc.collect()


KILLED = """
async def main():
    comm = await connect()
    print("up", flush=True)
    try:
        for _ in range(10**9):
            await comm.allreduce(np.ones(1000))
    except ucp.UCXRankFailed as exc:
        print(exc.rank, isinstance(exc.cause, ucp.UCXBaseException), flush=True)
    comm.close()
asyncio.run(main())
"""


@pytest.mark.parametrize("killed", [0, 2])
def test_a_killed_rank_is_named_on_every_other(killed):
    with Ranks(4, KILLED) as ranks:
        assert [ranks.line(rank) for rank in range(4)] == ["up"] * 4
        ranks.processes[killed].send_signal(signal.SIGKILL)
        others = [rank for rank in range(4) if rank != killed]
        assert [ranks.end(rank) for rank in others] == [f"{killed} True"] * 3


CIRCLE = """
async def main():
    comm = await connect()
    right, left = (comm.rank + 1) % 3, (comm.rank - 1) % 3
    data, got = np.zeros(20_000_000, "u1"), np.empty(20_000_000, "u1")
    try:
        for n in range(10**9):
            await asyncio.gather(comm.send(data, right), comm.recv(got, left))
            if n == 0:
                print("up", flush=True)
    except ucp.UCXRankFailed as exc:
        print(exc.rank, flush=True)
    comm.close()
asyncio.run(main())
"""


@pytest.mark.parametrize("tls", ["all", "tcp,self"])
def test_a_rank_that_is_killed_in_the_middle_of_a_message_is_named(monkeypatch, tls):
    monkeypatch.setenv("UCX_TLS", tls)
    with Ranks(3, CIRCLE) as ranks:
        assert [ranks.line(rank) for rank in range(3)] == ["up"] * 3
        ranks.processes[1].send_signal(signal.SIGKILL)
        assert [ranks.end(rank) for rank in (0, 2)] == ["1"] * 2


# ---- how ranks meet ------------------------------------------------------------


async def test_a_rank_that_does_not_come_is_named():
    with pytest.raises(ucp.UCXTimeout, match=r"1 of 3 ranks have come .* not: .*1.*2"):
        await ucp.Communicator.connect(free_root(), 0, 3, timeout=0.05)


async def test_a_root_that_does_not_come_is_named():
    with pytest.raises(ucp.UCXTimeout, match=r"the root, rank 0, has not answered"):
        await ucp.Communicator.connect(free_root(), 1, 2, timeout=0.05)


async def test_meeting_can_be_cancelled():
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await ucp.Communicator.connect(free_root(), 1, 2)


async def test_an_address_in_use_is_an_error():
    async with ucp.create_listener(host="127.0.0.1") as listener:
        address = f"127.0.0.1:{listener.port}"
        with pytest.raises(
            ucp.UCXBusy, match=rf"^listen on {address}: Address already in use$"
        ) as caught:
            await ucp.Communicator.connect(f"tcp://{address}", 0, 2, timeout=5)
        assert caught.value.errno == errno.EADDRINUSE


def test_other_sizes_and_names_are_refused():
    root = free_root()

    async def one(rank, size, **options):
        await ucp.Communicator.connect(root, rank, size, timeout=20, **options)

    async def both():
        waiting = asyncio.ensure_future(one(0, 2))
        thread = asyncio.to_thread(asyncio.run, one(1, 3))
        with pytest.raises((ucp.UCXRejected, ucp.UCXRankFailed, ucp.UCXError)):
            await thread
        waiting.cancel()
        await asyncio.wait([waiting])

    asyncio.run(both())


async def test_wrong_arguments_of_connect_are_named():
    connect = ucp.Communicator.connect
    for root in ("127.0.0.1", "tcp://127.0.0.1", "tcp://:x"):
        with pytest.raises(ucp.UCXConfigError, match=r"^the root is not host:port"):
            await connect(root, 0, 2)
    with pytest.raises(ValueError, match=r"^size is 0, not 1 to 65536$"):
        await connect(free_root(), 0, 0)
    with pytest.raises(ValueError, match=r"^rank is 2, but size is 2$"):
        await connect(free_root(), 2, 2)
    with pytest.raises(ValueError, match=r"^rank is -1; None is any$"):
        await connect(free_root(), -1, 2)
    with pytest.raises(ValueError, match=r"^a name has at most 63 bytes"):
        await connect(free_root(), 0, 1, name="x" * 64)
    with pytest.raises(ValueError, match=r"^a timeout is a number of seconds >= 0"):
        await connect(free_root(), 0, 2, timeout=-1)
    with pytest.raises(ucp.UCXConfigError, match=r"needs the rank of each$"):
        await connect("file:///nowhere", None, 2)
    with pytest.raises(ucp.UCXConfigError, match=r"^the root is not file:///path"):
        await connect("file://host/path", 0, 2)


async def test_a_root_that_is_no_file_is_named(tmp_path):
    connect = ucp.Communicator.connect
    for rank in range(2):
        with pytest.raises(ucp.UCXConfigError, match=r"^the root .* is a directory; "):
            await connect(f"file://{tmp_path}", rank, 2, 5)
    file = tmp_path / "file"
    file.write_bytes(b"")
    with pytest.raises(ucp.UCXConfigError, match=r"file is no directory$"):
        await connect(f"file://{file}/root", 0, 2, 5)


async def test_progress_is_by_a_thread_or_not():
    for call in (
        ucp.Communicator.connect(free_root(), 0, 2, progress="threads"),
        ucp.Communicator.from_allgather(0, 2, None, progress=True),
    ):
        with pytest.raises(ValueError, match=r"it is 'thread' or None$"):
            await call


COMPUTES = """
async def main():
    comm = await ucp.Communicator.connect(
        os.environ["ROOT_OF_TEST"], int(os.environ["RANK_OF_TEST"]), 2, 30,
        heartbeat=HEARTBEAT, progress=PROGRESS,
    )
    async with comm:
        array = np.ones(4)
        await comm.allreduce(array)
        if comm.rank == 1:
            end = time.monotonic() + 1
            while time.monotonic() < end:  # with the GIL, and no await
                pass
        await comm.allreduce(array)
        print(array.tolist())
import time
asyncio.run(main())
"""


@pytest.mark.parametrize("progress", [None, "thread"])
def test_a_rank_that_computes_is_alive(progress):
    source = COMPUTES.replace("HEARTBEAT", "0.2").replace("PROGRESS", repr(progress))
    with Ranks(2, source) as ranks:
        assert [ranks.end(rank) for rank in range(2)] == ["[4.0, 4.0, 4.0, 4.0]"] * 2


def test_the_thread_ends_with_the_communicator():
    async def main(comm):
        root = free_root() if comm.rank == 0 else ""
        box = bytearray(64)
        box[: len(root)] = root.encode()
        await comm.bcast(box)
        root = box.rstrip(b"\0").decode()
        for _ in range(2):
            other = await ucp.Communicator.connect(
                root, comm.rank, 2, 20, progress="thread"
            )
            assert comm.worker._serves_in_thread()
            await other.barrier()
            other.close()
            other.close()
            assert not comm.worker._serves_in_thread()
            await comm.barrier()
        other = await ucp.Communicator.connect(
            root, comm.rank, 2, 20, progress="thread"
        )
        await other.barrier()
        del other  # it is aborted
        await until(lambda: not comm.worker._serves_in_thread())

    good_world(2, main)


ANY_RANK = """
async def main():
    own = 0 if os.environ["RANK_OF_TEST"] == "0" else -1
    comm = await ucp.Communicator.connect(
        os.environ["ROOT_OF_TEST"], 0 if own == 0 else None, 3, 30
    )
    total = np.zeros(3, "i8")
    await comm.allgather(np.array([comm.rank]), total)
    print(total.tolist())
    comm.close()
asyncio.run(main())
"""


def test_the_root_assigns_ranks():
    with Ranks(3, ANY_RANK) as ranks:
        assert [ranks.end(rank) for rank in range(3)] == ["[0, 1, 2]"] * 3


MEET = """
async def main():
    async with await connect() as comm:
        await comm.barrier()
        print(comm.rank, comm.size)
asyncio.run(main())
"""


def test_ranks_meet_by_a_file_that_is_gone_afterwards(tmp_path):
    path = tmp_path / "made" / "root"
    with Ranks(3, MEET, root=path.as_uri()) as ranks:
        assert [ranks.end(rank) for rank in range(3)] == ["0 3", "1 3", "2 3"]
    assert [*path.parent.iterdir()] == []


def test_the_file_of_a_root_that_was_killed_is_replaced(tmp_path):
    path = tmp_path / "root"

    async def leave_behind():
        path.write_bytes(bytes(ucp.get_worker_address()))

    asyncio.run(leave_behind())
    with Ranks(2, MEET, root=path.as_uri()) as ranks:
        assert [ranks.end(rank) for rank in range(2)] == ["0 2", "1 2"]


async def test_a_file_that_nobody_writes_ends_with_the_time(tmp_path):
    path = tmp_path / "root"
    with pytest.raises(ucp.UCXTimeout, match=r"rank 0, has not come .* no file"):
        await ucp.Communicator.connect(path.as_uri(), 1, 2, timeout=0)
    path.write_bytes(b"nonsense")
    with pytest.raises(ucp.UCXConfigError, match=r"not a worker address"):
        await ucp.Communicator.connect(path.as_uri(), 1, 2, timeout=1)


def test_ranks_meet_by_an_allgather_of_other_means():
    parts = [b"", b"", b""]
    barrier = Barrier(3)
    totals = []

    async def main(rank):
        def allgather(own):
            parts[rank] = own
            barrier.wait(20)
            return parts

        async def awaitable(own):
            return await asyncio.to_thread(allgather, own)

        how = awaitable if rank == 2 else allgather
        async with await ucp.Communicator.from_allgather(rank, 3, how, 20) as comm:
            total = np.array([1])
            await comm.allreduce(total)
            totals.append(int(total[0]))

    threads = [Thread(target=lambda r=r: asyncio.run(main(r))) for r in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert totals == [3, 3, 3]


async def test_an_allgather_of_another_size_is_an_error():
    with pytest.raises(ValueError, match=r"^allgather gave 1 parts for 2 ranks$"):
        await ucp.Communicator.from_allgather(0, 2, lambda own: [own])


async def test_the_address_of_the_root_may_be_given():
    async def other(address):
        async with await ucp.Communicator.connect(address, 1, 2, 20) as comm:
            await comm.send(b"x", 0)

    address = ucp.get_worker_address()
    thread = asyncio.ensure_future(asyncio.to_thread(asyncio.run, other(address)))
    async with await ucp.Communicator.connect(address, 0, 2, 20) as comm:
        assert (await comm.recv(bytearray(1))).source == 1
    await thread


LAUNCHERS = {
    "ucp": lambda r, port: {
        "UCP_RANK": r,
        "UCP_SIZE": 2,
        "UCP_ROOT": f"127.0.0.1:{port}",
    },
    "torchrun": lambda r, port: {
        "RANK": r,
        "WORLD_SIZE": 2,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
    },
    "slurm": lambda r, port: {
        "SLURM_PROCID": r,
        "SLURM_STEP_NUM_TASKS": 2,
        "SLURM_STEP_ID": 0,
        "SLURM_JOB_ID": port,
        "SLURM_STEP_NODELIST": "localhost",
    },
    "openmpi": lambda r, port: {
        "OMPI_COMM_WORLD_RANK": r,
        "OMPI_COMM_WORLD_SIZE": 2,
        "OMPI_COMM_WORLD_LOCAL_SIZE": 2,
        "PMIX_NAMESPACE": f"test@{port}",
    },
}


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_the_variables_of_each_launcher_are_enough(launcher, tmp_path, monkeypatch):
    port = free_port()
    for name in ("UCP_RANK", "UCP_SIZE", "UCP_ROOT", "RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    source = f"""
    sys.path[:0] = [{str(TESTS)!r}, {str(TESTS / "communicator")!r}]
    from test_communicator import LAUNCHERS
    rank = int(os.environ["RANK_OF_TEST"])
    for name, value in LAUNCHERS[{launcher!r}](rank, {port}).items():
        os.environ[name] = str(value)

    async def main():
        async with await ucp.Communicator.from_env(timeout=30) as comm:
            await comm.barrier()
            print(comm.rank, comm.size)
    asyncio.run(main())
    """
    with Ranks(2, source) as ranks:
        assert [ranks.end(rank) for rank in range(2)] == ["0 2", "1 2"]


async def test_an_environment_without_a_rank_is_an_error(monkeypatch):
    for name in ("UCP_RANK", "UCP_SIZE", "RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ucp.UCXConfigError, match=r"^no rank in the environment"):
        await ucp.Communicator.from_env()


# ---- lifetimes -----------------------------------------------------------------


async def test_nothing_is_left_of_one():
    ucp.current_worker()
    before = kept_objects()
    references = sys.getrefcount(ucp.Communicator)
    for _ in range(5):
        async with await alone() as comm:
            await comm.barrier()
            (await comm.alltoall_buffers([b"abc"]))[0].release()
            (await comm.split(0)).close()
            comm.recv(bytearray(1)).cancel()
    gone = weakref.ref(comm)
    del comm
    await until(lambda: gone() is None)
    await until(lambda: live_objects() == before)
    assert sys.getrefcount(ucp.Communicator) <= references + 1


def test_a_child_must_not_use_the_communicator_of_its_parent():
    out = run_script(
        """
        import asyncio, os, ucp
        async def main():
            comm = await ucp.Communicator.connect("tcp://127.0.0.1:1", 0, 1)
            pid = os.fork()
            if pid == 0:
                for use in (comm.iprobe, comm.abort, comm.close):
                    try:
                        use()
                    except RuntimeError as exc:
                        os.write(1, str(exc).encode() + b"\\n")
                os._exit(0)
            os.waitpid(pid, 0)
            await comm.barrier()
            comm.close()
        asyncio.run(main())
        """
    )
    assert out == "the communicator belongs to the parent process\n" * 3


# ---- blocking ------------------------------------------------------------------


@every_size
def test_blocking_operations(size):
    def main(comm):
        assert (comm.size, comm.name, comm.failure) == (size, "", None)
        rank, right, left = comm.rank, (comm.rank + 1) % size, (comm.rank - 1) % size
        total = np.array([rank])
        comm.allreduce(total, timeout=20)
        comm.allreduce(most := np.array([rank]), "max")
        assert (total[0], most[0]) == (sum(range(size)), size - 1)
        sending = comm.isend(b"abc", right, 5)
        assert comm.probe(timeout=20) == (left, 5, 3)
        message = comm.mprobe(timeout=20)
        assert comm.iprobe(tag=5) is None and comm.improbe(tag=5) is None
        buffer = bytearray(3)
        assert comm.mrecv(message, buffer, timeout=20) == (left, 5, 3)
        sending.result(20)
        receiving = comm.irecv(buffer)
        comm.send(b"xyz", right)
        assert receiving.result(20).source == left and buffer == b"xyz"
        every = np.zeros(size, "i8")
        comm.allgather(np.array([rank]), every)
        comm.allgatherv(np.array([rank]), every, [1] * size)
        assert every.tolist() == [*range(size)]
        comm.gather(np.array([rank]), every if rank == 0 else None)
        comm.scatter(every if rank == 0 else None, one := np.zeros(1, "i8"))
        assert one[0] == rank
        comm.alltoall(np.full(size, rank), every)
        comm.alltoallv(np.full(size, rank), [1] * size, every, [1] * size)
        assert every.tolist() == [*range(size)]
        parts = comm.alltoall_buffers([b"x" * rank] * size)
        assert [len(part) for part in parts] == [*range(size)]
        comm.bcast(data := bytearray([rank]))
        assert data == b"\0"
        comm.reduce(np.array([1]), one if rank == 0 else None)
        assert rank or one[0] == size
        part = comm.split(rank)
        assert (part.rank, part.size) == (0, 1)
        part.barrier()
        part.close()
        assert part.closed() and not comm.closed()
        assert comm.split(None) is None
        assert len(comm.explain()) == size
        comm.barrier()

    sync_world(size, main)


def test_a_blocking_receive_whose_time_runs_out_loses_nothing():
    def main(comm):
        with pytest.raises(
            ucp.UCXTimeout, match=r"^recv from any rank: not done within 0.01 s$"
        ):
            comm.recv(bytearray(1), timeout=0.01)
        comm.send(b"x", 0)
        assert comm.recv(bytearray(1)).nbytes == 1

    sync_world(1, main)


# The frame tells that the operation is under way, and not the test's own code.
INTERRUPTED = """
import threading, time
rank = int(os.environ["RANK_OF_TEST"])
begin_barrier = ucp.Communicator.barrier
begun = threading.Event()

def interrupt(_, frame):
    if begun.is_set() and frame.f_code is ucp.sync.Communicator.barrier.__code__:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        raise KeyboardInterrupt

def press_until_heard():
    begun.wait()
    time.sleep(float(os.environ["WAIT_OF_TEST"]))
    while signal.getsignal(signal.SIGINT) is interrupt:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)

def barrier(comm):
    request = begin_barrier(comm)
    begun.set()
    return request

threading.Thread(target=press_until_heard, daemon=True).start()
signal.signal(signal.SIGINT, interrupt)
ucp.Communicator.barrier = barrier
comm = ucp.sync.Communicator.connect(os.environ["ROOT_OF_TEST"], rank, 2, 30)
try:
    if rank == 1:
        comm.barrier()
    comm.recv(bytearray(1), 1)
except KeyboardInterrupt:
    try:
        comm.barrier()
    except ucp.UCXRankFailed as exc:
        print("interrupted", exc)
except ucp.UCXRankFailed as exc:
    print("failed", exc)
comm.close()
"""


@pytest.mark.parametrize("seconds", [0, 0.1])  # it spins; it sleeps
def test_ctrl_c_in_a_blocking_collective_revokes(seconds, monkeypatch):
    monkeypatch.setenv("WAIT_OF_TEST", str(seconds))
    with Ranks(2, INTERRUPTED) as ranks:
        text = "barrier (operation 1): cancelled by rank 1"
        assert ranks.end(1).startswith(f"interrupted {text}")
        assert ranks.end(0).startswith(f"failed {text}")


# ---- the examples --------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "prints"),
    [
        ("ring.py", r"4 ranks have the sum 6\n\[0\] \d+ us from rank to rank"),
        ("allreduce.py", r"weights 2\.000 -1\.000 0\.500\n\[0\] \d+ us a step"),
        ("halo.py", r"heat 1000\.000\n\[0\] \d+ us a step"),
    ],
)
def test_the_examples_run(name, prints):
    done = subprocess.run(
        [sys.executable, "-P", "-m", "ucp", "run", "-n", "4", EXAMPLES / name],
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(rf"\[0\] {prints}\n", done.stdout)


# ---- started by other launchers ------------------------------------------------


def torchrun(rank, size, port):
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }


def open_mpi(rank, size, port):
    return {
        "OMPI_COMM_WORLD_RANK": str(rank),
        "OMPI_COMM_WORLD_SIZE": str(size),
        "OMPI_COMM_WORLD_LOCAL_SIZE": str(size),
        "PMIX_NAMESPACE": f"prterun-test-{port}@1",
    }


def slurm(rank, size, port):
    return {
        "SLURM_PROCID": str(rank),
        "SLURM_STEP_NUM_TASKS": str(size),
        "SLURM_STEP_NODELIST": "localhost",
        "SLURM_JOB_ID": str(port),
        "SLURM_STEP_ID": "0",
    }


@pytest.mark.parametrize("variables", [torchrun, open_mpi, slurm])
def test_the_allreduce_example_runs_by_the_variables_of_a_launcher(variables, tmp_path):
    size, port = 3, free_port()
    processes = [
        subprocess.Popen(
            [sys.executable, "-P", EXAMPLES / "allreduce.py"],
            env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
            | variables(rank, size, port),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]
    try:
        ends = [process.communicate(timeout=50) for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0] * size, ends
    first, *others = [out for out, _ in ends]
    assert first.startswith("weights 2.000 -1.000 0.500\n")
    assert others == ["", ""]


# mpirun of MPICH: the ranks are below a process of that name.
HYDRA_PMI_PROXY = """\
#!/bin/sh
for rank in $(seq 0 $((MPI_LOCALNRANKS - 1))); do
    PMI_RANK=$rank PMI_SIZE=$MPI_LOCALNRANKS "$@" &
    ranks="$ranks $!"
done
for rank in $ranks; do wait $rank || exit 1; done
"""


def test_the_allreduce_example_runs_by_the_variables_of_mpich(tmp_path):
    proxy = tmp_path / "hydra_pmi_proxy"
    proxy.write_text(HYDRA_PMI_PROXY)
    proxy.chmod(0o700)
    done = subprocess.run(
        [proxy, sys.executable, "-P", EXAMPLES / "allreduce.py"],
        env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path), "MPI_LOCALNRANKS": "3"},
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("weights 2.000 -1.000 0.500\n")


# ---- waiting -------------------------------------------------------------------

IDLE = """
import contextlib, resource, time
IDLE = 2  # seconds

def cpu_seconds():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime

async def main():
    comm = await connect(heartbeat=0.5)
    for _ in range(20):  # inboxes are offered beside the operations
        await comm.barrier()
    receiving = comm.recv(bytearray(1))
    barrier = comm.barrier() if comm.rank == 1 else None
    in_thread = contextlib.nullcontext()
    if os.environ["IN_THREAD"]:
        in_thread = ucp.current_worker().run_in_thread()
    with in_thread:
        await asyncio.sleep(0.2)  # lets what has begun end
        before = cpu_seconds()
        if os.environ["IN_THREAD"]:
            time.sleep(IDLE)
        else:
            await asyncio.sleep(IDLE)
        used = cpu_seconds() - before
    if barrier is not None:  # the others wait for a message of this rank
        assert not barrier.done()
        for rank in range(comm.size):
            await comm.send(b"x", rank)
    await receiving
    await (barrier or comm.barrier())
    comm.close()
    print(used / IDLE)

asyncio.run(main())
"""


@pytest.mark.parametrize("in_thread", ["", "1"])
@pytest.mark.parametrize("tls", [None, "tcp"])
def test_ranks_that_wait_use_no_cpu(tls, in_thread, monkeypatch):
    """Nor do their heartbeats; one rank waits in a barrier."""
    if tls is not None:
        monkeypatch.setenv("UCX_TLS", tls)
    monkeypatch.setenv("IN_THREAD", in_thread)
    with Ranks(3, IDLE) as ranks:
        used = [float(ranks.end(rank)) for rank in range(3)]
    assert max(used) < 0.01, used


# ---- the collector -------------------------------------------------------------


def test_the_collector_may_run_at_any_time():
    out = run_script(
        f"""
        import sys
        sys.path.insert(0, {str(TESTS)!r})
        import gc, numpy as np, ucp
        from worlds import good_world

        async def main(comm):
            gc.set_threshold(1, 1, 1)
            for length in (3, 200_000):
                one = np.ones(length)
                await comm.allreduce(one)
                await comm.allgather(one, np.zeros(length * comm.size))
                parts = await comm.alltoall_buffers([one] * comm.size)
                assert all(len(part) == 8 * length for part in parts)
                sending = comm.send(one, comm.size - 1 - comm.rank)
                message = await comm.mprobe()
                await message.recv(np.zeros(length))
                await sending
                comm.recv(bytearray(1)).cancel()
                (await comm.split(0)).close()

        good_world(2, main)
        gc.set_threshold(700, 10, 10)
        print("done")
        """
    )
    assert out == "done\n"


def test_messages_that_are_there_leave_no_requests():
    async def main(comm):
        before = kept_objects()["requests"]
        for _ in range(20):
            await comm.send(b"12345678", comm.rank)
            await comm.recv(bytearray(8), comm.rank)
        assert live_objects()["requests"] <= before

    good_world(1, main)


def test_who_leaves_for_anothers_fault_names_that_rank():
    async def main(comm):
        child = await comm.split(0)
        if comm.rank == 2:
            child.abort("of a reason")
        await (child if comm.rank == 0 else comm).recv(
            bytearray(1), (comm.rank + 2) % 3
        )

    for end in world(3, main):
        assert isinstance(end, ucp.UCXRankFailed)
        assert end.rank == 2
        assert "of a reason" in str(end)


def test_a_child_names_the_rank_in_its_own_numbers():
    async def main(comm):
        child = await comm.split(0 if comm.rank else None)
        if child is not None:
            await child.barrier()
        if comm.rank == 2:
            comm.abort()
        if comm.rank == 1:
            await child.recv(bytearray(1), 1)

    ends = world(3, main)
    assert isinstance(ends[1], ucp.UCXRankFailed)
    assert ends[1].rank == 1


class _Unsaid(Exception):
    def __str__(self):
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("caf\udce9.csv"), r"ValueError: caf\?\.csv"),
        (ValueError("\u0434" * 300), "ValueError: \u0434{50,}$"),
        (ValueError("x" * 62 + "\u4e2d" * 90), "ValueError: x{62}\u4e2d{20,}$"),
        (ValueError("a\0b"), r"ValueError: a\\0b$"),
        (_Unsaid(), "_Unsaid$"),
    ],
    ids=["surrogate", "two bytes", "three bytes", "NUL", "no text"],
)
def test_any_exception_is_told_to_the_others(error, text):
    async def main(comm):
        await comm.barrier()
        if comm.rank == 0:
            with pytest.raises(type(error)):
                async with comm:
                    raise error
            assert comm.closed()
        else:
            with pytest.raises(ucp.exceptions.UCXRankFailed, match=text) as caught:
                await comm.barrier()
            assert str(comm.failure) in str(caught.value)
            assert "\ufffd" not in str(caught.value)

    good_world(2, main)


def test_reasons_that_are_no_text():
    async def main(comm):
        with pytest.raises(TypeError, match="reason must be a str, not bytes"):
            comm.abort(b"why")
        await comm.barrier()

    good_world(1, main)


@pytest.mark.parametrize("reason", ["a\0b", "\0", "\0\0"])
def test_a_nul_in_a_reason_is_shown(reason):
    async def main(comm):
        if comm.rank == 1:
            comm.abort(reason)
        text = re.escape(reason.replace("\0", r"\0")) + "$"
        with pytest.raises(ucp.exceptions.UCXRankFailed, match=text):
            await comm.barrier()

    good_world(2, main)


# ---- messages on one host --------------------------------------------------------


def test_very_long_messages_are_read_in_the_memory_of_their_sender():
    """The ranks agree on that after they have met."""
    source = """
    async def main():
        async with await connect() as comm:
            small, long = b"x" * (64 * 1024 - 1), b"y" * (8 << 20)
            if comm.rank == 0:
                while comm.worker.statistics.loans == 0:
                    await comm.send(long, 1)
                before = comm.worker.statistics.loans
                await comm.send(small, 1)
                await comm.send(long, 1, 1)
                print(comm.worker.statistics.loans - before)
                return
            got = bytearray(8 << 20)
            tag = 0
            while tag == 0:
                status = await comm.recv(got)
                tag = status.tag
                assert got[: status.nbytes] in (small, long)
    asyncio.run(main())
    """
    with Ranks(2, source) as ranks:
        ranks.end(1)
        assert ranks.end(0) == "1"


def has_a_core_for_each_of_two():
    quota = _cpu_quota()
    return len(os.sched_getaffinity(0)) >= 2 and (quota is None or quota >= 2)


@pytest.mark.skipif(not has_a_core_for_each_of_two(), reason="two cores needed")
def test_large_messages_one_at_a_time_are_sent():
    source = """
    async def main():
        async with await connect() as comm:
            peer, data = 1 - comm.rank, bytearray(8 << 20)
            async def there_and_back(nbytes):
                with memoryview(data)[:nbytes] as part:
                    for turn in (0, 1):
                        call = comm.send if turn == comm.rank else comm.recv
                        await call(part, peer)
            others = np.ones(1)
            while others.min() == 0 or comm.worker.statistics.loans == 0:
                await there_and_back(8 << 20)  # until both may lend
                others[0] = comm.worker.statistics.loans
                await comm.allreduce(ucp.IN_PLACE, others, "min")
            before = comm.worker.statistics.loans
            for nbytes in (64 << 10, 256 << 10, 1 << 20, (8 << 20) - 1):
                for _ in range(5):
                    await there_and_back(nbytes)
            print(comm.worker.statistics.loans - before)
    asyncio.run(main())
    """
    with Ranks(2, source) as ranks:
        assert [ranks.end(rank) for rank in range(2)] == ["0", "0"]


def test_large_messages_that_cross_are_read_in_the_memory_of_their_sender():
    source = """
    async def main():
        async with await connect() as comm:
            peer = 1 - comm.rank
            sent, got = bytes([comm.rank + 1]) * (256 << 10), bytearray(256 << 10)
            least = np.zeros(1)
            while least[0] < 10:
                await asyncio.gather(comm.send(sent, peer), comm.recv(got, peer))
                assert got == bytes([peer + 1]) * len(got)
                least[0] = comm.worker.statistics.loans
                await comm.allreduce(ucp.IN_PLACE, least, "min")
            print(least[0])
    asyncio.run(main())
    """
    with Ranks(2, source) as ranks:
        assert ranks.end(0) == ranks.end(1)


def test_ranks_that_outnumber_the_cores_read_large_messages_in_memory():
    source = """
    async def main():
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
        async with await connect() as comm:
            data = bytearray(64 << 10)
            while comm.rank == 0 and comm.worker.statistics.loans < 5:
                await comm.send(data, 1)
            if comm.rank == 0:
                await comm.send(data, 1, 1)
            while comm.rank == 1 and (await comm.recv(data, 0)).tag == 0:
                pass
    asyncio.run(main())
    """
    with Ranks(3, source) as ranks:
        for rank in range(3):
            ranks.end(rank)
