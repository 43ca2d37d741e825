# SPDX-License-Identifier: BSD-3-Clause
"""Asynchronous messaging over UCX: ``await ep.send(buffer)``."""

# Layout: a layer is one folder, whose __init__ says what its files are. Each uses
# rows above it only: tests/project/test_layers_package.py has the arrows. What is
# private has a leading underscore.
#
#   _ext             the extension: requests, workers, endpoints, exceptions, in C
#   exceptions       the tree of exceptions
#   _topology        which devices are close to which GPU, by hwloc
#   _core            context, workers, endpoints, listeners, memory
#   cuda             arrays in device memory
#   message          messages with metadata, to several endpoints
#   testing          for tests of programs
#   _communicator    ranks, messages between them, collective operations
#   _observe         counters, latencies, metrics, traces, log lines, dumps
#   shmem            symmetric heaps
#   sync             blocking calls
#   _data            tables, by columns and by the hash of a key
#   shuffle          chunks that come to the owners of their partitions
#   join             joins of tables whose rows are on many ranks
#   compat           the APIs of ucx-py and ucxx; core, utils, comm and _libs show
#                    parts of it by their own paths
#   dask             Dask's protocol; only distributed imports it
#   benchmarks       ucx-py's benchmark of round trips, and clusters of processes
#   _run             ranks on this host, and the demo
#   _commands        python -m ucp: one file a command
#   __main__         starts the command
#
# Importing ucp loads libraries and does nothing else: it makes no context, no
# worker and no thread, and leaves os.environ unchanged. In a checkout, where this
# file lies in a source tree, the modules are those of the installed package:
# _core/checkout has more. The first call that
# needs a context makes it. What few programs use is loaded when it is asked for: see
# _ON_DEMAND and _NAMES.

import importlib
import os as _os
import sys as _sys
import typing as _typing
from types import ModuleType

from ._core import checkout as _checkout
from ._core import startup as _startup

if _startup.command() is not None:
    _startup.interrupt_quietly()
try:
    if (_installed := _checkout.installed()) is not None:
        _checkout.stand_for(_sys.modules[__name__], _installed)
    importlib.import_module("._core.loader", __name__).load()
    importlib.import_module("._ext", __name__)
except ImportError as _error:
    # Only doctor, help and the version need neither UCX nor the extension.
    if _startup.runs_without_ucx():
        importlib.import_module("._commands.main", __name__).exit_without_ucx()
    _error.add_note(_startup.HINT)
    raise

from ._core import loader as _loader  # isort: skip
from ._core import log as _log  # isort: skip
from . import core, cuda, exceptions, utils
from ._core.connect import connect, create_endpoint, create_listener
from ._core.context import (
    Config,
    get_active_transports,
    get_config,
    get_ucp_context_info,
    get_ucx_version,
    init,
)
from ._core.current import (
    continuous_ucx_progress,
    fence,
    flush,
    get_ucp_worker,
    get_ucp_worker_info,
    progress,
    recv,
    register_am_allocator,
)
from ._core.endpoint import Endpoint
from ._core.gather import gather
from ._core.heap import Heap
from ._core.lifecycle import current_worker, reset
from ._core.listener import Listener
from ._core.loader import WhichUCX, get_include, get_library_dir, which_ucx
from ._core.memory import Memory
from ._core.objects import Channel
from ._core.peer import Peer, PeerInfo
from ._core.pool import BufferPool
from ._core.resolve import get_address
from ._core.statistics import EndpointStatistics, WorkerStatistics
from ._core.stream import StreamTransport, open_streams
from ._core.worker import Worker
from ._core.worker_address import (
    UCXAddress,
    accept_addressed,
    create_endpoint_from_worker_address,
    get_ucx_address_from_buffer,
    get_worker_address,
)
from ._ext import _C_API as _C_API  # of ucp_api.h
from ._ext import (
    ANY,
    IN_PLACE,
    CommMessage,
    Context,
    Message,
    PoolBuffer,
    RemoteMemory,
    Request,
    Status,
    TagMessage,
)
from ._version import __version__
from .core import ApplicationContext
from .exceptions import (
    UCXAuthError,
    UCXBaseException,
    UCXBusy,
    UCXCanceled,
    UCXCloseError,
    UCXConfigError,
    UCXConnectionReset,
    UCXError,
    UCXInvalidKey,
    UCXMsgTruncated,
    UCXNoMemory,
    UCXNotConnected,
    UCXPeerClosed,
    UCXProtocolError,
    UCXRankFailed,
    UCXRejected,
    UCXTimeout,
    UCXUnreachable,
    UCXVersionError,
    UCXWarning,
    UCXWorkerGone,
)
from .utils import get_ucxpy_logger

if _typing.TYPE_CHECKING:  # _NAMES says the same to the interpreter
    from . import message, sync
    from ._communicator.communicator import (
        ANY_SOURCE,
        ANY_TAG,
        Communicator,
        PeerPath,
    )
    from ._communicator.group import Group
    from ._observe.dump import dump, dump_on_signal
    from ._observe.latency import LatencyHistogram, latencies, measure_latency
    from ._observe.metrics import CONTENT_TYPE as METRICS_CONTENT_TYPE
    from ._observe.metrics import metrics, prometheus_collector
    from ._observe.stats import stats
    from ._observe.trace import Trace as trace
    from ._topology.distance import TopologicalDistance

_log.apply_environment()
if "UCP_DUMP_SIGNAL" in _os.environ:
    importlib.import_module("._observe.dump", __name__).apply_environment()
if "UCP_LATENCY" in _os.environ:  # these two do what it says when they are imported
    importlib.import_module("._observe.latency", __name__)
if "UCP_TRACE" in _os.environ:
    importlib.import_module("._observe.trace", __name__)

__git_commit__ = ""  # ucx-py has this name; __version__ identifies releases here
_ucx_version = get_ucx_version()
__ucx_version__ = which_ucx().version
__ucx_min_version__ = ".".join(map(str, _loader.MIN_VERSION))

# `import ucp` is enough for these, which are imported on first use. join needs
# NumPy; programs of ucx-py use _libs and comm.
_ON_DEMAND = ("_libs", "comm", "join", "moe", "proxy", "shuffle", "table")
_ON_DEMAND_IN_DIR = (
    "_communicator",
    "_observe",
    "_topology",
    "message",
    "shmem",
    "sync",
)

# The modules of names that are imported on first use.
_NAMES = {
    "ANY_SOURCE": "_communicator.communicator",
    "ANY_TAG": "_communicator.communicator",
    "Communicator": "_communicator.communicator",
    "Group": "_communicator.group",
    "LatencyHistogram": "_observe.latency",
    "METRICS_CONTENT_TYPE": "_observe.metrics",
    "PeerPath": "_communicator.communicator",
    "TopologicalDistance": "_topology.distance",
    "dump": "_observe.dump",
    "dump_on_signal": "_observe.dump",
    "latencies": "_observe.latency",
    "measure_latency": "_observe.latency",
    "metrics": "_observe.metrics",
    "prometheus_collector": "_observe.metrics",
    "stats": "_observe.stats",
    "trace": "_observe.trace",
}
# Those that have another name there.
_NAMES_THERE = {"METRICS_CONTENT_TYPE": "CONTENT_TYPE", "trace": "Trace"}

__all__ = [
    "ANY",
    "ANY_SOURCE",
    "ANY_TAG",
    "IN_PLACE",
    "METRICS_CONTENT_TYPE",
    "ApplicationContext",
    "BufferPool",
    "Channel",
    "CommMessage",
    "Communicator",
    "Config",
    "Context",
    "Endpoint",
    "EndpointStatistics",
    "Group",
    "Heap",
    "LatencyHistogram",
    "Listener",
    "Memory",
    "Message",
    "Peer",
    "PeerInfo",
    "PeerPath",
    "PoolBuffer",
    "RemoteMemory",
    "Request",
    "Status",
    "StreamTransport",
    "TagMessage",
    "TopologicalDistance",
    "UCXAddress",
    "UCXAuthError",
    "UCXBaseException",
    "UCXBusy",
    "UCXCanceled",
    "UCXCloseError",
    "UCXConfigError",
    "UCXConnectionReset",
    "UCXError",
    "UCXInvalidKey",
    "UCXMsgTruncated",
    "UCXNoMemory",
    "UCXNotConnected",
    "UCXPeerClosed",
    "UCXProtocolError",
    "UCXRankFailed",
    "UCXRejected",
    "UCXTimeout",
    "UCXUnreachable",
    "UCXVersionError",
    "UCXWarning",
    "UCXWorkerGone",
    "WhichUCX",
    "Worker",
    "WorkerStatistics",
    "__git_commit__",
    "__ucx_min_version__",
    "__ucx_version__",
    "__version__",
    "accept_addressed",
    "connect",
    "continuous_ucx_progress",
    "core",
    "create_endpoint",
    "create_endpoint_from_worker_address",
    "create_listener",
    "cuda",
    "current_worker",
    "dump",
    "dump_on_signal",
    "exceptions",
    "fence",
    "flush",
    "gather",
    "get_active_transports",
    "get_address",
    "get_config",
    "get_include",
    "get_library_dir",
    "get_ucp_context_info",
    "get_ucp_worker",
    "get_ucp_worker_info",
    "get_ucx_address_from_buffer",
    "get_ucx_version",
    "get_ucxpy_logger",
    "get_worker_address",
    "init",
    "latencies",
    "measure_latency",
    "message",
    "metrics",
    "open_streams",
    "progress",
    "prometheus_collector",
    "recv",
    "register_am_allocator",
    "reset",
    "stats",
    "sync",
    "trace",
    "utils",
    "which_ucx",
]


def __getattr__(name: str) -> ModuleType:
    if name in _ON_DEMAND or name in _ON_DEMAND_IN_DIR:
        return importlib.import_module(f".{name}", __name__)
    if name in _NAMES:
        module = importlib.import_module(f".{_NAMES[name]}", __name__)
        value: ModuleType = getattr(module, _NAMES_THERE.get(name, name))
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    modules = [name for name in _ON_DEMAND_IN_DIR if not name.startswith("_")]
    imported = [
        name
        for name, value in globals().items()
        if isinstance(value, ModuleType) and not name.startswith("_")
        if value.__name__ == f"{__name__}.{name}"
    ]
    return sorted({*__all__, *modules, *imported})
