# SPDX-License-Identifier: BSD-3-Clause
"""Every operation beside the others, 8 bytes each, microseconds.

One server and one client, on a core each, with one connection. Of what both
take part in, half a round trip; of what the client does alone (RMA, ping), the
whole operation: the server waits for its next command. The rows of `tag` are
UCX's own tags; `low-level` is them with callbacks and a loop of progress().

Both sides go through blocks of a millisecond in the same order, operation after
operation, without a pause between: a round is the median of some such passes,
which an interrupt or a late wake-up here and there does not move.

python benchmarks/operations.py [--rounds 10] [--transports shm,tcp] [--size 8]
"""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import sys
import textwrap
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import Any, NamedTuple

import _harness
from _contenders import ucp_settings, ucx_environment
from _process import Child


class Row(NamedTuple):
    """Statements; `send` and `recv` take turns, `alone` is the client's."""

    before: str
    send: str = ""
    recv: str = ""
    alone: str = ""


ROWS = {
    "send, recv": Row(
        "send, recv = ep.send, ep.recv", "await send(out)", "await recv(into)"
    ),
    "recv_into": Row(
        "send, recv = ep.send, ep.recv_into", "await send(out)", "await recv(into)"
    ),
    "recv_obj": Row(
        "send, recv = ep.send_obj, ep.recv_obj", "await send(out)", "await recv()"
    ),
    "recv_message": Row(
        "send, recv = ep.send, ep.recv_message",
        "await send(out)",
        "message = await recv(); await message.recv(into)",
    ),
    "channel": Row(
        "lane = ep.channel(1); send, recv = lane.send, lane.recv",
        "await send(out)",
        "await recv(into)",
    ),
    "tag": Row(
        "send, recv = worker.send, worker.recv",
        "await send(ep, out, 1)",
        "await recv(into, 1)",
    ),
    "tag, sync": Row(
        "send, recv = worker.send, worker.recv",
        "await send(ep, out, 1, sync=True)",
        "await recv(into, 1)",
    ),
    "tag, probe": Row(
        "send, recv, probe = worker.send, worker.recv, worker.probe",
        "await send(ep, out, 1)",
        "await probe(1); await recv(into, 1)",
    ),
    "tag, recv_message": Row(
        "send, recv = worker.send, worker.recv_message",
        "await send(ep, out, 1)",
        "message = await recv(1); await message.recv(into)",
    ),
    "tag, low-level": Row(
        "send, recv = ucx_api.tag_send_nb, ucx_api.tag_recv_nb\n"
        "progress, size = worker.progress, len(out)\n"
        "def done(request, exception): pass",
        "request = send(ep, out, size, 1, done)\n"
        "while request is not None and not request.done(): progress()",
        "request = recv(worker, into, size, 1, done)\n"
        "while request is not None and not request.done(): progress()",
    ),
    "am": Row("send, recv = ep.am_send, ep.am_recv", "await send(out)", "await recv()"),
    "am, no copy": Row(
        "send, recv = ep.am_send, ep.am_recv_message",
        "await send(out)",
        "memoryview(await recv())",
    ),
    "stream": Row(
        "send, recv = ep.stream_send, ep.stream_recv",
        "await send(out)",
        "await recv(into)",
    ),
    "put": Row("put = remote.put", alone="await put(out)"),
    "get": Row("get = remote.get", alone="await get(into)"),
    "put_signal": Row("put = remote.put_signal", alone="await put(out, 0, offset, 1)"),
    "add": Row("add = remote.add", alone="await add(0, 1)"),
    "fetch_add": Row("add = remote.fetch_add", alone="await add(0, 1)"),
    "swap": Row("swap = remote.swap", alone="await swap(0, 1)"),
    "cswap": Row("cswap = remote.cswap", alone="await cswap(0, 1, 1)"),
    "flush": Row("flush = ep.flush", alone="await flush()"),
    "ping": Row("ping = ep.ping", alone="await ping()"),
}
BASE = "tag"
PASSES = 25  # in a round
# Limits of the design, as multiples of the tags' time at 8 bytes over shared memory.
AT_MOST = {"am": 1.2, "stream": 1.2, "tag, low-level": 1.0}


def compiled(row: Row, *turns: str) -> Callable[..., Awaitable[None]]:
    """A loop without a call more than a program would have."""
    source = (
        "async def loop(ucx_api, ep, worker, remote, out, into, offset, count):\n"
        + textwrap.indent(row.before, " " * 4)
        + "\n    for _ in range(count):\n"
        + textwrap.indent("\n".join(turns), " " * 8)
    )
    names: dict[str, Any] = {}
    exec(source, names)
    loop: Callable[..., Awaitable[None]] = names["loop"]
    return loop


async def serve(size: int) -> None:
    """The server: its half of what the client says, until that ends."""
    import ucp
    from ucp._libs import ucx_api

    memory = ucp.Memory.allocate(max(size, 8) + 8)
    listener = ucp.create_listener(host="127.0.0.1")
    print(json.dumps({"port": listener.port, "key": memory.key.hex()}), flush=True)
    ep = await anext(listener)
    out, into = bytearray(size), bytearray(size)
    while True:
        passes, blocks = json.loads(await ep.recv_obj())
        loops = [
            (compiled(ROWS[name], ROWS[name].recv, ROWS[name].send), count)
            for name, count in blocks
            if ROWS[name].send
        ]
        for _ in range(passes):
            for loop, count in loops:
                await loop(ucx_api, ep, ep.worker, None, out, into, 0, count)


async def drive(size: int) -> None:
    """The client: runs what it is told, prints seconds of each operation."""
    import ucp
    from ucp._libs import ucx_api

    port, key = int(sys.argv[3]), bytes.fromhex(sys.argv[4])
    ep = await ucp.create_endpoint("127.0.0.1", port)
    remote = ep.remote(key)
    out, into = bytearray(size), bytearray(size)
    offset = max(size, 8)
    for line in sys.stdin:
        passes, blocks = json.loads(line)
        loops = []
        for name, count in blocks:
            row = ROWS[name]
            turns = (row.send, row.recv) if row.send else (row.alone,)
            loops.append((compiled(row, *turns), count, count * len(turns)))
        values: list[list[float]] = [[] for _ in blocks]
        await ep.send_obj(line.encode())
        for _ in range(passes):
            for (loop, count, operations), row_values in zip(
                loops, values, strict=True
            ):
                start = time.perf_counter()
                await loop(ucx_api, ep, ep.worker, remote, out, into, offset, count)
                row_values.append((time.perf_counter() - start) / operations)
        medians = [statistics.median(row_values) for row_values in values]
        print(json.dumps({"values": medians}), flush=True)


def ask(child: Child, passes: int, counts: dict[str, int]) -> dict[str, float]:
    """Seconds of one operation of each row, in that order."""
    child.send(json.dumps([passes, list(counts.items())]))
    return dict(zip(counts, child.message()["values"], strict=True))


def measure(transport: str, size: int, plan: _harness.Plan) -> _harness.Results:
    env = ucx_environment(transport, ucp_settings())
    results = _harness.Results("operations", "us", BASE, list(ROWS))
    with ExitStack() as stack:
        role = [sys.executable, __file__]
        server = stack.enter_context(Child([*role, "serve", str(size)], env, True, 0))
        where = server.message()
        place = [str(size), str(where["port"]), where["key"]]
        client = stack.enter_context(Child([*role, "drive", *place], env, True, 1))
        client.deadline += 3600
        server.deadline += 3600
        for number in range(plan.rounds):
            for is_alone in (False, True):
                names = [name for name in ROWS if bool(ROWS[name].alone) == is_alone]
                random.shuffle(names)
                once = ask(client, 3, dict.fromkeys(names, 100))
                counts = {
                    name: max(10, int(plan.seconds / once[name])) for name in names
                }
                for name, value in ask(client, PASSES, counts).items():
                    results.samples.append(
                        _harness.Sample(transport, name, number, 0, 1e6 * value)
                    )
    return results


def verdicts(results: _harness.Results) -> list[str]:
    """The targets, medians of the ratios within the rounds."""
    lines = []
    for name, limit in AT_MOST.items():
        ratio = results.paired("shm", name)
        if ratio is not None:
            word = "reached" if ratio <= limit else "MISSED"
            lines.append(
                f"{name}: {ratio:.2f}x the tags' time (at most {limit}): {word}"
            )
    return lines


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        asyncio.run(serve(int(sys.argv[2])))
    elif sys.argv[1:2] == ["drive"]:
        asyncio.run(drive(int(sys.argv[2])))
    else:
        parser = _harness.parser(__doc__.splitlines()[0])
        parser.add_argument("--transports", default="shm,tcp")
        parser.add_argument("--size", type=int, default=8)
        options = parser.parse_args()
        options.compare = None
        plan = _harness.plan_of(options)
        plan.seconds = options.seconds or 0.001
        total = _harness.Results("operations", "us", BASE, list(ROWS))
        for transport in options.transports.split(","):
            total.samples += measure(transport, options.size, plan).samples
        _harness.finish(total, options)
        print("\n".join(verdicts(total)))
