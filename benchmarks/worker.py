# SPDX-License-Identifier: BSD-3-Clause
"""What a worker takes: shared memory, and CPU to make it.

Kilobytes and milliseconds, in a process that makes one worker after another. The
first one is not counted, since it loads what a process needs once.

python benchmarks/worker.py [--workers 5]
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from dataclasses import dataclass, fields
from pathlib import Path

SEGMENTS = {"/dev/shm/ucx_shm_posix_": "dev_shm", "/SYSV": "sysv"}
# UCX allocates all of a file, and of a segment what it writes.
COUNTS = {"dev_shm": "Size:", "sysv": "Rss:"}


@dataclass
class Worker:
    """KiB, and ms of CPU."""

    dev_shm: float = 0
    sysv: float = 0
    ms: float = 0


def held() -> Worker:
    """What this process has."""
    now = Worker()
    where = ""
    for line in Path("/proc/self/smaps").read_text().splitlines():
        words = line.split(maxsplit=5)
        if not words[0].endswith(":"):
            name = words[-1] if len(words) == 6 else ""
            found = (SEGMENTS[key] for key in SEGMENTS if name.startswith(key))
            where = next(found, "")
        elif where and words[0] == COUNTS[where]:
            setattr(now, where, getattr(now, where) + int(words[1]))
    return now


async def one() -> Worker:
    import ucp

    before = held()
    begun = time.process_time()
    listener = ucp.create_listener(host="127.0.0.1")
    ms = (time.process_time() - begun) * 1e3
    after = held()
    listener.close()
    return Worker(
        after.dev_shm - before.dev_shm,
        after.sysv - before.sysv,
        ms,
    )


def measure(workers: int) -> Worker:
    """The median of each."""
    samples = [asyncio.run(one()) for _ in range(workers + 1)][1:]
    return Worker(
        *(
            statistics.median(getattr(sample, each.name) for sample in samples)
            for each in fields(Worker)
        )
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=5)
    found = measure(parser.parse_args().workers)
    shared = found.dev_shm + found.sysv
    print(f"shared memory: {shared:.0f} KiB, of it in /dev/shm {found.dev_shm:.0f} KiB")
    print(f"CPU: {found.ms:.1f} ms")
