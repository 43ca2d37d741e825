# SPDX-License-Identifier: BSD-3-Clause
"""The rows of a table by the hash, or the order, of a key."""

from __future__ import annotations

import mmap
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, SupportsIndex

from .. import _ext
from .columns import (
    Chunk,
    Column,
    Schema,
    Type,
    View,
    as_arrow,
    from_arrow,
    from_schema,
    from_table,
    have_one_order,
    in_one_chunk,
)

MAX_PARTITIONS = 65535
MAX_THREADS = 64
HUGE_PAGES = 4 << 20  # bytes from which on the system is asked for huge pages


class Partitions:
    """What a partition has made: a table for each of the partitions.

    ``partitions[p]`` has the rows of partition ``p`` as views, without a copy:
    as a ``pyarrow.Table``, or as a dict of read-only NumPy arrays if the table was
    a dict. The bytes of each partition are one region, ``buffer(p)``, which can be
    sent as it is; ``read_partition`` makes the table from it.

    The memory exists as long as this object or a view of it does.
    """

    __slots__ = ("_offsets", "_region", "_rows", "_schema")

    def __init__(
        self,
        region: memoryview,
        offsets: tuple[int, ...],
        rows: tuple[int, ...],
        schema: Schema,
    ) -> None:
        self._region = region
        self._offsets = offsets
        self._rows = rows
        self._schema = schema

    def __repr__(self) -> str:
        return (
            f"<ucp.shuffle.Partitions: {sum(self._rows)} rows in "
            f"{self.num_partitions} partitions, {self._offsets[-1]} bytes>"
        )

    @property
    def offsets(self) -> tuple[int, ...]:
        """Where the region of each partition begins in the memory, in bytes, and
        where the last one ends: ``num_partitions + 1`` multiples of 64."""
        return self._offsets

    @property
    def num_partitions(self) -> int:
        return len(self._rows)

    @property
    def schema(self) -> Any:
        """The columns: a ``pyarrow.Schema``, or a dict of NumPy dtypes."""
        return self._schema.original

    @property
    def dictionaries(self) -> dict[int, Any]:
        """The values of each dictionary column, by its number: no region has them."""
        return self._schema.dictionaries

    def num_rows(self, partition: SupportsIndex) -> int:
        """The rows of a partition."""
        return self._rows[self._index(partition)]

    def nbytes(self, partition: SupportsIndex) -> int:
        """The bytes of a partition's region."""
        n = self._index(partition)
        return self._offsets[n + 1] - self._offsets[n]

    def buffer(self, partition: SupportsIndex) -> memoryview:
        """The region of a partition: a read-only view of its bytes."""
        n = self._index(partition)
        return self._region[self._offsets[n] : self._offsets[n + 1]]

    def __len__(self) -> int:
        return self.num_partitions

    def __getitem__(self, partition: SupportsIndex) -> Any:
        return _read(self.buffer(partition), self._schema, is_trusted=True)

    def __iter__(self) -> Iterator[Any]:
        return map(self.__getitem__, range(len(self)))

    def _index(self, partition: SupportsIndex) -> int:
        n = operator.index(partition)
        if not -self.num_partitions <= n < self.num_partitions:
            raise IndexError(
                f"partition {n} does not exist, there are {self.num_partitions}"
            )
        return n % self.num_partitions


def hash_partition(
    table: Any,
    on: str | Sequence[str],
    num_partitions: int,
    seed: int = 0,
    out: Any = None,
    *,
    threads: SupportsIndex = 1,
) -> Partitions:
    """Partition the rows of a table by the hash of key columns.

    All columns are moved. Rows with equal keys come to the same partition, on
    every host and whatever the chunks of the table; rows of a partition keep their
    order. include/umx/partition.h defines the hash, docs/types.md says which values
    are equal: integers of any width, ``-0.0`` and ``0.0``, a dictionary's value and
    the value; NaNs are equal to each other, and so are nulls. The GIL is released.

    Args:
        table: a ``pyarrow.Table`` or ``RecordBatch``, an object with
            ``__arrow_c_stream__`` or ``__arrow_c_array__`` (polars, cuDF), a pandas
            ``DataFrame``, or a dict of NumPy arrays of one length. An array of shape
            ``(rows, ...)`` is a column, too, but no key. All but dicts need pyarrow.
            Lists, structs, maps and unions are refused; views of strings become
            large strings.
        on: name of the key column, or names in an order that matters.
        num_partitions: 1 to 65535.
        seed: 0 to 2**64 - 1. Partition a partition by another seed.
        out: writable memory for the result, a ``ucp.Memory`` for example; its
            address is a multiple of 8, better of 64. None: it is allocated.
        threads: 1 to 64: how many threads do it, this one and new ones. Rows are
            sorted in as many parts, and each thread writes some of the columns.

    Raises:
        KeyError: there is no column of that name.
        TypeError: the type of a column is not supported, or cannot be a key.
        ValueError: ``num_partitions``, ``seed`` or ``threads`` is out of range;
            ``out`` is too
            small (the error says how many bytes are needed), or belongs to the
            table; the columns of a dict have different lengths; more than 2 GiB of
            strings of type string, not large_string, are in one partition.
        BufferError: ``out`` is read-only.
        UCXNoMemory: there is not enough memory; ``out`` has not been changed.
    """
    allocate = _allocate if out is None else _check_out(out)
    return hash_partition_to(allocate, table, on, num_partitions, seed, threads)


def hash_partition_to(
    allocate: Callable[[int], Any],
    table: Any,
    on: str | Sequence[str],
    num_partitions: int,
    seed: int,
    threads: SupportsIndex = 1,
) -> Partitions:
    """``hash_partition`` to memory that ``allocate(nbytes)`` gives."""
    num_partitions = _number("num_partitions", num_partitions, 1, MAX_PARTITIONS)
    seed = _number("seed", seed, 0, 2**64 - 1)
    threads = _number("threads", threads, 1, MAX_THREADS)
    schema, chunks = from_table(table)
    keys = _find_keys(schema, on)
    schema.check_keys(keys)
    memory, offsets, rows = _ext.hash_partition(
        chunks, schema.names, keys, num_partitions, seed, allocate, threads
    )
    region = memoryview(memory).cast("B")[: offsets[-1]].toreadonly()
    return Partitions(region, offsets, rows, schema)


DESCENDING, NULLS_FIRST = 1, 2  # UMX_ORDER_


def range_partition(
    table: Any,
    by: str | Sequence[str],
    splitters: Any,
    *,
    descending: bool | Sequence[bool] = False,
    nulls: str = "last",
    out: Any = None,
    threads: SupportsIndex = 1,
) -> Partitions:
    """Partition the rows of a table by their place between ``splitters``.

    There is one partition more than splitters: partition ``p`` has the rows that
    are not before splitter ``p - 1`` and before splitter ``p``. So rows with equal
    keys come to the same partition, and those of each partition are before those
    of the next one. Rows of a partition keep their order. The GIL is released.

    The order is that of ``pyarrow.compute.sort_indices``, which
    include/umx/partition.h defines: strings and binaries by their bytes, a
    dictionary by its values; NaNs are behind all numbers, and nulls behind them,
    or both in front, the nulls first.

    Args:
        table: as for ``hash_partition``.
        by: name of the key column, or names: the later decide between rows that
            are equal by the first.
        splitters: a table of some rows that are in order, with the columns ``by``
            of the types that ``table`` has, or without dictionaries. Times have the
            same unit, decimals the same scale.
        descending: for all keys, or for each.
        nulls: ``"last"`` or ``"first"``.
        out: as for ``hash_partition``.
        threads: as for ``hash_partition``.

    Raises:
        ValueError: the splitters are not in order, or there are more than 65534.

    Other exceptions are as for ``hash_partition``.
    """
    allocate = _allocate if out is None else _check_out(out)
    names = [by] if isinstance(by, str) else list(by)
    orders = order_bits(len(names), descending, nulls)
    return range_partition_to(allocate, table, names, splitters, orders, threads)


def order_bits(
    count: int, descending: bool | Sequence[bool], nulls: str
) -> tuple[int, ...]:
    """The ``UMX_ORDER_`` bits of each of ``count`` keys.

    Raises:
        ValueError: there are not so many directions; ``nulls`` is no place.
    """
    if nulls not in ("first", "last"):
        raise ValueError(f"nulls is {nulls!r}, not 'first' or 'last'")
    if isinstance(descending, bool):
        each = [descending] * count
    elif isinstance(descending, Iterable):
        each = [*descending]
    else:
        raise TypeError(f"descending is {descending!r}, not a bool or one for each key")
    if len(each) != count:
        raise ValueError(f"descending has {len(each)} values, there are {count} keys")
    for value in each:
        if not isinstance(value, bool):
            raise TypeError(f"descending has {value!r}, which is no bool")
    last = NULLS_FIRST if nulls == "first" else 0
    return tuple(last | (DESCENDING if value else 0) for value in each)


def range_partition_to(
    allocate: Callable[[int], Any],
    table: Any,
    by: Sequence[str],
    splitters: Any,
    orders: Sequence[int],
    threads: SupportsIndex = 1,
) -> Partitions:
    """``range_partition`` to memory that ``allocate(nbytes)`` gives.

    Args:
        by: no names: there is one partition, and ``splitters`` does not matter.
        orders: of each key: see ``order_bits``.
    """
    threads = _number("threads", threads, 1, MAX_THREADS)
    schema, chunks = from_table(table)
    keys = _find_keys(schema, by) if by else []
    schema.check_keys(keys)
    between: Chunk = (0, [])
    if by:
        its, between = _one_chunk(splitters, by)
        for name, key, column in zip(by, keys, between[1], strict=True):
            _check_alike(name, chunks[0][1][key], column)
            if not have_one_order(schema, its, name):
                raise _other_type(name)
    if between[0] >= MAX_PARTITIONS:
        raise ValueError(f"{between[0]} splitters are more than {MAX_PARTITIONS - 1}")
    memory, offsets, rows = _ext.range_partition(
        chunks, schema.names, keys, between, orders, allocate, threads
    )
    region = memoryview(memory).cast("B")[: offsets[-1]].toreadonly()
    return Partitions(region, offsets, rows, schema)


def _check_alike(name: str, key: Column, splitters: Column) -> None:
    values = key if key.dictionary is None else key.dictionary[1]
    is_string = values.type == splitters.type == Type.STRING
    if values[:2] != splitters[:2] and not is_string:
        raise _other_type(name)


def _other_type(name: str) -> TypeError:
    return TypeError(
        f"column {name!r} has another type in the splitters than in the table"
    )


def _one_chunk(splitters: Any, by: Sequence[str]) -> tuple[Schema, Chunk]:
    """The columns ``by`` of a table in one chunk, without dictionaries."""
    if isinstance(splitters, Mapping):
        schema, chunks = from_table(splitters)
    else:
        schema, chunks = from_arrow(in_one_chunk(as_arrow(splitters)))
    keys = _find_keys(schema, by)
    rows, columns = chunks[0]
    return schema, (rows, [columns[key] for key in keys])


def read_partition(
    region: Any, schema: Any, dictionaries: Mapping[int, Any] | None = None
) -> Any:
    """The table in a partition's region, which may come from another process.

    The result has views of the region, without a copy. Every length and offset is
    checked first; whether strings are valid UTF-8 is not. A region whose columns
    have no bytes, nulls for example, may claim any number of rows.

    Args:
        region: the bytes of ``Partitions.buffer``, at an address that is a multiple
            of 8, better of 64.
        schema: that of the ``Partitions``.
        dictionaries: those of the ``Partitions``, if it has some.

    Raises:
        ValueError: the region is damaged, has other columns than the schema, or a
            number that is not in its dictionary.
        KeyError: a dictionary is missing.
    """
    data = memoryview(region).cast("B").toreadonly()
    return _read(data, from_schema(schema, dictionaries), is_trusted=False)


def count_rows(region: Any) -> int:
    """The rows of a partition's region: see ``read_partition``.

    Raises:
        ValueError: the region is damaged.
    """
    num_rows, _ = _ext.read_partition(memoryview(region).cast("B"))
    return num_rows


def _read(region: memoryview, schema: Schema, is_trusted: bool) -> Any:
    num_rows, columns = _ext.read_partition(region)
    found = [(column[0], column[1]) for column in columns]
    shapes = schema.shapes()
    if len(found) != len(shapes):
        raise ValueError(
            f"the region has {len(found)} columns, the schema {len(shapes)}"
        )
    for name, its, expected in zip(schema.names, found, shapes, strict=True):
        if its != expected:
            raise ValueError(f"the region has another type of column {name!r}")

    def part(place: tuple[int, int] | None) -> memoryview | None:
        return None if place is None else region[slice(*place)]

    views = [
        View(num_rows, num_nulls, part(validity), part(values), part(data))
        for _type, _width, num_nulls, validity, values, data in columns
    ]
    return schema.table(views, num_rows, is_trusted)


def _number(name: str, value: SupportsIndex, least: int, most: int) -> int:
    number = operator.index(value)
    if not least <= number <= most:
        raise ValueError(f"{name} is {number}, not {least} to {most}")
    return number


def _find_keys(schema: Schema, on: str | Sequence[str]) -> list[int]:
    names = [on] if isinstance(on, str) else list(on)
    if not names:
        raise ValueError("on names no column")
    for name in names:
        count = schema.names.count(name)
        if count == 0:
            there = ", ".join(map(repr, schema.names))
            raise KeyError(f"there is no column {name!r}, only {there}")
        if count > 1:
            raise ValueError(f"there are {count} columns {name!r}")
    return [schema.names.index(name) for name in names]


def _allocate(nbytes: int) -> mmap.mmap:
    memory = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if nbytes >= HUGE_PAGES and hasattr(mmap, "MADV_HUGEPAGE"):
        try:
            memory.madvise(mmap.MADV_HUGEPAGE)
        except OSError:
            pass  # the kernel has none
    return memory


def _check_out(out: Any) -> Callable[[int], memoryview]:
    view = memoryview(out).cast("B")
    if view.readonly:
        raise BufferError("out is read-only")

    def give(nbytes: int) -> memoryview:
        if view.nbytes < nbytes:
            raise ValueError(
                f"out has {view.nbytes} bytes, the partitions need {nbytes}"
            )
        return view

    return give
