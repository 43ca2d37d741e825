# SPDX-License-Identifier: BSD-3-Clause
# python examples/dask_cupy.py [SIDE]
"""A Dask cluster that adds a matrix and its transpose, block by block, over UCX.

With --device the blocks are CuPy's, and go from worker to worker in memory of the GPU;
without it they are NumPy's, and the program is the same. Both workers use one GPU;
LocalCUDACluster of dask-cuda gives each worker one of its own. The matrix has SIDE
rows, in 16 blocks: a worker needs the other worker's for about half of its own.
"""

import sys
import time

import dask.array as da
import numpy as np
from dask.distributed import Client, LocalCluster, wait

if "--device" in sys.argv:
    sys.argv.remove("--device")
    import cupy as xp
else:
    xp = np

BLOCKS = 4  # in a row


def block(values):
    """Numbers in memory of the device that this worker has."""
    return xp.asarray(values)


def main(side):
    options = {"protocol": "ucp", "dashboard_address": ":0"}
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, **options) as cluster,
        Client(cluster),
    ):
        numbers = da.arange(side * side, chunks=side * side // BLOCKS)
        matrix = numbers.reshape(side, side).rechunk(side // BLOCKS)
        x = matrix.astype("f8").map_blocks(block, meta=xp.zeros((0, 0))).persist()
        wait(x)
        begun = time.perf_counter()
        y = (x + x.T).persist()
        wait(y)
        seconds = time.perf_counter() - begun
        total, expected = float(y.sum().compute()), side**2 * (side**2 - 1.0)
        assert abs(total - expected) <= 1e-9 * expected, (total, expected)
        print(f"x + x.T of {side} x {side} numbers: right")
        print(f"{y.nbytes / seconds / 1e9:.2f} GB/s")


# The worker processes import this file, and must not start a cluster themselves.
if __name__ == "__main__":
    try:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000)
    except KeyboardInterrupt:
        sys.exit(130)
