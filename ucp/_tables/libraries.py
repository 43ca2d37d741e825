# SPDX-License-Identifier: BSD-3-Clause
"""Which libraries are installed that work on the rows of a rank."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util

# Versions that have what is used here.
_LEAST = {"polars": (1, 23), "duckdb": (1, 0)}


@functools.cache
def is_installed(module: str) -> bool:
    """Can the library be used? It is not loaded."""
    if importlib.util.find_spec(module) is None:
        return False
    try:
        version = importlib.metadata.version(module)
        numbers = tuple(int(part) for part in version.split(".")[:2])
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return False
    return numbers >= _LEAST[module]
