# SPDX-License-Identifier: BSD-3-Clause
"""make ptx: compile src/mem/cuda_kernel.cu into src/mem/cuda_kernel_ptx.h.

NVRTC does it, of the package nvidia-cuda-nvrtc-cu12; no device is needed. The text is
for devices of the oldest architecture named here and of all newer ones, and for
drivers from the version on that knows VERSION of PTX.
"""

from __future__ import annotations

import ctypes
import importlib.util
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src/mem/cuda_kernel.cu"
HEADER = ROOT / "src/mem/cuda_kernel_ptx.h"
ARCHITECTURE = "compute_70"
VERSION = "7.0"  # of CUDA 11.0; the text has no newer instruction

TOP = """\
/* SPDX-License-Identifier: BSD-3-Clause */
/* cuda_kernel_ptx.h: cuda_kernel.cu in PTX, made by `make ptx` with NVRTC {made_by}.
 */
/* clang-format off */
#ifndef UMI_CUDA_KERNEL_PTX_H
#define UMI_CUDA_KERNEL_PTX_H

static const char umi_cuda_kernel_ptx[] =
"""


def nvrtc() -> ctypes.CDLL | None:
    """The library of NVIDIA's package, or None."""
    try:
        spec = importlib.util.find_spec("nvidia.cuda_nvrtc")
    except ModuleNotFoundError:
        return None
    for place in (spec.submodule_search_locations or ()) if spec else ():
        lib = Path(place) / "lib"
        for builtins in lib.glob("libnvrtc-builtins.so.*"):
            ctypes.CDLL(str(builtins), ctypes.RTLD_GLOBAL)
        for path in lib.glob("libnvrtc.so.*"):
            return ctypes.CDLL(str(path))
    return None


def version(library: ctypes.CDLL) -> str:
    """The version of NVRTC, as "12.9"."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return f"{major.value}.{minor.value}"


def _text(library: ctypes.CDLL, program: ctypes.c_void_p, what: str) -> str:
    size = ctypes.c_size_t()
    getattr(library, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value)
    getattr(library, f"nvrtcGet{what}")(program, text)
    return text.value.decode()


def compiled(library: ctypes.CDLL) -> str:
    """The source in PTX, without comments."""
    program = ctypes.c_void_p()
    source = SOURCE.read_bytes()
    library.nvrtcCreateProgram(
        ctypes.byref(program), source, SOURCE.name.encode(), 0, None, None
    )
    options = (ctypes.c_char_p * 2)(
        f"--gpu-architecture={ARCHITECTURE}".encode(), b"--std=c++17"
    )
    if library.nvrtcCompileProgram(program, len(options), options) != 0:
        raise SystemExit(_text(library, program, "ProgramLog"))
    ptx = _text(library, program, "PTX")
    library.nvrtcDestroyProgram(ctypes.byref(program))
    ptx = re.sub(r"//[^\n]*", "", ptx)
    ptx = re.sub(r"(?m)^\.version .*$", f".version {VERSION}", ptx)
    lines = (line.strip() for line in ptx.splitlines())
    return "".join(f"{line}\n" for line in lines if line)


def header(library: ctypes.CDLL) -> str:
    """The file for the C compiler."""
    lines = compiled(library).splitlines()
    strings = [f'    "{line}\\n"'.replace("\t", " ") for line in lines]
    top = TOP.format(made_by=version(library))
    return top + "\n".join(strings) + ";\n\n#endif\n"


def main() -> None:
    library = nvrtc()
    if library is None:
        sys.exit("NVRTC is not installed: pip install nvidia-cuda-nvrtc-cu12")
    HEADER.write_text(header(library))


if __name__ == "__main__":
    main()
