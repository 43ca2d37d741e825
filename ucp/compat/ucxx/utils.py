# SPDX-License-Identifier: BSD-3-Clause
"""``ucxx.utils``: texts, and the address of this host."""

from __future__ import annotations

import socket

from ..._core import resolve as _resolve
from ..ucxpy.libs.utils import (
    format_bytes,
    format_time,
    nvtx_annotate,
    parse_bytes,
    print_key_value,
    print_multi,
    print_separator,
)
from ..ucxpy.utils import get_ucxpy_logger, hmean

__all__ = [
    "format_bytes",
    "format_time",
    "get_address",
    "get_ucxpy_logger",
    "hmean",
    "nvtx_annotate",
    "parse_bytes",
    "print_key_value",
    "print_multi",
    "print_separator",
]


def get_address(ifname: str | None = None, use_ipv6: bool = False) -> str:
    """``ucp.get_address``, as ucxx calls it.

    Raises:
        OSError: no such interface, or none was named and none fits.
    """
    family = socket.AF_INET6 if use_ipv6 else socket.AF_INET
    try:
        return _resolve.get_address(ifname, family=family)
    except RuntimeError as exc:
        raise OSError(str(exc)) from None
