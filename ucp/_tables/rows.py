# SPDX-License-Identifier: BSD-3-Clause
"""Rows of a table in another order, and in memory of their own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy

MOST_BYTES = 2**31 - 1  # of strings with offsets of 32 bits


def take_rows(table: Any, rows: Any) -> Any:
    """Rows by their numbers, without views of ``table`` but of dictionaries.

    Args:
        table: of Arrow.
        rows: an array of NumPy, or of Arrow.
    """
    import pyarrow as pa

    rows = pa.array(rows)
    columns = [take_column(column, rows) for column in table.columns]
    return pa.Table.from_arrays(columns, schema=table.schema)


def take_column(column: Any, rows: Any) -> Any:
    """``take_rows`` of one column."""
    import pyarrow as pa

    kind = column.type
    storage = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
    if storage is not kind:
        chunks = [chunk.storage for chunk in column.chunks]
        found = take_column(pa.chunked_array(chunks, storage), rows)
        return pa.chunked_array(
            [pa.ExtensionArray.from_storage(kind, chunk) for chunk in found.chunks],
            kind,
        )
    if pa.types.is_dictionary(kind) and column.num_chunks:
        numbers = _taken(numbers_of(column), rows)
        return of_kind(numbers, kind, column)
    wide = wide_type(kind)
    if wide is not None and column.num_chunks and _is_long(column, len(rows)):
        return narrow(_taken(column.cast(wide), rows), kind)
    return _taken(column, rows)


def _taken(column: Any, rows: Any) -> Any:
    import pyarrow as pa

    if column.num_chunks == 1:
        return pa.chunked_array([column.chunk(0).take(rows)], column.type)
    if not column.num_chunks:
        return column
    return pa.chunked_array([column.combine_chunks().take(rows)], column.type)


def _is_long(column: Any, num_rows: int) -> bool:
    """May so many of its strings have more bytes than 32 bits reach?"""
    import pyarrow.compute as pc

    if column.nbytes < MOST_BYTES and num_rows <= len(column):
        return False
    longest = pc.max(pc.binary_length(column)).as_py() or 0
    return bool(longest * num_rows >= MOST_BYTES)


def own_rows(table: Any) -> Any:
    """The table in its own memory, and one chunk; dictionaries stay shared."""
    return take_rows(table, numpy.arange(table.num_rows))


# --- columns as integers ------------------------------------------------------


def number_type(kind: Any) -> Any:
    """The integers of the size of a type's values; None: it has no such size."""
    import pyarrow as pa
    import pyarrow.types as is_type

    if is_type.is_boolean(kind):
        return kind
    kinds = (is_type.is_integer, is_type.is_floating, is_type.is_temporal)
    if not any(is_one(kind) for is_one in kinds) or is_type.is_interval(kind):
        return None
    return {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}.get(
        kind.bit_width
    )


def numbers_of(column: Any) -> Any:
    """A column as integers of the size of its values, without a copy; or None."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_dictionary(kind):
        chunks = [chunk.indices for chunk in column.chunks]
        return pa.chunked_array(chunks, type=kind.index_type)
    number = number_type(kind)
    if number is None:
        return None
    return pa.chunked_array([chunk.view(number) for chunk in column.chunks], number)


def of_kind(numbers: Any, kind: Any, column: Any = None) -> Any:
    """Integers as values of the type; of a dictionary, as those of ``column``."""
    import pyarrow as pa

    if not pa.types.is_dictionary(kind):
        return pa.chunked_array([chunk.view(kind) for chunk in numbers.chunks], kind)
    values = column.chunk(0).dictionary
    chunks = [
        pa.DictionaryArray.from_arrays(chunk, values, ordered=kind.ordered, safe=False)
        for chunk in numbers.chunks
    ]
    return pa.chunked_array(chunks, kind)


def with_numbers(table: Any, names: Iterable[str]) -> Any:
    """The table with the numbers of dictionary columns instead of their values."""
    for name in names:
        i = table.schema.get_field_index(name)
        table = table.set_column(i, name, numbers_of(table[i]))
    return table


def with_values(table: Any, like: Any, names: Iterable[str]) -> Any:
    """What ``with_numbers`` was made of.

    Args:
        table: it, or some of its rows.
        like: a table with the fields, and the dictionaries.
        names: of the columns.
    """
    for name in names:
        i = table.schema.get_field_index(name)
        field = like.schema.field(name)
        column = of_kind(table[i], field.type, like[name])
        table = table.set_column(i, field, column)
    return table


# --- strings of many bytes ----------------------------------------------------


def wide_type(kind: Any) -> Any:
    """The type with offsets of 64 bits; None: ``kind`` has none of 32 bits."""
    import pyarrow as pa

    if pa.types.is_string(kind):
        return pa.large_string()
    return pa.large_binary() if pa.types.is_binary(kind) else None


def narrow(column: Any, kind: Any) -> Any:
    """A column of large strings as ``kind``, in chunks of less than 2 GiB."""
    import pyarrow as pa

    pieces = [piece for chunk in column.chunks for piece in _pieces(chunk, kind)]
    return pa.chunked_array(pieces, type=kind)


def _pieces(array: Any, kind: Any) -> Iterator[Any]:
    """A large string or binary array as arrays of ``kind``, each below 2 GiB."""
    import pyarrow as pa
    import pyarrow.compute as pc

    _, places, data = array.buffers()
    offsets = numpy.frombuffer(places, numpy.int64)
    offsets = offsets[array.offset : array.offset + len(array) + 1]
    begin = 0
    while begin < len(array):
        first = int(offsets[begin])
        end = int(numpy.searchsorted(offsets, first + MOST_BYTES, "right")) - 1
        end = min(max(end, begin + 1), len(array))
        own = (offsets[begin : end + 1] - first).astype(numpy.int32)
        is_valid = pc.is_valid(array.slice(begin, end - begin))
        yield pa.Array.from_buffers(
            kind,
            end - begin,
            [
                is_valid.buffers()[1],
                pa.py_buffer(own),
                None if data is None else data.slice(first, int(own[-1])),
            ],
        )
        begin = end
