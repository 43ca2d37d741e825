# SPDX-License-Identifier: BSD-3-Clause
"""Tables as the columns of umx/column.h, and back."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple, Protocol


class Type(IntEnum):
    """umx_column_type."""

    NULL = 0
    BOOL = 1
    INT = 2
    UINT = 3
    FLOAT = 4
    BYTES = 5
    STRING = 6
    OPAQUE = 7


class Shape(NamedTuple):
    """How the values of a column lie in memory."""

    type: Type
    width: int  # bytes of a value, or of an offset


class Column(NamedTuple):
    """What the extension takes as a column of a chunk."""

    type: int
    width: int
    offset: int = 0
    validity: Any = None
    values: Any = None
    bytes: Any = None
    dictionary: tuple[int, Column] | None = None


Chunk = tuple[int, list[Column]]


class View(NamedTuple):
    """A column of a region, whose buffers are views."""

    num_rows: int
    num_nulls: int
    validity: memoryview | None
    values: memoryview | None
    bytes: memoryview | None


class Schema(Protocol):
    """The columns of a table."""

    original: Any  # what the program knows it by
    names: tuple[str, ...]
    dictionaries: dict[int, Any]  # by number of the column

    def shapes(self) -> list[Shape]: ...
    def check_keys(self, keys: Sequence[int]) -> None: ...
    def table(self, views: list[View], num_rows: int, is_trusted: bool) -> Any: ...


# --- NumPy --------------------------------------------------------------------


class NumPySchema:
    """The schema of a dict of arrays: the names and the dtypes of the columns.

    A dtype includes the shape of an item.
    """

    def __init__(self, dtypes: Mapping[str, Any]) -> None:
        import numpy

        self.original = {name: numpy.dtype(dtype) for name, dtype in dtypes.items()}
        self.names = tuple(self.original)
        self.dictionaries: dict[int, Any] = {}
        for name, dtype in self.original.items():
            if dtype.hasobject:
                raise TypeError(
                    f"column {name!r} has objects (dtype {dtype}), which have no "
                    "bytes of their own: give an Arrow table"
                )

    def shapes(self) -> list[Shape]:
        return [self._shape(dtype) for dtype in self.original.values()]

    @staticmethod
    def _shape(dtype: Any) -> Shape:
        kinds = {
            "b": Type.UINT,
            "i": Type.INT,
            "u": Type.UINT,
            "M": Type.INT,
            "m": Type.INT,
            "f": Type.FLOAT,
        }
        kind = kinds.get(dtype.kind, Type.OPAQUE)
        if dtype.itemsize > 8 or dtype.subdtype is not None:
            kind = Type.OPAQUE
        return Shape(kind, dtype.itemsize)

    def check_keys(self, keys: Sequence[int]) -> None:
        for key in keys:
            dtype = self.original[self.names[key]]
            if self._shape(dtype).type is Type.OPAQUE:
                raise TypeError(
                    f"column {self.names[key]!r} of dtype {dtype} cannot be a key"
                )

    def table(
        self, views: list[View], num_rows: int, is_trusted: bool
    ) -> dict[str, Any]:
        import numpy

        for name, view in zip(self.names, views, strict=True):
            if view.validity is not None:
                raise ValueError(f"column {name!r} has nulls, which no array has")
        return {
            name: numpy.ndarray((num_rows, *dtype.shape), dtype.base, view.values)
            for (name, dtype), view in zip(self.original.items(), views, strict=True)
        }


def _numpy_array(name: str, values: Any) -> Any:
    """Contiguous, in this machine's byte order; a copy only if it is needed."""
    import numpy

    if isinstance(values, numpy.ma.MaskedArray):
        raise TypeError(f"column {name!r} is a masked array: give an Arrow table")
    array = numpy.asarray(values)
    if array.ndim == 0:
        raise ValueError(f"column {name!r} has no rows: it is a scalar")
    return numpy.ascontiguousarray(array, array.dtype.newbyteorder("="))


def from_numpy(table: Mapping[str, Any]) -> tuple[NumPySchema, list[Chunk]]:
    import numpy

    arrays = {name: _numpy_array(name, values) for name, values in table.items()}
    if not arrays:
        raise ValueError("the table has no columns")
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"the columns have different lengths: {lengths}")
    schema = NumPySchema(
        {name: (array.dtype, array.shape[1:]) for name, array in arrays.items()}
    )
    columns = [
        # Some types of items, dates for example, have no buffer protocol.
        Column(*shape, values=array.reshape(-1).view(numpy.uint8))
        if array.size and array.itemsize
        else Column(*shape)
        for shape, array in zip(schema.shapes(), arrays.values(), strict=True)
    ]
    return schema, [(next(iter(lengths.values())), columns)]


# --- Arrow --------------------------------------------------------------------


class ArrowSchema:
    """A schema of pyarrow's, and the values of its dictionaries."""

    def __init__(self, schema: Any, dictionaries: Mapping[int, Any]) -> None:
        self.original = schema
        self.names = tuple(schema.names)
        self.dictionaries = dict(dictionaries)

    def shapes(self) -> list[Shape]:
        known: dict[Any, Shape] = {}  # a table may have a thousand columns
        return [self._shape(field, known) for field in self.original]

    def _shape(self, field: Any, known: dict[Any, Shape]) -> Shape:
        kind = field.type
        if _storage(kind) is not kind:  # a program's class may have no hash
            return _arrow_shape(field.name, kind)
        if kind not in known:
            known[kind] = _arrow_shape(field.name, kind)
        return known[kind]

    def check_keys(self, keys: Sequence[int]) -> None:
        for key in keys:
            field = self.original.field(key)
            kind = _storage(field.type)
            if hasattr(kind, "value_type"):
                kind = kind.value_type
            if _arrow_shape(field.name, kind).type is Type.OPAQUE:
                raise TypeError(
                    f"column {field.name!r} of type {field.type} cannot be a key"
                )

    def table(self, views: list[View], num_rows: int, is_trusted: bool) -> Any:
        import pyarrow as pa

        arrays = [
            self._array(number, view, is_trusted) for number, view in enumerate(views)
        ]
        return pa.Table.from_arrays(arrays, schema=self.original)

    def _array(self, number: int, view: View, is_trusted: bool) -> Any:
        import pyarrow as pa

        field = self.original.field(number)
        kind = _storage(field.type)
        if pa.types.is_null(kind):
            return pa.nulls(view.num_rows)
        plain = kind.index_type if pa.types.is_dictionary(kind) else kind
        parts = [view.validity, view.values]
        if view.bytes is not None:
            parts.append(view.bytes)
        buffers = [None if part is None else pa.py_buffer(part) for part in parts]
        array = pa.Array.from_buffers(plain, view.num_rows, buffers, view.num_nulls)
        if pa.types.is_dictionary(kind):
            array = self._with_dictionary(number, kind, array, is_trusted)
        if kind is not field.type:
            array = pa.ExtensionArray.from_storage(field.type, array)
        return array

    def _with_dictionary(
        self, number: int, kind: Any, numbers: Any, is_trusted: bool
    ) -> Any:
        import pyarrow as pa

        name = self.names[number]
        if number not in self.dictionaries:
            raise KeyError(f"there is no dictionary of column {number}, {name!r}")
        values = self.dictionaries[number]
        try:
            return pa.DictionaryArray.from_arrays(
                numbers, values, ordered=kind.ordered, safe=not is_trusted
            )
        except IndexError as error:
            raise ValueError(
                f"column {name!r} has a number that is not in its dictionary"
            ) from error


def _storage(kind: Any) -> Any:
    """The type itself, or that by which an extension type is stored."""
    import pyarrow as pa

    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def have_one_order(schema: Schema, other: Schema, name: str) -> bool:
    """Do bytes of a column have one meaning in both? Those of a shape are compared.

    So seconds are not compared with milliseconds, nor decimals of other scales.
    """
    if isinstance(schema, NumPySchema) and isinstance(other, NumPySchema):
        dtypes = [its.original[name] for its in (schema, other)]
        return dtypes[0] == dtypes[1] or dtypes[0].kind not in "mM"
    if not isinstance(schema, ArrowSchema) or not isinstance(other, ArrowSchema):
        return True
    first, second = (_unit_of(its.original.field(name).type) for its in (schema, other))
    return bool(first == second)


def _unit_of(kind: Any) -> Any:
    """What the bytes of a value of the type mean, beside their shape."""
    import pyarrow.types as is_type

    kind = _storage(kind)
    if is_type.is_dictionary(kind):
        kind = kind.value_type
    if is_type.is_decimal(kind):
        return kind.scale
    if is_type.is_timestamp(kind):
        return "timestamp", kind.unit
    return str(kind) if is_type.is_temporal(kind) else ""


def _arrow_shape(name: str, kind: Any) -> Shape:
    import pyarrow.types as is_type

    kind = _storage(kind)
    if is_type.is_dictionary(kind):
        _arrow_shape(name, kind.value_type)
        if is_type.is_dictionary(kind.value_type):
            raise TypeError(f"column {name!r} of type {kind} has two dictionaries")
        kind = kind.index_type
    if is_type.is_null(kind):
        return Shape(Type.NULL, 0)
    if is_type.is_boolean(kind):
        return Shape(Type.BOOL, 0)
    if is_type.is_string(kind) or is_type.is_binary(kind):
        return Shape(Type.STRING, 4)
    if is_type.is_large_string(kind) or is_type.is_large_binary(kind):
        return Shape(Type.STRING, 8)
    if is_type.is_fixed_size_binary(kind):
        return Shape(Type.BYTES, kind.byte_width)
    if not is_type.is_primitive(kind) and not is_type.is_decimal(kind):
        raise TypeError(
            f"column {name!r} has type {kind}; types with columns of their own "
            "(lists, structs, maps, unions) and run-end encoding are not supported"
        )
    width = kind.bit_width // 8
    if is_type.is_unsigned_integer(kind):
        return Shape(Type.UINT, width)
    if is_type.is_floating(kind):
        return Shape(Type.FLOAT, width)
    if is_type.is_interval(kind):
        return Shape(Type.OPAQUE, width)
    return Shape(Type.INT, width)  # integers, dates, times, decimals


def without_views(table: Any) -> Any:
    """Strings whose bytes are in many buffers, as large strings."""
    import pyarrow as pa

    for i, field in enumerate(table.schema):
        if pa.types.is_string_view(field.type):
            table = table.set_column(i, field.name, table[i].cast(pa.large_string()))
        elif pa.types.is_binary_view(field.type):
            table = table.set_column(i, field.name, table[i].cast(pa.large_binary()))
    return table


def _arrow_column(array: Any, shape: Shape) -> Column:
    import pyarrow as pa

    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    dictionary = None
    if isinstance(array, pa.DictionaryArray):
        values = array.dictionary
        dictionary = (
            len(values),
            _arrow_column(values, _arrow_shape("", values.type)),
        )
        array = array.indices
    if shape.type is Type.NULL:
        return Column(*shape)
    validity, values, *rest = array.buffers()
    return Column(
        *shape,
        offset=array.offset,
        validity=validity if array.null_count else None,
        values=values,
        bytes=rest[0] if rest else None,
        dictionary=dictionary,
    )


def _empty_chunk(schema: Any, shapes: list[Shape]) -> Chunk:
    import pyarrow as pa

    return 0, [
        _arrow_column(pa.nulls(0, field.type), shape)
        for field, shape in zip(schema, shapes, strict=True)
    ]


def _dictionaries(table: Any, batches: list[Any]) -> dict[int, Any]:
    import pyarrow as pa

    found = {}
    for i, field in enumerate(table.schema):
        kind = _storage(field.type)
        if not pa.types.is_dictionary(kind):
            continue
        if batches:
            array = batches[0].column(i)
            found[i] = getattr(array, "storage", array).dictionary
        else:
            found[i] = pa.array([], kind.value_type)
    return found


def from_arrow(table: Any) -> tuple[ArrowSchema, list[Chunk]]:
    import pyarrow as pa

    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    if not table.num_columns:
        raise ValueError("the table has no columns")
    table = without_views(table)
    shapes = ArrowSchema(table.schema, {}).shapes()
    if any(pa.types.is_dictionary(_storage(field.type)) for field in table.schema):
        table = table.unify_dictionaries()
    batches = table.to_batches()
    chunks = [
        (
            batch.num_rows,
            [
                _arrow_column(array, shape)
                for array, shape in zip(batch.columns, shapes, strict=True)
            ],
        )
        for batch in batches
    ]
    schema = ArrowSchema(table.schema, _dictionaries(table, batches))
    return schema, chunks or [_empty_chunk(table.schema, shapes)]


# --- any table ----------------------------------------------------------------


def _from_pandas(frame: Any) -> tuple[Schema, list[Chunk]]:
    try:
        import pyarrow as pa
    except ImportError:
        return from_numpy({name: frame[name].to_numpy() for name in frame})
    return from_arrow(pa.Table.from_pandas(frame))


def from_table(table: Any) -> tuple[Schema, list[Chunk]]:
    """The schema and the chunks of any table."""
    if isinstance(table, Mapping):
        return from_numpy(table)
    # A module that another thread is importing may have no DataFrame yet.
    frame = getattr(sys.modules.get("pandas"), "DataFrame", None)
    if frame is not None and isinstance(table, frame):
        return _from_pandas(table)
    return from_arrow(as_arrow(table))


def as_arrow(table: Any) -> Any:
    """A table of Arrow, or a batch, of what exports itself to Arrow."""
    if hasattr(table, "__arrow_c_stream__"):
        import pyarrow as pa

        return table if isinstance(table, pa.Table) else pa.table(table)
    if hasattr(table, "__arrow_c_array__"):
        import pyarrow as pa

        return pa.record_batch(table)
    raise TypeError(
        "expected an Arrow table, a DataFrame or a dict of NumPy arrays, got "
        f"{type(table).__name__}"
    )


def in_one_chunk(table: Any) -> Any:
    """The table with one chunk for each column, and values for dictionaries."""
    import pyarrow as pa

    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    for i, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            plain = table[i].cast(field.type.value_type)
            table = table.set_column(i, field.name, plain)
    return table.combine_chunks()


def from_schema(schema: Any, dictionaries: Mapping[int, Any] | None) -> Schema:
    """The schema that a program has been told."""
    if isinstance(schema, Mapping):
        return NumPySchema(schema)
    return ArrowSchema(schema, dictionaries or {})
