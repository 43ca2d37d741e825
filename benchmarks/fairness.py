# SPDX-License-Identifier: BSD-3-Clause
"""How late a 1 ms timer fires while messages stream in without end.

The receiving process awaits one message after the other, each there already,
so no await needs the event loop: without a budget a timer would never fire.
Lateness beyond the millisecond, in microseconds; `idle` is the same loop with
nothing to receive. MB/s is what is received meanwhile.

python benchmarks/fairness.py [--seconds 3] [--sizes 8,65536]
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import Callable

from _contenders import human, sizes, ucx_environment
from _process import Child

TIMER = 0.001


async def flood(port: int, size: int) -> None:
    import ucp

    ep = await ucp.create_endpoint("127.0.0.1", port)
    buffers = [bytearray(size)] * 64
    while True:
        await ep.send_many(buffers)


async def lateness(
    size: int, seconds: float, port_known: Callable[[int], None]
) -> tuple[list[float], float]:
    """Of each timer, in seconds, and bytes per second; size 0: nothing comes."""
    import ucp

    late: list[float] = []
    accepted: asyncio.Queue[ucp.Endpoint] = asyncio.Queue()
    listener = ucp.create_listener(accepted.put_nowait)
    port_known(listener.port)
    ep = await accepted.get() if size else None
    count = 0

    async def tick() -> None:
        end = time.perf_counter() + seconds
        while (due := time.perf_counter() + TIMER) < end:
            await asyncio.sleep(TIMER)
            late.append(time.perf_counter() - due)

    async def drink() -> None:
        nonlocal count
        assert ep is not None
        buffer = bytearray(size)
        while True:
            await ep.recv(buffer)
            count += 1

    drinking = asyncio.ensure_future(drink()) if ep else None
    start = time.perf_counter()
    await tick()
    rate = count * size / (time.perf_counter() - start)
    if drinking is not None and ep is not None:
        drinking.cancel()
        ep.abort()
    return late, rate


def measure(size: int, transport: str, seconds: float) -> tuple[list[float], float]:
    """In a child, so that each run has a context of its own."""
    env = ucx_environment(transport, {})
    me = [sys.executable, __file__]
    with Child([*me, "--tick", str(size), str(seconds)], env, True, 0) as ticker:
        port = ticker.message()["port"]
        if not size:
            return result(ticker)
        with Child([*me, "--flood", str(size), str(port)], env, True, 1):
            return result(ticker)


def result(ticker: Child) -> tuple[list[float], float]:
    message = ticker.message()
    return list(message["late"]), float(message["rate"])


def report(name: str, measured: tuple[list[float], float]) -> None:
    late, rate = measured
    cuts = statistics.quantiles(late, n=1000)
    print(
        f"{name:16} {len(late):7} {1e6 * statistics.median(late):10.0f} "
        f"{1e6 * cuts[989]:10.0f} {1e6 * max(late):10.0f} {rate / 1e6:10.0f}"
    )


def tick(size: int, seconds: float) -> None:
    from _peers import emit

    late, rate = asyncio.run(lateness(size, seconds, lambda port: emit(port=port)))
    emit(late=late, rate=rate)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--sizes", default="8,64k", type=sizes)
    parser.add_argument("--transports", default="shm,tcp")
    parser.add_argument("--tick", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--flood", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.tick:
        tick(int(options.tick[0]), float(options.tick[1]))
    elif options.flood:
        asyncio.run(flood(int(options.flood[1]), int(options.flood[0])))
    else:
        print(
            f"{'case':16} {'timers':>7} {'median us':>10} {'99 % us':>10} "
            f"{'max us':>10} {'MB/s':>10}"
        )
        for transport in options.transports.split(","):
            report(f"{transport} idle", measure(0, transport, options.seconds))
            for size in options.sizes:
                report(
                    f"{transport} {human(size)}",
                    measure(size, transport, options.seconds),
                )
