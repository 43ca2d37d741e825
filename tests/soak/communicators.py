# SPDX-License-Identifier: BSD-3-Clause
"""Communicators: made, used for all operations, split, closed or aborted.

Each process is a rank and does the same.
"""

import asyncio

import numpy as np

import ucp

RANKS = 3

_COLLECTIVES = 1000  # of each communicator
_ABORTED = 10  # the last of so many communicators ends by abort()
_LENGTH = 100  # items of an array
_LONG = 200_000  # bytes, which are lent


async def run(count):
    done = 0
    for number in range(count):
        comm = await ucp.Communicator.from_env()
        try:
            for _ in range(_COLLECTIVES // _PER_ROUND):
                await _operations(comm)
            done += _COLLECTIVES
            await _messages(comm)
            await _split(comm)
            if number % _ABORTED == _ABORTED - 1:
                await _abort(comm, number // _ABORTED % comm.size)
        finally:
            comm.close()
    return f"{count} communicators, {done} collective operations"


async def _operations(comm):
    rank, size = comm.rank, comm.size
    own = np.full(_LENGTH, rank + 1, "i4")
    every = np.empty(_LENGTH * size, "i4")
    total = sum(range(size + 1))
    for root in range(size):
        data = bytearray(_LONG if root == 0 else 8)
        if rank == root:
            data[-1] = 1
        await comm.bcast(data, root)
        assert data[-1] == 1
        into = np.empty_like(own)
        await comm.reduce(own, into if rank == root else None, "sum", root)
        assert rank != root or into[-1] == total
        await comm.gather(own, every if rank == root else None, root)
        await comm.scatter(every if rank == root else None, into, root)
        assert (into == own).all()
    await comm.allgather(own, every)
    assert every[-1] == size
    await comm.alltoall(every, out := np.empty_like(every))
    assert (out == rank + 1).all()
    await comm.allreduce(into)
    assert (into == total).all()
    parts = await comm.alltoall_buffers([b"%d" % rank] * size)
    assert [int(part) for part in parts] == [*range(size)]
    await asyncio.gather(comm.barrier(), comm.allreduce(out, "max"), comm.barrier())
    await comm.barrier()


_PER_ROUND = RANKS * 4 + 8


async def _messages(comm):
    """To all, from any source; the receives of some are cancelled first."""
    tasks = [comm.isend(b"x" * 1000, rank) for rank in range(comm.size)]
    for _ in tasks:
        cancelled = asyncio.ensure_future(comm.recv(bytearray(1000), tag=1))
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.gather(cancelled, return_exceptions=True)
        assert (await comm.recv(bytearray(1000))).nbytes == 1000
    await asyncio.gather(*tasks)


async def _split(comm):
    async with await comm.split(comm.rank % 2) as part:
        await part.barrier()


async def _abort(comm, rank):
    """End by what one rank does when all have come so far."""
    try:
        await comm.barrier()
        if comm.rank == rank:
            comm.abort("soak")
        await comm.barrier()
    except ucp.UCXRankFailed as exc:
        assert "soak" in str(exc), exc
        return
    raise AssertionError("not aborted")
