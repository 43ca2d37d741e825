# SPDX-License-Identifier: BSD-3-Clause
"""Python objects between ranks that have no event loop."""

# tests: ucp/operations ucp/steps

import pickle
import threading

import numpy as np
import pytest
from worlds import Ranks, sync_world

import ucp

BIG = 300_000
YES = {"allow_pickle": True}


def text_of(array):
    return f"{array.dtype} {array.sum()}"


def test_each_operation_on_objects():
    def main(comm):
        rank, size = comm.rank, comm.size
        own = [rank, "text"]
        of_all = [[r, "text"] for r in range(size)]
        return [
            comm.bcast_pickle(own, 1, **YES) == of_all[1],
            comm.gather_pickle(own, 1, **YES) == (of_all if rank == 1 else None),
            comm.scatter_pickle(of_all if rank == 1 else None, 1, **YES) == own,
            comm.allgather_pickle(own, **YES) == of_all,
            comm.alltoall_pickle([[rank, r] for r in range(size)], **YES)
            == [[r, rank] for r in range(size)],
            comm.reduce_pickle(rank, "sum", 1, **YES) == (3 if rank == 1 else None),
            comm.allreduce_pickle(rank, **YES) == 3,
            comm.scan_pickle(rank, max, **YES) == rank,
            comm.exscan_pickle(rank, **YES) == [None, 0, 1][rank],
        ]

    assert sync_world(3, main) == [[True] * 9] * 3


def test_large_buffers_in_objects():
    def main(comm):
        own = np.full(BIG, comm.rank)
        got = comm.allgather_pickle({"array": own}, **YES)
        assert [int(one["array"].sum()) for one in got] == [0, BIG, 2 * BIG]
        if comm.rank == 0:
            comm.send_pickle([own, "x" * BIG], 1, 4)
        elif comm.rank == 1:
            (array, text), status = comm.recv_pickle(0, 4, with_status=True, **YES)
            assert (array.sum(), len(text)) == (0, BIG)
            assert (status.source, status.tag) == (0, 4)
            assert status.nbytes > 9 * BIG

    sync_world(3, main)


def test_pickles_are_received_only_if_asked_for():
    def main(comm):
        with pytest.raises(ValueError, match="allow_pickle=True"):
            comm.recv_pickle()
        with pytest.raises(ValueError, match="allow_pickle=True"):
            comm.allgather_pickle(1)

    sync_world(1, main)


def test_an_object_that_cannot_be_pickled_is_named_on_every_rank():
    def main(comm):
        own = threading.Lock() if comm.rank == 1 else 0
        with pytest.raises(
            pickle.PicklingError, match=r"^rank 1 cannot pickle its object: TypeError"
        ):
            comm.allgather_pickle(own, **YES)
        assert comm.allreduce_pickle(1, **YES) == 3

    sync_world(3, main)


def test_a_receive_whose_time_is_out_loses_no_object():
    def main(comm):
        if comm.rank == 1:
            text = r"^recv_pickle from any rank: not done within 0\.01 s$"
            with pytest.raises(ucp.UCXTimeout, match=text):
                comm.recv_pickle(timeout=0.01, **YES)
        comm.barrier()
        if comm.rank == 0:
            comm.send_pickle(np.arange(BIG), 1)
            return
        got = None
        while got is None:
            try:
                got = comm.recv_pickle(timeout=0, **YES)
            except ucp.UCXTimeout:
                continue
        assert np.array_equal(got, np.arange(BIG))

    sync_world(2, main)


def test_a_send_whose_time_is_out_is_withdrawn():
    def main(comm):
        if comm.rank == 0:
            with pytest.raises(ucp.UCXTimeout, match="not done within"):
                comm.send_pickle(np.arange(BIG), 1, timeout=0.01)
        comm.barrier()
        if comm.rank == 0:
            comm.send_pickle("next", 1)
            return None
        return comm.recv_pickle(**YES)

    assert sync_world(2, main)[1] == "next"


def test_a_collective_operation_whose_time_is_out_ends_the_communicator():
    def main(comm):
        if comm.rank == 0:
            with pytest.raises(ucp.UCXTimeout):
                comm.allgather_pickle(0, timeout=0.05, **YES)
        with pytest.raises(ucp.UCXRankFailed):
            comm.recv_pickle(1 - comm.rank, **YES)
        assert comm.failure is not None

    sync_world(2, main)


def test_threads_send_objects_at_the_same_time():
    def main(comm):
        count, failures = 20, []

        def work(tag):
            try:
                for i in range(count):
                    if comm.rank == 0:
                        comm.send_pickle([tag, i, np.full(BIG // 10, tag)], 1, tag)
                    else:
                        got = comm.recv_pickle(0, tag, **YES)
                        assert got[:2] == [tag, i]
                        assert (got[2] == tag).all()
            except BaseException as exc:
                failures.append(exc)

        threads = [threading.Thread(target=work, args=[tag]) for tag in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        comm.barrier()
        assert failures == []

    sync_world(2, main)


@pytest.mark.parametrize("call", ["bcast_pickle", "scatter_pickle"])
def test_ctrl_c_during_an_object_operation_ends_the_communicator(call):
    source = """
    import threading
    from ucp._communicator import steps
    rank = int(os.environ["RANK_OF_TEST"])
    comm = ucp.sync.Communicator.connect(os.environ["ROOT_OF_TEST"], rank, 2)
    heard = threading.Event()
    def press():
        while not heard.wait(0.05):
            os.kill(os.getpid(), signal.SIGINT)
    def interrupt(_, frame):
        if frame.f_code in (steps.run.__code__, steps.wait.__code__):
            heard.set()
            raise KeyboardInterrupt
    signal.signal(signal.SIGINT, interrupt)
    if rank == 0:
        threading.Thread(target=press).start()
    try:
        if rank == 0:
            comm.CALL(root=1, allow_pickle=True)
        else:
            comm.recv(bytearray(1), 0)
    except KeyboardInterrupt:
        print("interrupted", comm.failure is not None, flush=True)
    except ucp.UCXRankFailed as exc:
        print("failed", exc.rank, flush=True)
    comm.close()
    """
    with Ranks(2, source.replace("CALL", call)) as ranks:
        assert ranks.end(0) == "interrupted True"
        assert ranks.end(1) == "failed 0"
