# SPDX-License-Identifier: BSD-3-Clause
# python examples/after_failure.py [RANKS]
"""Ranks go on after one of them has failed: those that are left meet again.

A communicator fails as a whole: when a rank ends, all others raise UCXRankFailed, which
names it. Here ranks add numbers, each a share of them in each step, and one rank is
killed in the middle. The others tell the launcher how far they are; it names the step
from which they go on, and a place to meet. They get new ranks there, and larger shares.
The launcher is this program, too: it starts the ranks as processes.
"""

import asyncio
import itertools
import multiprocessing
import os
import signal
import sys
import tempfile
import time

import numpy as np

import ucp

STEPS = 40
NUMBERS = 1_000_000  # that are added in each step
VICTIM, FATAL_STEP = 1, 20


def share(rank, size):
    """The numbers of a rank; those of all ranks are 0 to NUMBERS - 1."""
    return np.arange(NUMBERS * rank // size, NUMBERS * (rank + 1) // size)


class Rank:
    """What a process has done: so many steps, with this sum."""

    def __init__(self, is_victim):
        self.is_victim = is_victim
        self.step, self.total = 0, 0
        self.pause = 0.0  # seconds from a failure until work goes on
        self.failed_at = None
        self.missing = None  # the rank that has failed

    def report(self):
        return {
            name: vars(self)[name] for name in ("step", "total", "pause", "missing")
        }

    async def work(self, comm):
        """Go on until all steps are done."""
        numbers = share(comm.rank, comm.size)
        while self.step < STEPS:
            if self.is_victim and self.step == FATAL_STEP:
                os.kill(os.getpid(), signal.SIGKILL)
            added = numbers.sum(keepdims=True)
            await comm.allreduce(added)
            self.step, self.total = self.step + 1, self.total + int(added[0])

    async def run(self, pipe):
        """Meet the others where the launcher says, and work, until all is done."""
        while self.step < STEPS:
            pipe.send(self.report())
            rank, size, place, self.step, self.total = await asyncio.to_thread(
                pipe.recv
            )
            async with ucp.Communicator.connect(place, rank, size) as comm:
                if self.failed_at is not None:
                    self.pause = time.perf_counter() - self.failed_at
                try:
                    await self.work(comm)
                except ucp.UCXRankFailed as exc:
                    self.failed_at = time.perf_counter()
                    self.missing = exc.rank
        pipe.send(self.report())


def process(pipe, is_victim):
    try:
        asyncio.run(Rank(is_victim).run(pipe))
    except KeyboardInterrupt:
        sys.exit(130)


def reports(pipes):
    """What each process that is left says, by its pipe."""
    found = {}
    for pipe in pipes:
        try:
            found[pipe] = pipe.recv()
        except EOFError:  # it has ended
            pipe.close()
    return found


def main(size):
    context = multiprocessing.get_context("spawn")
    pipes, children = [], []
    for rank in range(size):
        pipe, end = context.Pipe()
        # A daemon ends with this process, however that ends.
        child = context.Process(target=process, args=(end, rank == VICTIM), daemon=True)
        child.start()
        end.close()
        pipes.append(pipe)
        children.append(child)
    with tempfile.TemporaryDirectory() as folder:
        for meeting in itertools.count():
            found = reports(pipes)
            # A rank may have finished a step in which others have failed.
            last = min(found.values(), key=lambda report: report["step"])
            step, total = last["step"], last["total"]
            if step == STEPS:
                break
            if meeting != 0:
                print(f"rank {last['missing']} has failed: on from step {step}")
            place = f"file://{folder}/meeting-{meeting}"
            for rank, pipe in enumerate(found):
                pipe.send((rank, len(found), place, step, total))
            pipes = list(found)
    for child in children:
        child.join()
    if total != STEPS * (NUMBERS - 1) * NUMBERS // 2:
        sys.exit(f"{total} is not the sum")
    print(f"{len(found)} of {size} ranks have the sum of all {STEPS} steps")
    pause = max(report["pause"] for report in found.values())
    print(f"they went on {pause * 1e3:.0f} ms after the failure")


if __name__ == "__main__":
    try:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 4)
    except KeyboardInterrupt:
        sys.exit(130)
