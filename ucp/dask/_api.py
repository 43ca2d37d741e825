# SPDX-License-Identifier: BSD-3-Clause
"""Frames of Dask that are shuffled over ucp."""

from __future__ import annotations

import importlib
import operator
import warnings
from collections.abc import Sequence
from typing import Any

from ..exceptions import UCXWarning
from . import _support


def bootstrap(client: Any) -> Any:
    """Prepare a cluster for ``merge()`` and the other functions.

    Registers a plugin with the scheduler, which registers one with every worker,
    now or later. Their comm protocol may be any; ``ucp`` has to be installed on all
    of them. A cluster that is prepared stays as it is.

    If Dask's version has not been tested, the cluster is not changed: that gives a
    ``UCXWarning``, and the functions return the frames of Dask's own methods.

    Args:
        client: a ``distributed.Client``.

    Returns:
        None; of an asynchronous client an awaitable.
    """
    reason = _support.missing()
    if reason is not None:
        text = f"{reason}: frames are shuffled by Dask's own methods"
        warnings.warn(text, UCXWarning, stacklevel=2)
        return _nothing() if client.asynchronous else None
    plugin = _module("_scheduler_plugin").ShuffleSchedulerPlugin()
    return client.register_plugin(plugin)


def _known_count(npartitions: Any) -> int | None:
    """How many partitions are wanted."""
    if npartitions is None:
        return None
    try:
        count = operator.index(npartitions)
    except TypeError:
        count = 0
    if count < 1:
        raise ValueError(f"npartitions is {npartitions!r}, not a number from 1 on")
    return count


def merge(
    left: Any,
    right: Any,
    how: str = "inner",
    on: Any = None,
    left_on: Any = None,
    right_on: Any = None,
    left_index: bool = False,
    right_index: bool = False,
    suffixes: tuple[str, str] = ("_x", "_y"),
    indicator: bool | str = False,
    npartitions: int | None = None,
) -> Any:
    """Merge two frames by their keys: ``left.merge(right, ...)`` over ucp.

    Args:
        left: a frame of Dask, or of pandas.
        right: the same.
        how: ``"inner"``, ``"left"``, ``"right"``, ``"outer"`` or ``"leftsemi"``.
        npartitions: of the result; None: as many as the frame with more has.

    Other arguments, and the result, are those of Dask's method. Merges that need no
    shuffle are made as there.

    Raises:
        NotImplementedError: there is a column whose type does not move.
        ValueError: ``npartitions`` is no number from 1 on.
    """
    arguments = {
        "how": how,
        "on": on,
        "left_on": left_on,
        "right_on": right_on,
        "left_index": left_index,
        "right_index": right_index,
        "suffixes": suffixes,
        "indicator": indicator,
        "npartitions": _known_count(npartitions),
    }
    if _support.missing() is not None:
        return importlib.import_module("dask.dataframe").merge(left, right, **arguments)
    return _module("_merge").merge(left, right, **arguments)


def shuffle(
    ddf: Any,
    on: str | Sequence[str],
    npartitions: int | None = None,
    ignore_index: bool = False,
) -> Any:
    """Bring rows with equal keys to one partition: ``ddf.shuffle(...)`` over ucp.

    Args:
        ddf: a frame of Dask.
        on: label or labels of columns, or of levels of the index.
        npartitions: of the result; None: as many as the frame has.
        ignore_index: the index is not moved.

    Rows of a partition are in the order of the frame's partitions and rows.

    Raises:
        KeyError: there is no such column.
        NotImplementedError: there is a column whose type does not move.
    """
    npartitions = _known_count(npartitions)
    if _support.missing() is not None:
        return ddf.shuffle(on=on, npartitions=npartitions, ignore_index=ignore_index)
    return _module("_shuffle").shuffle(ddf, on, npartitions, ignore_index)


def sort_values(
    ddf: Any,
    by: str | list[str],
    npartitions: int | str | None = None,
    ascending: bool | list[bool] = True,
    na_position: str = "last",
    ignore_index: bool = False,
) -> Any:
    """Sort a frame: ``ddf.sort_values(by, ...)`` over ucp.

    Nothing is computed before the result is: where partitions begin is found by
    tasks of the graph.

    Args:
        ddf: a frame of Dask.
        by: label of a column, or labels. The first decides to which partition a row
            belongs: those with equal values are in one.
        npartitions: of the result; None: as many as the frame has.
        ascending: for all columns, or for each.
        na_position: ``"first"`` or ``"last"``.
        ignore_index: the index is not moved; each partition has one of its own.

    Raises:
        KeyError: there is no such column.
        NotImplementedError: there is a column whose type does not move, or that has
            no order.
        ValueError: an argument makes no sense.
    """
    if npartitions != "auto":
        npartitions = _known_count(npartitions)
    if _support.missing() is not None:
        return ddf.sort_values(
            by, npartitions, ascending, na_position, ignore_index=ignore_index
        )
    return _module("_sort").sort_values(
        ddf, by, ascending, na_position, npartitions, ignore_index
    )


def groupby(
    ddf: Any,
    by: Any,
    observed: bool | None = None,
    dropna: bool | None = None,
) -> Any:
    """Group the rows of a frame: ``groupby(ddf, by).agg(spec)`` over ucp.

    Args:
        ddf: a frame of Dask.
        by: label of a column, or labels.
        observed: as in Dask. False: a category that no row has is a group, too, and
            comes once in the result. None: the default of pandas.
        dropna: as in Dask.

    Returns:
        An object whose method ``agg(spec, npartitions=None)`` returns a frame of
        Dask. Dask's functions reduce each partition before its rows move, and again
        afterwards. The groups of a partition of the result may be in any order.

    Raises:
        KeyError: there is no such column.
        NotImplementedError: ``by`` is not a label or a list of labels.
    """
    if _support.missing() is not None:
        return ddf.groupby(by, observed=observed, dropna=dropna)
    return _module("_groupby").GroupBy(ddf, by, observed, dropna)


async def _nothing() -> None:
    """What a client that is asynchronous waits for."""


def _module(name: str) -> Any:
    """A module that needs pandas, pyarrow and Dask's frames."""
    return importlib.import_module(f".{name}", __package__)
