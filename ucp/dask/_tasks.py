# SPDX-License-Identifier: BSD-3-Clause
"""What the scheduler and the workers know about the tasks of a shuffle.

A shuffle with the id ``x`` is made by these tasks::

    ucp-insert-...   one for each partition of a table, where the partition is
    ucp-barrier-x    when all have inserted: every worker finishes its shuffler
    ucp-extract-...  one for each partition of the result, on its owner

No task waits for a task of another worker. What is finished by the barrier needs no
thread of a worker's tasks, so that an extract which holds the only one does not wait
for a shuffler that is finished behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dask._task_spec import Task

_BARRIER = "ucp-barrier-"


@dataclass(frozen=True)
class ShuffleSpec:
    """A shuffle.

    Attributes:
        id: its name, by which the barrier is found.
        num_partitions: of the result.
        num_tables: 1, or the 2 of a merge.
        wanted: the partitions of the result, some perhaps several times; None: all.
    """

    id: str
    num_partitions: int
    num_tables: int = 1
    wanted: tuple[int, ...] | None = None

    @property
    def outputs(self) -> Sequence[int]:
        """The partitions of the result, in their order."""
        return range(self.num_partitions) if self.wanted is None else self.wanted

    @property
    def partitions(self) -> Sequence[int]:
        """Those that are extracted, each once."""
        return tuple(dict.fromkeys(self.outputs))


class BarrierTask(Task):
    """The barrier: its first argument is the ``ShuffleSpec``."""

    __slots__ = ()

    @property
    def block_fusion(self) -> bool:
        return True


class ExtractTask(Task):
    """An extract: its first arguments are the ``ShuffleSpec`` and the partition."""

    __slots__ = ()

    @property
    def block_fusion(self) -> bool:
        return True


@dataclass(frozen=True)
class Inserted:
    """The result of an insert.

    Attributes:
        run_id: the run into which it was inserted.
        rank: that of the worker.
        table: 0, or 1 for the right one of a merge.
        place: how many of that table were inserted there before.
        number: that of the partition.
        layout: its ``Layout``, pickled.
    """

    run_id: int
    rank: int
    table: int
    place: int
    number: int
    layout: bytes


@dataclass(frozen=True)
class Passed:
    """The result of a barrier.

    Attributes:
        run_id: the run.
        layouts: pickled, each once.
        inserted: for each table and rank, in their order: the numbers of the
            partitions, and of their layouts.
    """

    run_id: int
    layouts: tuple[bytes, ...]
    inserted: tuple[dict[int, list[tuple[int, int]]], ...]


def barrier_key(shuffle: str) -> str:
    """The key of the barrier of a shuffle."""
    return _BARRIER + shuffle


def shuffle_of(key: Any) -> str | None:
    """The shuffle whose barrier has this key."""
    if isinstance(key, str) and key.startswith(_BARRIER):
        return key[len(_BARRIER) :]
    return None


def collect(spec: ShuffleSpec, inserts: Sequence[Inserted]) -> Passed:
    """What extracts need to know of the inserts of a run."""
    numbers: dict[bytes, int] = {}
    tables: tuple[dict[int, list[tuple[int, int]]], ...] = tuple(
        {} for _ in range(spec.num_tables)
    )
    for one in sorted(inserts, key=lambda one: one.place):
        layout = numbers.setdefault(one.layout, len(numbers))
        its = tables[one.table].setdefault(one.rank, [])
        its.append((one.number, layout))
    return Passed(inserts[0].run_id, tuple(numbers), tables)
