# SPDX-License-Identifier: BSD-3-Clause
# tests: ucp/shmem
"""``ucp.sync.SymmetricHeap``."""

import threading

import numpy as np
import pytest
from worlds import Ranks, sync_world

import ucp
from ucp.sync import SymmetricArray, SymmetricHeap


def heaps(size, main, nbytes=1 << 20):
    """What ``main(heap)`` returns on each rank."""

    def run(comm):
        with SymmetricHeap.create(comm, nbytes, timeout=20) as heap:
            return main(heap)

    return sync_world(size, run)


def test_calls_return_when_they_have_ended():
    def main(heap):
        assert (heap.num_pes, heap.nbytes, heap.my_pe) == (2, 1 << 20, heap.comm.rank)
        x, signal = heap.zeros(1000, "i8"), heap.zeros(1, "u8")
        assert isinstance(x, SymmetricArray)
        assert repr(x) == "<ucp.sync.SymmetricArray int64 (1000,) at offset 0>"
        pe = 1 - heap.my_pe
        assert heap.addr_accessible(x, pe)
        assert heap.pe_accessible(pe)
        assert heap.is_mapped(pe)
        for round in range(1, 100):
            heap.put_signal(x, np.full(1000, round), pe, signal, 1, "add")
            signal.wait_until(">=", round, timeout=20)
            assert x.local[999] >= round
        heap.put(x[3:5], np.array([7, 8]), pe, timeout=20)
        heap.fence()
        heap.barrier_all(timeout=20)
        assert list(x.local[3:5]) == [7, 8]
        got = np.zeros(2, "i8")
        heap.get(got, x[3:5], pe)
        assert list(got) == [7, 8]
        heap.sync_all()
        heap.p(x[0], 5, pe)
        assert heap.g(x[0], pe) == 5
        heap.iput(x, np.arange(4), 2, 1, 4, pe)
        heap.quiet()
        heap.iget(got, x, 1, 2, 2, pe)
        assert list(got) == [0, 1]
        heap.put_nbi(x, np.arange(10), pe)
        heap.get_nbi(got, x[1:], pe)
        heap.put_signal_nbi(x, b"", pe, signal, 1000)
        heap.quiet(timeout=20)
        signal.wait_until("==", 1000)
        assert list(got) == [1, 2]
        heap.barrier_all()
        heap.free(x)
        assert heap.available == (1 << 20) - 64
        heap.notify(pe)
        assert repr(heap).startswith("<ucp.sync.SymmetricHeap of <ucp.shmem.Symm")
        return heap

    for heap in heaps(2, main):
        assert heap.closed()


def test_atomic_operations():
    def main(heap):
        x = heap.full(1, 12, "u8")
        if heap.my_pe == 0:
            heap.atomic_add(x, 3, 1)
            assert heap.atomic_fetch_add(x, 1, 1) == 15
            heap.atomic_and(x, 24, 1)
            assert heap.atomic_fetch_and(x, 16, 1) == 16
            heap.atomic_or(x, 1, 1)
            assert heap.atomic_fetch_or(x, 2, 1) == 17
            heap.atomic_xor(x, 1, 1)
            assert heap.atomic_fetch_xor(x, 2, 1) == 18
            heap.atomic_set(x, 5, 1)
            assert heap.atomic_swap(x, 6, 1) == 5
            assert heap.atomic_compare_swap(x, 6, 7, 1) == 6
            assert heap.atomic_fetch(x, 1) == 7

    heaps(2, main)


def test_waits_for_several_numbers():
    def main(heap):
        flags = heap.zeros(4, "u4")
        pe = 1 - heap.my_pe
        heap.atomic_set(flags[2], 9, pe)
        assert flags.wait_until_any("!=", 0, timeout=20) == 2
        assert flags.wait_until_some("==", [1, 1, 9, 1]) == [2]
        flags.wait_until_all("==", [0, 0, 9, 0])
        assert flags.wait_until_any("==", 9, [1] * 4) is None
        with pytest.raises(ucp.exceptions.UCXTimeout):
            flags.wait_until_all("==", 9, timeout=0.01)
        with pytest.raises(ucp.exceptions.UCXTimeout):
            flags.wait_until("==", 9, timeout=0.01)

    heaps(2, main)


def test_collective_operations():
    def main(heap):
        rank = heap.my_pe
        x, y = heap.full(2, rank, "i8"), heap.empty(2, "i8")
        many = heap.zeros(4, "i8")
        heap.broadcast(y, x, 1)
        assert list(y.local) == [1, 1]
        heap.fcollect(many, x)
        assert list(many.local) == [0, 0, 1, 1]
        heap.alltoall(many, np.arange(4) + 10 * rank)
        assert list(many.local) == [
            2 * rank,
            2 * rank + 1,
            10 + 2 * rank,
            11 + 2 * rank,
        ]
        heap.collect(many, np.full(rank + 1, rank))
        assert list(many.local[:3]) == [0, 1, 1]
        heap.reduce(y, x)
        assert list(y.local) == [1, 1]

    heaps(2, main)


def test_threads_share_a_heap():
    def main(heap):
        flags = heap.zeros(4, "u8")
        pe = 1 - heap.my_pe
        ends = []

        def wait(index):
            flags[index].wait_until("==", 1, timeout=20)
            ends.append(index)

        threads = [threading.Thread(target=wait, args=[index]) for index in range(4)]
        for thread in threads:
            thread.start()
        heap.sync_all()
        for index in range(4):
            heap.atomic_set(flags[index], 1, pe)
        for thread in threads:
            thread.join()
        assert sorted(ends) == [0, 1, 2, 3]

    heaps(2, main)


def test_an_exit_of_one_ends_all():
    def main(comm):
        heap = SymmetricHeap.create(comm, 4096)
        if comm.rank == 0:
            with pytest.raises(SystemExit):
                heap.global_exit()
        else:
            with pytest.raises(ucp.UCXRankFailed, match=r"global_exit\(0\) of rank 0"):
                heap.barrier_all(timeout=20)
        heap.close()

    sync_world(2, main)


IDLE = """
import resource, time
with ucp.sync.Communicator.connect(
    os.environ["ROOT_OF_TEST"], int(os.environ["RANK_OF_TEST"]), 2, 30
) as comm, ucp.sync.SymmetricHeap.create(comm, 4096) as heap:
    flag = heap.zeros(1, "u8")
    if comm.rank == 0:
        before = time.process_time()
        flag.wait_until("==", 1, timeout=30)
        print(time.process_time() - before, flush=True)
    else:
        time.sleep(1.2)
        heap.atomic_set(flag, 1, 0)
"""


def test_a_rank_that_waits_sleeps():
    with Ranks(2, IDLE) as ranks:
        ranks.end(1)
        assert float(ranks.end(0)) < 0.2  # of more than a second
