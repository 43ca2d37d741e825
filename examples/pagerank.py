# SPDX-License-Identifier: BSD-3-Clause
"""PageRank of a graph whose pages are divided among the ranks.

    python -m ucp run -n 4 examples/pagerank.py [PAGES]

Each rank has some pages with their links. In a step a page gives its score to those
that it links to: what goes to pages of the same rank is added up first, and one
alltoallv() moves the sums. Which pages these are never changes, so their numbers are
exchanged once.
"""

import asyncio
import sys

import numpy as np

import ucp

LINKS = 8  # of each page
DAMPING = 0.85
STEPS = 100
ENOUGH = 1e-10  # change of all scores in a step


def links_of(pages, first, count):
    """The links of `count` pages: most lead to the pages with small numbers."""
    sources = np.repeat(np.arange(first, first + count), LINKS)
    hashes = sources * 2654435761 + np.tile(np.arange(LINKS), count) * 40503
    targets = (pages * ((hashes % 1009) / 1009) ** 3).astype("i8")
    return sources, targets


class Exchange:
    """Sums for pages of all ranks go to the ranks that have the pages."""

    def __init__(self, comm, targets, bounds):
        self.comm = comm
        # The pages that get something, by their number and so by rank; and for each
        # link the place of its target among them.
        self.pages, self.place = np.unique(targets, return_inverse=True)
        ends = np.searchsorted(self.pages, bounds)
        self.send_counts = np.diff(ends)

    async def begin(self, first):
        """Tell the ranks for which pages sums will come."""
        self.recv_counts = np.empty_like(self.send_counts)
        await self.comm.alltoall(self.send_counts, self.recv_counts)
        theirs = np.empty(self.recv_counts.sum(), dtype="i8")
        await self.comm.alltoallv(
            self.pages, self.send_counts, theirs, self.recv_counts
        )
        self.rows = theirs - first
        self.received = np.empty(len(theirs))

    async def add(self, gifts, count):
        """What the pages of this rank get from the links of all ranks."""
        sums = np.bincount(self.place, gifts, len(self.pages))
        await self.comm.alltoallv(
            sums, self.send_counts, self.received, self.recv_counts
        )
        return np.bincount(self.rows, self.received, count)


async def main(pages):
    async with await ucp.Communicator.from_env() as comm:
        bounds = pages * np.arange(comm.size + 1) // comm.size
        first, end = bounds[comm.rank], bounds[comm.rank + 1]
        sources, targets = links_of(pages, first, end - first)
        exchange = Exchange(comm, targets, bounds)
        await exchange.begin(first)
        scores = np.full(end - first, 1 / pages)
        steps, change = 0, np.array([1.0, 1.0])  # of all scores; their sum
        while change[0] >= ENOUGH and steps < STEPS:
            gifts = (scores / LINKS)[sources - first]
            found = await exchange.add(gifts, end - first)
            found = (1 - DAMPING) / pages + DAMPING * found
            change = np.array([np.abs(found - scores).sum(), found.sum()])
            await comm.allreduce(change)
            scores = found
            steps += 1
        best = await comm.gather_pickle(
            (scores.max(), int(first + scores.argmax())), allow_pickle=True
        )
        if comm.rank == 0:
            score, page = max(best)
            print(f"{steps} steps, sum {change[1]:.6f}, page {page} has {score:.6f}")


try:
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000))
except KeyboardInterrupt:
    sys.exit(130)
