# SPDX-License-Identifier: BSD-3-Clause
"""Random programs of operations on objects return what plain Python does."""

# tests: ucp/pickled ucp/parcels ucp/steps ucp/futures ucp/sendrecv

import asyncio
import random

import object_programs as programs
import pytest
from worlds import good_world, sync_world

import ucp

YES = {"allow_pickle": True}
COUNT = 30


def begin(comm, step, prefix=""):
    """Begin a step: an awaitable, or with the prefix "i" a future of threads."""

    def method(name):
        return getattr(comm, f"{prefix}{name}_pickle")

    rank, size, root = comm.rank, comm.size, step.root
    own = programs.obj(step, rank)
    match step.kind:
        case "ring":
            after, before = (rank + 1) % size, (rank - 1) % size
            tag = step.seed
            return method("sendrecv")(own, after, before, tag, tag, **YES)
        case "swap":
            other = rank ^ 1
            if other >= size:
                return None
            return method("sendrecv")(own, other, other, step.seed, step.seed, **YES)
        case "bcast":
            return method("bcast")(own if rank == root else None, root, **YES)
        case "gather":
            return method("gather")(own, root, **YES)
        case "scatter" | "alltoall":
            objs = [programs.obj(step, rank, place) for place in range(size)]
            if step.kind == "alltoall":
                return method("alltoall")(objs, **YES)
            return method("scatter")(objs if rank == root else None, root, **YES)
        case "allgather":
            return method("allgather")(own, **YES)
        case "reduce":
            return method("reduce")(own, step.op, root, **YES)
    return method(step.kind)(own, step.op, **YES)


def check(comm, step, got):
    """``got`` is what a step has returned, or the exception that it has raised."""
    expected = programs.error(step, comm.rank, comm.size)
    where = (comm.rank, step)
    if expected is None:
        assert not isinstance(got, Exception), (where, got)
        assert programs.same(got, programs.result(step, comm.rank, comm.size)), where
        return
    kind, text = expected
    if kind != "any":
        assert type(got).__name__ == kind, (where, got)
        assert str(got).startswith(text), (where, got)


async def nothing():
    return None


async def run(comm, steps, rng):
    """Run steps, several at a time."""
    at = 0
    while at < len(steps):
        some = steps[at : at + rng.choice([1, 1, 2, 5])]
        at += len(some)
        calls = [begin(comm, step) or nothing() for step in some]
        ends = await asyncio.gather(*calls, return_exceptions=True)
        for step, end in zip(some, ends, strict=True):
            check(comm, step, end)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("seed", range(6))
def test_programs_of_tasks(seed, size):
    steps = programs.program(seed * 10 + size, size, COUNT, has_faults=True)

    async def main(comm):
        await run(comm, steps, random.Random(seed))

    good_world(size, main)


@pytest.mark.parametrize("seed", range(3))
def test_programs_on_parents_and_children_at_the_same_time(seed):
    size = 4

    async def main(comm):
        rng = random.Random(seed)
        children = [await comm.dup(), await comm.split(comm.rank % 2, -comm.rank)]
        everybody = [comm, *children]
        rng.shuffle(everybody)
        await asyncio.gather(
            *[
                run(
                    one,
                    programs.program(seed + 100 * one.size, one.size, COUNT, True),
                    random.Random(seed),
                )
                for one in everybody
            ]
        )
        for one in children:
            one.close()

    good_world(size, main)


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("seed", range(3))
def test_programs_of_threads(seed, size):
    steps = programs.program(seed * 10 + size + 5, size, COUNT, has_faults=True)

    def main(comm):
        rng = random.Random(f"{seed} {comm.rank}")
        at = 0
        while at < len(steps):
            some = steps[at : at + rng.choice([1, 2, 5])]
            at += len(some)
            futures = [begin(comm, step, "i") for step in some]
            order = [*zip(some, futures, strict=True)]
            rng.shuffle(order)
            for step, future in order:
                exc = None if future is None else future.exception(30)
                got = None if future is None else exc or future.result()
                check(comm, step, got)

    sync_world(size, main)


def test_a_wrong_result_is_found():
    step = programs.program(1, 2, 1, has_faults=False)[0]

    class Comm:
        rank, size = 0, 2

    check(Comm, step, programs.result(step, 0, 2))
    with pytest.raises(AssertionError):
        check(Comm, step, ["another"])
    with pytest.raises(AssertionError):
        check(Comm, step, ucp.UCXError("an error"))
