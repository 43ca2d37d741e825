# SPDX-License-Identifier: BSD-3-Clause
# A work queue without locks: rank 0 has it, and every rank takes its next task by one
# atomic operation. Results go to the rank that keeps them by put().
#
# python -m ucp run -n 3 examples/shmem_queue.py [tasks]

import sys

import numpy as np

import ucp


def work(task):
    """Count the steps of the Collatz sequence."""
    steps = 0
    while task > 1:
        task = task // 2 if task % 2 == 0 else 3 * task + 1
        steps += 1
    return steps


def main(tasks):
    with (
        ucp.sync.Communicator.from_env() as comm,
        ucp.sync.SymmetricHeap.create(comm, 1 << 20) as heap,
    ):
        head = heap.zeros(1, "u8")  # of the queue: the next task, on rank 0
        done = heap.zeros(1, "u8")  # results that have come to rank 0
        results = heap.zeros(tasks, "u8")
        mine = 0

        while (task := heap.atomic_fetch_add(head, 1, 0)) < tasks:
            result = np.array([work(task + 1)], "u8")
            heap.put_signal(results[task], result, 0, done, 1, "add")
            mine += 1

        print(f"rank {comm.rank}: {mine} tasks")
        if comm.rank == 0:
            done.wait_until("==", tasks)
            longest = int(results.local.argmax())
            print(f"{longest + 1} takes {results.local[longest]} steps")
            assert [int(it) for it in results.local[:6]] == [0, 1, 7, 2, 5, 8]


try:
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000)
except KeyboardInterrupt:
    sys.exit(130)
