# SPDX-License-Identifier: BSD-3-Clause
"""Local joins by polars and DuckDB, with results as those of Arrow.

The libraries join numbers and bytes only. Values of a fixed size are given to them as
integers of that size, so that every bit of a NaN stays, and rows of other columns are
found by their number afterwards. What they cannot join as Arrow does, Arrow joins.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy

from .._tables.rows import number_type, numbers_of, of_kind
from ._local import (
    ArrowJoin,
    JoinSpec,
    names_of_result,
    rename_columns,
    rows_are_left,
)

MOST_BYTES = 2**31 - 1  # of strings with offsets of 32 bits

# With fewer rows of both tables on all ranks, loading a library costs more.
LEAST_ROWS = 200_000


class _Side(NamedTuple):
    """A table as the library gets it."""

    table: Any  # as it was, with one chunk for each column that is taken
    given: Any  # keys k0, k1, ..., numbers of columns l0, l1, ..., and a row's number
    keys: list[str]  # names of the keys in the table


class _NumberJoin(ArrowJoin):
    """A join by a library that gets keys, fixed-size values and numbers of rows."""

    def join(self, left: Any, right: Any, spec: JoinSpec) -> Any:
        first, second, keys = rename_columns(left, right, spec)
        if not (
            left.num_rows
            and right.num_rows
            and all(can_be_key(first.schema.field(name).type, spec) for name in keys)
        ):
            return super().join(left, right, spec)
        first, second = first.unify_dictionaries(), second.unify_dictionaries()
        names = names_of_result(first, second, keys, spec.how)
        sides = (_give(first, keys, "l", spec), _give(second, keys, "r", spec))
        found = self._join(sides[0].given, sides[1].given, len(keys), spec)
        if _is_long(sides, found):
            return super().join(left, right, spec)
        columns = [_column(name, sides, found, spec) for name in names]
        return _own(_table(names, columns), (left, right))

    def _join(self, left: Any, right: Any, num_keys: int, spec: JoinSpec) -> Any:
        """Join tables of numbers and bytes by their first columns."""
        raise NotImplementedError


class PolarsJoin(_NumberJoin):
    """polars' join, with results as those of ``ArrowJoin``: a null is equal to
    nothing. polars uses as many threads as it was told to (``POLARS_MAX_THREADS``).
    """

    def _join(self, left: Any, right: Any, num_keys: int, spec: JoinSpec) -> Any:
        polars = importlib.import_module("polars")
        how = "full" if spec.how == "outer" else spec.how
        found = polars.from_arrow(left).lazy()
        found = found.join(
            polars.from_arrow(right).lazy(),
            on=[f"k{number}" for number in range(num_keys)],
            how=how,
            coalesce=None if rows_are_left(spec.how) else True,
        )
        return found.collect(engine="streaming").to_arrow()


class DuckDBJoin(_NumberJoin):
    """DuckDB's join, with results as those of ``ArrowJoin``: a null is equal to
    nothing.
    """

    def _join(self, left: Any, right: Any, num_keys: int, spec: JoinSpec) -> Any:
        duckdb = importlib.import_module("duckdb")
        keys = ", ".join(f"k{number}" for number in range(num_keys))
        how = {"outer": "full"}.get(spec.how, spec.how)
        threads = len(os.sched_getaffinity(0)) if spec.use_threads else 1
        with duckdb.connect(config={"threads": threads}) as connection:
            connection.execute("set preserve_insertion_order = false")
            connection.register("a", left)
            connection.register("b", right)
            query = f"select * from a {how} join b using ({keys})"
            return connection.sql(query).to_arrow_table()


def can_be_key(kind: Any, spec: JoinSpec) -> bool:
    """Does a library find the pairs that Arrow finds?"""
    import pyarrow.types as is_type

    if is_type.is_boolean(kind):
        return False
    if number_type(kind) is not None:
        return True
    is_text = is_type.is_string(kind) or is_type.is_large_string(kind)
    # The key of a row that one side does not have is that of the other side.
    return spec.how != "outer" and (
        is_text or is_type.is_binary(kind) or is_type.is_large_binary(kind)
    )


def _give(table: Any, keys: list[str], letter: str, spec: JoinSpec) -> _Side:
    import pyarrow as pa

    given: dict[str, Any] = {}
    for number, name in enumerate(keys):
        column = table[name]
        numbers = numbers_of(column)
        if numbers is None:
            wide = pa.large_binary()
            text = [chunk.cast(wide) for chunk in column.chunks]
            numbers = pa.chunked_array(text, wide)
        given[f"k{number}"] = numbers
    is_taken = False
    if letter == "l" or not rows_are_left(spec.how):
        for number, name in enumerate(table.column_names):
            numbers = numbers_of(table[name])
            if name in keys and (
                number_type(table[name].type) is not None
                or (letter == "r") != (spec.how == "right")
            ):
                continue  # the result has the key itself, or that of the other side
            if numbers is None:
                is_taken = True
                table = table.set_column(number, name, _in_one_chunk(table[name]))
            else:
                given[f"{letter}{number}"] = numbers
    if is_taken:
        given[f"{letter}row"] = pa.array(numpy.arange(table.num_rows))
    return _Side(table, pa.table(given), keys)


def _in_one_chunk(column: Any) -> Any:
    """The column with one chunk, if it may be so long."""
    import pyarrow as pa

    kind = column.type
    if column.nbytes < MOST_BYTES or not (
        pa.types.is_string(kind) or pa.types.is_binary(kind)
    ):
        return pa.chunked_array([column.combine_chunks()], type=kind)
    return column


def _is_long(sides: Sequence[_Side], found: Any) -> bool:
    """May a column of the result have more bytes than offsets of 32 bits reach?"""
    import pyarrow as pa
    import pyarrow.compute as pc

    for side, letter in zip(sides, "lr", strict=True):
        if f"{letter}row" not in found.column_names:
            continue
        for name in side.table.column_names:
            column = side.table[name]
            kind = column.type
            if column.num_chunks > 1:
                return True
            if pa.types.is_string(kind) or pa.types.is_binary(kind):
                longest = pc.max(pc.binary_length(column)).as_py() or 0
                if longest * found.num_rows >= MOST_BYTES:
                    return True
    return False


def _column(name: str, sides: Sequence[_Side], found: Any, spec: JoinSpec) -> Any:
    """A column of the result."""
    left, right = sides
    if name in left.keys:
        kind = left.table.schema.field(name).type
        if number_type(kind) is not None:
            return of_kind(found[f"k{left.keys.index(name)}"], kind)
        # In a right join the rows of the right side are all there.
        side, letter = (right, "r") if spec.how == "right" else (left, "l")
    elif name in left.table.column_names:
        side, letter = left, "l"
    else:
        side, letter = right, "r"
    number = side.table.column_names.index(name)
    column = side.table.column(number)
    given = f"{letter}{number}"
    if given not in found.column_names:
        return column.take(found[f"{letter}row"])
    return of_kind(found[given], column.type, column)


def _table(names: Sequence[str], columns: Sequence[Any]) -> Any:
    import pyarrow as pa

    return pa.Table.from_arrays(list(columns), names=list(names))


def _own(table: Any, given: Sequence[Any]) -> Any:
    """The table without views of those that were given."""
    import pyarrow as pa

    places = [
        (buffer.address, buffer.address + buffer.size)
        for its in given
        for column in its.columns
        for chunk in column.chunks
        for buffer in _value_buffers(chunk)
    ]
    for i, field in enumerate(table.schema):
        column = table[i]
        if any(
            begin <= buffer.address < end
            for chunk in column.chunks
            for buffer in _value_buffers(chunk)
            for begin, end in places
        ):
            rows = pa.array(numpy.arange(len(column)))
            table = table.set_column(i, field.name, column.take(rows))
    return table


def _value_buffers(chunk: Any) -> list[Any]:
    """The buffers of a chunk without those of its dictionary."""
    import pyarrow as pa

    array = chunk.indices if isinstance(chunk, pa.DictionaryArray) else chunk
    return [buffer for buffer in array.buffers() if buffer is not None]
