# SPDX-License-Identifier: BSD-3-Clause
"""Ranks use their buffers for something else as soon as an operation has ended.

One rank of an operation cancels it, early or late. What another one has received
nevertheless is right, and nobody writes to a buffer once its operation has ended.
``REUSE_ROUNDS=100`` is a longer form.
"""

# tests: comm/inbox comm/collective_rounds comm/send comm/recv

import os

import pytest
from worlds import Ranks

ROUNDS = int(os.environ.get("REUSE_ROUNDS", "2"))

PROGRAM = """
import concurrent.futures, random
import uvloop
import ucp.sync

MODE, ROUNDS = {mode!r}, {rounds}
SIZES = [8, 64 << 10, 256 << 10, 1 << 20, 16 << 20]
FRESH, POISON = 0xAA, 0x55
COLLECTIVES = ["bcast", "allgather", "alltoall", "allreduce", "gather", "scatter"]
LOST = (ucp.UCXError, asyncio.CancelledError, concurrent.futures.CancelledError)


class Tasks:
    async def connect(self, *args):
        return await ucp.Communicator.connect(*args, timeout=30)

    async def call(self, comm, name, *args):
        return await getattr(comm, name)(*args)

    def begin(self, comm, name, *args):
        return asyncio.ensure_future(getattr(comm, name)(*args))

    async def turn(self, operation):
        await asyncio.sleep(0)

    async def outcome(self, operation):
        async with asyncio.timeout(30):
            await operation


class Calls:
    async def connect(self, *args):
        return ucp.sync.Communicator.connect(*args, timeout=30)

    async def call(self, comm, name, *args):
        return getattr(comm, name)(*args, timeout=30)

    def begin(self, comm, name, *args):
        return getattr(comm, "i" + name)(*args)

    async def turn(self, operation):
        operation.test()

    async def outcome(self, operation):
        operation.result(30)


way = Calls() if MODE == "sync" else Tasks()
rng = random.Random(int(os.environ["RANK_OF_TEST"]))
ends = [0, 0]  # operations that were lost, and that have ended well


async def end(operation, buffers):
    "True if it has ended well. The buffers of one that has not are poisoned."
    try:
        await way.outcome(operation)
    except LOST:
        poison(buffers)
        ends[0] += 1
        return False
    ends[1] += 1
    return True


def poison(buffers):
    for buffer in buffers:
        buffer[:] = POISON


async def turns(operation):
    for _ in range(int(2 ** rng.uniform(0, 6)) - 1):
        await way.turn(operation)


async def check(comm, buffers, what):
    "All ranks have ended: what is in the buffers now stays there."
    await way.call(comm, "barrier")
    for buffer in buffers:
        assert (buffer == POISON).all(), (what, np.unique(buffer))
    await way.call(comm, "barrier")


def plan(kind, rank, n, size, root):
    "Arguments of the call, and what is received, if all goes well."
    piece = max(size // n, 8)
    send, recv = np.full(piece * n, 1 + rank, "u1"), np.full(piece * n, FRESH, "u1")
    all_of = np.repeat(np.arange(1, n + 1, dtype="u1"), piece)
    one, one_in = send[:piece], recv[:piece]
    if kind == "bcast":
        buffer = send if rank == root else recv
        return (buffer, root), [(buffer, np.full_like(buffer, 1 + root))]
    if kind == "allgather":
        return (one, recv), [(recv, all_of)]
    if kind == "alltoall":
        return (send, recv), [(recv, all_of)]
    if kind == "allreduce":
        return (send, recv), [(recv, np.full_like(recv, n * (n + 1) // 2))]
    if kind == "gather":
        is_root = rank == root
        given = recv if is_root else None
        return (one, given, root), [(recv, all_of)] if is_root else []
    given = send if rank == root else None
    return (given, one_in, root), [(one_in, np.full_like(one_in, 1 + root))]


async def collective(parent, kind, size):
    comm = await way.call(parent, "dup")
    rank, n, victim = parent.rank, parent.size, size % 7 % parent.size
    given, expected = plan(kind, rank, n, size, (victim + 1) % n)
    buffers = [each for each in given if isinstance(each, np.ndarray)]
    operation = way.begin(comm, kind, *given)
    if rank == victim:
        await turns(operation)
        operation.cancel()
    if await end(operation, buffers):
        for got, right in expected:
            assert (got == right).all(), (kind, n, size, np.unique(got))
        poison(buffers)
    await check(parent, buffers, (kind, n, size))
    comm.close()


async def messages(parent, size):
    comm = await way.call(parent, "dup")
    rank, n = parent.rank, parent.size
    to, source = (rank + 1) % n, (rank - 1) % n
    send, recv = np.full(size, 1 + rank, "u1"), np.full(size, FRESH, "u1")
    both = [
        (way.begin(comm, "recv", recv, source, 1), recv),
        (way.begin(comm, "send", send, to, 1), send),
    ]
    rng.shuffle(both)
    for operation, buffer in both:
        await turns(operation)
        operation.cancel()
        if await end(operation, [buffer]):
            if buffer is recv:
                assert (recv == 1 + source).all(), (n, size, np.unique(recv))
            poison([buffer])
    await check(parent, [send, recv], ("message", n, size))
    comm.close()


async def main():
    rank = int(os.environ["RANK_OF_TEST"])
    world = await way.connect(os.environ["ROOT_OF_TEST"], rank, 4)
    turn = 0
    for n in (2, 3, 4):
        comm = await way.call(world, "split", 0 if rank < n else None)
        for size in SIZES if comm is not None else []:
            for _ in range(ROUNDS if size <= 1 << 20 else 1):
                await collective(comm, COLLECTIVES[turn % len(COLLECTIVES)], size)
                await messages(comm, size)
                turn += 1
        await way.call(world, "barrier")
    world.close()
    print(*ends)


if MODE == "sync":
    try:
        main().send(None)
    except StopIteration:
        pass
else:
    loops = {{"asyncio": asyncio, "uvloop": uvloop}}[MODE]
    with asyncio.Runner(loop_factory=loops.new_event_loop) as runner:
        runner.run(main())
"""


@pytest.mark.parametrize("mode", ["asyncio", "uvloop", "sync"])
def test_buffers_are_used_again_at_once(mode):
    with Ranks(4, PROGRAM.format(mode=mode, rounds=ROUNDS)) as ranks:
        ends = [[int(n) for n in ranks.line(rank).split()] for rank in range(4)]
        assert sum(lost for lost, _ in ends) > 0 < sum(good for _, good in ends), ends
        for rank in range(4):
            ranks.end(rank)
