# SPDX-License-Identifier: BSD-3-Clause
"""Read outputs of maps in another process, compared with a copy of the same blocks.

Two processes on one host: rank 0 commits maps, as memory and as files, and rank 1
reads every block of them. GB/s and thousands of blocks a second, best of the rounds,
in which the ways follow each other. `copy` copies the same blocks from mapped memory
by NumPy, and is what the others are compared with. `views` hands blocks out where
they are, and touches none of their bytes; `views, copied` copies them to memory that
is used again. `gets` has every block copied by the library, as from another host;
`pool` to the buffers of a pool. `file views` maps files by windows, and copies the
blocks from there; `file gets` has the owner of the files lend windows.

python benchmarks/shuffle.py [--rounds 5] [--mib 64] [--json FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from typing import Any

import _interrupts  # noqa: F401
import numpy as np

import ucp
from ucp.shuffle import MapOutputs, Reader, Writer

SIZES = {"0 to 64 KiB": None, "4 KiB": 4096, "1 MiB": 1 << 20, "16 MiB": 16 << 20}
MAPS = 4
Way = Callable[[], Awaitable[tuple[int, int]]]


def lengths(size: int | None, nbytes: int) -> np.ndarray[Any, Any]:
    """The bytes of each block, by map and partition."""
    if size is not None:
        return np.full((MAPS, max(nbytes // size // MAPS, 1)), size)
    random = np.random.default_rng(1)
    return random.integers(0, 65537, (MAPS, nbytes // 32768 // MAPS))


async def write(outputs: MapOutputs, blocks: Any, **options: Any) -> None:
    for map_id, sizes in enumerate(blocks):
        async with Writer(outputs, map_id, **options) as writer:
            for partition, size in enumerate(sizes):
                writer.write(
                    partition, np.full(size, (map_id + partition) % 251, np.uint8)
                )
            if options:
                options["path"] = f"{options['path']}+"
            await writer.commit()


def copier(target: np.ndarray[Any, Any]) -> Callable[[Any], int]:
    at = 0

    def copy(block: Any) -> int:
        nonlocal at
        size = len(block)
        if at + size > len(target):
            at = 0
        target[at : at + size] = np.frombuffer(block, np.uint8)
        at += size
        return size

    return copy


def ways(memory: MapOutputs, files: MapOutputs, total: int) -> dict[str, Way]:
    target = np.ones(total, np.uint8)
    every = range(memory.num_partitions)
    near, far = Reader(memory), Reader(memory, elsewhere=True)
    near_file, far_file = Reader(files), Reader(files, elsewhere=True)
    kept: list[memoryview] = []
    pool = ucp.BufferPool(4, 16 << 20)

    async def plain() -> tuple[int, int]:
        if not kept:
            kept.extend([memoryview(b) async for b in near.fetch(every)])
        copy = copier(target)
        return len(kept), sum(copy(block) for block in kept)

    def fetch(reader: Reader, copies: bool, **options: Any) -> Way:
        async def run() -> tuple[int, int]:
            copy, count, nbytes = copier(target), 0, 0
            async for block in reader.fetch(every, **options):
                count += 1
                nbytes += copy(memoryview(block)) if copies else block.nbytes
                block.release()
            return count, nbytes

        return run

    return {
        "copy": plain,
        "views": fetch(near, False),
        "views, copied": fetch(near, True),
        "gets": fetch(far, False),
        "pool": fetch(far, False, pool=pool),
        "file views": fetch(near_file, True),
        "file gets": fetch(far_file, False),
    }


async def measure(found: dict[str, Way], rounds: int) -> dict[str, dict[str, float]]:
    best: dict[str, tuple[float, int, int]] = {}
    for _ in range(rounds):
        for name, way in found.items():
            begin = time.perf_counter()
            count, nbytes = await way()
            seconds = time.perf_counter() - begin
            if name not in best or seconds < best[name][0]:
                best[name] = seconds, count, nbytes
    return {
        name: {"GB/s": nbytes / seconds / 1e9, "kblocks/s": count / seconds / 1e3}
        for name, (seconds, count, nbytes) in best.items()
    }


async def run_case(comm: Any, size: int | None, arguments: Any, directory: str) -> Any:
    blocks = lengths(size, arguments.mib << 20)
    memory = await MapOutputs.create(comm, MAPS, blocks.shape[1])
    files = await MapOutputs.create(comm, MAPS, blocks.shape[1])
    result = None
    if comm.rank == 0:
        await write(memory, blocks)
        path = os.path.join(directory, f"{size}")
        await write(files, blocks, backend="file", path=path)
    await comm.barrier()
    if comm.rank == 1:
        found = ways(memory, files, int(blocks.sum()))
        result = await measure(found, arguments.rounds)
    await comm.barrier()
    memory.abort()
    files.abort()
    return result


def show(name: str, result: dict[str, dict[str, float]]) -> None:
    floor = result["copy"]["GB/s"]
    print(f"\nblocks of {name}")
    for way, figures in result.items():
        print(
            f"  {way:14} {figures['GB/s']:9.2f} GB/s  {figures['kblocks/s']:9.1f} "
            f"k blocks/s  {figures['GB/s'] / floor:7.2f} x copy"
        )


async def run_rank(arguments: Any) -> None:
    comm = await ucp.Communicator.connect(arguments.root, arguments.rank, 2)
    results = {}
    async with comm:
        for name, size in SIZES.items():
            result = await run_case(comm, size, arguments, arguments.directory)
            if result is not None:
                show(name, result)
                results[name] = result
    if results and arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(results, file, indent=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--mib", type=int, default=64, help="MiB in all")
    parser.add_argument("--json", help="a file for the results")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--root", help=argparse.SUPPRESS)
    parser.add_argument("--directory", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rank is not None:
        asyncio.run(run_rank(arguments))
        return
    with socket.socket() as sock, tempfile.TemporaryDirectory() as directory:
        sock.bind(("127.0.0.1", 0))
        root = f"tcp://127.0.0.1:{sock.getsockname()[1]}"
        sock.close()
        command = [sys.executable, __file__, *sys.argv[1:], "--root", root]
        command += ["--directory", directory, "--rank"]
        processes = [subprocess.Popen([*command, str(rank)]) for rank in range(2)]
        sys.exit(max(process.wait() for process in processes))


if __name__ == "__main__":
    main()
