# SPDX-License-Identifier: BSD-3-Clause
"""Two idle processes with open endpoints, seen from outside."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator
from pathlib import Path

from _contenders import Case, Python
from _process import Child

HOLD = Case("hold")


@contextlib.contextmanager
def idle_pair(contender: Python, endpoints: int) -> Iterator[tuple[Child, Child]]:
    """Server and client with `endpoints` connections, a receive posted on each."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    spec = {**contender.describe(HOLD, endpoints), "n": endpoints}
    env = contender.environment(HOLD)
    with Child(contender.server(spec), env, True, 0) as server:
        spec["port"] = server.message()["port"]
        with Child(contender.client(spec), env, True, 1) as client:
            client.message()
            yield server, client


def cpu_seconds(pid: int) -> float:
    """Time on a core, of all threads."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9


def wake_ups(pid: int) -> int:
    """How often a thread slept and was woken."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        for line in (task / "status").read_text().splitlines():
            if line.startswith("voluntary_ctxt_switches"):
                total += int(line.split()[1])
    return total


def private_bytes(pid: int) -> int:
    """Memory that is this process's alone."""
    total = 0
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith(("Private_Clean", "Private_Dirty")):
            total += int(line.split()[1]) * 1024
    return total
