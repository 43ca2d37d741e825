# SPDX-License-Identifier: BSD-3-Clause
# python -m ucp run -n 2 examples/join.py [ROWS]
"""Tables whose rows are on many ranks are joined by a key.

Each rank has some of the readings of many sensors, and some rows of the table that
says where the sensors are. After the join each rank has some rows of the result, and
those of one sensor are on one rank.
"""

import asyncio
import sys

import numpy as np
import pyarrow as pa

import ucp
import ucp.join

SENSORS = 50_000


def readings(rank, rows):
    rng = np.random.default_rng(rank)
    return pa.table(
        {
            "sensor": rng.integers(0, 2 * SENSORS, rows),  # half of them are unknown
            "value": rng.integers(0, 1000, rows),
        }
    )


def places(rank, size):
    sensors = np.arange(rank, SENSORS, size)
    names = np.array(["attic", "cellar", "garden"])
    return pa.table({"sensor": sensors, "place": names[sensors % 3]})


async def main(rows):
    async with await ucp.Communicator.from_env() as comm:
        left, right = readings(comm.rank, rows), places(comm.rank, comm.size)
        result = await ucp.join.inner(left, right, on="sensor", comm=comm)

        by_place = result.table.group_by("place").aggregate([("value", "count")])
        found = dict(zip(*by_place.to_pydict().values(), strict=True))
        counts = np.array([found.get(place, 0) for place in ("attic", "cellar")])
        await comm.allreduce(counts)

        every = await ucp.join.gather_statistics(comm, result.statistics)
        if comm.rank == 0:
            for statistics in every:
                print(ucp.join.explain(statistics), file=sys.stderr)
            print(f"{counts[0]} readings in the attic, {counts[1]} in the cellar")


try:
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 500_000))
except KeyboardInterrupt:
    sys.exit(130)
