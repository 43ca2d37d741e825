# SPDX-License-Identifier: BSD-3-Clause
"""``ucxx._lib_async.listener``"""

from .._endpoint import Listener

__all__ = ["Listener"]
