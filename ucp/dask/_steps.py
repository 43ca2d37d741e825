# SPDX-License-Identifier: BSD-3-Clause
"""The tasks of a shuffle, as functions and as parts of a graph."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from dask._task_spec import Alias, List, Task, TaskRef

from .._data.partition import count_rows, read_partition
from ._frames import decode, encode
from ._keys import Keys
from ._order import Order
from ._tasks import (
    BarrierTask,
    ExtractTask,
    Inserted,
    Passed,
    ShuffleSpec,
    barrier_key,
    collect,
)
from ._worker_plugin import worker_plugin
from ._worker_shuffle import Run


class Side(NamedTuple):
    """A frame that is shuffled.

    Attributes:
        meta: its ``_meta``.
        keys: by what it is partitioned.
        with_index: its index moves, too.
    """

    meta: Any
    keys: Keys | Order
    with_index: bool


def check_types(side: Side, instead: str) -> None:
    """Refuse what does not move.

    Raises:
        NotImplementedError: and what can be used instead.
    """
    from dask.dataframe.dispatch import meta_nonempty

    frame = meta_nonempty(side.meta)
    try:
        extra, divide = side.keys.method(frame, 1, None)
        table, layout = encode(frame, side.with_index, extra)
        parts = divide(bytearray, table)
        decode([(read_partition(parts.buffer(0), layout.schema), layout)], side.meta)
    except (TypeError, ValueError, NotImplementedError) as exc:
        raise NotImplementedError(f"{exc}; use {instead}") from exc


def insert(
    frame: Any,
    spec: ShuffleSpec,
    table: int,
    number: int,
    keys: Keys | Order,
    with_index: bool,
    splitters: Any,
) -> Inserted:
    """Task: partition the rows of a frame, for the owners of the partitions."""
    extra, divide = keys.method(frame, spec.num_partitions, splitters)
    data, layout = encode(frame, with_index, extra)
    packed = pickle.dumps(layout)
    with worker_plugin().inserting(spec) as run:
        return run.insert(
            spec, table, number, lambda allocate: divide(allocate, data), packed
        )


def barrier(spec: ShuffleSpec, inserts: Sequence[Inserted]) -> Passed:
    """Task: all has been inserted."""
    passed = collect(spec, inserts)
    is_one = len({one.run_id for one in inserts}) == 1
    worker_plugin().finish_all(spec, passed, is_one)
    return passed


def extract(
    spec: ShuffleSpec, partition: int, passed: Passed, metas: Sequence[Any]
) -> list[Any]:
    """The rows of a partition: for each table a frame, in the order of the inserts."""
    with worker_plugin().extracting(spec, passed, partition) as run:
        return [
            _extract(run, table, partition, passed, meta)
            for table, meta in enumerate(metas)
        ]


def _extract(run: Run, table: int, partition: int, passed: Passed, meta: Any) -> Any:
    chunks = run.extract(table, partition)
    try:
        return _decode(run, passed.inserted[table], chunks, passed, meta)
    finally:
        run.release(chunks)


def _decode(
    run: Run,
    inserted: dict[int, list[tuple[int, int]]],
    chunks: list[Any],
    passed: Passed,
    meta: Any,
) -> Any:
    places = dict.fromkeys(inserted, 0)
    found = []
    for chunk in chunks:
        number, layout = inserted[chunk.source][places[chunk.source]]
        places[chunk.source] += 1
        found.append((number, chunk, run.layout(passed, layout)))
    found.sort(key=lambda one: one[0])
    # Parts without rows would take as long as others, and are many of small frames.
    found = [one for one in found if count_rows(one[1])] or found[:1]
    parts = [
        (read_partition(chunk, layout.schema), layout) for _, chunk, layout in found
    ]
    return decode(parts, meta)


def make_graph(
    name: str,
    spec: ShuffleSpec,
    frames: Sequence[tuple[str, int]],
    sides: Sequence[Side],
    function: Callable[..., Any],
    arguments: Sequence[Any],
    splitters: Any = None,
) -> dict[Any, Any]:
    """The tasks of a shuffle.

    Args:
        name: of the expression, and of what is extracted.
        spec: of the shuffle.
        frames: the names of what is inserted, and how many partitions each has.
        sides: how they are inserted.
        function: the task ``function(spec, partition, passed, *arguments)`` that
            extracts a partition.
        arguments: of it.
        splitters: by what rows are partitioned, or a task of them.
    """
    graph: dict[Any, Any] = {}
    inserts = []
    for table, ((frame, count), side) in enumerate(zip(frames, sides, strict=True)):
        for number in range(count):
            task = Task(
                (f"ucp-insert-{table}-{spec.id}", number),
                insert,
                TaskRef((frame, number)),
                spec,
                table,
                number,
                side.keys,
                side.with_index,
                splitters,
            )
            graph[task.key] = task
            inserts.append(task.ref())
    passed = BarrierTask(barrier_key(spec.id), barrier, spec, List(*inserts))
    graph[passed.key] = passed
    extracts: dict[int, Any] = {}
    for number, partition in enumerate(spec.outputs):
        key = (name, number)
        if partition in extracts:
            graph[key] = Alias(key, extracts[partition])
            continue
        extracts[partition] = key
        graph[key] = ExtractTask(
            key, function, spec, partition, passed.ref(), *arguments
        )
    return graph
