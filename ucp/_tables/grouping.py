# SPDX-License-Identifier: BSD-3-Clause
"""Groups of a rank's rows by keys, and what is computed of each group.

A ``Grouping`` computes it in one step, ``finish()``; or in two, if every function can
be put together of parts: each rank reduces its rows to one for each group that it
has, ``reduce()``, and the owner of a group finishes those of all ranks.
Names and meanings are those of ``pyarrow.TableGroupBy.aggregate``.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy

from .encoded import Encoded, as_floats, of_numbers
from .frames import title_of
from .rows import of_kind

# Each function, and by what parts are put together; empty: by nothing, so all rows
# of a group are needed in one place.
_FUNCTIONS: dict[str, str] = {
    "sum": "sum",
    "count": "sum",
    "count_all": "sum",
    "mean": "sum",
    "min": "min",
    "max": "max",
    "first": "first",
    "last": "last",
    "any": "any",
    "all": "all",
    "count_distinct": "",
    "variance": "",
    "stddev": "",
}
# Other names for some of them, which the names of results have, too.
_ALIASES = {
    "size": "count_all",
    "nunique": "count_distinct",
    "var": "variance",
    "std": "stddev",
}
_NAMES = {*_FUNCTIONS, *_ALIASES}
_OPTIONS = {
    "count": {"mode"},
    "count_distinct": {"mode"},
    "count_all": set[str](),
    "variance": {"ddof", "skip_nulls", "min_count"},
    "stddev": {"ddof", "skip_nulls", "min_count"},
}
_SCALAR_OPTIONS = {"skip_nulls", "min_count"}
_OF_POLARS = {"sum", "count", "count_all", "mean", "min", "max"}

# A rank reduces its rows first if no larger share of them is left.
FEW = 0.1
_SAMPLE = 20_000

Spec = Sequence[Any] | Mapping[str, Any]


class Aggregation(NamedTuple):
    """A column of the result.

    Attributes:
        name: of it.
        column: of the table; empty: rows are counted.
        function: one of Arrow's.
        options: those of the function, by their names.
    """

    name: str
    column: str
    function: str
    options: tuple[tuple[str, Any], ...] = ()


def read_aggregations(given: Spec) -> tuple[Aggregation, ...]:
    """What a program wants to be computed.

    Args:
        given: pairs of a column and a function, or with a dict of options as a
            third; the column may be ``[]`` for ``"count_all"``, and a list of functions
            is a pair for each. Or a dict of pairs by the names that the columns of the
            result get, or of lists of functions by their columns.

    Raises:
        TypeError: an item is something else.
        ValueError: there is no such function, or option; no item, or two of a name.
    """
    found: list[Aggregation] = []
    if isinstance(given, Mapping):
        for name, item in given.items():
            if _are_functions(item):
                found += [_read_one((name, function), None) for function in item]
            else:
                found.append(_read_one(item, str(name)))
    elif isinstance(given, str):
        raise TypeError(f"aggregations are {given!r}, not a list of pairs")
    else:
        for item in given:
            found += [_read_one(each, None) for each in _pairs_of(item)]
    if not found:
        raise ValueError("there is no aggregation")
    names = [its.name for its in found]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"two columns of the result are named {name!r}")
    return tuple(found)


def _are_functions(item: Any) -> bool:
    """Is it a list of names of functions?"""
    return (
        isinstance(item, list)
        and bool(item)
        and all(isinstance(each, str) and each in _NAMES for each in item)
    )


def _pairs_of(item: Any) -> list[Any]:
    """A pair for each function, if an item has a list of them."""
    if isinstance(item, tuple | list) and len(item) > 1 and _are_functions(item[1]):
        return [(item[0], function, *item[2:]) for function in item[1]]
    return [item]


def _read_one(item: Any, name: str | None) -> Aggregation:
    if (
        isinstance(item, str)
        or not isinstance(item, Sequence)
        or len(item) not in (2, 3)
    ):
        raise TypeError(
            f"an aggregation is {item!r}, not a pair of a column and a function"
        )
    column, function, *rest = item
    if not isinstance(function, str):
        raise TypeError(f"the function of an aggregation is {function!r}, no name")
    known = _ALIASES.get(function, function)
    if known not in _FUNCTIONS:
        there = ", ".join(sorted(_NAMES))
        raise ValueError(f"there is no function {function!r}, only {there}")
    if not isinstance(column, str):
        if known != "count_all" or (column is not None and list(column)):
            raise TypeError(f"the column of {function!r} is {column!r}, no name")
        column = ""
    options = dict(rest[0]) if rest else {}
    for option in options:
        if option not in _OPTIONS.get(known, _SCALAR_OPTIONS):
            raise ValueError(f"{function!r} has no option {option!r}")
    if name is None:
        name = f"{column}_{function}" if column and known != "count_all" else function
    return Aggregation(name, column, known, tuple(sorted(options.items())))


def with_ddof(aggregations: Sequence[Aggregation], ddof: int) -> list[Aggregation]:
    """With this ``ddof`` for variances and deviations that do not say theirs."""
    return [
        its._replace(options=(("ddof", ddof), *its.options))
        if "ddof" in _OPTIONS.get(its.function, ()) and "ddof" not in dict(its.options)
        else its
        for its in aggregations
    ]


class Grouping:
    """How the rows of a table are grouped: an object that each rank makes alike.

    Args:
        schema: of the table, without rows: a ``pyarrow.Schema``.
        keys: names of columns.
        aggregations: see ``read_aggregations``.
        drop_nulls: rows without a value of some key are in no group.

    Raises:
        KeyError: there is no such column.
        TypeError: a column cannot be aggregated so.
    """

    def __init__(
        self,
        schema: Any,
        keys: Sequence[str],
        aggregations: Sequence[Aggregation],
        drop_nulls: bool = False,
    ) -> None:
        self.keys = tuple(keys)
        self.aggregations = tuple(aggregations)
        self._drop_nulls = drop_nulls
        used = [*keys, *(its.column for its in aggregations if its.column)]
        for name in used:
            if name not in schema.names:
                there = ", ".join(map(repr, schema.names))
                raise KeyError(f"{title_of('')} has no column {name!r}, only {there}")
        for its in aggregations:
            if its.name in keys:
                raise ValueError(f"{its.name!r} is a key, and an aggregation")
        self.columns = tuple(dict.fromkeys(used))  # what has to be moved
        self.schema = schema  # of the table
        parts = [part for its in aggregations for part in _parts_of(schema, its)]
        self._parts = tuple(dict.fromkeys(parts))
        self.can_reduce = None not in parts
        nothing = _select(schema.empty_table(), self.columns)
        prepared = self._check(lambda: self.prepare(nothing))
        self.prepared_schema = prepared.schema
        self.result_schema = self._check(lambda: self.finish(nothing, False)).schema
        self.reduced_schema: Any = None
        if self.can_reduce:
            self.reduced_schema = self._check(lambda: self.reduce(nothing)).schema

    def _check(self, work: Any) -> Any:
        import pyarrow as pa

        refusals = (pa.ArrowNotImplementedError, pa.ArrowTypeError)
        try:
            return work()
        except refusals as error:
            text = str(error)
        nothing = _select(self.schema.empty_table(), self.columns)
        for its in self.aggregations:
            try:
                self._aggregate(nothing, [its], "arrow")
            except refusals as error:
                kind = self.schema.field(its.column).type
                text = (
                    f"{its.function!r} of the column {its.column!r}, which is {kind}, "
                    f"is not computed: cast it, or choose another function ({error})"
                )
                break
        raise TypeError(f"the table cannot be grouped so: {text}")

    def prepare(self, table: Any) -> Any:
        """The columns that are needed; floats that are equal are the same."""
        import pyarrow as pa
        import pyarrow.compute as pc

        table = _select(table, self.columns)
        for name in self.keys:
            i = table.schema.get_field_index(name)
            field = table.schema.field(i)
            if pa.types.is_floating(field.type):
                table = table.set_column(i, field, _equal_floats(table[i]))
            elif _is_of_floats(field.type) and table[i].num_chunks:
                table = table.set_column(i, field, _equal_numbers(table[i]))
        if self._drop_nulls:
            for name in self.keys:
                if table[name].null_count:
                    table = table.filter(pc.is_valid(table[name]))
        return table

    def is_worth_reducing(self, table: Any) -> bool:
        """Does a sample of a rank's rows say that ``reduce()`` leaves few?"""
        import pyarrow as pa

        if not self.can_reduce or not table.num_rows:
            return self.can_reduce
        rng = numpy.random.default_rng(0)
        rows = numpy.sort(rng.integers(0, table.num_rows, _SAMPLE))
        rows = rows[numpy.diff(rows, prepend=-1) > 0]  # each of them once
        sample = _select(table, self.keys).take(pa.array(rows))
        its = Encoded(sample, self.keys, [])
        found = its.table.group_by(its.keys, use_threads=False).aggregate([])
        groups = _estimate(found.num_rows, len(rows))
        return bool(groups <= FEW * table.num_rows)

    def dictionaries(
        self, values: Mapping[str, Any], is_reduced: bool
    ) -> dict[int, Any]:
        """The dictionaries of what travels, by the numbers of its columns.

        Args:
            values: the dictionaries of the table, by the names of its columns.
            is_reduced: what travels comes of ``reduce()``.
        """
        import pyarrow as pa

        schema = self.reduced_schema if is_reduced else self.prepared_schema
        columns = {name: name for name in self.columns}
        if is_reduced:
            parts = [part for part in self._parts if part is not None]
            columns |= {part.name: part.column for part in parts}
        return {
            number: values[columns[field.name]]
            for number, field in enumerate(schema)
            if pa.types.is_dictionary(field.type)
        }

    def reduce(self, table: Any, library: str = "arrow") -> Any:
        """Return one row for each group of a rank.

        ``prepare()`` has returned ``table``.
        """
        own = [
            Aggregation(part.name, part.column, part.function, part.options)
            for part in self._parts
            if part is not None
        ]
        for part in self._parts:
            if part is not None and part.given:
                # The sum of integers may be too large for one.
                wide = as_floats(table[part.given])
                table = table.append_column(part.column, wide)
        return self._aggregate(table, own, library)

    def finish(self, table: Any, is_reduced: bool, library: str = "arrow") -> Any:
        """One row for each group, in its own memory.

        Args:
            table: rows that come of ``prepare()``, or of ``reduce()`` of all ranks in
                the order of ranks.
            is_reduced: the latter.
            library: ``"polars"`` is used for what it computes as Arrow does.
        """
        if not is_reduced:
            found = self._aggregate(table, self.aggregations, library)
            return found.select([*self.keys, *(its.name for its in self.aggregations)])
        again = [
            Aggregation(part.name, part.name, part.again, part.options_again)
            for part in self._parts
            if part is not None
        ]
        return self._put_together(self._aggregate(table, again, library))

    def _put_together(self, table: Any) -> Any:
        """The result of parts that have been put together."""
        import pyarrow as pa
        import pyarrow.compute as pc

        columns = [table[name] for name in self.keys]
        for its in self.aggregations:
            parts = [part for part in _parts_of(self.schema, its) if part is not None]
            found = [table[part.name] for part in parts]
            if its.function == "mean":
                least = dict(its.options).get("min_count", 1)
                total, count = found
                enough = pc.greater_equal(count, max(least, 1))
                mean = pc.divide(total, pc.if_else(enough, count, 1))
                column = pc.if_else(enough, mean, pa.scalar(None, pa.float64()))
            else:
                (column,) = found
            field = self.result_schema.field(its.name)
            columns.append(of_numbers(column, field.type))
        return pa.Table.from_arrays(columns, schema=self.result_schema)

    def _aggregate(
        self, table: Any, aggregations: Sequence[Aggregation], library: str
    ) -> Any:
        encoded = Encoded(table, self.keys, aggregations)
        keys, aggregations = encoded.keys, encoded.aggregations
        if (
            library == "polars"
            and table.num_rows
            and _polars_can(encoded.table, keys, aggregations)
        ):
            empty = encoded.table.slice(0, 0)
            schema = _by_arrow(empty, keys, aggregations).schema
            found = _by_polars(encoded.table, keys, aggregations).cast(schema)
        else:
            found = _by_arrow(encoded.table, keys, aggregations)
        return encoded.decode(found)


class _Part(NamedTuple):
    """A column of what a rank reduces its rows to."""

    name: str
    column: str
    function: str
    options: tuple[tuple[str, Any], ...]
    again: str  # the function that puts parts together
    options_again: tuple[tuple[str, Any], ...]
    given: str = ""  # the column of which ``column`` is a copy, as floats


def _parts_of(schema: Any, its: Aggregation) -> list[_Part | None]:
    """The parts of a column of the result; None: it has none."""
    import pyarrow.types as is_type

    options = dict(its.options)
    if not _FUNCTIONS[its.function] or options.get("min_count", 1) > 1:
        return [None]

    def part(function: str, again: str, *more: tuple[str, Any]) -> _Part:
        name = f"{function} of {its.column} {dict(its.options)}"
        wanted = tuple(sorted({**options, **dict(more)}.items()))
        keeps_nulls = options.get("skip_nulls") is False
        after: dict[str, Any] = {"skip_nulls": False} if keeps_nulls else {}
        return _Part(name, its.column, function, wanted, again, (*after.items(),))

    if its.function in ("count", "count_all"):
        count = part(its.function, "sum")
        return [count._replace(options_again=())]
    if its.function == "mean":
        kind = schema.field(its.column).type
        if is_type.is_decimal(kind) or options:
            return [None]
        count = part("count", "sum")
        total = part("sum", "sum")
        if not (is_type.is_float32(kind) or is_type.is_float64(kind)):
            wide = f"floats of {its.column}"
            total = total._replace(name=f"sum of {wide}", column=wide, given=its.column)
        return [total, count._replace(options=(), options_again=())]
    if its.function == "sum" and options.get("min_count") == 0:
        total = part("sum", "sum")
        again = (("min_count", 0), *total.options_again)
        return [total._replace(options_again=again)]
    if its.function in ("first", "last") and options.get("skip_nulls") is False:
        return [part(its.function, its.function)]
    return [part(its.function, _FUNCTIONS[its.function])]


def _estimate(found: int, drawn: int) -> float:
    """How many different keys there are, if so many of those drawn are different."""
    if found >= drawn:
        return float("inf")
    low, high = float(found), float(drawn) ** 2
    for _ in range(60):
        middle = (low + high) / 2
        expected = middle * -numpy.expm1(-drawn / middle)
        low, high = (middle, high) if expected < found else (low, middle)
    return high


def _select(table: Any, names: Iterable[str]) -> Any:
    return table.select(list(names))


def _equal_floats(column: Any) -> Any:
    """Floats of which those that are equal, and NaNs, have the same bits."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    zero = pa.scalar(numpy.zeros(1, kind.to_pandas_dtype())[0])
    nan = pa.scalar(float("nan"), kind)
    equal = pc.if_else(pc.equal(column, zero), zero, column)
    return pc.if_else(pc.is_nan(column), nan, equal)


def _is_of_floats(kind: Any) -> bool:
    import pyarrow.types as is_type

    return bool(is_type.is_dictionary(kind) and is_type.is_floating(kind.value_type))


def _equal_numbers(column: Any) -> Any:
    """A dictionary column of floats, with one number for those that are equal.

    Its values, which all ranks have, stay what they are.
    """
    import pyarrow as pa

    values = _equal_floats(column.chunk(0).dictionary).to_numpy(zero_copy_only=False)
    unsigned = numpy.dtype(f"u{values.itemsize}")
    _, first, place = numpy.unique(
        values.view(unsigned), return_index=True, return_inverse=True
    )
    numbers = pa.array(first[place].astype(column.type.index_type.to_pandas_dtype()))
    chunks = [numbers.take(chunk.indices) for chunk in column.chunks]
    return of_kind(pa.chunked_array(chunks, numbers.type), column.type, column)


# --- libraries ----------------------------------------------------------------


def _by_arrow(
    table: Any, keys: Sequence[str], aggregations: Sequence[Aggregation]
) -> Any:
    wanted: list[Any] = [
        (its.column or [], its.function, _arrow_options(its)) for its in aggregations
    ]
    # First and last need rows in their order, which threads do not keep.
    found = table.group_by(list(keys), use_threads=False).aggregate(wanted)
    return found.rename_columns([*keys, *(its.name for its in aggregations)])


def _arrow_options(its: Aggregation) -> Any:
    import pyarrow.compute as pc

    options = dict(its.options)
    if its.function in ("count", "count_distinct"):
        return pc.CountOptions(**options)
    if its.function in ("variance", "stddev"):
        return pc.VarianceOptions(**options)
    if its.function == "count_all":
        return None
    return pc.ScalarAggregateOptions(**{"min_count": 1, **options})


def _polars_can(
    table: Any, keys: Sequence[str], aggregations: Sequence[Aggregation]
) -> bool:
    """Does polars compute what Arrow computes, and faster?"""
    import pyarrow.compute as pc
    import pyarrow.types as is_type

    kinds = [table.schema.field(name).type for name in keys]
    if all(map(is_type.is_string, kinds)):
        return False  # polars has to convert these first
    for kind in kinds:
        is_fixed = is_type.is_integer(kind) or is_type.is_boolean(kind)
        is_time = is_type.is_temporal(kind) and not is_type.is_interval(kind)
        is_text = is_type.is_string(kind) or is_type.is_large_string(kind)
        is_float = is_type.is_float32(kind) or is_type.is_float64(kind)
        if not (is_fixed or is_time or is_text or is_float):
            return False
    for its in aggregations:
        if its.function not in _OF_POLARS or its.options:
            return False
        if not its.column:
            continue
        kind = table.schema.field(its.column).type
        is_float = is_type.is_float32(kind) or is_type.is_float64(kind)
        if not (is_type.is_integer(kind) or is_float):
            return False
        is_extreme = its.function in ("min", "max")
        if is_float and is_extreme and pc.any(pc.is_nan(table[its.column])).as_py():
            return False
    return True


def _by_polars(
    table: Any, keys: Sequence[str], aggregations: Sequence[Aggregation]
) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.types as is_type

    # polars has fast ways for functions of columns as they are, and for no others:
    # results are cast, and sums of no values become nulls, afterwards.
    polars: Any = importlib.import_module("polars")
    names = {name: f"k{number}" for number, name in enumerate(keys)}
    given = {names[name]: table[name] for name in keys}
    wanted: dict[str, Any] = {}
    for number, its in enumerate(aggregations):
        if not its.column:
            wanted[f"a{number}"] = polars.len()
            continue
        given[f"c{its.column}"] = table[its.column]
        column = polars.col(f"c{its.column}")
        kind = table.schema.field(its.column).type
        has_nulls = table[its.column].null_count > 0
        if its.function == "count":
            found = column.count() if has_nulls else polars.len()
        elif its.function == "mean":
            is_wide = is_type.is_float64(kind)
            found = (column if is_wide else column.cast(polars.Float64)).mean()
        elif its.function == "sum":
            if is_type.is_floating(kind):
                wide = polars.Float64
            elif is_type.is_signed_integer(kind):
                wide = polars.Int64
            else:
                wide = polars.UInt64
            found = (column if kind.bit_width == 64 else column.cast(wide)).sum()
            if has_nulls:
                wanted[f"n{number}"] = column.count()
        else:
            found = getattr(column, its.function)()
        wanted[f"a{number}"] = found
    frame = polars.from_arrow(pa.table(given)).lazy().group_by([*names.values()])
    found = frame.agg(**wanted).collect(engine="streaming").to_arrow()
    columns = [found[names[name]] for name in keys]
    for number in range(len(aggregations)):
        column = found[f"a{number}"]
        if f"n{number}" in wanted:
            is_some = pc.greater(found[f"n{number}"], 0)
            column = pc.if_else(is_some, column, pa.scalar(None, column.type))
        columns.append(column)
    given_names = [*keys, *(its.name for its in aggregations)]
    return pa.Table.from_arrays(columns, names=given_names)
