# SPDX-License-Identifier: BSD-3-Clause
"""Whether Dask has what shuffles over ucp need of it."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from importlib.metadata import PackageNotFoundError, version

# Versions of distributed, whose tests are run: the first, and the first after.
TESTED = ((2026, 8), (2026, 9))

# What is used of Dask that its documentation does not have.
SEMI_PUBLIC = {
    "dask._task_spec": ("Alias", "List", "Task", "Task.block_fusion", "TaskRef"),
    "dask.context": ("thread_state",),
    "dask.dataframe.dask_expr._collection": ("new_collection",),
    "dask.dataframe.dask_expr._expr": (
        "Expr.deterministic_token",
        "Expr.operand",
        "Expr.substitute",
        "Expr.walk",
        "Expr._funcname",
        "Expr._filter_passthrough_available",
        "Expr._filter_simplification",
        "Filter",
        "PartitionsFiltered",
        "Projection",
        "determine_column_projection",
    ),
    "dask.dataframe.dask_expr._groupby": (
        "DecomposableGroupbyAggregation",
        "GroupbyAggregation",
        "GroupbyAggregation._is_decomposable",
        "HolisticGroupbyAggregation",
    ),
    "dask.dataframe.dask_expr._merge": (
        "Merge",
        "Merge.is_broadcast_join",
        "Merge.merge_indexed_left",
        "Merge.merge_indexed_right",
        "Merge._is_single_partition_broadcast",
        "Merge._lower",
    ),
    "dask.dataframe.dask_expr._reductions": (
        "Aggregate",
        "ApplyConcatApply._chunk_cls",
        "ApplyConcatApply._chunk_cls_args",
    ),
    "dask.dataframe.dask_expr._shuffle": ("ShuffleBase", "ShuffleBase._simplify_up"),
    "dask.dataframe.dispatch": ("hash_object_dispatch", "meta_nonempty"),
    "dask.dataframe.methods": ("concat",),
    "dask.dataframe.multi": ("merge_chunk",),
    "distributed.core": ("Status.closing_gracefully",),
    "distributed.metrics": ("time",),
    "distributed.protocol.pickle": ("dumps",),
    "distributed.scheduler": (
        "Scheduler.broadcast",
        "Scheduler.register_worker_plugin",
        "Scheduler.send_all",
        "Scheduler.set_restrictions",
        "Scheduler.stimulus_queue_slots_maybe_opened",
        "Scheduler.transitions",
        "Scheduler.unregister_worker_plugin",
        "TaskState.dependencies",
        "TaskState.dependents",
        "TaskState.run_spec",
        "TaskState.worker_restrictions",
    ),
    "distributed.worker_memory": ("WorkerMemoryManager",),
}


@functools.cache
def missing() -> str | None:
    """Why shuffles over ucp are not possible; None: they are."""
    for name in ("pandas", "pyarrow"):
        if importlib.util.find_spec(name) is None:
            return f"{name} is not installed"
    try:
        found = version("distributed")
    except PackageNotFoundError:
        return "distributed is not installed"
    numbers = tuple(int(part) for part in found.split(".")[:2] if part.isdigit())
    first, after = TESTED
    if not first <= numbers < after:
        return f"distributed {found} has not been tested"
    for module, names in SEMI_PUBLIC.items():
        for name in names:
            if not has(module, name):
                return f"distributed {found} has no {module}.{name}"
    return None


def has(module: str, name: str) -> bool:
    """Has it an attribute of this name, which may be of a class in it?"""
    try:
        found: object = importlib.import_module(module)
    except ImportError:
        return False
    for part in name.split("."):
        if not hasattr(found, part):
            return False
        found = getattr(found, part)
    return True
