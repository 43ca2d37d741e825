# SPDX-License-Identifier: BSD-3-Clause
# python examples/dask_cluster.py [PROTOCOL]
"""A Dask cluster whose messages go over UCX; PROTOCOL tcp uses Dask's own."""

import sys
import time

import numpy as np
from dask.distributed import Client, LocalCluster, wait


def main(protocol: str) -> None:
    with LocalCluster(
        n_workers=2, threads_per_worker=1, protocol=protocol, dashboard_address=":0"
    ) as cluster:
        with Client(cluster) as client:
            print("scheduler at", cluster.scheduler_address.rpartition(":")[0])
            first, second = client.scheduler_info()["workers"]
            x = client.submit(np.arange, 8_000_000, workers=[first])
            wait(x)
            # The second worker needs x, which the first one sends to it.
            begun = time.perf_counter()
            total = client.submit(np.sum, x, workers=[second]).result()
            seconds = time.perf_counter() - begun
            print("sum:", total)
            print(f"64 MB were moved and added in {seconds * 1e3:.0f} ms")


# The worker processes import this file, and must not start a cluster themselves.
if __name__ == "__main__":
    try:
        main(*sys.argv[1:] or ["ucp"])
    except KeyboardInterrupt:
        sys.exit(130)
