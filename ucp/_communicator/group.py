# SPDX-License-Identifier: BSD-3-Clause
"""Groups of processes, of which communicators are made."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from typing import Any, Self, SupportsIndex

from .._core.operation import Steps
from .steps import wait_for

_Process = tuple[int, int]  # what identifies it in all communicators


class Group:
    """Processes in an order: the place of a process is its rank in the group.

    ``Communicator.group`` is the group of a communicator. Other groups are made from
    groups, on this rank alone. A group does not change.
    ``Communicator.create(group)`` makes a communicator of a group.

    A communicator and all communicators that were split off from it have the same
    processes. If ranks meet twice, by two calls of ``connect()`` for example, the
    processes of the first communicator are not equal to those of the second.

        workers = comm.group.excl([0])
        made = await comm.create(workers)  # None on rank 0
    """

    __slots__ = ("_own", "_processes")

    def __init__(self, processes: Iterable[_Process], own: _Process) -> None:
        self._processes = tuple(processes)
        self._own = own

    @property
    def size(self) -> int:
        """How many processes there are."""
        return len(self._processes)

    @property
    def rank(self) -> int | None:
        """The rank of this process; None: it is not in the group."""
        return self._find(self._own)

    def incl(self, ranks: Iterable[SupportsIndex]) -> Self:
        """The group of the processes with these ranks, in this order.

        Raises:
            ValueError: there is no such rank, or it is given twice.
        """
        return self._made(self._processes[rank] for rank in self._check(ranks))

    def excl(self, ranks: Iterable[SupportsIndex]) -> Self:
        """The group without the processes with these ranks.

        Raises:
            ValueError: there is no such rank, or it is given twice.
        """
        left_out = {*self._check(ranks)}
        return self._made(
            process
            for rank, process in enumerate(self._processes)
            if rank not in left_out
        )

    def union(self, other: Group) -> Self:
        """The processes of this group, then those that only the other one has."""
        more = (each for each in other._processes if each not in self._processes)
        return self._made([*self._processes, *more])

    def intersection(self, other: Group) -> Self:
        """The processes that both groups have, in the order of this one."""
        return self._made(p for p in self._processes if p in other._processes)

    def difference(self, other: Group) -> Self:
        """The processes that the other group does not have."""
        return self._made(p for p in self._processes if p not in other._processes)

    def translate_ranks(
        self, ranks: Iterable[SupportsIndex], other: Group
    ) -> list[int | None]:
        """The ranks that processes of this group have in another one; None for a
        process that is not in it.

        Raises:
            ValueError: this group has no such rank.
        """
        found = [self._check_rank(rank) for rank in ranks]
        return [other._find(self._processes[rank]) for rank in found]

    def __or__(self, other: Group) -> Self:
        return self.union(other)

    def __and__(self, other: Group) -> Self:
        return self.intersection(other)

    def __sub__(self, other: Group) -> Self:
        return self.difference(other)

    def __len__(self) -> int:
        return len(self._processes)

    def __iter__(self) -> Iterator[int]:
        """Iterate over the ranks."""
        return iter(range(len(self._processes)))

    def __eq__(self, other: object) -> bool:
        """The same processes in the same order."""
        if not isinstance(other, Group):
            return NotImplemented
        return self._processes == other._processes

    def __hash__(self) -> int:
        return hash(self._processes)

    def __repr__(self) -> str:
        rank = self.rank
        place = "without this process" if rank is None else f"rank {rank}"
        return f"<ucp.Group of {self.size} processes, {place}>"

    def _made(self, processes: Iterable[_Process]) -> Self:
        return type(self)(processes, self._own)

    def _find(self, process: _Process) -> int | None:
        try:
            return self._processes.index(process)
        except ValueError:
            return None

    def _check_rank(self, rank: SupportsIndex) -> int:
        number = operator.index(rank)
        if not 0 <= number < self.size:
            raise ValueError(
                f"there is no rank {number} in a group of {self.size} processes"
            )
        return number

    def _check(self, ranks: Iterable[SupportsIndex]) -> list[int]:
        found: list[int] = []
        for rank in ranks:
            number = self._check_rank(rank)
            if number in found:
                raise ValueError(f"rank {number} is given twice")
            found.append(number)
        return found


def group_of(comm: Any) -> Group:
    """The group of all ranks of a ``ucp.Communicator``."""
    processes = comm._processes
    if not processes:
        raise ValueError("the communicator is not made")
    return Group(processes, processes[comm.rank])


# ---- steps -----------------------------------------------------------------------


def check_group(comm: Any, group: Any) -> None:
    """Raise unless the communicator has the processes of a group."""
    if not isinstance(group, Group):
        raise TypeError(f"expected a ucp.Group, not {type(group).__name__}")
    missing = group.difference(group_of(comm)).size
    if missing:
        raise ValueError(
            f"{missing} of {group.size} processes of the group are not in the "
            "communicator"
        )


def create(comm: Any, group: Group) -> Steps[Any]:
    """Make the communicator of a group that check_group() has found right."""
    rank = group.rank
    color, key = (None, 0) if rank is None else (0, rank)
    [made] = yield from wait_for([comm.split(color, key)])
    if made is not None and made._processes != group._processes:
        what = "the ranks have given different groups to create()"
        made.abort(f"{what}: rank {comm.rank} another one than others")
        made.close()
        raise ValueError(f"{what}: not that of rank {comm.rank} was made")
    return made
