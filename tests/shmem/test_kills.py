# SPDX-License-Identifier: BSD-3-Clause
# tests: ucp/heap
"""A rank is killed at each step of each call: the others raise, or have done what
they were asked for, and can end."""

import os

import pytest
from worlds import Ranks

# Rank 1 ends at the step that is named; the others are not told. What a call does
# to memory that is mapped it may do to that of the dead, too.
PROGRAM = """
from ucp.shmem import SymmetricHeap

STEP = os.environ["STEP_OF_TEST"]
CALL, WHEN = STEP.split("-")

def die(rank, when):
    if rank == 1 and when == WHEN:
        os.kill(os.getpid(), signal.SIGKILL)

async def calls(heap, x, flag):
    data = np.ones(1000, "i8")
    names = {
        "put": lambda: heap.put(x, data, 1),
        "get": lambda: heap.get(data, x, 1),
        "iput": lambda: heap.iput(x, data, 2, 1, 10, 1),
        "iget": lambda: heap.iget(data, x, 1, 2, 10, 1),
        "signal": lambda: heap.put_signal(x, data, 1, flag, 1),
        "atomic": lambda: heap.atomic_fetch_add(flag, 1, 1),
        "wait": lambda: flag.wait_until("==", 77),
        "many": lambda: flag.wait_until_all("==", 77),
        "malloc": lambda: heap.zeros(10),
        "free": lambda: heap.free(x),
        "quiet": lambda: heap.quiet(),
        "barrier": lambda: heap.barrier_all(),
        "sync": lambda: heap.sync_all(),
        "reduce": lambda: heap.reduce(x, x.local.copy()),
        "collect": lambda: heap.collect(x, data[:10]),
    }
    return await names[CALL]()

async def main():
    async with asyncio.timeout(40):
        comm = await connect(heartbeat=2)
        rank = comm.rank
        try:
            if CALL == "create":
                making = asyncio.ensure_future(SymmetricHeap.create(comm, 1 << 20))
                if WHEN == "during":
                    await asyncio.sleep(0)
                die(rank, "before"); die(rank, "during")
                await making
            heap = await SymmetricHeap.create(comm, 1 << 20)
            x, flag = await heap.zeros(1000, "i8"), await heap.zeros(1, "u8")
            await heap.barrier_all()
            die(rank, "before")
            begun = asyncio.ensure_future(calls(heap, x, flag))
            await asyncio.sleep(0)
            die(rank, "during")
            await begun
            die(rank, "after")
            await heap.barrier_all()
            print("no error")
        except ucp.UCXRankFailed as exc:
            print(exc.rank)

asyncio.run(main())
"""

LOCAL = ("put", "get", "iput", "iget", "signal", "atomic", "quiet")
COLLECTIVE = ("malloc", "free", "barrier", "sync", "reduce", "collect", "wait", "many")
ALL = [
    *(
        f"{call}-{when}"
        for call in (*LOCAL, "malloc", "barrier", "wait")
        for when in ("before", "during")
    ),
    *(
        f"{call}-during"
        for call in COLLECTIVE
        if call not in ("malloc", "barrier", "wait")
    ),
    "create-before",
    "create-during",
    "put-after",
]
FEW = ["create-during", "put-before", "malloc-during", "wait-during", "barrier-before"]
STEPS = ALL if os.environ.get("SHMEM_KILLS") == "all" else FEW


@pytest.mark.parametrize("step", STEPS)
def test_the_others_hear_of_a_rank_that_is_killed(step, monkeypatch):
    monkeypatch.setenv("STEP_OF_TEST", step)
    with Ranks(3, PROGRAM) as ranks:
        assert ranks.end(0) == "1"
        assert ranks.end(2) == "1"
        _, err = ranks.processes[1].communicate(timeout=20)
        assert ranks.processes[1].returncode == -9, err
