# SPDX-License-Identifier: BSD-3-Clause
"""The objects of a topology."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from enum import IntEnum

from .. import _ext
from . import hwloc


class Kind(IntEnum):
    """``umx_topology_kind`` in ``umx/topology.h``."""

    CPUS = 0
    HOST_BRIDGE = 1
    BRIDGE = 2
    PCI_DEVICE = 3
    OS_DEVICE = 4


class DeviceType(IntEnum):
    """``umx_device_type`` in ``umx/topology.h``."""

    OTHER = 0
    BLOCK = 1
    NETWORK = 2
    OPENFABRICS = 3
    CUDA = 4


_ADDRESS = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])")


@dataclass(frozen=True, order=True)
class PciAddress:
    """The address of a PCI device; the text of one is ``0000:06:00.0``."""

    domain: int
    bus: int
    device: int
    function: int

    def __str__(self) -> str:
        return f"{self.domain:04x}:{self.bus:02x}:{self.device:02x}.{self.function:x}"

    @classmethod
    def parse(cls, text: str) -> PciAddress | None:
        """Return the address that ``text`` is, with or without a domain, or None."""
        match = _ADDRESS.fullmatch(text.lower())
        if match is None:
            return None
        return cls(*(int(number or "0", 16) for number in match.groups()))


@dataclass(frozen=True)
class Object:
    """One object; see ``umx_topology_object`` in ``umx/topology.h``."""

    number: int
    parent: int | None
    depth: int
    kind: Kind
    type: DeviceType
    pci: PciAddress
    class_id: int
    vendor_id: int
    device_id: int
    name: str


class Tree:
    """The topology of this host, or of the host that an XML file describes."""

    def __init__(self, source: str | os.PathLike[str] | None = None) -> None:
        hwloc.load()
        if source is None:
            self.ext = _ext.Topology()
        else:
            self.ext = _read(source)
        self.objects = [
            Object(
                number,
                parent,
                depth,
                Kind(kind),
                DeviceType(type_),
                PciAddress(*pci),
                *ids,
                name,
            )
            for number, (parent, depth, kind, type_, pci, ids, name) in enumerate(
                self.ext.objects()
            )
        ]

    def gpus(self) -> list[Object]:
        """Return the NVIDIA display devices, by PCI address."""
        found = [obj for obj in self.objects if obj.type == DeviceType.CUDA]
        return sorted(found, key=lambda obj: (obj.pci, obj.number))


def _read(source: str | os.PathLike[str]) -> _ext.Topology:
    path = os.fspath(source)  # a number would be a descriptor
    with open(path, "rb") as file:
        xml = file.read()
    try:
        return _ext.Topology(xml)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
