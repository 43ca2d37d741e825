# SPDX-License-Identifier: BSD-3-Clause
"""Layers of experts whose tokens and experts are on many ranks: ``Buffer``."""

from ._blocking import SyncBuffer
from ._buffer import Buffer
from ._casts import from_fp8, to_fp8
from ._handle import Handle

__all__ = ["Buffer", "Handle", "SyncBuffer", "from_fp8", "to_fp8"]


def __dir__() -> list[str]:
    return __all__
