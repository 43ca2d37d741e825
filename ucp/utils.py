# SPDX-License-Identifier: BSD-3-Clause
"""Helpers, where programs of ucx-py look for them."""

from .compat.ucxpy.utils import *  # noqa: F403
from .compat.ucxpy.utils import __all__ as __all__
from .compat.ucxpy.utils import __dir__ as __dir__
