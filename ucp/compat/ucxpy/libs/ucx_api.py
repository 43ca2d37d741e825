# SPDX-License-Identifier: BSD-3-Clause
"""The low-level API: contexts, workers, endpoints, and calls that move data.

A call that moves data takes ``cb_func``, ``cb_args`` and ``cb_kwargs``. If the
operation is done when the call returns, the call returns None. Otherwise it returns
a UCXRequest, and the worker's ``progress()`` calls ``cb_func(request, exception,
*cb_args, **cb_kwargs)`` later, where ``exception`` is None for success. Receives
always call back. The buffer must not change before that.
"""

from __future__ import annotations

from .... import _ext
from ...._core.context import get_ucx_version
from ...._ext import Request as UCXRequest
from ...._ext import (
    UCXAddress,
    am_recv_nb,
    am_send_nbx,
    stream_recv_nb,
    stream_send_nb,
    tag_recv_nb,
    tag_send_nb,
)
from ._endpoint import UCXEndpoint, UCXListener
from ._memory import (
    UCXIO,
    PackedRemoteKey,
    RemoteMemory,
    UCXMemoryHandle,
    UCXRkey,
)
from ._worker import AllocatorType, Feature, UCXContext, UCXWorker

__all__ = [
    "UCXIO",
    "AllocatorType",
    "Feature",
    "PackedRemoteKey",
    "RemoteMemory",
    "UCXAddress",
    "UCXContext",
    "UCXEndpoint",
    "UCXListener",
    "UCXMemoryHandle",
    "UCXRequest",
    "UCXRkey",
    "UCXWorker",
    "am_recv_nb",
    "am_send_nbx",
    "get_current_options",
    "get_ucx_version",
    "stream_recv_nb",
    "stream_send_nb",
    "tag_recv_nb",
    "tag_send_nb",
]


def get_current_options() -> dict[str, str]:
    """Return UCX's options as a context without a config would have them."""
    return _ext.config_options()
