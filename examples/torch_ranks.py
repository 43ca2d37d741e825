# SPDX-License-Identifier: BSD-3-Clause
# torchrun --nproc-per-node 2 examples/torch_ranks.py
# python examples/torch_ranks.py   by hand, with torchrun's variables (RANK ...)
"""Processes of torch.distributed: they meet by from_allgather(), and move tables.

torch.distributed goes on doing what it does for the model. What it has no operation
for, here Python objects and arrays of another length on each rank, goes over ucp.
"""

import sys
import time

import numpy as np
import torch.distributed

import ucp


def allgather(part):
    """Return the bytes of all ranks, by torch."""
    parts = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(parts, part)
    return parts


def main():
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    size = torch.distributed.get_world_size()
    with ucp.sync.Communicator.from_allgather(rank, size, allgather) as comm:
        mine = np.full(1000 * (rank + 1), rank, dtype="i8")
        counts = comm.allgather_pickle(len(mine), allow_pickle=True)
        every = np.empty(sum(counts), dtype="i8")
        begun = time.perf_counter()
        comm.allgatherv(mine, every, counts)
        if rank == 0:
            seconds = time.perf_counter() - begun
            print(f"{size} ranks have {len(every)} numbers, sum {every.sum()}")
            print(f"they came in {seconds * 1e6:.0f} us")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
