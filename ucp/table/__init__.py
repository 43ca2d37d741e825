# SPDX-License-Identifier: BSD-3-Clause
"""Operations on tables whose rows are on the ranks of a communicator.

    part = await ucp.table.sort(table, "key", comm=comm)

Every rank gives the rows that it has, and gets some rows of the result. All ranks
call the same operation, one at a time on a communicator. docs/tables.md has an
introduction.
"""

from __future__ import annotations

import operator
import time
import warnings
from collections.abc import Callable, Coroutine, Mapping, Sequence
from os import PathLike
from typing import Any, Literal, NamedTuple, Required, TypedDict, Unpack

from .._communicator.communicator import Communicator
from .._data.partition import order_bits
from .._tables.begun import Begun
from .._tables.calls import Calls
from .._tables.common import with_common_types
from .._tables.frames import is_frame, library_of, to_arrow
from .._tables.grouping import Grouping, read_aggregations
from .._tables.options import (
    Memories,
    Names,
    known_memories,
    known_names,
    known_seed,
)
from .._tables.parts import Emit, Parts
from .._tables.schemas import (
    check_columns,
    decode_table,
    describe_failure,
    encode_table,
)
from .._tables.stages import Stages
from ..exceptions import UCXWarning
from ..shuffle import MemoryCache
from ._jobs import Job
from ._one_rank import AGREE, ENDS, ROWS, SAMPLE, Progress, TableRun
from ._parquet import read_files, write_file
from ._plan import (
    SIDE,
    Call,
    Plan,
    Results,
    check_keys,
    check_ranks,
    describe,
    group_job,
    grouping_of,
    make_plan,
    order_of,
    repartition_job,
    sample_keys,
    sort_job,
)

__all__ = [
    "Parts",
    "TableOptions",
    "group_by",
    "read_parquet",
    "repartition",
    "sort",
    "stream",
    "write_parquet",
]


def __dir__() -> list[str]:
    return __all__


Aggregations = Sequence[Any] | Mapping[str, Any]

_calls = Calls("table operation", (AGREE, SAMPLE, ROWS, ENDS))


class TableOptions(TypedDict, total=False):
    """The arguments that all operations share: see ``sort``."""

    comm: Required[Communicator]
    over_decomposition: int | None
    seed: int
    budget: int | None
    spill_dir: str | PathLike[str] | None
    cache: MemoryCache | None
    progress: Progress | None


class _Asked(NamedTuple):
    """What one rank has been called with."""

    call: Call
    memories: Memories
    progress: Progress | None
    columns: tuple[str, ...] | None  # that are needed; None: all


# --- arguments ----------------------------------------------------------------


def _read_options(
    operation: str,
    arguments: dict[str, Any],
    columns: tuple[str, ...] | None,
    *,
    over_decomposition: int | None = None,
    seed: int = 0,
    budget: int | None = None,
    spill_dir: str | PathLike[str] | None = None,
    cache: MemoryCache | None = None,
    progress: Progress | None = None,
    **unknown: Any,
) -> _Asked:
    if unknown:
        raise TypeError(f"{operation}() has no argument {next(iter(unknown))!r}")
    if progress is not None and not callable(progress):
        raise TypeError(f"progress must be callable, not {progress!r}")
    pieces = None if over_decomposition is None else operator.index(over_decomposition)
    call = Call(operation, arguments, pieces, known_seed(seed))
    memories = known_memories(budget, spill_dir, cache)
    return _Asked(call, memories, progress, columns)


def _read_repartition(
    on: Names | None = None, *, n: int | None = None, **options: Any
) -> _Asked:
    names = None if on is None else known_names(on, "on")
    if n is not None:
        n = operator.index(n)
        if n < 1:
            raise ValueError(f"n is {n}, not 1 or more")
    return _read_options("repartition", {"on": names, "n": n}, None, **options)


def _read_sort(
    by: Names,
    *,
    descending: bool | Sequence[bool] = False,
    nulls: str = "last",
    stable: bool = False,
    **options: Any,
) -> _Asked:
    names = known_names(by, "by")
    order_bits(len(names), descending, nulls)
    each = (descending,) * len(names) if isinstance(descending, bool) else descending
    arguments = {
        "by": names,
        "descending": tuple(each),
        "nulls": nulls,
        "stable": bool(stable),
    }
    return _read_options("sort", arguments, None, **options)


def _read_group_by(
    keys: Names,
    aggregations: Aggregations,
    *,
    dropna: bool | None = None,
    ddof: int | None = None,
    **options: Any,
) -> _Asked:
    names = known_names(keys, "keys")
    wanted = read_aggregations(aggregations)
    columns = (*names, *(its.column for its in wanted if its.column))
    if ddof is not None:
        ddof = operator.index(ddof)
        if ddof < 0:
            raise ValueError(f"ddof is {ddof}, not 0 or more")
    arguments = {
        "keys": names,
        "aggregations": wanted,
        "dropna": None if dropna is None else bool(dropna),
        "ddof": ddof,
    }
    columns = tuple(dict.fromkeys(columns))
    return _read_options("group_by", arguments, columns, **options)


_READ: dict[str, Callable[..., _Asked]] = {
    "repartition": _read_repartition,
    "sort": _read_sort,
    "group_by": _read_group_by,
}


# --- the call -----------------------------------------------------------------


def _begin(
    operation: str,
    table: Any,
    arguments: tuple[Any, ...],
    options: Mapping[str, Any],
    emit: Emit | None,
) -> Begun[Any]:
    """The call of an operation, whose parts go to ``emit``, if it is not None."""
    others = dict(options)
    if "comm" not in others:
        raise TypeError(f"{operation}() needs the argument 'comm'")
    comm = others.pop("comm")

    def steps(stages: Stages) -> Coroutine[Any, Any, Any]:
        return _run(operation, table, arguments, comm, others, emit, stages)

    return _calls.begin(comm, steps)


async def _run(
    operation: str,
    table: Any,
    arguments: tuple[Any, ...],
    comm: Communicator,
    options: dict[str, Any],
    emit: Emit | None,
    stages: Stages,
) -> Any:
    begun = time.monotonic()
    cause: Exception | None = None
    arrow: Any = None
    asked: _Asked | None = None
    try:
        asked = _READ[operation](*arguments, **options)
        arrow = _to_arrow(table, asked.columns)
        is_few = _are_few(asked.call, arrow)
        mine = describe(asked.call, arrow, library_of(table), is_few)
    except Exception as error:  # whatever code of a table raises, too
        cause = error
        mine = describe_failure(error)
    said = await stages.tell_all(mine, AGREE)
    try:
        plan = make_plan(said, comm.rank)
        grouping = _check_plan(plan)
    except Exception as error:
        raise error from cause
    assert asked is not None
    arrow, dictionaries = with_common_types(arrow, plan.common)
    job = await _make_job(plan, arrow, grouping, dictionaries, stages)
    results = Results(plan, grouping)
    run = TableRun(
        stages, comm, job, asked.memories, begun, sum(plan.rows), asked.progress
    )
    found = await _collect(run, arrow, results, job.nothing, emit)
    for text in run.skewed:
        warnings.warn(text, UCXWarning, stacklevel=4)  # who awaits the operation
    return found


def _check_plan(plan: Plan) -> Grouping | None:
    """What groups the rows, if something does; or an exception."""
    operation, arguments = plan.call.operation, plan.call.arguments
    if operation == "group_by":
        return grouping_of(plan)
    names = arguments["by"] if operation == "sort" else arguments["on"]
    if names is not None:
        check_keys(plan, names)
    if operation == "repartition":
        check_ranks(plan)
    return None


async def _make_job(
    plan: Plan,
    table: Any,
    grouping: Grouping | None,
    dictionaries: dict[int, Any],
    stages: Stages,
) -> Job:
    if grouping is not None:
        return group_job(plan, grouping, dictionaries)
    if plan.call.operation == "repartition":
        return repartition_job(plan, dictionaries)
    mine = encode_table(sample_keys(plan, table))
    said = await stages.tell_all([mine], SAMPLE)
    samples = [decode_table(one) for one in said]
    return sort_job(plan, order_of(plan.call), samples, dictionaries)


async def _collect(
    run: TableRun,
    table: Any,
    results: Results,
    nothing: Callable[[], Any],
    emit: Emit | None,
) -> Any:
    """Emit the parts, or put them together."""
    import pyarrow as pa

    parts: list[Any] = []
    has_parts = False

    async def take(part: Any) -> None:
        nonlocal has_parts
        has_parts = True
        if emit is None:
            parts.append(part)
        else:
            await emit(results.give(part))

    await run.run(table, take)
    if not has_parts:
        parts.append(nothing())
    if emit is None:
        return results.give(pa.concat_tables(parts))
    if parts:
        await emit(results.give(parts[0]))
    return None


def _to_arrow(table: Any, columns: Sequence[str] | None) -> Any:
    if columns is not None and is_frame(table) and set(columns) <= set(table.columns):
        table = table[list(columns)]
    arrow = to_arrow(table, SIDE)
    if arrow is None:
        return None
    if columns is not None and set(columns) <= set(arrow.column_names):
        counts = [arrow.column_names.count(name) for name in columns]
        if max(counts) == 1:
            arrow = arrow.select(list(columns))
    check_columns(arrow, SIDE)
    return arrow


def _are_few(call: Call, table: Any) -> bool:
    """Do the groups of a rank's rows make it worth while to reduce them first?"""
    if call.operation != "group_by" or table is None:
        return True
    keys, wanted = call.arguments["keys"], call.arguments["aggregations"]
    if not set(keys) <= set(table.column_names):
        return True  # which all ranks find out
    try:
        grouping = Grouping(table.schema, keys, wanted)
    except (KeyError, TypeError, ValueError):
        return True
    return grouping.is_worth_reducing(table)


# --- what programs call -------------------------------------------------------


def repartition(
    table: Any,
    on: Names | None = None,
    *,
    n: int | None = None,
    **options: Unpack[TableOptions],
) -> Coroutine[Any, Any, Any]:
    """Move rows to other ranks.

    Args:
        table: as for ``sort``.
        on: names of columns. Rows that are equal in these columns come to the same
            rank, by their hash. None: all ranks get about the same number of rows,
            and the order of rows over all ranks stays.
        n: the first ``n`` ranks get rows; None: all.

    Returns:
        The rows that this rank has got. Other arguments and exceptions are as for
        ``sort``.
    """
    return _begin("repartition", table, (on,), {**options, "n": n}, None)


def sort(
    table: Any,
    by: Names,
    *,
    descending: bool | Sequence[bool] = False,
    nulls: Literal["first", "last"] = "last",
    stable: bool = False,
    **options: Unpack[TableOptions],
) -> Coroutine[Any, Any, Any]:
    """Sort the rows of all ranks: rank 0 gets the first rows, rank 1 the next ones.

    The order is the same as in ``pyarrow.compute.sort_indices``: NaNs are behind all
    numbers, and nulls behind them, or both in front, the nulls first. Ordered
    dictionaries, categoricals and polars' ``Enum`` have the order of their categories.

    Args:
        table: the rows that this rank has: a ``pyarrow.Table`` or ``RecordBatch``, an
            object with ``__arrow_c_stream__``, a ``DataFrame`` of pandas or polars, a
            dict of arrays; or None for no rows.
        by: name of a column, or names: the later decide between rows that are equal
            by the first.
        descending: for all of them, or for each.
        nulls: ``"last"`` or ``"first"``.
        stable: rows that are equal keep the order that they have over all ranks.
        comm: the communicator, all ranks of which call this.
        over_decomposition: partitions of each rank, at most. One can be sorted while
            others come. None: as many as fit the processor's cache.
        seed: of the sample by which rows are divided between the ranks.
        budget: bytes of memory for partitions; None: no limit. The table is
            partitioned in pieces of an eighth of it, or of 1 MiB. Without
            ``spill_dir`` it limits only what comes over a network.
        spill_dir: a directory for a file of what the budget does not hold.
        cache: memory that is used again by the next operation; None: new memory.
        progress: called with the number of partitions of this rank that are done,
            and of all of them.

    Returns:
        The rows that this rank has got: a ``DataFrame`` of pandas or polars if a
        table was one on some rank, else a ``pyarrow.Table``. It is a copy.

    Raises:
        KeyError: a column does not exist.
        TypeError: tables or types that cannot be moved, or sorted.
        ValueError: arguments that make no sense, or differ between ranks.
        OSError: ``spill_dir`` cannot be written to. These four are the same on all
            ranks, and raised before rows are sent.
        UCXBusy: an operation is under way on the communicator.
        UCXError: the budget does not hold what comes over a network, and there is
            no ``spill_dir``; or the file there cannot grow.
        UCXRankFailed: a rank has failed, or has raised an exception.

    Warns:
        UCXWarning: a quarter of the rows has one key; the text names it.
    """
    more = {"descending": descending, "nulls": nulls, "stable": stable}
    return _begin("sort", table, (by,), {**options, **more}, None)


def group_by(
    table: Any,
    keys: Names,
    aggregations: Aggregations,
    *,
    dropna: bool | None = None,
    ddof: int | None = None,
    **options: Unpack[TableOptions],
) -> Coroutine[Any, Any, Any]:
    """Compute something of each group of rows that are equal in ``keys``.

    Names and meanings are as in ``pyarrow.TableGroupBy.aggregate``:
    ``[("x", "sum"), ([], "count_all")]`` gives the columns ``x_sum`` and
    ``count_all``, and nulls are not counted.

    Args:
        table: as for ``sort``.
        keys: name of a column, or names.
        aggregations: pairs of a column and a function, or with a dict of options as a
            third; or a dict of these by the names of the columns of the result. A list
            of functions computes each: ``{"x": ["sum", "mean"]}`` and ``[("x", ["sum",
            "mean"])]`` give the columns ``x_sum`` and ``x_mean``. The functions are
            sum, count, count_all (size), mean, min, max, first, last, any, all,
            count_distinct (nunique), variance (var) and stddev (std). Means of times
            are times without fractions of their unit. The options are Arrow's:
            skip_nulls, min_count, mode, ddof.
        dropna: rows without a value of a key are in no group. None: so it is for
            tables of pandas.
        ddof: of variance and stddev, whose options may have another: the sum of
            squares is divided by the number of values less this. None: 1 for frames
            of pandas and polars, as these do, and 0 for other tables, as Arrow does.

    Returns:
        Some of the groups, in any order: the keys, and a column for each
        aggregation. Other arguments and exceptions are as for ``sort``.
    """
    more = {"dropna": dropna, "ddof": ddof}
    return _begin("group_by", table, (keys, aggregations), {**options, **more}, None)


def stream(
    operation: Literal["repartition", "sort", "group_by"],
    table: Any,
    /,
    *arguments: Any,
    **options: Any,
) -> Parts:
    """Return an iterator over the parts of a result; each comes when complete.

        async for part in ucp.table.stream("sort", table, "key", comm=comm):
            use(part)

    Parts of a sort are in their order. See ``Parts``.

    Args:
        operation: the name of one.
        table: its table; ``arguments`` and ``options`` are its others.
    """
    if operation not in _READ:
        raise ValueError(f"there is no operation {operation!r}, only {list(_READ)}")
    return Parts(lambda emit: _begin(operation, table, arguments, options, emit))


def read_parquet(
    path: str | PathLike[str] | Sequence[str | PathLike[str]],
    *,
    comm: Communicator,
    columns: Sequence[str] | None = None,
    filters: Any = None,
) -> Coroutine[Any, Any, Any]:
    """Read Parquet files, of which each rank gets some row groups.

    Ranks get about as many bytes each, rank 0 the first rows.

    Args:
        path: a file, a directory, whose files that end with ``.parquet`` are read in
            the order of their names, a pattern such as ``"data/*.parquet"``, in which
            ``**`` stands for any folders, or a list or tuple of these. Folders
            ``key=value`` of a directory are read, too: ``key`` is a column after those
            of the files, int64 or string. All ranks can read the files; rank 0 looks
            for them.
        comm: the communicator, all ranks of which call this.
        columns: names of those that are read, at least one; None: all.
        filters: which rows: as for ``pyarrow.parquet.read_table``.

    Returns:
        A ``pyarrow.Table``, which may have no rows.

    Raises:
        FileNotFoundError: there is no such file, or none in the directory.
        OSError: a file cannot be read.
        KeyError: there is no such column, of ``columns`` or ``filters``.
        TypeError: files have different columns, or types that have no common one, or
            are in folders of different keys.
        ValueError: a file is not a Parquet file, has two columns of a name, or is in
            two folders of a key; arguments differ between ranks; ``path`` or
            ``columns`` is empty. These five are the same on all ranks. One rank only
            raises it if a value does not fit into the type that a column has in all
            files.
        UCXRankFailed: a rank has failed, or has raised an exception.
    """

    def steps(stages: Stages) -> Coroutine[Any, Any, Any]:
        return read_files(stages, comm, path, columns, filters)

    return _calls.begin(comm, steps)


def write_parquet(
    table: Any,
    path: str | PathLike[str],
    *,
    comm: Communicator,
    overwrite: bool = False,
    **options: Any,
) -> Coroutine[Any, Any, str]:
    """Write the rows of all ranks as files of a directory, one for each rank.

    The files are ``part-00000.parquet`` and so on. When all ranks have written their
    files, rank 0 gives all files these names at once. If a rank fails or is cancelled
    before that, no file is there, and nothing has been removed. Afterwards all files
    are there, and rank 0 returns even if another rank has failed. If a writer is
    killed, the next writer to the directory removes its hidden files.

    Args:
        table: as for ``sort``; columns may be of any type.
        path: the directory, which all ranks can write to. It is made if it does not
            exist.
        comm: the communicator, all ranks of which call this.
        overwrite: remove files that end with ``.parquet``, once the new ones are
            written. False: the directory must be empty.
        options: as for ``pyarrow.parquet.write_table``, ``compression`` for example;
            the same on all ranks.

    Returns:
        The path of the file of this rank.

    Raises:
        FileExistsError: the directory is not empty, ``path`` is a file, or another
            program gives files of the directory their names.
        OSError: the directory cannot be written to.
        TypeError: it is not a table, or not the same columns on all ranks.
        ValueError: arguments differ between ranks. These are the same on all ranks.
        UCXRankFailed: a rank has failed, or has raised an exception.
    """

    def steps(stages: Stages) -> Coroutine[Any, Any, str]:
        return write_file(stages, comm, table, path, overwrite, options)

    return _calls.begin(comm, steps)
