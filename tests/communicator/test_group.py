# SPDX-License-Identifier: BSD-3-Clause
"""Groups of processes, and communicators of them."""

# tests: ucp/operations

import asyncio

import numpy as np
import pytest
from worlds import good_world, sync_world, world

import ucp

YES = {"allow_pickle": True}


def alone(check):
    """Run ``check(group)`` with a group of five ranks, on rank 1."""

    async def main(comm):
        if comm.rank == 1:
            check(comm.group)

    good_world(5, main)


def places(group, whole):
    return whole.translate_ranks(range(whole.size), group)


def test_the_group_of_a_communicator():
    async def main(comm):
        group = comm.group
        assert (group.size, group.rank, [*group]) == (3, comm.rank, [0, 1, 2])
        assert len(group) == 3
        assert group == comm.group
        assert hash(group) == hash(comm.group)
        assert group != "group"
        assert repr(group) == f"<ucp.Group of 3 processes, rank {comm.rank}>"

    good_world(3, main)


def test_incl_and_excl():
    def check(group):
        some = group.incl([4, np.int64(1), 0])
        assert (some.size, some.rank) == (3, 1)
        assert places(some, group) == [2, 1, None, None, 0]
        rest = group.excl([1, 3])
        assert (rest.size, rest.rank) == (3, None)
        assert places(rest, group) == [0, None, 1, None, 2]
        assert repr(rest) == "<ucp.Group of 3 processes, without this process>"
        assert group.incl([]).size == 0
        assert group.excl([]) == group
        assert group.excl(range(5)) == group.incl([])

    alone(check)


def test_union_intersection_difference():
    def check(group):
        one, other = group.incl([3, 0, 1]), group.incl([1, 2, 3])
        assert (one | other) == one.union(other) == group.incl([3, 0, 1, 2])
        assert (one & other) == one.intersection(other) == group.incl([3, 1])
        assert (one - other) == one.difference(other) == group.incl([0])

    alone(check)


def test_translate_ranks():
    def check(group):
        one, other = group.incl([3, 0, 1]), group.incl([1, 2, 3])
        assert one.translate_ranks([0, 1, 2, 0], other) == [2, None, 0, 2]
        assert one.translate_ranks([], other) == []

    alone(check)


def test_wrong_ranks_are_named():
    def check(group):
        for call in (group.incl, group.excl):
            with pytest.raises(
                ValueError, match=r"^there is no rank 5 in a group of 5 processes$"
            ):
                call([0, 5])
            with pytest.raises(ValueError, match=r"^there is no rank -1 in"):
                call([-1])
            with pytest.raises(ValueError, match=r"^rank 2 is given twice$"):
                call([2, 1, 2])
            with pytest.raises(TypeError):
                call(["0"])
        with pytest.raises(ValueError, match=r"^there is no rank 7 in"):
            group.translate_ranks([7], group)

    alone(check)


def test_groups_of_splits_have_the_same_processes():
    async def main(comm):
        async with await comm.split(comm.rank % 2, -comm.rank) as half:
            ranks = [4, 2, 0] if comm.rank % 2 == 0 else [3, 1]
            assert half.group == comm.group.incl(ranks)
            assert half.group.translate_ranks(range(half.size), comm.group) == ranks
            async with await half.split(half.rank) as single:
                assert single.group == comm.group.incl([comm.rank])

    good_world(5, main)


def test_ranks_that_have_met_twice_are_other_processes():
    async def main(comm):
        return comm.group

    first, second = good_world(2, main)[0], good_world(2, main)[0]
    assert first != second
    assert (first & second).size == 0
    assert (first | second).size == 4


def test_a_communicator_is_made_of_a_group():
    async def main(comm):
        group = comm.group.incl([3, 0, 2])
        made = await comm.create(group)
        if comm.rank == 1:
            assert made is None
        else:
            async with made:
                assert made.group == group
                assert made.rank == [1, None, 2, 0][comm.rank]
                assert await made.allgather_pickle(comm.rank, **YES) == [3, 0, 2]
        assert await comm.create(group.incl([])) is None
        await comm.barrier()

    good_world(4, main)


def test_a_group_that_is_not_in_the_communicator_is_refused():
    async def main(comm):
        async with await comm.split(comm.rank % 2) as half:
            with pytest.raises(
                ValueError,
                match=r"^2 of 4 processes of the group are not in the communicator$",
            ):
                half.create(comm.group)
            with pytest.raises(TypeError, match=r"^expected a ucp.Group, not list$"):
                half.create([0])
            assert await half.allgather_pickle(1, **YES) == [1, 1]

    good_world(4, main)


def test_ranks_that_give_different_groups_find_out():
    async def main(comm):
        group = comm.group.incl([0, 1] if comm.rank == 0 else [1, 0])
        try:
            made = await comm.create(group)
        except ValueError as exc:
            assert "different groups" in str(exc)
            return "refused"
        finally:
            await comm.barrier()  # which goes on
        with pytest.raises(ucp.UCXRankFailed, match="different groups"):
            await made.barrier()
        made.close()
        return "failed"

    ends = good_world(2, main)
    assert "refused" in ends


def test_a_dup_has_messages_and_operations_of_its_own():
    async def main(comm):
        async with await comm.dup() as two:
            assert (two.rank, two.size, two.name) == (comm.rank, comm.size, comm.name)
            assert two.group == comm.group
            other = 1 - comm.rank
            await comm.send(b"one", other)
            await two.send(b"two", other)
            buffer = bytearray(3)
            await two.recv(buffer)
            assert buffer == b"two"
            await comm.recv(buffer)
            assert buffer == b"one"
            # In another order on each of both.
            calls = [comm.barrier, two.barrier]
            await asyncio.gather(*[call() for call in calls[:: 1 - 2 * comm.rank]])

    good_world(2, main)


def make(kind, comm):
    if kind == "dup":
        return comm.dup()
    if kind == "create":
        return comm.create(comm.group)
    return comm.split(0)


@pytest.mark.parametrize("kind", ["dup", "create", "split"])
@pytest.mark.parametrize("first", ["parent", "child"])
def test_parent_and_child_are_closed_in_any_order(kind, first):
    async def main(comm):
        child = await make(kind, comm)
        for one in (comm, child):
            await one.allgather_pickle(np.arange(100_000), **YES)
        one, other = (comm, child) if first == "parent" else (child, comm)
        one.close()
        for _ in range(3):
            assert await other.allgather_pickle(comm.rank, **YES) == [0, 1, 2]
            await other.allgather_pickle(np.arange(100_000), **YES)
        await raises_closed(one)
        other.close()

    good_world(3, main)


async def raises_closed(comm):
    with pytest.raises(ucp.UCXCloseError):
        await comm.barrier()
    with pytest.raises(ucp.UCXCloseError):
        await comm.dup()


@pytest.mark.parametrize("kind", ["dup", "create", "split"])
def test_parents_and_children_on_different_ranks_close_in_different_orders(kind):
    async def main(comm):
        child = await make(kind, comm)
        await child.barrier()
        for one in (comm, child) if comm.rank % 2 else (child, comm):
            one.close()

    good_world(4, main)


@pytest.mark.parametrize("kind", ["dup", "create"])
def test_a_child_that_is_aborted_leaves_its_parent(kind):
    async def main(comm):
        child = await make(kind, comm)
        if comm.rank == 1:
            child.abort("enough")
        with pytest.raises(ucp.UCXRankFailed, match="enough"):
            await child.barrier()
            await child.barrier()
        child.close()
        assert await comm.allgather_pickle(comm.rank, **YES) == [0, 1, 2]

    good_world(3, main)


def test_a_child_outlives_a_parent_that_is_dropped():
    async def main(comm):
        two = await comm.dup()
        three = await two.dup()
        two.close()
        del two
        async with three:
            assert await three.allgather_pickle(comm.rank, **YES) == [0, 1]

    good_world(2, main)


def test_a_failed_communicator_makes_none():
    async def main(comm):
        comm.abort("enough")
        for call in (comm.dup, lambda: comm.create(comm.group)):
            with pytest.raises(ucp.UCXRankFailed, match="enough"):
                await call()
        raise RuntimeError("as expected")

    ends = world(1, main)
    assert [str(end) for end in ends] == ["as expected"]


def test_groups_of_threads():
    def main(comm):
        group = comm.group.excl([1])
        made = comm.create(group, timeout=20)
        with comm.dup(timeout=20) as two:
            assert two.group == comm.group
            assert two.allgather_pickle(comm.rank, **YES) == [0, 1, 2]
        if comm.rank == 1:
            assert made is None
            return
        with made:
            assert made.group == group
            assert made.allreduce_pickle(comm.rank, **YES) == 2

    sync_world(3, main)


def test_a_time_that_is_out_makes_none():
    def main(comm):
        if comm.rank == 0:
            with pytest.raises(ucp.UCXTimeout):
                comm.create(comm.group, timeout=0.05)
        with pytest.raises(ucp.UCXRankFailed):
            comm.recv(bytearray(1), 1 - comm.rank)

    sync_world(2, main)
