# SPDX-License-Identifier: BSD-3-Clause
"""``shuffle``: the rows of a frame by the hash of their keys."""

from __future__ import annotations

import functools
from typing import Any, ClassVar

import dask.dataframe
import pandas as pd
from dask.dataframe.dask_expr._collection import new_collection
from dask.dataframe.dask_expr._expr import PartitionsFiltered
from dask.dataframe.dask_expr._shuffle import ShuffleBase

from ._keys import make_keys
from ._steps import Side, check_types, extract, make_graph
from ._tasks import Passed, ShuffleSpec

_INSTEAD = "ddf.shuffle(...)"


def shuffle(ddf: Any, on: Any, npartitions: int | None, ignore_index: bool) -> Any:
    """``ucp.dask.shuffle``."""
    if not isinstance(ddf, dask.dataframe.DataFrame):
        raise NotImplementedError(f"{type(ddf).__name__} is no frame; use {_INSTEAD}")
    if isinstance(on, dask.dataframe.Series | dask.dataframe.DataFrame):
        raise NotImplementedError(f"on is no label; use {_INSTEAD}")
    is_list = pd.api.types.is_list_like(on) and not isinstance(on, tuple)
    labels = list(on) if is_list else [on]
    if not labels or on is None:
        raise ValueError(f"on is {on!r}, which names no column")
    there = [*ddf._meta.columns, *ddf._meta.index.names]
    missing = [label for label in labels if label not in there]
    if missing:
        raise KeyError(f"there are no columns {missing}, only {there}")
    count = npartitions or ddf.npartitions
    check_types(_side(ddf._meta, labels, ignore_index), _INSTEAD)
    return new_collection(Shuffle(ddf, labels, count, ignore_index))


class Shuffle(PartitionsFiltered, ShuffleBase):
    """A frame whose rows are in the partitions that the hash of their keys names."""

    _funcname = "ucp-shuffle"
    _parameters: ClassVar[list[str]] = [
        "frame",
        "partitioning_index",
        "npartitions_out",
        "ignore_index",
        "_partitions",
    ]
    _defaults: ClassVar[dict[str, Any]] = {"ignore_index": False, "_partitions": None}

    @property
    def unique_partition_mapping_columns_from_shuffle(self) -> set[Any]:
        """None: Dask would take other frames that it has shuffled by these columns
        for partitioned alike."""
        return set()

    @functools.cached_property
    def _meta(self) -> Any:
        meta = self.frame._meta
        return meta.reset_index(drop=True) if self.ignore_index else meta

    def _divisions(self) -> tuple[None, ...]:
        return (None,) * (self.npartitions_out + 1)

    def _simplify_up(self, parent: Any, dependents: Any) -> Any:
        is_by_index = not self.partitioning_index
        return (
            None
            if self._filtered or is_by_index
            else super()._simplify_up(parent, dependents)
        )

    def _layer(self) -> dict[Any, Any]:
        wanted = tuple(self._partitions) if self._filtered else None
        spec = ShuffleSpec(self.deterministic_token, self.npartitions_out, 1, wanted)
        side = _side(self.frame._meta, self.partitioning_index, self.ignore_index)
        return make_graph(
            self._name,
            spec,
            [(self.frame._name, self.frame.npartitions)],
            [side],
            shuffle_partition,
            (side.meta,),
        )


def shuffle_partition(
    spec: ShuffleSpec, partition: int, passed: Passed, meta: Any
) -> Any:
    """Task: the rows of a partition."""
    return extract(spec, partition, passed, [meta])[0]


def _side(meta: Any, labels: list[Any], ignore_index: bool) -> Side:
    keys = make_keys([meta], [labels])[0]
    return Side(meta, keys, not ignore_index or keys.needs_index(meta.columns))
