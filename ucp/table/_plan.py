# SPDX-License-Identifier: BSD-3-Clause
"""What all ranks agree on before an operation: schema, arguments, job, or an error."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy

from .._communicator.agree import check_same, host_id
from .._data.columns import ArrowSchema
from .._data.partition import range_partition_to
from .._tables.frames import pandas_frame, to_polars
from .._tables.grouping import FEW, Aggregation, Grouping, with_ddof
from .._tables.rows import with_numbers
from .._tables.schemas import (
    CommonTable,
    describe_tables,
    key_types,
    read_table,
    unpack_all,
    with_pandas_types,
)
from .._tables.sorting import (
    Order,
    choose_library,
    installed_libraries,
    ordered_names,
    sort_rows,
)
from ._jobs import EvenJob, GroupJob, HashJob, Job, SortJob, even_begins

MAX_PARTITIONS = 65535
SIDE = "table"

# Bytes of a partition: it stays in the cache while it is sorted or grouped.
_PARTITION_BYTES = 8 << 20
# With fewer rows, what each column of a partition costs is more than its rows.
_PARTITION_ROWS = 10_000
_MAX_OVER_DECOMPOSITION = 64

_SAMPLES = 100  # rows that are looked at for each partition of a sort


class Call(NamedTuple):
    """The arguments that have to be the same on every rank."""

    operation: str
    arguments: dict[str, Any]
    over_decomposition: int | None
    seed: int


class Plan(NamedTuple):
    """What the ranks know after they have told each other what they have."""

    call: Call
    common: CommonTable
    rank: int
    rows: list[int]  # of each rank
    over_decomposition: int
    library: str  # by which rows are sorted or grouped
    is_few: bool  # the groups of each rank are few
    gives: str  # "pandas" or "polars"; empty: Arrow

    @property
    def size(self) -> int:
        return len(self.rows)


def describe(call: Call, table: Any, library: str, is_few: bool) -> list[Any]:
    """What a rank tells the others, as buffers.

    Args:
        call: the arguments.
        table: of this rank; None: it has none.
        library: "pandas" or "polars" if the table was a frame of these.
        is_few: the groups of its rows are few.
    """
    said = {
        "call": call,
        "installed": installed_libraries(),
        "host": host_id(),
        "is_few": is_few,
    }
    return describe_tables(said, [table], [library])


def make_plan(said: Sequence[bytes], rank: int) -> Plan:
    """The plan, or an exception, which are the same on every rank."""
    its, blobs = unpack_all(said)
    call = check_calls(its)
    size = len(said)
    if size > MAX_PARTITIONS:
        raise ValueError(f"{size} ranks are more than {MAX_PARTITIONS}")
    common = read_table(its, blobs, 0, SIDE)
    tables = [one["tables"][0] for one in its]
    rows = [0 if one is None else one["rows"] for one in tables]
    libraries = {one["library"] for one in tables if one is not None}
    most = MAX_PARTITIONS // size
    is_few = all(one["is_few"] for one in its)
    is_reduced = call.operation == "group_by" and is_few
    share = FEW if is_reduced else 1.0
    return Plan(
        call,
        common,
        rank,
        rows,
        _over_decomposition(common, size, call.over_decomposition, most, share),
        choose_library([one["installed"] for one in its], sum(rows)),
        is_few,
        next((name for name in ("pandas", "polars") if name in libraries), ""),
    )


def check_calls(said: Sequence[Mapping[str, Any]]) -> Call:
    """The call of all ranks, or an exception if they differ."""
    calls = [Call(*its["call"]) for its in said]
    check_same("calls", ["operation"], ([call.operation] for call in calls))
    first = calls[0]
    names = [*first.arguments, *Call._fields[2:]]
    check_same(
        f"calls {first.operation}",
        names,
        ([*call.arguments.values(), *call[2:]] for call in calls),
    )
    return first


def _over_decomposition(
    common: CommonTable, size: int, asked: int | None, most: int, share: float
) -> int:
    """How many partitions each rank has, if such a share of the rows travels."""
    if asked is not None:
        if not 1 <= asked <= most:
            raise ValueError(
                f"over_decomposition is {asked}, not 1 to {most} for {size} ranks"
            )
        return asked
    wanted = math.ceil(share * common.nbytes / size / _PARTITION_BYTES)
    enough = math.ceil(share * common.rows / size / _PARTITION_ROWS)
    return max(1, min(wanted, enough, _MAX_OVER_DECOMPOSITION, most))


def check_keys(plan: Plan, names: Sequence[str]) -> None:
    """Refuse keys that are no columns, or whose rows have no order and no hash."""
    key_types(plan.common, names, SIDE)
    columns = ArrowSchema(plan.common.schema, {})
    columns.check_keys([columns.names.index(name) for name in names])


def check_ranks(plan: Plan) -> None:
    """Refuse more ranks than there are."""
    n = plan.call.arguments["n"]
    if n is not None and n > plan.size:
        raise ValueError(f"n is {n}, and there are {plan.size} ranks")


# --- jobs ---------------------------------------------------------------------


def repartition_job(plan: Plan, dictionaries: dict[int, Any]) -> Job:
    arguments = plan.call.arguments
    schema = plan.common.schema
    on, n = arguments["on"], arguments["n"]
    ranks = plan.size if n is None else n
    count = ranks * plan.over_decomposition
    if on is None:
        begins = even_begins(sum(plan.rows), count)
        owners = [number // plan.over_decomposition for number in range(count)]
        first = sum(plan.rows[: plan.rank])
        return EvenJob(schema, dictionaries, owners, first, begins)
    owners = [number % ranks for number in range(count)]
    return HashJob(schema, dictionaries, owners, on, plan.call.seed)


def group_job(plan: Plan, grouping: Grouping, dictionaries: dict[int, Any]) -> Job:
    """The job of a grouping.

    Args:
        dictionaries: of the columns of the common table.
    """
    owners = [
        number % plan.size for number in range(plan.size * plan.over_decomposition)
    ]
    is_reduced = grouping.can_reduce and plan.is_few
    names = plan.common.schema.names
    own = {names[i]: values for i, values in dictionaries.items()}
    travelling = grouping.dictionaries(own, is_reduced)
    return GroupJob(
        grouping, travelling, owners, is_reduced, plan.library, plan.call.seed
    )


def grouping_of(plan: Plan) -> Grouping:
    """What groups the rows; all ranks make it alike, or raise the same."""
    arguments = plan.call.arguments
    keys = arguments["keys"]
    dropna = arguments["dropna"]
    wanted = [
        Aggregation(name, column, function, tuple(map(tuple, options)))
        for name, column, function, options in arguments["aggregations"]
    ]
    drops = plan.gives == "pandas" if dropna is None else dropna
    ddof = arguments["ddof"]
    if ddof is None:
        ddof = 1 if plan.gives else 0
    wanted = with_ddof(wanted, ddof)
    columns = [*keys, *(its.column for its in wanted if its.column)]
    key_types(plan.common, list(dict.fromkeys(columns)), SIDE)
    check_keys(plan, keys)
    return Grouping(plan.common.schema, keys, wanted, drops)


def order_of(call: Call) -> Order:
    """By what a sort sorts."""
    its = call.arguments
    return Order(
        tuple(its["by"]), tuple(its["descending"]), its["nulls"], its["stable"]
    )


def sample_keys(plan: Plan, table: Any) -> Any:
    """Keys of random rows of this rank, more if it has more, without dictionaries."""
    import pyarrow as pa

    table = table.select(list(plan.call.arguments["by"]))
    table = with_numbers(table, ordered_names(table.schema, table.column_names))
    total = sum(plan.rows)
    wanted = _SAMPLES * plan.over_decomposition * plan.size
    count = math.ceil(wanted * table.num_rows / total) if total else 0
    rng = numpy.random.default_rng([plan.call.seed, plan.rank])
    rows = numpy.sort(rng.integers(0, max(1, table.num_rows), count))
    found = table.take(pa.array(rows))
    for i, field in enumerate(found.schema):
        if pa.types.is_dictionary(field.type):
            plain = found[i].cast(field.type.value_type)
            found = found.set_column(i, field.name, plain)
    return found.replace_schema_metadata(None)


def sort_job(
    plan: Plan, order: Order, samples: Sequence[Any], dictionaries: dict[int, Any]
) -> Job:
    """The job of a sort, from the samples of all ranks."""
    import pyarrow as pa

    whole = sort_rows(pa.concat_tables(samples), order)
    count = plan.over_decomposition * plan.size
    rows = whole.num_rows
    at = numpy.unique(numpy.arange(1, count) * rows // count)
    at = at[:rows]  # there may be no rows
    candidates = whole.take(pa.array(at))
    last, begins = _distinct(candidates, order)
    # Each partition goes to the rank in whose share of the rows its middle lies.
    edges = numpy.concatenate([[0], at[begins], [max(rows, 1)]])
    middles = (edges[1:] + edges[:-1]) / 2
    owners = (middles * plan.size // max(rows, 1)).astype(int).tolist()
    splitters = candidates.take(pa.array(last))
    schema = plan.common.schema
    return SortJob(schema, dictionaries, owners, order, splitters, plan.library)


def _distinct(table: Any, order: Order) -> tuple[Any, Any]:
    """The last row, and the first one, of those that are equal, by their numbers."""
    if not table.num_rows:
        return numpy.array([], int), numpy.array([], int)
    parts = range_partition_to(bytearray, table, order.by, table, order.bits)
    counts = numpy.array([parts.num_rows(p) for p in range(1, len(parts))])
    last = numpy.flatnonzero(counts)
    return last, last - counts[last] + 1


# --- results ------------------------------------------------------------------


class Results:
    """Tables of Arrow as what the program has given: a frame, or a table.

    Args:
        plan: what was agreed.
        grouping: of a ``group_by``; else None.
    """

    def __init__(self, plan: Plan, grouping: Grouping | None) -> None:
        self._gives = plan.gives
        about = {field.name: field.metadata for field in plan.common.schema}
        self._about = dict(about)
        for its in grouping.aggregations if grouping is not None else ():
            self._about[its.name] = about.get(its.column)
        common = plan.common
        if self._gives == "pandas" and grouping is not None:
            common = common._replace(
                schema=grouping.result_schema.remove_metadata(),
                pandas_types=_grouped_types(common, grouping),
            )
        self._metadata = with_pandas_types(common).schema.metadata

    def give(self, table: Any) -> Any:
        """The table for the program; it is nobody else's."""
        if self._gives == "polars":
            return to_polars(table, self._about)
        if self._gives != "pandas":
            return table.replace_schema_metadata(None)
        return pandas_frame(table.replace_schema_metadata(self._metadata), is_own=True)


def _grouped_types(common: CommonTable, grouping: Grouping) -> dict[str, Any]:
    """What pandas says of the columns of a grouping: see ``CommonTable``."""
    given = common.pandas_types
    found = {name: given[name] for name in grouping.keys if name in given}
    frame = pandas_frame(with_pandas_types(common).schema.empty_table(), is_own=True)
    groups = frame.groupby(list(grouping.keys), observed=True)
    names = {"count_all": "size", "variance": "var", "stddev": "std"}
    names["count_distinct"] = "nunique"
    for its in grouping.aggregations:
        if its.function == "count_all":
            found[its.name] = {"numpy_type": "int64"}
            continue
        if its.function in ("min", "max", "first", "last") and its.column in given:
            found[its.name] = given[its.column]
            continue
        function = names.get(its.function, its.function)
        try:
            column = groups[its.column or grouping.keys[0]].agg(function)
        except (TypeError, ValueError, AttributeError, NotImplementedError):
            continue  # pandas does not compute this
        found[its.name] = {"numpy_type": str(column.dtype)}
    return found
