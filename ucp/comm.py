# SPDX-License-Identifier: BSD-3-Clause
"""Operations as asyncio's futures, where programs of ucx-py look for them."""

from .compat.ucxpy.comm import *  # noqa: F403
from .compat.ucxpy.comm import __all__ as __all__
from .compat.ucxpy.comm import __dir__ as __dir__
