# SPDX-License-Identifier: BSD-3-Clause
# python examples/compat/all_pairs.py [PROCESSES]
"""Every process connects to every other one, as an MPI library does at its start.

The parent gives the worker addresses of all processes to each of them, as a
launcher would. Then the processes meet at a barrier, and compute a sum to which
each contributes a number. At last they take the time of the barrier.
"""

import asyncio
import multiprocessing
import sys
import time

import ucp

BARRIER, SUM = 1 << 32, 2 << 32  # the upper half of the tag
ROUNDS = 200


class Ranks:
    """The processes: their endpoints by rank, and this one's rank."""

    def __init__(self, rank, endpoints):
        self.rank = rank
        self.endpoints = endpoints
        self.size = len(endpoints)

    @classmethod
    async def connect(cls, rank, addresses):
        """Make endpoints to all processes, this one included, without waiting."""
        endpoints = [
            await ucp.create_endpoint_from_worker_address(address)
            for address in addresses
        ]
        return cls(rank, endpoints)

    async def barrier(self):
        """Wait until every process has called this.

        In round k each process sends to the one that is 2^k ranks higher, and waits
        for the one that is 2^k ranks lower. The messages are empty: their tags are
        enough.
        """
        distance = 1
        while distance < self.size:
            to = self.endpoints[(self.rank + distance) % self.size]
            tag = BARRIER | distance
            await asyncio.gather(
                to.send(b"", tag=tag, force_tag=True), ucp.recv(bytearray(), tag)
            )
            distance *= 2

    async def sum(self, number):
        """Return the sum of the numbers of all, which each sends to all others."""
        mine = number.to_bytes(8, "little")
        others = [bytearray(8) for _ in self.endpoints]
        await asyncio.gather(
            *(
                ep.send(mine, tag=SUM | self.rank, force_tag=True)
                for ep in self.endpoints
            ),
            *(ucp.recv(buffer, SUM | rank) for rank, buffer in enumerate(others)),
        )
        return sum(int.from_bytes(buffer, "little") for buffer in others)

    async def close(self):
        await asyncio.gather(*(ep.close() for ep in self.endpoints))


async def run(rank, pipe):
    pipe.send(ucp.get_worker_address())
    ranks = await Ranks.connect(rank, pipe.recv())
    await ranks.barrier()
    total = await ranks.sum(rank + 1)
    times = []
    for _ in range(ROUNDS):  # after the first one all have received their messages
        begun = time.perf_counter()
        await ranks.barrier()
        times.append(time.perf_counter() - begun)
    pipe.send((total, min(times)))
    await ranks.close()


def process(rank, pipe):
    try:
        asyncio.run(run(rank, pipe))
    except KeyboardInterrupt:
        sys.exit(130)


def main(size):
    context = multiprocessing.get_context("spawn")
    pipes, processes = [], []
    for rank in range(size):
        pipe, end = context.Pipe()
        # A daemon ends with this process, however that ends.
        child = context.Process(target=process, args=(rank, end), daemon=True)
        processes.append(child)
        child.start()
        end.close()
        pipes.append(pipe)
    addresses = [pipe.recv() for pipe in pipes]
    for pipe in pipes:
        pipe.send(addresses)
    totals, times = map(set, zip(*(pipe.recv() for pipe in pipes), strict=True))
    for child in processes:
        child.join()
    expected = size * (size + 1) // 2
    print(f"{size} processes, {size * size} endpoints: each has the sum {totals}")
    print(f"a barrier takes {max(times) * 1e6:.0f} us")
    if totals != {expected} or any(child.exitcode for child in processes):
        sys.exit(f"expected {expected} from each")


if __name__ == "__main__":
    try:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 4)
    except KeyboardInterrupt:
        sys.exit(130)
