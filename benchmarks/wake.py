# SPDX-License-Identifier: BSD-3-Clause
"""How long a sleeper takes to wake: a number in its memory, beside a message.

Two processes, on a core each. One sleeps in its event loop, in
`memory.wait_until()` or in a receive of 8 bytes; the other one writes the time
into that memory by `put_signal()`, or sends it. A value is the median of the
times from there to the sleeper's next line of Python. Between them there is a
pause, so that nobody is polling any more.

python benchmarks/wake.py [--rounds 10] [--transports shm,tcp]
"""

from __future__ import annotations

import asyncio
import random
import statistics
import sys
import time
from contextlib import ExitStack

import _harness
from _contenders import ucp_settings, ucx_environment
from _process import Child

CONTENDERS = ("message", "wait_until")
PAUSE_S = 0.002
AT_MOST = 1.5  # times a message, over shared memory


async def sleeper() -> None:
    """The side that is woken; prints the medians it is asked for."""
    import json

    import ucp

    memory = ucp.Memory.allocate(4096)
    listener = ucp.create_listener(host="127.0.0.1")
    print(json.dumps({"port": listener.port, "key": memory.key.hex()}), flush=True)
    ep = await listener.accept()
    numbers = memoryview(memory).cast("Q")
    request = bytearray(16)
    while True:
        await ep.recv(request)
        name, count = CONTENDERS[request[0]], int.from_bytes(request[8:], "little")
        taken = []
        before = numbers[0]
        await ep.send(b"ready")
        for _ in range(count):
            if name == "message":
                message = bytearray(8)
                await ep.recv(message)
                now = time.monotonic_ns()
                sent = int.from_bytes(message, "little")
            else:
                await memory.wait_until(0, ">", before)
                now = time.monotonic_ns()
                sent = before = numbers[0]
            taken.append(now - sent)
            await ep.send(b"ready")
        print(json.dumps({"value": statistics.median(taken) / 1e9}), flush=True)


async def waker() -> None:
    """Run the waking process: do what standard input says."""
    import ucp

    ep = await ucp.create_endpoint("127.0.0.1", int(sys.argv[2]))
    remote = ep.remote(bytes.fromhex(sys.argv[3]))
    for line in sys.stdin:
        name, count = line.split()
        index = CONTENDERS.index(name).to_bytes(8, "little")
        await ep.send(index + int(count).to_bytes(8, "little"))
        await ep.recv(bytearray(5))
        for _ in range(int(count)):
            time.sleep(PAUSE_S)
            now = time.monotonic_ns()
            if name == "message":
                await ep.send(now.to_bytes(8, "little"))
            else:
                await remote.put_signal(b"", 0, 0, now)
            await ep.recv(bytearray(5))


def measure(transport: str, rounds: int, seconds: float) -> _harness.Results:
    env = ucx_environment(transport, ucp_settings())
    results = _harness.Results("wake", "us", "message", list(CONTENDERS))
    count = max(10, int(seconds / PAUSE_S))
    with ExitStack() as stack:
        role = [sys.executable, __file__]
        asleep = stack.enter_context(Child([*role, "sleeper"], env, True, 0))
        where = asleep.message()
        place = [str(where["port"]), where["key"]]
        awake = stack.enter_context(Child([*role, "waker", *place], env, True, 1))
        for child in (asleep, awake):
            child.deadline += 3600
        for number in range(-1, rounds):  # the first one warms up
            for name in random.sample(CONTENDERS, 2):
                awake.send(f"{name} {count}")
                value = 1e6 * float(asleep.message()["value"])
                if number >= 0:
                    sample = _harness.Sample(transport, name, number, 0, value)
                    results.samples.append(sample)
    return results


def verdict(results: _harness.Results) -> str:
    """The target, best of each side in this run."""
    wait, message = (results.best("shm", name) for name in reversed(CONTENDERS))
    if wait is None or message is None:
        return ""
    ratio = wait / message
    return (
        f"wait_until woken in {ratio:.2f}x the time of a message (at most {AT_MOST}): "
        + ("reached" if ratio <= AT_MOST else "MISSED")
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["sleeper"]:
        asyncio.run(sleeper())
    elif sys.argv[1:2] == ["waker"]:
        asyncio.run(waker())
    else:
        parser = _harness.parser(__doc__.splitlines()[0])
        parser.add_argument("--transports", default="shm,tcp")
        options = parser.parse_args()
        options.compare = None
        rounds = options.rounds or (3 if options.quick else 10)
        seconds = options.seconds or (0.2 if options.quick else 1.0)
        total = _harness.Results("wake", "us", "message", list(CONTENDERS))
        for transport in options.transports.split(","):
            total.samples += measure(transport, rounds, seconds).samples
        _harness.finish(total, options)
        print(verdict(total))
