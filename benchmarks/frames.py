# SPDX-License-Identifier: BSD-3-Clause
"""Many buffers as one message, beside other ways to move the same bytes, us.

One server and one client, on a core each, with one connection; half a round
trip of all buffers. `frames` receives into objects of its own, `into` into
given buffers like the others; `sends` awaits a send and a receive for each
buffer, `many` is send_many() and recv_many(), `joined` copies all into one
message, `one` is one buffer of that size.

--sweep varies frames_copy_max and frames_alone_min instead: what is smaller than
the first is copied together, what reaches the second goes on its own.

python benchmarks/frames.py [--rounds 10] [--transports shm,tcp]
       [--shapes 16x64,8x1M] [--sweep]
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from contextlib import ExitStack
from typing import Any

import _harness
from _contenders import human, sizes, ucp_settings, ucx_environment
from _process import Child

CONTENDERS = ["one", "frames", "into", "sends", "many", "joined"]
SHAPES = "16x64,4x1K,16x1K,64x1K,8x16K,64x16K,8x64K,8x1M"
# Columns of the sweep: what is varied, and shapes on both sides of it.
COPY = [0, 2048, 4096, 8192, 16384, 32768, 65536]
ALONE = [4096, 16384, 32768, 65536, 131072, 262144]
SWEEPS = {
    "frames_copy_max": (COPY, "16x64,4x500,4x900,4x1900,4x3900,4x7900,4x15K"),
    "frames_alone_min": (ALONE, "4x8K,16x8K,4x24K,16x24K,4x48K,16x48K,8x96K,8x192K"),
}


class Exchange:
    """The calls of one contender on one side."""

    def __init__(self, ep: Any, name: str, count: int, size: int) -> None:
        import numpy as np

        self.ep = ep
        self.out = [np.ones(size, np.uint8) for _ in range(count)]
        self.into = [np.zeros(size, np.uint8) for _ in range(count)]
        self.whole = np.ones(count * size, np.uint8)
        self.calls = getattr(self, f"{name}_")

    async def run(self, rounds: int, first: bool) -> None:
        send, recv = self.calls()
        for _ in range(rounds):
            if first:
                await send()
                await recv()
            else:
                await recv()
                await send()

    def one_(self) -> Any:
        return lambda: self.ep.send(self.whole), lambda: self.ep.recv(self.whole)

    def frames_(self) -> Any:
        return lambda: self.ep.send_frames(self.out), self.ep.recv_frames

    def into_(self) -> Any:
        return (
            lambda: self.ep.send_frames(self.out),
            lambda: self.ep.recv_frames(into=self.into),
        )

    def many_(self) -> Any:
        return (
            lambda: self.ep.send_many(self.out),
            lambda: self.ep.recv_many(self.into),
        )

    def sends_(self) -> Any:
        async def send() -> None:
            for buffer in self.out:
                await self.ep.send(buffer)

        async def recv() -> None:
            for buffer in self.into:
                await self.ep.recv(buffer)

        return send, recv

    def joined_(self) -> Any:
        join = b"".join

        async def recv() -> None:
            view = memoryview(await self.ep.recv_obj())
            at = 0
            for buffer in self.into:
                buffer[:] = view[at : at + len(buffer)]
                at += len(buffer)

        return lambda: self.ep.send(join(self.out)), recv


async def serve() -> None:
    import ucp

    ucp.init(config=ucp.Config(**json.loads(sys.argv[2])))
    listener = ucp.create_listener(host="127.0.0.1")
    print(json.dumps({"port": listener.port}), flush=True)
    ep = await anext(listener)
    while True:
        name, number, size, rounds = json.loads(await ep.recv_obj())
        await Exchange(ep, name, number, size).run(rounds, False)


async def drive(port: int) -> None:
    """The client: runs what it is told, prints microseconds."""
    import ucp

    ucp.init(config=ucp.Config(**json.loads(sys.argv[3])))
    ep = await ucp.create_endpoint("127.0.0.1", port)
    for line in sys.stdin:
        name, number, size, rounds = json.loads(line)
        exchange = Exchange(ep, name, number, size)
        warm = rounds // 10 + 1
        await ep.send_obj(json.dumps([name, number, size, rounds + warm]).encode())
        await exchange.run(warm, True)
        start = time.perf_counter()
        await exchange.run(rounds, True)
        seconds = time.perf_counter() - start
        print(json.dumps({"value": 1e6 * seconds / rounds / 2}), flush=True)


def shapes(text: str) -> list[tuple[int, int]]:
    """16x64,8x1M"""
    pairs = [shape.split("x") for shape in text.split(",")]
    return [(int(count), sizes(size)[0]) for count, size in pairs]


class Pair:
    """A server and a client with a configuration of ucp's."""

    def __init__(self, stack: ExitStack, transport: str, **config: int) -> None:
        env = ucx_environment(transport, ucp_settings())
        role, text = [sys.executable, __file__], json.dumps(config)
        server = stack.enter_context(Child([*role, "serve", text], env, True, 0))
        port = str(server.message()["port"])
        command = [*role, "drive", port, text]
        self.client = stack.enter_context(Child(command, env, True, 1))
        self.client.deadline += 3600
        server.deadline += 3600

    def run(self, name: str, shape: tuple[int, int], seconds: float) -> float:
        """Measure once; the number of round trips is estimated from the bytes."""
        count, size = shape
        guess = 2 * (5e-6 + count * (1e-6 + size / 5e9))
        rounds = max(5, int(seconds / guess))
        self.client.send(json.dumps([name, count, size, rounds]))
        return float(self.client.message()["value"])


def case_of(transport: str, shape: tuple[int, int]) -> str:
    return f"{transport} {shape[0]} x {human(shape[1])}"


def measure(
    transport: str, cases: list[tuple[int, int]], plan: _harness.Plan
) -> list[_harness.Sample]:
    samples = []
    with ExitStack() as stack:
        pair = Pair(stack, transport)
        for number in range(plan.rounds):
            for shape in cases:
                case = case_of(transport, shape)
                for name in random.sample(CONTENDERS, len(CONTENDERS)):
                    value = pair.run(name, shape, plan.seconds)
                    samples.append(_harness.Sample(case, name, number, 0, value))
    return samples


def sweep(transport: str, field: str, plan: _harness.Plan) -> _harness.Results:
    values, text = SWEEPS[field]
    names = [f"{field}={value}" for value in values]
    results = _harness.Results(field, "us", names[0], names)
    with ExitStack() as stack:
        pairs = {
            name: Pair(stack, transport, **{field: value})
            for name, value in zip(names, values, strict=True)
        }
        for number in range(plan.rounds):
            for shape in shapes(text):
                case = case_of(transport, shape)
                for name in random.sample(names, len(names)):
                    value = pairs[name].run("frames", shape, plan.seconds)
                    sample = _harness.Sample(case, name, number, 0, value)
                    results.samples.append(sample)
    return results


def main() -> None:
    parser = _harness.parser(__doc__.splitlines()[0])
    parser.add_argument("--transports", default="shm,tcp")
    parser.add_argument("--shapes", default=SHAPES, type=shapes)
    parser.add_argument("--sweep", action="store_true")
    options = parser.parse_args()
    options.compare = None
    plan = _harness.plan_of(options)
    plan.seconds = options.seconds or 0.02
    if options.sweep:
        for transport in options.transports.split(","):
            for field in SWEEPS:
                print(_harness.table(sweep(transport, field, plan)), "\n")
        return
    total = _harness.Results("frames", "us", "one", CONTENDERS)
    for transport in options.transports.split(","):
        total.samples += measure(transport, options.shapes, plan)
    _harness.finish(total, options)


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        asyncio.run(serve())
    elif sys.argv[1:2] == ["drive"]:
        asyncio.run(drive(int(sys.argv[2])))
    else:
        main()
