# SPDX-License-Identifier: BSD-3-Clause
"""By what the rows of frames are in order, and where partitions begin."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from .._data.partition import Partitions, order_bits, range_partition_to
from ._frames import column_name

# Rows of a partition that are looked at. With as many as this, the largest of eight
# partitions of the result is a few percent larger than it would be.
_SAMPLES = 2000


@dataclass(frozen=True)
class Order:
    """The order of the rows of a frame.

    Attributes:
        label: of the column that decides to which partition a row belongs.
        ascending: the smallest are first.
        na_position: where nulls are, as in pandas.
    """

    label: Any
    ascending: bool
    na_position: str

    def method(
        self, frame: Any, count: int, splitters: Any
    ) -> tuple[list[tuple[str, Any]], Any]:
        """How the table of a frame is partitioned.

        Args:
            frame: of pandas.
            count: of partitions.
            splitters: one less; None, for one partition.

        Returns:
            Columns that are added to the table, and the method.

        Raises:
            TypeError: the column has values without an order.
        """
        place = list(frame.columns).index(self.label)
        name, extra = column_name(place), []
        values = _values(frame.iloc[:, place])
        if values is not None:
            name, extra = "h", [("h", values)]
        bits = order_bits(1, not self.ascending, self.na_position)

        def divide(allocate: Callable[[int], Any], table: Any) -> Partitions:
            its = splitters
            if its is None:
                its = pa.nulls(count - 1, table.schema.field(name).type)
            kind = table.schema.field(name).type
            between = pa.table({name: its if its.type == kind else its.cast(kind)})
            return range_partition_to(allocate, table, [name], between, bits)

        return extra, divide


def _values(column: Any) -> Any:
    """Values in the order of pandas; None: those that move are.

    Raises:
        TypeError: they have no order.
    """
    dtype = column.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        codes = column.array.codes.astype("int64")  # categories may have more values
        return pa.array(codes, mask=codes < 0)
    if isinstance(dtype, np.dtype):
        if dtype.kind in "mM":
            return pa.array(column.array, from_pandas=True)
        if dtype.kind == "O":
            values = pa.array(column.to_numpy(), from_pandas=True)
            if pa.types.is_null(values.type) or pa.types.is_string(values.type):
                return values.cast(pa.large_string())
            raise TypeError(f"objects of type {values.type} are not sorted")
    return None


def sample(frame: Any, order: Order) -> tuple[Any, int]:
    """Return some values of a partition, and its number of rows. This is a task."""
    column = frame[order.label]
    step = max(1, len(column) // _SAMPLES)
    taken = column.iloc[step // 2 :: step]
    values = _values(taken)
    if values is None:
        values = pa.array(taken.array, from_pandas=True)
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if pa.types.is_string(values.type) or pa.types.is_string_view(values.type):
        values = values.cast(pa.large_string())
    return values, len(column)


def choose(samples: Sequence[tuple[Any, int]], count: int, order: Order) -> Any:
    """Task: the values at which partitions begin.

    Args:
        samples: of all partitions of the input.
        count: of partitions of the result.
        order: of the rows.
    """
    there = [(values, rows) for values, rows in samples if len(values)]
    kinds = [values.type for values, _ in there or samples]
    kind = next((kind for kind in kinds if not pa.types.is_null(kind)), kinds[0])
    if not there:
        return pa.nulls(count - 1, kind)
    values = pa.concat_arrays([one.cast(kind) for one, _ in there])
    weights = np.repeat(
        [rows / len(one) for one, rows in there], [len(one) for one, _ in there]
    )
    direction = "ascending" if order.ascending else "descending"
    places = pc.sort_indices(values, sort_keys=[("", direction)]).to_numpy()
    if order.na_position == "first":
        num_nulls = pc.sum(pc.is_null(values, nan_is_null=True)).as_py()
        first = len(places) - num_nulls
        places = np.r_[places[first:][::-1], places[:first]]  # nulls, then NaNs
    before = np.cumsum(weights[places])
    wanted = before[-1] * np.arange(1, count) / count
    found = np.minimum(np.searchsorted(before, wanted, "right"), len(places) - 1)
    return values.take(pa.array(places[found]))
