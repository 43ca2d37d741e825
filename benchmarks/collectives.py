# SPDX-License-Identifier: BSD-3-Clause
"""Collective operations of ranks on this host: libumx in C against mpi4py.

Microseconds, best of the rounds, all alternating, or with --median their median;
behind each is what mpi4py takes by what it takes. Without mpi4py the others are
measured alone. With --python there are also ``ucp.sync.Communicator`` and
``ucp.Communicator``, on asyncio. With --busy a process computes on each processor
meanwhile.

python benchmarks/collectives.py [--ranks 2,4] [--rounds 9] [--seconds 0.05]
    [--operations barrier,bcast] [--sizes 8,64K] [--kinds memory,user]
    [--python] [--mpi /venv/bin/python] [--median] [--busy] [--json FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import atexit
import functools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy
from _contenders import human, libucx, sizes
from _process import free_port

ROOT = Path(__file__).parents[1]
OPERATIONS = ("barrier", "alltoall", "bcast", "allgather", "allreduce")
SIZES = "8,1K,64K,1M,16M"
KINDS = ("memory", "user")


@functools.cache
def program() -> str:
    """collectives.c and the library, compiled for the life of this process."""
    folder = tempfile.mkdtemp(prefix="ucp-bench-")
    atexit.register(shutil.rmtree, folder)
    path = f"{folder}/collectives"
    sources = [str(source) for source in ROOT.glob("src/*/*.c")]
    command = ["cc", "-std=gnu11", "-O3", "-flto=auto", "-pthread"]
    command += [f"-I{ROOT}/include", f"-I{ROOT}/src", f"-I{libucx()}/include"]
    command += [str(ROOT / "benchmarks/collectives.c"), *sources, "-o", path]
    command += [f"-L{libucx()}/lib", f"-Wl,-rpath,{libucx()}/lib", "-lucp", "-lucs"]
    subprocess.run(command, check=True)
    return path


class Side:
    """Processes that do what lines of their standard input say.

    The first tells how long that took.
    """

    def __init__(self, *commands: list[str]) -> None:
        self._children = [
            subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            for command in commands
        ]

    def ask(self, line: str) -> str:
        for child in self._children:
            assert child.stdin is not None
            child.stdin.write(line + "\n")
            child.stdin.flush()
        return self._read()

    def _read(self) -> str:
        assert self._children[0].stdout is not None
        return self._children[0].stdout.readline().strip()

    def explain(self) -> Iterator[str]:
        line = self.ask("explain")
        while line:
            yield line
            line = self._read()

    def close(self) -> None:
        for child in self._children:
            assert child.stdin is not None
            child.stdin.close()
        for child in self._children:
            child.wait(30)


def pin(rank: int) -> None:
    processors = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {processors[rank % len(processors)]})


def buffers(
    operation: str, size: int, ranks: int, allocate: Callable[[int], Any]
) -> tuple[Any, Any]:
    many = ranks if operation in ("alltoall", "allgather") else 1
    sent = allocate(size * (ranks if operation == "alltoall" else 1))
    received = allocate(size * many)
    # Memory of their own, not the system's page of zeros.
    numpy.asarray(sent).view("u1")[:] = 1
    numpy.asarray(received).view("u1")[:] = 1
    return sent, received


def call(
    comm: Any, rank: int, ranks: int, line: str, allocate: Callable[[int], Any]
) -> Callable[[], Any]:
    """The operation that a line names, as a method of ``ucp``'s communicators."""
    operation, size = line.split()[0], int(line.split()[1])
    sent, received = buffers(operation, size, ranks, allocate)
    counts = [0 if other == rank else size for other in range(ranks)]
    match operation:
        case "barrier":
            return comm.barrier
        case "bcast":
            return functools.partial(comm.bcast, sent)
        case "allgather":
            return functools.partial(comm.allgather, sent, received)
        case "alltoall":
            return functools.partial(comm.alltoallv, sent, counts, received, counts)
    sent, received = (numpy.asarray(one).view("f8") for one in (sent, received))
    return functools.partial(comm.allreduce, sent, received)


def allocator(kind: str) -> Callable[[int], Any]:
    import ucp

    if kind == "memory":
        return ucp.Memory.allocate
    return functools.partial(numpy.zeros, dtype="u1")


def serve_sync(rank: int, ranks: int, port: int) -> None:
    """A rank of ``ucp.sync``."""
    import ucp.sync

    pin(rank)
    root = f"tcp://127.0.0.1:{port}"
    with ucp.sync.Communicator.connect(root, rank, ranks) as comm:
        for line in sys.stdin:
            function = call(comm, rank, ranks, line, allocator(line.split()[2]))
            times = int(line.split()[3])
            function()
            function()
            comm.barrier()
            started = time.perf_counter()
            for _ in range(times):
                function()
            took = (time.perf_counter() - started) / times
            comm.barrier()
            print(took, flush=True)


async def serve_asyncio(rank: int, ranks: int, port: int) -> None:
    """A rank of ``ucp`` on an event loop."""
    import ucp

    pin(rank)
    root = f"tcp://127.0.0.1:{port}"
    async with await ucp.Communicator.connect(root, rank, ranks) as comm:
        while line := await asyncio.to_thread(sys.stdin.readline):
            function = call(comm, rank, ranks, line, allocator(line.split()[2]))
            times = int(line.split()[3])
            await function()
            await function()
            await comm.barrier()
            started = time.perf_counter()
            for _ in range(times):
                await function()
            took = (time.perf_counter() - started) / times
            await comm.barrier()
            print(took, flush=True)


def serve_mpi(commands: IO[str]) -> None:
    """A rank of mpi4py. It sleeps while the others are measured."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    pin(comm.rank)
    words = numpy.zeros(3, "i8")
    while True:
        if comm.rank == 0:
            line = commands.readline().split()
            words[:] = (
                (OPERATIONS.index(line[0]), int(line[1]), int(line[3]))
                if line
                else (-1, 0, 0)
            )
        request = comm.Ibcast(words)
        while not request.Test():
            time.sleep(0.0005)
        number, size, times = map(int, words)
        if number < 0:
            return
        ranks, operation = comm.size, OPERATIONS[number]
        sent, received = buffers(
            operation, size, ranks, functools.partial(numpy.zeros, dtype="u1")
        )
        counts = [0 if rank == comm.rank else size for rank in range(ranks)]
        if operation == "barrier":
            function = comm.Barrier
        elif operation == "bcast":
            function = functools.partial(comm.Bcast, sent)
        elif operation == "allgather":
            function = functools.partial(comm.Allgather, sent, received)
        elif operation == "alltoall":
            function = functools.partial(
                comm.Alltoallv, [sent, counts], [received, counts]
            )
        else:
            function = functools.partial(
                comm.Allreduce, sent.view("f8"), received.view("f8")
            )
        function()
        function()
        comm.Barrier()
        started = time.perf_counter()
        for _ in range(times):
            function()
        took = (time.perf_counter() - started) / times
        comm.Barrier()
        if comm.rank == 0:
            print(took, flush=True)


def start_mpi(python: str, ranks: int) -> Side | None:
    found = subprocess.run([python, "-c", "import mpi4py.MPI"], capture_output=True)
    mpiexec = shutil.which("mpiexec", path=str(Path(python).parent)) or "mpiexec"
    if found.returncode != 0 or shutil.which(mpiexec) is None:
        print("mpi4py: skipped, it is not installed")
        return None
    return Side([mpiexec, "-n", str(ranks), python, __file__, "--serve-mpi"])


def times_of(side: Side, line: str, seconds: float) -> int:
    """How often an operation fits into the seconds."""
    took = float(side.ask(f"{line} 3"))
    return max(3, min(20000, int(seconds / took)))


def start_python(face: str, ranks: int) -> Side:
    port = free_port()
    return Side(
        *(
            [
                sys.executable,
                __file__,
                "--serve",
                face,
                str(rank),
                str(ranks),
                str(port),
            ]
            for rank in range(ranks)
        )
    )


def start_busy() -> list[subprocess.Popen[bytes]]:
    """A process that computes on each processor."""
    return [
        subprocess.Popen(
            ["taskset", "-c", str(processor), sys.executable, "-c", "while True: pass"]
        )
        for processor in os.sched_getaffinity(0)
    ]


def measure(sides: list[Side], line: str, options: argparse.Namespace) -> list[float]:
    """Microseconds of each."""
    times = [times_of(side, line, options.seconds) for side in sides]
    took: list[list[float]] = [[] for _ in sides]
    for _ in range(options.rounds):
        for i, side in enumerate(sides):
            took[i].append(float(side.ask(f"{line} {times[i]}")))
    summarize = statistics.median if options.median else min
    return [summarize(seconds) * 1e6 for seconds in took]


def compare(ranks: int, options: argparse.Namespace) -> list[dict[str, Any]]:
    found = []
    sides = {"umx": Side([program(), str(free_port()), str(ranks)])}
    started = start_mpi(options.mpi, ranks)
    if started is not None:
        sides["mpi4py"] = started
    if options.python:
        sides["sync"] = start_python("sync", ranks)
        sides["asyncio"] = start_python("asyncio", ranks)
    print(f"\n{ranks} ranks")
    names = "".join(f"{name:>10}{'':8}" for name in sides)
    print(f"{'operation':12}{'bytes':>6} {'kind':8}{names}")
    for operation in options.operations.split(","):
        is_barrier = operation == "barrier"
        for size in [8] if is_barrier else sizes(options.sizes):
            for kind in ["user"] if is_barrier else options.kinds.split(","):
                line = f"{operation} {size} {kind}"
                took = measure([*sides.values()], line, options)
                us = dict(zip(sides, took, strict=True))
                row = {"operation": operation, "nbytes": size, "kind": kind}
                found.append({**row, "ranks": ranks, "us": us})
                mpi = us.get("mpi4py", float("nan"))
                figures = "".join(
                    f"{value:10.2f} ({mpi / value:4.2f}x)" for value in us.values()
                )
                print(f"{operation:12}{human(size):>6} {kind:8}{figures}", flush=True)
    print("\n".join(sides["umx"].explain()))
    for side in sides.values():
        side.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.05)
    parser.add_argument("--operations", default=",".join(OPERATIONS))
    parser.add_argument("--sizes", default=SIZES)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--mpi", default=sys.executable)
    parser.add_argument("--python", action="store_true")
    parser.add_argument("--median", action="store_true")
    parser.add_argument("--busy", action="store_true")
    parser.add_argument("--json", type=Path, help="a file for the results")
    parser.add_argument("--serve-mpi", action="store_true")
    parser.add_argument("--serve", nargs=4)
    options = parser.parse_args()
    if options.serve_mpi:
        serve_mpi(sys.stdin)
        return
    if options.serve is not None:
        face, *numbers = options.serve
        if face == "sync":
            serve_sync(*map(int, numbers))
        else:
            asyncio.run(serve_asyncio(*map(int, numbers)))
        return
    others = start_busy() if options.busy else []
    try:
        found = []
        for ranks in options.ranks.split(","):
            found += compare(int(ranks), options)
        if options.json:
            options.json.write_text(json.dumps(found, indent=1))
    finally:
        for other in others:
            other.kill()
            other.wait()


if __name__ == "__main__":
    main()
