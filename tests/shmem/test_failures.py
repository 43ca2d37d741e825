# SPDX-License-Identifier: BSD-3-Clause
# tests: ucp/pending ucp/heap ext/call ext/put_get
"""Time limits, and ranks that are killed, of heaps whose PEs are mapped or not."""

import os

import pytest
from worlds import Ranks

PUTS = """

K, M = 4000, 64  # more than goes on its way at once

def put(heap, x):
    put.source = np.repeat(np.arange(K, dtype="u8") + 1, M).reshape(K, M)
    for i in range(K):
        heap.put_nbi(x[i], put.source[i], 1)

def tell(late):
    if late == 1:
        print("late", flush=True)
    return late + 1

def check(x):
    assert (x.local[:, -1] == np.arange(K) + 1).all()
"""

LATE = (
    PUTS
    + """
async def main():
    async with await connect() as comm:
        async with await ucp.shmem.SymmetricHeap.create(comm, K * M * 8) as heap:
            x = await heap.zeros((K, M), "u8")
            assert not heap.is_mapped(1 - comm.rank)
            await heap.barrier_all()
            if comm.rank == 1:
                sys.stdin.readline()  # no progress until then
            else:
                put(heap, x)
                late = 0
                while True:
                    try:
                        async with asyncio.timeout(0.02):
                            await heap.quiet()
                        break
                    except TimeoutError:
                        late = tell(late)
            await heap.barrier_all()
            if comm.rank == 1:
                check(x)

def main_that_blocks():
    with ucp.sync.Communicator.connect(
        os.environ["ROOT_OF_TEST"], 0, 2, 30
    ) as comm, ucp.sync.SymmetricHeap.create(comm, K * M * 8) as heap:
        x = heap.zeros((K, M), "u8")
        heap.barrier_all()
        put(heap, x)
        late = 0
        while True:
            try:
                heap.quiet(timeout=0.02)
                break
            except ucp.exceptions.UCXTimeout as exc:
                assert "not done within 0.02 s" in str(exc)
                late = tell(late)
        heap.barrier_all()

if os.environ["FACE_OF_TEST"] == "sync" and os.environ["RANK_OF_TEST"] == "0":
    main_that_blocks()
else:
    asyncio.run(main())
"""
)


@pytest.mark.parametrize("face", ["asyncio", "sync"])
def test_a_quiet_that_is_late_loses_nothing(face, monkeypatch):
    monkeypatch.setenv("UCX_TLS", "tcp")
    monkeypatch.setenv("FACE_OF_TEST", face)
    with Ranks(2, LATE) as ranks:
        assert ranks.line(0) == "late"
        ranks.processes[1].stdin.write("\n")
        ranks.processes[1].stdin.flush()
        ranks.end(1)
        ranks.end(0)


DEAD = """
async def main():
    async with asyncio.timeout(40):
        comm = await connect(heartbeat=2)
        heap = await ucp.shmem.SymmetricHeap.create(comm, 1 << 20)
        x, flag = await heap.zeros(60000, "u8"), await heap.zeros(1, "u8")
        await heap.barrier_all()
        if comm.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            await heap.barrier_all()
        except ucp.UCXRankFailed as exc:
            assert exc.rank == 1
        big = np.ones(50000, "u8")
        for call in (
            lambda: heap.put(x, b"12345678", 1),
            lambda: heap.put(x, big, 1),
            lambda: heap.p(x, 1, 1),
            lambda: heap.put_signal(x, b"12345678", 1, flag, 1),
            lambda: heap.put_signal(x, big, 1, flag, 1),
            lambda: heap.get(np.empty(1, "u8"), x, 1),
            lambda: heap.iput(x, big, 2, 1, 10, 1),
            lambda: heap.iget(big, x, 2, 1, 10, 1),
            lambda: heap.atomic_add(flag, 1, 1),
            lambda: heap.atomic_fetch(flag, 1),
            lambda: heap.notify(1),
            lambda: flag.wait_until("==", 7),
            lambda: flag.wait_until_all("==", 7),
            lambda: heap.zeros(1),
            lambda: heap.free(x),
        ):
            try:
                request = call()
                if request is not None:
                    await request
            except ucp.UCXRankFailed as exc:
                assert exc.rank == 1, exc
            else:
                raise AssertionError(f"line {call.__code__.co_firstlineno}")
        heap.put_nbi(x, b"12345678", 1)
        try:
            await heap.quiet()
        except ucp.UCXRankFailed as exc:
            assert exc.rank == 1
        else:
            raise AssertionError("quiet")
        await heap.put(x, b"12345678", 2 - comm.rank)
        await heap.put(x, b"12345678", comm.rank)
        print("ends", flush=True)
        sys.stdin.readline()  # its memory stays for the other one

asyncio.run(main())
"""


def test_operations_on_the_memory_of_the_dead_raise():
    with Ranks(3, DEAD) as ranks:
        assert ranks.line(0) == "ends"
        assert ranks.line(2) == "ends"
        ranks.end(0)
        ranks.end(2)


FLIGHT = """
CALL = os.environ["CALL_OF_TEST"]

async def main():
    async with asyncio.timeout(40):
        comm = await connect(heartbeat=2)
        heap = await ucp.shmem.SymmetricHeap.create(comm, 1 << 24)
        x, flag = await heap.zeros(1 << 20, "u8"), await heap.zeros(1, "u8")
        await heap.barrier_all()
        if comm.rank == 1:
            sys.stdin.readline()  # no progress
            os.kill(os.getpid(), signal.SIGKILL)
        big = np.ones(1 << 20, "u8")
        if CALL in ("quiet", "barrier"):
            heap.put_nbi(x, big, 1)
        call = {
            "put": lambda: heap.put(x, big, 1),
            "get": lambda: heap.get(big, x, 1),
            "atomic": lambda: heap.atomic_fetch_add(flag, 1, 1),
            "signal": lambda: heap.put_signal(x, big, 1, flag, 1),
            "iput": lambda: heap.iput(x, big, 2, 1, 1000, 1),
            "quiet": lambda: heap.quiet(),
            "barrier": lambda: heap.barrier_all(),
        }[CALL]
        print("begun", flush=True)
        try:
            while True:
                await call()
        except ucp.UCXRankFailed as exc:
            print(exc.rank, flush=True)
        try:
            await heap.barrier_all()
        except ucp.UCXRankFailed as exc:
            print(exc.rank, flush=True)
        # This rank stays until the other one has heard, too.
        await asyncio.to_thread(sys.stdin.readline)

asyncio.run(main())
"""
CALLS = ("put", "get", "atomic", "signal", "iput", "quiet", "barrier")
CALLS = CALLS if os.environ.get("SHMEM_KILLS") == "all" else ("put", "atomic", "quiet")


@pytest.mark.parametrize("call", CALLS)
def test_operations_under_way_name_the_rank_that_is_killed(call, monkeypatch):
    monkeypatch.setenv("UCX_TLS", "tcp")
    monkeypatch.setenv("CALL_OF_TEST", call)
    with Ranks(3, FLIGHT) as ranks:
        assert ranks.line(0) == "begun"
        assert ranks.line(2) == "begun"
        ranks.processes[1].stdin.write("\n")
        ranks.processes[1].stdin.flush()
        for rank in (0, 2, 0, 2):
            assert ranks.line(rank) == "1"
        ranks.end(0)
        ranks.end(2)
