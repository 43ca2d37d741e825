# SPDX-License-Identifier: BSD-3-Clause
"""Light futures where memory is short, the collector runs, or a process forks."""

# tests: ext/thread_future

import textwrap
import threading

import pytest
from script import run_script
from worlds import free_root

import ucp
import ucp.sync

PRELUDE = """
import concurrent.futures, gc, os, signal, sys, warnings
import ucp, ucp.sync
signal.alarm(40)
warnings.simplefilter("ignore")

def ask(comm):
    receiving, sending = comm.irecv(bytearray(1), 0, 5), comm.isend(b"x", 0, 5)
    receiving.cancelled(), receiving.done(), receiving.test()
    assert receiving.result(20).nbytes == 1
    assert sending.result(20) is receiving.exception() is None

def complete(comm):
    receiving, told = comm.irecv(bytearray(1), 0, 5), []
    receiving.add_done_callback(told.append)
    sending = comm.isend(b"x", 0, 5)
    assert len(concurrent.futures.wait([receiving, sending], 20).done) == 2
    assert receiving.result(20).nbytes == 1 and told == [receiving]

def cancel(comm):
    receiving = comm.irecv(bytearray(1), 0, 6)
    receiving.cancel()
    try:
        receiving.result(20)
    except concurrent.futures.CancelledError:
        pass

def drop(comm):
    receiving = comm.irecv(bytearray(1), 0, 6)
    receiving.itself = receiving
    comm.isend(b"x", 0, 7)
    comm.recv(bytearray(1), 0, 7, timeout=20)

def fail(comm):
    comm.send(b"long", 0, 5)
    receiving = comm.irecv(bytearray(1), 0, 5)
    for ask in receiving.result, receiving.exception:
        try:
            ask(20)
        except ucp.UCXMsgTruncated:
            pass

def check(comm):
    "Nothing is left that would take a message."
    gc.collect()
    while (status := comm.iprobe()) is not None:
        comm.recv(bytearray(status.nbytes), status.source, status.tag, timeout=20)
    for tag in range(4, 8):
        got = bytearray(1)
        comm.send(bytes([tag]), 0, tag)
        comm.recv(got, 0, tag, timeout=20)
        assert got[0] == tag

def connect():
    return ucp.sync.Communicator.connect(ROOT, 0, 1, 20)
"""


def run(source, **options):
    prelude = f"ROOT = {free_root()!r}\n{PRELUDE}"
    return run_script(prelude + textwrap.dedent(source), **options)


def test_there_may_be_no_memory():
    """Each of the first allocations of Python fails, in turn. CPython itself raises
    SystemError where there is none for a frame."""
    pytest.importorskip("_testcapi")
    source = """
    import _testcapi
    sys.unraisablehook = lambda _: None

    def begin(function, comm, failing):
        gc.disable()
        _testcapi.set_nomemory(failing, failing + 1)
        try:
            function(comm)
        except (MemoryError, SystemError):
            return True
        finally:
            _testcapi.remove_mem_hooks()
            gc.enable()
        return False

    with connect() as comm:
        for function in ask, cancel, drop, fail:
            function(comm)
            failed = 0
            for failing in range(60):
                failed += begin(function, comm, failing)
                check(comm)
            assert failed > 5, (function, failed)
    print("done")
    """
    assert run(source) == "done\n"


def test_the_collector_may_run_at_any_allocation():
    source = """
    with connect() as comm:
        gc.set_threshold(1, 1, 1)
        for _ in range(3):
            for function in ask, complete, cancel, drop, fail:
                function(comm)
        gc.set_threshold(700, 10, 10)
        check(comm)
    print("done")
    """
    assert run(source) == "done\n"


def test_a_child_ends_without_its_parents_futures():
    source = """
    with connect() as comm:
        got = bytearray(1)
        waiting, other = comm.irecv(got, 0, 2), comm.irecv(bytearray(1), 0, 3)
        if os.fork() == 0:
            for ask in waiting.result, waiting.exception:
                try:
                    ask(20)
                except ucp.UCXCloseError:
                    pass
                else:
                    os._exit(1)
            other.cancel()
            del waiting, other
            gc.collect()
            os._exit(0)
        assert os.wait()[1] == 0
        comm.send(b"y", 0, 2)
        comm.send(b"z", 0, 3)
        assert waiting.result(20).nbytes == other.result(20).nbytes == 1
        assert got == b"y"
    print("done")
    """
    assert run(source) == "done\n"


@pytest.mark.parametrize("is_complete", [False, True])
def test_another_thread_cancels_what_a_thread_waits_for(is_complete):
    with ucp.sync.Communicator.connect(free_root(), 0, 1, 20) as comm:
        for tag in range(50):
            got = bytearray(8)
            future = comm.irecv(got, 0, tag)
            if is_complete:
                future.add_done_callback(lambda done: None)
            canceller = threading.Thread(target=future.cancel)
            canceller.start()
            try:
                future.result(20)
            except BaseException as exc:
                end = exc
            canceller.join()
            assert type(end).__name__ == "CancelledError"
            got[:] = b"poisoned"
            got.append(0)  # nobody has it any more
            comm.send(bytes(8), 0, tag)
            comm.recv(bytearray(8), 0, tag, timeout=20)
            assert got == b"poisoned\0"
