# SPDX-License-Identifier: BSD-3-Clause
# tests: ucp/ending ext/close_all
"""Programs that end without ``close()``."""

import subprocess
import sys
import textwrap

import pytest
from worlds import Ranks

pytestmark = pytest.mark.real_start

CONNECT = """
import ucp.sync
rank, size = int(os.environ["RANK_OF_TEST"]), int(os.environ["SIZE_OF_TEST"])
comm = ucp.sync.Communicator.connect(os.environ["ROOT_OF_TEST"], rank, size, 30)
def failed(call, *args):
    try:
        call(*args)
    except ucp.UCXRankFailed as exc:
        print(exc.rank, exc)
"""


def ends(size, source):
    """What each rank prints; all end well."""
    with Ranks(size, CONNECT + textwrap.dedent(source)) as ranks:
        return [ranks.end(rank) for rank in range(size)]


def test_all_end_well_after_one_operation():
    source = """
    array = np.ones(4)
    comm.allreduce(array)
    print(array.sum())
    """
    assert ends(4, source) == ["16.0"] * 4


def test_all_end_well_after_one_operation_of_an_event_loop():
    source = """
    async def main():
        comm = await connect()
        await comm.barrier()
        {keep}
    asyncio.run(main())
    """
    for keep in ("", "globals()['kept'] = comm"):  # dropped; closed with the loop
        text = textwrap.dedent(source.format(keep=keep))
        with Ranks(4, text) as ranks:
            assert [ranks.end(rank) for rank in range(4)] == [""] * 4


def test_who_needs_a_rank_that_has_ended_is_told_that_it_has_left():
    source = """
    if rank == 0:
        failed(comm.barrier)
    """
    assert ends(2, source) == ["1 rank 1 has left the communicator", ""]


FAILING = """
    if rank == 1:
        sys.stderr = open(os.devnull, "w")
        {how}
    failed(comm.barrier)
    """


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ("raise ValueError('boom')", "has aborted the communicator: ValueError: boom"),
        ("raise KeyboardInterrupt", "has aborted the communicator: KeyboardInterrupt"),
        ("sys.exit(42)", "has left the communicator"),
        ("sys.exit()", "has left the communicator"),
    ],
)
def test_an_exception_that_nothing_has_caught_is_told(how, text):
    source = CONNECT + textwrap.dedent(FAILING.format(how=how))
    with Ranks(2, source) as ranks:
        assert ranks.end(0) == f"1 rank 1 {text}"
        ranks.processes[1].communicate(timeout=40)


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ("raise ValueError('boom')", "has aborted the communicator: ValueError: boom"),
        ("sys.exit(42)", "has aborted the communicator: SystemExit: 42"),
        ("sys.exit()", "has left the communicator"),
    ],
)
def test_an_exception_that_ends_the_event_loop_is_told(how, text):
    source = f"""
    async def main():
        global comm
        comm = await connect()
        if comm.rank == 1:
            sys.stderr = open(os.devnull, "w")
            {how}
        try:
            await comm.barrier()
        except ucp.UCXRankFailed as exc:
            print(exc.rank, exc)
    asyncio.run(main())
    """
    with Ranks(2, source) as ranks:
        assert ranks.end(0) == f"1 rank 1 {text}"
        ranks.processes[1].communicate(timeout=40)


def test_an_exception_that_is_handled_outside_of_the_loop_is_none_of_the_loops():
    source = """
    async def main():
        global comm
        comm = await connect()
        await comm.barrier()
        if comm.rank == 0:
            try:
                await comm.barrier()
            except ucp.UCXRankFailed as exc:
                print(exc)
    try:
        raise ValueError
    except ValueError:
        asyncio.run(main())
    """
    with Ranks(2, source) as ranks:
        assert ranks.end(0) == "rank 1 has left the communicator"
        assert ranks.end(1) == ""


def test_an_exception_of_a_thread_does_not_end_the_program():
    source = """
    import threading
    if rank == 1:
        threading.excepthook = lambda args: None
        thread = threading.Thread(target=lambda: 1 / 0)
        thread.start()
        thread.join()
    else:
        failed(comm.barrier)
    """
    assert ends(2, source) == ["1 rank 1 has left the communicator", ""]


def test_a_thread_that_waits_does_not_keep_the_program():
    source = """
    import threading
    threading.excepthook = lambda args: None
    comm.barrier()
    threading.Thread(target=comm.recv, args=[bytearray(1)], daemon=True).start()
    """
    assert ends(2, source) == ["", ""]


def test_a_child_does_not_end_its_parents_communicator():
    source = """
    comm.barrier()
    if os.fork() == 0:
        sys.exit()
    assert os.wait()[1] == 0
    comm.barrier()
    """
    assert ends(2, source) == ["", ""]


def test_a_rank_that_is_stopped_does_not_keep_the_others():
    source = """
    comm.barrier()
    print("here", flush=True)
    sys.stdin.read()
    """
    with Ranks(2, CONNECT + textwrap.dedent(source)) as ranks:
        assert [ranks.line(0), ranks.line(1)] == ["here", "here"]
        ranks.processes[0].send_signal(19)  # SIGSTOP
        assert ranks.end(1) == ""


def test_layers_are_left_before_their_communicator():
    source = """
    heap = ucp.sync.SymmetricHeap.create(comm, 1 << 16)
    x = heap.zeros(8)
    heap.put_nbi(x, np.full(8, float(rank + 1)), 1 - rank)
    heap.barrier_all()
    closed = []
    for cls in (ucp.sync.SymmetricHeap, ucp.sync.Communicator):
        def leave(self, exc, end, cls=cls, leave=cls._exit):
            closed.append(cls.__name__)
            leave(self, exc, end)
            print(*closed, float(x.local[0]), flush=True)
        cls._exit = leave
    """
    assert ends(2, source) == [
        f"SymmetricHeap {other}\nSymmetricHeap Communicator {other}"
        for other in (2.0, 1.0)
    ]


def test_what_was_put_arrives_before_a_heap_is_left():
    source = """
    heap = ucp.sync.SymmetricHeap.create(comm, 1 << 20)
    x, flag = heap.zeros(1000), heap.zeros(1, "u8")
    heap.barrier_all()
    if rank == 1:
        heap.put_signal_nbi(x, np.ones(1000), 0, flag, 1)
    else:
        flag.wait_until(">=", 1, timeout=30)
        print(x.local.sum())
    """
    assert ends(2, source) == ["1000.0", ""]


def test_an_exception_is_told_where_a_heap_is_open():
    source = CONNECT + textwrap.dedent(
        """
        heap = ucp.sync.SymmetricHeap.create(comm, 1 << 16)
        comm.barrier()
        if rank == 1:
            sys.stderr = open(os.devnull, "w")
            raise ValueError("boom")
        failed(comm.barrier)
        """
    )
    with Ranks(2, source) as ranks:
        text = "1 rank 1 has aborted the communicator: ValueError: boom"
        assert ranks.end(0) == text
        ranks.processes[1].communicate(timeout=40)


def test_groups_of_experts_are_left():
    source = """
    import ucp.moe
    buffer = ucp.moe.SyncBuffer.create(comm, 4, 8, 128, "float32")
    comm.barrier()
    """
    assert ends(2, source) == ["", ""]


def test_nothing_is_said_where_nothing_was_made():
    done = subprocess.run(
        [sys.executable, "-P", "-c", "import ucp.sync"],
        capture_output=True,
        text=True,
        timeout=40,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
