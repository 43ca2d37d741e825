# SPDX-License-Identifier: BSD-3-Clause
"""Shuffles: what all ranks have for a partition comes to its owner, or is read by
whoever wants it."""

import warnings

from .._data.partition import (
    Partitions,
    hash_partition,
    range_partition,
    read_partition,
)
from .._ext import Chunk, MapBlock
from ._memory_cache import MemoryCache
from ._outputs import MapOutput, MapOutputs
from ._reader import Reader, ReaderStatistics
from ._shuffler import Shuffler, ShuffleStatistics
from ._staging import StagingQueue, StagingStatistics, pack_tag
from ._writer import Writer

__all__ = [
    "Chunk",
    "MapBlock",
    "MapOutput",
    "MapOutputs",
    "MemoryCache",
    "Partitions",
    "Reader",
    "ReaderStatistics",
    "ShuffleStatistics",
    "Shuffler",
    "StagingQueue",
    "StagingStatistics",
    "Writer",
    "hash_partition",
    "pack_tag",
    "range_partition",
    "read_partition",
]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> object:
    if name == "Store":
        warnings.warn(
            "ucp.shuffle.Store is ucp.shuffle.MemoryCache now",
            DeprecationWarning,
            stacklevel=2,
        )
        return MemoryCache
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
