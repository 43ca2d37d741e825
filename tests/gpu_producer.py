# SPDX-License-Identifier: BSD-3-Clause
"""Kernels that write commands into rings: umx/ring.h by NVRTC and the driver."""

import ctypes
import importlib.util
from pathlib import Path

import gpu
from paths import ROOT

import ucp

HEADER = ROOT / "include/umx/ring.h"
BLOCK = 4096  # bytes of a put
BLOCKS = 100  # puts of a producer

KERNEL = """
extern "C" __global__ void produce(umx_ring ring, umx_ring_u64 *errors,
                                   unsigned dst, unsigned region,
                                   unsigned counted, unsigned block,
                                   unsigned blocks)
{
    umx_ring_producer producer;
    umx_ring_u64 error = 0;

    umx_ring_producer_init(&producer, &ring);
    for (unsigned i = 0; i < blocks && error == 0; i++) {
        umx_ring_u64 offset = (umx_ring_u64)(blockIdx.x * blocks + i) * block;
        umx_ring_command pair[2] = {
            umx_ring_put(dst, region, block, offset, offset),
            umx_ring_signal(dst, counted, 0, 1, 0),
        };

        error = umx_ring_push(&producer, pair, 2);
    }
    if (error == 0) {
        error = umx_ring_wait(&ring, producer.head - 1);
    }
    errors[blockIdx.x] = error;
}
"""


class Ring(ctypes.Structure):
    """``umx_ring``."""

    _fields_ = [
        ("commands", ctypes.c_void_p),
        ("words", ctypes.c_void_p),
        ("first", ctypes.c_uint64),
        ("mask", ctypes.c_uint64),
        ("shift", ctypes.c_uint32),
        ("kind", ctypes.c_uint32),
        ("functions", ctypes.c_void_p * 4),
        ("made_in", ctypes.c_uint64),
    ]


def nvrtc():
    """The library of NVIDIA's package, or None."""
    for package in ("nvidia.cuda_nvrtc", "nvidia.cu13"):
        try:
            spec = importlib.util.find_spec(package)
        except ModuleNotFoundError:
            continue
        for place in (spec.submodule_search_locations or ()) if spec else ():
            lib = Path(place) / "lib"
            for builtins in lib.glob("libnvrtc-builtins.so.*"):
                ctypes.CDLL(str(builtins), ctypes.RTLD_GLOBAL)
            for path in lib.glob("libnvrtc.so.*"):
                return ctypes.CDLL(str(path))
    return None


def is_available():
    """Can kernels be compiled here?"""
    return nvrtc() is not None


def text_of(library, program, what):
    size = ctypes.c_size_t()
    assert getattr(library, f"nvrtcGet{what}Size")(program, ctypes.byref(size)) == 0
    buffer = ctypes.create_string_buffer(size.value)
    assert getattr(library, f"nvrtcGet{what}")(program, buffer) == 0
    return buffer.raw


def compiled(library, kernel, arch):
    """The log, PTX and cubin of a kernel after the header."""
    source = (HEADER.read_text() + kernel).encode()
    program = ctypes.c_void_p()
    made = library.nvrtcCreateProgram(
        ctypes.byref(program), source, b"ring.cu", 0, None, None
    )
    assert made == 0
    try:
        options = (ctypes.c_char_p * 1)(b"--gpu-architecture=" + arch.encode())
        status = library.nvrtcCompileProgram(program, 1, options)
        log = text_of(library, program, "ProgramLog").decode()
        assert status == 0, log
        ptx = text_of(library, program, "PTX").decode()
        return log, ptx, text_of(library, program, "CUBIN")
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _copy(to, of, nbytes):
    with gpu.Context(0):
        gpu.call("cuMemcpy", to, of, ctypes.c_size_t(nbytes))


def write(memory, data):
    """Fill registered memory of any kind."""
    _copy(ctypes.c_void_p(memory.address), data, len(data))


def read(memory):
    """The bytes of registered memory of any kind."""
    data = ctypes.create_string_buffer(memory.nbytes)
    _copy(data, ctypes.c_void_p(memory.address), memory.nbytes)
    return data.raw


class Kernel:
    """``produce()`` on device 0; what it is launched with lives as long."""

    def __init__(self):
        self.context = gpu.Context(0)
        major, minor = ctypes.c_int(), ctypes.c_int()
        gpu.call("cuDeviceGetAttribute", ctypes.byref(major), 75, 0)
        gpu.call("cuDeviceGetAttribute", ctypes.byref(minor), 76, 0)
        arch = f"sm_{major.value}{minor.value}"
        self.cubin = compiled(nvrtc(), KERNEL, arch)[2]
        self.module, self.function = ctypes.c_void_p(), ctypes.c_void_p()
        with self.context:
            gpu.call("cuModuleLoadData", ctypes.byref(self.module), self.cubin)
            gpu.call(
                "cuModuleGetFunction",
                ctypes.byref(self.function),
                self.module,
                b"produce",
            )

    def launch(self, ring, producers, region, counted, dst):
        """Start it: each of ``producers`` blocks of one thread is a producer."""
        self.ring = ring
        self.results = ucp.Memory.allocate(8 * producers, "pinned")
        arguments = (
            Ring.from_buffer_copy(ctypes.string_at(ring.view, ctypes.sizeof(Ring))),
            ctypes.c_void_p(self.results.address),
            *map(ctypes.c_uint, (dst, region, counted, BLOCK, BLOCKS)),
        )
        pointers = (ctypes.c_void_p * len(arguments))(
            *(ctypes.addressof(argument) for argument in arguments)
        )
        shape = map(ctypes.c_uint, (producers, 1, 1, 1, 1, 1, 0))
        with self.context:
            gpu.call("cuLaunchKernel", self.function, *shape, None, pointers, None)

    def synchronize(self):
        """Wait until it has ended."""
        with self.context:
            gpu.call("cuCtxSynchronize")

    def errors(self):
        """What ``umx_ring_push()`` or ``umx_ring_wait()`` returned to each."""
        return list(memoryview(self.results).cast("B").cast("Q"))
