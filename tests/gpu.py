# SPDX-License-Identifier: BSD-3-Clause
"""Memory of NVIDIA's devices by the driver alone, for tests with one."""

import ctypes
import functools

ATTACH_GLOBAL = 1
PORTABLE = 1


@functools.cache
def driver():
    """libcuda.so.1, initialised."""
    cuda = ctypes.CDLL("libcuda.so.1")
    assert cuda.cuInit(0) == 0
    return cuda


def call(name, *args):
    """Call the driver; a failure is a RuntimeError."""
    result = getattr(driver(), name)(*args)
    if result != 0:
        raise RuntimeError(f"{name}: error {result}")


def is_fake():
    """Is it the tests' own driver, tests/c/standin?"""
    return hasattr(driver(), "standin_reset")


def num_devices():
    """The devices there are."""
    count = ctypes.c_int()
    call("cuDeviceGetCount", ctypes.byref(count))
    return count.value


@functools.cache
def _context(device):
    context = ctypes.c_void_p()
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    return context


class Context:
    """``with Context(device):`` it is the current one."""

    def __init__(self, device):
        self.device = device

    def __enter__(self):
        call("cuCtxPushCurrent_v2", _context(self.device))

    def __exit__(self, *exception):
        call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))


def current_device():
    """The device of the current context; None: there is no context."""
    device = ctypes.c_int()
    result = driver().cuCtxGetDevice(ctypes.byref(device))
    return device.value if result == 0 else None


class Memory:
    """Bytes: "device", "managed" or "pinned"."""

    def __init__(self, nbytes, kind="device", device=0):
        self.nbytes, self.kind, self.device = nbytes, kind, device
        self.stream = None
        address = ctypes.c_void_p()
        with Context(device):
            if kind == "pinned":
                call(
                    "cuMemHostAlloc",
                    ctypes.byref(address),
                    ctypes.c_size_t(nbytes),
                    PORTABLE,
                )
            elif kind == "managed":
                call(
                    "cuMemAllocManaged",
                    ctypes.byref(address),
                    ctypes.c_size_t(nbytes),
                    ATTACH_GLOBAL,
                )
            else:
                call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(nbytes))
        self.address = address.value

    def free(self):
        """Give it back; what points there is wild from now on."""
        name = "cuMemFreeHost" if self.kind == "pinned" else "cuMemFree_v2"
        with Context(self.device):
            call(name, ctypes.c_void_p(self.address))
        self.kind = "freed"

    def __del__(self):
        if getattr(self, "address", None) is not None and self.kind != "freed":
            self.free()

    @property
    def __cuda_array_interface__(self):
        return {
            "version": 3,
            "shape": (self.nbytes,),
            "typestr": "|u1",
            "data": (self.address, False),
            "strides": None,
            "stream": self.stream,
        }

    def write(self, data):
        """Copy ``data`` there; it has arrived when this returns."""
        assert len(data) <= self.nbytes
        if self.kind != "device":
            ctypes.memmove(self.address, data, len(data))
            return
        with Context(self.device):
            call(
                "cuMemcpyHtoD_v2",
                ctypes.c_void_p(self.address),
                bytes(data),
                ctypes.c_size_t(len(data)),
            )
            # From pageable memory, a copy returns when it is staged: another stream
            # could be overtaken by it.
            call("cuStreamSynchronize", None)

    def read(self):
        """Return the bytes of the memory."""
        if self.kind != "device":
            return ctypes.string_at(self.address, self.nbytes)
        data = ctypes.create_string_buffer(self.nbytes)
        with Context(self.device):
            call(
                "cuMemcpyDtoH_v2",
                data,
                ctypes.c_void_p(self.address),
                ctypes.c_size_t(self.nbytes),
            )
        return data.raw


class Stream:
    """A queue of a device."""

    NON_BLOCKING = 1  # the default stream does not wait for it

    def __init__(self, device=0):
        self.device = device
        handle = ctypes.c_void_p()
        with Context(device):
            call("cuStreamCreate", ctypes.byref(handle), self.NON_BLOCKING)
        self.handle = handle.value

    def __cuda_stream__(self):
        return 0, self.handle

    def fill(self, memory, value, times=1):
        """Queue filling ``memory``, ``times`` times over."""
        with Context(self.device):
            for _ in range(times):
                call(
                    "cuMemsetD8Async",
                    ctypes.c_void_p(memory.address),
                    ctypes.c_ubyte(value),
                    ctypes.c_size_t(memory.nbytes),
                    ctypes.c_void_p(self.handle),
                )

    def __del__(self):
        if getattr(self, "handle", None) is not None:
            with Context(self.device):
                call("cuStreamDestroy_v2", ctypes.c_void_p(self.handle))
