# SPDX-License-Identifier: BSD-3-Clause
"""Shuffles: what all ranks have for a partition comes to its owner."""

from .._data.partition import Partitions, hash_partition, read_partition
from .._ext import Chunk
from ._shuffler import Shuffler, ShuffleStatistics
from ._staging import StagingQueue, StagingStatistics, pack_tag
from ._memory_cache import Store

__all__ = [
    "Chunk",
    "Partitions",
    "ShuffleStatistics",
    "Shuffler",
    "StagingQueue",
    "StagingStatistics",
    "Store",
    "hash_partition",
    "pack_tag",
    "read_partition",
]
