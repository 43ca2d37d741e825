# SPDX-License-Identifier: BSD-3-Clause
"""``TopologicalDistance``: how far devices are from each other."""

from __future__ import annotations

import operator
import os
import re
from typing import TypedDict

from . import cuda
from .labels import Labels
from .tree import DeviceType, Kind, Object, PciAddress, Tree


class Distance(TypedDict):
    """What the methods of ``TopologicalDistance`` return lists of."""

    distance: int
    name: str


_TYPES = {
    "network": DeviceType.NETWORK,
    "openfabrics": DeviceType.OPENFABRICS,
    "block": DeviceType.BLOCK,
    "cuda": DeviceType.CUDA,
}

_CUDA_NAME = re.compile(r"cuda([0-9]{1,9})")


class TopologicalDistance:
    """How far the devices of a host are from each other, by hwloc.

    The distance from one device to another is a number of edges in the tree of
    PCI: from the first device up to the nearest bridge, switch or processor that
    has both below it, but at most up to the host bridge of the first one. Devices
    below one switch are close to each other; all those below another host bridge
    have the same distance. The distance depends on the direction.

    Args:
        source: the path of an XML file of hwloc, which ``lstopo host.xml`` writes.
            The file may come from anyone: a child process reads it. None: this
            host.

    Raises:
        ImportError: hwloc 2.x is not installed; the text says what to install.
        OSError: the file cannot be read, the system refuses a child process, or
            hwloc fails on this host.
        ValueError: hwloc cannot read the file, or not within 20 seconds.

    GPUs are NVIDIA's display devices. They have the numbers that CUDA gives them
    in the order ``CUDA_DEVICE_ORDER=PCI_BUS_ID``; on hosts whose GPUs are all of
    one model this is the default order too. ``CUDA_VISIBLE_DEVICES`` is followed,
    as it is when the object is made, unless there is a ``source``.

    Where the methods take a device, it is the number of a GPU, its name
    ``"cuda0"``, the PCI address of any device, ``"0000:06:00.0"``, or the name of a
    device of the operating system, ``"ib0"``. They raise ``LookupError`` for a
    device that does not exist. Where they take a type of device, it is

    - ``"network"``: network interfaces, ``"ib0"``
    - ``"openfabrics"``: devices of InfiniBand and RoCE, ``"mlx5_0"``
    - ``"block"``: disks, ``"nvme0n1"``
    - ``"cuda"``: GPUs, ``"cuda0"``

    and they raise ``ValueError`` for another one. They can be called in any thread.
    """

    __slots__ = ("_source", "_tree", "_visible")

    def __init__(self, source: str | os.PathLike[str] | None = None) -> None:
        self._source = source
        self._tree = Tree(source)
        gpus = self._tree.gpus()
        self._visible = cuda.visible(gpus) if source is None else gpus

    def __repr__(self) -> str:
        of = "this host" if self._source is None else os.fspath(self._source)
        return f"<ucp.TopologicalDistance of {of}: {len(self._visible)} GPUs>"

    @property
    def gpus(self) -> list[str]:
        """The PCI address of each GPU, by its number for CUDA."""
        return [str(gpu.pci) for gpu in self._visible]

    def get_cuda_distances_from_device_index(
        self, cuda_device_index: int, device_type: str
    ) -> list[Distance]:
        """Return the distances from a GPU to all devices of a type.

        Args:
            cuda_device_index: the number of the GPU for CUDA, from 0.
            device_type: ``"network"``, ``"openfabrics"``, ``"block"`` or ``"cuda"``.

        Returns:
            A dict ``{"distance": edges, "name": name}`` for each device, the
            closest first, and by name where distances are equal.

        Raises:
            LookupError: there is no such GPU.
            ValueError: there is no such type.

        Name and result are those of ucx-py, whose names were bytes.
        """
        return self._distances(self._gpu(cuda_device_index), device_type)

    def get_cuda_distances_from_pci_info(
        self, domain: int, bus: int, device: int, device_type: str
    ) -> list[Distance]:
        """Return the distances from the GPU at a PCI address.

        Args:
            domain: the PCI domain.
            bus: the bus, 0 to 255.
            device: the device on the bus, 0 to 31. Its function is 0, as it is of
                each GPU.
            device_type: ``"network"``, ``"openfabrics"``, ``"block"`` or ``"cuda"``.

        Returns:
            The same as ``get_cuda_distances_from_device_index``.

        Raises:
            LookupError: there is no PCI device at this address.
            ValueError: there is no such type.
        """
        address = PciAddress(*map(operator.index, (domain, bus, device, 0)))
        return self._distances(self._at(address), device_type)

    def distances(self, device: int | str, device_type: str) -> list[Distance]:
        """Return the distances from any device to all others of a type.

        ``distances("cuda0", "cuda")`` gives those to the other GPUs.

        Args:
            device: a GPU, or any device; see the class.
            device_type: ``"network"``, ``"openfabrics"``, ``"block"`` or ``"cuda"``.

        Returns:
            The same as ``get_cuda_distances_from_device_index``, without the device
            itself.

        Raises:
            LookupError: there is no such device.
            ValueError: there is no such type.
        """
        return self._distances(self._find(device), device_type)

    def closest(self, device: int | str, *device_types: str) -> list[str]:
        """Return the names of the devices at the least distance.

        Args:
            device: a GPU, or any device; see the class.
            device_types: one or more types; the least distance is that of all
                devices of these types.

        Returns:
            Names in the order of the types, and by name; empty if there is no
            device of these types.

        Raises:
            LookupError: there is no such device.
            ValueError: there is no such type.
        """
        found = self._find(device)
        rows = [row for kind in device_types for row in self._distances(found, kind)]
        least = min((row["distance"] for row in rows), default=0)
        return [row["name"] for row in rows if row["distance"] == least]

    def cpus(self, device: int | str) -> frozenset[int]:
        """Return the numbers of the CPUs that are closest to a device.

        ``os.sched_setaffinity(0, topology.cpus("cuda0"))`` pins a process there.
        With a ``source`` they are CPUs of that host.

        Raises:
            LookupError: there is no such device.
        """
        return self._tree.ext.cpus(self._find(device).number)

    def _labels(self) -> Labels:
        """Return the objects with what people read of them."""
        return Labels(self._tree, self._visible)

    # Objects of the tree.

    def _distances(self, start: Object, device_type: str) -> list[Distance]:
        if device_type not in _TYPES:
            raise ValueError(
                f"device_type is one of {', '.join(_TYPES)}, not {device_type!r}"
            )
        found = self._tree.ext.distances(start.number, _TYPES[device_type])
        if device_type != "cuda":
            return [
                {"distance": edges, "name": self._tree.objects[number].name}
                for edges, number in found
            ]
        numbers = {gpu.number: n for n, gpu in enumerate(self._visible)}
        order = sorted((edges, numbers[n]) for edges, n in found if n in numbers)
        return [{"distance": edges, "name": f"cuda{n}"} for edges, n in order]

    def _find(self, device: int | str) -> Object:
        if not isinstance(device, str):
            return self._gpu(device)
        match = _CUDA_NAME.fullmatch(device)
        if match is not None:
            return self._gpu(int(match[1]))
        address = PciAddress.parse(device)
        if address is not None:
            return self._at(address)
        for found in self._tree.objects:
            if found.kind == Kind.OS_DEVICE and found.name == device != "":
                return found
        raise LookupError(f"{self._where()} has no device {device!r}")

    def _gpu(self, index: int) -> Object:
        index = operator.index(index)
        if 0 <= index < len(self._visible):
            return self._visible[index]
        count = len(self._visible)
        has = f"{count} that CUDA can see" if count else "none that CUDA can see"
        if self._source is not None:
            has = str(count) if count else "none"
        raise LookupError(f"{self._where()} has no GPU cuda{index}: it has {has}")

    def _at(self, address: PciAddress) -> Object:
        for found in self._tree.objects:
            if found.kind == Kind.PCI_DEVICE and found.pci == address:
                return found
        raise LookupError(f"{self._where()} has no PCI device {address}")

    def _where(self) -> str:
        if self._source is None:
            return "this host"
        return f"the topology of {os.fspath(self._source)}"
