# SPDX-License-Identifier: BSD-3-Clause
"""NVIDIA's driver without a device, for programs in Python: tests/c/standin, whose
standin.h says what it does, as libcuda.so.1, which UCX's own transports run on too.

A test calls settings() for the environment of a program; that calls the rest.
"""

import contextlib
import ctypes
import functools
import tempfile
from pathlib import Path

import gpu

MAX_DEVICES = 8


# ---- for tests


@functools.cache
def _built():
    """The folder of the libraries, which is removed when this process ends."""
    import natives  # of tests: a program needs none

    folder = tempfile.TemporaryDirectory(prefix="ucp-standin-")
    c = Path(__file__).parent / "c"
    parts = sorted({*c.glob("standin/*.c")} - {c / "standin/link.c"})
    others = [c / "standin/nvml.c"]
    libraries = {"libcuda.so.1": [part for part in parts if part not in others]}
    libraries["libnvidia-ml.so.1"] = others
    for name, sources in libraries.items():
        natives.run(
            natives.any_compiler(),
            *("-std=gnu11", "-shared", "-fPIC", "-O1", "-g", "-pthread"),
            *("-Wall", "-Wextra", f"-I{c}", f"-Wl,-soname,{name}"),
            *("-o", f"{folder.name}/{name}"),
            *sources,
        )
    return folder


def settings(ucx=False, **env):
    """The environment of a program that finds the driver; UCX does where ``ucx``."""
    modules = {} if ucx else {"UCX_MODULES": "^cuda"}
    return {"LD_LIBRARY_PATH": _built().name, **modules, **env}


# ---- for programs


class State(ctypes.Structure):
    """What standin.h counts."""

    _fields_ = (
        *(
            (name, ctypes.c_uint)
            for name in (
                *("pushes", "pops", "copies", "launches", "strays", "waits"),
                "allocations",
            )
        ),
        ("waited", ctypes.c_void_p),
        ("allocated", ctypes.c_int),
        ("retained", ctypes.c_uint * MAX_DEVICES),
        ("is_missing", ctypes.c_bool),
        ("is_deviceless", ctypes.c_bool),
        ("no_symbol", ctypes.c_char_p),
    )


@functools.cache
def state():
    return State.in_dll(gpu.driver(), "standin")


def fail(name, result, at=0):
    """The ``at``-th call of ``name`` gives an error; 0: each call."""
    gpu.driver().standin_fail(name.encode() if name else None, result, at)


def calls():
    """How often each function was called."""
    called = gpu.driver().standin_called
    called.restype = ctypes.c_char_p
    counts, number = {}, ctypes.c_uint()
    while name := called(len(counts), ctypes.byref(number)):
        counts[name.decode()] = number.value
    return counts


def set_speed(step_us=0, gbs=0):
    """Copies wait before each step, and are at most so fast."""
    gpu.driver().standin_set_speed(ctypes.c_double(step_us), ctypes.c_double(gbs))


def hold(is_on):
    """While this is on no kernel begins."""
    gpu.driver().standin_hold(ctypes.c_bool(is_on))


@contextlib.contextmanager
def uncounted():
    """What is done within is not counted."""
    counts = state()
    before = counts.copies, counts.strays, counts.waits
    yield
    counts.copies, counts.strays, counts.waits = before


class DeviceArray:
    """Bytes of a device, as CuPy would describe them; ``device`` -1: pinned."""

    def __init__(self, data, device=0, managed=False, **interface):
        kind = "pinned" if device < 0 else "managed" if managed else "device"
        self.memory = gpu.Memory(len(data), kind, max(device, 0))
        self.address = self.memory.address
        with uncounted():
            self.memory.write(data)
        self.__cuda_array_interface__ = {
            **self.memory.__cuda_array_interface__,
            **interface,
        }

    @property
    def bytes(self):
        with uncounted():
            return self.memory.read()

    def __eq__(self, other):
        return self.bytes == other

    __hash__ = None

    def forget(self):
        """Free it."""
        self.memory.free()

    def launch(self, stream, value, delay_us=2000):
        """Queue a kernel that fills it."""
        result = gpu.driver().standin_launch(
            ctypes.c_void_p(stream),
            ctypes.c_void_p(self.address),
            ctypes.c_size_t(self.memory.nbytes),
            value,
            ctypes.c_double(delay_us),
        )
        assert result == 0, result
