# SPDX-License-Identifier: BSD-3-Clause
"""The rows of a rank in order, by the library that is there.

The order is that of ``pyarrow.compute.sort_indices``, whichever library sorts. It is
written down in include/umx/partition.h, as C partitions rows by it. Values of ordered
dictionaries have the order of their dictionary.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy

from .._data.partition import order_bits
from .libraries import is_installed
from .rows import number_type, numbers_of, of_kind, take_column, take_rows

LIBRARIES = ("polars", "numpy", "arrow")  # the fastest first

# With fewer rows on all ranks, loading polars costs more than it saves.
LEAST_ROWS = 200_000


class Order(NamedTuple):
    """By what rows are sorted.

    Attributes:
        by: names of columns; the later decide between rows that are equal by the
            first.
        descending: for each of them.
        nulls: ``"last"`` or ``"first"``: where nulls are, and NaNs beside them.
        stable: whether rows that are equal keep their order.
    """

    by: tuple[str, ...]
    descending: tuple[bool, ...]
    nulls: str = "last"
    stable: bool = False

    @property
    def bits(self) -> tuple[int, ...]:
        """What C calls it: see ``order_bits``."""
        return order_bits(len(self.by), self.descending, self.nulls)


def installed_libraries() -> list[str]:
    """Those of ``LIBRARIES`` that this process has; none is loaded."""
    return [name for name in LIBRARIES if name != "polars" or is_installed(name)]


def choose_library(installed: Iterable[Sequence[str]], rows: int) -> str:
    """The library by which ranks sort or group so many rows.

    Args:
        installed: ``installed_libraries()`` of each rank.
        rows: of all ranks.
    """
    if rows >= LEAST_ROWS and all("polars" in names for names in installed):
        return "polars"
    return "numpy"


def ordered_names(schema: Any, names: Iterable[str]) -> list[str]:
    """Those of the columns that are ordered dictionaries."""
    import pyarrow as pa

    kinds = {name: schema.field(name).type for name in names}
    return [
        name for name, k in kinds.items() if pa.types.is_dictionary(k) and k.ordered
    ]


def sort_rows(table: Any, order: Order, library: str = "arrow") -> Any:
    """The rows in order, in memory of their own.

    Args:
        table: a ``pyarrow.Table``; each of its dictionary columns has one
            dictionary.
        order: by what.
        library: one of ``LIBRARIES``. NumPy sorts by keys of a fixed width without
            nulls, for polars if there are several; polars by most types; Arrow does
            it where they do not.
    """
    keys = [
        _Key(table[name], down)
        for name, down in zip(order.by, order.descending, strict=True)
    ]
    keys = [key for key in keys if not key.is_constant]
    if library == "arrow" or not keys or table.num_rows < 2:
        return take_rows(table, _indices(order, keys, table.num_rows))
    if library == "numpy" or len(keys) > 1:
        words = [key.words(order.nulls) for key in keys]
        if all(its is not None for its in words):
            return take_rows(table, _by_words(words, order.stable))
    if library == "polars" and all(key.is_of_polars for key in keys):
        return _by_polars(table, order, keys)
    return take_rows(table, _indices(order, keys, table.num_rows))


def _indices(order: Order, keys: Sequence[_Key], rows: int) -> Any:
    """The numbers of the rows in order, by Arrow."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not keys:
        return numpy.arange(rows)
    names = [str(number) for number in range(len(keys))]
    table = pa.Table.from_arrays([key.column for key in keys], names=names)
    place = "at_start" if order.nulls == "first" else "at_end"
    ways = ["descending" if key.is_descending else "ascending" for key in keys]
    keyed = list(zip(names, ways, strict=True))
    try:
        options = pc.SortOptions([(*its, place) for its in keyed])
    except ValueError:  # Arrow before 25 has one place for all keys
        options = pc.SortOptions(keyed, null_placement=place)
    return pc.sort_indices(table, options=options)  # it is stable


def _by_words(words: Sequence[Any], is_stable: bool) -> Any:
    """The numbers of the rows in order of words: see ``_Key.words``."""
    kind: Any = "stable" if is_stable else None
    if len(words) == 1:
        return numpy.argsort(words[0], kind=kind)
    packed, is_whole = _pack(words)
    rows = numpy.argsort(packed, kind=kind)
    if is_whole:
        return rows
    # Rows that are equal so far are put in the order of all words.
    packed = packed[rows]
    is_equal = packed[1:] == packed[:-1]
    places = numpy.flatnonzero(numpy.r_[is_equal, False] | numpy.r_[False, is_equal])
    equal = rows[places]
    rows[places] = equal[numpy.lexsort([its[equal] for its in reversed(words)])]
    return rows


def _pack(words: Sequence[Any]) -> tuple[Any, bool]:
    """Numbers of 64 bits in the order of several words, as far as these fit.

    Returns:
        The numbers, and whether they hold all bits.
    """
    packed = numpy.zeros(len(words[0]), numpy.uint64)
    left = 64
    for its in words:
        if its.dtype.kind == "f":
            its = _float_words(its, False, "last")
        least = its.min()
        # Signed words become those above the least: the difference wraps.
        its = its.astype(numpy.uint64) - least.astype(numpy.uint64)
        bits = int(its.max()).bit_length()
        used = min(bits, left)
        if used == 64:
            packed = its
        elif used:
            packed = packed << numpy.uint64(used) | its >> numpy.uint64(bits - used)
        if used < bits:
            return packed, False
        left -= used
    return packed, True


def _is_small_decimal(kind: Any) -> bool:
    """Is it one of 32 or 64 bits? Arrow 18 has none."""
    import pyarrow.types as is_type

    return bool(is_type.is_decimal(kind) and kind.bit_width < 128)


class _Key:
    """A key column as something that all libraries sort alike."""

    def __init__(self, column: Any, is_descending: bool) -> None:
        import pyarrow as pa
        import pyarrow.types as is_type

        self.is_descending = is_descending
        self.given = column
        kind = column.type
        if isinstance(kind, pa.BaseExtensionType):
            kind = kind.storage_type
            chunks = [chunk.storage for chunk in column.chunks]
            column = pa.chunked_array(chunks, type=kind)
        if is_type.is_dictionary(kind) and kind.ordered:
            column = numbers_of(column)
        elif is_type.is_dictionary(kind):
            column = _by_rank(column)
        elif is_type.is_float16(kind):
            column = column.cast(pa.float32())
        elif _is_small_decimal(kind):
            # Arrow has no right order of these.
            column = column.cast(pa.decimal128(kind.precision, kind.scale))
        elif is_type.is_fixed_size_binary(kind):
            column = column.cast(pa.large_binary())
        self.column = column
        self.is_constant = column.null_count == len(column)

    @property
    def is_number(self) -> bool:
        """Are its values integers, in their order? Dates and times are."""
        import pyarrow.types as is_type

        kind = self.column.type
        return bool(
            is_type.is_integer(kind)
            or (is_type.is_temporal(kind) and number_type(kind) is not None)
        )

    @property
    def is_of_polars(self) -> bool:
        import pyarrow.types as is_type

        kind = self.column.type
        tests = (is_type.is_floating, is_type.is_boolean, is_type.is_string)
        more = (is_type.is_large_string, is_type.is_binary, is_type.is_large_binary)
        return self.is_number or any(is_one(kind) for is_one in (*tests, *more))

    def numbers(self) -> Any:
        """Its integers: temporal types as those of their size."""
        import pyarrow.types as is_type

        is_plain = is_type.is_integer(self.column.type)
        return self.column if is_plain else numbers_of(self.column)

    def words(self, nulls: str) -> Any:
        """Numbers of NumPy whose order is that of the rows; None: there are none."""
        import pyarrow.types as is_type

        kind = self.column.type
        if self.column.null_count:
            return None
        if is_type.is_floating(kind):
            array = _numpy(self.column)
            if not self.is_descending and nulls == "last":
                return array  # NumPy has NaNs behind all others
            return _float_words(array, self.is_descending, nulls)
        if is_type.is_boolean(kind):
            array = self.column.to_numpy()
        elif self.is_number:
            array = _numpy(self.numbers())
        else:
            return None
        return ~array if self.is_descending else array


def _by_rank(column: Any) -> Any:
    """The ranks of a dictionary column's values: equal ones have the same."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.types as is_type

    if not column.num_chunks:
        return pa.chunked_array([], pa.int64())
    values = column.chunk(0).dictionary
    kind = values.type
    # Ranks would not say which values are NaN.
    if (
        _is_small_decimal(kind)
        or is_type.is_floating(kind)
        or len(values) > len(column)
    ):
        return _Key(column.cast(column.type.value_type), False).column
    try:
        ranks = pc.rank(values, "ascending", tiebreaker="dense").cast(pa.int64())
    except pa.ArrowNotImplementedError:
        return _Key(column.cast(column.type.value_type), False).column
    ranks = pc.if_else(pc.is_valid(values), ranks, pa.scalar(None, pa.int64()))
    return pa.chunked_array(
        [ranks.take(chunk.indices) for chunk in column.chunks], pa.int64()
    )


def _numpy(column: Any) -> Any:
    """A column without nulls as an array, without a copy if it has one chunk."""
    if column.num_chunks == 1:
        return column.chunk(0).to_numpy()
    return column.to_numpy()


def _float_words(array: Any, is_descending: bool, nulls: str) -> Any:
    """Integers in the order of floats, NaNs at the end at which nulls are."""
    kind: Any = numpy.int32 if array.itemsize == 4 else numpy.int64
    least, most = numpy.iinfo(kind).min, numpy.iinfo(kind).max
    words = (array + 0.0).view(kind)  # the other zero is equal
    words = numpy.where(words < 0, ~(words ^ least), words)
    if is_descending:
        words = ~words
    words[numpy.isnan(array)] = least if nulls == "first" else most
    return words


def _by_polars(table: Any, order: Order, keys: Sequence[_Key]) -> Any:
    """Sort by polars: it gets integers, floats and bytes only.

    Rows of other columns are found by their numbers afterwards.
    """
    import pyarrow as pa

    polars: Any = importlib.import_module("polars")
    given: dict[str, Any] = {}
    descending = []
    for number, key in enumerate(keys):
        column, is_descending = _given_key(key, order)
        given[f"k{number}"] = column
        descending.append(is_descending)
    is_taken = False
    for number, column in enumerate(table.columns):
        numbers = _fixed(column)
        if numbers is None:
            is_taken = True
        else:
            given[f"c{number}"] = numbers
    if is_taken:
        given["row"] = pa.array(numpy.arange(table.num_rows))
    frame = polars.from_arrow(pa.table(given)).sort(
        [f"k{number}" for number in range(len(keys))],
        descending=descending,
        nulls_last=order.nulls == "last",
        maintain_order=order.stable,
    )
    found = frame.drop([f"k{number}" for number in range(len(keys))]).to_arrow()
    columns = []
    for number, column in enumerate(table.columns):
        if f"c{number}" in given:
            numbers = found[f"c{number}"]
            if _share_memory(numbers, given[f"c{number}"]):
                # polars gives what it was given if that is in order.
                numbers = take_column(numbers, numpy.arange(table.num_rows))
            columns.append(_as_given(numbers, column))
        else:
            columns.append(take_column(column, found["row"].combine_chunks()))
    return pa.Table.from_arrays(columns, schema=table.schema)


def _share_memory(column: Any, other: Any) -> bool:
    """Does a column have memory of another one?"""
    places = [(its.address, its.address + its.size) for its in _buffers(other)]
    return any(
        begin <= its.address < end for its in _buffers(column) for begin, end in places
    )


def _buffers(column: Any) -> list[Any]:
    return [
        its for array in column.chunks for its in array.buffers() if its is not None
    ]


def _given_key(key: _Key, order: Order) -> tuple[Any, bool]:
    """A key for polars, and whether it is descending: NaNs have their place."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.types as is_type

    kind = key.column.type
    if is_type.is_floating(kind):
        if not pc.any(pc.is_nan(key.column)).as_py():
            return key.column, key.is_descending
        is_null = numpy.asarray(key.column.is_null())
        array = _numpy(pc.fill_null(key.column, 0.0))
        words = _float_words(array, key.is_descending, order.nulls)
        return pa.array(words, mask=is_null), False
    if key.is_number:
        return key.numbers(), key.is_descending
    if is_type.is_string(kind) or is_type.is_large_string(kind):
        return key.column.cast(pa.large_string()), key.is_descending
    if is_type.is_boolean(kind):
        return key.column, key.is_descending
    return key.column.cast(pa.large_binary()), key.is_descending


def _fixed(column: Any) -> Any:
    """A column as integers or bools that polars moves; None: it does not."""
    import pyarrow as pa

    if isinstance(column.type, pa.BaseExtensionType):
        return None
    return numbers_of(column)


def _as_given(numbers: Any, column: Any) -> Any:
    """Integers that polars has moved as values of the column."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_dictionary(kind) and not column.num_chunks:
        return column
    if pa.types.is_dictionary(kind):
        numbers = numbers.cast(kind.index_type)
    return of_kind(numbers, kind, column)
