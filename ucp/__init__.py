# SPDX-License-Identifier: BSD-3-Clause
"""Asynchronous messaging over UCX: ``await ep.send(buffer)``."""

# Layout: what is private has a leading underscore.
#
#   _loader          finds UCX and loads it, before anything else here
#   _neighbours      other distributions that have a package ucp
#   _ext             the extension: requests, workers, endpoints, exceptions, in C
#   _context         init(), Config: the process's one context
#   _worker          the worker of a loop      _lifecycle  one per loop, and its end
#   _current         functions that act on the current worker
#   _submit          calls from other threads  sync       blocking calls
#   _endpoint        a connection              _connect   making both ends of it
#   _lane            messages of an endpoint or channel: objects and frames
#   _peer            who is at the other end
#   _stream          asyncio's streams on an endpoint
#   _listener        a listening port
#   _resolve         addresses of this host, and of names
#   _worker_address  endpoints without a listener
#   _memory          memory that peers may reach
#   _heap            small memories that share segments
#   _pool            buffers of registered memory
#   _closing         with and async with       _callback  functions of the program
#   _communicator    ranks, messages between them, collective operations
#   _ranks           which rank of a job this process is, by the environment
#   exceptions       the tree of exceptions    testing    for tests of programs
#   message          messages with metadata, to several endpoints
#   cuda             arrays in device memory
#   _shuffler        chunks that come to the owners of their partitions
#   _partition       tables, partitioned by the hash of a key
#   _store           memory that is used again: shuffle has all three
#   join             joins of tables whose rows are on many ranks
#   _columns         tables as columns for that
#   dask             Dask's protocol; only distributed imports it
#   compat.ucxpy     the names of ucx-py; core, utils, comm and _libs re-export it
#   compat.ucxx      the names of ucxx
#   benchmarks       ucx-py's benchmark of round trips, and clusters of processes
#   _topology        which devices are close to which GPU, by hwloc
#   __main__         python -m ucp demo|info|run|topology
#   _demo            the demo
#   _launcher        ranks on this host        _rank_output  what they print
#   _process_tree    all that they start, and its end
#   _meeting         what they tell the launcher when they wait for each other
#
# Importing ucp loads libraries and does nothing else: it makes no context, no
# worker and no thread, and leaves os.environ unchanged. The first call that
# needs a context makes it.

# ruff: noqa: E402 -- UCX is loaded before the modules that need it

import importlib
from types import ModuleType

from ._core import loader as _loader

_loader.load()

from . import core, cuda, exceptions, message, sync, utils
from ._communicator.communicator import ANY_SOURCE, ANY_TAG, Communicator, PeerPath
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
from ._core.heap import Heap
from ._core.lifecycle import current_worker, reset
from ._core.listener import Listener
from ._core.loader import WhichUCX, which_ucx
from ._core.memory import Memory
from ._core.objects import Channel
from ._core.peer import Peer, PeerInfo
from ._core.pool import BufferPool
from ._core.resolve import get_address
from ._core.stream import StreamTransport, open_streams
from ._core.worker import Worker
from ._core.worker_address import (
    UCXAddress,
    accept_addressed,
    create_endpoint_from_worker_address,
    get_ucx_address_from_buffer,
    get_worker_address,
)
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
from ._topology.distance import TopologicalDistance
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

__git_commit__ = ""  # ucx-py has this name; __version__ identifies releases here
_ucx_version = get_ucx_version()
__ucx_version__ = which_ucx().version
__ucx_min_version__ = ".".join(map(str, _loader.MIN_VERSION))

# Programs of ucx-py use these after `import ucp`; they are imported on first use.
_ON_DEMAND = ("_libs", "comm")

__all__ = [
    "ANY",
    "ANY_SOURCE",
    "ANY_TAG",
    "IN_PLACE",
    "ApplicationContext",
    "BufferPool",
    "Channel",
    "CommMessage",
    "Communicator",
    "Config",
    "Context",
    "Endpoint",
    "Heap",
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
    "exceptions",
    "fence",
    "flush",
    "get_active_transports",
    "get_address",
    "get_config",
    "get_ucp_context_info",
    "get_ucp_worker",
    "get_ucp_worker_info",
    "get_ucx_address_from_buffer",
    "get_ucx_version",
    "get_ucxpy_logger",
    "get_worker_address",
    "init",
    "message",
    "open_streams",
    "progress",
    "recv",
    "register_am_allocator",
    "reset",
    "sync",
    "utils",
    "which_ucx",
]


def __getattr__(name: str) -> ModuleType:
    if name in _ON_DEMAND:
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
