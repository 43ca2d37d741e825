# SPDX-License-Identifier: BSD-3-Clause
# python -m ucp run -n 2 examples/tpch.py [ORDERS]
"""A query over two tables of a shop, like those of the TPC-H benchmark.

What is the revenue of the items that were shipped late, by the priority of their
order? Each rank makes some orders, and some items of all orders. They are filtered
where they are, joined, and summed up on each rank; the sums of the ranks are added.
Rank 0 computes the answer again, alone and with pyarrow.
"""

import asyncio
import sys
import time

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import ucp
import ucp.join

PRIORITIES = ["1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW"]
DAYS = 2405  # from the first to the last order
LATE = 90  # days


def make_orders(rank, size, count):
    rng = np.random.default_rng([rank, 1])
    keys = np.arange(rank, count, size)
    return pa.table(
        {
            "o_orderkey": keys,
            "o_orderdate": rng.integers(0, DAYS, len(keys)).astype("i4"),
            "o_orderpriority": np.array(PRIORITIES)[rng.integers(0, 5, len(keys))],
        }
    )


def make_lineitem(rank, size, count):
    rng = np.random.default_rng([rank, 2])
    rows = 4 * count // size
    return pa.table(
        {
            "l_orderkey": rng.integers(0, count, rows),
            "l_shipdate": rng.integers(0, DAYS + 121, rows).astype("i4"),
            "l_extendedprice": rng.integers(90_000, 10_500_000, rows),  # cents
            "l_discount": rng.integers(0, 11, rows),  # per cent
        }
    )


def from_second_year(orders):
    return orders.filter(pc.field("o_orderdate") >= 365)


def revenue(joined):
    """The revenue of late items, in hundredths of a cent, by priority."""
    late = pc.add(joined["o_orderdate"], pa.scalar(LATE, pa.int32()))
    joined = joined.filter(pc.greater(joined["l_shipdate"], late))
    paid = pc.multiply(
        joined["l_extendedprice"], pc.subtract(100, joined["l_discount"])
    )
    sums = joined.append_column("paid", paid).group_by("o_orderpriority")
    columns = sums.aggregate([("paid", "sum")]).to_pydict()
    found = dict(zip(columns["o_orderpriority"], columns["paid_sum"], strict=True))
    return np.array([found.get(name, 0) for name in PRIORITIES])


def answer_alone(size, count):
    orders = pa.concat_tables(make_orders(rank, size, count) for rank in range(size))
    items = pa.concat_tables(make_lineitem(rank, size, count) for rank in range(size))
    orders = from_second_year(orders)
    return revenue(items.join(orders, "l_orderkey", "o_orderkey", join_type="inner"))


async def main(count):
    async with await ucp.Communicator.from_env() as comm:
        orders = make_orders(comm.rank, comm.size, count)
        items = make_lineitem(comm.rank, comm.size, count)
        await comm.barrier()

        started = time.perf_counter()
        result = await ucp.join.inner(
            items,
            from_second_year(orders),
            left_on="l_orderkey",
            right_on="o_orderkey",
            comm=comm,
        )
        sums = revenue(result.table)
        await comm.allreduce(sums)
        seconds = time.perf_counter() - started

        if comm.rank == 0:
            print(f"{seconds:.3f} s on {comm.size} ranks", file=sys.stderr)
            for name, value in zip(PRIORITIES, sums, strict=True):
                print(f"{name:16}{value / 10_000:20,.2f}", file=sys.stderr)
            alone = answer_alone(comm.size, count)
            same = "the same as" if (sums == alone).all() else "NOT that of"
            print(f"the answer is {same} one process's")


try:
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 300_000))
except KeyboardInterrupt:
    sys.exit(130)
