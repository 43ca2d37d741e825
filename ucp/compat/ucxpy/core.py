# SPDX-License-Identifier: BSD-3-Clause
"""The module ``ucp.core`` of ucx-py."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, SupportsIndex

from ... import _ext
from ..._core import context as _context
from ..._core.connect import create_endpoint, create_listener
from ..._core.context import (
    get_active_transports,
    get_config,
    get_ucp_context_info,
    get_ucx_version,
    init,
)
from ..._core.current import (
    continuous_ucx_progress,
    fence,
    flush,
    get_ucp_worker,
    get_ucp_worker_info,
    progress,
    recv,
    register_am_allocator,
)
from ..._core.endpoint import Endpoint
from ..._core.lifecycle import current_worker, reset
from ..._core.listener import Listener
from ..._core.worker import Worker
from ..._core.worker_address import (
    create_endpoint_from_worker_address,
    get_ucx_address_from_buffer,
    get_worker_address,
)
from ...exceptions import UCXCanceled, UCXCloseError, UCXError
from . import faces  # noqa: F401 -- endpoints get what programs look up in them

__all__ = [
    "ApplicationContext",
    "Endpoint",
    "Listener",
    "UCXCanceled",
    "UCXCloseError",
    "UCXError",
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
    "get_ucx_version",
    "get_worker_address",
    "init",
    "progress",
    "recv",
    "register_am_allocator",
    "reset",
]


def __dir__() -> list[str]:
    return __all__


class ApplicationContext:
    """The context of the process and the worker of the event loop, in one object.

    The methods do the same as the functions of this module. A process has one
    context, to which all objects of this class refer.

    Args:
        config_dict, blocking_progress_mode, connect_timeout: as for ``init``.

    Raises:
        RuntimeError: arguments were given, but the context exists already.
    """

    create_listener = staticmethod(create_listener)
    create_endpoint = staticmethod(create_endpoint)
    create_endpoint_from_worker_address = staticmethod(
        create_endpoint_from_worker_address
    )
    continuous_ucx_progress = staticmethod(continuous_ucx_progress)
    get_ucp_worker = staticmethod(get_ucp_worker)
    get_config = staticmethod(get_config)
    ucp_context_info = staticmethod(get_ucp_context_info)
    ucp_worker_info = staticmethod(get_ucp_worker_info)
    fence = staticmethod(fence)
    flush = staticmethod(flush)
    get_worker_address = staticmethod(get_worker_address)

    def __init__(
        self,
        config_dict: Mapping[str, str] | None = None,
        blocking_progress_mode: bool | None = None,
        connect_timeout: float | None = None,
    ) -> None:
        if config_dict or connect_timeout is not None:
            init(
                config_dict,
                blocking_progress_mode=blocking_progress_mode,
                connect_timeout=connect_timeout,
            )
        _context.get_context()

    @property
    def context(self) -> _ext.Context:
        """The context of the process."""
        return _context.get_context()

    @property
    def config(self) -> dict[str, int]:
        """Limits and thresholds in force; ``ucp.Config`` describes them."""
        return self.context.config

    @property
    def worker(self) -> Worker:
        """The worker of the running loop, or of the thread if none runs."""
        return current_worker()

    @property
    def progress_tasks(self) -> list[Any]:
        """Always empty: the event loop makes progress without tasks."""
        return []

    @property
    def blocking_progress_mode(self) -> bool:
        """True: a wait sleeps."""
        return True

    @property
    def epoll_fd(self) -> int:
        """The worker's file descriptor."""
        return current_worker().fileno()

    @property
    def connect_timeout(self) -> float:
        """Seconds that ``create_endpoint`` waits when it is given no timeout."""
        return _context.connect_timeout()

    def register_am_allocator(
        self, allocator: Callable[[int], Any] | None, allocator_type: Any = "host"
    ) -> None:
        """As the function; the type may be a ``ucx_api.AllocatorType``."""
        name = getattr(allocator_type, "name", allocator_type)
        register_am_allocator(allocator, str(name).lower())

    async def recv(self, buffer: Any, tag: SupportsIndex) -> None:
        """As the function."""
        await recv(buffer, tag)


def _get_ctx() -> ApplicationContext:
    return ApplicationContext()


def __getattr__(name: str) -> object:
    # Programs ask `ucp.core._ctx is None` to learn whether UCX is in use.
    if name == "_ctx":
        return None if _context.current_context() is None else _get_ctx()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
