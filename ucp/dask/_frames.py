# SPDX-License-Identifier: BSD-3-Clause
"""Frames of pandas as tables that are moved, and as frames again.

Columns move by their place, so that any label is right. Numbers, times and the codes of
categories move as the bytes that they are in pandas, strings as Arrow's, and objects
that are no strings are pickled. A frame that comes out has its own memory.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

# How the values of a column move.
_NUMBERS, _CODES, _ARROW, _TEXT, _PICKLED = range(5)


@dataclass(frozen=True)
class Column:
    """How a column moves.

    Attributes:
        way: one of the above.
        dtype: of pandas.
        null: what stands for null in a column of objects.
    """

    way: int
    dtype: Any
    null: Any = None


@dataclass(frozen=True)
class Layout:
    """What a frame is, apart from its rows.

    Attributes:
        labels: of the columns.
        columns: as many.
        index: those of the index; empty: it does not move.
        index_names: the names of its levels.
        schema: of the table.
    """

    labels: Any
    columns: tuple[Column, ...]
    index: tuple[Column, ...]
    index_names: tuple[Any, ...]
    schema: Any

    def __getstate__(self) -> tuple[Any, ...]:
        return (*(getattr(self, name) for name in _FIELDS), self.schema.serialize())

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        *values, schema = state
        for name, value in zip(_FIELDS, values, strict=True):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "schema", pa.ipc.read_schema(schema))


_FIELDS = ("labels", "columns", "index", "index_names")


def column_name(place: int) -> str:
    """The name of a column of the frame in the table."""
    return f"c{place}"


def index_name(level: int) -> str:
    """The name of a level of the index in the table."""
    return f"i{level}"


def encode(
    frame: Any, with_index: bool, extra: Sequence[tuple[str, Any]] = ()
) -> tuple[Any, Layout]:
    """The table of a frame, mostly of views.

    Args:
        frame: of pandas.
        with_index: its index moves, too.
        extra: columns of the table that are no part of the frame.

    Raises:
        TypeError: Arrow has no type for a column.
    """
    names, arrays = [], []
    columns, index = [], []
    for place in range(frame.shape[1]):
        array, column = _encode_column(frame.iloc[:, place])
        names.append(column_name(place))
        arrays.append(array)
        columns.append(column)
    levels = range(frame.index.nlevels if with_index else 0)
    for level in levels:
        array, column = _encode_column(frame.index.get_level_values(level))
        names.append(index_name(level))
        arrays.append(array)
        index.append(column)
    for name, array in extra:
        names.append(name)
        arrays.append(array)
    table = pa.table(arrays, names=names)
    return table, Layout(
        frame.columns,
        tuple(columns),
        tuple(index),
        tuple(frame.index.names) if with_index else (),
        table.schema,
    )


def _encode_column(column: Any) -> tuple[Any, Column]:
    """What a ``Series`` or an ``Index`` moves as."""
    dtype, values = column.dtype, column.array
    if isinstance(dtype, pd.CategoricalDtype):
        return pa.array(values.codes), Column(_CODES, dtype)
    if isinstance(dtype, np.dtype):
        if dtype.kind == "O":
            return _encode_objects(np.asarray(values))
        if dtype.kind not in "iufbmM":
            raise TypeError(f"columns of type {dtype} do not move")
        return pa.array(_as_integers(np.asarray(values))), Column(_NUMBERS, dtype)
    if not hasattr(dtype, "__from_arrow__"):
        raise TypeError(f"columns of type {dtype} do not move")
    array = pa.array(values, from_pandas=True)
    kind = array.type
    if pa.types.is_dictionary(kind):
        array = array.cast(kind.value_type)
    elif pa.types.is_string(kind) or pa.types.is_string_view(kind):
        array = array.cast(pa.large_string())
    elif pa.types.is_binary(kind) or pa.types.is_binary_view(kind):
        array = array.cast(pa.large_binary())
    return array, Column(_ARROW, dtype)


def _as_integers(values: Any) -> Any:
    """Bools and times as integers of their size, others as they are."""
    if values.dtype.kind in "bmM":
        values = np.ascontiguousarray(values)
        return values.view(f"i{values.dtype.itemsize}")
    return values.astype(values.dtype.newbyteorder("="), copy=False)


def _encode_objects(values: Any) -> tuple[Any, Column]:
    try:
        array = pa.array(values, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return _pickle(values)
    if pa.types.is_string(array.type):
        array = array.cast(pa.large_string())
    elif pa.types.is_binary(array.type):
        array = array.cast(pa.large_binary())
    elif not pa.types.is_null(array.type):
        return _pickle(values)
    nulls = values[array.is_null().to_numpy(zero_copy_only=False)]
    if all(value is None for value in nulls):
        return array, Column(_TEXT, values.dtype)
    if all(isinstance(value, float) for value in nulls):
        return array, Column(_TEXT, values.dtype, np.nan)
    return _pickle(values)


def _pickle(values: Any) -> tuple[Any, Column]:
    data = [pickle.dumps(value, pickle.HIGHEST_PROTOCOL) for value in values]
    return pa.array(data, pa.large_binary()), Column(_PICKLED, values.dtype)


def decode(parts: Sequence[tuple[Any, Layout]], meta: Any) -> Any:
    """Return one frame with the rows of all parts, as a copy.

    Args:
        parts: pairs of a table and its layout. The tables may be views: their memory
            may be released after this call.
        meta: a frame with the columns of the result, for a result without parts.
    """
    if not parts:
        return meta.iloc[:0].copy()
    runs: list[tuple[Layout, list[Any]]] = []
    for table, layout in parts:
        if runs and runs[-1][0] is layout:
            runs[-1][1].append(table)
        else:
            runs.append((layout, [table]))
    frames = [_decode_run(layout, tables) for layout, tables in runs]
    filled = [frame for frame in frames if len(frame)] or frames[:1]
    if len(filled) == 1:
        return filled[0]
    from dask.dataframe import methods

    return methods.concat(filled)


def _decode_run(layout: Layout, tables: list[Any]) -> Any:
    def values_of(name: str, column: Column) -> Any:
        arrays = [chunk for table in tables for chunk in table[name].chunks]
        kind = layout.schema.field(name).type
        return _decode_column(arrays, kind, column)

    levels = [
        pd.Index(values_of(index_name(level), column), dtype=column.dtype, copy=False)
        for level, column in enumerate(layout.index)
    ]
    rows = sum(table.num_rows for table in tables)
    if not levels:
        index = pd.RangeIndex(rows)
    elif len(levels) == 1:
        index = levels[0].rename(layout.index_names[0])
    else:
        index = pd.MultiIndex.from_arrays(levels, names=layout.index_names)
    data = {}
    for place, column in enumerate(layout.columns):
        values = values_of(column_name(place), column)
        # With a type given, pandas infers no other one for objects.
        data[place] = pd.Series(values, index, column.dtype, copy=False)
    frame = pd.DataFrame(data, index=index, copy=False)
    frame.columns = layout.labels
    return frame


def _decode_column(arrays: list[Any], kind: Any, column: Column) -> Any:
    dtype = column.dtype
    if column.way == _NUMBERS:
        return _numbers(arrays, kind, dtype)
    if column.way == _CODES:
        codes = _numbers(arrays, kind, np.dtype(kind.to_pandas_dtype()))
        return pd.Categorical.from_codes(codes, dtype=dtype, validate=False)
    if column.way == _PICKLED:
        values = np.empty(sum(map(len, arrays)), object)
        texts = (value.as_py() for array in arrays for value in array)
        for place, value in enumerate(texts):
            values[place] = pickle.loads(value)
        return values
    whole = _own(arrays, kind)
    if column.way == _TEXT:
        values = whole.to_numpy(zero_copy_only=False).astype(object, copy=False)
        if column.null is not None and whole.null_count:
            values[whole.is_null().to_numpy(zero_copy_only=False)] = column.null
        if not values.flags.writeable:
            values = values.copy()
        return values
    if isinstance(dtype, pd.ArrowDtype) and dtype.pyarrow_dtype != kind:
        whole = whole.cast(dtype.pyarrow_dtype)
    return dtype.__from_arrow__(pa.chunked_array([whole]))


def _own(arrays: list[Any], kind: Any) -> Any:
    """One array with its own memory."""
    return pa.concat_arrays([*arrays, pa.array([], kind)])


def _numbers(arrays: list[Any], kind: Any, dtype: Any) -> Any:
    stored = np.dtype(kind.to_pandas_dtype())
    values = np.empty(sum(map(len, arrays)), stored)
    begin = 0
    for array in arrays:
        end = begin + len(array)
        if end > begin:
            values[begin:end] = np.frombuffer(
                array.buffers()[1], stored, len(array), array.offset * stored.itemsize
            )
        begin = end
    return values if stored == dtype else values.view(dtype)
