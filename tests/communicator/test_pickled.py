# SPDX-License-Identifier: BSD-3-Clause
"""Operations on Python objects between ranks."""

# tests: ext/derive ucp/operations ucp/parcels ucp/steps

import asyncio
import gc
import operator
import pickle
import signal

import numpy as np
import pytest
from worlds import Ranks, good_world, world

import ucp
from ucp._communicator import parcels
from ucp._communicator.steps import give_up
from ucp._core.operation import Operation
from ucp.testing import live_objects

YES = {"allow_pickle": True}

# Of an object whose buffers travel by themselves, one whose pickle does, and others.
BIG = 300_000
LONG = 20_000
FRAME = 2500  # items of an array that is just large enough not to be pickled

OBJECTS = [
    None,
    0,
    "text",
    b"bytes" * LONG,
    bytearray(LONG),
    list(range(LONG)),
    {"array": np.arange(BIG), "more": [np.ones((300, 300)).T, 1.5]},
    np.arange(BIG)[::3],
    np.zeros(0),
    np.array([{"an": "object"}, None], object),
    [np.full(LONG if i % 10 == 0 else FRAME, i) for i in range(100)],
]


def same(one, other):
    if isinstance(one, np.ndarray):
        return (
            isinstance(other, np.ndarray)
            and one.dtype == other.dtype
            and np.array_equal(one, other)
        )
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    return type(one) is type(other) and one == other


def joined(lists):
    return [item for one in lists for item in one]


class NotPickled:
    def __init__(self, text="no"):
        self.text = text

    def __reduce__(self):
        raise TypeError(self.text)


def refuse(text):
    raise RuntimeError(text)


class NotUnpickled:
    """Its sender pickles it, and nobody unpickles it."""

    def __init__(self, text="broken"):
        self.text = text

    def __reduce__(self):
        return refuse, (self.text,)


CANNOT_PICKLE = pickle.PicklingError
CANNOT_UNPICKLE = pickle.UnpicklingError


# ---- messages ----


@pytest.mark.parametrize("obj", OBJECTS, ids=lambda obj: type(obj).__name__)
def test_an_object_is_sent(obj):
    async def main(comm):
        if comm.rank == 0:
            await comm.send_pickle(obj, 1, 7)
            return None
        return await comm.recv_pickle(0, 7, allow_pickle=True)

    assert same(good_world(2, main)[1], obj)


def test_a_rank_sends_itself_an_object():
    async def main(comm):
        sending = comm.send_pickle(OBJECTS[6], comm.rank)
        got = await comm.recv_pickle(allow_pickle=True)
        await sending
        return same(got, OBJECTS[6])

    assert good_world(1, main) == [True]


def test_objects_of_a_rank_arrive_in_their_order():
    async def main(comm):
        if comm.rank == 0:
            sends = [comm.send_pickle(obj, 1) for obj in OBJECTS]
            await asyncio.gather(*sends)
            return None
        return [await comm.recv_pickle(allow_pickle=True) for _ in OBJECTS]

    assert same(good_world(2, main)[1], OBJECTS)


def test_receives_that_wait_get_objects_in_the_order_of_their_calls():
    async def main(comm):
        if comm.rank == 0:
            await comm.barrier()
            for obj in OBJECTS:
                await comm.send_pickle(obj, 1)
            return None
        receives = [comm.recv_pickle(allow_pickle=True) for _ in OBJECTS]
        await comm.barrier()
        return await asyncio.gather(*receives)

    assert same(good_world(2, main)[1], OBJECTS)


def test_the_status_of_an_object_has_its_source_and_all_its_bytes():
    async def main(comm):
        if comm.rank == 0:
            await comm.send_pickle(np.zeros(BIG, "u1"), 1, tag=5)
            return
        got, status = await comm.recv_pickle(allow_pickle=True, with_status=True)
        assert (status.source, status.tag) == (0, 5)
        assert BIG < status.nbytes < BIG + 1000
        got[0] = 1  # the receiver owns the memory

    good_world(2, main)


def test_large_buffers_are_not_copied_when_they_are_sent():
    async def main(comm):
        array = np.arange(BIG)
        pickled, [buffer] = parcels.pack_message(array)
        assert len(pickled) < 1000
        assert np.shares_memory(buffer, array)
        sending = comm.send_pickle(array, 0)
        array[0] = 77  # it is sent as it is when the receiver takes it
        got = await comm.recv_pickle(allow_pickle=True)
        await sending
        assert got[0] == 77

    good_world(1, main)


def test_objects_are_received_only_if_asked_for():
    async def main(comm):
        await comm.send_pickle([1], comm.rank)
        for answer in (False, "yes", 1):
            with pytest.raises(
                ValueError,
                match=r"^recv_pickle\(\) runs what the other ranks send: "
                r"allow_pickle=True says that you trust them, here or where the "
                r"communicator is made$",
            ):
                await comm.recv_pickle(allow_pickle=answer)
        assert await comm.recv_pickle(allow_pickle=True) == [1]

    good_world(1, main)


@pytest.mark.parametrize("data", [b"", b"x", b"x" * 1000, bytes(10_000)])
def test_other_messages_are_not_unpickled(data):
    async def main(comm):
        sending = comm.send(data, comm.rank)
        with pytest.raises(ucp.UCXError, match=r"^the message is no pickled object$"):
            await comm.recv_pickle(allow_pickle=True)
        await sending
        assert comm.iprobe() is None

    good_world(1, main)


def test_a_message_that_says_nonsense_is_not_unpickled():
    async def main(comm):
        await comm.send_pickle([1], comm.rank)
        message = comm.improbe()
        data = bytearray(message.nbytes)
        await message.recv(data)
        for place in (0, 4, 5, 8):  # magic, kind, error, number of buffers
            wrong = bytearray(data)
            wrong[place] = 255
            await comm.send(wrong, comm.rank)
            with pytest.raises(ucp.UCXError, match="no pickled object"):
                await comm.recv_pickle(allow_pickle=True)

    good_world(1, main)


def test_an_object_that_cannot_be_pickled_is_not_sent():
    async def main(comm):
        with pytest.raises(TypeError, match=r"^no$"):
            comm.send_pickle(NotPickled(), comm.rank)
        assert comm.iprobe() is None

    good_world(1, main)


def test_an_object_that_cannot_be_unpickled_names_both_ranks():
    async def main(comm):
        if comm.rank == 0:
            await comm.send_pickle([np.arange(BIG), NotUnpickled()], 1)
            await comm.send_pickle("next", 1)
            return
        with pytest.raises(
            CANNOT_UNPICKLE,
            match=r"^rank 1 cannot unpickle the object of rank 0: "
            r"RuntimeError: broken$",
        ) as raised:
            await comm.recv_pickle(allow_pickle=True)
        assert isinstance(raised.value.__cause__, RuntimeError)
        assert await comm.recv_pickle(allow_pickle=True) == "next"

    good_world(2, main)


def test_a_wrong_rank_is_refused():
    async def main(comm):
        with pytest.raises(ValueError, match="rank"):
            await comm.send_pickle(1, 1)
        with pytest.raises(ValueError, match="rank"):
            await comm.recv_pickle(5, allow_pickle=True)
        with pytest.raises(ValueError, match="rank"):
            await comm.bcast_pickle(1, root=1)

    good_world(1, main)


async def cancelled(operation):
    operation.cancel()
    with pytest.raises(asyncio.CancelledError):
        await operation


def test_another_thread_sends_nothing():
    async def main(comm):
        loop = asyncio.get_running_loop()
        for call in (
            lambda: comm.send_pickle(1, 0),
            lambda: comm.recv_pickle(**YES),
            lambda: comm.bcast_pickle(1),
        ):
            with pytest.raises(RuntimeError, match=r"^no running event loop$"):
                await loop.run_in_executor(None, call)
        assert comm.iprobe() is None
        assert await comm.allgather_pickle(1, **YES) == [1]

    good_world(1, main)


def test_a_receive_that_waits_can_be_cancelled():
    async def main(comm):
        await cancelled(comm.recv_pickle(allow_pickle=True))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await comm.recv_pickle(allow_pickle=True)
        sending = comm.send_pickle(OBJECTS[6], comm.rank)
        assert same(await comm.recv_pickle(allow_pickle=True), OBJECTS[6])
        await sending

    good_world(1, main)


@pytest.mark.parametrize("steps", range(6))
def test_a_receive_cancelled_on_the_way_loses_no_object(steps):
    obj = [np.full(LONG, i) for i in range(5)] + [list(range(LONG))]

    async def main(comm):
        if comm.rank == 0:
            await comm.send_pickle(obj, 1, 3)
            await comm.send_pickle("next", 1)
            return
        receiving = comm.recv_pickle(0, 3, allow_pickle=True)
        for _ in range(steps):
            await asyncio.sleep(0)
        if receiving.cancel():
            with pytest.raises(asyncio.CancelledError):
                await receiving
            receiving = comm.recv_pickle(allow_pickle=True)
        assert same(await receiving, obj)
        assert await comm.recv_pickle(allow_pickle=True) == "next"

    good_world(2, main)


def test_a_receive_that_is_dropped_takes_no_object():
    async def main(comm):
        with pytest.warns(
            RuntimeWarning,
            match=r"^ucp: what recv_pickle\(\) returned was dropped while it waited; "
            r"it is withdrawn\. Keep it until it is done$",
        ):
            comm.recv_pickle(**YES)
        with pytest.warns(RuntimeWarning, match=r"sendrecv_pickle\(\) returned"):
            comm.sendrecv_pickle("first", 0, recv_tag=9, **YES)
        got = asyncio.Future()
        comm.recv_pickle(**YES).add_done_callback(lambda done: got.set_result(done))
        gc.collect()
        assert (await got).result() == "first"
        await comm.send_pickle("second", 0)
        assert await comm.recv_pickle(**YES) == "second"

    good_world(1, main)


def test_a_cancelled_object_is_kept_for_its_source_and_tag():
    async def main(comm):
        if comm.rank == 0:
            await asyncio.gather(
                comm.send_pickle(np.arange(BIG), 1, 3), comm.send_pickle("other", 1, 4)
            )
            return
        while comm.iprobe(0, 3) is None:
            await asyncio.sleep(0)
        receiving = comm.recv_pickle(0, 3, allow_pickle=True)
        await cancelled(receiving)
        assert await comm.recv_pickle(0, 4, allow_pickle=True) == "other"
        got = await comm.recv_pickle(0, 3, allow_pickle=True)
        assert same(got, np.arange(BIG))

    good_world(2, main)


SENDS = {
    "recv_pickle": lambda comm, text: comm.send_pickle(text, 0, 1),
    "sendrecv_pickle": lambda comm, text: comm.send_pickle(text, 0, 1),
    "sendrecv": lambda comm, text: comm.send(text.encode(), 0, 1),
}


async def take(comm, name):
    if name == "recv_pickle":
        return await comm.recv_pickle(0, 1, **YES)
    if name == "sendrecv_pickle":
        return await comm.sendrecv_pickle("own", 0, 0, 2, 1, **YES)
    buffer = bytearray(5)
    status = await comm.sendrecv(b"own", 0, buffer, 0, 2, 1)
    return buffer[: status.nbytes].decode()


@pytest.mark.parametrize("name", SENDS)
def test_a_task_that_is_cancelled_when_its_message_has_come_gives_it_back(name):
    async def main(comm):
        task = asyncio.create_task(take(comm, name))
        await asyncio.sleep(0)
        sending = [SENDS[name](comm, text) for text in ("one", "two")]
        asyncio.get_running_loop().call_soon(task.cancel)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await take(comm, name) == "one"
        assert await take(comm, name) == "two"
        await asyncio.gather(*sending)

    good_world(1, main)


@pytest.mark.parametrize("name", SENDS)
def test_a_task_whose_time_is_up_when_its_message_has_come_gives_it_back(name):
    async def main(comm):
        loop = asyncio.get_running_loop()
        lost = []

        async def wait():
            try:
                async with asyncio.timeout(None) as limit:
                    lost.append(limit)
                    return await take(comm, name)
            except TimeoutError:
                return "late"

        task = asyncio.create_task(wait())
        await asyncio.sleep(0)
        sending = [SENDS[name](comm, text) for text in ("one", "two")]
        lost[0].reschedule(loop.time())
        assert await task in ("late", "one")
        rest = ["one", "two"] if task.result() == "late" else ["two"]
        assert [await take(comm, name) for _ in rest] == rest
        await asyncio.gather(*sending)

    good_world(1, main)


def test_what_waits_for_a_receive_gets_its_object():
    async def main(comm):
        def receive():
            return comm.recv_pickle(0, 1, **YES)

        async def first(operation):
            done, _ = await asyncio.wait([operation])
            return done.pop().result()

        async def completed(operation):
            for one in asyncio.as_completed([operation]):
                return await one

        async def called(operation):
            got = asyncio.Future()
            operation.add_done_callback(lambda done: got.set_result(done.result()))
            return await got

        async def two_tasks(operation):
            async def wait():
                return await operation

            one, other = await asyncio.gather(wait(), wait())
            assert one is other
            return one

        async def again(operation):
            assert await operation is await operation
            assert operation.exception() is None
            assert not operation.cancel()
            return operation.result()

        for wait in (
            lambda operation: operation,
            lambda operation: asyncio.wait_for(operation, 10),
            asyncio.shield,
            asyncio.ensure_future,
            first,
            completed,
            called,
            two_tasks,
            again,
        ):
            for is_early in (False, True):
                sending = comm.send_pickle("here", 0, 1) if is_early else None
                operation = receive()
                waiting = asyncio.ensure_future(wait(operation))
                await asyncio.sleep(0)
                sending = sending or comm.send_pickle("here", 0, 1)
                assert await waiting == "here"
                await sending
        got = await asyncio.gather(receive(), comm.send_pickle("one", 0, 1))
        assert got == ["one", None]
        assert comm.iprobe() is None

    good_world(1, main)


def test_a_gathering_that_is_cancelled_gives_back_the_objects_that_have_come():
    async def main(comm):
        both = asyncio.gather(
            comm.recv_pickle(0, 1, **YES), comm.recv_pickle(0, 2, **YES)
        )
        await comm.send_pickle("one", 0, 1)
        await asyncio.sleep(0)
        await cancelled(both)
        assert await comm.recv_pickle(0, 1, **YES) == "one"

    good_world(1, main)


def test_an_operation_that_is_done_is_cancelled_until_its_result_is_handed_out():
    async def main(comm):
        operation = comm.recv_pickle(0, 1, **YES)
        await comm.send_pickle(["one"], 0, 1)
        assert operation.done()
        assert operation.exception() is None
        assert operation.cancel("why")
        assert operation.cancelled()
        assert not operation.cancel()
        for ask in (operation.result, operation.exception):
            with pytest.raises(asyncio.CancelledError, match=r"^why$"):
                ask()
        with pytest.raises(asyncio.CancelledError):
            await operation
        operation = comm.recv_pickle(0, 1, **YES)
        assert operation.result() == ["one"]
        assert not operation.cancel()
        assert await operation == ["one"]

    good_world(1, main)


def test_a_result_that_is_dropped_before_it_is_handed_out_is_given_back():
    async def main(comm):
        operation = comm.recv_pickle(0, 1, **YES)
        await comm.send_pickle("one", 0, 1)
        while not operation.done():
            await asyncio.sleep(0)
        del operation
        gc.collect()
        assert await comm.recv_pickle(0, 1, **YES) == "one"

    good_world(1, main)


def test_a_received_buffer_that_was_looked_at_is_not_given_back():
    async def main(comm):
        buffer = bytearray(3)
        operation = comm.sendrecv(b"own", 0, buffer, 0, 1, 1)
        while not operation.done():
            await asyncio.sleep(0)
        assert operation.exception() is None
        assert not operation.cancel()
        assert comm.iprobe() is None

    good_world(1, main)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_objects_that_are_given_back_keep_their_order(order):
    objs = [[k, np.full(BIG, k)] for k in range(3)]

    async def main(comm):
        if comm.rank == 0:
            await comm.barrier()
            await asyncio.gather(*(comm.send_pickle(obj, 1, 3) for obj in objs))
            return
        receives = [comm.recv_pickle(0, 3, **YES) for _ in range(2)]
        await comm.barrier()
        while comm.iprobe() is None:  # the heads of the first two have come
            await asyncio.sleep(0)
        for k in order:
            receives[k].cancel()
            await asyncio.wait([receives[k]])
        assert comm.iprobe(0, 3) is not None
        for obj in objs:
            assert same(await comm.recv_pickle(0, 3, **YES), obj)

    good_world(2, main)


def test_a_receive_that_waits_gets_an_object_that_is_given_back():
    array = np.arange(BIG * 10)

    async def main(comm):
        if comm.rank == 0:
            await comm.barrier()
            await comm.send_pickle([array, array], 1, 3)
            return
        one, other = comm.recv_pickle(0, 3, **YES), comm.recv_pickle(0, 3, **YES)
        probing = comm.probe(0, 3)
        await comm.barrier()
        while parcels.state_of(comm).frames is None:  # the head has come
            await asyncio.sleep(0)
        one.cancel()
        await asyncio.wait([one])
        assert one.cancelled()
        assert same(await other, [array, array])
        probing.cancel()

    good_world(2, main)


def test_an_object_that_was_given_back_is_seen_by_probes():
    async def main(comm):
        operation = comm.recv_pickle(0, 3, **YES)
        await comm.send_pickle("one", 0, 3)
        assert comm.iprobe() is None
        probing = comm.probe(0, 3)
        operation.cancel()
        assert (await probing).tag == 3
        assert comm.iprobe(0, 3).source == 0
        taken = await comm.mprobe(0, 3)
        assert comm.iprobe(0, 3) is None
        del taken  # gives it back once more
        assert await comm.recv_pickle(0, 3, **YES) == "one"

    good_world(1, main)


def test_an_object_that_cannot_be_unpickled_is_not_given_back():
    async def main(comm):
        operation = comm.recv_pickle(0, 1, **YES)
        await comm.send_pickle(NotUnpickled(), 0, 1)
        assert not operation.cancel()
        with pytest.raises(CANNOT_UNPICKLE):
            operation.result()
        assert comm.iprobe() is None

    good_world(1, main)


def test_receives_are_given_up_from_the_last_to_the_first():
    async def main(comm):
        receives = [comm.recv(bytearray(1)) for _ in range(3)]
        ends = []
        for k, request in enumerate(receives):
            request.add_done_callback(lambda _, k=k: ends.append(k))
        for _ in give_up(receives, asyncio.CancelledError()):
            await asyncio.sleep(0)
        while len(ends) < 3:
            await asyncio.sleep(0)
        assert ends == [2, 1, 0]

    good_world(1, main)


def test_a_cancelled_send_that_nobody_has_asked_for_is_withdrawn():
    async def main(comm):
        if comm.rank == 0:
            await cancelled(comm.send_pickle([np.arange(BIG)] * 3, 1))
            await comm.send_pickle("next", 1)
            await comm.barrier()
            return None
        got = await comm.recv_pickle(allow_pickle=True)
        await comm.barrier()
        return got

    assert good_world(2, main)[1] == "next"


@pytest.mark.parametrize("steps", range(8))
def test_a_cancelled_send_is_received_whole_or_not_at_all(steps):
    obj = [np.full(BIG, i) for i in range(4)]

    async def main(comm):
        if comm.rank == 0:
            await comm.barrier()
            sending = comm.send_pickle(obj, 1)
            for _ in range(steps):
                await asyncio.sleep(0)
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            await comm.send_pickle("next", 1)
            return
        receiving = comm.recv_pickle(allow_pickle=True)
        await comm.barrier()
        got = await receiving
        if got != "next":
            assert same(got, obj)
            assert await comm.recv_pickle(allow_pickle=True) == "next"

    good_world(2, main)


# ---- collective operations ----


@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize("obj", OBJECTS, ids=lambda obj: type(obj).__name__)
def test_each_collective_operation_brings_objects(size, obj):
    root = size - 1

    async def main(comm):
        rank, yes = comm.rank, {"allow_pickle": True}
        own = [rank, obj]
        of_all = [[r, obj] for r in range(size)]
        got = await comm.bcast_pickle(own if rank == root else None, root, **yes)
        assert same(got, [root, obj])
        got = await comm.gather_pickle(own, root, **yes)
        assert same(got, of_all) if rank == root else got is None
        got = await comm.scatter_pickle(of_all if rank == root else None, root, **yes)
        assert same(got, own)
        assert same(await comm.allgather_pickle(own, **yes), of_all)
        got = await comm.alltoall_pickle([[rank, r, obj] for r in range(size)], **yes)
        assert same(got, [[r, rank, obj] for r in range(size)])
        got = await comm.reduce_pickle(own, "sum", root, **yes)
        assert same(got, joined(of_all)) if rank == root else got is None
        assert same(await comm.allreduce_pickle(own, **yes), joined(of_all))
        assert same(await comm.scan_pickle(own, **yes), joined(of_all[: rank + 1]))
        got = await comm.exscan_pickle(own, **yes)
        assert same(got, joined(of_all[:rank])) if rank else got is None

    good_world(size, main)


def test_objects_are_combined_in_the_order_of_the_ranks():
    def op(one, other):
        return f"({one}{other})"

    async def main(comm):
        yes = {"allow_pickle": True}
        text = "abc"[comm.rank]
        return [
            await comm.reduce_pickle(text, op, 1, **yes),
            await comm.allreduce_pickle(text, op, **yes),
            await comm.scan_pickle(text, op, **yes),
            await comm.exscan_pickle(text, op, **yes),
        ]

    whole = "((ab)c)"
    assert good_world(3, main) == [
        [None, whole, "a", None],
        [whole, whole, "(ab)", "a"],
        [None, whole, whole, "(ab)"],
    ]


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        ("sum", 9),
        ("prod", 24),
        ("min", 2),
        ("max", 4),
        ("land", True),
        ("lor", True),
        ("lxor", True),
        ("band", 0),
        ("bor", 7),
        ("bxor", 5),
        (operator.sub, -5),
    ],
)
def test_operations_have_the_names_of_those_on_arrays(op, expected):
    async def main(comm):
        return await comm.allreduce_pickle(comm.rank + 2, op, allow_pickle=True)

    assert good_world(3, main) == [expected] * 3


@pytest.mark.parametrize(("op", "best"), [("maxloc", 5), ("minloc", 2)])
def test_the_place_of_the_best_value_is_the_first_one(op, best):
    async def main(comm):
        pair = ([3, 5, 2, 5, 2][comm.rank], comm.rank)
        return await comm.allreduce_pickle(pair, op, allow_pickle=True)

    places = {5: (5, 1), 2: (2, 2)}
    assert good_world(5, main) == [places[best]] * 5


@pytest.mark.parametrize("op", ["mean", None, 3])
def test_an_operation_that_is_none_is_refused_everywhere(op):
    async def main(comm):
        for call in (comm.allreduce_pickle, comm.reduce_pickle, comm.scan_pickle):
            with pytest.raises(ValueError, match=r"^op is a function of two objects"):
                await call(1, op, allow_pickle=True)
        assert await comm.exscan_pickle(1, allow_pickle=True) in (None, 1)

    good_world(2, main)


def test_many_collective_operations_are_under_way():
    async def main(comm):
        yes = {"allow_pickle": True}
        calls = []
        for i, obj in enumerate(OBJECTS):
            root = i % comm.size
            calls.append(
                comm.bcast_pickle(obj if comm.rank == root else 0, root, **yes)
            )
            calls.append(comm.barrier())
            calls.append(comm.allgather_pickle([comm.rank, obj], **yes))
        ends = await asyncio.gather(*calls)
        assert same(ends[::3], OBJECTS)
        for got, obj in zip(ends[2::3], OBJECTS, strict=True):
            assert same(got, [[rank, obj] for rank in range(comm.size)])

    good_world(3, main)


def test_an_operation_goes_on_before_it_is_awaited():
    async def main(comm):
        begun = comm.bcast_pickle(np.arange(BIG), allow_pickle=True)
        if comm.rank != 0:
            await begun
        await comm.barrier()
        assert len(await begun) == BIG

    good_world(3, main)


def test_splits_and_their_parents_have_objects_of_their_own():
    async def main(comm):
        yes = {"allow_pickle": True}
        async with await comm.split(comm.rank % 2) as half:
            both = [
                comm.allgather_pickle(np.full(BIG, comm.rank), **yes),
                half.allgather_pickle(np.full(BIG, comm.rank), **yes),
            ]
            whole, part = await asyncio.gather(*both)
        assert [int(array[-1]) for array in whole] == [0, 1, 2, 3]
        assert [int(array[-1]) for array in part] == [comm.rank % 2, comm.rank % 2 + 2]

    good_world(4, main)


# ---- collective operations in which something is wrong ----


async def raises(call, kind, match):
    with pytest.raises(kind, match=match):
        await call


@pytest.mark.parametrize("other", [0, np.arange(BIG)], ids=["small", "large"])
@pytest.mark.parametrize("wrong", [0, 2])
def test_an_object_that_cannot_be_pickled_is_named_on_every_rank_that_needs_it(
    wrong, other
):
    text = rf"^rank {wrong} cannot pickle its object: TypeError: no$"

    async def main(comm):
        yes = {"allow_pickle": True}
        own = NotPickled() if comm.rank == wrong else other
        for call in (
            comm.bcast_pickle(own, wrong, **yes),
            comm.allgather_pickle(own, **yes),
            comm.allreduce_pickle(own, max, **yes),
            comm.alltoall_pickle([own] * 3, **yes),
            comm.scatter_pickle([own] * 3, wrong, **yes),
        ):
            await raises(call, CANNOT_PICKLE, text)
        gathered = comm.gather_pickle(own, 1, **yes)
        if comm.rank in (wrong, 1):
            await raises(gathered, CANNOT_PICKLE, text)
        else:
            assert await gathered is None
        scanned = comm.scan_pickle(own, lambda one, _: one, **yes)
        if comm.rank >= wrong:
            await raises(scanned, CANNOT_PICKLE, text)
        else:
            assert same(await scanned, other)
        assert await comm.allgather_pickle(comm.rank, **yes) == [0, 1, 2]

    good_world(3, main)


def test_the_lowest_rank_that_cannot_pickle_is_named():
    async def main(comm):
        own = NotPickled(f"of {comm.rank}") if comm.rank else 0
        named = comm.rank or 1
        await raises(
            comm.allgather_pickle(own, allow_pickle=True),
            CANNOT_PICKLE,
            rf"^rank {named} cannot pickle its object: TypeError: of {named}$",
        )
        await comm.barrier()

    good_world(3, main)


@pytest.mark.parametrize("text", ["é" * 1000, "\udc80", "\0"])
def test_a_reason_of_any_text_is_told(text):
    async def main(comm):
        await raises(
            comm.bcast_pickle(NotPickled(text), allow_pickle=True),
            CANNOT_PICKLE,
            r"^rank 0 cannot pickle its object: TypeError: ",
        )
        await comm.barrier()

    good_world(2, main)


def test_an_object_that_one_rank_cannot_unpickle_is_named_there():
    async def main(comm):
        yes = {"allow_pickle": True}
        own = NotUnpickled() if comm.rank == 1 else comm.rank
        text = rf"^rank {comm.rank} cannot unpickle the object of rank 1: "
        calls = [
            comm.bcast_pickle(own, 1, **yes),
            comm.allgather_pickle(own, **yes),
            comm.alltoall_pickle([own] * 3, **yes),
        ]
        for call in calls:
            if comm.rank == 1:
                await call
            else:
                await raises(call, CANNOT_UNPICKLE, text)
        assert await comm.allgather_pickle(comm.rank, **yes) == [0, 1, 2]

    good_world(3, main)


def test_an_operation_that_raises_does_so_on_its_rank_only():
    def op(one, other):
        raise ZeroDivisionError("an op")

    async def main(comm):
        yes = {"allow_pickle": True}
        reduced = comm.reduce_pickle(1, op, 1, **yes)
        if comm.rank == 1:
            await raises(reduced, ZeroDivisionError, r"^an op$")
        else:
            assert await reduced is None
        await raises(comm.allreduce_pickle(1, op, **yes), ZeroDivisionError, "an op")
        assert await comm.allreduce_pickle(1, **yes) == 3

    good_world(3, main)


def test_a_rank_that_does_not_allow_pickles_raises_alone():
    async def main(comm):
        yes = {"allow_pickle": comm.rank != 1}
        calls = [
            comm.bcast_pickle(NotUnpickled() if comm.rank == 1 else 0, 0, **yes),
            comm.allgather_pickle(comm.rank, **yes),
            comm.alltoall_pickle([np.arange(BIG)] * 3, **yes),
            comm.scan_pickle(comm.rank, **yes),
        ]
        for call in calls:
            if comm.rank == 1:
                await raises(call, ValueError, r"_pickle\(\) runs what the other ranks")
            else:
                await call
        assert await comm.gather_pickle(comm.rank, **yes) in (None, [0, 1, 2])

    good_world(3, main)


@pytest.mark.parametrize("objects", [[1, 2], [1, 2, 3, 4], 5, None])
def test_another_number_of_objects_is_named_on_every_rank(objects):
    async def main(comm):
        yes = {"allow_pickle": True}
        given = objects if comm.rank == 1 else [1, 2, 3]
        text = (
            r"^rank 1: {}: ({} objects for 3 ranks|it takes an object for each rank: )"
        )
        count = len(objects) if isinstance(objects, list) else ""
        await raises(
            comm.scatter_pickle(given, 1, **yes),
            ValueError,
            text.format("scatter_pickle", count),
        )
        await raises(
            comm.alltoall_pickle(given, **yes),
            ValueError,
            text.format("alltoall_pickle", count),
        )
        assert await comm.scatter_pickle(iter("abc"), 0, **yes) == "abc"[comm.rank]

    good_world(3, main)


def test_ranks_that_call_different_operations_are_named():
    async def main(comm):
        yes = {"allow_pickle": True}
        if comm.rank == 0:
            await comm.reduce_pickle(1, **yes)
        else:
            await comm.gather_pickle(1, **yes)
            await comm.barrier()

    for end in world(2, main):
        assert isinstance(end, ucp.UCXRankFailed)
        assert "rank 1 has called gather_pickle, rank 0 reduce_pickle" in str(end)


def test_an_array_of_the_length_of_a_head_is_no_object():
    async def main(comm):
        if comm.rank == 0:
            await comm.bcast(bytes(512))
            await comm.barrier()
        else:
            await comm.bcast_pickle(allow_pickle=True)

    for end in world(2, main):
        assert isinstance(end, ucp.UCXRankFailed)
        assert "rank 0 has called another operation, rank 1 bcast_pickle" in str(end)


@pytest.mark.parametrize("steps", range(5))
def test_a_cancelled_collective_operation_ends_the_communicator(steps):
    async def main(comm):
        await comm.barrier()
        call = comm.allgather_pickle(np.arange(BIG), allow_pickle=True)
        if comm.rank == 1:
            for _ in range(steps):
                await asyncio.sleep(0)
            if call.cancel():
                with pytest.raises(asyncio.CancelledError):
                    await call
                assert comm.failure is not None
                return
        await call
        await comm.barrier()

    ends = world(3, main)
    assert ends[1] is None
    assert {type(end) for end in (ends[0], ends[2])} in (
        {type(None)},
        {ucp.UCXRankFailed},
    )


def test_a_signal_while_an_object_is_pickled_ends_the_communicator(caplog):
    class Interrupts:
        def __reduce__(self):
            raise KeyboardInterrupt

    async def main(comm):
        obj = Interrupts() if comm.rank == 1 else None
        try:
            return await comm.bcast_pickle(obj, 1, allow_pickle=True)
        except KeyboardInterrupt:
            return comm.failure

    for end in world(2, main):
        assert isinstance(end, ucp.UCXRankFailed)
        assert "rank 1 has left bcast_pickle: KeyboardInterrupt" in str(end)
    gc.collect()
    assert caplog.records == []  # the caller has the exception


def test_a_rank_that_is_killed_ends_the_operations_of_the_others():
    source = """
    async def main():
        comm = await connect()
        print("ready", flush=True)
        await comm.barrier()
        obj = np.arange(3_000_000)
        try:
            while True:
                await comm.allgather_pickle(obj, allow_pickle=True)
                print("done", flush=True)
        except ucp.UCXRankFailed as exc:
            print(exc.rank, flush=True)
        comm.close()
    asyncio.run(main())
    """
    with Ranks(3, source) as ranks:
        for rank in range(3):
            assert ranks.line(rank) == "ready"
        for rank in range(3):
            assert ranks.line(rank) == "done"
        ranks.processes[1].send_signal(signal.SIGKILL)
        assert ranks.end(0).split("\n")[-1] == "1"
        assert ranks.end(2).split("\n")[-1].isdigit()


@pytest.mark.parametrize("count", [10, LONG // 6, BIG])
def test_a_rank_may_leave_after_its_last_object(count):
    async def main(comm):
        obj = [np.arange(count), comm.rank]
        got = await comm.gather_pickle(obj, allow_pickle=True)
        if comm.rank == 0:
            assert same(got, [[np.arange(count), rank] for rank in range(comm.size)])
            return
        await comm.send_pickle(obj, 0)
        comm.close()

    async def and_root(comm):
        await main(comm)
        if comm.rank == 0:
            for _ in range(1, comm.size):
                await comm.recv_pickle(allow_pickle=True)

    good_world(4, and_root)


def test_operations_after_close_raise():
    async def main(comm):
        await comm.send_pickle(np.arange(10), comm.rank)
        await comm.recv_pickle(allow_pickle=True)
        comm.close()
        comm.close()
        await raises(comm.bcast_pickle(1), ucp.UCXCloseError, "closed")
        with pytest.raises(ucp.UCXCloseError):
            await comm.send_pickle(1, 0)

    good_world(1, main)


def test_nothing_is_left_alive():
    async def use(comm):
        sending = comm.send_pickle(np.arange(BIG), 0)
        await comm.recv_pickle(**YES)
        await sending
        await comm.allgather_pickle([1], **YES)
        await raises(comm.bcast_pickle(NotPickled()), CANNOT_PICKLE, "no")
        sending = comm.send_pickle(NotUnpickled(), 0)
        await raises(comm.recv_pickle(**YES), CANNOT_UNPICKLE, "broken")
        await sending
        await cancelled(comm.recv_pickle(**YES))
        await cancelled(comm.send_pickle(np.arange(BIG), 0))

    def operations():
        gc.collect()
        return sum(isinstance(one, Operation) for one in gc.get_objects())

    def alive():
        return operations(), live_objects()

    async def main(comm):
        await use(comm)  # which makes the communicator of frames
        while operations():  # a cancelled one ends in a later turn of the loop
            await asyncio.sleep(0)
        before = alive()
        for _ in range(5):
            await use(comm)
        while operations():
            await asyncio.sleep(0)
        assert alive() == before

    good_world(1, main)  # makes the context
    before = alive()
    good_world(1, main)
    assert alive() == before
