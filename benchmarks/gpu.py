# SPDX-License-Identifier: BSD-3-Clause
"""Device memory between two processes, half a round trip of one array.

`device copy` is the driver's own copy within one process, the limit. The rest
are messages of ucp: from device to device by whatever UCX chooses, without
cuda_ipc, and with a UCX that knows no CUDA, where ucp copies through the host;
from host to device and back; and between hosts.

python benchmarks/gpu.py [--rounds 5] [--sizes 8,64K,1M,16M,256M] [--unit us]
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import random
import sys
import time
from contextlib import ExitStack
from typing import Any, NamedTuple

import _harness
from _contenders import human, sizes, ucx_environment
from _process import Child


class Way(NamedTuple):
    """Kinds of memory at the client and the server, and UCX's environment."""

    client: str
    server: str
    env: dict[str, str]


COPY = "device copy"
WAYS = {
    "device": Way("cuda", "cuda", {}),
    "device, no cuda_ipc": Way("cuda", "cuda", {"UCX_TLS": "^cuda_ipc"}),
    "device, UCX without CUDA": Way("cuda", "cuda", {"UCX_MODULES": "^cuda"}),
    "managed": Way("cuda-managed", "cuda-managed", {}),
    "host to device": Way("host", "cuda", {}),
    "pinned to device": Way("pinned", "cuda", {}),
    "host": Way("host", "host", {}),
}


def memory(kind: str, size: int) -> Any:
    import ucp

    return ucp.Memory.allocate(size, kind)


async def serve(kind: str) -> None:
    import ucp

    listener = ucp.create_listener(host="127.0.0.1")
    print(json.dumps({"port": listener.port}), flush=True)
    ep = await anext(listener)
    while True:
        size, count = json.loads(await ep.recv_obj())
        here = memory(kind, size)
        for _ in range(count):
            await ep.recv(here)
            await ep.send(here)


async def drive(kind: str, port: int) -> None:
    """The client: runs what it is told, prints seconds."""
    import ucp

    ep = await ucp.create_endpoint("127.0.0.1", port)
    for line in sys.stdin:
        size, count = json.loads(line)
        here = memory(kind, size)
        await ep.send_obj(json.dumps([size, count + 2]).encode())
        for number in range(count + 2):
            if number == 2:
                start = time.perf_counter()
            await ep.send(here)
            await ep.recv(here)
        seconds = (time.perf_counter() - start) / (2 * count)
        print(json.dumps({"value": seconds}), flush=True)


def copy() -> None:
    """The driver's copy: runs what it is told, prints seconds."""
    cuda = ctypes.CDLL("libcuda.so.1")
    context = ctypes.c_void_p()
    for result in (
        cuda.cuInit(0),
        cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0),
        cuda.cuCtxPushCurrent_v2(context),
    ):
        assert result == 0, result
    for line in sys.stdin:
        size, count = json.loads(line)
        ends = [memory("cuda", size), memory("cuda", size)]
        to, of = (ctypes.c_void_p(end.address) for end in ends)
        length = ctypes.c_size_t(size)
        for number in range(count + 2):
            if number == 2:
                start = time.perf_counter()
            assert cuda.cuMemcpyDtoD_v2(to, of, length) == 0
            assert cuda.cuCtxSynchronize() == 0
        seconds = (time.perf_counter() - start) / count
        print(json.dumps({"value": seconds}), flush=True)


def start(stack: ExitStack, name: str) -> Child:
    """The process that is told what to do."""
    role = [sys.executable, __file__]
    if name == COPY:
        return stack.enter_context(Child([*role, "copy"], {}, False, 1))
    way = WAYS[name]
    env = {**ucx_environment("shm", {}), **way.env}
    server = stack.enter_context(Child([*role, "serve", way.server], env, True, 0))
    port = str(server.message()["port"])
    server.deadline += 3600
    command = [*role, "drive", way.client, port]
    return stack.enter_context(Child(command, env, True, 1))


def ask(child: Child, size: int, count: int) -> float:
    child.send(json.dumps([size, count]))
    return float(child.message()["value"])


def measure(
    names: list[str], lengths: list[int], unit: str, plan: _harness.Plan
) -> list[_harness.Sample]:
    samples = []
    with ExitStack() as stack:
        children = {name: start(stack, name) for name in names}
        for child in children.values():
            child.deadline += 3600
        for size in lengths:
            counts = {
                name: max(3, int(plan.seconds / ask(child, size, 3)))
                for name, child in children.items()
            }
            for number in range(plan.rounds):
                for name in random.sample(names, len(names)):
                    seconds = ask(children[name], size, counts[name])
                    value = 1e6 * seconds if unit == "us" else size / seconds
                    samples.append(_harness.Sample(human(size), name, number, 0, value))
    return samples


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        asyncio.run(serve(sys.argv[2]))
    elif sys.argv[1:2] == ["drive"]:
        asyncio.run(drive(sys.argv[2], int(sys.argv[3])))
    elif sys.argv[1:2] == ["copy"]:
        copy()
    else:
        parser = _harness.parser(__doc__.splitlines()[0])
        parser.add_argument("--sizes", default="8,64K,1M,16M,256M", type=sizes)
        parser.add_argument("--unit", choices=["MB/s", "us"], default="MB/s")
        options = parser.parse_args()
        options.compare = None
        plan = _harness.plan_of(options)
        plan.seconds = options.seconds or 0.1
        names = [COPY, *WAYS]
        total = _harness.Results("gpu", options.unit, COPY, names)
        total.samples = measure(names, options.sizes, options.unit, plan)
        _harness.finish(total, options)
