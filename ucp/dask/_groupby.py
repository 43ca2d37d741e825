# SPDX-License-Identifier: BSD-3-Clause
"""``groupby``: groups of rows, which Dask's own functions reduce before and after."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dask.dataframe
import pandas as pd
from dask.dataframe.dask_expr import _groupby
from dask.dataframe.dask_expr._collection import new_collection
from dask.dataframe.dask_expr._reductions import Aggregate
from dask.dataframe.utils import has_known_categories

from ._keys import make_keys
from ._shuffle import Shuffle
from ._steps import Side, check_types

_INSTEAD = "ddf.groupby(...).agg(...)"

# Whether groups without rows are left out, if a program does not say.
_PANDAS_OBSERVES = int(pd.__version__.split(".")[0]) >= 3


class GroupBy:
    """What ``ucp.dask.groupby()`` returns."""

    def __init__(
        self, ddf: Any, by: Any, observed: bool | None, dropna: bool | None
    ) -> None:
        if not isinstance(ddf, dask.dataframe.DataFrame):
            name = type(ddf).__name__
            raise NotImplementedError(f"{name} is no frame; use {_INSTEAD}")
        labels = by if isinstance(by, list) else [by]
        if not all(pd.api.types.is_hashable(each) for each in labels) or any(
            isinstance(each, dask.dataframe.Series) for each in labels
        ):
            raise NotImplementedError(f"by is no label; use {_INSTEAD}")
        missing = [label for label in labels if label not in ddf.columns]
        if missing or not labels:
            raise KeyError(f"there are no columns {missing}, only {[*ddf.columns]}")
        self._ddf = ddf
        self._groups = ddf.groupby(by, observed=observed, dropna=dropna)
        if observed is None:
            observed = _PANDAS_OBSERVES
        metas = [] if observed else [ddf._meta[label] for label in labels]
        self._is_whole = _is_categorical(metas)  # unobserved groups are in the result
        self._is_spread = _are_products_whole(metas, dropna)

    def agg(self, spec: Any, npartitions: int | None = None) -> Any:
        """A row for each group: ``ddf.groupby(by).agg(spec)`` over ucp.

        Args:
            spec: as in Dask.
            npartitions: of the result; None: as many as the frame has.

        Raises:
            NotImplementedError: what a partition is reduced to does not move.
        """
        count = npartitions or self._ddf.npartitions
        found, its = self._agg(spec, count)
        if self._is_whole and not (self._is_spread and its._is_decomposable):
            # Only a partition that has all groups knows which ones are missing.
            found, its = self._agg(spec, 1)
        mine = Aggregation(*its.operands)
        chunked = mine._concrete()._chunked()._meta
        check_types(Side(chunked, make_keys([chunked], [()])[0], True), _INSTEAD)
        result = new_collection(found.expr.substitute(its, mine))
        if result.npartitions < count:
            result = result.repartition(npartitions=count)
        return result

    def _agg(self, spec: Any, count: int) -> tuple[Any, Any]:
        """Dask's result of so many partitions, and its expression."""
        found = self._groups.agg(spec, split_out=count)
        kind = _groupby.GroupbyAggregation
        return found, next(each for each in found.expr.walk() if type(each) is kind)

    aggregate = agg


def _is_categorical(metas: Sequence[Any]) -> bool:
    """Is a key categorical?"""
    return any(isinstance(meta.dtype, pd.CategoricalDtype) for meta in metas)


def _are_products_whole(metas: Sequence[Any], dropna: bool | None) -> bool:
    """Do the groups that partitions have make up those that the whole frame has?

    A group that is not observed has any of a key's categories, or of another key's
    values in the frame. A partition knows those of its own values.
    """
    if len(metas) < 2:
        return True
    categorical = [meta for meta in metas if _is_categorical([meta])]
    are_known = all(map(has_known_categories, categorical))
    return are_known and len(metas) - len(categorical) < 2 and dropna is not False


class Aggregation(_groupby.GroupbyAggregation):
    """Groups, before it is known how they are made."""

    def _concrete(self) -> Any:
        kind = Decomposable if self._is_decomposable else Holistic
        return kind(*self.operands)

    def _lower(self) -> Any:
        return self._concrete()


class _Shuffled:
    """Partitions are reduced, shuffled by their index, and reduced again."""

    @property
    def unique_partition_mapping_columns_from_shuffle(self) -> set[Any]:
        return set()

    def _chunked(self: Any) -> Any:
        return self._chunk_cls(
            self.frame,
            type(self),
            self.chunk,
            self.chunk_kwargs,
            *self._chunk_cls_args,
        )

    def _divisions(self: Any) -> tuple[None, ...]:
        return (None,) * (self.split_out + 1)

    def _lower(self: Any) -> Any:
        shuffled = Shuffle(self._chunked(), [], self.split_out)
        return Aggregate(
            shuffled,
            type(self),
            self.aggregate,
            self.aggregate_kwargs,
            *self.aggregate_args,
        )


class Decomposable(_Shuffled, _groupby.DecomposableGroupbyAggregation):
    """Aggregations of which partitions have parts."""

    @property
    def aggregate_kwargs(self) -> dict[str, Any]:
        """Groups that are not observed come from the partitions of the frame.

        The shuffle brings each of them to one partition of the result.
        """
        found: dict[str, Any] = super().aggregate_kwargs
        return {**found, "observed": True} if self.split_out > 1 else found


class Holistic(_Shuffled, _groupby.HolisticGroupbyAggregation):
    """Aggregations that need all rows of a group."""

    @property
    def chunk_kwargs(self) -> dict[str, Any]:
        """Without rows for groups that are not observed, which would be counted."""
        return {**super().chunk_kwargs, "observed": True}
