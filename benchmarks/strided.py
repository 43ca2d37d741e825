# SPDX-License-Identifier: BSD-3-Clause
"""Arrays that do not lie in C order beside copies in NumPy, both ways, MB/s.

One server and one client, on a core each, with one connection; half a round
trip of one array. `contiguous` is one in C order, the limit. `ucp` sends the view
and receives into it, with `strided=True` if it has gaps; `NumPy` sends
ascontiguousarray(view) and receives into memory of its own, then assigns. `send`
and `NumPy send` do so at the sender only, and receive into an array in C order.

python benchmarks/strided.py [--rounds 10] [--transports shm,tcp] [--sizes 64K,1M,16M]
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import _harness
from _contenders import human, sizes, ucp_settings, ucx_environment
from _process import Child

CONTENDERS = ["contiguous", "ucp", "NumPy", "send", "NumPy send"]
# Float64 arrays of `n` items, by what lies together in them.
VIEWS: dict[str, Callable[[Any, int], Any]] = {
    "every second item": lambda np, n: np.ones(2 * n)[::2],
    "rows of 512 B": lambda np, n: np.ones((n // 64, 128))[:, :64],
    "transposed": lambda np, n: np.ones((n // 256, 256)).T,
}


async def exchange(ep: Any, name: str, view: Any, count: int, first: bool) -> None:
    """`count` round trips of what is in `view`."""
    import numpy as np

    plain = np.ones(view.shape)
    has_gaps = not view.flags.f_contiguous

    async def send() -> None:
        if name.startswith("NumPy"):
            await ep.send(np.ascontiguousarray(view))
        elif name == "contiguous":
            await ep.send(plain)
        else:
            await ep.send(view, strided=has_gaps)

    async def recv() -> None:
        if name == "ucp":
            await ep.recv(view, strided=has_gaps)
            return
        await ep.recv(plain)
        if name == "NumPy":
            view[...] = plain

    turns = [send, recv] if first else [recv, send]
    for _ in range(count):
        for turn in turns:
            await turn()


def array(np: Any, what: str, size: int) -> Any:
    return VIEWS[what](np, size // 8)


async def serve() -> None:
    import numpy as np

    import ucp

    listener = ucp.create_listener(host="127.0.0.1")
    print(json.dumps({"port": listener.port}), flush=True)
    ep = await anext(listener)
    while True:
        name, what, size, count = json.loads(await ep.recv_obj())
        await exchange(ep, name, array(np, what, size), count, False)


async def drive(port: int) -> None:
    """The client: runs what it is told, prints bytes/s."""
    import numpy as np

    import ucp

    ep = await ucp.create_endpoint("127.0.0.1", port)
    for line in sys.stdin:
        name, what, size, count = json.loads(line)
        view = array(np, what, size)
        await ep.send_obj(line.encode())
        await exchange(ep, name, view, 1, True)
        start = time.perf_counter()
        await exchange(ep, name, view, count - 1, True)
        seconds = time.perf_counter() - start
        value = 2 * (count - 1) * size / seconds
        print(json.dumps({"value": value}), flush=True)


def measure(
    transport: str, lengths: list[int], plan: _harness.Plan
) -> list[_harness.Sample]:
    env = ucx_environment(transport, ucp_settings())
    role = [sys.executable, __file__]
    samples = []
    with ExitStack() as stack:
        server = stack.enter_context(Child([*role, "serve"], env, True, 0))
        port = str(server.message()["port"])
        client = stack.enter_context(Child([*role, "drive", port], env, True, 1))
        client.deadline += 3600
        for number in range(plan.rounds):
            for what in VIEWS:
                for size in lengths:
                    count = max(3, int(plan.seconds * 1e9 / size))
                    for name in random.sample(CONTENDERS, len(CONTENDERS)):
                        client.send(json.dumps([name, what, size, count]))
                        value = float(client.message()["value"])
                        case = f"{transport} {what} {human(size)}"
                        samples.append(_harness.Sample(case, name, number, 0, value))
    return samples


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        asyncio.run(serve())
    elif sys.argv[1:2] == ["drive"]:
        asyncio.run(drive(int(sys.argv[2])))
    else:
        parser = _harness.parser(__doc__.splitlines()[0])
        parser.add_argument("--transports", default="shm,tcp")
        parser.add_argument("--sizes", default="64K,1M,16M", type=sizes)
        options = parser.parse_args()
        options.compare = None
        plan = _harness.plan_of(options)
        plan.seconds = options.seconds or 0.05
        total = _harness.Results("strided", "MB/s", "contiguous", CONTENDERS)
        for transport in options.transports.split(","):
            total.samples += measure(transport, options.sizes, plan)
        _harness.finish(total, options)
