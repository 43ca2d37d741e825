# SPDX-License-Identifier: BSD-3-Clause
"""Arrays of the low-level API of ucx-py."""

from ..compat.ucxpy.libs.arr import *  # noqa: F403
from ..compat.ucxpy.libs.arr import __all__ as __all__
