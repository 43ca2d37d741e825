# SPDX-License-Identifier: BSD-3-Clause
"""Dask over UCX: its messages, ``Client("ucp://scheduler:8786")``, and its frames.

If ``ucp`` and ``distributed`` are installed, distributed finds the protocol
``ucp`` by an entry point; a program need not import this module. The protocol
``ucx`` must be registered in every process, because distributed gives that name to
something else: call ``register()``, or use ``--preload ucp.dask``.

``bootstrap(client)`` prepares a cluster of any protocol for ``merge()``,
``shuffle()``, ``sort_values()`` and ``groupby()``, which return frames of Dask.

Importing this module adds defaults to Dask's configuration, and provides the
protocol ``ucx`` if nothing else does. UCX starts with the first connection.
"""

# A merge, step by step, with the files. Tasks run in the threads of workers. A run is
# one shuffle that is under way; the scheduler knows it, and who owns which partition.
#
#   merge()            _api, _merge       Dask's expression becomes a Merge of ours
#   HashMerge          _merge, _steps     rows have to move: makes a graph of tasks
#   insert             _worker_plugin     gets the run, from _scheduler_plugin
#   insert             _keys, _frames     encodes the rows, partitions by hashed keys
#   insert             _worker_shuffle    gives the parts to the worker's shuffler
#   barrier            _scheduler_plugin  all have inserted: finishes all shufflers
#   extract            _steps             on the partition's owner: chunks to frames
#   merge_partition()  _merge, _pairs     merges both frames, by polars or pandas

from __future__ import annotations

import sys
from typing import Any

from distributed.comm.registry import backends

from .._core import neighbours as _neighbours

_neighbours.check()  # ucp may be the package of another distribution

from . import _config, _logs  # noqa: E402
from ._api import bootstrap, groupby, merge, shuffle, sort_values  # noqa: E402
from ._comm import (  # noqa: E402
    UCP,
    OtherProtocolError,
    PeerRefusedError,
    UCPBackend,
    UCPConnector,
    UCPListener,
)

__all__ = [
    "UCP",
    "OtherProtocolError",
    "PeerRefusedError",
    "UCPBackend",
    "UCPConnector",
    "UCPListener",
    "UCXBackend",
    "bootstrap",
    "dask_setup",
    "groupby",
    "merge",
    "register",
    "shuffle",
    "sort_values",
]


def __dir__() -> list[str]:
    return __all__


class UCXBackend(UCPBackend):
    """The backend for addresses ``ucx://host:port``."""

    scheme = "ucx"


def register() -> None:
    """Use ucp for ``ucx://`` addresses too, whatever else provides that protocol."""
    backends["ucx"] = UCXBackend()


def dask_setup(server: Any) -> None:
    """What ``--preload ucp.dask`` calls in schedulers, workers and nannies."""
    register()


_config.load_defaults()
_logs.forward()
# Preloads are imported before a server listens, and set up after that.
# distributed's own entry for ucx is a stub that raises an error.
if "distributed_ucxx" not in sys.modules:
    register()
