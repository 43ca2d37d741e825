# SPDX-License-Identifier: BSD-3-Clause
"""What all ranks agree on before a join: schemas, keys, strategy, or an error."""

from __future__ import annotations

import base64
import json
import math
import os
import socket
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy

from .._communicator.communicator import Communicator
from .._data.columns import ArrowSchema
from ._local import ArrowJoin, How, JoinSpec, LocalJoin, PandasJoin, check_names

MAX_PARTITIONS = 65535
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

# Bytes of both tables in a partition: a hash table of them stays in the cache.
_PARTITION_BYTES = 8 << 20
_MAX_OVER_DECOMPOSITION = 64

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
    dictionaries: list[dict[int, Any]]  # of each rank


class Plan(NamedTuple):
    """What all ranks do."""

    spec: JoinSpec
    sides: tuple[Side, Side]
    broadcast: int | None  # the side that every rank gets
    over_decomposition: int
    num_partitions: int
    reason: str
    local: LocalJoin


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


def _encode_array(array: Any) -> str:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    batch = pa.record_batch([array], names=["values"])
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return base64.b64encode(sink.getvalue().to_pybytes()).decode()


def _decode_array(text: str) -> Any:
    import pyarrow as pa

    with pa.ipc.open_stream(pa.py_buffer(base64.b64decode(text))) as reader:
        return reader.read_all()["values"].combine_chunks()


def _dictionaries(table: Any) -> dict[str, str]:
    """The values of the table's dictionary columns; each column has one of them."""
    import pyarrow as pa

    found = {}
    for number, column in enumerate(table.columns):
        if pa.types.is_dictionary(column.type):
            values = (
                column.chunk(0).dictionary
                if column.num_chunks
                else pa.array([], column.type.value_type)
            )
            found[str(number)] = _encode_array(values)
    return found


def _host() -> str:
    """Equal in processes that may share memory."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        boot = file.read().strip()
    namespace = os.stat("/proc/self/ns/net").st_ino
    return f"{socket.gethostname()} {boot} {namespace}"


def describe_error(error: Exception) -> bytes:
    """Why this rank cannot join."""
    names = [kind.__name__ for kind in type(error).__mro__]
    name = next((name for name in names if name in _ERRORS), "ValueError")
    text = str(error.args[0]) if name == "KeyError" and error.args else str(error)
    if name not in names:
        text = f"{names[0]}: {text}"
    return json.dumps({"error": [name, text]}).encode()


def describe(call: Call, local: str, tables: Sequence[Any]) -> bytes:
    """What a rank tells the others.

    Args:
        call: the arguments.
        local: the name of the local join; empty: this rank knows none.
        tables: left and right; None: it has none.
    """
    return json.dumps(
        {
            "call": call,
            "local": local,
            "host": _host(),
            "tables": [
                None
                if table is None
                else {
                    "schema": _encode(table.schema),
                    "rows": table.num_rows,
                    "bytes": table.nbytes,
                    "dictionaries": _dictionaries(table),
                }
                for table in tables
            ],
        }
    ).encode()


async def allgather_bytes(comm: Communicator, data: bytes) -> list[bytes]:
    """The bytes of all ranks, whose lengths may differ."""
    sizes = numpy.zeros(comm.size, numpy.int64)
    await comm.allgather(numpy.array([len(data)], numpy.int64), sizes)
    whole = numpy.zeros(int(sizes.sum()), numpy.uint8)
    await comm.allgatherv(numpy.frombuffer(data, numpy.uint8), whole, sizes.tolist())
    ends = numpy.cumsum(sizes)
    return [
        bytes(whole[end - size : end]) for size, end in zip(sizes, ends, strict=True)
    ]


# --- what follows from that ---------------------------------------------------

_ERRORS: dict[str, type[Exception]] = {
    kind.__name__: kind
    for kind in (KeyError, TypeError, ValueError, ImportError, OverflowError, OSError)
}


def _raise_first_error(said: list[dict[str, Any]]) -> None:
    for rank, its in enumerate(said):
        if "error" in its:
            name, text = its["error"]
            raise _ERRORS[name](f"rank {rank}: {text}")


def _check_calls(said: list[dict[str, Any]]) -> Call:
    first = said[0]["call"]
    for rank, its in enumerate(said):
        for name, mine, other in zip(Call._fields, first, its["call"], strict=True):
            if mine != other:
                raise ValueError(
                    f"rank 0 joins with {name}={mine!r}, rank {rank} with {other!r}"
                )
    how, left_on, right_on, suffixes, *rest = first
    return Call(how, tuple(left_on), tuple(right_on), tuple(suffixes), *rest)


def _choose_local(said: list[dict[str, Any]], mine: LocalJoin | None) -> LocalJoin:
    """The local join that some ranks have named."""
    named = [(rank, its["local"]) for rank, its in enumerate(said) if its["local"]]
    for rank, name in named:
        if name != named[0][1]:
            raise ValueError(
                f"rank {named[0][0]} joins locally with {named[0][1]}, rank {rank} "
                f"with {name}"
            )
    if mine is not None:
        return mine
    if not named or named[0][1] == name_of(ArrowJoin()):
        return ArrowJoin()
    if named[0][1] == name_of(PandasJoin()):
        return PandasJoin()
    raise ValueError(
        f"rank {named[0][0]} joins locally with {named[0][1]}: give it as local on "
        "the ranks without tables, too"
    )


def name_of(local: LocalJoin | None) -> str:
    """By what the ranks compare it."""
    return "" if local is None else type(local).__qualname__


def _read_side(said: list[dict[str, Any]], number: int) -> Side:
    schema, owner = None, 0
    dictionaries: list[dict[int, Any]] = []
    rows = nbytes = 0
    for rank, its in enumerate(said):
        table = its["tables"][number]
        if table is None:
            dictionaries.append({})
            continue
        found = _decode(table["schema"])
        if schema is None:
            schema, owner = found, rank
        elif not schema.equals(found):
            _raise_difference(number, owner, schema, rank, found)
        rows += table["rows"]
        nbytes += table["bytes"]
        dictionaries.append(
            {
                int(column): _decode_array(text)
                for column, text in table["dictionaries"].items()
            }
        )
    if schema is None:
        raise ValueError(f"no rank has a {SIDES[number]} table with columns")
    return Side(schema, rows, nbytes, dictionaries)


def _raise_difference(
    number: int, first: int, schema: Any, rank: int, other: Any
) -> None:
    side = SIDES[number]
    if schema.names != other.names:
        raise TypeError(
            f"the {side} table has the columns {schema.names} on rank {first}, "
            f"{other.names} on rank {rank}"
        )
    for ours, theirs in zip(schema, other, strict=True):
        if ours != theirs:
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
        if kind is None:
            raise TypeError(
                f"the key {left_name!r} of the left table is {left}, {right_name!r} "
                f"of the right one {right}: they cannot be compared, cast one of them"
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


def choose_over_decomposition(nbytes: int, size: int, asked: int | None) -> int:
    """How many partitions of both tables each rank has."""
    most = MAX_PARTITIONS // 2 // size
    if asked is not None:
        if not 1 <= asked <= most:
            raise ValueError(
                f"over_decomposition is {asked}, not 1 to {most} for {size} ranks"
            )
        return asked
    wanted = math.ceil(nbytes / size / _PARTITION_BYTES)
    return max(1, min(wanted, _MAX_OVER_DECOMPOSITION, most))


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
    its = [json.loads(text) for text in said]
    _raise_first_error(its)
    call = _check_calls(its)
    local = _choose_local(its, mine)
    if size > MAX_PARTITIONS // 2:
        raise ValueError(
            f"{size} ranks are more than {MAX_PARTITIONS // 2}, which a join can have"
        )
    sides = _check_keys(call, (_read_side(its, 0), _read_side(its, 1)))
    spec = JoinSpec(call.how, call.left_on, call.right_on, call.suffixes)
    if isinstance(local, ArrowJoin):
        left, right = (side.schema.empty_table() for side in sides)
        check_names(left, right, spec)
    is_network = any(one["host"] != its[0]["host"] for one in its)
    nbytes = (sides[0].nbytes, sides[1].nbytes)
    side, reason = choose_side(call.how, call.strategy, nbytes, size, is_network)
    pieces = choose_over_decomposition(sum(nbytes), size, call.over_decomposition)
    if side is not None:
        pieces = 1
    spec = spec._replace(use_threads=_uses_threads(its, rank))
    return Plan(spec, sides, side, pieces, pieces * size, reason, local)
