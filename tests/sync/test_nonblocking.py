# SPDX-License-Identifier: BSD-3-Clause
"""Operations of threads that begin, and their futures."""

# tests: ucp/futures ucp/blocking ucp/reductions ext/thread_future

import asyncio
import concurrent.futures
import gc
import inspect
import threading
import weakref

import numpy as np
import pytest
from worlds import free_root, sync_world

import ucp
import ucp.sync
from ucp.sync import testall, testany, waitall, waitany

# pytest takes them for tests.
is_all_done, first_done = testall, testany
del testall, testany

BIG = 300_000
YES = {"allow_pickle": True}


@pytest.fixture
def comm():
    with ucp.sync.Communicator.connect(free_root(), 0, 1, 20) as comm:
        yield comm


def test_each_collective_operation_begins():
    def main(comm):
        rank, size = comm.rank, comm.size
        own = np.full(4, rank, "i8")
        array = own.copy() if rank == 1 else np.zeros(4, "i8")
        all_of = [np.zeros(4 * size, "i8") for _ in range(5)]
        part, total, sums = np.zeros(4, "i8"), np.zeros(4, "i8"), own.copy()
        scanned, before = np.zeros(4, "i8"), own.copy()
        excluded, scattered = np.zeros(4, "i8"), np.zeros(4, "i8")
        counts = [4] * size
        many = np.repeat(np.arange(size, dtype="i8") + 10 * rank, 4)
        begun = [
            comm.ibarrier(),
            comm.ibcast(array, 1),
            comm.igather(own, all_of[0] if rank == 1 else None, 1),
            comm.iscatter(many if rank == 1 else None, part, 1),
            comm.iallgather(own, all_of[1]),
            comm.iallgatherv(own, all_of[2], counts),
            comm.ialltoall(many, all_of[3]),
            comm.ialltoallv(many, counts, all_of[4], counts),
            comm.ialltoall_buffers([bytes([rank, r]) for r in range(size)]),
            comm.ireduce(own, total if rank == 1 else None, "max", 1),
            comm.iallreduce(sums, "sum"),
            comm.iscan(own, scanned),
            comm.iscan(before, "max"),
            comm.iexscan(own, excluded),
            comm.ireduce_scatter(many, scattered, counts=counts),
        ]
        ends = waitall(begun)
        everything = np.repeat(np.arange(size), 4)
        assert (array == 1).all()
        if rank == 1:
            assert (all_of[0] == everything).all()
            assert (total == size - 1).all()
        assert (part == 10 + rank).all()
        for got in all_of[1:3]:
            assert (got == everything).all()
        for got in all_of[3:]:
            assert (got == everything * 10 + rank).all()
        assert [bytes(one) for one in ends[8]] == [
            bytes([r, rank]) for r in range(size)
        ]
        assert (sums == 3).all()
        assert (scanned == [0, 1, 3][rank]).all()
        assert (before == rank).all()
        assert (excluded == [0, 0, 1][rank]).all()
        assert (scattered == 3 * rank + 30).all()

    sync_world(3, main)


def test_each_operation_on_objects_begins():
    def main(comm):
        rank, size = comm.rank, comm.size
        big = np.full(BIG, rank)
        to, source = (rank + 1) % size, (rank - 1) % size
        got = np.empty_like(big)
        begun = [
            comm.ibcast_pickle(big, 1, **YES),
            comm.igather_pickle(rank, 1, **YES),
            comm.iscatter_pickle("abc" if rank == 1 else None, 1, **YES),
            comm.iallgather_pickle([rank, big], **YES),
            comm.ialltoall_pickle([[rank, r] for r in range(size)], **YES),
            comm.ireduce_pickle(rank, max, 1, **YES),
            comm.iallreduce_pickle(rank, **YES),
            comm.iscan_pickle(rank, **YES),
            comm.iexscan_pickle(rank, **YES),
            comm.isendrecv(big, to, got, source, 5, 5),
            comm.isend_pickle(big, to, 6),
            comm.irecv_pickle(source, 6, **YES),
        ]
        ends = waitall(begun)
        assert (ends[0] == 1).all()
        assert ends[1] == ([0, 1, 2] if rank == 1 else None)
        assert ends[2] == "abc"[rank]
        assert [(r, int(array[-1])) for r, array in ends[3]] == [(0, 0), (1, 1), (2, 2)]
        assert ends[4] == [[r, rank] for r in range(size)]
        assert ends[5] == (2 if rank == 1 else None)
        assert ends[6:9] == [3, [0, 1, 3][rank], [None, 0, 1][rank]]
        assert ends[9].nbytes == got.nbytes
        assert (got == source).all()
        assert ends[10] is None
        assert (ends[11] == source).all()

    sync_world(3, main)


def test_each_operation_has_one_that_begins():
    """With the same arguments, but for ``timeout``."""
    kind = ucp.sync.Communicator
    other = {"split", "dup", "create", "probe", "mprobe", "mrecv"}
    for name, method in inspect.getmembers(kind, inspect.isfunction):
        parameters = dict(inspect.signature(method).parameters)
        if parameters.pop("timeout", None) is None or name in other:
            continue
        if name.startswith("_") or inspect.ismethod(getattr(kind, name)):
            continue
        begins = dict(inspect.signature(getattr(kind, f"i{name}")).parameters)
        assert [*parameters] == [*begins], name
        for each in parameters:
            assert parameters[each].default == begins[each].default, (name, each)
            assert parameters[each].kind == begins[each].kind, (name, each)


def test_results_come_in_any_order_of_asking():
    def main(comm):
        begun = [comm.iallgather_pickle((i, comm.rank), **YES) for i in range(20)]
        for i in reversed(range(20)):
            assert begun[i].wait(20) == [(i, 0), (i, 1), (i, 2)]

    sync_world(3, main)


def test_operations_end_by_themselves():
    def main(comm):
        begun = [comm.iallreduce_pickle(i, **YES) for i in range(10)]
        concurrent.futures.wait(begun, 20)  # which makes no progress
        assert [future.result(0) for future in begun] == [2 * i for i in range(10)]

    sync_world(2, main)


def test_test_makes_progress(comm):
    future = comm.irecv_pickle(**YES)
    assert not future.test()
    comm.send_pickle("text", 0)
    while not future.test():
        pass
    assert future.result(0) == "text"


def test_a_result_whose_time_is_out_is_asked_for_again(comm):
    future = comm.irecv_pickle(**YES)
    for ask in (future.result, future.wait, future.exception):
        with pytest.raises(TimeoutError):
            ask(0.01)
    sending = comm.isend_pickle(np.arange(BIG), 0)
    assert (future.result(20) == np.arange(BIG)).all()
    assert sending.result(20) is None


def test_waitall_says_how_many_are_not_done(comm):
    futures = [comm.irecv(bytearray(1), tag=tag) for tag in range(3)]
    comm.send(b"x", 0, 1)
    with pytest.raises(
        ucp.UCXTimeout, match=r"^2 of 3 operations are not done within 0\.05 s$"
    ):
        waitall(futures, 0.05)
    comm.send(b"x", 0, 0)
    comm.send(b"x", 0, 2)
    assert [status.tag for status in waitall(futures, 20)] == [0, 1, 2]
    assert waitall([]) == []


def test_waitall_waits_for_all_before_it_raises(comm):
    short = comm.irecv(bytearray(1), tag=1)
    good = comm.irecv_pickle(tag=2, **YES)
    comm.send(b"long", 0, 1)
    threading.Timer(0.05, comm.send_pickle, ["text", 0, 2]).start()
    with pytest.raises(ucp.UCXMsgTruncated):
        waitall([short, good], 20)
    assert good.done()


def test_waitall_of_a_future_that_was_cancelled(comm):
    future = comm.irecv(bytearray(1))
    future.cancel()
    with pytest.raises(concurrent.futures.CancelledError):
        waitall([future], 20)


def test_waitany_returns_the_first_that_is_done(comm):
    futures = [comm.irecv(bytearray(1), tag=tag) for tag in range(3)]
    assert first_done(futures) is None
    with pytest.raises(
        ucp.UCXTimeout, match=r"^none of 3 operations is done within 0\.01 s$"
    ):
        waitany(futures, 0.01)
    threading.Timer(0.05, comm.send, [b"x", 0, 2]).start()
    assert waitany(futures, 20) == 2
    comm.send(b"x", 0, 0)
    assert waitany(futures, 20) == 0
    assert not is_all_done(futures)
    comm.send(b"x", 0, 1)
    assert waitall(futures, 20)[1].tag == 1
    assert is_all_done(futures)
    assert waitany([]) is None
    assert is_all_done([])


def test_a_cancelled_receive_of_an_object_loses_none(comm):
    future = comm.irecv_pickle(**YES)
    assert future.cancel()
    with pytest.raises(concurrent.futures.CancelledError):
        future.result(20)
    assert future.cancelled()
    assert not future.cancel()
    sending = comm.isend_pickle(np.arange(BIG), 0)
    assert (comm.recv_pickle(**YES) == np.arange(BIG)).all()
    sending.result(20)


def test_a_receive_that_is_dropped_takes_no_object(comm):
    with pytest.warns(
        RuntimeWarning, match=r"^ucp: what irecv_pickle\(\) returned was"
    ):
        comm.irecv_pickle(**YES)
    with pytest.warns(RuntimeWarning, match=r"^ucp: what isendrecv\(\) returned was"):
        comm.isendrecv(b"x", 0, bytearray(1), recv_tag=9)
    assert comm.recv(bytearray(1), timeout=20).nbytes == 1
    got = concurrent.futures.Future()
    comm.irecv_pickle(**YES).add_done_callback(lambda done: got.set_result(done))
    gc.collect()
    comm.send_pickle("text", 0)
    assert got.result(20).result() == "text"


@pytest.mark.parametrize("is_object", [False, True])
def test_a_cancelled_collective_operation_ends_the_communicator(is_object):
    def main(comm):
        if comm.rank == 0:
            begun = comm.iallgather_pickle(1, **YES) if is_object else comm.ibarrier()
            begun.cancel()
            with pytest.raises(concurrent.futures.CancelledError):
                begun.result(20)
        with pytest.raises(ucp.UCXRankFailed):
            comm.recv(bytearray(1), 1 - comm.rank)
        assert comm.failure is not None

    sync_world(2, main)


def test_several_threads_wait_for_a_future(comm):
    future = comm.irecv_pickle(**YES)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(future.result, 20) for _ in range(4)]
        comm.send_pickle([1], 0)
        got = [one.result(20) for one in waiting]
    assert got == [[1]] * 4
    assert all(one is got[0] for one in got)


def test_threads_have_operations_on_objects_under_way():
    def main(comm):
        failures = []

        def work(tag):
            try:
                for i in range(30):
                    if comm.rank == 0:
                        comm.isend_pickle((tag, i, np.full(BIG // 10, i)), 1, tag).wait(
                            20
                        )
                    else:
                        got = comm.irecv_pickle(0, tag, **YES).wait(20)
                        assert got[:2] == (tag, i)
                        assert (got[2] == i).all()
            except BaseException as exc:
                failures.append(exc)

        threads = [threading.Thread(target=work, args=[tag]) for tag in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        comm.barrier()

    sync_world(2, main)


def test_an_error_of_an_object_is_the_futures():
    def main(comm):
        future = comm.iallgather_pickle(threading.Lock() if comm.rank else 0, **YES)
        assert "rank 1 cannot pickle its object" in str(future.exception(20))
        with pytest.raises(ValueError, match=r"^irecv_pickle\(\) runs"):
            comm.irecv_pickle()
        comm.barrier()

    sync_world(2, main)


def test_a_closed_communicator_begins_nothing(comm):
    waiting = comm.irecv_pickle(**YES)
    comm.close()
    assert isinstance(waiting.exception(20), (ucp.UCXCanceled, ucp.UCXCloseError))
    assert waiting.test()
    with pytest.raises(ucp.UCXCloseError):
        comm.ibarrier().result(20)
    with pytest.raises(ucp.UCXCloseError):
        comm.ibcast_pickle(1).result(20)


def test_futures_that_are_dropped_go(comm):
    for _ in range(2):
        comm.send_pickle(np.arange(BIG // 100), 0)
        comm.irecv_pickle(**YES).result(20)
        gc.collect()
    futures = sum(
        isinstance(one, ucp._communicator.futures.OperationFuture)
        for one in gc.get_objects()
    )
    assert futures == 0


def test_a_dropped_receive_takes_no_message(comm):
    with pytest.warns(RuntimeWarning, match=r"irecv\(\) returned was dropped while"):
        comm.irecv(bytearray(1))
        gc.collect()
    comm.send(b"x", 0)
    kept = bytearray(1)
    comm.recv(kept, timeout=20)
    assert kept == b"x"


def test_a_receive_with_a_callback_is_not_dropped(comm):
    told = threading.Event()
    comm.irecv(bytearray(1)).add_done_callback(lambda future: told.set())
    gc.collect()
    comm.send(b"x", 0)
    assert told.wait(20)


def test_a_receive_that_is_done_is_dropped_quietly(comm):
    comm.send(b"x", 0)
    future = comm.irecv(bytearray(1))
    assert future.result(20).nbytes == 1
    del future
    gc.collect()


# ---- futures of one request, which are light until more is asked for -------------


def is_light(future):
    return "_condition" not in future.__dict__


def test_a_future_that_is_only_waited_for_stays_light(comm):
    receiving, sending = comm.irecv(bytearray(1)), comm.isend(b"x", 0)
    assert not receiving.cancelled()
    assert sending.result(20) is sending.wait() is None
    assert receiving.result(20) is receiving.result()
    assert receiving.result().nbytes == 1
    assert receiving.exception() is None
    assert receiving.done() and receiving.test()
    assert not receiving.cancel() and not receiving.cancelled()
    assert is_light(receiving) and is_light(sending)


@pytest.mark.parametrize("is_asked", [False, True])
def test_a_light_future_that_is_done_becomes_a_complete_one(comm, is_asked):
    comm.send(b"x", 0)
    future = comm.irecv(bytearray(1), 0)
    assert future.test() and is_light(future)
    status = future.result() if is_asked else None
    told = []
    future.add_done_callback(told.append)
    assert told == [future] and not is_light(future)
    assert future.result().nbytes == 1 and future.done() and not future.cancel()
    assert status is None or future.result() is status
    assert repr(future).endswith("state=finished returned Status>")


def test_a_light_future_that_waits_becomes_a_complete_one(comm):
    futures = [comm.irecv(bytearray(1), tag=tag) for tag in range(2)]
    assert repr(futures[0]).endswith("state=pending>")
    assert concurrent.futures.wait(futures, 0).not_done == set(futures)
    assert not futures[0].done() and not futures[0].running()
    comm.send(b"x", 0, 1)
    assert next(concurrent.futures.as_completed(futures, 20)) is futures[1]
    assert futures[1].result(20).tag == 1 and futures[1].test()
    assert futures[0].cancel() and futures[0].cancelled()
    with pytest.raises(concurrent.futures.CancelledError):
        futures[0].exception(20)


def test_the_outcome_of_a_light_future_stays_when_it_becomes_complete(comm):
    comm.send(b"long", 0)
    failed, cancelled = comm.irecv(bytearray(1)), comm.irecv(bytearray(1), tag=7)
    assert cancelled.cancel() and cancelled.cancel() and cancelled.cancelled()
    with pytest.raises(ucp.UCXMsgTruncated) as raised:
        failed.result(20)
    with pytest.raises(concurrent.futures.CancelledError):
        cancelled.result(20)
    assert is_light(failed) and is_light(cancelled)
    assert concurrent.futures.wait([failed, cancelled], 20).done == {failed, cancelled}
    assert failed.exception() is raised.value
    with pytest.raises(concurrent.futures.CancelledError):
        cancelled.exception()


def test_threads_that_wait_for_one_light_future_get_the_same(comm):
    future = comm.irecv(bytearray(1))
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(future.result, 20) for _ in range(3)]
        asked.append(pool.submit(concurrent.futures.wait, [future], 20))
        comm.send(b"x", 0)
        assert {id(each.result(20)) for each in asked[:3]} == {id(future.result())}
        assert asked[3].result(20).done == {future}


async def test_a_light_future_can_be_awaited_in_an_event_loop(comm):
    future = asyncio.wrap_future(comm.irecv(bytearray(1)))
    await asyncio.to_thread(comm.send, b"x", 0)
    assert (await asyncio.wait_for(future, 20)).nbytes == 1


def test_the_memory_of_a_future_that_is_done_is_free(comm):
    sent, received = bytearray(1), bytearray(1)
    futures = [comm.isend(sent, 0), comm.irecv(received)]
    assert futures[0].test() and futures[1].test()
    sent.append(1)
    received.append(1)


def test_a_message_that_was_received_comes_no_second_time(comm):
    got = bytearray(1)
    future = comm.irecv(got, tag=5)
    comm.send(b"x", 0, 5)  # done, and nobody asks
    del future
    gc.collect()
    assert got == b"x" and comm.iprobe(tag=5) is None


def test_a_send_whose_future_is_dropped_goes_on_quietly(comm, caplog):
    big = np.arange(BIG)
    for _ in range(2):
        comm.isend(big, 0, 3)
    gc.collect()
    got = np.empty_like(big)
    comm.recv(got, 0, 3, timeout=20)
    assert (got == big).all()
    comm.close()  # what has not gone fails
    assert caplog.text == ""


def test_a_collective_operation_whose_future_is_dropped_goes_on():
    def main(comm):
        if comm.rank == 0:
            comm.ibarrier()
            gc.collect()
            comm.send(b"x", 1)
        else:
            comm.recv(bytearray(1), 0, timeout=20)
            comm.ibarrier().result(20)
        return comm.allreduce_pickle(1, timeout=20, **YES)

    assert sync_world(2, main) == [2, 2]


def test_a_complete_receive_that_is_dropped_is_withdrawn(comm):
    future = comm.irecv(bytearray(1))
    assert not concurrent.futures.wait([future], 0).done
    with pytest.warns(RuntimeWarning, match=r"irecv\(\) returned was dropped while"):
        del future
    comm.send(b"x", 0)
    assert comm.recv(bytearray(1), timeout=20).nbytes == 1


def test_a_light_future_in_a_cycle_is_collected(comm):
    future = comm.irecv(bytearray(1))
    future.itself = future
    here = weakref.ref(future)
    del future
    with pytest.warns(RuntimeWarning, match=r"irecv\(\) returned was dropped while"):
        gc.collect()
    assert here() is None


def test_what_makes_light_futures_checks_its_arguments(comm):
    begin = comm._worker._begin
    with pytest.raises(TypeError, match=r"^_begin\(\) takes a type, a function and"):
        begin(int, print, print)
    with pytest.raises(TypeError, match=r"^the method gives no Request$"):
        begin(ucp._ext.ThreadFuture, print, len, "")
    with pytest.raises(TypeError, match=r"dest"):
        comm.isend(b"x")
    comm.close()
    with pytest.raises(ucp.UCXCloseError, match=r"^ucp was shut down meanwhile$"):
        comm.isend(b"x", 0)
