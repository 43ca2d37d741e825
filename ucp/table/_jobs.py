# SPDX-License-Identifier: BSD-3-Clause
"""What is done with the rows of a table: how they are moved, and what then."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy

from .._data.partition import (
    Partitions,
    hash_partition_to,
    range_partition_to,
)
from .._tables.common import without_rows
from .._tables.grouping import Grouping
from .._tables.rows import own_rows, with_numbers, with_values
from .._tables.sorting import Order, ordered_names, sort_rows

Allocate = Callable[[int], Any]


class Job(Protocol):
    """An operation, after the ranks have agreed. All ranks have the same.

    Attributes:
        name: of the operation.
        owners: the rank of each partition.
        is_ordered: partitions are in order, and so are the parts of the result.
        schema: of the rows that travel.
        dictionaries: of these, by the number of the column.
        keys: by which rows come together, for warnings; empty: by none.
    """

    name: str
    owners: list[int]
    is_ordered: bool
    schema: Any
    dictionaries: dict[int, Any]
    keys: tuple[str, ...]

    def prepare(self, table: Any) -> Any:
        """Return the rows of this rank's ``table`` that are sent to other ranks."""

    def targets(self, table: Any) -> Iterator[tuple[int | None, Any]]:
        """Divide the rows into slices.

        Each comes with its partition, or with None if its rows belong to several.
        """

    def partition(
        self, allocate: Allocate, table: Any, target: int | None
    ) -> Partitions:
        """Partition a piece of a slice."""

    def restore(self, table: Any) -> Any:
        """Return the rows of a partition in the form before the exchange, as views."""

    def finish(self, table: Any) -> Any:
        """Return a part of the result for a table of ``restore()``, as a copy."""

    def nothing(self) -> Any:
        """Return a result without rows."""


class _Job:
    """The base of all jobs, with what most of them do: see ``Job``."""

    is_ordered = False
    keys: tuple[str, ...] = ()

    def __init__(
        self, schema: Any, dictionaries: dict[int, Any], owners: Sequence[int]
    ) -> None:
        self.schema = schema
        self.dictionaries = dictionaries
        self.owners = list(owners)

    def prepare(self, table: Any) -> Any:
        return table

    def targets(self, table: Any) -> Iterator[tuple[int | None, Any]]:
        yield None, table

    def restore(self, table: Any) -> Any:
        return table

    def finish(self, table: Any) -> Any:
        return own_rows(table)

    def nothing(self) -> Any:
        return without_rows(self.schema, self.dictionaries)


class HashJob(_Job):
    """Rows with equal keys come to the same rank."""

    name = "repartition"

    def __init__(
        self,
        schema: Any,
        dictionaries: dict[int, Any],
        owners: Sequence[int],
        on: Sequence[str],
        seed: int,
    ) -> None:
        super().__init__(schema, dictionaries, owners)
        self.keys = tuple(on)
        self._seed = seed

    def partition(
        self, allocate: Allocate, table: Any, target: int | None
    ) -> Partitions:
        count = len(self.owners)
        return hash_partition_to(allocate, table, self.keys, count, self._seed)


class EvenJob(_Job):
    """Ranks get the rows in their order, and nearly as many of them each.

    Args:
        owners: of the partitions, each of which begins at a row of ``begins``.
        first: the number of this rank's first row among those of all.
        begins: the first row of each partition, and their number at the end.
    """

    name = "repartition"
    is_ordered = True

    def __init__(
        self,
        schema: Any,
        dictionaries: dict[int, Any],
        owners: Sequence[int],
        first: int,
        begins: Sequence[int],
    ) -> None:
        super().__init__(schema, dictionaries, owners)
        self._first = first
        self._begins = begins

    def targets(self, table: Any) -> Iterator[tuple[int | None, Any]]:
        end = self._first + table.num_rows
        for target in range(len(self.owners)):
            begin = max(self._begins[target], self._first)
            stop = min(self._begins[target + 1], end)
            if begin < stop:
                yield target, table.slice(begin - self._first, stop - begin)

    def partition(
        self, allocate: Allocate, table: Any, target: int | None
    ) -> Partitions:
        return range_partition_to(allocate, table, (), None, ())


class SortJob(_Job):
    """Rows are between splitters, and partitions are sorted.

    C compares values, so keys that are ordered dictionaries travel as numbers.

    Args:
        schema: of the table.
        dictionaries: of the table, as all ranks have them.
        splitters: a table of the key columns, with numbers for ordered dictionaries.
        library: by which rows are sorted.
    """

    name = "sort"
    is_ordered = True

    def __init__(
        self,
        schema: Any,
        dictionaries: dict[int, Any],
        owners: Sequence[int],
        order: Order,
        splitters: Any,
        library: str,
    ) -> None:
        self._nothing = without_rows(schema, dictionaries)
        self._ordered = ordered_names(schema, order.by)
        travelling = with_numbers(self._nothing, self._ordered).schema
        others = {
            number: values
            for number, values in dictionaries.items()
            if schema.field(number).name not in self._ordered
        }
        super().__init__(travelling, others, owners)
        self.keys = order.by
        self._order = order
        self._splitters = splitters
        self._library = library

    def partition(
        self, allocate: Allocate, table: Any, target: int | None
    ) -> Partitions:
        order = self._order
        return range_partition_to(
            allocate, table, order.by, self._splitters, order.bits
        )

    def prepare(self, table: Any) -> Any:
        return with_numbers(table, self._ordered)

    def restore(self, table: Any) -> Any:
        return with_values(table, self._nothing, self._ordered)

    def finish(self, table: Any) -> Any:
        return sort_rows(table, self._order, self._library)

    def nothing(self) -> Any:
        return self._nothing


class GroupJob(_Job):
    """Rows, or what they have been reduced to, are grouped in their partitions.

    Args:
        dictionaries: of the rows as they travel.
        is_reduced: each rank reduces its rows before they travel.
    """

    name = "group_by"

    def __init__(
        self,
        grouping: Grouping,
        dictionaries: dict[int, Any],
        owners: Sequence[int],
        is_reduced: bool,
        library: str,
        seed: int,
    ) -> None:
        schema = grouping.reduced_schema if is_reduced else grouping.prepared_schema
        super().__init__(schema, dictionaries, owners)
        self._grouping = grouping
        self._is_reduced = is_reduced
        self._library = library
        self._seed = seed

    def prepare(self, table: Any) -> Any:
        table = self._grouping.prepare(table)
        if self._is_reduced:
            return self._grouping.reduce(table, self._library)
        return table

    def partition(
        self, allocate: Allocate, table: Any, target: int | None
    ) -> Partitions:
        keys, count = self._grouping.keys, len(self.owners)
        return hash_partition_to(allocate, table, keys, count, self._seed)

    def finish(self, table: Any) -> Any:
        return self._grouping.finish(table, self._is_reduced, self._library)

    def nothing(self) -> Any:
        return self.finish(super().nothing())


def even_begins(rows: int, count: int) -> list[int]:
    """Where each of ``count`` nearly equal parts begins, and the end."""
    return [int(at) for at in numpy.arange(count + 1) * rows // count]
