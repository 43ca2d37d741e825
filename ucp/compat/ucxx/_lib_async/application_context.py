# SPDX-License-Identifier: BSD-3-Clause
"""``ucxx._lib_async.application_context``"""

from ..core import ApplicationContext

__all__ = ["ApplicationContext"]
