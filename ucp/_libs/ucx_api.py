# SPDX-License-Identifier: BSD-3-Clause
"""The calls and classes of the low-level API of ucx-py."""

from ..compat.ucxpy.libs.ucx_api import *  # noqa: F403
from ..compat.ucxpy.libs.ucx_api import __all__ as __all__
