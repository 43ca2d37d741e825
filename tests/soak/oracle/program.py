# SPDX-License-Identifier: BSD-3-Clause
"""A random program of the ranks of two worlds, which its seed decides.

Every rank draws the whole of it. A program is a number of groups: what a group
calls is under way at once, on both worlds and on the parts of one that the program
has split. Collective operations are called in the same order on every rank of
their communicator, and with other calls between them on each.
"""

import asyncio
import functools
import random

import collectives
from data import interleave
from traffic import Traffic

_TAGS = 16  # of a group
_GROUPS = 16  # of a program at most


class Program:
    def __init__(self, seed, size):
        self.seed = seed
        self.size = size
        rng = random.Random(seed)
        ranks = range(size)
        # A rank may be in a later program already: no two have the same tags.
        self.base = rng.getrandbits(48) * _TAGS * _GROUPS
        self.colors = self.keys = None
        # The ranks of the first world that each communicator has, in its order.
        self.members = [[*ranks], [*reversed(ranks)]]
        if rng.random() < 0.5:
            self._split(rng)
        self.groups = [self._group(rng, number) for number in range(rng.randint(1, 4))]

    def _split(self, rng):
        ranks = range(self.size)
        self.colors = [rng.choice([0, 0, 1, None]) for _ in ranks]
        self.keys = [rng.randint(-2, 2) for _ in ranks]
        for color in (0, 1):
            part = [rank for rank in ranks if self.colors[rank] == color]
            self.members.append(sorted(part, key=lambda rank: (self.keys[rank], rank)))

    def _group(self, rng, number):
        """A list of operations for each communicator."""
        group = [[] for _ in self.members]
        for _ in range(rng.choice([1, 1, 2, 3, 5, 8])):
            at = rng.randrange(len(self.members))
            if not self.members[at]:
                continue
            size = len(self.members[at])
            has_traffic = any(isinstance(each, Traffic) for each in group[at])
            if rng.random() < 0.4 and not has_traffic:
                group[at].append(Traffic(rng, size, self.base + number * _TAGS))
            else:
                group[at].append(rng.choice(collectives.ALL)(rng, size))
        return group

    async def run(self, worlds, rank):
        """Run one rank's part, and check what it has got."""
        comms = [*worlds]
        part = None
        if self.colors is not None:
            part = await worlds[0].split(self.colors[rank], self.keys[rank])
            comms += [part if color == self.colors[rank] else None for color in (0, 1)]
            assert (part is None) == (self.colors[rank] is None)
        for comm, members in zip(comms, self.members, strict=True):
            if comm is not None:
                assert (comm.size, members[comm.rank]) == (len(members), rank)
        rng = random.Random(f"{self.seed} {rank}")
        for group in self.groups:
            await self._run_group(comms, group, rng)
        if part is not None:
            part.close()

    async def _run_group(self, comms, group, rng):
        lists, checks = [], []
        for comm, steps in zip(comms, group, strict=True):
            if comm is None:
                continue
            calls = []
            for step in steps:
                if isinstance(step, Traffic):
                    posts, check = step.actions(comm, rng)
                    lists.append(posts)
                    checks.append(check)
                else:
                    call = functools.partial(_call, step, comm)
                    calls.append((f"{step} on {comm}", call))
            lists.append(calls)
        pending = []
        try:
            for name, post in interleave(rng, *lists):
                pending.append(asyncio.create_task(post(), name=name))
                if rng.random() < 0.1:
                    await asyncio.sleep(0)
            for each in rng.sample(pending, len(pending)):
                await each
        except BaseException as exc:
            for each in pending:
                if not each.done():
                    exc.add_note(f"not done: {each.get_name()}")
                    each.cancel()
            raise
        for check in checks:
            check()
        # A receive of any tag must not get a message of the next group.
        for comm, steps in zip(comms, group, strict=True):
            if comm is not None and any(
                isinstance(each, Traffic) and each.takes_any_tag() for each in steps
            ):
                await comm.barrier()


def _call(step, comm):
    request, check = step.begin(comm)
    return _checked(request, check)


async def _checked(request, check):
    check(await request)
