# SPDX-License-Identifier: BSD-3-Clause
"""``ucxx._lib.arr``: memory of objects, with its layout."""

from ...ucxpy.libs.arr import Array, asarray

__all__ = ["Array", "asarray"]
