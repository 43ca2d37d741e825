# SPDX-License-Identifier: BSD-3-Clause
"""Arguments that several calls have."""

from __future__ import annotations

import operator
import os
from collections.abc import Sequence
from os import PathLike
from typing import NamedTuple

from ..shuffle import MemoryCache

Names = str | Sequence[str]


class Memories(NamedTuple):
    """What a call may use: arguments of every call."""

    budget: int | None
    spill_dir: str | PathLike[str] | None
    cache: MemoryCache | None


def known_names(value: Names, argument: str) -> tuple[str, ...]:
    """Names of columns; ``argument`` is what errors call them."""
    names = (value,) if isinstance(value, str) else tuple(value)
    if not names:
        raise ValueError(f"{argument} names no column")
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"{argument} has {name!r}, which is no name")
    if len(set(names)) < len(names):
        raise ValueError(f"{argument} has a name twice: {list(names)}")
    return names


def known_seed(seed: int) -> int:
    """The seed of a hash."""
    seed = operator.index(seed)
    if not 0 <= seed < 2**64:
        raise ValueError(f"seed is {seed}, not 0 to 2**64 - 1")
    return seed


def known_memories(
    budget: int | None,
    spill_dir: str | PathLike[str] | None,
    cache: MemoryCache | None,
) -> Memories:
    """What a call may use, after checks."""
    if budget is not None:
        budget = operator.index(budget)
        if not 1 <= budget < 2**63:
            raise ValueError(f"budget is {budget}, not 1 to 2**63 - 1")
    if spill_dir is not None and not os.access(spill_dir, os.W_OK | os.X_OK):
        raise OSError(f"spill_dir, {os.fspath(spill_dir)!r}, cannot be written to")
    if spill_dir is not None and not os.path.isdir(spill_dir):
        raise OSError(f"spill_dir, {os.fspath(spill_dir)!r}, is no directory")
    if not isinstance(cache, MemoryCache | None):
        raise TypeError(f"cache must be a MemoryCache, not {type(cache).__name__}")
    return Memories(budget, spill_dir, cache)
