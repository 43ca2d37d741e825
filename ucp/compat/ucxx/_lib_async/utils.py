# SPDX-License-Identifier: BSD-3-Clause
"""``ucxx._lib_async.utils``"""

from ...ucxpy.utils import get_event_loop, hash64bits

__all__ = ["get_event_loop", "hash64bits"]
