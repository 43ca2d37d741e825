# SPDX-License-Identifier: BSD-3-Clause
"""Allocate, fill and free memory: of a heap, and as a segment of its own.

One process; microseconds, best of the rounds, the two alternating.

python benchmarks/heap.py [--rounds 20]
"""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Callable

import _interrupts  # noqa: F401

import ucp

SIZES = (64, 4096, 16384, 65536)
TIMES = 200


def once(allocate: Callable[[int], ucp.Memory], content: bytes) -> None:
    memory = allocate(len(content))
    with memoryview(memory) as view:
        view[:] = content
    memory.close()


def measure(function: Callable[[], None]) -> float:
    started = time.perf_counter()
    for _ in range(TIMES):
        function()
    return (time.perf_counter() - started) / TIMES * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    print(f"{'bytes':>8} {'segment':>9} {'heap':>9} {'ratio':>7}")
    with ucp.Heap() as heap:
        for size in SIZES:
            content = bytes(size)
            segment = functools.partial(once, ucp.Memory.allocate, content)
            shared = functools.partial(once, heap.allocate, content)
            pairs = [(measure(segment), measure(shared)) for _ in range(rounds)]
            ours, heaps = (min(column) for column in zip(*pairs, strict=True))
            print(f"{size:8} {ours:9.2f} {heaps:9.2f} {ours / heaps:7.1f}")


if __name__ == "__main__":
    main()
