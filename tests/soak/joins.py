# SPDX-License-Identifier: BSD-3-Clause
"""Joins of every kind; some are spilled, some fail on one rank.

Each process is a rank and does the same.
"""

import tempfile

import numpy as np
import pyarrow as pa

import ucp
import ucp.join
from ucp.shuffle import MemoryCache

RANKS = 2

_ROWS = 3000
_HOWS = ("inner", "left", "right", "outer", "semi", "anti")
_BUDGET = 20_000  # bytes; the rest is spilled
_SPILLED = 3  # one of so many joins has a budget
_FAILED = 10  # one of so many fails on one rank


class _Fails(ucp.join.ArrowJoin):
    def join(self, left, right, spec):
        if left.num_rows:
            raise RuntimeError("soak")
        return super().join(left, right, spec)


_Fails.__qualname__ = "ArrowJoin"  # the ranks compare it


async def run(count):
    comm = await ucp.Communicator.from_env()
    result, spilled = None, 0
    try:
        with tempfile.TemporaryDirectory() as spill_dir, MemoryCache() as cache:
            for number in range(count):
                if number % _FAILED == _FAILED - 1:
                    await _fail(comm, number)
                    continue
                options = {"cache": cache} if number % 2 else {}
                if number % _SPILLED == 0:
                    options |= {"budget": _BUDGET, "spill_dir": spill_dir}
                result = await _join(comm, number, **options)
                spilled += result.statistics.spilled
            await comm.barrier()
        assert spilled != 0 or count <= _SPILLED
    finally:
        comm.close()
    return f"{count} joins, {spilled} bytes spilled"


def _tables(comm):
    """Each key is once on each rank and on each side."""
    keys = np.arange(_ROWS)
    name = pa.array(["x" * (n % 7) for n in range(_ROWS)])
    left = pa.table({"k": keys, "a": keys, "s": name.dictionary_encode()})
    return left, pa.table({"k": keys, "b": keys + comm.rank, "t": name})


async def _join(comm, number, **options):
    how = _HOWS[number % len(_HOWS)]
    strategy = "auto" if number % 4 == 0 else "shuffle"
    found = await getattr(ucp.join, how)(
        *_tables(comm), on="k", comm=comm, strategy=strategy, **options
    )
    rows = np.array([found.table.num_rows])
    await comm.allreduce(rows)
    pairs = {"semi": 1, "anti": 0}.get(how, comm.size)
    assert rows[0] == _ROWS * comm.size * pairs, (how, rows)
    return found


async def _fail(comm, number):
    rank = number // _FAILED % comm.size
    local = _Fails() if comm.rank == rank else None
    try:
        await ucp.join.inner(
            *_tables(comm), on="k", comm=comm, local=local, strategy="shuffle"
        )
    except (RuntimeError, ucp.UCXRankFailed) as exc:
        assert "soak" in str(exc), exc
        return
    raise AssertionError("it has not failed")
