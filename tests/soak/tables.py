# SPDX-License-Identifier: BSD-3-Clause
"""Tables that are sorted, grouped and moved; some are spilled, streams are left,
and some calls fail on one rank.

Each process is a rank and does the same.
"""

import tempfile

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import ucp
import ucp.table
from ucp.shuffle import MemoryCache

RANKS = 2

_ROWS = 3000
_BUDGET = 20_000  # bytes; the rest is spilled
_SPILLED = 3  # one of so many calls has a budget
_LEFT = 7  # one of so many streams is left early
_FAILED = 10  # one of so many calls fails on one rank


async def run(count):
    comm = await ucp.Communicator.from_env()
    try:
        with tempfile.TemporaryDirectory() as spill_dir, MemoryCache() as cache:
            for number in range(count):
                options = {"comm": comm, "over_decomposition": 1 + number % 4}
                options |= {"cache": cache} if number % 2 else {}
                if number % _SPILLED == 0:
                    options |= {"budget": _BUDGET, "spill_dir": spill_dir}
                await _call(comm, number, options)
            await comm.barrier()
    finally:
        comm.close()
    return f"{count} operations"


def _table(comm, number):
    rng = np.random.default_rng([number, comm.rank])
    keys = rng.integers(0, 500, _ROWS)
    name = pa.array(["x" * (n % 7) for n in range(_ROWS)]).dictionary_encode()
    return pa.table({"k": keys, "x": rng.random(_ROWS), "s": name})


async def _call(comm, number, options):
    table = _table(comm, number)
    whole = pa.concat_tables(_table(_Rank(rank), number) for rank in range(comm.size))
    if number % _FAILED == _FAILED - 1:
        await _fail(comm, number, table, options)
    elif number % _LEFT == _LEFT - 1:
        await _leave(comm, number, table, options)
    elif number % 3 == 0:
        found = await ucp.table.sort(table, ["k", "x"], **options)
        keys = whole["k"].to_numpy()
        order = np.lexsort([whole["x"].to_numpy(), keys])
        begin = (await _lengths(comm, found))[: comm.rank].sum()
        expected = keys[order][begin : begin + len(found)]
        assert (found["k"].to_numpy() == expected).all()
    elif number % 3 == 1:
        wanted = [("x", "sum"), ([], "size")]
        found = await ucp.table.group_by(table, ["k", "s"], wanted, **options)
        total = np.array([pc.sum(found["size"]).as_py()])
        await comm.allreduce(total)
        assert total[0] == len(whole), total
    else:
        found = await ucp.table.repartition(table, **options)
        assert (await _lengths(comm, found)).sum() == len(whole)


class _Rank:
    """Whose table is wanted."""

    def __init__(self, rank):
        self.rank = rank


async def _lengths(comm, table):
    lengths = np.zeros(comm.size, int)
    await comm.allgather(np.array([len(table)]), lengths)
    return lengths


async def _leave(comm, number, table, options):
    """One rank leaves a stream after its first part, and so it ends on all."""
    stream = ucp.table.stream("sort", table, "k", **options)
    if comm.rank == number % comm.size:
        async with stream:
            async for _ in stream:
                return
    try:
        async for _ in stream:
            pass
    except ucp.UCXRankFailed:
        pass  # or it had all parts before


async def _fail(comm, number, table, options):
    rank = number // _FAILED % comm.size

    def fail(done, total):
        raise RuntimeError("soak")

    try:
        progress = fail if comm.rank == rank else None
        await ucp.table.sort(table, "k", progress=progress, **options)
    except (RuntimeError, ucp.UCXRankFailed) as exc:
        assert "soak" in str(exc), exc
        return
    raise AssertionError("it has not failed")
