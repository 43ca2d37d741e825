# SPDX-License-Identifier: BSD-3-Clause
"""``ucxx.core``: the functions, and the context behind them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, SupportsIndex

from ..._core import connect as _connect
from ..._core import context as _context
from ..._core import lifecycle as _lifecycle
from ..._core import worker_address as _worker_address
from ..._core.context import (
    get_active_transports,
    get_config,
    get_ucp_context_info,
    get_ucx_version,
)
from ..._core.current import (
    continuous_ucx_progress,
    get_ucp_worker,
    get_ucp_worker_info,
    progress,
)
from ..._core.log import logger as _logger
from ..._core.worker_address import get_ucx_address_from_buffer, get_worker_address
from ..ucxpy.core import ApplicationContext as _UcpContext
from ._endpoint import Clients, Endpoint, Listener, as_it_lies, translated
from .exceptions import UCXUnsupportedError

__all__ = [
    "continuous_ucx_progress",
    "create_endpoint",
    "create_endpoint_from_worker_address",
    "create_listener",
    "get_active_transports",
    "get_config",
    "get_ucp_context_info",
    "get_ucp_worker",
    "get_ucp_worker_info",
    "get_ucx_address_from_buffer",
    "get_ucx_version",
    "get_ucxx_worker",
    "get_worker_address",
    "init",
    "progress",
    "recv",
    "reset",
    "stop_notifier_thread",
]

_PROGRESS_MODES = ("thread", "thread-polling", "blocking", "polling")
_DEFAULT_MODE = "thread"
_progress_mode = _DEFAULT_MODE  # what init() was given: programs ask for it


def init(
    options: Mapping[str, str] | None = None,
    env_takes_precedence: bool = False,
    progress_mode: str | None = None,
    enable_delayed_submission: bool | None = None,
    enable_python_future: bool | None = None,
    connect_timeout: float | None = None,
) -> None:
    """``ucp.init``; modes are checked, and change nothing.

    Raises:
        ValueError: ucxx has no such ``progress_mode``.
        RuntimeError: UCX is in use already.
        UCXConfigError: UCX knows no such option.
    """
    global _progress_mode
    if progress_mode is not None and progress_mode not in _PROGRESS_MODES:
        raise ValueError(
            f"Unknown progress mode {progress_mode}, valid modes are: "
            + ", ".join(repr(mode) for mode in _PROGRESS_MODES)
        )
    if enable_delayed_submission or enable_python_future:
        _logger.debug("there is nothing to enable")
    with translated():
        _context.init(options, env_takes_precedence, connect_timeout=connect_timeout)
    _progress_mode = progress_mode or _DEFAULT_MODE


def reset() -> None:
    """``ucp.reset``: shut UCX down; UCXError names what is still open."""
    global _progress_mode
    with translated():
        _lifecycle.reset()
    _progress_mode = _DEFAULT_MODE


def stop_notifier_thread() -> None:
    """There is none."""


def create_listener(
    callback_func: Callable[[Endpoint], Coroutine[Any, Any, object] | object],
    port: int | None = None,
    endpoint_error_handling: bool = True,
    connect_timeout: float | None = 5.0,
) -> Listener:
    """Listen on all IPv4 addresses; call ``callback_func(endpoint)``."""
    clients = Clients(callback_func)
    with translated():
        listener = _connect.create_listener(
            clients.serve,
            port,
            endpoint_error_handling,
            connect_timeout=connect_timeout,
        )
    return Listener(listener, clients)


async def create_endpoint(
    ip_address: str,
    port: int,
    endpoint_error_handling: bool = True,
    connect_timeout: float | None = None,
) -> Endpoint:
    """Connect to a listener.

    Raises:
        UCXNotConnectedError: nobody listens, told at once.
        UCXTimedOutError: a TimeoutError: the peer says nothing.
    """
    with translated():
        endpoint = await _connect.create_endpoint(
            ip_address,
            port,
            endpoint_error_handling,
            connect_timeout=connect_timeout,
        )
    return Endpoint(endpoint)


async def create_endpoint_from_worker_address(
    address: Any, endpoint_error_handling: bool = True
) -> Endpoint:
    """Connect to the worker of that address, without a listener."""
    with translated():
        return Endpoint(
            await _worker_address.create_endpoint_from_worker_address(
                address, endpoint_error_handling
            )
        )


async def recv(buffer: Any, tag: SupportsIndex) -> None:
    """Receive a message with this raw tag from any peer."""
    with translated():
        await _lifecycle.current_worker().recv(as_it_lies(buffer), tag)


def get_ucxx_worker() -> int:
    """Raise UCXUnsupportedError: there is no C++ object."""
    raise UCXUnsupportedError("there is no C++ object behind this worker")


class ApplicationContext(_UcpContext):
    """The process's context and the current event loop's worker, in one object.

    Args:
        config_dict, progress_mode, connect_timeout: as for ``init``.
    """

    # ucxx's endpoints and listeners, where the base has ucp's.
    create_listener = staticmethod(create_listener)  # type: ignore[assignment]
    create_endpoint = staticmethod(create_endpoint)  # type: ignore[assignment]
    create_endpoint_from_worker_address = staticmethod(  # type: ignore[assignment]
        create_endpoint_from_worker_address
    )

    def __init__(
        self,
        config_dict: Mapping[str, str] | None = None,
        progress_mode: str | None = None,
        enable_delayed_submission: bool | None = None,
        enable_python_future: bool | None = None,
        exchange_peer_info_timeout: float | None = None,
        connect_timeout: float | None = None,
    ) -> None:
        if config_dict or progress_mode or connect_timeout is not None:
            init(config_dict, False, progress_mode, connect_timeout=connect_timeout)
        with translated():
            super().__init__()

    @property
    def progress_mode(self) -> str:
        """What ``init`` was given; the event loop makes progress, whatever it is."""
        return _progress_mode

    def stop_notifier_thread(self) -> None:
        """There is none."""

    async def recv(self, buffer: Any, tag: SupportsIndex) -> None:
        """As the function."""
        await recv(buffer, tag)


def _get_ctx() -> ApplicationContext:
    return ApplicationContext()


def __getattr__(name: str) -> object:
    # Programs ask `ucxx.core._ctx is None` to learn whether UCX is in use.
    if name == "_ctx":
        return None if _context.current_context() is None else _get_ctx()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
