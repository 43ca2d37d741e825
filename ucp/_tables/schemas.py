# SPDX-License-Identifier: BSD-3-Clause
"""What ranks tell each other of their tables, and the schema that all have then."""

from __future__ import annotations

import base64
import json
import os
import reprlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from .._communicator.agree import describe_error, raise_first_error
from .._data.columns import ArrowSchema
from .frames import nullable_name, title_of
from .unify import Known, common_field, mark_decimals

_LENGTH = 8  # bytes of the length in front of what a rank says
_NULLABLE = ("Int", "UInt", "Float", "boolean")  # types of pandas


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
            "empty": [
                number
                for number, its in enumerate(table.columns)
                if its.null_count == table.num_rows
            ],
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
    """One of the tables; columns that ranks have otherwise are as in ``unify.py``.

    Args:
        said: what the ranks have told.
        blobs: those of each.
        number: of the table.
        side: what errors call it: see ``title_of``.
    """
    tables = [its["tables"][number] for its in said]
    there = [
        _read_told(rank, about)
        for rank, about in enumerate(tables)
        if about is not None
    ]
    if not there:
        shown = title_of(side).removeprefix("the ")
        raise ValueError(f"no rank has a {shown} with columns")
    schema = _common_schema(side, there)
    return CommonTable(
        schema,
        sum(one.about["rows"] for one in there),
        sum(one.about["bytes"] for one in there),
        _read_dictionaries(side, schema, there, blobs),
        _pandas_types(schema, there),
    )


class _Told(NamedTuple):
    """What a rank has told of a table.

    Attributes:
        rank: its number.
        about: what it has told.
        schema: of the table.
        types: pandas' metadata of the columns; None: it is not a frame of pandas.
        empty: the numbers of columns without values.
        dictionaries: the numbers of their blobs, by those of the columns.
    """

    rank: int
    about: dict[str, Any]
    schema: Any
    types: list[dict[str, Any]] | None
    empty: frozenset[int]
    dictionaries: dict[int, int]


def _read_told(rank: int, about: dict[str, Any]) -> _Told:
    schema, types = _decode(about["schema"]), None
    if about["library"] == "pandas":
        types = schema.pandas_metadata["columns"]
        schema = mark_decimals(schema, types)
    dictionaries = dict(about["dictionaries"])
    return _Told(rank, about, schema, types, frozenset(about["empty"]), dictionaries)


def _common_schema(side: str, tables: Sequence[_Told]) -> Any:
    import pyarrow as pa

    first = tables[0]
    for its in tables:
        if its.schema.names != first.schema.names:
            raise TypeError(
                f"{title_of(side)} has the columns {first.schema.names} on rank "
                f"{first.rank}, {its.schema.names} on rank {its.rank}"
            )
    schema = first.schema.remove_metadata()
    if all(schema.equals(its.schema.remove_metadata(), True) for its in tables):
        return schema
    is_pandas = any(its.types is not None for its in tables)
    fields = []
    for number in range(len(first.schema)):
        columns = [
            Known(
                its.rank,
                its.schema.field(number),
                its.about["rows"] > 0,
                number not in its.empty,
            )
            for its in tables
        ]
        fields.append(common_field(side, columns, is_pandas))
    return pa.schema(fields)


def _that_know(tables: Sequence[_Told], number: int) -> list[_Told]:
    """Those that know what a column is: by values of it, if some table has any."""
    import pyarrow as pa

    with_values = [its for its in tables if number not in its.empty]
    if with_values:
        return with_values
    with_rows = [its for its in tables if its.about["rows"]]
    for some in (with_rows, tables):
        typed = [
            its for its in some if not pa.types.is_null(its.schema.field(number).type)
        ]
        if typed:
            return typed[:1]
    return with_rows or list(tables)


def _pandas_types(schema: Any, tables: Sequence[_Told]) -> dict[str, Any]:
    """What pandas says of the columns."""
    import pyarrow as pa

    found: dict[str, Any] = {}
    for number, field in enumerate(schema):
        for its in _that_know(tables, number):
            if its.types is None:
                continue
            column = its.types[number]
            if not pa.types.is_null(field.type):
                _merge_types(found.setdefault(field.name, column), column)
            elif column["numpy_type"] == "null[pyarrow]":
                found.setdefault(field.name, column)
    for number in {number for its in tables for number in its.about["nulls"]}:
        field = schema.field(number)
        column = found.get(field.name, {"numpy_type": ""})
        if column["numpy_type"] == "object":
            continue
        if (name := nullable_name(field.type)) is not None:
            column = found.setdefault(field.name, column)
            if not _is_nullable(column["numpy_type"]):
                # Floats do not hold all of the integers.
                column["numpy_type"] = name
    return found


def _merge_types(first: dict[str, Any], other: dict[str, Any]) -> None:
    """Objects hold all values, and nullable types also those of others."""
    name = other["numpy_type"]
    if name == "object" or (
        _is_nullable(name)
        and not _is_nullable(first["numpy_type"])
        and first["numpy_type"] != "object"
    ):
        first["numpy_type"] = name


def _read_dictionaries(
    side: str, schema: Any, tables: Sequence[_Told], blobs: list[Any]
) -> dict[int, list[Any]]:
    import pyarrow as pa

    found: dict[int, list[Any]] = {}
    for number, field in enumerate(schema):
        kind = field.type
        if not pa.types.is_dictionary(kind):
            continue
        there = []
        for its in _that_know(tables, number):
            values = _decode_array(blobs[its.rank][its.dictionaries[number]])
            there.append((its.rank, values.cast(kind.value_type)))
        if kind.ordered:
            there.sort(key=lambda one: -len(one[1]))
            _check_order(side, field.name, there)
        found[number] = [values for _, values in there]
    return found


def _check_order(side: str, name: str, categories: list[tuple[int, Any]]) -> None:
    """Refuse ordered categories of ranks that have no common order.

    Args:
        categories: of each rank; the first has to have all of them.
    """
    first, most = categories[0]
    for rank, values in categories:
        following = iter(most.to_pylist())
        if not all(value in following for value in values.to_pylist()):
            texts = [reprlib.repr(each.to_pylist()) for each in (most, values)]
            raise TypeError(
                f"column {name!r} of {title_of(side)} has the ordered categories "
                f"{texts[0]} on rank {first}, {texts[1]} on rank {rank}: give all "
                "ranks the same"
            )


def _is_nullable(dtype: str) -> bool:
    return dtype.startswith(_NULLABLE) or dtype.endswith("[pyarrow]")


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


def _nullable_float(kind: Any) -> str:
    import pyarrow.types as is_type

    return f"Float{kind.bit_width}" if is_type.is_floating(kind) else ""


def with_pandas_types(table: CommonTable) -> CommonTable:
    """With metadata of the schema by which Arrow makes the frame that was given."""
    columns = []
    own: dict[str, list[int]] = {"arrow": [], "object": []}
    for number, field in enumerate(table.schema):
        column = dict(table.pandas_types.get(field.name, {}))
        name = column.get("numpy_type", "")
        if name.startswith(_NULLABLE):
            # A key may have become wider, and integers floats.
            name = nullable_name(field.type) or _nullable_float(field.type)
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
        raise TypeError(f"{title_of(side)}: {error}") from None
