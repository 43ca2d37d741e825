# SPDX-License-Identifier: BSD-3-Clause
"""``merge``: two frames by their keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import dask.dataframe
import pandas as pd
from dask.dataframe.dask_expr import _merge
from dask.dataframe.dask_expr._collection import new_collection
from dask.dataframe.dask_expr._expr import PartitionsFiltered
from dask.dataframe.multi import merge_chunk

from ._keys import make_keys
from ._pairs import merge_pairs
from ._steps import Side, check_types, extract, make_graph
from ._tasks import Passed, ShuffleSpec


def merge(left: Any, right: Any, **arguments: Any) -> Any:
    """``ucp.dask.merge``.

    Dask reads the arguments; its expression is exchanged for one of ours.
    """
    for frame in (left, right):
        if not isinstance(frame, dask.dataframe.DataFrame | pd.DataFrame):
            raise NotImplementedError(
                f"{type(frame).__name__} is no frame; use left.merge(right, ...)"
            )
    found = dask.dataframe.merge(left, right, **arguments)
    its = next(each for each in found.expr.walk() if type(each) is _merge.Merge)
    names = ("left_on", "right_on", "left_index", "right_index")
    on = {name: its.operand(name) for name in names}
    for side in _sides((its.left, its.right), **on):
        check_types(side, "left.merge(right, ...)")
    return new_collection(found.expr.substitute(its, Merge(*its.operands)))


class Merge(_merge.Merge):
    """A merge, before it is known how it is made.

    What needs no shuffle is made as Dask makes it.
    """

    _funcname = "ucp-merge"

    @property
    def unique_partition_mapping_columns_from_shuffle(self) -> set[Any]:
        """None: Dask would take other frames that it has shuffled by these columns
        for partitioned alike."""
        return set()

    def _lower(self) -> Any:
        is_by_index = self.merge_indexed_left and self.merge_indexed_right
        if self._is_single_partition_broadcast or is_by_index:
            return super()._lower()
        if self.is_broadcast_join and self.how == "inner":
            return super()._lower()
        npartitions = self.operand("_npartitions") or max(
            self.left.npartitions, self.right.npartitions
        )
        return HashMerge(
            self.left,
            self.right,
            how=self.how,
            left_on=self.left_on,
            right_on=self.right_on,
            left_index=self.left_index,
            right_index=self.right_index,
            suffixes=self.suffixes,
            indicator=self.indicator,
            _npartitions=npartitions,
        )


class HashMerge(_merge.Merge, PartitionsFiltered):
    """A merge of the partitions of both frames, by the hash of their keys."""

    _funcname = "ucp-merge"
    _parameters: ClassVar[list[str]] = [
        "left",
        "right",
        "how",
        "left_on",
        "right_on",
        "left_index",
        "right_index",
        "suffixes",
        "indicator",
        "_npartitions",
        "_partitions",
    ]
    _defaults: ClassVar[dict[str, Any]] = {
        "how": "inner",
        "left_on": None,
        "right_on": None,
        "left_index": False,
        "right_index": False,
        "suffixes": ("_x", "_y"),
        "indicator": False,
        "_npartitions": None,
        "_partitions": None,
    }
    is_broadcast_join = False

    @property
    def unique_partition_mapping_columns_from_shuffle(self) -> set[Any]:
        return set()

    def _divisions(self) -> tuple[None, ...]:
        return (None,) * (self.operand("_npartitions") + 1)

    def _lower(self) -> None:
        return None

    def _simplify_up(self, parent: Any, dependents: Any) -> None:
        return None

    def _layer(self) -> dict[Any, Any]:
        wanted = tuple(self._partitions) if self._filtered else None
        spec = ShuffleSpec(
            self.deterministic_token, self.operand("_npartitions"), 2, wanted
        )
        arguments = {
            "how": self.how,
            "left_on": self.left_on,
            "right_on": self.right_on,
            "left_index": self.left_index,
            "right_index": self.right_index,
            "suffixes": self.suffixes,
            "indicator": self.indicator,
        }
        frames = (self.left, self.right)
        sides = _sides(
            frames, self.left_on, self.right_on, self.left_index, self.right_index
        )
        metas = tuple(side.meta for side in sides)
        return make_graph(
            self._name,
            spec,
            [(frame._name, frame.npartitions) for frame in frames],
            sides,
            merge_partition,
            (metas, self._meta, arguments),
        )


def _sides(
    frames: tuple[Any, Any],
    left_on: Any,
    right_on: Any,
    left_index: bool,
    right_index: bool,
) -> list[Side]:
    labels = [
        () if is_index else tuple(on) if isinstance(on, list) else (on,)
        for on, is_index in ((left_on, left_index), (right_on, right_index))
    ]
    metas = [frame._meta for frame in frames]
    keys = make_keys(metas, labels)
    with_index = left_index or right_index
    return [
        Side(meta, its, with_index or its.needs_index(meta.columns))
        for meta, its in zip(metas, keys, strict=True)
    ]


def merge_partition(
    spec: ShuffleSpec,
    partition: int,
    passed: Passed,
    metas: Sequence[Any],
    meta: Any,
    arguments: dict[str, Any],
) -> Any:
    """Task: the rows of a partition of both frames, merged."""
    left, right = extract(spec, partition, passed, metas)
    names = ("left_index", "right_index", "indicator")
    if not any(arguments[name] for name in names):
        on = (arguments[name] for name in ("left_on", "right_on"))
        left_on, right_on = (its if isinstance(its, list) else [its] for its in on)
        how, other = arguments["how"], right
        if how == "leftsemi":
            how, other = "inner", right.drop_duplicates()
        found = merge_pairs(left, other, how, left_on, right_on, meta.columns)
        if found is not None:
            return found
    return merge_chunk(left, right, result_meta=meta, **arguments)
