# SPDX-License-Identifier: BSD-3-Clause
"""The type that a column has on all ranks, if it is not the same on each of them.

A column without values has no type of its own: it gets that of the other ranks. If a
frame of pandas is among the tables, numbers and times of several types get the type
that ``pandas.concat`` gives them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .frames import title_of

_MOST_DIGITS = 76  # of Arrow's decimals
_PYTHON_DECIMAL = b"ucp.join.decimal"
_UNITS = ("s", "ms", "us", "ns")


class Known(NamedTuple):
    """A column on a rank."""

    rank: int
    field: Any
    has_rows: bool
    has_values: bool


def common_field(side: str, columns: Sequence[Known], is_pandas: bool) -> Any:
    """The field of a column on all ranks.

    Args:
        side: what errors call the table: see ``title_of``.
        columns: of the ranks that have the table.
        is_pandas: a table is a frame of pandas.

    Raises:
        TypeError: two ranks have values of types that are not made equal.
    """
    import pyarrow as pa

    typed = [its for its in columns if not pa.types.is_null(its.field.type)]
    known = [its for its in typed if its.has_values]
    if not known:
        # Columns without values are not refused.
        known = [its for its in typed if its.has_rows] or typed or list(columns)
    first, *others = known
    field = first.field
    for its in others:
        found = _unified(field, its.field, is_pandas)
        if found is None and its.has_values:
            _raise_difference(side, field, first.rank, its)
        field = field if found is None else found
    return field


def _unified(ours: Any, theirs: Any, is_pandas: bool) -> Any:
    """A field of both types; None: there is none."""
    if enum_of(ours) != enum_of(theirs):
        return None
    if ours.type == theirs.type:
        return ours
    if is_python_decimal(ours) and is_python_decimal(theirs):
        kind = common_decimal(ours.type, theirs.type)
    else:
        kind = concatenated(ours.type, theirs.type) if is_pandas else None
    return None if kind is None else ours.with_type(kind)


def concatenated(left: Any, right: Any) -> Any:
    """The type that ``pandas.concat`` gives columns of both; None: objects."""
    import numpy
    import pyarrow as pa
    import pyarrow.types as is_type

    if left == right:
        return left
    pair = (left, right)
    if all(is_type.is_integer(each) or is_type.is_floating(each) for each in pair):
        types = [each.to_pandas_dtype() for each in pair]
        return pa.from_numpy_dtype(numpy.result_type(*types))
    if all(map(is_type.is_timestamp, pair)) and left.tz == right.tz:
        return max(pair, key=lambda each: _UNITS.index(each.unit))
    if all(map(is_type.is_duration, pair)):
        return max(pair, key=lambda each: _UNITS.index(each.unit))
    if all(is_type.is_string(each) or is_type.is_large_string(each) for each in pair):
        return pa.large_string()
    if all(map(is_type.is_dictionary, pair)) and left.ordered == right.ordered:
        values = concatenated(left.value_type, right.value_type)
        return values and pa.dictionary(left.index_type, values, left.ordered)
    return None


def _raise_difference(side: str, ours: Any, first: int, other: Known) -> None:
    theirs = other.field
    name = f"column {ours.name!r} of {title_of(side)}"
    if ours.type == theirs.type:
        raise TypeError(
            f"{name} is an Enum whose categories differ between the ranks {first} and "
            f"{other.rank}"
        )
    raise TypeError(
        f"{name} is {ours.type} on rank {first}, {theirs.type} on rank {other.rank}: "
        "cast one of them"
    )


def enum_of(field: Any) -> bytes | None:
    """The values of an Enum of polars."""
    return (field.metadata or {}).get(b"_PL_ENUM_VALUES2")


# --- decimals of Python -------------------------------------------------------


def mark_decimals(schema: Any, about: Sequence[Mapping[str, Any]]) -> Any:
    """With metadata of the columns of Python's decimals, of a frame of pandas.

    Their precision and scale are what the values of a rank need.

    Args:
        schema: of the frame.
        about: pandas' metadata of the columns.
    """
    import pyarrow as pa

    for i, (field, column) in enumerate(zip(schema, about, strict=True)):
        if pa.types.is_decimal(field.type) and column["numpy_type"] == "object":
            schema = schema.set(i, field.with_metadata({_PYTHON_DECIMAL: b""}))
    return schema


def is_python_decimal(field: Any) -> bool:
    """Has the column decimals of Python, whose precision is that of their values?"""
    return _PYTHON_DECIMAL in (field.metadata or {})


def common_decimal(left: Any, right: Any) -> Any:
    """The narrowest type that holds the values of both; None: there is none."""
    import pyarrow as pa

    pair = (left, right)
    scale = max(kind.scale for kind in pair)
    digits = max(kind.precision - kind.scale for kind in pair)
    if scale + digits > _MOST_DIGITS:
        return None
    wide = max(kind.bit_width for kind in pair)
    is_wide = wide > pa.decimal128(1).bit_width or scale + digits > 38
    make = pa.decimal256 if is_wide else pa.decimal128
    return make(scale + digits, scale)


# --- values -------------------------------------------------------------------


def cast_table(table: Any, schema: Any) -> Any:
    """The columns of a rank's table with the types that all ranks have.

    Raises:
        ValueError: a type does not hold the values of a column.
    """
    import pyarrow as pa

    columns = [
        _cast(column, field)
        for column, field in zip(table.columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _cast(column: Any, field: Any) -> Any:
    import pyarrow as pa
    import pyarrow.types as is_type

    kind = field.type
    is_equal = column.type == kind
    if column.null_count == len(column) and (
        not is_equal or is_type.is_dictionary(kind)
    ):
        # Its dictionary does not count, as it has no values.
        return pa.chunked_array([pa.nulls(len(column), kind)], kind)
    if is_equal:
        return column
    try:
        # Floats do not hold all integers, as in pandas.
        return column.cast(kind, safe=not is_type.is_floating(kind))
    except pa.ArrowInvalid as error:
        raise ValueError(
            f"column {field.name!r} is {column.type} here, and {kind} on other ranks, "
            f"which does not hold its values: cast it ({error})"
        ) from None
