# SPDX-License-Identifier: BSD-3-Clause
"""Training steps by hand: each rank has a part of the data, and the gradients
are averaged over the ranks.

    python -m ucp run -n 4 examples/allreduce.py
    torchrun --nproc-per-node 4 examples/allreduce.py
    mpirun -n 4 python examples/allreduce.py
"""

import sys

import numpy as np

import ucp

STEPS = 200
RATE = 0.1
TRUE_WEIGHTS = np.array([2.0, -1.0, 0.5])


def main():
    with ucp.sync.Communicator.from_env() as comm:
        random = np.random.default_rng(comm.rank)
        inputs = random.normal(size=(1000, 3))
        outputs = inputs @ TRUE_WEIGHTS
        weights = np.zeros(3)
        for _ in range(STEPS):
            errors = inputs @ weights - outputs
            gradient = 2 * inputs.T @ errors / len(inputs)
            comm.allreduce(gradient)
            weights -= RATE * gradient / comm.size
        if comm.rank == 0:
            print("weights", " ".join(f"{weight:.3f}" for weight in weights))


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
