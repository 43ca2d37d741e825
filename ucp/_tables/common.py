# SPDX-License-Identifier: BSD-3-Clause
"""Tables with the types, and the dictionaries, that all ranks have agreed on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .._data.partition import read_partition
from .._ext import Chunk
from .frames import empty_dictionary, unify
from .schemas import CommonTable
from .unify import cast_table


def with_common_types(table: Any, common: CommonTable) -> tuple[Any, dict[int, Any]]:
    """The table, or one without rows for None, and its dictionaries.

    Raises:
        ValueError: a type does not hold the values of a column.
    """
    import pyarrow as pa

    schema = common.schema
    if table is None or table.num_rows == 0:
        table = schema.empty_table()
    else:
        table = cast_table(table, schema)
    dictionaries = {}
    for i, values in common.dictionaries.items():
        if not pa.types.is_dictionary(schema.field(i).type):
            continue  # a key of a join that the other table has without
        column, dictionaries[i] = unify(table[i], values)
        table = table.set_column(i, schema.field(i), column)
    return table, dictionaries


def without_rows(schema: Any, dictionaries: Mapping[int, Any]) -> Any:
    """A table without rows, with the dictionaries that all ranks have."""
    table = schema.empty_table()
    for i, values in dictionaries.items():
        field = schema.field(i)
        table = table.set_column(i, field, empty_dictionary(field.type, values))
    return table


def read_chunks(
    chunks: Sequence[Chunk], schema: Any, dictionaries: Mapping[int, Any]
) -> Any:
    """The table in regions of several ranks, as views."""
    import pyarrow as pa

    if not chunks:
        return without_rows(schema, dictionaries)
    return pa.concat_tables(
        [read_partition(chunk, schema, dictionaries) for chunk in chunks]
    )
