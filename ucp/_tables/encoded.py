# SPDX-License-Identifier: BSD-3-Clause
"""Keys and values of groups as integers and floats, and the way back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .frames import empty_dictionary
from .rows import number_type, numbers_of, of_kind

_DAY = 86_400_000_000  # microseconds
_PRECISION = 2.0**-51  # of a mean


class Encoded:
    """A table whose keys and values Arrow and polars aggregate, and the way back.

    Attributes:
        table: it, with columns for keys and values that they do not know otherwise.
        keys: names of these keys.
        aggregations: of these values: of ``grouping.Aggregation``.
    """

    def __init__(
        self, table: Any, keys: Sequence[str], aggregations: Sequence[Any]
    ) -> None:
        self._given = {name: table[name] for name in keys}
        self._longest = max(table.column_names, key=len)
        self.table = table
        self.keys = [
            self._add(_as_key(column), f"{number}")
            for number, column in enumerate(self._given.values())
        ]
        self._values = [
            _Values(table[its.column], its.function) if its.column else None
            for its in aggregations
        ]
        self.aggregations = [
            its
            if values is None or values.column is None
            else its._replace(column=self._add(values.column, f"of {its.name}"))
            for its, values in zip(aggregations, self._values, strict=True)
        ]

    def _add(self, column: Any, what: str) -> str:
        name = f"{self._longest} {what}"
        self.table = self.table.append_column(name, column)
        return name

    def decode(self, table: Any) -> Any:
        """Groups by the keys, which come first, with the types of the given table."""
        for i, (name, column) in enumerate(self._given.items()):
            table = table.set_column(i, name, _of_key(table[i], column))
        for i, values in enumerate(self._values, len(self._given)):
            if values is not None and values.column is not None:
                name = table.schema.field(i).name
                table = table.set_column(i, name, values.decode(table[i]))
        return table


def _as_key(column: Any) -> Any:
    """A column by which Arrow and polars group."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_dictionary(kind):
        return numbers_of(column)
    if isinstance(kind, pa.BaseExtensionType):
        chunks = [chunk.storage for chunk in column.chunks]
        return pa.chunked_array(chunks, kind.storage_type)
    return column


def _of_key(found: Any, column: Any) -> Any:
    """Groups by ``_as_key(column)`` as values of the column."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_dictionary(kind):
        return _of_numbers(found.cast(kind.index_type), column)
    if isinstance(kind, pa.BaseExtensionType):
        chunks = [pa.ExtensionArray.from_storage(kind, chunk) for chunk in found.chunks]
        return pa.chunked_array(chunks, kind)
    return found


def _of_numbers(numbers: Any, column: Any) -> Any:
    """Numbers of a dictionary column's values as values; its dictionary stays."""
    import pyarrow as pa

    kind = column.type
    if numbers.num_chunks and column.num_chunks:
        return of_kind(numbers, kind, column)
    values = column.chunk(0).dictionary if column.num_chunks else []
    values = pa.array(values, kind.value_type)
    return pa.chunked_array([empty_dictionary(kind, values)], kind)


class _Values:
    """A column as what Arrow and polars aggregate.

    Categories are their numbers, in the order of ordered ones and of the values of
    others; times are numbers.

    Attributes:
        column: integers or floats; None: the function takes the column as it is.
    """

    def __init__(self, column: Any, function: str) -> None:
        import pyarrow as pa
        import pyarrow.types as is_type

        self._given = column
        kind = column.type
        self._kind: Any = kind  # of the result; None: as it is computed
        self._order: Any = None  # the numbers of a dictionary's values in order
        self.column: Any = None
        is_extreme = function in ("min", "max")
        if is_type.is_null(kind) and function != "count":
            # Arrow has few functions of a column whose type no rank knows, and finds
            # a distinct value in it.
            is_claim = function in ("any", "all")
            self.column = column.cast(pa.bool_() if is_claim else pa.float64())
            if not is_extreme and function not in ("first", "last"):
                self._kind = None
        elif is_type.is_dictionary(kind):
            if is_extreme or function in ("first", "last"):
                self.column = numbers_of(column)
                if is_extreme and not kind.ordered:
                    self._order, self.column = _by_value(column)
        elif is_time(kind):
            if function == "mean":
                self.column = as_floats(column)
                self._kind = mean_type(kind)
            elif function in ("min", "max", "first", "last") or (
                function == "sum" and is_type.is_duration(kind)
            ):
                self.column = numbers_of(column)

    def decode(self, found: Any) -> Any:
        """What has been computed as values of the type that the result has."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if self._kind is None:
            return found
        if pa.types.is_null(self._kind):
            return pa.chunked_array([pa.nulls(len(found))])
        if pa.types.is_dictionary(self._kind):
            if self._order is not None:
                found = pc.take(self._order, found)
            return _of_numbers(found.cast(self._kind.index_type), self._given)
        return of_numbers(found, self._kind)


def _by_value(column: Any) -> tuple[Any, Any]:
    """A dictionary column by the order of its values.

    Returns:
        The numbers of the values in their order, and the column as places in it.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type.index_type
    if not column.num_chunks:
        return pa.array([], kind), pa.chunked_array([], kind)
    order = pc.sort_indices(column.chunk(0).dictionary).cast(kind)
    places = pc.sort_indices(order).cast(kind)  # of each value
    return order, pc.take(places, numbers_of(column))


# --- times --------------------------------------------------------------------


def is_time(kind: Any) -> bool:
    """Are its values times, durations or dates, which are numbers?"""
    import pyarrow.types as is_type

    return bool(is_type.is_temporal(kind) and number_type(kind) is not None)


def mean_type(kind: Any) -> Any:
    """The type of means: those of dates are times."""
    import pyarrow as pa
    import pyarrow.types as is_type

    if is_type.is_date32(kind):
        return pa.timestamp("us")
    return pa.timestamp("ms") if is_type.is_date64(kind) else kind


def as_floats(column: Any) -> Any:
    """A column as floats, of which a mean is computed."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if not is_time(kind):
        return column.cast(pa.float64(), safe=False)
    floats = numbers_of(column).cast(pa.float64(), safe=False)
    is_days = pa.types.is_date32(kind)
    return pc.multiply(floats, float(_DAY)) if is_days else floats


def of_numbers(found: Any, kind: Any) -> Any:
    """What has been computed as values of the type.

    Fractions of a unit of time are dropped, as pandas and polars do, unless they are
    what the precision of floats makes of a whole number.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if not is_time(kind):
        return found.cast(kind)
    if pa.types.is_floating(found.type):
        whole = pc.round(found)
        error = pc.abs(pc.subtract(found, whole))
        is_whole = pc.less_equal(error, pc.multiply(pc.abs(found), _PRECISION))
        found = pc.if_else(is_whole, whole, pc.trunc(found))
    return of_kind(found.cast(number_type(kind)), kind)
