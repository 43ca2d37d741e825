# SPDX-License-Identifier: BSD-3-Clause
"""The functions and classes of ``ucp``, where programs of ucx-py look for them."""

from .compat.ucxpy.core import *  # noqa: F403
from .compat.ucxpy.core import __all__ as __all__
from .compat.ucxpy.core import __dir__ as __dir__
from .compat.ucxpy.core import __getattr__ as __getattr__
from .compat.ucxpy.core import _get_ctx as _get_ctx
