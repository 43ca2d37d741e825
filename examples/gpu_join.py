# SPDX-License-Identifier: BSD-3-Clause
"""A join of two tables whose columns are in memory of devices.

    python -m ucp run -n 2 examples/gpu_join.py [ROWS] [BATCHES]

With --device the columns are CuPy's, and stay on the devices from the partition to the
result; without it they are NumPy's, and the program is the same. Each rank has ROWS
rows of both tables, and there are BATCHES partitions for each rank: while the rows of
one batch are joined, those of the next one are under way. Rank 0 makes all rows again
and has pandas join them, to compare: --no-check leaves that out.
"""

import asyncio
import sys
import time

import numpy as np

import ucp

if "--device" in sys.argv:
    import cupy as xp
else:
    xp = np

ODD = 0x9E3779B97F4A7C15  # spreads keys over the partitions


def columns(rank, rows):
    """The rows of a rank, in memory of the host: orders, and payments of orders."""
    random = np.random.default_rng(rank)
    orders = {
        "key": random.integers(0, 2 * rows, rows, "i8"),
        "price": random.random(rows),
    }
    payments = {
        "key": random.integers(0, 2 * rows, rows, "i8"),
        "paid": random.random(rows),
    }
    return orders, payments


def partition(table, count):
    """The rows in the order of their partitions, and how many each one has."""
    keys = table["key"].view("u8")
    places = (keys * xp.uint64(ODD) >> xp.uint64(33)) % xp.uint64(count)
    order = xp.argsort(places)
    sizes = xp.bincount(places.astype("i8"), minlength=count)
    return {name: column[order] for name, column in table.items()}, sizes


class Exchange:
    """The partitions of a table go to their ranks, a batch at a time.

    Partition ``p`` belongs to rank ``p % size`` and to batch ``p // size``: so the rows
    of a batch lie together, in the order of the ranks.
    """

    def __init__(self, comm, table, batches):
        self.comm = comm
        self.table, sizes = partition(table, comm.size * batches)
        sizes = sizes.get() if xp is not np else sizes  # counts are of the host
        self.counts = np.ascontiguousarray(sizes.reshape(batches, comm.size), "i8")
        self.ends = np.concatenate([[0], self.counts.sum(axis=1).cumsum()])

    async def receive(self, batch):
        """The rows of this rank in a batch, from all ranks."""
        counts = self.counts[batch]
        theirs = np.empty_like(counts)
        await self.comm.alltoall(counts, theirs)
        received = {}
        for name, column in self.table.items():
            sent = column[self.ends[batch] : self.ends[batch + 1]]
            received[name] = xp.empty(int(theirs.sum()), column.dtype)
            await self.comm.alltoallv(sent, counts, received[name], theirs)
        return received


def join(left, right):
    """The rows of both tables with equal keys: the place in each table."""
    order = xp.argsort(right["key"])
    keys = right["key"][order]
    first = xp.searchsorted(keys, left["key"], "left")
    found = xp.searchsorted(keys, left["key"], "right") - first
    ends = xp.cumsum(found)
    numbers = xp.arange(int(ends[-1]) if len(ends) else 0)
    rows = xp.searchsorted(ends, numbers, "right")
    return rows, order[first[rows] + numbers - (ends - found)[rows]]


async def join_all(comm, orders, payments, batches):
    """How many rows the result has on this rank, and the sum of price * paid."""
    left, right = (Exchange(comm, each, batches) for each in (orders, payments))

    async def receive(batch):
        return await left.receive(batch), await right.receive(batch)

    count, total = 0, 0.0
    coming = asyncio.ensure_future(receive(0))
    for batch in range(batches):
        some_orders, some_payments = await coming
        if batch + 1 < batches:
            coming = asyncio.ensure_future(receive(batch + 1))
            await asyncio.sleep(0)  # it begins
        ours, theirs = join(some_orders, some_payments)
        count += len(ours)
        total += float(
            (some_orders["price"][ours] * some_payments["paid"][theirs]).sum()
        )
    return count, total


def by_pandas(size, rows):
    import pandas as pd

    tables = zip(*(columns(rank, rows) for rank in range(size)), strict=True)
    orders, payments = (
        pd.concat([pd.DataFrame(part) for part in parts]) for parts in tables
    )
    result = orders.merge(payments, on="key")
    return len(result), float((result["price"] * result["paid"]).sum())


async def main(rows, batches):
    async with await ucp.Communicator.from_env() as comm:
        if xp is not np:
            xp.cuda.Device(comm.rank % xp.cuda.runtime.getDeviceCount()).use()
        orders, payments = (
            {name: xp.asarray(column) for name, column in table.items()}
            for table in columns(comm.rank, rows)
        )
        await comm.barrier()
        begun = time.perf_counter()
        mine = await join_all(comm, orders, payments, batches)
        every = await comm.gather_pickle(mine, allow_pickle=True)
        seconds = time.perf_counter() - begun
        if comm.rank == 0:
            count, total = (sum(values) for values in zip(*every, strict=True))
            print(f"{count} rows joined", flush=True)
            rate = 2 * rows * comm.size / seconds / 1e6
            print(f"{rate:.1f} million rows a second", file=sys.stderr)
            if "--no-check" not in sys.argv:
                expected = by_pandas(comm.size, rows)
                assert count == expected[0], expected
                assert abs(total - expected[1]) <= 1e-9 * expected[1], expected
                print("pandas has the same", flush=True)


if __name__ == "__main__":
    given = [int(each) for each in sys.argv[1:] if each.isdigit()]
    try:
        asyncio.run(main(*given, *(200_000, 4)[len(given) :]))
    except KeyboardInterrupt:
        sys.exit(130)
