# SPDX-License-Identifier: BSD-3-Clause
"""Shufflers: chunks of every kind, to all ranks; some are spilled, some shuffles
are given up.

Each process is a rank and does the same.
"""

import tempfile

import ucp
from ucp.shuffle import Shuffler

RANKS = 3

_PARTITIONS = 5
_SIZES = (0, 100, 3000, 40_000)  # bytes; the first two are copied
_BUDGET = 50_000  # bytes; the rest is spilled
_SPILLED = 3  # one of so many shuffles has a budget
_ABORTED = 10  # one of so many is given up


async def run(count):
    comm = await ucp.Communicator.from_env()
    kept, spilled = [], 0
    try:
        with tempfile.TemporaryDirectory() as spill_dir:
            for number in range(count):
                options = {}
                if number % _SPILLED == 0:
                    options = {"budget": _BUDGET, "spill_dir": spill_dir}
                if number % _ABORTED == _ABORTED - 1:
                    await _abort(comm, number)
                    continue
                shuffler = Shuffler(comm, number % 7, _PARTITIONS, **options)
                kept = await _shuffle(comm, shuffler)
                have = shuffler.statistics
                spilled += have.spilled_in + have.spilled_out
            await comm.barrier()
        assert spilled != 0 or count <= _SPILLED
        kept.clear()
        await comm.barrier()
    finally:
        comm.close()
    return f"{count} shuffles, {spilled} bytes spilled"


async def _shuffle(comm, shuffler):
    """Views of one chunk of each partition last until the next shuffle is over."""
    views = []
    async with shuffler:
        for partition in range(_PARTITIONS):
            for size in _SIZES:
                memory = ucp.Memory.allocate(max(size, 1))
                shuffler.insert(partition, memoryview(memory)[:size])
                shuffler.insert(partition, bytes([comm.rank]) * size)
        shuffler.insert_finished()
        async for partition in shuffler:
            chunks = await shuffler.extract(partition)
            assert len(chunks) == 2 * len(_SIZES) * comm.size
            assert sum(chunk.nbytes for chunk in chunks) == 2 * sum(_SIZES) * comm.size
            for chunk in chunks[1::2]:
                assert bytes(chunk) == bytes([chunk.source]) * chunk.nbytes
            views.append(memoryview(chunks[-1]))
    return views


async def _abort(comm, number):
    """End in the middle, by what one rank does."""
    shuffler = Shuffler(comm, number % 7, _PARTITIONS)
    shuffler.insert((comm.rank + 1) % comm.size, ucp.Memory.allocate(40_000))
    await comm.barrier()
    if comm.rank == number // _ABORTED % comm.size:
        shuffler.abort("soak")
        return
    try:
        await shuffler.close()
    except ucp.UCXRankFailed as exc:
        assert "soak" in str(exc), exc
        shuffler.abort()
        return
    raise AssertionError("not aborted")
