# SPDX-License-Identifier: BSD-3-Clause
"""Costs of `asyncio.gather` over operations, and rates through it.

Costs, in microseconds an operation, best of the rounds. Two processes have
windows of 64 operations of 8 bytes. `ucp` is a window by gather less the same
window by one `await` after the other; `asyncio` is gather over as many of
asyncio's own futures in the same state:

    send   the sends are done when they return; the futures have a result
    recv   all messages lie in the transport when the loop next looks; the
           futures are given their results in one later callback
    ready  the messages have arrived before they are asked for; as for `send`

Rates, the best of the rounds: a stream of windows, each by one gather in both
processes. `--base DIR` measures another build of ucp, DIR/ucp, in turns.

python benchmarks/gather.py [--rounds 10] [--base DIR]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from _contenders import ucx_environment
from _peers import emit
from _process import Child

COUNT = 64
RATES = {"64 x 8B": (64, 8), "16 x 64K": (16, 65536)}
STATES = {"send": "finished", "recv": "pending", "ready": "finished"}


async def by_gather(requests: list[Any]) -> None:
    await asyncio.gather(*requests)


async def by_await(requests: list[Any]) -> None:
    for request in requests:
        await request


WAYS = {"gather": by_gather, "await": by_await}


async def spent(
    way: Callable[[list[Any]], Any], make: Callable[[], list[Any]]
) -> float:
    """Microseconds an operation."""
    start = time.perf_counter()
    await way(make())
    return 1e6 * (time.perf_counter() - start) / COUNT


# ---- floors: futures of asyncio ------------------------------------------------


async def gather_finished() -> float:
    loop = asyncio.get_running_loop()
    futures = [loop.create_future() for _ in range(COUNT)]
    for future in futures:
        future.set_result(None)
    return await spent(by_gather, lambda: futures)


async def gather_pending() -> float:
    loop = asyncio.get_running_loop()
    futures = [loop.create_future() for _ in range(COUNT)]

    def settle() -> None:
        for future in futures:
            future.set_result(None)

    loop.call_soon(settle)
    return await spent(by_gather, lambda: futures)


# ---- the two processes ---------------------------------------------------------


async def costs_here(ep: Any, told: Callable[[], Any], tell: Callable[[], Any]) -> Any:
    """The best of some windows of each kind; the other side is costs_there()."""
    best: dict[str, float] = defaultdict(lambda: float("inf"))
    out, into = [bytearray(8)] * COUNT, [bytearray(8) for _ in range(COUNT)]

    def note(name: str, value: float) -> None:
        best[name] = min(best[name], value)

    for turn in range(200):
        way = ("gather", "await")[turn % 2]
        note("finished", await gather_finished())
        note("pending", await gather_pending())
        note(
            f"send {way}",
            await spent(WAYS[way], lambda: [ep.send(buffer) for buffer in out]),
        )
        await ep.recv(bytearray(1))  # the other side has the messages

        # Blocked, so that nothing is received before the clock starts.
        made: list[Any] = []
        posting = time.perf_counter()
        made = [ep.recv(buffer) for buffer in into]
        if way == "gather":
            gathering = asyncio.gather(*made)
        posting = time.perf_counter() - posting
        await_later = [gathering] if way == "gather" else made
        tell()
        told()
        waited = await spent(by_await, lambda things=await_later: things)
        note(f"recv {way}", waited + 1e6 * posting / COUNT)

        tell()
        told()
        await ep.recv(bytearray(1), tag=1)  # behind the others
        note(
            f"ready {way}",
            await spent(WAYS[way], lambda: [ep.recv(buffer) for buffer in into]),
        )
    return best


async def costs_there(
    ep: Any, told: Callable[[], Any], tell: Callable[[], Any]
) -> None:
    out, into = [bytearray(8)] * COUNT, [bytearray(8)] * COUNT
    for _ in range(200):
        await ep.recv_many(into)
        await ep.send(b"x")
        for with_last in (False, True):
            told()
            await ep.send_many(out)
            if with_last:
                await ep.send(b"x", tag=1)
            tell()


async def rate(ep: Any, name: str, is_sender: bool, seconds: float) -> float:
    """Messages a second, as the receiver sees them."""
    count, size = RATES[name]
    buffers = [bytearray(b"\x01") * size for _ in range(count)]
    total, start = 0, time.perf_counter()
    end = start + seconds
    if is_sender:
        stop = ep.recv(bytearray(1))
        while not stop.done():
            await asyncio.gather(*[ep.send(buffer) for buffer in buffers])
        await stop
        await ep.send(b"x", tag=1)
        await ep.recv(bytearray(1))
        return 0.0
    while time.perf_counter() < end:
        await asyncio.gather(*[ep.recv(buffer) for buffer in buffers])
        total += count
    return total / (time.perf_counter() - start)


async def connect(port: int | None) -> Any:
    import ucp

    if port:
        return await ucp.create_endpoint("127.0.0.1", port)
    accepted: asyncio.Queue[Any] = asyncio.Queue()
    listener = ucp.create_listener(accepted.put_nowait, host="127.0.0.1", port=0)
    emit(port=listener.port)
    return await accepted.get()


async def child(port: int | None, seconds: float) -> None:
    """Run one process: the listening one measures, the other tells when it has sent."""
    ep = await connect(port)

    def tell() -> None:
        emit(told=True)

    def told() -> None:
        sys.stdin.readline()

    if port:
        await costs_there(ep, told, tell)
        for name in RATES:
            await rate(ep, name, True, seconds)
        await ep.recv(bytearray(1))
        return
    best = await costs_here(ep, told, tell)
    result: dict[str, Any] = {"costs": best, "rates": {}}
    for name in RATES:
        result["rates"][name] = await rate(ep, name, False, seconds)
        await stop_sender(ep, name)
    await ep.send(b"x")
    emit(**result)


async def stop_sender(ep: Any, name: str) -> None:
    """Tell it, and receive what it has sent before it knows."""
    _, size = RATES[name]
    last, buffer = ep.recv(bytearray(1), tag=1), bytearray(size)
    await ep.send(b"x")
    while not last.done() or ep.probe() is not None:
        if ep.probe() is not None:
            await ep.recv_into(buffer)
        await asyncio.sleep(0)
    await last
    await ep.send(b"x")


# ---- rounds -------------------------------------------------------------------


def measure(transport: str, seconds: float, path: str | None) -> dict[str, Any]:
    env = ucx_environment(transport, {})
    if path:
        env["PYTHONPATH"] = path
    me = [sys.executable, os.path.abspath(__file__), "--child"]
    with Child([*me, "0", str(seconds)], env, True, 0) as here:
        port = here.message()["port"]
        with Child([*me, str(port), str(seconds)], env, True, 1) as there:
            while True:
                message = here.message()
                if "costs" in message:
                    return message
                there.send("go")
                there.message()
                here.send("done")


def report(transport: str, builds: dict[str, list[dict[str, Any]]]) -> None:
    best: dict[str, Any] = {}
    for build, rounds in builds.items():
        costs, rates = defaultdict(lambda: float("inf")), defaultdict(float)
        for each in rounds:
            for name, value in each["costs"].items():
                costs[name] = min(costs[name], value)
            for name, value in each["rates"].items():
                rates[name] = max(rates[name], value)
        best[build] = rates
        for what, state in STATES.items():
            own = costs[f"{what} gather"] - costs[f"{what} await"]
            print(
                f"{transport:4} {build:5} {what:6} {state:9} "
                f"gather {costs[f'{what} gather']:6.2f}  "
                f"await {costs[f'{what} await']:6.2f}  ucp {own:6.2f}  "
                f"asyncio {costs[state]:6.2f}  ratio {own / costs[state]:5.2f}"
            )
    for name, value in best["this"].items():
        base = best["base"][name] if "base" in best else 0.0
        ratio = f"  base {base:11.0f}  ratio {value / base:5.2f}" if base else ""
        print(f"{transport:4} {name:12} {value:11.0f} messages/s{ratio}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--transports", default="shm,tcp")
    parser.add_argument("--base", help="a directory with another build's ucp")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        asyncio.run(child(int(options.child[0]) or None, float(options.child[1])))
        sys.exit()
    paths = {"this": None, **({"base": options.base} if options.base else {})}
    print(f"Python {sys.version.split()[0]}, {COUNT} operations, us an operation")
    for transport in options.transports.split(","):
        builds: dict[str, list[dict[str, Any]]] = {build: [] for build in paths}
        for _ in range(options.rounds):
            for build, path in paths.items():
                builds[build].append(measure(transport, options.seconds, path))
        report(transport, builds)
