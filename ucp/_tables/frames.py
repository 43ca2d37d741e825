# SPDX-License-Identifier: BSD-3-Clause
"""Tables of any library as Arrow tables that compare equal on all ranks, and back."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from .._data.columns import without_views


def title_of(side: str) -> str:
    """What errors call a table: "left" and "right" are those of a join."""
    return f"the {side} table" if side in ("left", "right") else "the table"


def is_frame(table: Any) -> bool:
    """Is it a ``DataFrame`` of pandas?"""
    return _is_a(table, "pandas")


def is_polars(table: Any) -> bool:
    """Is it a ``DataFrame`` of polars?"""
    return _is_a(table, "polars")


def _is_a(table: Any, library: str) -> bool:
    # A module that another thread is importing may have no DataFrame yet.
    frame = getattr(sys.modules.get(library), "DataFrame", None)
    return frame is not None and isinstance(table, frame)


def library_of(table: Any) -> str:
    """By whose rules a table has its types; empty: Arrow's."""
    return "pandas" if is_frame(table) else "polars" if is_polars(table) else ""


def to_polars(table: Any, about: Mapping[str, Any]) -> Any:
    """The table as a ``DataFrame`` of polars.

    Args:
        table: of Arrow.
        about: polars' metadata of fields, by their names.
    """
    import polars
    import pyarrow as pa

    fields = [
        field.with_metadata(about.get(field.name))
        if pa.types.is_dictionary(field.type)
        else field
        for field in table.schema
    ]
    return polars.from_arrow(table.cast(pa.schema(fields)))


def to_arrow(table: Any, side: str) -> Any:
    """A ``pyarrow.Table``, or None if this rank has no rows.

    It has no metadata but those by which pandas and polars know their types.

    Raises:
        TypeError: it is not a table.
    """
    import pyarrow as pa

    if table is None:
        return None
    keeps = is_frame(table) or is_polars(table)
    if is_frame(table):
        table = _from_pandas(table)
    elif is_polars(table):
        _check_polars(table, side)
        table = pa.table(table)
    elif isinstance(table, Mapping):
        table = pa.table(dict(table))
    elif isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    elif not isinstance(table, pa.Table):
        if not hasattr(table, "__arrow_c_stream__"):
            raise TypeError(
                f"{side} must be an Arrow table, a DataFrame, a dict of arrays or "
                f"None, not {type(table).__name__}"
            )
        table = pa.table(table)
    if not table.num_columns:
        if table.num_rows:
            raise ValueError(f"{side} has {table.num_rows} rows, but no columns")
        return None
    return _normal(without_views(table), side, keeps)


def _from_pandas(frame: Any) -> Any:
    """An Arrow table, whose metadata name all of pandas' types of Arrow."""
    import pyarrow as pa

    table = pa.Table.from_pandas(frame, preserve_index=False)
    about = table.schema.pandas_metadata
    for column, dtype in zip(about["columns"], frame.dtypes, strict=True):
        if str(dtype).endswith("[pyarrow]"):  # of decimals it says that it is object
            column["numpy_type"] = str(dtype)
    return table.replace_schema_metadata({b"pandas": json.dumps(about).encode()})


def _check_polars(frame: Any, side: str) -> None:
    """Refuse what polars does not give to Arrow, or gives as addresses."""
    for name, dtype in frame.schema.items():
        if not _arrow_has(dtype):
            raise TypeError(
                f"column {name!r} of {title_of(side)} has polars' type {dtype}, which "
                "Arrow does not have: cast it"
            )


def _arrow_has(dtype: Any) -> bool:
    """Does Arrow have this type of polars, and those of its parts?"""
    if dtype.base_type().__name__ in ("Int128", "UInt128", "Object", "Unknown"):
        return False
    inner = getattr(dtype, "inner", None)
    parts = [field.dtype for field in getattr(dtype, "fields", ())]
    return all(map(_arrow_has, parts if inner is None else [inner]))


def _normal(table: Any, side: str, keeps: bool) -> Any:
    """With one dictionary for each column that has any; ``keeps`` its metadata."""
    import pyarrow as pa

    metadata = table.schema.metadata if keeps else None
    fields = []
    for i, field in enumerate(table.schema):
        kind = field.type
        _check_dictionary(field, side)
        if pa.types.is_dictionary(kind) and pa.types.is_null(kind.value_type):
            # A categorical without values has categories of no type.
            kind = pa.null()
            table = table.set_column(i, field.name, pa.nulls(table.num_rows))
        elif pa.types.is_dictionary(kind):
            # The library that made the table has chosen the index by the number of
            # values, which differs from rank to rank.
            kind = pa.dictionary(
                pa.int32(), _without_view(kind.value_type), kind.ordered
            )
            if any(chunk.dictionary.null_count for chunk in table[i].chunks):
                # Arrow does not unify such; a value that is null is one, too.
                plain = table[i].cast(kind.value_type).dictionary_encode()
                table = table.set_column(i, field.name, plain)
        about = field.metadata if keeps else None
        fields.append(pa.field(field.name, kind, metadata=about))
    schema = pa.schema(fields, metadata)
    if not table.num_rows:
        return _without_rows(table, schema)
    if schema.types != table.schema.types:
        table = table.cast(schema)
    else:
        table = pa.Table.from_arrays(table.columns, schema=schema)
    has_dictionaries = any(map(pa.types.is_dictionary, schema.types))
    return table.unify_dictionaries() if has_dictionaries else table


def without_nan(table: Any, names: Sequence[str]) -> Any:
    """The table with null for NaN in columns of floats: pandas finds them equal."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for name in names:
        i = table.schema.get_field_index(name)
        field = table.schema.field(i)
        if pa.types.is_floating(field.type):
            null = pa.scalar(None, field.type)
            column = pc.if_else(pc.is_nan(table[i]), null, table[i])
            table = table.set_column(i, field, column)
    return table


def _without_rows(table: Any, schema: Any) -> Any:
    """A table without rows of the schema, whose dictionaries stay."""
    import pyarrow as pa

    found = schema.empty_table()
    for i, field in enumerate(schema):
        if pa.types.is_dictionary(field.type) and table[i].num_chunks:
            values = table[i].chunk(0).dictionary.cast(field.type.value_type)
            found = found.set_column(i, field, empty_dictionary(field.type, values))
    return found


def empty_dictionary(kind: Any, values: Any) -> Any:
    """No value of a dictionary."""
    import pyarrow as pa

    none = pa.array([], kind.index_type)
    return pa.DictionaryArray.from_arrays(none, values, ordered=kind.ordered)


def _without_view(kind: Any) -> Any:
    import pyarrow as pa

    if pa.types.is_string_view(kind):
        return pa.large_string()
    return pa.large_binary() if pa.types.is_binary_view(kind) else kind


def _check_dictionary(field: Any, side: str) -> None:
    """Refuse what Arrow cannot put together of several ranks."""
    import pyarrow as pa

    kind = field.type
    inner = kind.value_type if pa.types.is_dictionary(kind) else kind
    is_extension = isinstance(inner, pa.BaseExtensionType)
    if inner is not kind and is_extension:
        what = "a dictionary of an extension type"
    elif is_extension and pa.types.is_dictionary(inner.storage_type):
        what = "an extension type over a dictionary"
    else:
        return
    raise TypeError(
        f"column {field.name!r} of {title_of(side)} has type {kind}, {what}: cast it"
    )


def unify(column: Any, dictionaries: Sequence[Any]) -> tuple[Any, Any]:
    """The column with one dictionary of all values, and that dictionary.

    They are the same on all ranks, if the dictionaries are.
    """
    import pyarrow as pa

    kind = column.type
    first = [empty_dictionary(kind, values) for values in dictionaries]
    whole = pa.chunked_array([*first, *column.chunks], type=kind).unify_dictionaries()
    return (
        pa.chunked_array(whole.chunks[len(first) :], type=kind),
        whole.chunk(0).dictionary,
    )


def copy_table(table: Any) -> Any:
    """The table in its own memory, and no more than it needs."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return pa.ipc.open_stream(sink.getvalue()).read_all()


def pandas_frame(table: Any, is_own: bool = False) -> Any:
    """A ``DataFrame`` of pandas: a copy, as pandas keeps views.

    Args:
        table: of Arrow; metadata of its schema name pandas' types.
        is_own: views of it are harmless.
    """
    copy = copy_table(table) if table.num_rows and not is_own else table
    if copy.schema.pandas_metadata is None:
        return copy.to_pandas(types_mapper=_nullable_types(copy).get)
    return _given_frame(copy)


def _given_frame(table: Any) -> Any:
    """The frame with the types that its metadata name.

    Arrow reads types of Arrow by their names, which not all of them have, and makes
    no objects of integers.
    """
    import pyarrow as pa

    pd = importlib.import_module("pandas")
    about = json.loads(table.schema.metadata.get(b"ucp.join", b"{}"))
    plain = table
    for i in about.get("arrow", ()):
        nulls = pa.nulls(table.num_rows)
        plain = plain.set_column(i, plain.schema.field(i).name, nulls)
    frame = plain.to_pandas(integer_object_nulls=True)
    for i in about.get("arrow", ()):
        frame.isetitem(i, pd.arrays.ArrowExtensionArray(table[i]))
    for i in about.get("object", ()):
        column = frame.iloc[:, i]
        if column.dtype != object:
            objects = column.astype(object)
            frame.isetitem(i, objects.where(column.notna(), None))
    return frame


def _nullable_types(table: Any) -> dict[Any, Any]:
    """For integers and bools with nulls: floats do not hold all of the integers."""
    pd = importlib.import_module("pandas")
    found: dict[Any, Any] = {}
    for column in table.columns:
        if column.null_count and (name := nullable_name(column.type)) is not None:
            found[column.type] = pd.api.types.pandas_dtype(name)
    return found


def nullable_name(kind: Any) -> str | None:
    """pandas' type of integers or bools that may be null; None: ``kind`` is neither."""
    import pyarrow.types as is_type

    if is_type.is_integer(kind):
        sign = "Int" if is_type.is_signed_integer(kind) else "UInt"
        return f"{sign}{kind.bit_width}"
    return "boolean" if is_type.is_boolean(kind) else None
