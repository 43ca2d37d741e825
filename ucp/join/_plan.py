# SPDX-License-Identifier: BSD-3-Clause
"""What all ranks agree on before a join: schemas, keys, strategy, or an error."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from .._communicator.agree import check_same, host_id
from .._data.columns import ArrowSchema
from .._tables.libraries import is_installed
from .._tables.schemas import (
    CommonTable,
    describe_tables,
    key_types,
    read_table,
    unpack_all,
    uses_threads,
    with_pandas_types,
)
from .._tables.unify import common_decimal, enum_of, is_python_decimal
from ._engines import LEAST_ROWS, DuckDBJoin, PolarsJoin, can_be_key
from ._local import (
    ArrowJoin,
    How,
    JoinSpec,
    LocalJoin,
    PandasJoin,
    check_names,
)

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

# By how fast they are: benchmarks/join.py local.
_LIBRARIES: dict[str, type[ArrowJoin]] = {"polars": PolarsJoin, "duckdb": DuckDBJoin}

# Bytes of both tables in a partition: a hash table of them stays in the cache.
_PARTITION_BYTES = 8 << 20
# With fewer rows, what each column of a partition costs is more than its rows.
_PARTITION_ROWS = 10_000
_MAX_OVER_DECOMPOSITION = 64

# What work costs for each byte, in units of a byte that is looked up in a hash
# table; benchmarks/join.py measures where shuffle and broadcast cost the same.
_PARTITION_COST = 2
_BUILD_COST = 20
_NETWORK_COST = 10


class Plan(NamedTuple):
    """What all ranks do."""

    spec: JoinSpec
    sides: tuple[CommonTable, CommonTable]
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
    said = {
        "call": call,
        "local": local,
        "is_given": is_given,
        "installed": [name for name in _LIBRARIES if is_installed(name)],
        "host": host_id(),
    }
    return describe_tables(said, tables, libraries)


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
    said: list[dict[str, Any]], sides: tuple[CommonTable, CommonTable], spec: JoinSpec
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


def _check_keys(
    call: Call, sides: tuple[CommonTable, CommonTable]
) -> tuple[CommonTable, CommonTable]:
    """The sides with keys of the same types."""
    import pyarrow as pa

    types = [
        key_types(table, names, side)
        for table, names, side in zip(
            sides, (call.left_on, call.right_on), SIDES, strict=True
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
        if all(map(is_python_decimal, fields)):
            kind = common_decimal(left, right)
        if kind is None:
            raise TypeError(
                f"the key {left_name!r} of the left table is {left}, {right_name!r} "
                f"of the right one {right}: they cannot be compared, cast one of them"
            )
        enums = [*map(enum_of, fields)]
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


def _check_pandas_keys(table: CommonTable, names: Sequence[str]) -> None:
    """Refuse keys by which pandas does not merge."""
    import pyarrow as pa

    for name in names:
        kind = table.schema.field(name).type
        own = table.pandas_types.get(name, {}).get("numpy_type", "")
        if isinstance(kind, pa.BaseExtensionType) and own.endswith("[pyarrow]"):
            raise TypeError(
                f"the key {name!r} has pandas' type {own}, by which pandas does not "
                "merge: cast it, to object for example"
            )


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


def make_plan(said: Sequence[bytes], rank: int, mine: LocalJoin | None) -> Plan:
    """The plan, or an exception, which are the same on every rank."""
    size = len(said)
    its, blobs = unpack_all(said)
    call = _check_calls(its)
    local = _choose_local(its, mine)
    if size > MAX_PARTITIONS // 2:
        raise ValueError(
            f"{size} ranks are more than {MAX_PARTITIONS // 2}, which a join can have"
        )
    left, right = (read_table(its, blobs, n, side) for n, side in enumerate(SIDES))
    sides = _check_keys(call, (left, right))
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
    spec = spec._replace(use_threads=uses_threads(its, rank))
    if isinstance(local, PandasJoin):
        for table, names in zip(sides, (call.left_on, call.right_on), strict=True):
            _check_pandas_keys(table, names)
        first, second = (with_pandas_types(each) for each in sides)
        sides = (first, second)
    polars = any(t and t["library"] == "polars" for one in its for t in one["tables"])
    return Plan(spec, sides, side, pieces, pieces * size, reason, local, polars)
