# SPDX-License-Identifier: BSD-3-Clause
# python examples/dask_merge.py [ROWS]
"""Merge two frames of Dask over ucp, and by Dask's own p2p."""

import sys
import time

import dask.dataframe as dd
import numpy as np
import pandas as pd
from dask.distributed import Client, LocalCluster

import ucp.dask

PARTS = 4


def part(number: int, rows: int, name: str) -> pd.DataFrame:
    """A partition of a table: keys, some of which the other table has, and values."""
    rng = np.random.default_rng([number, len(name)])
    return pd.DataFrame(
        {"key": rng.integers(0, 3 * rows, rows), name: rng.random(rows)}
    )


def table(rows: int, name: str) -> dd.DataFrame:
    return dd.from_map(part, range(PARTS), rows=rows // PARTS, name=name).persist()


def main(rows: int) -> None:
    with LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=":0"
    ) as cluster:
        with Client(cluster) as client:
            ucp.dask.bootstrap(client)
            orders, items = table(rows, "price"), table(rows, "weight")
            ways = {
                "ucp": ucp.dask.merge(orders, items, on="key"),
                "p2p": orders.merge(items, on="key"),
            }
            for name, merged in ways.items():
                begun = time.perf_counter()
                count = len(merged.persist())
                print(f"{name}: {count} rows in {time.perf_counter() - begun:.2f} s")


# The worker processes import this file, and must not start a cluster themselves.
if __name__ == "__main__":
    try:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 200_000)
    except KeyboardInterrupt:
        sys.exit(130)
