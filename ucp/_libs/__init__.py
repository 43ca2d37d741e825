# SPDX-License-Identifier: BSD-3-Clause
"""The low-level API of ucx-py by its own path; see ``ucp.compat.ucxpy.libs``."""

import importlib
from types import ModuleType

from .utils import nvtx_annotate

__all__ = ["nvtx_annotate"]

# Programs of ucx-py use these after `import ucp`; they are imported then.
_ON_DEMAND = ("arr", "exceptions", "topological_distance", "ucx_api", "utils_test")


def __getattr__(name: str) -> ModuleType:
    if name in _ON_DEMAND:
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
