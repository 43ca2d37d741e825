# SPDX-License-Identifier: BSD-3-Clause
"""``sort_values``: the rows of a frame in order, within partitions and over them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import dask.dataframe
from dask._task_spec import List, Task, TaskRef
from dask.dataframe.dask_expr._collection import new_collection
from dask.dataframe.dask_expr._expr import (
    Expr,
    Filter,
    PartitionsFiltered,
    Projection,
    determine_column_projection,
)

from ._order import Order, choose, sample
from ._steps import Side, check_types, extract, make_graph
from ._tasks import Passed, ShuffleSpec

_INSTEAD = "ddf.sort_values(...)"


def sort_values(
    ddf: Any,
    by: Any,
    ascending: bool | Sequence[bool],
    na_position: str,
    npartitions: int | None,
    ignore_index: bool,
) -> Any:
    """``ucp.dask.sort_values``."""
    if not isinstance(ddf, dask.dataframe.DataFrame):
        raise NotImplementedError(f"{type(ddf).__name__} is no frame; use {_INSTEAD}")
    if na_position not in ("first", "last"):
        raise ValueError(f"na_position is {na_position!r}, not 'first' or 'last'")
    labels = list(by) if isinstance(by, list) else [by]
    missing = [label for label in labels if label not in ddf._meta.columns]
    if missing or not labels:
        raise KeyError(f"there are no columns {missing}, only {[*ddf.columns]}")
    ways = [ascending] if isinstance(ascending, bool) else list(ascending)
    if not isinstance(ascending, bool) and len(ways) != len(labels):
        raise ValueError(f"ascending has {len(ways)} values for {len(labels)} columns")
    if npartitions is not None and not isinstance(npartitions, int):
        raise NotImplementedError(f"npartitions is {npartitions!r}; use {_INSTEAD}")
    way = ascending if isinstance(ascending, bool) else ways
    found = SortValues(ddf, labels, way, na_position, npartitions, ignore_index)
    check_types(found._side, _INSTEAD)
    return new_collection(found)


class SortValues(PartitionsFiltered, Expr):
    """A frame whose rows are in order."""

    _funcname = "ucp-sort"
    _parameters: ClassVar[list[str]] = [
        "frame",
        "by",
        "ascending",
        "na_position",
        "npartitions_out",
        "ignore_index",
        "_partitions",
    ]
    _defaults: ClassVar[dict[str, Any]] = {
        "npartitions_out": None,
        "ignore_index": False,
        "_partitions": None,
    }
    _is_length_preserving = True
    _filter_passthrough = True

    @property
    def _meta(self) -> Any:
        return self.frame._meta

    @property
    def _order(self) -> Order:
        first = self.ascending
        first = first if isinstance(first, bool) else first[0]
        return Order(self.by[0], first, self.na_position)

    @property
    def _side(self) -> Side:
        return Side(self.frame._meta, self._order, not self.ignore_index)

    def _divisions(self) -> tuple[None, ...]:
        return (None,) * ((self.npartitions_out or self.frame.npartitions) + 1)

    def _simplify_up(self, parent: Any, dependents: Any) -> Any:
        if self._filtered:
            return None
        if isinstance(parent, Filter):
            if self._filter_passthrough_available(parent, dependents):
                return self._filter_simplification(parent)
        if isinstance(parent, Projection):
            used = determine_column_projection(
                self, parent, dependents, additional_columns=self.by
            )
            columns = [label for label in self.frame.columns if label in used]
            if columns != list(self.frame.columns):
                its = type(self)(self.frame[columns], *self.operands[1:])
                return type(parent)(its, *parent.operands[1:])
        return None

    def _layer(self) -> dict[Any, Any]:
        wanted = tuple(self._partitions) if self._filtered else None
        count = len(self._divisions()) - 1
        spec = ShuffleSpec(self.deterministic_token, count, 1, wanted)
        graph: dict[Any, Any] = {}
        samples = []
        for number in range(self.frame.npartitions):
            key = (f"ucp-sample-{spec.id}", number)
            graph[key] = Task(
                key, sample, TaskRef((self.frame._name, number)), self._order
            )
            samples.append(graph[key].ref())
        splitters = f"ucp-splitters-{spec.id}"
        graph[splitters] = Task(splitters, choose, List(*samples), count, self._order)
        options = {
            "by": self.by,
            "ascending": self.ascending,
            "na_position": self.na_position,
            "ignore_index": self.ignore_index,
        }
        return graph | make_graph(
            self._name,
            spec,
            [(self.frame._name, self.frame.npartitions)],
            [self._side],
            sort_partition,
            (self.frame._meta, options),
            TaskRef(splitters),
        )


def sort_partition(
    spec: ShuffleSpec,
    partition: int,
    passed: Passed,
    meta: Any,
    options: dict[str, Any],
) -> Any:
    """Task: the rows of a partition, in order."""
    return extract(spec, partition, passed, [meta])[0].sort_values(**options)
