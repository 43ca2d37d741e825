# SPDX-License-Identifier: BSD-3-Clause
"""The names ucx-py programs look up in ``ucp.core``."""

from __future__ import annotations

from . import _context
from ._addressed import (
    create_endpoint_from_worker_address,
    get_ucx_address_from_buffer,
    get_worker_address,
)
from ._connect import create_endpoint, create_listener
from ._context import (
    get_active_transports,
    get_config,
    get_ucp_context_info,
    init,
)
from ._endpoint import Endpoint
from ._listener import Listener
from ._worker import (
    continuous_ucx_progress,
    fence,
    flush,
    get_ucp_worker,
    get_ucp_worker_info,
    progress,
    recv,
    reset,
)

__all__ = [
    "Endpoint",
    "Listener",
    "continuous_ucx_progress",
    "create_endpoint",
    "create_endpoint_from_worker_address",
    "create_listener",
    "fence",
    "flush",
    "get_active_transports",
    "get_config",
    "get_ucp_context_info",
    "get_ucp_worker",
    "get_ucp_worker_info",
    "get_ucx_address_from_buffer",
    "get_worker_address",
    "init",
    "progress",
    "recv",
    "reset",
]


def __getattr__(name: str) -> object:
    # Programs ask `ucp.core._ctx is None` to learn whether UCX is in use.
    if name == "_ctx":
        return _context.current_context()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
