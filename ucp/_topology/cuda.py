# SPDX-License-Identifier: BSD-3-Clause
"""Which GPU has which number for CUDA in this process.

CUDA's driver is not asked, since a program may want the topology before it uses
CUDA. What ``CUDA_VISIBLE_DEVICES`` says is followed as the driver follows it:
numbers count the GPUs in the order of their PCI addresses, names ``GPU-...`` are
UUIDs or their beginnings, and the first entry that names no GPU ends the list.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from .tree import Object, PciAddress

_PROC = Path("/proc/driver/nvidia/gpus")


def visible(
    gpus: list[Object], environ: Mapping[str, str] = os.environ
) -> list[Object]:
    """Return those of ``gpus``, which are in PCI order, that CUDA numbers from 0."""
    wanted = environ.get("CUDA_VISIBLE_DEVICES")
    if wanted is None:
        return gpus
    uuids = _uuids(gpus) if "GPU-" in wanted else {}
    found: list[Object] = []
    for entry in wanted.split(","):
        gpu = _named(entry.strip(), gpus, uuids)
        if gpu is None or gpu in found:
            break
        found.append(gpu)
    return found


def _named(
    entry: str, gpus: list[Object], uuids: Mapping[str, Object]
) -> Object | None:
    if entry.isdecimal() and len(entry) < 10:
        return gpus[int(entry)] if int(entry) < len(gpus) else None
    if not entry.startswith("GPU-"):
        return None
    found = [gpu for uuid, gpu in uuids.items() if uuid.startswith(entry)]
    return found[0] if len(found) == 1 else None


def _uuids(gpus: list[Object]) -> dict[str, Object]:
    """Map the UUIDs that the driver of NVIDIA shows below /proc to GPUs."""
    found: dict[str, Object] = {}
    for file in _PROC.glob("*/information"):
        address = PciAddress.parse(file.parent.name)
        for line in file.read_text(errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "GPU UUID":
                found |= {value.strip(): gpu for gpu in gpus if gpu.pci == address}
    return found
