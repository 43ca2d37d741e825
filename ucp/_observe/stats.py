# SPDX-License-Identifier: BSD-3-Clause
"""``ucp.stats()``: the counters of this process."""

from __future__ import annotations

import contextlib
import os
from typing import Any

from .. import _ext, _version
from .._core.loader import which_ucx
from .latency import latencies
from .page import HostCounters, WorkerCounters, name_of, read, statistics_of


def workers() -> list[WorkerCounters]:
    """The counters of all workers of this process, by their numbers."""
    found = [
        WorkerCounters(
            number=each["number"],
            started=each["begun_ns"] / 1e9,
            drained=each["drained_ns"] / 1e9 or None,
            statistics=statistics_of(each["statistics"]),
            rank=each["rank"] if each["num_ranks"] else None,
            communicator=each["communicator"],
        )
        for each in _ext.read_workers()
    ]
    return sorted(found, key=lambda each: each.number)


def hosts_of(own: list[WorkerCounters]) -> tuple[HostCounters, ...]:
    """What workers of this process have exchanged with each host.

    None with ``UCP_STATS=0``: then the process does not count by hosts.
    """
    known = {(worker.number, worker.started) for worker in own}
    with contextlib.suppress(OSError):  # /proc is not mounted
        for process in read(os.getpid()):  # also of other copies of the library
            if any((each.number, each.started) in known for each in process.workers):
                return process.hosts
    return ()


def stats() -> dict[str, Any]:
    """Return what all workers of this process have done so far.

    May be called in any thread, whatever the workers do meanwhile: it asks none of
    them. The result consists of dicts, lists, strings and numbers only, so
    ``json.dumps()`` takes it:

    - ``"pid"``, ``"name"``: of the process;
    - ``"version"``, ``"ucx_version"``: of ucp and UCX;
    - ``"workers"``: of each worker ``"number"``, ``"started"`` and ``"drained"`` in
      seconds of ``time.time()``, ``"statistics"``, the fields of
      ``ucp.WorkerStatistics``, and ``"rank"`` and ``"communicator"``, its rank in the
      communicator that was made last, or None, and the name of that communicator;
    - ``"latencies"``: what ``ucp.latencies()`` has, by ``as_dict()`` of each
      histogram, in seconds.

    Each number is right by itself; two of them may be of two moments. The counters
    of a worker go with it.
    """
    return {
        "pid": os.getpid(),
        "name": name_of(os.getpid()),
        "version": _version.__version__,
        "ucx_version": which_ucx().version,
        "workers": [each.as_dict() for each in workers()],
        "latencies": {
            name: histogram.as_dict() for name, histogram in sorted(latencies().items())
        },
    }
