# SPDX-License-Identifier: BSD-3-Clause
# tests: ext/call ext/share ucp/blocking ucp/forward
"""``ucp.sync.Communicator``: calls that wait in the thread that makes them."""

import concurrent.futures
import contextlib
import gc
import inspect
import threading

import pytest
from objects import kept_objects
from paths import TESTS
from script import run_program, run_script
from worlds import Ranks, free_root, sync_world

import ucp
import ucp.sync
from ucp.testing import live_objects


@pytest.fixture
def comm():
    with ucp.sync.Communicator.connect(free_root(), 0, 1, 20) as comm:
        yield comm


def in_threads(functions):
    """Run each function in a thread; raise what one of them raises."""
    with concurrent.futures.ThreadPoolExecutor(len(functions)) as pool:
        for future in [pool.submit(function) for function in functions]:
            future.result()


def asleep(function):
    """The future of ``function`` in a thread, which most likely sleeps in it."""
    future = concurrent.futures.Future()

    def run():
        try:
            future.set_result(function())
        except BaseException as exc:
            future.set_exception(exc)

    threading.Thread(target=run).start()
    with pytest.raises(concurrent.futures.TimeoutError):
        future.result(0.1)
    return future


# ---- threads -------------------------------------------------------------------


def test_threads_of_a_rank_send_and_receive():
    """Each pair of threads has a tag; one receive in three begins as irecv()."""

    def main(comm):
        other = 1 - comm.rank

        def talk(tag):
            buffer = bytearray(4)
            for i in range(200):
                comm.send(i.to_bytes(4, "little"), other, tag)
                if i % 3 == 0:
                    comm.irecv(buffer, other, tag).result(20)
                else:
                    comm.recv(buffer, other, tag, timeout=20)
                assert int.from_bytes(buffer, "little") == i

        in_threads([lambda tag=tag: talk(tag) for tag in range(8)])
        comm.barrier()

    sync_world(2, main)


def test_threads_wait_for_each_other(comm):
    """The thread that sends is one of those that wait."""

    def pass_on(number):
        buffer = bytearray(1)
        for _ in range(100):
            comm.recv(buffer, tag=number, timeout=20)
            comm.send(buffer, 0, (number + 1) % 8)

    in_threads(
        [lambda: comm.send(b"x", 0, 0)]
        + [lambda number=number: pass_on(number) for number in range(8)]
    )
    assert comm.recv(bytearray(1), tag=0, timeout=20).nbytes == 1


def test_messages_in_a_race_with_timeouts_arrive_once(comm):
    count, received = 300, []

    def receive():
        buffer = bytearray(4)
        while len(received) < count:
            try:
                comm.recv(buffer, tag=1, timeout=0.0002)
            except ucp.UCXTimeout:
                continue
            received.append(int.from_bytes(buffer, "little"))

    def send():
        for i in range(count):
            comm.send(i.to_bytes(4, "little"), 0, 1)

    in_threads([send, receive])
    assert received == [*range(count)]


def test_threads_that_time_out_hand_over_to_those_that_stay(comm):
    def time_out():
        for _ in range(20):
            with pytest.raises(ucp.UCXTimeout):
                comm.recv(bytearray(1), tag=99, timeout=0.005)

    def stay(tag):
        comm.recv(bytearray(1), tag=tag, timeout=20)

    def send():
        for tag in range(4):
            time_out()
            comm.send(b"x", 0, tag)

    in_threads(
        [send, time_out, time_out] + [lambda tag=tag: stay(tag) for tag in range(4)]
    )


def test_ctrl_c_takes_no_message_and_other_threads_wait_on():
    out = run_script(
        f"""
        import os, signal, threading, time, ucp, ucp.sync
        comm = ucp.sync.Communicator.connect({free_root()!r}, 0, 1, 20)
        def other(tag):
            assert comm.recv(bytearray(1), tag=tag, timeout=20).tag == tag
        threads = [threading.Thread(target=other, args=[tag]) for tag in range(3)]
        def press():
            while not heard.wait(0.05):
                os.kill(os.getpid(), signal.SIGINT)
        heard = threading.Event()
        pressing = threading.Thread(target=press)
        def interrupt(_, frame):
            if frame.f_code is ucp.sync.Communicator.recv.__code__:
                heard.set()
                raise KeyboardInterrupt
        signal.signal(signal.SIGINT, interrupt)
        for thread in [*threads, pressing]:
            thread.start()
        try:
            comm.recv(bytearray(1), tag=5)
        except KeyboardInterrupt:
            print("interrupted")
        pressing.join()
        for tag in (0, 1, 2, 5):
            comm.send(b"x", 0, tag)
        for thread in threads:
            thread.join()
        assert comm.iprobe(tag=5) == (0, 5, 1)
        comm.close()
        """
    )
    assert out == "interrupted\n"


def test_close_ends_the_call_of_another_thread(comm):
    waiting = [asleep(lambda: comm.recv(bytearray(1))) for _ in range(3)]
    comm.close()
    for future in waiting:
        with pytest.raises((ucp.UCXCloseError, ucp.UCXCanceled)):
            future.result(20)
    with pytest.raises(ucp.UCXCloseError):
        comm.barrier()
    with pytest.raises(ucp.UCXCloseError):
        comm.isend(b"x", 0)
    with pytest.raises(ucp.UCXCloseError):
        comm.iprobe()


def test_a_signal_handler_may_call(comm):
    """Its call waits in the same thread, while that one's is under way."""
    out = run_script(
        f"""
        import signal, ucp, ucp.sync
        comm = ucp.sync.Communicator.connect({free_root()!r}, 0, 1, 20)
        def send(*_):
            comm.barrier()
            comm.send(b"x", 0)
        signal.signal(signal.SIGALRM, send)
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        print(comm.recv(bytearray(1), timeout=20).nbytes)
        comm.close()
        """
    )
    assert out == "1\n"


# ---- time ----------------------------------------------------------------------


def test_no_time_means_what_has_come(comm):
    text = r"^recv from rank 0 with tag 7: not done within 0 s$"
    with pytest.raises(ucp.UCXTimeout, match=text) as caught:
        comm.recv(bytearray(1), 0, 7, timeout=0)
    assert (caught.value.op, caught.value.late) == ("recv", ())
    text = r"^mprobe from any rank: not done within 0.01 s$"
    with pytest.raises(ucp.UCXTimeout, match=text):
        comm.mprobe(timeout=0.01)
    comm.send(b"x", 0)
    assert comm.recv(bytearray(1), timeout=0).nbytes == 1


def test_a_collective_operation_whose_time_runs_out_revokes():
    def main(comm):
        if comm.rank == 0:
            with pytest.raises(ucp.UCXTimeout):
                comm.barrier(timeout=0.01)
        with pytest.raises(ucp.UCXRankFailed, match="cancelled by rank 0"):
            comm.recv(bytearray(1), 1 - comm.rank, timeout=20)

    sync_world(2, main)


COMPUTES = """
import ucp.sync
done = os.environ["DONE_OF_TEST"]
rank = int(os.environ["RANK_OF_TEST"])
with ucp.sync.Communicator.connect(os.environ["ROOT_OF_TEST"], rank, 2, 30) as comm:
    big = np.ones(1_000_000)
    if rank == 0:
        sending = comm.isend(big, 1)
        while not os.path.exists(done):  # computes
            pass
        sending.result(20)
    else:
        comm.recv(big, 0, timeout=20)
        open(done, "w").close()
    print("served")
"""


@pytest.mark.parametrize("tls", [None, "tcp"])
def test_a_rank_that_computes_serves_the_others(tls, tmp_path, monkeypatch):
    monkeypatch.setenv("DONE_OF_TEST", str(tmp_path / "done"))
    if tls is not None:
        monkeypatch.setenv("UCX_TLS", tls)
    with Ranks(2, COMPUTES) as ranks:
        assert ranks.end(1) == ranks.end(0) == "served"


IDLE = """
import resource, threading, time, ucp.sync
IDLE = 2  # seconds

def cpu_seconds():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime

rank = int(os.environ["RANK_OF_TEST"])
with ucp.sync.Communicator.connect(os.environ["ROOT_OF_TEST"], rank, 2, 30) as comm:
    for _ in range(20):
        comm.barrier()
    pending = comm.irecv(bytearray(1), 1 - rank, 1)
    threads = [
        threading.Thread(target=comm.recv, args=[bytearray(1), 1 - rank, tag])
        for tag in (2, 3)
    ]
    for thread in threads:
        thread.start()
    time.sleep(0.3)  # lets what has begun end
    before = cpu_seconds()
    time.sleep(IDLE)
    used = cpu_seconds() - before
    for tag in (1, 2, 3):
        comm.send(b"x", 1 - rank, tag)
    pending.result(20)
    for thread in threads:
        thread.join()
    comm.barrier()
    print(used / IDLE)
"""


@pytest.mark.parametrize("tls", [None, "tcp"])
def test_threads_that_wait_use_no_cpu(tls, monkeypatch):
    if tls is not None:
        monkeypatch.setenv("UCX_TLS", tls)
    with Ranks(2, IDLE) as ranks:
        used = [float(ranks.end(rank)) for rank in range(2)]
    assert max(used) < 0.01, used


# ---- futures -------------------------------------------------------------------


def test_futures_are_those_of_the_standard_library(comm):
    first, second = (comm.irecv(bytearray(1), tag=tag) for tag in (1, 2))
    heard = []
    first.add_done_callback(heard.append)
    done, pending = concurrent.futures.wait([first, second], timeout=0)
    assert not done and pending == {first, second}
    comm.send(b"x", 0, 1)
    done, pending = concurrent.futures.wait(
        [first, second], 20, concurrent.futures.FIRST_COMPLETED
    )
    assert done == {first} and pending == {second} and heard == [first]
    comm.send(b"x", 0, 2)
    assert {*concurrent.futures.as_completed([first, second], 20)} == {first, second}
    assert second.exception() is None and second.result().tag == 2


def test_the_result_of_a_future_has_a_time_limit_of_its_own(comm):
    future = comm.irecv(bytearray(1))
    for ask in (future.result, future.exception):
        with pytest.raises(concurrent.futures.TimeoutError):
            ask(0.01)
    comm.send(b"x", 0)
    assert future.result(20).nbytes == 1


def test_a_cancelled_future_takes_no_message(comm):
    future = comm.irecv(bytearray(1))
    heard = []
    future.add_done_callback(heard.append)
    assert future.cancel() and future.cancelled() and heard == [future]
    assert concurrent.futures.wait([future], 20).done == {future}
    with pytest.raises(concurrent.futures.CancelledError):
        future.result(20)
    comm.send(b"x", 0)
    assert comm.recv(bytearray(1), timeout=20).nbytes == 1
    done = comm.isend(b"x", 0)
    done.result(20)
    assert not done.cancel()


def test_a_failure_is_the_futures(comm):
    comm.send(b"long", 0)
    future = comm.irecv(bytearray(1))
    with pytest.raises(ucp.UCXMsgTruncated):
        future.result(20)
    assert isinstance(future.exception(), ucp.UCXMsgTruncated)


def test_a_done_callback_may_call(comm):
    ends = []

    def on_done(future):
        comm.send(b"y", 0, 2)
        ends.append(comm.recv(bytearray(1), tag=2, timeout=20).tag)

    future = comm.irecv(bytearray(1), tag=1)
    future.add_done_callback(on_done)
    comm.send(b"x", 0, 1)
    assert concurrent.futures.wait([future], 20).done
    assert future.result(20).tag == 1
    assert ends == [2]


def test_close_ends_futures(comm):
    future = comm.irecv(bytearray(1))
    comm.close()
    assert isinstance(future.exception(20), ucp.UCXCloseError | ucp.UCXCanceled)


def test_exit_with_pending_futures_is_quiet():
    out = run_script(
        f"""
        import ucp.sync
        comm = ucp.sync.Communicator.connect({free_root()!r}, 0, 1, 20)
        pending = comm.irecv(bytearray(1))
        print(pending.done())
        """
    )
    assert out == "False\n"


# ---- how one is made and ends ----------------------------------------------------


def test_ranks_meet_by_other_means():
    parts, all_here = [b"", b""], threading.Barrier(2)

    def meet(rank):
        def allgather(own):
            parts[rank] = own
            all_here.wait(20)
            return parts

        make = ucp.sync.Communicator.from_allgather
        with make(rank, 2, allgather, 20) as comm:
            comm.barrier(timeout=20)

    in_threads([lambda: meet(0), lambda: meet(1)])


def test_ranks_meet_by_a_file_that_is_gone_afterwards(tmp_path):
    def meet(rank):
        root = f"file://{tmp_path}/root"
        with ucp.sync.Communicator.connect(root, rank, 2, 20) as comm:
            comm.barrier(timeout=20)

    in_threads([lambda: meet(0), lambda: meet(1)])
    assert [*tmp_path.iterdir()] == []


def test_those_that_do_not_come_are_named(tmp_path):
    before = kept_objects()
    with pytest.raises(ucp.UCXTimeout, match="there is no file"):
        ucp.sync.Communicator.connect(f"file://{tmp_path}/none", 1, 2, 0.1)
    with pytest.raises(ucp.UCXTimeout):
        ucp.sync.Communicator.connect(free_root(), 0, 2, 0.1)
    with pytest.raises(ValueError, match=r"^rank is -2; None is any$"):
        ucp.sync.Communicator.connect(free_root(), -2, 2, 0.1)
    gc.collect()
    assert live_objects()["workers"] == before["workers"]


def test_reset_names_a_communicator_that_is_open(comm):
    with pytest.raises(ucp.UCXError, match=r"of a ucp\.sync\.Communicator$"):
        ucp.reset()
    comm.barrier(timeout=20)


def test_nothing_is_left_of_one():
    ucp.get_ucp_context_info()  # makes the context
    gc.collect()
    before = kept_objects()
    for _ in range(3):
        with ucp.sync.Communicator.connect(free_root(), 0, 1, 20) as comm:
            pending = comm.irecv(bytearray(1))
            comm.split(0).close()
    del comm, pending
    gc.collect()
    assert live_objects() == before
    assert [t for t in threading.enumerate() if t.name == "ucp futures"] == []


def test_the_last_communicator_of_a_split_ends_the_worker():
    comm = ucp.sync.Communicator.connect(free_root(), 0, 1, 20)
    part = comm.split(0)
    comm.close()
    part.barrier(timeout=20)
    assert not part.closed()
    part.close()
    assert part.closed()


def test_a_forked_child_is_refused_and_has_ones_of_its_own():
    run_program(
        f"""
        import ucp.sync
        comm = ucp.sync.Communicator.connect(
            {free_root()!r}, 0, 1, 20, allow_pickle=True
        )
        pending = comm.irecv(bytearray(1), tag=1)
        waiting = threading.Thread(target=comm.recv, args=[bytearray(1), 0, 2])
        waiting.start()

        def child():
            for use in (
                comm.barrier,
                comm.iprobe,
                pending.result,
                lambda: comm.send_pickle(1, 0),
                comm.recv_pickle,
                comm.bcast_pickle,
                lambda: comm.allgather_pickle(1),
            ):
                try:
                    use()
                except ucp.UCXCloseError:
                    pass
                else:
                    raise AssertionError("not refused")
            comm.close()
            with ucp.sync.Communicator.connect({free_root()!r}, 0, 1, 20) as own:
                own.barrier()

        for _ in range(2):
            end_of(in_child(child))
        comm.send(b"x", 0, 1)
        comm.send(b"x", 0, 2)
        pending.result(20)
        waiting.join()
        comm.close()
        """
    )


# ---- the collector ---------------------------------------------------------------


def test_the_collector_may_run_at_any_time():
    out = run_script(
        f"""
        import sys
        sys.path.insert(0, {str(TESTS)!r})
        import gc, threading, numpy as np, ucp
        from worlds import sync_world

        def main(comm):
            gc.set_threshold(1, 1, 1)
            other = comm.size - 1 - comm.rank
            def receive():
                for _ in range(5):
                    comm.recv(np.zeros(3), other, 1, timeout=20)
            thread = threading.Thread(target=receive)
            thread.start()
            for length in (3, 20_000):
                one = np.ones(length)
                comm.allreduce(one, timeout=20)
                sending = comm.isend(one, other)
                comm.mrecv(comm.mprobe(other, 0, timeout=20), np.zeros(length))
                sending.result(20)
                comm.irecv(bytearray(1), tag=9).cancel()
                try:
                    comm.recv(bytearray(1), tag=9, timeout=0.001)
                except ucp.UCXTimeout:
                    pass
                comm.split(0).close()
            for _ in range(5):
                comm.send(np.ones(3), other, 1)
            thread.join()
            comm.barrier()

        sync_world(2, main)
        gc.set_threshold(700, 10, 10)
        print("done")
        """
    )
    assert out == "done\n"


def parameters_of(method):
    return list(inspect.signature(method).parameters.values())[1:]  # after self


@pytest.mark.parametrize(
    ("kind", "asynchronous"),
    [(ucp.sync.Communicator, ucp.Communicator), (ucp.sync.Endpoint, ucp.Endpoint)],
)
def test_methods_that_wait_have_the_arguments_of_those_that_do_not(kind, asynchronous):
    waiting = [
        method
        for name, method in inspect.getmembers(kind, inspect.isfunction)
        if name[0] != "_"
        and "timeout" in inspect.signature(method).parameters
        and name not in ("close", "mrecv", "recv_into")
    ]
    assert len(waiting) >= 4
    for method in waiting:
        *own, timeout = parameters_of(method)
        assert (timeout.name, timeout.default) == ("timeout", None)
        assert timeout.kind is timeout.KEYWORD_ONLY
        other = parameters_of(getattr(asynchronous, method.__name__))
        names = {each.name for each in own}
        others = [each for each in other if each.name in names]  # it may have more
        assert [(each.name, each.kind) for each in own] == [
            (each.name, each.kind) for each in others
        ]
        defaults = [each.default for each in own]
        assert defaults == [each.default for each in others], method
        assert method.__doc__ and method.__annotations__["return"]


def test_what_is_missing_is_named_and_a_traceback_shows_the_method(comm):
    with pytest.raises(TypeError, match=r"^Communicator.send\(\) missing 1 .*'dest'"):
        comm.send(b"x")
    with pytest.raises(TypeError) as caught:
        comm.bcast(None)
    frame = caught.traceback[1]
    assert (frame.name, frame.path.name) == ("bcast", "_communicator.py")


def test_every_exception_has_the_attributes_of_its_class():
    exc = ucp.UCXRankFailed("why")
    assert (exc.rank, exc.op_id, exc.cause, exc.late) == (None, None, None, ())
    assert ucp.UCXTimeout("why").late == ()


def wait_until_it_fails(comm):
    with contextlib.suppress(ucp.UCXRankFailed):
        while True:
            comm.iprobe()


def test_a_timeout_names_the_ranks_that_had_not_come():
    """On the rank whose time runs out, and on the others."""
    text = "rank 2 had not come to it"

    def main(comm):
        if comm.rank == 1:
            match = f"^barrier: not done within 1 s; {text}$"
            with pytest.raises(ucp.UCXTimeout, match=match) as caught:
                comm.barrier(timeout=1)
            assert caught.value.late == (2,)
        else:
            if comm.rank == 2:
                wait_until_it_fails(comm)
            with pytest.raises(ucp.UCXRankFailed) as failed:
                comm.barrier()
            exc = failed.value
            assert (exc.rank, exc.late) == (1, (2,))
            assert str(exc) == f"barrier (operation 1): cancelled by rank 1; {text}"
        assert comm.failure.late == (2,)

    sync_world(3, main)


def test_a_timeout_of_several_operations_names_the_call():
    def main(comm):
        if comm.rank == 0:
            with pytest.raises(ucp.UCXTimeout) as caught:
                comm.allgather_pickle(1, allow_pickle=True, timeout=1)
            text = "allgather_pickle: not done within 1 s; rank 1 had not come to it"
            assert (str(caught.value), caught.value.late) == (text, (1,))
        else:
            wait_until_it_fails(comm)

    sync_world(2, main)
