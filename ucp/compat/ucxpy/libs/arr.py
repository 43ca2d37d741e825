# SPDX-License-Identifier: BSD-3-Clause
"""Memory of objects, with its layout."""

from typing import Any

from ...._ext import Array

__all__ = ["Array", "asarray"]


def asarray(obj: Any) -> Array[Any]:
    """``obj`` if it is an Array, else the Array of its memory."""
    return obj if isinstance(obj, Array) else Array(obj)
