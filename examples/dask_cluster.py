# SPDX-License-Identifier: BSD-3-Clause
# python examples/dask_cluster.py [PROTOCOL]
"""A Dask cluster whose messages go over UCX; PROTOCOL tcp uses Dask's own."""

import sys

import numpy as np
from dask.distributed import Client, LocalCluster


def main(protocol: str) -> None:
    with LocalCluster(
        n_workers=2, threads_per_worker=1, protocol=protocol, dashboard_address=":0"
    ) as cluster:
        with Client(cluster) as client:
            print("scheduler at", cluster.scheduler_address.rpartition(":")[0])
            first, second = client.scheduler_info()["workers"]
            x = client.submit(np.arange, 8_000_000, workers=[first])
            # The second worker needs x, which the first one sends to it.
            total = client.submit(np.sum, x, workers=[second])
            print("sum:", total.result())


# The worker processes import this file, and must not start a cluster themselves.
if __name__ == "__main__":
    try:
        main(*sys.argv[1:] or ["ucp"])
    except KeyboardInterrupt:
        sys.exit(130)
