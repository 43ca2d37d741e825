# SPDX-License-Identifier: BSD-3-Clause
"""Texts and addresses of the low-level API of ucx-py."""

from ..compat.ucxpy.libs.utils import *  # noqa: F403
from ..compat.ucxpy.libs.utils import __all__ as __all__
