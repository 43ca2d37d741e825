# SPDX-License-Identifier: BSD-3-Clause
"""Operations of the low-level API of ucx-py that wait."""

from ..compat.ucxpy.libs.utils_test import *  # noqa: F403
from ..compat.ucxpy.libs.utils_test import __all__ as __all__
