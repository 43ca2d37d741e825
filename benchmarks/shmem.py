# SPDX-License-Identifier: BSD-3-Clause
"""A symmetric heap of two ranks on this host: C, Python, and mpi4py's windows.

Rows, seconds of one, the best of the rounds, which are interleaved:

    C       put and put_signal of 8 bytes: in line with and without the fence, and
            by a call; half a round trip of put_signal and wait; 16 MiB got
    Python  an awaited put_signal; one of ucp.sync; a wait for what is true; half a
            round trip of blocking calls; 16 MiB got
    mpi4py  Put, Flush, Accumulate, Flush, which is what a put_signal is there;
            16 MiB by Get and Flush

python benchmarks/shmem.py [--rounds 5] [--mpi /venv/bin/python]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from _contenders import libucx

ROOT = Path(__file__).parents[1]
LARGE = 16 << 20
CALLS = 20_000


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def compiled(folder: str) -> str:
    """shmem.c and the library, as one program."""
    program = f"{folder}/shmem"
    command = ["cc", "-std=gnu11", "-O3", "-flto=auto", "-pthread"]
    command += [f"-I{ROOT}/include", f"-I{ROOT}/src", f"-I{libucx()}/include"]
    command += [str(ROOT / "benchmarks/shmem.c")]
    command += [str(path) for path in ROOT.glob("src/*/*.c")]
    command += ["-o", program, f"-L{libucx()}/lib", "-lucp", "-lucs", "-ldl"]
    subprocess.run(command, check=True)
    return program


def best(call: Callable[[], float], times: int = 5) -> float:
    return min(call() for _ in range(times))


# ---- the ranks of each side --------------------------------------------------


def serve_blocking(rank: int, root: str) -> None:
    """Blocking calls; rank 0 prints."""
    import ucp

    os.sched_setaffinity(0, {rank})
    with (
        ucp.sync.Communicator.connect(root, rank, 2) as comm,
        ucp.sync.SymmetricHeap.create(comm, 64 << 20) as heap,
    ):
        x, signal, turn = heap.zeros(1, "u8"), heap.zeros(1, "u8"), heap.zeros(1, "u8")
        large = heap.zeros(LARGE, "u1")
        data, buffer = np.ones(1, "u8"), np.ones(LARGE, "u1")

        def put_signal() -> float:
            start = time.perf_counter()
            for _ in range(CALLS):
                heap.put_signal(x, data, 1, signal, 1)
            return (time.perf_counter() - start) / CALLS

        def wait_true() -> float:
            start = time.perf_counter()
            for _ in range(CALLS):
                turn.wait_until(">=", 0)
            return (time.perf_counter() - start) / CALLS

        def get() -> float:
            start = time.perf_counter()
            heap.get(buffer, large, 1)
            return time.perf_counter() - start

        def trip(first: int) -> float:
            start = time.perf_counter()
            for number in range(first + 1, first + 1001):
                if rank == 1:
                    turn.wait_until(">=", number)
                heap.put_signal(x, data, 1 - rank, turn, number)
                if rank == 0:
                    turn.wait_until(">=", number)
            return (time.perf_counter() - start) / 2000

        heap.barrier_all()
        if rank == 0:
            print("sync_put_signal", best(put_signal))
            print("sync_wait_true", best(wait_true))
            print("python_get_16_MiB", best(get))
        heap.barrier_all()
        trips = min(trip(1000 * number) for number in range(10))
        if rank == 0:
            print("sync_half_trip", trips)


async def serve_awaited(rank: int, root: str) -> None:
    """Awaited calls; rank 0 prints."""
    import ucp

    os.sched_setaffinity(0, {rank})
    async with (
        await ucp.Communicator.connect(root, rank, 2) as comm,
        await ucp.shmem.SymmetricHeap.create(comm, 1 << 20) as heap,
    ):
        x, signal = await heap.zeros(1, "u8"), await heap.zeros(1, "u8")
        data = np.ones(1, "u8")
        await heap.barrier_all()
        if rank == 0:
            calls, awaits, waits = [], [], []
            for _ in range(5):
                start = time.perf_counter()
                for _ in range(CALLS):
                    heap.put_signal(x, data, 1, signal, 1)
                calls.append((time.perf_counter() - start) / CALLS)
                start = time.perf_counter()
                for _ in range(CALLS):
                    await heap.put_signal(x, data, 1, signal, 1)
                awaits.append((time.perf_counter() - start) / CALLS)
                start = time.perf_counter()
                for _ in range(CALLS):
                    await signal.wait_until(">=", 0)
                waits.append((time.perf_counter() - start) / CALLS)
            print("python_put_signal", min(calls))
            print("python_put_signal_awaited", min(awaits))
            print("python_wait_true", min(waits))


def serve_mpi() -> None:
    """A rank of mpi4py; rank 0 prints."""
    from mpi4py import MPI

    comm: Any = MPI.COMM_WORLD
    os.sched_setaffinity(0, {comm.rank})
    window = MPI.Win.Allocate(64 << 20, 1, comm=comm)
    data, one = np.ones(1, "u8"), np.ones(1, "u8")
    buffer = np.ones(LARGE, "u1")

    def put_signal() -> float:
        start = time.perf_counter()
        for _ in range(2000):
            window.Put(data, 1, 0)
            window.Flush(1)
            window.Accumulate(one, 1, 64, MPI.REPLACE)
            window.Flush(1)
        return (time.perf_counter() - start) / 2000

    def get() -> float:
        start = time.perf_counter()
        window.Get(buffer, 1, 4096)
        window.Flush(1)
        return time.perf_counter() - start

    window.Lock_all()
    comm.Barrier()
    if comm.rank == 0:
        print("mpi_put_signal", best(put_signal))
        print("mpi_get_16_MiB", best(get), flush=True)
    comm.Barrier()
    window.Unlock_all()
    window.Free()


# ---- rounds --------------------------------------------------------------------


def pair(kind: str) -> str:
    """What two ranks of this program print."""
    root = f"tcp://127.0.0.1:{free_port()}"
    ranks = [
        subprocess.Popen(
            [sys.executable, __file__, "--serve", kind, str(rank), root],
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    return "".join(rank.communicate(timeout=120)[0] for rank in ranks)


def run_c(program: str) -> str:
    command = [program, str(free_port()), "3"]
    env = {**os.environ, "LD_LIBRARY_PATH": f"{libucx()}/lib"}
    return subprocess.run(
        command, env=env, capture_output=True, text=True, check=True
    ).stdout


def run_mpi(python: str) -> str:
    mpiexec = shutil.which("mpiexec", path=str(Path(python).parent)) or "mpiexec"
    command = [mpiexec, "-n", "2", python, __file__, "--serve", "mpi", "0", ""]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def measure(options: argparse.Namespace) -> dict[str, float]:
    rows: dict[str, float] = {}
    has_mpi = subprocess.run(
        [options.mpi, "-c", "import mpi4py.MPI"], capture_output=True
    )
    with tempfile.TemporaryDirectory(prefix="ucp-bench-") as folder:
        program = compiled(folder)
        for _ in range(options.rounds):
            text = run_c(program) + pair("awaited") + pair("blocking")
            if has_mpi.returncode == 0:
                text += run_mpi(options.mpi)
            for line in text.splitlines():
                name, value = line.split()
                rows[name] = min(rows.get(name, 1e9), float(value))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--mpi", default=sys.executable)
    parser.add_argument("--serve", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve is not None:
        kind, rank, root = options.serve
        if kind == "mpi":
            serve_mpi()
        elif kind == "blocking":
            serve_blocking(int(rank), root)
        else:
            asyncio.run(serve_awaited(int(rank), root))
        return
    rows = measure(options)
    for name, value in rows.items():
        print(f"{name:28} {value * 1e9:14.1f} ns")
    if "mpi_put_signal" in rows:
        ratio = rows["mpi_put_signal"] / rows["python_put_signal"]
        print(f"put_signal: {ratio:.1f}x of mpi4py's four calls")
        ratio = rows["mpi_get_16_MiB"] / rows["python_get_16_MiB"]
        print(f"16 MiB got: {ratio:.2f}x of mpi4py's Get and Flush")


if __name__ == "__main__":
    main()
