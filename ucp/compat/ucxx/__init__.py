# SPDX-License-Identifier: BSD-3-Clause
"""ucxx's asynchronous API: ``import ucp.compat.ucxx as ucxx``.

Properties of ucxx are properties here, ``recv`` accepts shorter messages, and the
exceptions are those of ucxx. ``endpoint.ucp`` and ``listener.ucp`` are the objects
of ``ucp`` underneath. Programs of this package and of ``ucp`` can talk to each
other, but not to programs of ucxx itself, whose protocol differs. There are no C++
objects, so their addresses are not available. There are no progress modes either:
the event loop makes progress.

Programs that contain ``import ucxx`` get this package after ``install()``, or when
they are run by ``python -m ucp.compat.ucxx PROGRAM``.
"""

# Layout:
#
#   core         functions and the context      _endpoint  endpoints, listeners
#   exceptions   ucxx's tree                    types      tags
#   utils, testing, _lib, _lib_async            modules of ucxx
#   _install, __main__                          for programs with `import ucxx`

from __future__ import annotations

from ..._core.context import get_ucx_version
from ..._core.loader import MIN_VERSION, which_ucx
from . import core, exceptions, testing, types, utils
from ._endpoint import Endpoint, Listener, TagProbeResult
from ._install import install
from .core import (
    ApplicationContext,
    continuous_ucx_progress,
    create_endpoint,
    create_endpoint_from_worker_address,
    create_listener,
    get_active_transports,
    get_config,
    get_ucp_context_info,
    get_ucp_worker,
    get_ucp_worker_info,
    get_ucx_address_from_buffer,
    get_ucxx_worker,
    get_worker_address,
    init,
    progress,
    recv,
    reset,
    stop_notifier_thread,
)
from .exceptions import UCXError
from .utils import get_address, get_ucxpy_logger

#: The version of ucxx whose names these are.
__version__ = "0.52.0"
__git_commit__ = ""
_ucx_version = get_ucx_version()
__ucx_version__ = which_ucx().version
__ucx_min_version__ = ".".join(map(str, MIN_VERSION))

__all__ = [
    "ApplicationContext",
    "Endpoint",
    "Listener",
    "TagProbeResult",
    "UCXError",
    "__git_commit__",
    "__version__",
    "continuous_ucx_progress",
    "core",
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
    "get_ucxpy_logger",
    "get_ucxx_worker",
    "get_worker_address",
    "init",
    "install",
    "progress",
    "recv",
    "reset",
    "stop_notifier_thread",
    "testing",
    "types",
    "utils",
]


def __dir__() -> list[str]:
    return __all__
