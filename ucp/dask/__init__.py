# SPDX-License-Identifier: BSD-3-Clause
"""Dask's messages over UCX: ``Client("ucp://scheduler:8786")``.

Where ``ucp`` and ``distributed`` are installed the protocol is there, without
any of this: distributed finds it by the entry point. The protocol ``ucx`` has to
be asked for, because distributed gives that name to something else: by
``register()``, or by ``--preload ucp.dask``, in every process.

Importing changes nothing but Dask's configuration, and the protocol ``ucx`` where
nothing provides it. UCX starts with the first connection.
"""

from __future__ import annotations

import sys
from typing import Any

from distributed.comm.registry import backends

from .. import _neighbours

_neighbours.check()  # ucp may be the package of another distribution

from . import _config  # noqa: E402
from ._comm import (  # noqa: E402
    UCP,
    OtherProtocolError,
    UCPBackend,
    UCPConnector,
    UCPListener,
)

__all__ = [
    "UCP",
    "OtherProtocolError",
    "UCPBackend",
    "UCPConnector",
    "UCPListener",
    "UCXBackend",
    "dask_setup",
    "register",
]


class UCXBackend(UCPBackend):
    """The same for addresses ``ucx://host:port``."""

    scheme = "ucx"


def register() -> None:
    """Use this for ``ucx://`` addresses, too, whoever else provides them."""
    backends["ucx"] = UCXBackend()


def dask_setup(server: Any) -> None:
    """What ``--preload ucp.dask`` calls in schedulers, workers and nannies."""
    register()


_config.load_defaults()
# Preloads are imported before a server listens, and set up after. What stands
# for ucx in distributed itself only says that it is no more.
if "distributed_ucxx" not in sys.modules:
    register()
