# SPDX-License-Identifier: BSD-3-Clause
"""Processes of benchmarks/gpu.py; they print JSON.

python _gpu.py probe KIND...              why a kind of memory is not to be had, or ""
python _gpu.py serve LIBRARY [CMA_MAX]    receives what the other one says
python _gpu.py drive LIBRARY PORT [CMA_MAX]   sends; seconds of each message
python _gpu.py copy                       the driver's own copies, likewise
python _gpu.py dask PROTOCOL SIDE CHUNK   x + x.T of CuPy's blocks on two workers
"""

from __future__ import annotations

import asyncio
import ctypes
import functools
import importlib.util
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

HOST = ("numpy", "fresh numpy", "memory")
DRIVER = ("pinned", "managed", "device", "async")
LIBRARIES = {
    "cupy": "cupy",
    "cupy-async": "cupy",
    "cupy-managed": "cupy",
    "torch": "torch",
    "torch-expandable": "torch",
}
ORDER = 256  # bytes that tell the server what comes
DELAY = 0.001  # until a receive is cancelled


# ---- memory --------------------------------------------------------------------------


@functools.cache
def driver() -> Any:
    """The driver, with the first device's context as the current one."""
    cuda = ctypes.CDLL("libcuda.so.1")
    context = ctypes.c_void_p()
    check(cuda.cuInit(0))
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    check(cuda.cuCtxSetCurrent(context))
    return cuda


def check(result: int) -> None:
    if result != 0:
        raise RuntimeError(f"the driver's error {result}")


class Async:
    """Memory of the driver's asynchronous pool."""

    def __init__(self, size: int) -> None:
        self.address = ctypes.c_void_p()
        where = ctypes.byref(self.address)
        check(driver().cuMemAllocAsync(where, ctypes.c_size_t(size), None))
        check(driver().cuCtxSynchronize())
        self.__cuda_array_interface__ = {
            "version": 3,
            "shape": (size,),
            "typestr": "|u1",
            "data": (self.address.value, False),
            "strides": None,
            "stream": None,
        }

    def __del__(self) -> None:
        driver().cuMemFreeAsync(self.address, None)


@functools.cache
def cupy_pool(kind: str) -> Any:
    import cupy

    if kind == "cupy-async":
        return cupy.cuda.MemoryAsyncPool()
    if kind == "cupy-managed":
        return cupy.cuda.MemoryPool(cupy.cuda.malloc_managed)
    return cupy.get_default_memory_pool()


def memory(kind: str, size: int) -> Any:
    if kind in ("numpy", "fresh numpy"):
        return np.ones(size, "u1")
    if kind == "async":
        return Async(size)
    if kind.startswith("cupy"):
        import cupy

        with cupy.cuda.using_allocator(cupy_pool(kind).malloc):
            array = cupy.ones(size, "u1")
        cupy.cuda.Device().synchronize()
        return array
    if kind.startswith("torch"):
        import torch

        array = torch.ones(size, dtype=torch.uint8, device="cuda")
        torch.cuda.synchronize()
        return array
    import ucp

    names = {"memory": "host", "managed": "cuda-managed", "device": "cuda"}
    made = ucp.Memory.allocate(size, names.get(kind, kind))
    if kind == "memory":
        ctypes.memset(made.address, 1, size)  # its pages are there from now on
    return made


def missing(kind: str) -> str:
    library = LIBRARIES.get(kind)
    if library is not None and importlib.util.find_spec(library) is None:
        return f"{library} is not installed"
    try:
        if kind not in HOST:
            driver()
        memory(kind, 1000)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


class Buffers:
    """Those of one size, which are used again."""

    def __init__(self) -> None:
        self.size, self.kept = 0, {}

    def get(self, kind: str, size: int) -> Any:
        if size != self.size:
            self.size, self.kept = size, {}
        if kind == "fresh numpy":
            return memory(kind, size)
        if kind not in self.kept:
            self.kept[kind] = memory(kind, size)
        return self.kept[kind]

    def place(self, kind: str, size: int) -> Any:
        """For a receive: a fresh array has no pages yet."""
        if kind == "fresh numpy":
            return np.empty(size, "u1")
        return self.get(kind, size)


# ---- two processes -------------------------------------------------------------------


def load(name: str, cma_max: str | None) -> Any:
    module = importlib.import_module(name)
    if cma_max is not None:
        config = module.Config(cma_min=1 << 16, cma_max=int(cma_max))
        module.init(config=config)
    return module


async def serve(library: Any, has_device: bool) -> None:
    done = asyncio.Event()

    async def accept(ep: Any) -> None:
        order, answer = np.zeros(ORDER, "u1"), np.zeros(8, "u1")
        buffers = Buffers()
        while True:
            await ep.recv(order)
            what, kind, size, count = json.loads(order.tobytes().rstrip(b"\0"))
            if what == "end":
                break
            for _ in range(count):
                if what == "cancel":
                    await ep.send(buffers.get(kind, size))
                    await ep.recv(answer)
                else:
                    await ep.recv(buffers.place(kind, size))
                    await ep.send(answer)
        done.set()

    if has_device:
        driver()
    listener = library.create_listener(accept, port=0)
    print(json.dumps({"port": listener.port}), flush=True)
    await done.wait()


async def tell(ep: Any, *what: object) -> None:
    order = json.dumps(what).encode()
    assert len(order) <= ORDER
    await ep.send(np.frombuffer(order.ljust(ORDER, b"\0"), "u1").copy())


async def drive(library: Any, port: int, has_device: bool) -> None:
    if has_device:
        driver()
    ep = await library.create_endpoint("127.0.0.1", port)
    answer, buffers = np.zeros(8, "u1"), Buffers()
    for line in sys.stdin:
        what, source, target, size, count = json.loads(line)
        times = []
        if what == "cancel":
            await tell(ep, "cancel", source, size, count)
            for _ in range(count):
                times += await cancel(ep, buffers.get(target, size))
                await ep.send(answer)
        else:
            await tell(ep, "send", target, size, count)
            for _ in range(count):
                here = buffers.get(source, size)
                start = time.perf_counter()
                await ep.send(here)
                await ep.recv(answer)
                times.append(time.perf_counter() - start)
        print(json.dumps({"times": times}), flush=True)
    await tell(ep, "end", "", 0, 0)


async def cancel(ep: Any, here: Any) -> list[float]:
    """Seconds of cancelling a receive while its message comes; [] if it was done."""
    receiving = asyncio.ensure_future(ep.recv(here))
    await asyncio.sleep(DELAY)
    start = time.perf_counter()
    receiving.cancel()
    try:
        await receiving
        return []
    except asyncio.CancelledError:
        seconds = time.perf_counter() - start
    await ep.recv(here)
    return [seconds]


# ---- the driver ----------------------------------------------------------------------


def copy() -> None:
    cuda, buffers = driver(), Buffers()

    def address(kind: str, size: int) -> ctypes.c_void_p:
        made = buffers.get("numpy" if kind == "pageable" else kind, size)
        return ctypes.c_void_p(made.ctypes.data if kind == "pageable" else made.address)

    calls: dict[tuple[bool, bool], Callable[..., int]] = {
        (False, True): cuda.cuMemcpyHtoD_v2,
        (True, False): cuda.cuMemcpyDtoH_v2,
        (True, True): cuda.cuMemcpyDtoD_v2,
    }
    other = None  # of the device, for copies within it
    for line in sys.stdin:
        _, source, target, size, count = json.loads(line)
        of, to = address(source, size), address(target, size)
        if source == target:
            other = memory(source, size)
            of = ctypes.c_void_p(other.address)
        call = calls[source == "device", target == "device"]
        times = []
        for _ in range(count):
            start = time.perf_counter()
            check(call(to, of, ctypes.c_size_t(size)))
            check(cuda.cuCtxSynchronize())
            times.append(time.perf_counter() - start)
        print(json.dumps({"times": times}), flush=True)


# ---- Dask ----------------------------------------------------------------------------


def dask_sum(protocol: str, side: int, chunk: int) -> None:
    import cupy
    import dask.array as da
    from distributed import Client, LocalCluster, wait

    cluster = LocalCluster(
        n_workers=2, threads_per_worker=1, protocol=protocol, dashboard_address=None
    )
    with cluster, Client(cluster):
        state = da.random.default_rng(cupy.random.default_rng(1))
        times = []
        for _ in range(3):
            x = state.random((side, side), chunks=chunk).persist()
            wait(x)
            start = time.perf_counter()
            y = (x + x.T).persist()
            wait(y)
            times.append(time.perf_counter() - start)
            assert float(abs(y - y.T).sum().compute()) == 0
        print(json.dumps({"times": times}), flush=True)


if __name__ == "__main__":
    role, *words = sys.argv[1:]
    if role == "probe":
        print(json.dumps({kind: missing(kind) for kind in words}), flush=True)
    elif role == "copy":
        copy()
    elif role == "dask":
        dask_sum(words[0], int(words[1]), int(words[2]))
    else:
        name, device, *rest = words
        is_there = device == "device"
        module = load(name, rest[-1] if len(rest) == 1 + (role == "drive") else None)
        if role == "serve":
            asyncio.run(serve(module, is_there))
        else:
            asyncio.run(drive(module, int(rest[0]), is_there))
