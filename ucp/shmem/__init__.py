# SPDX-License-Identifier: BSD-3-Clause
"""Symmetric heaps, as OpenSHMEM has them: memory of the ranks of a communicator, in
which all allocate alike, and which each reads and writes at every other one."""

# Layout:
#
#   array   arrays in a heap
#   heap    heaps
#
# ucp.sync has both with calls that wait.

from .array import SymmetricArray
from .heap import SymmetricHeap

__all__ = ["SymmetricArray", "SymmetricHeap"]


def __dir__() -> list[str]:
    return __all__
