# SPDX-License-Identifier: BSD-3-Clause
"""Keys that so many rows have that one rank works and the others wait."""

from __future__ import annotations

from typing import Any

# A key is told if one rank has this share of a table's rows for it.
SKEW_SHARE = 0.25
SKEW_ROWS = 10_000  # smaller tables are not looked at
_SAMPLE = 1000  # rows of a partition


def frequent_key(keys: Any, least: float) -> tuple[str, int] | None:
    """A key that at least as many rows have, and how many."""
    import pyarrow as pa

    try:
        step = max(1, keys.num_rows // _SAMPLE)
        sample = _count_rows(keys.take(list(range(0, keys.num_rows, step))))
        if sample[1] * step < 0.8 * least:
            return None
        row, exact = _count_rows(keys)
    except pa.ArrowException:  # Arrow does not group by every type
        return None
    if exact < least:
        return None
    return ", ".join(_show(column[0]) for column in row.columns), exact


def _count_rows(keys: Any) -> tuple[Any, int]:
    """The most frequent row, as a table, and how many there are of it."""
    names = [str(number) for number in range(keys.num_columns)]
    groups = keys.rename_columns(names).group_by(names, use_threads=False)
    counts = groups.aggregate([([], "count_all")])
    most = counts.sort_by([("count_all", "descending")]).slice(0, 1)
    return most.select(names), most["count_all"][0].as_py()


def _show(value: Any) -> str:
    try:
        return repr(value.as_py())
    except Exception:  # Python has no such date, or the string is no UTF-8
        return f"of type {value.type}"
