# SPDX-License-Identifier: BSD-3-Clause
"""Kinds of memory: how each is made, filled and read by the driver alone.

``python -P memory.py KIND...`` prints, as JSON, why a kind cannot be had here, or "".
"""

import ctypes
import functools
import importlib.util
import json
import os
import sys

import gpu
import numpy as np

import ucp

FAMILIES = {
    "host": ("bytearray", "numpy", "memory"),
    "driver": ("pinned", "managed", "device", "async"),
    "cupy": ("cupy", "cupy-async", "cupy-managed"),
    "torch": ("torch",),
    "torch-expandable": ("torch-expandable",),
}
FAMILY_OF = {kind: family for family, kinds in FAMILIES.items() for kind in kinds}
EXPANDABLE = "expandable_segments:True"
# What a process needs that uses a family.
ENVIRONMENTS = {
    "torch-expandable": {
        "PYTORCH_CUDA_ALLOC_CONF": EXPANDABLE,  # the older name
        "PYTORCH_ALLOC_CONF": EXPANDABLE,
    }
}
ON_DEVICE = ("device", "async", *FAMILIES["cupy"], "torch", "torch-expandable")

GUARD = 64  # bytes behind the buffer, which no message writes
PERIOD = 4096  # seeds that differ


@functools.cache
def _random(size):
    data = np.random.default_rng(size).bytes(size + PERIOD)
    return np.frombuffer(data, "u1")


def pattern(size, seed):
    """Bytes that differ where a fragment is out of place; ``~seed``: each is wrong."""
    if seed < 0:
        return ~pattern(size, ~seed)
    return _random(max(size, 1 << 20))[seed % PERIOD :][:size]


class Memory:
    """``size`` bytes of a kind: ``buffer`` is what is sent or received into."""

    def __init__(self, kind, size, seed=0):
        self.kind, self.size = kind, size
        # A registered memory is passed as a whole, anything else has a guard.
        self.guard = 0 if kind == "memory" else GUARD
        self.whole = _MAKERS[kind](size + self.guard)
        self.buffer = self._buffer()
        self.fill(seed)

    def _buffer(self):
        if self.guard == 0:
            return self.whole
        if self.kind == "bytearray":
            return memoryview(self.whole)[: self.size]
        if isinstance(self.whole, gpu.Memory):
            self.whole.nbytes = self.size
            return self.whole
        return self.whole[: self.size]

    def fill(self, seed):
        """Write the pattern of ``seed``, and what guards the end."""
        data = np.concatenate([pattern(self.size, seed), np.zeros(self.guard, "u1")])
        if self._is_host():
            self._view()[:] = data
        else:
            self._copy(data, writes=True)

    def wrong(self, seed):
        """Say what differs from the pattern of ``seed``; "" if nothing does."""
        if self._is_host():
            data = self._view()
        else:
            data = np.empty(self.size + self.guard, "u1")
            self._copy(data, writes=False)
        if data[self.size :].any():
            return "bytes behind the buffer were written"
        differing = np.flatnonzero(data[: self.size] != pattern(self.size, seed))
        if not len(differing):
            return ""
        first = int(differing[0])
        what = f"{len(differing)} of {self.size} bytes are wrong, from byte {first} on"
        poison = pattern(self.size, ~seed)[first:]
        if (data[first : self.size] == poison).all():
            what += ", where nothing was written"
        return what

    def _is_host(self):
        return self.kind not in ON_DEVICE

    def _view(self):
        if isinstance(self.whole, gpu.Memory):
            array = ctypes.c_ubyte * (self.size + self.guard)
            return np.frombuffer(array.from_address(self.whole.address), "u1")
        return np.frombuffer(self.whole, "u1")

    def _copy(self, data, writes):
        there = self.whole
        address = ctypes.c_void_p(there.__cuda_array_interface__["data"][0])
        here, length = ctypes.c_void_p(data.ctypes.data), ctypes.c_size_t(len(data))
        with gpu.Context(0):
            if writes:
                gpu.call("cuMemcpyHtoD_v2", address, here, length)
            else:
                gpu.call("cuMemcpyDtoH_v2", here, address, length)
            gpu.call("cuStreamSynchronize", None)  # see gpu.Memory.write()


class _Async(gpu.Memory):
    """Memory of the driver's asynchronous pool."""

    def __init__(self, nbytes):
        self.nbytes, self.kind, self.device, self.stream = nbytes, "device", 0, None
        self.address = None
        address = ctypes.c_void_p()
        with gpu.Context(0):
            length = ctypes.c_size_t(nbytes)
            gpu.call("cuMemAllocAsync", ctypes.byref(address), length, None)
            gpu.call("cuStreamSynchronize", None)
        self.address = address.value

    def free(self):
        with gpu.Context(0):
            gpu.call("cuMemFreeAsync", ctypes.c_void_p(self.address), None)
            gpu.call("cuStreamSynchronize", None)
        self.kind = "freed"


@functools.cache
def _cupy_pool(kind):
    import cupy

    if kind == "cupy-async":
        return cupy.cuda.MemoryAsyncPool()
    if kind == "cupy-managed":
        return cupy.cuda.MemoryPool(cupy.cuda.malloc_managed)
    return cupy.get_default_memory_pool()


def _cupy(kind, size):
    import cupy

    with cupy.cuda.using_allocator(_cupy_pool(kind).malloc):
        array = cupy.zeros(size, "u1")
    cupy.cuda.Device().synchronize()
    return array


def _torch(size):
    import torch

    array = torch.zeros(size, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    return array


_MAKERS = {
    "bytearray": bytearray,
    "numpy": lambda size: np.zeros(size, "u1"),
    "memory": ucp.Memory.allocate,
    "pinned": lambda size: gpu.Memory(size, "pinned"),
    "managed": lambda size: gpu.Memory(size, "managed"),
    "device": lambda size: gpu.Memory(size, "device"),
    "async": _Async,
    **{kind: functools.partial(_cupy, kind) for kind in FAMILIES["cupy"]},
    "torch": _torch,
    "torch-expandable": _torch,
}


def missing(kind):
    """Why memory of the kind cannot be had here; "" if it can."""
    family = FAMILY_OF[kind]
    if family == "host":
        return ""
    if not ucp.cuda.is_available():
        return "there is no CUDA device"
    library = family.partition("-")[0]
    if library != "driver" and importlib.util.find_spec(library) is None:
        return f"{library} is not installed"
    try:
        memory = Memory(kind, 1000, 1)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return memory.wrong(1)


if __name__ == "__main__":
    print(json.dumps({kind: missing(kind) for kind in sys.argv[1:]}), flush=True)
    os._exit(0)
