# SPDX-License-Identifier: BSD-3-Clause
"""doctor: GPUs, and what UCX needs to send from their memory."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from . import devices
from .finding import Findings, note, ok, problem

_DRIVER = Path("/proc/driver/nvidia/version")
_LIMIT = 60.0  # seconds; a driver that starts takes many

# The driver is asked in a process of its own, which may crash or hang.
_PROBE = """
import ctypes, json
cuda = ctypes.CDLL("libcuda.so.1")
status = cuda.cuInit(0)
names, number, version = [], ctypes.c_int(), ctypes.c_int()
if status == 0:
    cuda.cuDriverGetVersion(ctypes.byref(version))
    cuda.cuDeviceGetCount(ctypes.byref(number))
    for i in range(number.value):
        name = ctypes.create_string_buffer(100)
        cuda.cuDeviceGetName(name, 100, i)
        names.append(name.value.decode())
print(json.dumps({"status": status, "version": version.value, "names": names}))
"""


def check(transports: set[str] | None) -> Findings:
    """Look at GPUs; ``transports`` are those of UCX, None if they are not known."""
    if not _DRIVER.exists():
        yield ok("GPU", "There is no NVIDIA driver, so there are no GPUs to use")
        return
    found = re.search(r"  (\d+\.[\d.]+) ", _DRIVER.read_text())
    version = found.group(1) if found else "of an unknown version"
    done = _ask()
    if done is None or done["status"] != 0:
        why = "cannot be loaded" if done is None else f"fails with {done['status']}"
        yield problem(
            "GPU",
            f"The NVIDIA driver {version} is loaded, but libcuda.so.1 {why}.",
            "Install the libraries of the same driver; start the container with "
            "--gpus all, or unset CUDA_VISIBLE_DEVICES.",
        )
        return
    cuda = f"{done['version'] // 1000}.{done['version'] % 1000 // 10}"
    names = ", ".join(done["names"]) or "no device is visible"
    yield ok("GPU", f"NVIDIA driver {version}, CUDA {cuda}: {names}")
    yield from _parts(transports)
    if done["names"]:
        yield from devices.check()


def _ask() -> dict[str, Any] | None:
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-c", _PROBE],
            capture_output=True,
            text=True,
            timeout=_LIMIT,
        )
        answer: dict[str, Any] = json.loads(done.stdout)
    except (subprocess.TimeoutExpired, ValueError):
        return None
    return answer


def _parts(transports: set[str] | None) -> Findings:
    if transports is not None and not any(t.startswith("cuda") for t in transports):
        yield problem(
            "GPU",
            "UCX has no transport for CUDA: arrays in device memory cannot be sent.",
            "Use the UCX of 'pip install libucx-cu12', or build UCX --with-cuda; "
            "look at UCX_TLS.",
        )
    if transports is not None and "gdr_copy" not in transports:
        where = "loaded" if Path("/dev/gdrdrv").exists() else "not loaded"
        yield note(
            "GPU",
            f"UCX does not use gdrcopy (its kernel module is {where}): short messages "
            "from device memory take longer.",
            "Install gdrcopy: https://github.com/NVIDIA/gdrcopy",
        )
    if any(Path("/sys/class/infiniband").glob("*")):
        modules = Path("/proc/modules").read_text()
        if not re.search(r"^(nvidia_peermem|nv_peer_mem) ", modules, re.MULTILINE):
            yield note(
                "GPU",
                "The module nvidia_peermem is not loaded: RDMA reads device memory "
                "only if the kernel has dma-buf.",
                "modprobe nvidia_peermem",
            )
    if importlib.util.find_spec("cupy") is None:
        yield note(
            "GPU",
            "CuPy is not installed; arrays of other libraries work, too.",
            "pip install cupy-cuda12x",
        )
