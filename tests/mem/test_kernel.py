# SPDX-License-Identifier: BSD-3-Clause
# tests: mem/cuda_kernel
"""The kernel that moves bytes: its text in PTX, and what it does."""

import ctypes
import random
import shutil
import subprocess
import sys

import pytest
from paths import ROOT

sys.path.append(str(ROOT / "tools"))
import ptx

# A device of one thread at a time.
DEVICE = """
#define __global__
#define __device__
#define __launch_bounds__(n)
struct dim { unsigned x, y, z; };
static dim threadIdx, blockIdx, blockDim;
struct alignas(16) uint4 { unsigned words[4]; };
"""

LAUNCH = """
extern "C" void launch(const moves *list, unsigned grid_x, unsigned grid_y,
                       unsigned threads, u64 step)
{
    blockDim.x = threads;
    for (blockIdx.y = 0; blockIdx.y < grid_y; blockIdx.y++) {
        for (blockIdx.x = 0; blockIdx.x < grid_x; blockIdx.x++) {
            for (threadIdx.x = 0; threadIdx.x < threads; threadIdx.x++) {
                umx_move(*list, step);
            }
        }
    }
}
"""

MOVES = 128
STEP = 16384
ROOM = 70_000  # bytes of a move, and of what must not change behind it


class Move(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("dst", "src", "len")]


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    """The source, compiled for the host."""
    if shutil.which("c++") is None:
        pytest.skip("no c++")
    folder = tmp_path_factory.mktemp("kernel")
    (folder / "kernel.cc").write_text(DEVICE + ptx.SOURCE.read_text() + LAUNCH)
    subprocess.run(
        [
            *("c++", "-std=c++17", "-O1", "-shared", "-fPIC", "-Wall", "-Werror"),
            *("-fsanitize=undefined", "-fno-sanitize-recover=all"),
            *("-static-libubsan", "-o", folder / "kernel.so", folder / "kernel.cc"),
        ],
        check=True,
    )
    return ctypes.CDLL(str(folder / "kernel.so"))


def test_it_moves_each_byte_and_no_other(kernel):
    chance = random.Random(59)
    source = chance.randbytes(ROOM + 64)
    for _ in range(20):
        count = chance.choice([1, 8, MOVES])
        sizes = [
            chance.choice([1, 15, 16, STEP - 1, STEP, STEP + 1, chance.randrange(ROOM)])
            for _ in range(count)
        ]
        shift = [(chance.randrange(16), chance.randrange(16)) for _ in range(count)]
        src = ctypes.create_string_buffer(source, len(source))
        into = [ctypes.create_string_buffer(size + 32) for size in sizes]
        moves = (Move * MOVES)()
        for move, size, buffer, (here, there) in zip(
            moves, sizes, into, shift, strict=False
        ):
            move.dst = ctypes.addressof(buffer) + here
            move.src = ctypes.addressof(src) + there
            move.len = size
        grid = -(-max(sizes) // STEP)
        kernel.launch(moves, grid, count, 256, ctypes.c_uint64(STEP))
        for size, buffer, (here, there) in zip(sizes, into, shift, strict=True):
            want = bytes(here) + source[there : there + size] + bytes(32 - here)
            assert buffer.raw == want


def test_the_text_is_that_of_the_source():
    library = ptx.nvrtc()
    if library is None:
        pytest.skip("NVRTC is not installed: pip install nvidia-cuda-nvrtc-cu12")
    made = ptx.header(library)
    if f"NVRTC {ptx.version(library)}." in ptx.HEADER.read_text():
        assert made == ptx.HEADER.read_text()  # else by another compiler


def test_the_text_needs_no_new_driver():
    text = ptx.HEADER.read_text()
    assert f".version {ptx.VERSION}" in text
    assert ".entry umx_move(" in text
    assert ".target sm_70" in text
