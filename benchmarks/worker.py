# SPDX-License-Identifier: BSD-3-Clause
"""What a worker, an endpoint and a rank take: memory, and CPU to make them.

KiB, of shared memory and of memory of the process, and ms of CPU. A worker is made in
a process that makes one beside another; endpoints between two workers of a process; a
rank in a process of its own, with its worker, when it has done some collective
operations with the other ranks of the host. The first worker or endpoint is not
counted, since it loads what a process needs once, and neither are imports.

python benchmarks/worker.py [--workers 5] [--endpoints 50] [--ranks 4]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ucp

SEGMENTS = {"/dev/shm/ucx_shm_posix_": "dev_shm", "/SYSV": "sysv"}
# UCX allocates all of a file, and of a segment what it writes.
COUNTS = {"dev_shm": "Size:", "sysv": "Rss:"}


@dataclass
class Taken:
    """KiB, and ms of CPU."""

    dev_shm: float = 0
    sysv: float = 0
    private: float = 0
    ms: float = 0

    def __sub__(self, other: Taken) -> Taken:
        return Taken(*(getattr(self, n) - getattr(other, n) for n in NAMES))

    def each(self, count: int) -> Taken:
        return Taken(*(getattr(self, name) / count for name in NAMES))

    def __str__(self) -> str:
        return (
            f"shared memory {self.dev_shm + self.sysv:.0f} KiB, of it in /dev/shm "
            f"{self.dev_shm:.0f} KiB; own {self.private:.0f} KiB; CPU {self.ms:.3g} ms"
        )


NAMES = [each.name for each in fields(Taken)]


def median(samples: Sequence[Taken]) -> Taken:
    """Of each number."""
    return Taken(
        *(statistics.median(getattr(each, name) for each in samples) for name in NAMES)
    )


def taken() -> Taken:
    """What this process has."""
    now = Taken(ms=time.process_time() * 1e3)
    where = ""
    for line in Path("/proc/self/smaps").read_text().splitlines():
        words = line.split(maxsplit=5)
        if not words[0].endswith(":"):
            name = words[-1] if len(words) == 6 else ""
            found = (SEGMENTS[key] for key in SEGMENTS if name.startswith(key))
            where = next(found, "private")
        elif words[0] == COUNTS.get(where, "Anonymous:"):
            setattr(now, where, getattr(now, where) + int(words[1]))
    return now


# ---- a worker ------------------------------------------------------------------


async def one(kept: list[ucp.Listener]) -> Taken:
    import ucp

    before = taken()
    begun = time.process_time()
    kept.append(ucp.create_listener(host="127.0.0.1"))
    ms = (time.process_time() - begun) * 1e3
    found = taken() - before
    found.ms = ms
    return found


async def close(listener: ucp.Listener) -> None:
    listener.close()


def measure(workers: int) -> Taken:
    """What a worker takes beside others: each event loop has its own."""
    loops = [asyncio.new_event_loop() for _ in range(workers + 1)]
    kept: list[ucp.Listener] = []
    samples = [loop.run_until_complete(one(kept)) for loop in loops]
    for loop, listener in zip(loops, kept, strict=True):
        loop.run_until_complete(close(listener))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
    return median(samples[1:])


# ---- an endpoint ---------------------------------------------------------------


async def _endpoints(count: int) -> Taken:
    import ucp

    accepted: list[ucp.Endpoint] = []
    listener = ucp.create_listener(accepted.append, host="127.0.0.1")
    made = [await ucp.create_endpoint("127.0.0.1", listener.port)]
    before = taken()
    begun = time.process_time()
    for _ in range(count):
        made.append(await ucp.create_endpoint("127.0.0.1", listener.port))
    while len(accepted) <= count:
        await asyncio.sleep(0)
    ms = (time.process_time() - begun) * 1e3
    found = taken() - before
    found.ms = ms
    for endpoint in [*made, *accepted]:
        endpoint.abort()
    listener.close()
    return found.each(2 * count)


def measure_endpoint(endpoints: int) -> Taken:
    """What each end takes of so many connections of a process. It is one that has
    freed nothing before, which would be used again."""
    return _results([["--as-endpoints", str(endpoints)]])[0]


# ---- a rank --------------------------------------------------------------------


async def _rank(root: str, rank: int, size: int) -> Taken:
    import numpy as np

    import ucp

    numbers = np.ones(size)
    before = taken()
    comm = await ucp.Communicator.connect(root, rank, size, timeout=60)
    for _ in range(10):
        await comm.allreduce(numbers.copy())
    found = taken() - before
    await comm.barrier()
    comm.close()
    return found


def measure_rank(size: int) -> Taken:
    """What each of so many ranks takes that do short operations, its worker too."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        root = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    return median(
        _results([["--as-rank", root, str(size), str(rank)] for rank in range(size)])
    )


# ---- processes -----------------------------------------------------------------


def _results(all_words: Sequence[list[str]]) -> list[Taken]:
    """What processes of this program print that run at the same time."""
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, *words], stdout=subprocess.PIPE, text=True
        )
        for words in all_words
    ]
    outs = [process.communicate(timeout=120)[0] for process in processes]
    return [Taken(**json.loads(out)) for out in outs]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=5)
    parser.add_argument("--endpoints", type=int, default=50)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--as-endpoints", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--as-rank", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.as_endpoints:
        print(json.dumps(asdict(asyncio.run(_endpoints(options.as_endpoints)))))
        sys.exit()
    if options.as_rank:
        root, size, rank = options.as_rank
        print(json.dumps(asdict(asyncio.run(_rank(root, int(rank), int(size))))))
        sys.exit()
    print(f"worker: {measure(options.workers)}")
    print(f"endpoint: {measure_endpoint(options.endpoints)}")
    print(f"rank, {options.ranks} of them: {measure_rank(options.ranks)}")
