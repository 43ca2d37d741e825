# SPDX-License-Identifier: BSD-3-Clause
"""doctor: by which way memory of devices goes between two processes, and how fast."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from .finding import Findings, note, ok, problem

_LIMIT = 60.0  # seconds; a driver that starts takes many

# Two processes, one of which the other starts, send each kind of memory to each.
# What the driver does not export is allocated as CuPy's asynchronous pool does.
_PROGRAM = """
import asyncio, ctypes, json, subprocess, sys, time
import ucp

NBYTES, TIMES = 4 << 20, 8
TO = {"host": ["cuda"], "pinned": ["cuda"], "cuda-managed": ["cuda"]}
TO.update({"cuda": ["host", "cuda"], "pool": ["host", "cuda"]})
cuda = ctypes.CDLL("libcuda.so.1")

class Pool:
    def __init__(self):
        context, address = ctypes.c_void_p(), ctypes.c_void_p()
        assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
        assert cuda.cuCtxSetCurrent(context) == 0
        size = ctypes.c_size_t(NBYTES)
        if cuda.cuMemAllocAsync(ctypes.byref(address), size, None) != 0:
            raise MemoryError
        cuda.cuCtxSynchronize()
        self.__cuda_array_interface__ = {
            "version": 3, "shape": (NBYTES,), "typestr": "|u1", "stream": None,
            "data": (address.value, False), "strides": None,
        }

def memory(kind):
    return Pool() if kind == "pool" else ucp.Memory.allocate(NBYTES, kind)

async def serve():
    listener = ucp.create_listener(host="127.0.0.1")
    print(listener.port, flush=True)
    ep = await listener.accept()
    while True:
        kind = await ep.recv_obj()
        if not kind:
            return
        buffer = memory(bytes(kind).decode())
        for _ in range(TIMES):
            await ep.recv(buffer)
            await ep.send(b"a")

def count(ep):
    return {name: way["sent"] for name, way in ep.ways().items()}

async def measure(ep, buffer, to):
    best, ack = None, bytearray(1)
    await ep.send_obj(to.encode())
    before = count(ep)
    for _ in range(TIMES):
        start = time.perf_counter()
        await ep.send(buffer)
        await ep.recv(ack)
        taken = time.perf_counter() - start
        best = taken if best is None else min(best, taken)
    after = count(ep)
    ways = [name for name in after if after[name] > before[name]]
    return ways[-1], NBYTES / best / 1e9

async def main(port):
    ep = await ucp.create_endpoint("127.0.0.1", port)
    found = []
    for kind in TO:
        try:
            buffer = memory(kind)
        except MemoryError:
            continue
        for to in TO[kind]:
            found.append((kind, to, *await measure(ep, buffer, to)))
    await ep.send_obj(b"")
    print(json.dumps(found))

if sys.argv[1:] == ["serve"]:
    asyncio.run(serve())
else:
    server = subprocess.Popen(
        [sys.executable, "-P", "-c", sys.argv[1], "serve"],
        stdout=subprocess.PIPE, text=True,
    )
    try:
        asyncio.run(main(int(server.stdout.readline())))
    finally:
        server.kill()
        server.wait()
"""

_NAMES = {"pool": "cuda of an asynchronous pool"}


def check() -> Findings:
    """Measure messages between two processes of this host; there is a device."""
    found = _measure()
    if isinstance(found, str):
        yield problem(
            "GPU",
            f"Messages of device memory between two processes failed: {found}",
            "Look at dmesg for errors of the device (Xid), and whether another program "
            "has taken all of its memory.",
        )
        return
    for kind, to, way, speed in found:
        text = f"{_NAMES.get(kind, kind)} to {to}: by {way}, {speed:.1f} GB/s"
        if to == "cuda" and kind in ("cuda", "pool") and way == "host slots":
            yield note(
                "GPU",
                f"{text}: no process maps device memory of another here.",
                "In containers, share the namespaces (--ipc=host --pid=host) and make "
                "the same devices visible to both; instances of MIG have no such maps.",
            )
        elif kind == "cuda" and to == "cuda" and way != "cuda_ipc":
            yield note(
                "GPU",
                f"{text}: UCX has no cuda_ipc between the two.",
                "Look at UCX_TLS, and at cuda_ipc in 'ucx_info -d'.",
            )
        else:
            yield ok("GPU", text)


def _measure() -> list[Any] | str:
    """What was found, or what went wrong."""
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", _PROGRAM, _PROGRAM],
            capture_output=True,
            text=True,
            timeout=_LIMIT,
        )
        found: list[Any] = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return f"they did not end within {_LIMIT:.0f} s"
    except ValueError:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        return lines[-1]
    return found
