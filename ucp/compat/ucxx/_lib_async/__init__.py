# SPDX-License-Identifier: BSD-3-Clause
"""``ucxx._lib_async``: the classes of the asynchronous API."""

from ..core import ApplicationContext
from .endpoint import Endpoint
from .listener import Listener

__all__ = ["ApplicationContext", "Endpoint", "Listener"]
