# SPDX-License-Identifier: BSD-3-Clause
"""Tables of any library as Arrow tables that compare equal on all ranks."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from .._data.columns import without_views


def is_frame(table: Any) -> bool:
    """Is it a ``DataFrame`` of pandas?"""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(table, pandas.DataFrame)


def to_arrow(table: Any, side: str) -> Any:
    """A ``pyarrow.Table`` without metadata, or None if this rank has no rows.

    Raises:
        TypeError: it is no table.
    """
    import pyarrow as pa

    if table is None:
        return None
    if is_frame(table):
        table = pa.Table.from_pandas(table, preserve_index=False)
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
    return _normal(without_views(table), side)


def _normal(table: Any, side: str) -> Any:
    """Without metadata, with one dictionary for each column that has any."""
    import pyarrow as pa

    fields = []
    for i, field in enumerate(table.schema):
        kind = field.type
        _check_dictionary(field, side)
        if pa.types.is_dictionary(kind):
            # The library that made the table has chosen the index by the number of
            # values, which differs from rank to rank.
            kind = pa.dictionary(pa.int32(), kind.value_type, kind.ordered)
            if any(chunk.dictionary.null_count for chunk in table[i].chunks):
                # Arrow does not unify such; a value that is null is one, too.
                plain = table[i].cast(kind.value_type).dictionary_encode()
                table = table.set_column(i, field.name, plain)
        fields.append(pa.field(field.name, kind))
    schema = pa.schema(fields)
    if schema.types != table.schema.types:
        table = table.cast(schema)
    else:
        table = pa.Table.from_arrays(table.columns, schema=schema)
    return table.unify_dictionaries()


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
        f"column {field.name!r} of the {side} table has type {kind}, {what}: cast it"
    )


def unify(column: Any, dictionaries: Sequence[Any]) -> tuple[Any, Any]:
    """The column with one dictionary of all values, and that dictionary.

    They are the same on all ranks, if the dictionaries are.
    """
    import pyarrow as pa

    kind = column.type
    empty = pa.array([], kind.index_type)
    first = [
        pa.DictionaryArray.from_arrays(empty, values, ordered=kind.ordered)
        for values in dictionaries
    ]
    whole = pa.chunked_array([*first, *column.chunks], type=kind).unify_dictionaries()
    return (
        pa.chunked_array(whole.chunks[len(first) :], type=kind),
        whole.chunk(0).dictionary,
    )
