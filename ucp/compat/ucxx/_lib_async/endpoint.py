# SPDX-License-Identifier: BSD-3-Clause
"""``ucxx._lib_async.endpoint``"""

from .._endpoint import Endpoint

__all__ = ["Endpoint"]
