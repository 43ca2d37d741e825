# SPDX-License-Identifier: BSD-3-Clause
"""The low-level API of ucx-py: operations that call a function when done.

Thin faces over the extension; ``ucx_api`` has it all.
"""

# Layout:
#
#   ucx_api     what programs import, with what is of no other module
#   _worker     contexts and workers       _endpoint  endpoints, listeners
#   _memory     memory that peers read and write
#   arr         Array                      exceptions the tree of ucp
#   utils       texts and addresses        utils_test operations that wait

import importlib
from types import ModuleType

from .utils import nvtx_annotate

__all__ = ["nvtx_annotate"]

# ucx-py's programs use these after `import ucp`; they are imported then.
_ON_DEMAND = ("arr", "exceptions", "ucx_api", "utils_test")


def __getattr__(name: str) -> ModuleType:
    if name in _ON_DEMAND:
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
