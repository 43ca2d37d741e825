# SPDX-License-Identifier: BSD-3-Clause
"""Collective operations of ranks on this host: libumx in C against mpi4py.

Microseconds, best of the rounds, the two alternating; "ratio" is what mpi4py
takes by what libumx takes. Without mpi4py the others are measured alone.

python benchmarks/collectives.py [--ranks 2,4] [--rounds 5] [--seconds 0.05]
    [--operations barrier,bcast] [--sizes 8,64K] [--kinds memory,user]
    [--mpi /venv/bin/python]
"""

from __future__ import annotations

import argparse
import atexit
import functools
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

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
    """Processes that do what lines of their standard input say."""

    def __init__(self, command: list[str]) -> None:
        self._child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, line: str) -> str:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.write(line + "\n")
        self._child.stdin.flush()
        return self._child.stdout.readline().strip()

    def explain(self) -> Iterator[str]:
        line = self.ask("explain")
        while line:
            yield line
            assert self._child.stdout is not None
            line = self._child.stdout.readline().strip()

    def close(self) -> None:
        assert self._child.stdin is not None
        self._child.stdin.close()
        self._child.wait(30)


def serve_mpi(commands: IO[str]) -> None:
    """A rank of mpi4py. It sleeps while the others are measured."""
    import os
    import time

    import numpy
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    processors = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {processors[comm.rank % len(processors)]})
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
        many = ranks if operation in ("alltoall", "allgather") else 1
        sent = numpy.zeros(size * (ranks if operation == "alltoall" else 1), "u1")
        received = numpy.zeros(size * many, "u1")
        sent[:] = received[:] = 1  # memory of its own, not the system's page of zeros
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


def measure(
    ours: Side, mpi: Side | None, line: str, options: argparse.Namespace
) -> tuple[float, float]:
    sides = [ours] if mpi is None else [ours, mpi]
    times = [times_of(side, line, options.seconds) for side in sides]
    best = [float("inf")] * 2
    for _ in range(options.rounds):
        for i, side in enumerate(sides):
            best[i] = min(best[i], float(side.ask(f"{line} {times[i]}")))
    return best[0] * 1e6, best[1] * 1e6


def compare(ranks: int, options: argparse.Namespace) -> None:
    ours = Side([program(), str(free_port()), str(ranks)])
    mpi = start_mpi(options.mpi, ranks)
    print(f"\n{ranks} ranks")
    print(f"{'operation':12}{'bytes':>6} kind{'mpi4py':>14}{'umx':>10}{'ratio':>7}")
    for operation in options.operations.split(","):
        is_barrier = operation == "barrier"
        for size in [8] if is_barrier else sizes(options.sizes):
            for kind in ["user"] if is_barrier else options.kinds.split(","):
                us, theirs = measure(ours, mpi, f"{operation} {size} {kind}", options)
                print(
                    f"{operation:12}{human(size):>6} {kind:8}{theirs:10.2f}{us:10.2f}"
                    f"{theirs / us:7.2f}",
                    flush=True,
                )
    print("\n".join(ours.explain()))
    for side in (ours, mpi):
        if side is not None:
            side.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.05)
    parser.add_argument("--operations", default=",".join(OPERATIONS))
    parser.add_argument("--sizes", default=SIZES)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--mpi", default=sys.executable)
    parser.add_argument("--serve-mpi", action="store_true")
    options = parser.parse_args()
    if options.serve_mpi:
        serve_mpi(sys.stdin)
        return
    for ranks in options.ranks.split(","):
        compare(int(ranks), options)


if __name__ == "__main__":
    main()
