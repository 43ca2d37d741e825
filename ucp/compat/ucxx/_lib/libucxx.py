# SPDX-License-Identifier: BSD-3-Clause
"""``ucxx._lib.libucxx``: its exceptions, and worker addresses.

The C++ objects of ucxx (UCXContext, UCXWorker, ...) do not exist here. The
low-level API of this package is ``ucp._libs.ucx_api``, with ucx-py's names.
"""

from typing import Any

from ...._core.context import get_ucx_version
from ...._ext import UCXAddress
from .. import exceptions
from .._endpoint import TagProbeResult
from ..exceptions import *  # noqa: F403
from ..types import Tag, TagMask, TagMaskFull

__all__ = [
    "Tag",
    "TagMask",
    "TagMaskFull",
    "TagProbeResult",
    "UCXAddress",
    "get_ucx_version",
    *(name for name in vars(exceptions) if name.startswith("UCX")),
]


def __getattr__(name: str) -> Any:
    raise AttributeError(
        f"ucp.compat.ucxx has no {name!r} of ucxx._lib.libucxx: there are no C++ "
        "objects behind it; the low-level API is ucp._libs.ucx_api"
    )
