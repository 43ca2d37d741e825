# SPDX-License-Identifier: BSD-3-Clause
"""What all ranks agree on before a join: schemas, keys, strategy, or an error."""

from __future__ import annotations

import base64
import json
import math
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

from .._communicator.agree import (
    check_same,
    describe_error,
    host_id,
    raise_first_error,
)
from .._data.columns import ArrowSchema
from ._engines import LEAST_ROWS, DuckDBJoin, PolarsJoin, can_be_key, is_installed
from ._local import (
    ArrowJoin,
    How,
    JoinSpec,
    LocalJoin,
    PandasJoin,
    check_names,
    nullable_name,
)

MAX_PARTITIONS = 65535
_LENGTH = 8  # bytes of the length in front of what a rank says
SIDES = ("left", "right")

# Which side may be sent to every rank.
_SMALL_SIDES: dict[How, tuple[int, ...]] = {
    "inner": (0, 1),
    "left": (1,),
    "right": (0,),
    "outer": (),
    "semi": (1,),
    "anti": (1,),
}

# By how fast they are: benchmarks/join.py local.
_LIBRARIES: dict[str, type[ArrowJoin]] = {"polars": PolarsJoin, "duckdb": DuckDBJoin}

# Bytes of both tables in a partition: a hash table of them stays in the cache.
_PARTITION_BYTES = 8 << 20
# With fewer rows, what each column of a partition costs is more than its rows.
_PARTITION_ROWS = 10_000
_MAX_OVER_DECOMPOSITION = 64

_MOST_DIGITS = 76  # of Arrow's decimals
_PYTHON_DECIMAL = b"ucp.join.decimal"

# What work costs for each byte, in units of a byte that is looked up in a hash
# table; benchmarks/join.py measures where shuffle and broadcast cost the same.
_PARTITION_COST = 2
_BUILD_COST = 20
_NETWORK_COST = 10


class Side(NamedTuple):
    """One of the tables, on all ranks."""

    schema: Any
    rows: int
    nbytes: int
    dictionaries: dict[int, list[Any]]  # of each rank, by the number of the column
    pandas_types: dict[str, Any]  # pandas' metadata of columns, by their name


class Plan(NamedTuple):
    """What all ranks do."""

    spec: JoinSpec
    sides: tuple[Side, Side]
    broadcast: int | None  # the side that every rank gets
    over_decomposition: int
    num_partitions: int
    reason: str
    local: LocalJoin
    gives_polars: bool  # some table was one of polars


class Call(NamedTuple):
    """The arguments that have to be the same on every rank."""

    how: How
    left_on: tuple[str, ...]
    right_on: tuple[str, ...]
    suffixes: tuple[str, str]
    strategy: str
    over_decomposition: int | None
    seed: int


# --- what a rank says ---------------------------------------------------------


def _encode(schema: Any) -> str:
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


def _decode(text: str) -> Any:
    import pyarrow as pa

    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))


def _encode_array(array: Any) -> Any:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    batch = pa.record_batch([array], names=["values"])
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def _decode_array(data: bytes) -> Any:
    import pyarrow as pa

    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        return reader.read_all()["values"].combine_chunks()


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


def _pack(said: dict[str, Any], blobs: Sequence[Any] = ()) -> list[Any]:
    """What a rank says, and bytes to which that refers by their number."""
    head = json.dumps({**said, "blobs": [blob.size for blob in blobs]}).encode()
    return [len(head).to_bytes(_LENGTH, "little"), head, *blobs]


def _unpack(data: bytes) -> tuple[dict[str, Any], list[memoryview]]:
    begin = _LENGTH + int.from_bytes(data[:_LENGTH], "little")
    said = json.loads(data[_LENGTH:begin])
    blobs = []
    for size in said["blobs"]:
        blobs.append(memoryview(data)[begin : begin + size])
        begin += size
    return said, blobs


def describe_failure(error: Exception) -> list[Any]:
    """Why this rank cannot join."""
    return _pack(describe_error(error))


def describe(
    call: Call,
    local: str,
    is_given: bool,
    tables: Sequence[Any],
    libraries: Sequence[str],
) -> list[Any]:
    """What a rank tells the others, as buffers.

    Args:
        call: the arguments.
        local: the name of the local join; empty: this rank knows none.
        is_given: whether the program has given it.
        tables: left and right; None: it has none.
        libraries: "pandas" or "polars" if they were frames of these.
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

    said = {
        "call": call,
        "local": local,
        "is_given": is_given,
        "installed": [name for name in _LIBRARIES if is_installed(name)],
        "host": host_id(),
        "tables": [*map(about, tables, libraries)],
    }
    return _pack(said, blobs)


# --- what follows from that ---------------------------------------------------


def _check_calls(said: list[dict[str, Any]]) -> Call:
    check_same("joins", Call._fields, (its["call"] for its in said))
    how, left_on, right_on, suffixes, *rest = said[0]["call"]
    return Call(how, tuple(left_on), tuple(right_on), tuple(suffixes), *rest)


def _choose_local(said: list[dict[str, Any]], mine: LocalJoin | None) -> LocalJoin:
    """The local join that some ranks have named."""
    named = [(rank, its["local"]) for rank, its in enumerate(said) if its["local"]]
    if not any(its["is_given"] for its in said):
        # Some ranks may have a frame where others have None.
        is_pandas = any(name == PandasJoin.__qualname__ for _, name in named)
        return PandasJoin() if is_pandas else ArrowJoin()
    for rank, name in named:
        if name != named[0][1]:
            raise ValueError(
                f"rank {named[0][0]} joins locally with {named[0][1]}, rank {rank} "
                f"with {name}"
            )
    if mine is not None:
        return mine
    kinds: list[type[ArrowJoin | PandasJoin]] = [ArrowJoin, PandasJoin]
    for known in [*kinds, *_LIBRARIES.values()]:
        if named[0][1] == known.__qualname__:
            return known()
    raise ValueError(
        f"rank {named[0][0]} joins locally with {named[0][1]}: give it as local on "
        "the ranks without tables, too"
    )


def _choose_library(
    said: list[dict[str, Any]], sides: tuple[Side, Side], spec: JoinSpec
) -> LocalJoin:
    """The fastest one that all ranks have; loading it has to be worth it."""
    rows = sides[0].rows + sides[1].rows
    kinds = [sides[0].schema.field(name).type for name in spec.left_on]
    if rows >= LEAST_ROWS and all(can_be_key(kind, spec) for kind in kinds):
        for name, library in _LIBRARIES.items():
            if all(name in its["installed"] for its in said):
                return library()
    return ArrowJoin()


def name_of(local: LocalJoin | None) -> str:
    """By what the ranks compare it."""
    return "" if local is None else type(local).__qualname__


def _read_side(said: list[dict[str, Any]], blobs: list[Any], number: int) -> Side:
    """One of the tables; a column that is null on some ranks has the others' type."""
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
            schema = _common_schema(number, owner, schema, rank, found)
    if schema is None:
        raise ValueError(f"no rank has a {SIDES[number]} table with columns")
    return Side(
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


def _common_schema(number: int, first: int, schema: Any, rank: int, other: Any) -> Any:
    """A frame without rows, or with None only, does not know the type of a column."""
    import pyarrow as pa

    _check_enums(number, first, schema, rank, other)

    if schema.names != other.names:
        _raise_difference(number, first, schema, rank, other)
    for i, (ours, theirs) in enumerate(zip(schema, other, strict=True)):
        if ours == theirs or pa.types.is_null(theirs.type):
            continue
        if _is_python_decimal(ours) and _is_python_decimal(theirs):
            kind = _common_decimal(ours.type, theirs.type)
            if kind is not None:
                schema = schema.set(i, ours.with_type(kind))
                continue
        if not pa.types.is_null(ours.type):
            _raise_difference(number, first, schema, rank, other)
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


def _is_python_decimal(field: Any) -> bool:
    return _PYTHON_DECIMAL in (field.metadata or {})


def _common_decimal(left: Any, right: Any) -> Any:
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


def _enum_of(field: Any) -> bytes | None:
    """The values of an Enum of polars."""
    return (field.metadata or {}).get(b"_PL_ENUM_VALUES2")


def _check_enums(number: int, first: int, schema: Any, rank: int, other: Any) -> None:
    for ours, theirs in zip(schema, other, strict=False):
        if ours == theirs and _enum_of(ours) != _enum_of(theirs):
            raise TypeError(
                f"column {ours.name!r} of the {SIDES[number]} table is an Enum whose "
                f"categories differ between the ranks {first} and {rank}"
            )


def _raise_difference(
    number: int, first: int, schema: Any, rank: int, other: Any
) -> None:
    import pyarrow as pa

    side = SIDES[number]
    if schema.names != other.names:
        raise TypeError(
            f"the {side} table has the columns {schema.names} on rank {first}, "
            f"{other.names} on rank {rank}"
        )
    for ours, theirs in zip(schema, other, strict=True):
        if ours != theirs and not pa.types.is_null(ours.type):
            raise TypeError(
                f"column {ours.name!r} of the {side} table is {ours.type} on rank "
                f"{first}, {theirs.type} on rank {rank}"
            )


def _key_types(side: Side, names: Sequence[str], number: int) -> list[Any]:
    for name in names:
        count = side.schema.names.count(name)
        if count == 0:
            there = ", ".join(map(repr, side.schema.names))
            raise KeyError(
                f"the {SIDES[number]} table has no column {name!r}, only {there}"
            )
        if count > 1:
            raise ValueError(f"the {SIDES[number]} table has {count} columns {name!r}")
    return [side.schema.field(name).type for name in names]


def common_type(left: Any, right: Any) -> Any:
    """The type in which values of both types can be compared; None: there is none."""
    import pyarrow as pa
    import pyarrow.types as is_type

    if left == right:
        return pa.int8() if is_type.is_null(left) else left
    left, right = (
        kind.value_type if is_type.is_dictionary(kind) else kind
        for kind in (left, right)
    )
    if left == right:
        return left
    if is_type.is_null(left) or is_type.is_null(right):
        return right if is_type.is_null(left) else left
    pair = (left, right)
    if all(map(is_type.is_integer, pair)):
        return _common_integer(left, right)
    if all(map(is_type.is_floating, pair)):
        return max(pair, key=lambda kind: kind.bit_width)
    if all(is_type.is_string(k) or is_type.is_large_string(k) for k in pair):
        return pa.large_string()
    if all(is_type.is_binary(k) or is_type.is_large_binary(k) for k in pair):
        return pa.large_binary()
    if all(map(is_type.is_decimal, pair)) and left.scale == right.scale:
        wide = max(pair, key=lambda kind: kind.bit_width)
        make = getattr(pa, f"decimal{wide.bit_width}")
        return make(max(left.precision, right.precision), wide.scale)
    return None


def _common_integer(left: Any, right: Any) -> Any:
    import pyarrow.types as is_type

    wide, narrow = sorted((left, right), key=lambda kind: kind.bit_width, reverse=True)
    if is_type.is_signed_integer(left) == is_type.is_signed_integer(right):
        return wide
    if is_type.is_signed_integer(wide) and wide.bit_width > narrow.bit_width:
        return wide
    return None


def _check_keys(call: Call, sides: tuple[Side, Side]) -> tuple[Side, Side]:
    """The sides with keys of the same types."""
    import pyarrow as pa

    types = [
        _key_types(side, names, number)
        for number, (side, names) in enumerate(
            zip(sides, (call.left_on, call.right_on), strict=True)
        )
    ]
    schemas = [sides[0].schema, sides[1].schema]
    pairs = zip(call.left_on, types[0], call.right_on, types[1], strict=True)
    for left_name, left, right_name, right in pairs:
        kind = common_type(left, right)
        fields = [
            schema.field(name)
            for schema, name in zip(schemas, (left_name, right_name), strict=True)
        ]
        if all(map(_is_python_decimal, fields)):
            kind = _common_decimal(left, right)
        if kind is None:
            raise TypeError(
                f"the key {left_name!r} of the left table is {left}, {right_name!r} "
                f"of the right one {right}: they cannot be compared, cast one of them"
            )
        enums = [*map(_enum_of, fields)]
        if None not in enums and enums[0] != enums[1]:
            raise TypeError(
                f"the key {left_name!r} of the left table is an Enum with other "
                f"categories than {right_name!r} of the right one: cast them"
            )
        if kind == pa.binary(0):  # Arrow does not find all of their pairs
            raise TypeError(f"the key {left_name!r} has no bytes: its type is {kind}")
        for number, name in ((0, left_name), (1, right_name)):
            at = schemas[number].get_field_index(name)
            field = schemas[number].field(at).with_type(kind)
            schemas[number] = schemas[number].set(at, field)
    for schema, names in zip(schemas, (call.left_on, call.right_on), strict=True):
        columns = ArrowSchema(schema, {})
        columns.check_keys([columns.names.index(name) for name in names])
    left, right = (
        side._replace(schema=schema)
        for side, schema in zip(sides, schemas, strict=True)
    )
    return left, right


# --- strategy -----------------------------------------------------------------


def choose_over_decomposition(
    nbytes: int, rows: int, size: int, asked: int | None
) -> int:
    """How many partitions of both tables each rank has."""
    most = MAX_PARTITIONS // 2 // size
    if asked is not None:
        if not 1 <= asked <= most:
            raise ValueError(
                f"over_decomposition is {asked}, not 1 to {most} for {size} ranks"
            )
        return asked
    wanted = math.ceil(nbytes / size / _PARTITION_BYTES)
    enough = math.ceil(rows / size / _PARTITION_ROWS)
    return max(1, min(wanted, enough, _MAX_OVER_DECOMPOSITION, most))


def _costs(small: int, large: int, size: int, is_network: bool) -> tuple[float, float]:
    """What a shuffle and a broadcast of the small side cost a rank."""
    there = _NETWORK_COST * (size - 1) / size if is_network else 0
    both = (small + large) / size
    shuffle = both * (_PARTITION_COST + there) + (large + _BUILD_COST * small) / size
    broadcast = (
        small * (_PARTITION_COST / size + there) + large / size + _BUILD_COST * small
    )
    return shuffle, broadcast


def choose_side(
    how: How, strategy: str, nbytes: tuple[int, int], size: int, is_network: bool
) -> tuple[int | None, str]:
    """The side to broadcast, or None for a shuffle, and why."""
    allowed = _SMALL_SIDES[how]
    if strategy == "shuffle":
        return None, "the strategy was given"
    if not allowed:
        if strategy == "broadcast":
            raise ValueError(f"an {how} join cannot be made by a broadcast")
        return None, f"an {how} join needs all rows of both sides in one place"
    side = min(allowed, key=lambda number: nbytes[number])
    if strategy == "broadcast":
        return side, "the strategy was given"
    if size == 1:
        return None, "there is one rank"
    small, large = nbytes[side], nbytes[1 - side]
    shuffle, broadcast = _costs(small, large, size, is_network)
    text = (
        f"estimated cost for each rank: shuffle {shuffle / 1e6:.3g}, broadcast of "
        f"the {SIDES[side]} table ({small / 1e6:.3g} MB) {broadcast / 1e6:.3g}"
    )
    return (side if broadcast < shuffle else None), text


def _uses_threads(said: list[dict[str, Any]], rank: int) -> bool:
    """Are there two cores for each rank of this host?"""
    here = sum(1 for its in said if its["host"] == said[rank]["host"])
    return len(os.sched_getaffinity(0)) >= 2 * here


def make_plan(said: Sequence[bytes], rank: int, mine: LocalJoin | None) -> Plan:
    """The plan, or an exception, which are the same on every rank."""
    size = len(said)
    its, blobs = map(list, zip(*map(_unpack, said), strict=True))
    raise_first_error(its)
    call = _check_calls(its)
    local = _choose_local(its, mine)
    if size > MAX_PARTITIONS // 2:
        raise ValueError(
            f"{size} ranks are more than {MAX_PARTITIONS // 2}, which a join can have"
        )
    sides = _check_keys(call, (_read_side(its, blobs, 0), _read_side(its, blobs, 1)))
    spec = JoinSpec(call.how, call.left_on, call.right_on, call.suffixes)
    if type(local) is ArrowJoin and not any(one["is_given"] for one in its):
        local = _choose_library(its, sides, spec)
    if isinstance(local, ArrowJoin):
        left, right = (side.schema.empty_table() for side in sides)
        check_names(left, right, spec)
    is_network = any(one["host"] != its[0]["host"] for one in its)
    nbytes = (sides[0].nbytes, sides[1].nbytes)
    side, reason = choose_side(call.how, call.strategy, nbytes, size, is_network)
    rows = max(sides[0].rows, sides[1].rows)
    pieces = choose_over_decomposition(sum(nbytes), rows, size, call.over_decomposition)
    if side is not None:
        pieces = 1
    spec = spec._replace(use_threads=_uses_threads(its, rank))
    if isinstance(local, PandasJoin):
        first, second = (_with_pandas_types(each) for each in sides)
        sides = (first, second)
    polars = any(t and t["library"] == "polars" for one in its for t in one["tables"])
    return Plan(spec, sides, side, pieces, pieces * size, reason, local, polars)


def _with_pandas_types(side: Side) -> Side:
    """With metadata of the schema by which Arrow makes the frame that was given."""
    columns = []
    own: dict[str, list[int]] = {"arrow": [], "object": []}
    for number, field in enumerate(side.schema):
        column = dict(side.pandas_types.get(field.name, {}))
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
    return side._replace(schema=side.schema.with_metadata(metadata))
