# SPDX-License-Identifier: BSD-3-Clause
"""Messages with metadata, beside one message of frames each, us.

One server and one client, on a core each, with three connections. Small ones:
the time of a message when many are sent to one endpoint, each awaited, until
the other side has them all. Long ones: the time of a message that goes to three
endpoints, until each has answered. `layer` is ucp.message; `frames` sends each
by send_frames(), the same metadata pickled as the header, and to three endpoints
three times.

python benchmarks/message_layer.py [--rounds 10] [--transports shm,tcp]
"""

from __future__ import annotations

import asyncio
import json
import pickle
import random
import sys
import time
from contextlib import ExitStack
from typing import Any

import _harness
from _contenders import human, ucp_settings, ucx_environment
from _process import Child

CONTENDERS = ["frames", "layer"]
# bytes, endpoints, messages in a row
CASES = [(64, 1, 2000), (1024, 1, 1000), (1 << 20, 3, 1)]
METADATA = {"op": "task", "n": 1}


async def sends(eps: list[Any], sender: Any, name: str, case: Any) -> None:
    """The client: all messages of one round, and the answers."""
    size, count, burst = case
    data = bytes(size)
    to = eps[:count]
    for _ in range(burst):
        if name == "layer":
            await sender.send(to[0] if count == 1 else to, METADATA, [data])
        else:
            header = pickle.dumps(METADATA)
            requests = [ep.send_frames([data], header) for ep in to]
            for request in requests:
                await request
    for ep in to:
        await ep.recv(bytearray(1))


async def receives(ep: Any, name: str, burst: int, rounds: int) -> None:
    """The server, on one endpoint."""
    if name == "frames":
        for _ in range(rounds):
            for _ in range(burst):
                header, _ = await ep.recv_frames()
                pickle.loads(header)
            await ep.send(b"x")
        return
    from ucp.message import MessageListener, MessageReceiver

    left = burst * rounds
    done = asyncio.get_running_loop().create_future()

    class Count(MessageReceiver):
        __slots__ = ()

        def finish(self, buffers: list[Any]) -> None:
            nonlocal left
            left -= 1
            if left % burst == 0:
                ep.send(b"x")
            if left == 0:
                done.set_result(None)

    listener = MessageListener(ep, Count)
    await done
    listener.close()
    await listener.wait_closed()


async def serve() -> None:
    import ucp

    listener = ucp.create_listener(host="127.0.0.1")
    print(json.dumps({"port": listener.port}), flush=True)
    eps = [await anext(listener) for _ in range(3)]
    while True:
        name, case, rounds = json.loads(await eps[0].channel(1).recv_obj())
        _, count, burst = case
        runs = [receives(ep, name, burst, rounds) for ep in eps[:count]]
        await eps[0].channel(1).send(b"ready")
        await asyncio.gather(*runs)


async def drive(port: int) -> None:
    """The client: runs what it is told, prints microseconds."""
    import ucp
    from ucp.message import MessageSender

    eps = [await ucp.create_endpoint("127.0.0.1", port) for _ in range(3)]
    sender = MessageSender()
    for line in sys.stdin:
        name, case, rounds = json.loads(line)
        text = json.dumps([name, case, rounds + 1]).encode()
        await eps[0].channel(1).send_obj(text)
        await eps[0].channel(1).recv_obj()
        await sends(eps, sender, name, case)
        start = time.perf_counter()
        for _ in range(rounds):
            await sends(eps, sender, name, case)
        seconds = time.perf_counter() - start
        print(json.dumps({"value": 1e6 * seconds / rounds / case[2]}), flush=True)


def measure(transport: str, plan: _harness.Plan) -> list[_harness.Sample]:
    samples = []
    env = ucx_environment(transport, ucp_settings())
    role = [sys.executable, __file__]
    with ExitStack() as stack:
        server = stack.enter_context(Child([*role, "serve"], env, True, 0))
        port = str(server.message()["port"])
        client = stack.enter_context(Child([*role, "drive", port], env, True, 1))
        client.deadline += 3600
        server.deadline += 3600
        for number in range(plan.rounds):
            for case in CASES:
                size, count, burst = case
                guess = burst * (3e-6 + size * count / 5e9)
                rounds = max(3, int(plan.seconds / guess))
                label = f"{transport} {human(size)} to {count}"
                for name in random.sample(CONTENDERS, len(CONTENDERS)):
                    client.send(json.dumps([name, case, rounds]))
                    value = float(client.message()["value"])
                    samples.append(_harness.Sample(label, name, number, 0, value))
    return samples


def main() -> None:
    parser = _harness.parser(__doc__.splitlines()[0])
    parser.add_argument("--transports", default="shm,tcp")
    options = parser.parse_args()
    options.compare = None
    plan = _harness.plan_of(options)
    plan.seconds = options.seconds or 0.02
    total = _harness.Results("message_layer", "us", "frames", CONTENDERS)
    for transport in options.transports.split(","):
        total.samples += measure(transport, plan)
    _harness.finish(total, options)


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        asyncio.run(serve())
    elif sys.argv[1:2] == ["drive"]:
        asyncio.run(drive(int(sys.argv[2])))
    else:
        main()
