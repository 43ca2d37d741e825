# SPDX-License-Identifier: BSD-3-Clause
"""By what the rows of frames come to partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from dask.dataframe.dispatch import hash_object_dispatch

from .._data.partition import Partitions, hash_partition_to
from ._frames import column_name, index_name

# Units of times, in a second.
_UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}

# Partitions a table, to memory that the first argument gives.
Method = Callable[[Callable[[int], Any], Any], Partitions]


@dataclass(frozen=True)
class Keys:
    """What of a frame is hashed.

    Attributes:
        labels: of columns, or of levels of the index; empty: all of its levels.
        families: what each is, if the bytes of its values are hashed; None: pandas
            hashes the values, as Dask does.
        is_number: which ones are hashed as floats then.
    """

    labels: tuple[Any, ...]
    families: tuple[Any, ...] | None
    is_number: tuple[bool, ...] = ()

    def method(
        self, frame: Any, count: int, splitters: Any
    ) -> tuple[list[tuple[str, Any]], Method]:
        """How the table of a frame is partitioned.

        Args:
            frame: of pandas.
            count: of partitions.
            splitters: None.

        Returns:
            Columns that are added to the table, and the method.
        """
        names, extra = key_columns(frame, self)

        def divide(allocate: Callable[[int], Any], table: Any) -> Partitions:
            return hash_partition_to(allocate, table, names, count, 0)

        return extra, divide

    def needs_index(self, columns: Any) -> bool:
        """Is a key in the index?"""
        return not self.labels or any(label not in columns for label in self.labels)


def make_keys(metas: Sequence[Any], labels: Sequence[Sequence[Any]]) -> list[Keys]:
    """The keys of frames, whose rows with equal keys are to meet.

    Args:
        metas: a frame without rows for each of them.
        labels: the labels of each, as in ``Keys``.
    """
    parts = [_parts(meta, its) for meta, its in zip(metas, labels, strict=True)]
    by_key = [[part.dtype for part in key] for key in zip(*parts, strict=True)]
    families = tuple(_common_family(map(_family, dtypes)) for dtypes in by_key)
    if None in families:
        is_number = tuple(any(map(_is_number, dtypes)) for dtypes in by_key)
        return [Keys(tuple(its), None, is_number) for its in labels]
    return [Keys(tuple(its), families) for its in labels]


def key_columns(frame: Any, keys: Keys) -> tuple[list[str], list[tuple[str, Any]]]:
    """The names of the columns that are hashed in a frame's table.

    Returns:
        Also those of them that are added to the table.

    Raises:
        TypeError: the frame is other than its ``_meta``.
    """
    parts = _parts(frame, keys.labels)
    if keys.families is None:
        its = {
            number: _as_floats(part) if is_number else part
            for number, (part, is_number) in enumerate(
                zip(parts, keys.is_number, strict=True)
            )
        }
        hashed = hash_object_dispatch(pd.DataFrame(its, copy=False), index=False)
        return ["h"], [("h", pa.array(np.asarray(hashed)))]
    names, extra = [], []
    for number, (part, family) in enumerate(zip(parts, keys.families, strict=True)):
        if _family(part.dtype) == family:
            names.append(_name(frame, keys.labels, number))
        else:
            names.append(f"h{number}")
            extra.append((names[-1], _like(part, family)))
    return names, extra


def _parts(frame: Any, labels: Sequence[Any]) -> list[Any]:
    """The values of keys, as ``Series`` with the same index."""
    index = frame.index
    found = []
    if not labels:
        found = [index.get_level_values(level) for level in range(index.nlevels)]
    for label in labels:
        if label in frame.columns:
            found.append(frame.iloc[:, _place(frame, label)])
        else:
            found.append(index.get_level_values(label))
    return [pd.Series(part.array, dtype=part.dtype, copy=False) for part in found]


def _place(frame: Any, label: Any) -> int:
    return list(frame.columns).index(label)


def _name(frame: Any, labels: Sequence[Any], number: int) -> str:
    if not labels:
        return index_name(number)
    label = labels[number]
    if label in frame.columns:
        return column_name(_place(frame, label))
    return index_name(list(frame.index.names).index(label))


def _family(dtype: Any) -> Any:
    """Values of types of one family hash alike if they are equal; None: there is none.

    Floats that may be null besides being NaN have none.
    """
    if isinstance(dtype, pd.StringDtype):
        return "text"
    if isinstance(dtype, pd.DatetimeTZDtype):
        return "Z", dtype.unit
    if isinstance(dtype, pd.ArrowDtype):
        kind = dtype.pyarrow_dtype
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            return "text"
        return "integer" if pa.types.is_integer(kind) else None
    if isinstance(dtype, np.dtype):
        if dtype.kind in "iub":
            return "integer"
        if dtype.kind == "f":
            return "float"
        return (dtype.kind, np.datetime_data(dtype)[0]) if dtype.kind in "mM" else None
    name = str(dtype)
    return "integer" if name.startswith(("Int", "UInt", "boolean")) else None


def _common_family(families: Iterable[Any]) -> Any:
    """That of keys of all frames: of times with the coarsest of their units."""
    first, *others = families
    for other in others:
        if first == other:
            continue
        is_time = isinstance(first, tuple) and isinstance(other, tuple)
        if not is_time or first[0] != other[0]:
            return None
        first = min(first, other, key=lambda family: _UNITS[family[1]])
    return first


def _is_number(dtype: Any) -> bool:
    if isinstance(dtype, pd.CategoricalDtype):
        dtype = dtype.categories.dtype
    return bool(pd.api.types.is_numeric_dtype(dtype))


def _as_floats(part: Any) -> Any:
    """As Dask does, so that numbers of all types hash alike; also among objects."""
    try:
        return part.astype("float64")
    except (TypeError, ValueError):
        found = pd.to_numeric(part.astype(object), errors="coerce")
        return found.astype("float64")


def _like(part: Any, family: Any) -> Any:
    """Keys of another type than ``_meta`` says, as values of the family.

    Raises:
        TypeError: some are none.
    """
    try:
        if family == "integer":
            return pa.array(part, from_pandas=True).cast(pa.int64())
        if family == "float":
            return pa.array(part.astype("float64"), from_pandas=False)
        if family == "text":
            return pa.array(part, from_pandas=True).cast(pa.large_string())
        if isinstance(family, tuple) and _family(part.dtype)[0] == family[0]:
            return _in_unit(part, family[1])
    except (pa.ArrowException, TypeError, ValueError):
        pass
    raise TypeError(
        f"a partition has keys of type {part.dtype}, which are not what _meta says: "
        "cast them by astype(), or use Dask's own method"
    )


def _in_unit(part: Any, unit: str) -> Any:
    """Times as numbers of a unit, a coarser one rounded down.

    Raises:
        ValueError: some are too large for that.
    """
    kind, own_unit = _family(part.dtype)
    its, is_null = _UNITS[own_unit], np.asarray(part.isna())
    times = np.asarray(part.array, f"{'m' if kind == 'm' else 'M'}8[{own_unit}]")
    numbers = np.where(is_null, 0, times.view("i8"))
    if _UNITS[unit] <= its:
        numbers = numbers // (its // _UNITS[unit])
    else:
        factor = _UNITS[unit] // its
        if np.abs(numbers).max(initial=0) > np.iinfo("i8").max // factor:
            raise ValueError(f"a time is too large for the unit {unit}")
        numbers = numbers * factor
    return pa.array(numbers, mask=is_null)
