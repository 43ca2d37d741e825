# SPDX-License-Identifier: BSD-3-Clause
"""Proxies: threads that carry out the commands of rings, for producers that have no
worker, such as kernels of a GPU."""

from ._commands import barrier, nop, put, quiet, signal
from ._proxy import Proxy, ProxyStatistics
from ._ring import Ring, RingError, RingStatistics, quiet_all, wait_quiet_all

__all__ = [
    "Proxy",
    "ProxyStatistics",
    "Ring",
    "RingError",
    "RingStatistics",
    "barrier",
    "nop",
    "put",
    "quiet",
    "quiet_all",
    "signal",
    "wait_quiet_all",
]


def __dir__() -> list[str]:
    return __all__
