# SPDX-License-Identifier: BSD-3-Clause
"""What ranks tell each other of their tables, and the schema that all have then."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

from .._communicator.agree import describe_error, raise_first_error
from .._data.columns import ArrowSchema
from .frames import nullable_name, title_of

_LENGTH = 8  # bytes of the length in front of what a rank says
_MOST_DIGITS = 76  # of Arrow's decimals
_PYTHON_DECIMAL = b"ucp.join.decimal"


class CommonTable(NamedTuple):
    """A table on all ranks."""

    schema: Any
    rows: int
    nbytes: int
    dictionaries: dict[int, list[Any]]  # of each rank, by the number of the column
    pandas_types: dict[str, Any]  # pandas' metadata of columns, by their name


# --- what a rank says ---------------------------------------------------------


def _encode(schema: Any) -> str:
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


def _decode(text: str) -> Any:
    import pyarrow as pa

    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))


def encode_table(table: Any) -> Any:
    """A table, or a batch, as a buffer."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write(table)
    return sink.getvalue()


def decode_table(data: Any) -> Any:
    """The table of a buffer."""
    import pyarrow as pa

    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        return reader.read_all()


def _encode_array(array: Any) -> Any:
    import pyarrow as pa

    return encode_table(pa.record_batch([array], names=["values"]))


def _decode_array(data: Any) -> Any:
    return decode_table(data)["values"].combine_chunks()


def _dictionaries(table: Any) -> dict[int, Any]:
    """The values of the table's dictionary columns; each column has one of them."""
    import pyarrow as pa

    found = {}
    for number, column in enumerate(table.columns):
        if pa.types.is_dictionary(column.type):
            found[number] = (
                column.chunk(0).dictionary
                if column.num_chunks
                else pa.array([], column.type.value_type)
            )
    return found


def pack(said: dict[str, Any], blobs: Sequence[Any] = ()) -> list[Any]:
    """What a rank says, and bytes to which that refers by their number."""
    head = json.dumps({**said, "blobs": [blob.size for blob in blobs]}).encode()
    return [len(head).to_bytes(_LENGTH, "little"), head, *blobs]


def unpack(data: bytes) -> tuple[dict[str, Any], list[memoryview]]:
    """What ``pack()`` has packed."""
    begin = _LENGTH + int.from_bytes(data[:_LENGTH], "little")
    said = json.loads(data[_LENGTH:begin])
    blobs = []
    for size in said["blobs"]:
        blobs.append(memoryview(data)[begin : begin + size])
        begin += size
    return said, blobs


def describe_failure(error: Exception) -> list[Any]:
    """Why this rank cannot take part."""
    return pack(describe_error(error))


def describe_tables(
    said: dict[str, Any], tables: Sequence[Any], libraries: Sequence[str]
) -> list[Any]:
    """What a rank tells the others, as buffers.

    Args:
        said: what it tells beside its tables, as JSON has it.
        tables: the tables; None: this rank has no rows of it.
        libraries: "pandas" or "polars" for each that was a frame of these.
    """
    blobs: list[Any] = []

    def add(array: Any) -> int:
        blobs.append(_encode_array(array))
        return len(blobs) - 1

    def about(table: Any, library: str) -> dict[str, Any] | None:
        if table is None:
            return None
        return {
            "schema": _encode(table.schema),
            "rows": table.num_rows,
            "library": library,
            "nulls": [i for i, its in enumerate(table.columns) if its.null_count],
            "bytes": table.nbytes,
            "dictionaries": [
                (number, add(values)) for number, values in _dictionaries(table).items()
            ],
        }

    return pack({**said, "tables": [*map(about, tables, libraries)]}, blobs)


# --- what follows from that ---------------------------------------------------


def unpack_all(
    said: Sequence[bytes],
) -> tuple[list[dict[str, Any]], list[list[memoryview]]]:
    """What all ranks have told, with its blobs.

    Raises:
        Exception: the one that a rank has told.
    """
    its, blobs = map(list, zip(*map(unpack, said), strict=True))
    raise_first_error(its)
    return its, blobs


def read_table(
    said: list[dict[str, Any]], blobs: list[Any], number: int, side: str
) -> CommonTable:
    """One of the tables; a column that is null on some ranks has the others' type.

    Args:
        said: what the ranks have told.
        blobs: those of each.
        number: of the table.
        side: what errors call it: see ``title_of``.
    """
    schema, owner = None, 0
    tables = [its["tables"][number] for its in said]
    there = [(rank, table) for rank, table in enumerate(tables) if table is not None]
    _mark_typeless([table for _, table in there])
    for rank, table in there:
        found = _decode(table["schema"])
        if table["typeless"]:
            found = _without_types(found)
        elif table["library"] == "pandas":
            found = _mark_decimals(found)
        if schema is None:
            schema, owner = found, rank
        else:
            schema = _common_schema(side, owner, schema, rank, found)
    if schema is None:
        shown = title_of(side).removeprefix("the ")
        raise ValueError(f"no rank has a {shown} with columns")
    return CommonTable(
        schema.with_metadata(None),
        sum(table["rows"] for _, table in there),
        sum(table["bytes"] for _, table in there),
        _read_dictionaries(there, blobs),
        _pandas_types(schema, [table for _, table in there]),
    )


def _pandas_types(schema: Any, tables: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What pandas says of the columns: the first frame that knows the type does."""
    import pyarrow as pa

    found: dict[str, Any] = {}
    unknown: dict[str, Any] = {}  # of columns of which no table knows the type
    nulls = {number for table in tables for number in table["nulls"]}
    for table in tables:
        if table["library"] == "pandas" and not table["typeless"]:
            its = _decode(table["schema"])
            for field, column in zip(its, its.pandas_metadata["columns"], strict=True):
                if not pa.types.is_null(field.type):
                    first = found.setdefault(field.name, column)
                    if column["numpy_type"] == "object":
                        first["numpy_type"] = "object"  # which holds all values
                elif column["numpy_type"] == "null[pyarrow]":
                    unknown.setdefault(field.name, column)
    found = {**unknown, **found}
    objects = [name for name, its in found.items() if its["numpy_type"] == "object"]
    for number in nulls:
        field = schema.field(number)
        if field.name in objects:
            continue
        if (name := nullable_name(field.type)) is not None:
            column = found.setdefault(field.name, {"numpy_type": "object"})
            if not _is_nullable(column["numpy_type"]):
                # Floats do not hold all of the integers.
                column["numpy_type"] = name
    return found


def _read_dictionaries(
    tables: Sequence[tuple[int, dict[str, Any]]], blobs: list[Any]
) -> dict[int, list[Any]]:
    found: dict[int, list[Any]] = {}
    for rank, table in tables:
        if table["typeless"]:
            continue
        for column, blob in table["dictionaries"]:
            found.setdefault(column, []).append(_decode_array(blobs[rank][blob]))
    return found


def _mark_typeless(tables: Sequence[dict[str, Any]]) -> None:
    """Note which tables do not count: pandas gives columns without rows any type.

    If no table has rows the first one counts.
    """
    for table in tables:
        table["typeless"] = table["library"] == "pandas" and not table["rows"]
    if tables and all(table["typeless"] for table in tables):
        tables[0]["typeless"] = False


def _without_types(schema: Any) -> Any:
    import pyarrow as pa

    return pa.schema([(name, pa.null()) for name in schema.names])


def _common_schema(side: str, first: int, schema: Any, rank: int, other: Any) -> Any:
    """A frame without rows, or with None only, does not know the type of a column."""
    import pyarrow as pa

    _check_enums(side, first, schema, rank, other)

    if schema.names != other.names:
        _raise_difference(side, first, schema, rank, other)
    for i, (ours, theirs) in enumerate(zip(schema, other, strict=True)):
        if ours == theirs or pa.types.is_null(theirs.type):
            continue
        if is_python_decimal(ours) and is_python_decimal(theirs):
            kind = common_decimal(ours.type, theirs.type)
            if kind is not None:
                schema = schema.set(i, ours.with_type(kind))
                continue
        if not pa.types.is_null(ours.type):
            _raise_difference(side, first, schema, rank, other)
        schema = schema.set(i, theirs)
    return schema


def _mark_decimals(schema: Any) -> Any:
    """With metadata of the columns of Python's decimals.

    Their precision and scale are what the values of a rank need.
    """
    import pyarrow as pa

    about = schema.pandas_metadata["columns"]
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


def _is_nullable(dtype: str) -> bool:
    return dtype.startswith(("Int", "UInt", "boolean")) or dtype.endswith("[pyarrow]")


def enum_of(field: Any) -> bytes | None:
    """The values of an Enum of polars."""
    return (field.metadata or {}).get(b"_PL_ENUM_VALUES2")


def _check_enums(side: str, first: int, schema: Any, rank: int, other: Any) -> None:
    for ours, theirs in zip(schema, other, strict=False):
        if ours == theirs and enum_of(ours) != enum_of(theirs):
            raise TypeError(
                f"column {ours.name!r} of {title_of(side)} is an Enum whose "
                f"categories differ between the ranks {first} and {rank}"
            )


def _raise_difference(
    side: str, first: int, schema: Any, rank: int, other: Any
) -> None:
    import pyarrow as pa

    if schema.names != other.names:
        raise TypeError(
            f"{title_of(side)} has the columns {schema.names} on rank {first}, "
            f"{other.names} on rank {rank}"
        )
    for ours, theirs in zip(schema, other, strict=True):
        if ours != theirs and not pa.types.is_null(ours.type):
            raise TypeError(
                f"column {ours.name!r} of {title_of(side)} is {ours.type} on rank "
                f"{first}, {theirs.type} on rank {rank}"
            )


def key_types(table: CommonTable, names: Sequence[str], side: str) -> list[Any]:
    """The types of columns.

    Raises:
        KeyError: there is none of that name.
        ValueError: there are several.
    """
    schema = table.schema
    for name in names:
        count = schema.names.count(name)
        if count == 0:
            there = ", ".join(map(repr, schema.names))
            raise KeyError(f"{title_of(side)} has no column {name!r}, only {there}")
        if count > 1:
            raise ValueError(f"{title_of(side)} has {count} columns {name!r}")
    return [schema.field(name).type for name in names]


def uses_threads(said: list[dict[str, Any]], rank: int) -> bool:
    """Are there two cores for each rank of this host?"""
    here = sum(1 for its in said if its["host"] == said[rank]["host"])
    return len(os.sched_getaffinity(0)) >= 2 * here


def with_pandas_types(table: CommonTable) -> CommonTable:
    """With metadata of the schema by which Arrow makes the frame that was given."""
    columns = []
    own: dict[str, list[int]] = {"arrow": [], "object": []}
    for number, field in enumerate(table.schema):
        column = dict(table.pandas_types.get(field.name, {}))
        name = column.get("numpy_type", "")
        if name.startswith(("Int", "UInt", "boolean")):
            name = nullable_name(field.type) or ""  # a key may have become wider
        elif name.endswith("[pyarrow]"):
            own["arrow"].append(number)
            name = "object"
        elif name == "object":
            own["object"].append(number)
        if name:
            column |= {"name": field.name, "field_name": field.name}
            column |= {"pandas_type": str(field.type), "numpy_type": name}
            column.setdefault("metadata", None)
            columns.append(column)
    about = {"columns": columns, "index_columns": [], "column_indexes": []}
    metadata = {b"pandas": json.dumps(about).encode()}
    metadata[b"ucp.join"] = json.dumps(own).encode()
    return table._replace(schema=table.schema.with_metadata(metadata))


def check_columns(table: Any, side: str) -> None:
    """Refuse columns that cannot be moved.

    Raises:
        TypeError: the name and the type of one.
    """
    try:
        ArrowSchema(table.schema, {}).shapes()
    except TypeError as error:
        raise TypeError(f"{side} table: {error}") from None
