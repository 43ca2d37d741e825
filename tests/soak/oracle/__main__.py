# SPDX-License-Identifier: BSD-3-Clause
"""Random programs of communicators, whose results NumPy knows.

    python tests/soak/oracle 10000 [--over threads|shm|tcp] [--seed 7] [--size 3]

The ranks are threads, or processes that talk over shared memory or tcp. A
session is a number of programs of the same ranks. The first fault ends it all:
what is printed then says how to run its session again. The seed decides what is
called, not when: a fault need not come back.
"""

import argparse
import asyncio
import functools
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
import traceback

from program import Program

import ucp

SESSION = 100  # programs of a session
SIZES = 5  # ranks at most

_LIMIT_S = 60  # that a program may take
_HEARTBEAT_S = 60


@functools.lru_cache(maxsize=8)  # ranks that are threads share it
def draw(seed, size):
    return Program(seed, size)


async def run_rank(root, rank, size, seed, count):
    """One rank of a session."""
    worlds = [
        await ucp.Communicator.connect(
            f"{root}-{name}",
            rank if name == "first" else size - 1 - rank,
            size,
            name=name,
            heartbeat=_HEARTBEAT_S,
        )
        for name in ("first", "second")
    ]
    for number in range(count):
        program = draw(f"{seed}/{number}", size)
        try:
            async with asyncio.timeout(_LIMIT_S):
                await program.run(worlds, rank)
        except BaseException as exc:
            exc.add_note(f"rank {rank} of {size}, program {program.seed}")
            for world in worlds:
                world.abort(f"program {program.seed}: {exc!r}")
            raise
    for world in worlds:
        await world.barrier()
        world.close()


def in_threads(root, size, seed, count):
    """Run a session; the faults."""
    faults = []

    def start(rank):
        try:
            asyncio.run(run_rank(root, rank, size, seed, count))
        except BaseException:
            faults.append(traceback.format_exc())

    threads = [threading.Thread(target=start, args=[rank]) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return faults


def in_processes(root, size, seed, count, over):
    words = [sys.executable, "-P", "-X", "faulthandler", os.path.dirname(__file__)]
    words += [str(count), "--seed", str(seed), "--size", str(size)]
    words += ["--over", over, "--root", root, "--rank"]
    ranks = [
        subprocess.Popen([*words, str(rank)], stderr=subprocess.PIPE, text=True)
        for rank in range(size)
    ]
    errors = [each.communicate()[1] for each in ranks]
    return [
        f"rank {rank} has ended with {each.returncode}:\n{error}"
        for rank, (each, error) in enumerate(zip(ranks, errors, strict=True))
        if each.returncode or error
    ]


def run_sessions(arguments):
    """Run sessions until there were as many programs; what to print."""
    started = time.monotonic()
    done = sessions = 0
    while done < arguments.programs:
        seed = arguments.seed + sessions
        size = arguments.size or random.Random(seed).randint(1, SIZES)
        count = min(SESSION, arguments.programs - done)
        with tempfile.TemporaryDirectory() as folder:
            root = f"file://{folder}/root"
            if arguments.over == "threads":
                faults = in_threads(root, size, seed, count)
            else:
                faults = in_processes(root, size, seed, count, arguments.over)
        if faults:
            print(*faults, sep="\n", file=sys.stderr)
            sys.exit(
                f"oracle: session {seed} failed: python tests/soak/oracle {count} "
                f"--over {arguments.over} --seed {seed} --size {size}"
            )
        done += count
        sessions += 1
        if arguments.verbose:
            print(f"{done} programs", flush=True)
    elapsed = time.monotonic() - started
    print(
        f"oracle: {done} programs in {sessions} sessions over {arguments.over}, "
        f"{elapsed:.1f} s, seeds from {arguments.seed}"
    )


def main():
    parser = argparse.ArgumentParser(prog="tests/soak/oracle", description=__doc__)
    parser.add_argument("programs", type=int)
    parser.add_argument("--over", choices=["threads", "shm", "tcp"], default="threads")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--size", type=int)
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--root", help=argparse.SUPPRESS)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rank is None:
        run_sessions(arguments)
        return
    ucp.init(options={"TLS": "tcp"} if arguments.over == "tcp" else None)
    asyncio.run(
        run_rank(
            arguments.root,
            arguments.rank,
            arguments.size,
            arguments.seed,
            arguments.programs,
        )
    )


if __name__ == "__main__":
    main()
