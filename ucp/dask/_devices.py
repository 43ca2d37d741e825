# SPDX-License-Identifier: BSD-3-Clause
"""Memory of devices in messages.

distributed's serializers of the family "cuda" leave an array on its device: the
frames are memory of the device, and whoever gets them needs a device, too. So each
side of a connection says in distributed's handshake whether it takes such frames,
and an object goes to a peer that does not as it goes by any other protocol: by the
families "dask" and "pickle", whose frames are of the host.

A side that does not deserialize, the scheduler, takes none: it would fill a device
with what it only passes on, and to whom is not known here. Nor are they used
between two ends in one process, between which UCX is slower than a copy by the host.
"""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Collection, Mapping
from importlib.util import find_spec
from typing import Any

from ucp import cuda

from . import _config

# In the handshake: the process that takes such frames, or None.
_KEY = "ucp-cuda-frames"
_CUDA = "cuda"
# In this order: what has no function in one family is sent by the next one.
_SERIALIZERS = (_CUDA, "dask", "pickle", "error")
_LIBRARIES = ("rmm", "cupy", "numba", "torch")  # that ucp.cuda.allocator uses

_name = uuid.uuid4().hex


def _process() -> str:
    return f"{_name}-{os.getpid()}"  # a child has the name of its parent


def handshake_info(deserialize: bool) -> dict[str, Any]:
    """Return what the peer has to know."""
    takes = deserialize and _config.get("cuda-frames") and _has_arrays()
    return {_KEY: _process() if takes else None}


def serializers(remote_info: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return those for messages to a peer; None: distributed's own choice."""
    peer = remote_info.get(_KEY)
    if peer is None or peer == _process() or not _config.get("cuda-frames"):
        return None
    return _SERIALIZERS if cuda.is_available() else None


def host_serializers(given: Collection[str] | None) -> tuple[str, ...] | None:
    """Return those of ``given`` whose frames are of the host."""
    return None if given is None else tuple(name for name in given if name != _CUDA)


def is_on_device(frame: object) -> bool:
    return hasattr(frame, "__cuda_array_interface__")


def _has_arrays() -> bool:
    """True if there are a device and a library that makes arrays there."""
    return cuda.is_available() and any(map(_is_installed, _LIBRARIES))


def _is_installed(name: str) -> bool:
    if name in sys.modules:
        return sys.modules[name] is not None
    return find_spec(name) is not None
