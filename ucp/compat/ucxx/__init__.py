# SPDX-License-Identifier: BSD-3-Clause
"""ucxx's asynchronous API: ``import ucp.compat.ucxx as ucxx``.

What ucxx has as properties are properties, ``recv`` takes shorter messages,
errors are ucxx's. Below it are ``ucp`` objects, as ``endpoint.ucp`` and
``listener.ucp``, with which programs of both kinds talk to each other; not
those of ucxx itself, which speaks another protocol. There are no C++ objects,
so their addresses are not to be had, and no progress modes: the event loop
makes progress.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from ... import _addressed, _connect, _context, _worker
from ..._address import get_address
from ..._addressed import get_ucx_address_from_buffer, get_worker_address
from ..._context import (
    get_active_transports,
    get_config,
    get_ucp_context_info,
    get_ucx_version,
)
from ..._worker import (
    continuous_ucx_progress,
    get_ucp_worker,
    get_ucp_worker_info,
    progress,
)
from . import exceptions, types
from ._endpoint import Clients, Endpoint, Listener, TagProbeResult, translated
from .exceptions import UCXUnsupportedError

__all__ = [
    "Endpoint",
    "Listener",
    "TagProbeResult",
    "continuous_ucx_progress",
    "create_endpoint",
    "create_endpoint_from_worker_address",
    "create_listener",
    "exceptions",
    "get_active_transports",
    "get_address",
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
    "types",
]

_PROGRESS_MODES = ("thread", "thread-polling", "blocking", "polling")


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
    if progress_mode is not None and progress_mode not in _PROGRESS_MODES:
        raise ValueError(
            f"Unknown progress mode {progress_mode}, valid modes are: "
            + ", ".join(repr(mode) for mode in _PROGRESS_MODES)
        )
    if enable_delayed_submission or enable_python_future:
        _context.logger.debug("there is nothing to enable")
    with translated():
        _context.init(options, env_takes_precedence, connect_timeout=connect_timeout)


def reset() -> None:
    """``ucp.reset``: shut UCX down; UCXError names what is still open."""
    with translated():
        _worker.reset()


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
            await _addressed.create_endpoint_from_worker_address(
                address, endpoint_error_handling
            )
        )


async def recv(buffer: Any, tag: int) -> None:
    """Receive a message of that raw tag, from whomever."""
    with translated():
        await _worker.current_worker().recv(buffer, tag)


def get_ucxx_worker() -> int:
    """There is none: UCXUnsupportedError."""
    raise UCXUnsupportedError("there is no C++ object behind this worker")
