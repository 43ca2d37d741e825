# SPDX-License-Identifier: BSD-3-Clause
"""Cost of one call in its own process, nanoseconds, best of the repeats.

An endpoint connected to its own process sends 8 bytes; such a send is done
when it returns. Rows: the call, with each kind of buffer, and the `await` of the
finished request. Floors: a coroutine that does nothing, a future that is done.

python benchmarks/per_call.py [--rounds 20]
"""

from __future__ import annotations

import asyncio
import importlib.util
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import _harness

BATCH = 32  # messages between two receives: stays below the credits


class Pair:
    """Two ends of one connection inside this process."""

    async def open(self) -> None:
        import ucp

        accepted: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.listener = ucp.create_listener(
            accepted.set_result, port=0, host="127.0.0.1"
        )
        self.out = await ucp.create_endpoint("127.0.0.1", self.listener.port)
        self.into = await accepted
        self.sink = [bytearray(8)] * BATCH

    async def empty(self) -> None:
        await self.into.recv_many(self.sink)

    async def close(self) -> None:
        await asyncio.gather(self.out.close(), self.into.close())
        self.listener.close()


async def spent(
    batches: int, work: Callable[[], Awaitable[float]], after: Callable[[], Any]
) -> float:
    """Nanoseconds for one of `work`'s BATCH operations."""
    total = 0.0
    for _ in range(batches):
        total += await work()
        await after()
    return 1e9 * total / batches / BATCH


async def nothing() -> None:
    pass


def loop_seconds() -> float:
    """Seconds that BATCH turns of an empty loop take, the least of many."""
    found = []
    for _ in range(1000):
        start = time.perf_counter()
        for _ in range(BATCH):
            pass
        found.append(time.perf_counter() - start)
    return min(found)


OVERHEAD = loop_seconds()


async def awaited(things: Sequence[Awaitable[Any]]) -> float:
    """Seconds that awaiting finished things takes, the loop taken off."""
    start = time.perf_counter()
    for thing in things:
        await thing
    return time.perf_counter() - start - OVERHEAD


async def measure_floors(batches: int) -> dict[str, float]:
    done = asyncio.get_running_loop().create_future()
    done.set_result(None)

    async def coroutine() -> float:
        return await awaited([nothing() for _ in range(BATCH)])

    async def future() -> float:
        return await awaited([done] * BATCH)

    return {
        "await a coroutine that does nothing": await spent(batches, coroutine, nothing),
        "await a done future": await spent(batches, future, nothing),
    }


class Described:
    """A buffer seen only through __array_interface__."""

    def __init__(self, array: Any) -> None:
        self.array, self.__array_interface__ = array, array.__array_interface__


def buffers() -> dict[str, Any]:
    found: dict[str, Any] = {
        "memoryview": memoryview(bytearray(8)),
        "bytes": bytes(8),
    }
    if importlib.util.find_spec("numpy"):
        import numpy

        found["ndarray"] = numpy.zeros(8, "u1")
        found["__array_interface__"] = Described(found["ndarray"])
    return found


async def measure_ucp(batches: int) -> dict[str, float]:
    pair = Pair()
    await pair.open()

    def call_of(buffer: Any) -> Callable[[], Awaitable[float]]:
        async def call() -> float:
            send = pair.out.send
            start = time.perf_counter()
            for _ in range(BATCH):
                send(buffer)
            return time.perf_counter() - start - OVERHEAD

        return call

    async def wait_done() -> float:
        return await awaited([pair.out.send(plain) for _ in range(BATCH)])

    plain = bytearray(8)
    found = {}
    for name, buffer in {"bytearray": plain, **buffers()}.items():
        row = f"ep.send({name}): the call"
        found[row] = await spent(batches, call_of(buffer), pair.empty)
    row = "await of the finished send"
    found[row] = await spent(batches, wait_done, pair.empty)
    await pair.close()
    return found


def loops() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    found = {"asyncio": asyncio.new_event_loop}
    if importlib.util.find_spec("uvloop"):
        import uvloop

        found["uvloop"] = uvloop.new_event_loop
    return found


def measure(rounds: int, batches: int) -> _harness.Results:
    parts = [measure_floors]
    if importlib.util.find_spec("ucp"):
        parts.append(measure_ucp)
    else:
        print("without ucp: it is not installed", file=sys.stderr)
    results = _harness.Results("per call", "ns", "", [])
    for name, factory in loops().items():
        with asyncio.Runner(loop_factory=factory) as runner:
            for number in range(rounds):
                for part in parts:
                    for row, value in runner.run(part(batches)).items():
                        sample = _harness.Sample(name, row, number, 0, value)
                        results.samples.append(sample)
    results.contenders = list(dict.fromkeys(s.contender for s in results.samples))
    return results


if __name__ == "__main__":
    parser = _harness.parser(__doc__.splitlines()[0])
    options = parser.parse_args()
    options.compare = None
    rounds = options.rounds or (5 if options.quick else 20)
    _harness.finish(measure(rounds, 200 if options.quick else 1000), options)
