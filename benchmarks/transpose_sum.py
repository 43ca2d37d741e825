# SPDX-License-Identifier: BSD-3-Clause
"""x + x.T of a matrix that is spread over processes, milliseconds.

Each of `--processes` processes has a row of square blocks, as Dask would chunk
the matrix; every block goes to the process that needs it transposed, all of
them at once, and is added there. `asyncio` moves them over TCP by asyncio's
streams, `ucp` by whatever UCX chooses. Each adds the same. `--array cupy` or
torch has the blocks in device memory; asyncio's go through the host then.

python benchmarks/transpose_sum.py [--processes 4] [--sizes 64K,1M,8M] [--array numpy]
"""

from __future__ import annotations

import asyncio
import importlib
import json
import random
import sys
import time
from contextlib import ExitStack
from typing import Any, Protocol

import _harness
from _contenders import human, sizes, ucp_settings, ucx_environment
from _process import Child

CONTENDERS = ["asyncio", "ucp"]


# ---- arrays ----------------------------------------------------------------------


class Blocks:
    """Square blocks of one library, on the host or on a device."""

    def __init__(self, library: str) -> None:
        self.name = library
        self.module = importlib.import_module(library)

    def filled(self, side: int, value: float) -> Any:
        if self.name == "torch":
            return self.module.full((side, side), value, device="cuda")
        return self.module.full((side, side), value, dtype="f4")

    def empty(self, side: int) -> Any:
        return self.filled(side, 0.0)

    def wait(self) -> None:
        """Until the device has done what it was told."""
        if self.name == "torch":
            self.module.cuda.synchronize()
        elif self.name == "cupy":
            self.module.cuda.Device().synchronize()

    def to_host(self, block: Any) -> Any:
        if self.name == "torch":
            return block.cpu().numpy()
        return block.get() if self.name == "cupy" else block

    def from_host(self, block: Any, data: bytearray) -> None:
        import numpy as np

        host = np.frombuffer(data, "f4").reshape(block.shape)
        if self.name == "torch":
            block.copy_(self.module.from_numpy(host))
        elif self.name == "cupy":
            block.set(host)
        else:
            block[...] = host


# ---- lanes -----------------------------------------------------------------------


class Lane(Protocol):
    """A connection to another process."""

    async def send(self, block: Any) -> None: ...
    async def recv(self, block: Any) -> None: ...


class Stream:
    def __init__(self, blocks: Blocks, reader: Any, writer: Any) -> None:
        self.blocks, self.reader, self.writer = blocks, reader, writer

    async def send(self, block: Any) -> None:
        self.writer.write(memoryview(self.blocks.to_host(block)).cast("B"))
        await self.writer.drain()

    async def recv(self, block: Any) -> None:
        data = await self.reader.readexactly(4 * block.shape[0] ** 2)
        self.blocks.from_host(block, data)


async def connect_streams(blocks: Blocks, rank: int, count: int) -> dict[int, Lane]:
    """Lanes to all others: those of a lower rank are called."""
    lanes: dict[int, Lane] = {}
    complete = asyncio.Event()

    def add(other: int, reader: Any, writer: Any) -> None:
        lanes[other] = Stream(blocks, reader, writer)
        if len(lanes) == count - 1:
            complete.set()

    async def called(reader: Any, writer: Any) -> None:
        add(int.from_bytes(await reader.readexactly(4), "little"), reader, writer)

    limit = 1 << 24
    server = await asyncio.start_server(called, "127.0.0.1", 0, limit=limit)
    print(json.dumps({"port": server.sockets[0].getsockname()[1]}), flush=True)
    for other, port in enumerate(json.loads(sys.stdin.readline())[:rank]):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=limit)
        writer.write(rank.to_bytes(4, "little"))
        add(other, reader, writer)
    await complete.wait()
    return lanes


async def connect_ucp(rank: int, count: int) -> dict[int, Lane]:
    import ucp

    lanes: dict[int, Lane] = {}
    listener = ucp.create_listener(host="127.0.0.1")
    print(json.dumps({"port": listener.port}), flush=True)
    for other, port in enumerate(json.loads(sys.stdin.readline())[:rank]):
        lanes[other] = ep = await ucp.create_endpoint("127.0.0.1", port)
        await ep.send_obj(rank.to_bytes(4, "little"))
    while len(lanes) < count - 1:
        ep = await anext(listener)
        lanes[int.from_bytes(await ep.recv_obj(), "little")] = ep
    return lanes


# ---- a process -------------------------------------------------------------------


async def work(contender: str, library: str, rank: int, count: int) -> None:
    """Runs what it is told, prints seconds of one sum."""
    blocks = Blocks(library)
    if contender == "ucp":
        lanes = await connect_ucp(rank, count)
    else:
        lanes = await connect_streams(blocks, rank, count)
    while line := await asyncio.to_thread(sys.stdin.readline):
        side, times = json.loads(line)
        row = [blocks.filled(side, rank * count + column) for column in range(count)]
        there = [blocks.empty(side) for _ in range(count)]
        there[rank] = row[rank]
        start = time.perf_counter()
        for _ in range(times):
            await asyncio.gather(
                *(lane.send(row[other]) for other, lane in lanes.items()),
                *(lane.recv(there[other]) for other, lane in lanes.items()),
            )
            total = [mine + other.T for mine, other in zip(row, there, strict=True)]
            blocks.wait()
        seconds = (time.perf_counter() - start) / times
        for column, block in enumerate(total):
            expected = rank * count + column + column * count + rank
            assert float(block[0, -1]) == float(block[-1, 0]) == expected
        print(json.dumps({"value": seconds}), flush=True)


# ---- the whole -------------------------------------------------------------------


def start(stack: ExitStack, contender: str, options: Any, env: Any) -> list[Child]:
    """The processes of a contender, connected."""
    role = [sys.executable, __file__, "work", contender, options.array]
    count = options.processes
    children = [
        stack.enter_context(Child([*role, str(i), str(count)], env, True, i))
        for i in range(count)
    ]
    ports = [child.message()["port"] for child in children]
    for child in children:
        child.deadline += 3600
        child.send(json.dumps(ports))
    return children


def run_once(children: list[Child], side: int, times: int) -> float:
    """Seconds of one sum, of the slowest process."""
    for child in children:
        child.send(json.dumps([side, times]))
    return max(float(child.message()["value"]) for child in children)


def measure(transport: str, options: Any, plan: _harness.Plan) -> list[_harness.Sample]:
    env = ucx_environment(transport, ucp_settings())
    samples = []
    with ExitStack() as stack:
        started = {name: start(stack, name, options, env) for name in CONTENDERS}
        for size in options.sizes:
            side = int((size / 4) ** 0.5)
            case = f"{transport} blocks of {human(size)}"
            times = {
                name: max(1, int(plan.seconds / run_once(children, side, 2)))
                for name, children in started.items()
            }
            for number in range(plan.rounds):
                for name in random.sample(CONTENDERS, len(CONTENDERS)):
                    value = run_once(started[name], side, times[name])
                    samples.append(_harness.Sample(case, name, number, 0, 1e3 * value))
    return samples


if __name__ == "__main__":
    if sys.argv[1:2] == ["work"]:
        asyncio.run(work(sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])))
    else:
        parser = _harness.parser(__doc__.splitlines()[0])
        parser.add_argument("--transports", default="shm,tcp")
        parser.add_argument("--sizes", default="64K,1M,16M", type=sizes)
        parser.add_argument("--processes", default=4, type=int)
        parser.add_argument("--array", default="numpy", help="numpy, cupy or torch")
        options = parser.parse_args()
        options.compare = None
        plan = _harness.plan_of(options)
        plan.seconds = options.seconds or 0.1
        total = _harness.Results("transpose_sum", "ms", "asyncio", CONTENDERS)
        for transport in options.transports.split(","):
            total.samples += measure(transport, options, plan)
        _harness.finish(total, options)
