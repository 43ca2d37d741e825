# SPDX-License-Identifier: BSD-3-Clause
"""Joins of tables whose rows are on the ranks of a communicator.

    result = await ucp.join.inner(left, right, on="key", comm=comm)
    use(result.table)

Every rank gives the rows that it has, and gets some rows of the result. All ranks
call the same join, one at a time on a communicator. docs/joins.md has an
introduction.
"""

from __future__ import annotations

import operator
import time
import warnings
from collections.abc import Coroutine
from os import PathLike
from typing import Any, Literal, NamedTuple, Required, TypedDict, Unpack, get_args

from .._communicator.communicator import Communicator
from .._tables.begun import Begun
from .._tables.calls import Calls
from .._tables.frames import is_frame, library_of, to_arrow
from .._tables.options import (
    Memories,
    Names,
    known_memories,
    known_names,
    known_seed,
)
from .._tables.parts import Emit, Parts
from .._tables.schemas import check_columns, describe_failure
from .._tables.spans import PeerBytes, Span
from .._tables.stages import Stages
from ..shuffle import MemoryCache
from ._engines import DuckDBJoin, PolarsJoin
from ._local import ArrowJoin, CudfJoin, How, JoinSpec, LocalJoin, PandasJoin
from ._one_rank import AGREE, ENDS, ROWS, JoinRun
from ._plan import Call, describe, make_plan, name_of
from ._statistics import JoinStatistics, explain, gather_statistics, plot

__all__ = [
    "ArrowJoin",
    "CudfJoin",
    "DuckDBJoin",
    "JoinOptions",
    "JoinResult",
    "JoinSpec",
    "JoinStatistics",
    "LocalJoin",
    "PandasJoin",
    "Parts",
    "PeerBytes",
    "PolarsJoin",
    "Span",
    "anti",
    "explain",
    "gather_statistics",
    "inner",
    "left",
    "outer",
    "plot",
    "right",
    "semi",
    "stream",
]


def __dir__() -> list[str]:
    return __all__


Strategy = Literal["auto", "shuffle", "broadcast"]
_STRATEGIES = ("auto", "shuffle", "broadcast")
_HOWS = get_args(How)

_joins = Calls("join", (AGREE, ROWS, ENDS))


class JoinResult(NamedTuple):
    """The result of a join on a rank.

    Attributes:
        table: the rows of the result that this rank has made: a ``DataFrame`` of
            pandas or polars if a table was one, a ``pyarrow.Table``, or what the
            local join makes.
        statistics: what was done.
    """

    table: Any
    statistics: JoinStatistics


class JoinOptions(TypedDict, total=False):
    """The arguments of every join behind the tables: see ``inner``."""

    comm: Required[Communicator]
    on: Names | None
    left_on: Names | None
    right_on: Names | None
    suffixes: tuple[str | None, str | None]
    strategy: Strategy
    over_decomposition: int | None
    seed: int
    local: LocalJoin | None
    budget: int | None
    spill_dir: str | PathLike[str] | None
    cache: MemoryCache | None


def _join(
    how: How, left: Any, right: Any, /, *, comm: Communicator, **options: Any
) -> Coroutine[Any, Any, JoinResult]:
    return _begin(how, left, right, comm, options, None)


def _begin(
    how: How,
    left: Any,
    right: Any,
    comm: Communicator,
    options: dict[str, Any],
    emit: Emit | None,
) -> Begun[Any]:
    """The coroutine of a join, whose parts go to ``emit``, if it is not None."""

    def steps(stages: Stages) -> Coroutine[Any, Any, JoinResult | None]:
        return _join_stages(how, left, right, comm, options, stages, emit)

    return _joins.begin(comm, steps)


async def _join_stages(
    how: How,
    left: Any,
    right: Any,
    comm: Communicator,
    options: dict[str, Any],
    stages: Stages,
    emit: Emit | None,
) -> JoinResult | None:
    begun = time.monotonic()
    tables: list[Any] = []
    local: LocalJoin | None = None
    is_given = False
    cause: Exception | None = None
    try:
        call, memories, local = _read_options(how, **options)
        is_given = local is not None
        if local is None and (is_frame(left) or is_frame(right)):
            local = PandasJoin()
        elif local is None and not (left is None and right is None):
            local = ArrowJoin()
        for table, side in ((left, "left"), (right, "right")):
            arrow = to_arrow(table, side)
            if arrow is not None:
                check_columns(arrow, side)
            tables.append(arrow)
        libraries = [library_of(left), library_of(right)]
        mine = describe(call, name_of(local), is_given, tables, libraries)
    except Exception as error:  # whatever code of a table raises, too
        cause = error
        mine = describe_failure(error)
    said = await stages.tell_all(mine, AGREE)
    try:
        plan = make_plan(said, comm.rank, local if is_given else None)
    except Exception as error:
        raise error from cause
    run = JoinRun(stages, comm, plan, call.seed, memories, begun)
    if emit is not None:
        await run.stream((tables[0], tables[1]), emit)
        return None
    return JoinResult(*await run.run((tables[0], tables[1])))


def _read_options(
    how: How,
    /,
    *,
    on: Names | None = None,
    left_on: Names | None = None,
    right_on: Names | None = None,
    suffixes: tuple[str | None, str | None] = ("_x", "_y"),
    strategy: Strategy = "auto",
    over_decomposition: int | None = None,
    seed: int = 0,
    local: LocalJoin | None = None,
    budget: int | None = None,
    spill_dir: str | PathLike[str] | None = None,
    cache: MemoryCache | None = None,
    store: MemoryCache | None = None,
    **unknown: Any,
) -> tuple[Call, Memories, LocalJoin | None]:
    if unknown:
        name = next(iter(unknown))
        hint = f": call ucp.join.{unknown[name]}()" if name == "how" else ""
        raise TypeError(f"{how}() has no argument {name!r}{hint}")
    first, second = _key_names(on, left_on, right_on)
    call = Call(
        how,
        first,
        second,
        _two_suffixes(suffixes),
        _known_strategy(strategy),
        None if over_decomposition is None else operator.index(over_decomposition),
        known_seed(seed),
    )
    if store is not None:
        cache = _cache_of_store(cache, store)
    return call, known_memories(budget, spill_dir, cache), _known_local(local)


def _key_names(
    on: Names | None, left_on: Names | None, right_on: Names | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if on is not None:
        if left_on is not None or right_on is not None:
            raise ValueError("give on, or left_on and right_on")
        names = known_names(on, "on")
        return names, names
    if left_on is None or right_on is None:
        raise ValueError("give on, or left_on and right_on")
    first = known_names(left_on, "left_on")
    second = known_names(right_on, "right_on")
    if len(first) != len(second):
        raise ValueError(
            f"left_on has {len(first)} columns, right_on has {len(second)}"
        )
    return first, second


def _two_suffixes(suffixes: tuple[str | None, str | None]) -> tuple[str, str]:
    found = tuple("" if one is None else one for one in suffixes)
    if len(found) != 2 or not all(isinstance(one, str) for one in found):
        raise ValueError(f"suffixes are {suffixes!r}, not two strings")
    return found


def _known_local(local: LocalJoin | None) -> LocalJoin | None:
    is_one = callable(getattr(local, "join", None)) and hasattr(local, "concat")
    if local is not None and (isinstance(local, type | str) or not is_one):
        shown = local.__name__ if isinstance(local, type) else repr(local)
        hint = f": give {shown}()" if isinstance(local, type) and is_one else ""
        raise TypeError(
            f"local must be an object with the methods of ucp.join.LocalJoin, such as "
            f"ucp.join.ArrowJoin(), not {shown}{hint}"
        )
    return local


def _known_strategy(strategy: str) -> str:
    if strategy not in _STRATEGIES:
        raise ValueError(f"strategy is {strategy!r}, not one of {_STRATEGIES}")
    return strategy


def _cache_of_store(cache: MemoryCache | None, store: MemoryCache) -> MemoryCache:
    """The cache of a program that still calls it ``store``."""
    if cache is not None:
        raise TypeError("give cache, not store, which is its old name")
    # The caller has awaited inner(), that _join(), and that _join_alone().
    warnings.warn("store= of a join is cache= now", DeprecationWarning, stacklevel=6)
    return store


def inner(
    left: Any, right: Any, **options: Unpack[JoinOptions]
) -> Coroutine[Any, Any, JoinResult]:
    """Join two tables: the rows of both whose keys are equal.

    Args:
        left: the rows that this rank has: a ``pyarrow.Table`` or ``RecordBatch``, an
            object with ``__arrow_c_stream__``, a pandas ``DataFrame``, a dict of
            arrays; or None for no rows.
        right: the same.
        comm: the communicator, all ranks of which call this.
        on: name of the key column, or names, in both tables.
        left_on, right_on: the same for each table. Types that differ only in their
            width are made equal.
        suffixes: what is appended to the names of other columns that both have; None
            is nothing.
        strategy: ``"shuffle"``: rows with equal keys come to the same rank;
            ``"broadcast"``: the smaller table comes to every rank; ``"auto"``: the
            one that is estimated to be faster.
        over_decomposition: partitions of each rank. One can be joined while others
            come. None: as many as fit the processor's cache.
        seed: of the hash: see ``ucp.shuffle.hash_partition``.
        local: joins the rows of a rank. None: ``PandasJoin`` if a table is a
            ``DataFrame`` of pandas; else ``PolarsJoin``, ``DuckDBJoin`` or
            ``ArrowJoin``, the first that all ranks have installed. Tables of
            fewer than 200 000 rows, and keys that these two do not join as Arrow
            does, are joined by Arrow. The result does not depend on it.
        budget: bytes of memory for partitions; None: no limit. The tables are
            partitioned in pieces of an eighth of it, or of 1 MiB. Without
            ``spill_dir`` it limits only what comes over a network.
        spill_dir: a directory for a file of what the budget does not hold.
        cache: memory that is used again by the next join; None: new memory.

    Returns:
        The rows of the result that this rank has made, and statistics.

    Raises:
        KeyError: a key column does not exist.
        TypeError: tables, types or keys that cannot be joined.
        ValueError: arguments that make no sense, or differ between ranks.
        OSError: ``spill_dir`` cannot be written to. These four are the same on all
            ranks, and raised before rows are sent.
        UCXBusy: a join is under way on the communicator.
        UCXError: the budget does not hold what comes over a network, and there is
            no ``spill_dir``; or the file there cannot grow: the text names the
            directory, and ``errno`` says why.
        UCXRankFailed: a rank has failed, or its join has raised an exception.

    Warns:
        UCXWarning: a quarter of a table's rows has one key; the text names it.
    """
    return _join("inner", left, right, **options)


def left(
    left: Any, right: Any, **options: Unpack[JoinOptions]
) -> Coroutine[Any, Any, JoinResult]:
    """Join two tables: all rows of the left table, each with the rows of the right
    table that have the same key.

    Arguments and exceptions are as for ``inner()``.
    """
    return _join("left", left, right, **options)


def right(
    left: Any, right: Any, **options: Unpack[JoinOptions]
) -> Coroutine[Any, Any, JoinResult]:
    """Join two tables: all rows of the right table, each with the rows of the left
    table that have the same key.

    Arguments and exceptions are as for ``inner()``.
    """
    return _join("right", left, right, **options)


def outer(
    left: Any, right: Any, **options: Unpack[JoinOptions]
) -> Coroutine[Any, Any, JoinResult]:
    """Join two tables: all rows of both.

    Arguments and exceptions are as for ``inner()``.
    """
    return _join("outer", left, right, **options)


def semi(
    left: Any, right: Any, **options: Unpack[JoinOptions]
) -> Coroutine[Any, Any, JoinResult]:
    """Return the rows of the left table whose key is in the right table.

    Arguments and exceptions are as for ``inner()``.
    """
    return _join("semi", left, right, **options)


def anti(
    left: Any, right: Any, **options: Unpack[JoinOptions]
) -> Coroutine[Any, Any, JoinResult]:
    """Return the rows of the left table whose key is not in the right table.

    Arguments and exceptions are as for ``inner()``.
    """
    return _join("anti", left, right, **options)


def stream(how: How, left: Any, right: Any, /, **options: Unpack[JoinOptions]) -> Parts:
    """Return an iterator over the parts of a join's result; each comes when complete.

        async for part in ucp.join.stream("inner", left, right, on="key", comm=comm):
            use(part)

    A part is the result of the local join of a partition. With pandas the dtype of a
    column may differ from part to part, because it depends on the rows of the part.
    See ``Parts``.

    Args:
        how: ``"inner"``, ``"left"``, ``"right"``, ``"outer"``, ``"semi"`` or
            ``"anti"``. Other arguments and exceptions are as for ``inner()``.
    """
    if how not in _HOWS:
        raise ValueError(f"how is {how!r}, not one of {_HOWS}")
    others: dict[str, Any] = dict(options)
    if "comm" not in others:
        raise TypeError("stream() needs the argument 'comm'")
    comm = others.pop("comm")
    return Parts(lambda emit: _begin(how, left, right, comm, others, emit))
