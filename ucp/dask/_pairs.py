# SPDX-License-Identifier: BSD-3-Clause
"""Local merges by the pairs of rows that polars finds.

polars gets the keys only. The rows of the pairs are taken by pandas, in the order of
``pandas.merge``, so that nothing else of the result differs either.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import sys
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

# The first version of polars that has what is used here.
_LEAST = (1, 24)

# With fewer rows of both frames pandas is faster, or polars not worth being loaded.
_LEAST_ROWS = 20_000
_LEAST_ROWS_TO_LOAD = 50_000


def merge_pairs(
    left: Any,
    right: Any,
    how: str,
    left_on: list[Any],
    right_on: list[Any],
    labels: Any,
) -> Any:
    """The merge of two frames by columns, or None: pandas has to do it.

    Args:
        left: of pandas.
        right: of pandas.
        how: as in ``pandas.merge``.
        left_on: labels of columns.
        right_on: as many.
        labels: of the result's columns.
    """
    if how not in ("inner", "left", "right") or not _is_worth(left, right):
        return None
    keys = [
        _keys_of(left, right, *pair) for pair in zip(left_on, right_on, strict=True)
    ]
    if None in keys:
        return None
    shared = {b for a, b in zip(left_on, right_on, strict=True) if a == b}
    own = [place for place, b in enumerate(right.columns) if b not in shared]
    if left.shape[1] + len(own) != len(labels):
        return None
    pairs = _find([key for key in keys if key is not None], how, len(left), len(right))
    # Keys of both are those of the side whose rows are all in the result.
    columns = [
        _take(right[label], pairs[1], False)
        if how == "right" and label in shared
        else _take(left.iloc[:, place], pairs[0], how == "right")
        for place, label in enumerate(left.columns)
    ]
    columns += [_take(right.iloc[:, p], pairs[1], how == "left") for p in own]
    found = pd.DataFrame(dict(enumerate(columns)), copy=False)
    found.columns = labels
    return found


def _is_worth(left: Any, right: Any) -> bool:
    if not len(left) or not len(right) or not _is_installed():
        return False
    rows = len(left) + len(right)
    return rows >= (_LEAST_ROWS if "polars" in sys.modules else _LEAST_ROWS_TO_LOAD)


@cache
def _is_installed() -> bool:
    if importlib.util.find_spec("polars") is None:
        return False
    try:
        found = importlib.metadata.version("polars").split(".")
        return (int(found[0]), int(found[1])) >= _LEAST
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return False


def _keys_of(left: Any, right: Any, left_on: Any, right_on: Any) -> Any:
    """A key as columns of Arrow whose values are equal if pandas finds them so."""
    for frame, label in ((left, left_on), (right, right_on)):
        if frame.columns.tolist().count(label) != 1:
            return None
    its, other = left[left_on], right[right_on]
    dtype = its.dtype
    if dtype != other.dtype:
        return None
    if isinstance(dtype, pd.StringDtype):
        return tuple(pa.array(key.array, from_pandas=True) for key in (its, other))
    if isinstance(dtype, np.dtype) and dtype.kind in "iumM":
        views = (
            np.ascontiguousarray(key.to_numpy()).view(f"i{dtype.itemsize}")
            for key in (its, other)
        )
        return tuple(map(pa.array, views))
    return None


def _find(keys: list[Any], how: str, num_left: int, num_right: int) -> tuple[Any, Any]:
    """The rows of each pair, -1 for none, in the order of pandas."""
    polars = importlib.import_module("polars")
    names = [f"k{number}" for number in range(len(keys))]
    sides = [
        polars.from_arrow(
            pa.table([*(key[side] for key in keys), np.arange(rows)], [*names, "row"])
        ).lazy()
        for side, rows in enumerate((num_left, num_right))
    ]
    first, second = sides if how != "right" else sides[::-1]
    count = num_right if how != "right" else num_left
    found = first.join(
        second,
        on=names,
        how="inner" if how == "inner" else "left",
        nulls_equal=True,
        suffix="2",
    )
    place = polars.col("row") * (count + 1) + polars.col("row2").fill_null(-1) + 1
    packed = found.select(place).collect(engine="streaming").to_series().to_numpy()
    rows, others = np.divmod(np.sort(packed), count + 1)
    others -= 1
    return (rows, others) if how != "right" else (others, rows)


def _take(column: Any, rows: Any, may_miss: bool) -> Any:
    """The values of rows, and nulls for -1."""
    column = column.set_axis(pd.RangeIndex(len(column)))
    if may_miss and len(rows) and (rows < 0).any():
        return column.reindex(rows).set_axis(pd.RangeIndex(len(rows)))
    return pd.Series(column.array.take(rows), dtype=column.dtype, copy=False)
