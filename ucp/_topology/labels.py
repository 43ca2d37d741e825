# SPDX-License-Identifier: BSD-3-Clause
"""What people read of an object, in the printed tree and in the drawing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from .tree import DeviceType, Kind, Object, Tree


class Labels:
    """The labels of a tree. ``visible`` are the GPUs that CUDA can see, in order."""

    def __init__(self, tree: Tree, visible: list[Object]) -> None:
        self.tree = tree
        self._cuda = {gpu.number: f"cuda{n}" for n, gpu in enumerate(visible)}
        self._below: dict[int | None, list[Object]] = {}
        for obj in tree.objects:
            self._below.setdefault(obj.parent, []).append(obj)

    def children(self, obj: Object) -> list[Object]:
        """Return what is shown below an object: no OS devices of a PCI device."""
        if obj.kind == Kind.PCI_DEVICE:
            return []
        below = self._below.get(obj.number, [])
        return sorted(below, key=lambda child: (child.kind, child.pci, child.name))

    def names(self, obj: Object) -> list[str]:
        """Return the names that the system and CUDA give to a device.

        A PCI device may have several.
        """
        if obj.kind == Kind.OS_DEVICE:
            return [obj.name or "?"]
        found = [self._cuda[obj.number]] if obj.number in self._cuda else []
        if not found and obj.type == DeviceType.CUDA:
            found = ["GPU"]  # CUDA_VISIBLE_DEVICES hides it
        return found + sorted(self._names_below(obj))

    def _names_below(self, obj: Object) -> Iterator[str]:
        for child in self._below.get(obj.number, []):
            if child.kind == Kind.OS_DEVICE:
                yield child.name or "?"
                yield from self._names_below(child)

    def type(self, obj: Object) -> DeviceType:
        """Return the type of a device: of a PCI device that of its first name."""
        if obj.type != DeviceType.OTHER:
            return obj.type
        types = [child.type for child in self._below.get(obj.number, [])]
        return max(types, default=DeviceType.OTHER)

    def title(self, obj: Object) -> str:
        """Return the kind and the number or address of an object."""
        if obj.kind == Kind.CPUS:
            return obj.name
        if obj.kind == Kind.HOST_BRIDGE:
            return "host bridge"
        if obj.kind == Kind.BRIDGE:
            return f"bridge {obj.pci}"
        if obj.kind == Kind.PCI_DEVICE:
            return str(obj.pci)
        return "device"

    def detail(self, obj: Object) -> str:
        """Return the CPUs of a group of CPUs, and the names of a device."""
        if obj.kind == Kind.CPUS:
            return f"CPUs {ranges(self.tree.ext.cpus(obj.number))}"
        if obj.kind in (Kind.PCI_DEVICE, Kind.OS_DEVICE):
            return ", ".join(self.names(obj))
        return ""


def ranges(numbers: Iterable[int]) -> str:
    """Write numbers as Linux writes lists of CPUs: ``0-3,8``."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and found[-1][-1] == number - 1:
            found[-1] = [found[-1][0], number]
        else:
            found.append([number])
    return ",".join("-".join(map(str, ends)) for ends in found) or "none"
