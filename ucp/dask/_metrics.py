# SPDX-License-Identifier: BSD-3-Clause
"""The metrics of ucp among those that Dask's servers show as ``/metrics``.

distributed serves what is registered with the default registry of
``prometheus_client``, if that package is installed.
"""

from __future__ import annotations

import threading

import ucp

from . import _config

_lock = threading.Lock()
_is_done = False


def register() -> None:
    """Have this process's ``/metrics`` show those of ucp, unless that is not wanted.

    Peers are among them: a scheduler or worker has few, and asks for the metrics in
    the thread of its event loop.
    """
    global _is_done
    with _lock:
        if _is_done or not _config.get("metrics"):
            return
        _is_done = True
        try:
            ucp.prometheus_collector(peers=True)
        except (ImportError, ValueError):
            pass  # no prometheus_client; or the program has registered them itself
