# SPDX-License-Identifier: BSD-3-Clause
"""Operations on a peer's memory: awaited in Python, and the same calls in C.

Client and server are processes of their own, on a core each; the memory is the
server's, which sleeps. Rows, seconds of one operation: an awaited put of 8
bytes, and 1000 pieces of 8 KiB that are not neighbours, got by one call and, in
C, by a call each. The C program is linked with the same library. Over tcp the
owner executes the operations.

python benchmarks/rma.py [--rounds 10] [--transports shm,tcp]
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import _harness
from _contenders import libucx, ucp_settings, ucx_environment
from _process import Child

ROOT = Path(__file__).parents[1]
PIECES, PIECE = 1000, 8192
ROWS = ("put", "get", "list")
WITHIN_NS, RATIO = 150, 0.9  # targets over shared memory


@functools.cache
def floor_program() -> str:
    """rma_floor.c and the library, compiled for the life of this process."""
    folder = tempfile.mkdtemp(prefix="ucp-bench-")
    atexit.register(shutil.rmtree, folder)
    program = f"{folder}/rma_floor"
    sources = [str(path) for path in ROOT.glob("src/*/*.c")]
    command = ["cc", "-std=gnu11", "-O3", "-flto", "-pthread"]
    command += [f"-I{ROOT}/include", f"-I{ROOT}/src", f"-I{libucx()}/include"]
    command += [str(ROOT / "benchmarks/rma_floor.c"), *sources, "-o", program]
    subprocess.run([*command, f"-L{libucx()}/lib", "-lucp", "-lucs"], check=True)
    return program


async def serve() -> None:
    """The server: memory, a listener, and sleep until it is killed."""
    import json

    import ucp

    memory = ucp.Memory.allocate(PIECES * PIECE)
    memoryview(memory)[:] = bytes(1) * memory.nbytes
    kept = []
    listener = ucp.create_listener(kept.append, host="127.0.0.1")
    print(json.dumps({"port": listener.port, "key": memory.key.hex()}), flush=True)
    await asyncio.Event().wait()


async def client() -> None:
    """The client: what rma_floor.c does, awaited."""
    import json

    import ucp

    port, key = int(sys.argv[2]), bytes.fromhex(sys.argv[3])
    ep = await ucp.create_endpoint("127.0.0.1", port)
    remote = ep.remote(key)
    eight = bytearray(8)
    pieces = [(bytearray(PIECE), (PIECES - 1 - i) * PIECE) for i in range(PIECES)]

    async def put(count: int) -> None:
        for _ in range(count):
            await remote.put(eight)

    async def get(count: int) -> None:
        for _ in range(count):
            await remote.get_many(pieces)

    operations: dict[str, Callable[[int], Awaitable[Any]]]
    operations = {"put": put, "get": get, "list": get}
    for line in sys.stdin:
        name, count = line.split()
        start = time.perf_counter()
        await operations[name](int(count))
        value = (time.perf_counter() - start) / int(count)
        print(json.dumps({"value": value}), flush=True)


def ask(child: Child, row: str, count: int) -> float:
    child.send(f"{row} {count}")
    return float(child.message()["value"])


def measure(transport: str, rounds: int, seconds: float) -> _harness.Results:
    env = ucx_environment(transport, ucp_settings())
    c_env = {**env, "LD_LIBRARY_PATH": f"{libucx()}/lib"}
    results = _harness.Results("rma", "us", "C", ["C", "ucp"])
    with ExitStack() as stack:
        role = [sys.executable, __file__]
        server = stack.enter_context(Child([*role, "serve"], env, True, 0))
        where = server.message()
        place = [str(where["port"]), where["key"]]
        children = {
            "C": Child([floor_program(), *place], c_env, True, 1),
            "ucp": Child([*role, "client", *place], env, True, 1),
        }
        for child in children.values():
            stack.enter_context(child)
            child.deadline += 3600
        for row in ROWS:
            once = max(ask(child, row, 10) for child in children.values())
            count = max(10, int(seconds / once))
            for number in range(rounds):
                for name in random.sample(list(children), 2):
                    value = 1e6 * ask(children[name], row, count)
                    sample = _harness.Sample(
                        f"{row} {transport}", name, number, 0, value
                    )
                    results.samples.append(sample)
    return results


def verdicts(results: _harness.Results) -> list[str]:
    """The two targets, best of each side in this run."""
    put = {name: results.best("put shm", name) for name in ("C", "ucp")}
    get = {name: results.best("get shm", name) for name in ("C", "ucp")}
    if None in (*put.values(), *get.values()):
        return []
    more, ratio = 1e3 * (put["ucp"] - put["C"]), get["C"] / get["ucp"]
    return [
        f"awaited put of 8 B: {more:.0f} ns more than in C (at most {WITHIN_NS}): "
        + ("reached" if more <= WITHIN_NS else "MISSED"),
        f"get_many of 1000 x 8 KiB: {ratio:.2f}x the C loop (at least {RATIO}): "
        + ("reached" if ratio >= RATIO else "MISSED"),
    ]


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        asyncio.run(serve())
    elif sys.argv[1:2] == ["client"]:
        asyncio.run(client())
    else:
        parser = _harness.parser(__doc__.splitlines()[0])
        parser.add_argument("--transports", default="shm,tcp")
        options = parser.parse_args()
        options.compare = None
        rounds = options.rounds or (3 if options.quick else 10)
        seconds = options.seconds or (0.05 if options.quick else 0.2)
        total = _harness.Results("rma", "us", "C", ["C", "ucp"])
        for transport in options.transports.split(","):
            total.samples += measure(transport, rounds, seconds).samples
        _harness.finish(total, options)
        print("\n".join(verdicts(total)))
