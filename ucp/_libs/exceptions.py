# SPDX-License-Identifier: BSD-3-Clause
"""Exceptions of the low-level API of ucx-py."""

from ..compat.ucxpy.libs.exceptions import *  # noqa: F403
from ..compat.ucxpy.libs.exceptions import __all__ as __all__
