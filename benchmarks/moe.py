# SPDX-License-Identifier: BSD-3-Clause
"""Dispatch and combine of ``ucp.moe``, against mpi4py's Alltoallv.

Each rank has tokens of bfloat16, and each token has experts that are chosen at
random. With mpi4py the rows are packed by destination and sent by Alltoallv, whose
counts are known; what the experts give comes back by Alltoallv and is summed by the
same function in C. The sums must be the same bytes. All is done by the same
processes, one after the other in each round; a round takes as long as its slowest
rank. mpi4py and an mpiexec (``--mpiexec``) are needed.

    python benchmarks/moe.py --ranks 2,4 --experts 8,64
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import _interrupts  # noqa: F401
import numpy as np

ROOT = Path(__file__).parents[1]
SEED = 7


def build(folder: str) -> Path:
    """The library with the sum, built as the extension is."""
    library = Path(folder) / "moe_sum.so"
    sources = [ROOT / "benchmarks/moe_sum.c", ROOT / "src/moe/rows.c"]
    flags = ["-std=gnu11", "-O3", "-DNDEBUG", "-fPIC", "-shared"]
    paths = [f"-I{ROOT / 'include'}", f"-I{ROOT / 'src'}"]
    cc = os.environ.get("CC", "cc")
    subprocess.run([cc, *flags, *paths, *sources, "-o", library], check=True)
    return library


class Rank:
    """What both sides have: tokens, experts, weights, and what experts give."""

    def __init__(self, rank: int, size: int, experts: int, args: argparse.Namespace):
        self.rank, self.size, self.experts = rank, size, experts
        self.local = experts // size
        self.tokens, self.topk, self.hidden = args.tokens, args.topk, args.hidden
        rng = np.random.default_rng((SEED, rank))
        shape = (self.tokens, self.hidden)
        self.x = (rng.random(shape, np.float32).view(np.uint32) >> 16).astype(np.uint16)
        self.topk_idx = self.routing(rank)
        self.weights = rng.random((self.tokens, self.topk), np.float32)

    def routing(self, rank: int) -> Any:
        order = np.random.default_rng((SEED, 1, rank)).random(
            (self.tokens, self.experts)
        )
        return order.argsort(1)[:, : self.topk].astype(np.int64)

    def counts(self, rank: int) -> Any:
        """Rows of that rank for each expert."""
        return np.bincount(self.routing(rank).ravel(), minlength=self.experts)

    def output(self, expert: int, source: int, count: int) -> Any:
        """What an expert gives: rows that depend on everything."""
        row = np.arange(self.hidden) % 97 + 16000 + expert + 100 * source
        return row.astype(np.uint16) + np.arange(count, dtype=np.uint16)[:, None]


class Mpi:
    """The calls of mpi4py."""

    def __init__(self, own: Rank, library: Path):
        from mpi4py import MPI

        self.own, self.world = own, MPI.COMM_WORLD
        self.row = MPI.BYTE.Create_contiguous(own.hidden * 2).Commit()
        flat = own.topk_idx.ravel()
        order = np.argsort(flat, kind="stable")
        self.token = order // own.topk
        sent = own.counts(own.rank).reshape(own.size, own.local).sum(1)
        received = np.array(
            [
                own.counts(s).reshape(own.size, own.local)[own.rank].sum()
                for s in range(own.size)
            ]
        )
        self.sent, self.received = self.pieces(sent), self.pieces(received)
        rows = own.tokens * own.topk
        self.packed = np.zeros((rows, own.hidden), np.uint16)
        self.arrived = np.zeros((int(received.sum()), own.hidden), np.uint16)
        self.back = np.zeros_like(self.packed)
        self.out = np.zeros((own.tokens, own.hidden), np.uint16)
        self.outputs = self.give()
        self.rows = np.zeros(rows, np.uint64)
        self.rows[order] = self.back.ctypes.data + np.arange(rows) * own.hidden * 2
        self.sum = ctypes.CDLL(str(library)).moe_sum

    @staticmethod
    def pieces(counts: Any) -> tuple[Any, Any]:
        return counts.astype("i4"), (np.cumsum(counts) - counts).astype("i4")

    def give(self) -> Any:
        own = self.own
        first = own.rank * own.local
        return np.concatenate(
            [
                own.output(first + e, s, own.counts(s)[first + e])
                for s in range(own.size)
                for e in range(own.local)
            ]
        )

    async def dispatch(self) -> None:
        np.take(self.own.x, self.token, 0, self.packed)
        self.world.Alltoallv(
            [self.packed, *self.sent, self.row],
            [self.arrived, *self.received, self.row],
        )

    async def combine(self) -> None:
        self.world.Alltoallv(
            [self.outputs, *self.received, self.row], [self.back, *self.sent, self.row]
        )
        self.add()

    def add(self) -> None:
        own = self.own
        data = (self.out, self.rows, own.weights)
        self.sum(
            *(ctypes.c_void_p(array.ctypes.data) for array in data),
            *(ctypes.c_size_t(n) for n in (own.tokens, own.topk, own.hidden)),
        )


class Moe:
    """The calls of ucp.moe, in low latency."""

    def __init__(self, own: Rank, buffer: Any):
        self.own, self.buffer = own, buffer
        self.handle: Any = None
        self.out = np.zeros((own.tokens, own.hidden), np.uint16)

    async def dispatch(self) -> None:
        own = self.own
        *_, self.handle = await self.buffer.low_latency_dispatch(own.x, own.topk_idx)

    def give(self) -> None:
        own, outputs = self.own, self.handle.outputs
        for e, s in np.ndindex(self.handle.recv_count.shape):
            count = int(self.handle.recv_count[e, s])
            outputs[e, s, :count] = own.output(own.rank * own.local + e, s, count)

    async def combine(self) -> None:
        own, handle = self.own, self.handle
        await self.buffer.low_latency_combine(
            handle.outputs, own.topk_idx, own.weights, handle, out=self.out
        )


Step = tuple[str, Callable[[], Awaitable[None]], Callable[[], Awaitable[None]]]


async def measure(steps: list[Step], rounds: int, world: Any) -> dict[str, list[float]]:
    """Seconds of the slowest rank in each round."""
    from mpi4py import MPI

    took: dict[str, list[float]] = {name: [] for name, _, _ in steps}
    for _ in range(rounds):
        for name, wait, step in steps:
            await wait()
            started = time.perf_counter()
            await step()
            mine = time.perf_counter() - started
            took[name].append(world.allreduce(mine, op=MPI.MAX))
    return took


def report(own: Rank, took: dict[str, list[float]]) -> None:
    best = {name: min(times[2:]) * 1e6 for name, times in took.items()}
    middle = {name: statistics.median(times[2:]) * 1e6 for name, times in took.items()}
    for step in ("dispatch", "combine"):
        ucp, mpi = f"ucp {step}", f"mpi {step}"
        print(
            f"{own.size:5} {own.experts:7} {step:9}"
            f"{best[ucp]:9.0f} {middle[ucp]:7.0f}{best[mpi]:9.0f} {middle[mpi]:7.0f}"
            f"{best[mpi] / best[ucp]:8.2f} {middle[mpi] / middle[ucp]:6.2f}",
            flush=True,
        )
    print(f"{'':14}of it the sum {best['sum']:7.0f} {middle['sum']:7.0f}", flush=True)


async def run(experts: int, args: argparse.Namespace) -> None:
    """One table's lines, on each rank."""
    from mpi4py import MPI

    import ucp
    import ucp.moe

    world = MPI.COMM_WORLD
    own = Rank(world.rank, world.size, experts, args)
    comm = await ucp.Communicator.from_allgather(
        world.rank, world.size, world.allgather
    )
    mpi = Mpi(own, Path(args.library))
    async with await ucp.moe.Buffer.create(
        comm, experts, args.tokens, args.hidden, "bfloat16", num_max_topk=args.topk
    ) as buffer:
        moe = Moe(own, buffer)
        for _ in range(2):  # the outputs of both areas
            await moe.dispatch()
            moe.give()
            await moe.combine()

        async def wait_mpi() -> None:
            await comm.barrier()
            world.Barrier()

        async def add() -> None:
            mpi.add()

        steps: list[Step] = [
            ("ucp dispatch", comm.barrier, moe.dispatch),
            ("ucp combine", comm.barrier, moe.combine),
            ("mpi dispatch", wait_mpi, mpi.dispatch),
            ("mpi combine", wait_mpi, mpi.combine),
            ("sum", wait_mpi, add),
        ]
        took = await measure(steps, args.rounds, world)
        assert np.array_equal(moe.out, mpi.out), "the sums differ"
    if world.rank == 0:
        report(own, took)
    await comm.barrier()
    comm.close()


def serve(args: argparse.Namespace) -> None:
    from mpi4py import MPI

    cpus = sorted(os.sched_getaffinity(0))
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, {cpus[MPI.COMM_WORLD.rank % len(cpus)]})
    for experts in map(int, args.experts.split(",")):
        asyncio.run(run(experts, args))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--experts", default="8,64")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--topk", type=int, default=8)
    parser.add_argument("--hidden", type=int, default=7168)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--mpiexec", default=shutil.which("mpiexec") or "mpiexec")
    parser.add_argument("--library", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.library:
        serve(args)
        return
    print("microseconds: best and median; how many times faster than mpi4py")
    print(
        "ranks experts step           ucp             mpi4py          ratio", flush=True
    )
    with tempfile.TemporaryDirectory() as folder:
        library = build(folder)
        for ranks in args.ranks.split(","):
            command = [args.mpiexec, "-n", ranks, sys.executable, __file__]
            subprocess.run([*command, *sys.argv[1:], "--library", library], check=True)


if __name__ == "__main__":
    main()
