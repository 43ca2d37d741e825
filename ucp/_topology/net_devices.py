# SPDX-License-Identifier: BSD-3-Clause
"""The argument ``net_devices`` of ``init()``."""

from __future__ import annotations

from .distance import TopologicalDistance

_CLOSEST = "closest:"


def net_devices_of(
    net_devices: str, topology: TopologicalDistance | None = None
) -> str:
    """Return the value of UCX's option ``NET_DEVICES``.

    Args:
        net_devices: ``"closest:"`` and a device as ``TopologicalDistance`` takes
            it, or the value itself.
        topology: default: this host's.

    Raises:
        ImportError: hwloc is not installed.
        LookupError: there is no such device, or no network device.
    """
    if not net_devices.startswith(_CLOSEST):
        return net_devices
    device = net_devices.removeprefix(_CLOSEST)
    if topology is None:
        topology = TopologicalDistance()
    found = topology.closest(device, "openfabrics", "network")
    if not found:
        raise LookupError(f"net_devices={net_devices!r}: there is no network device")
    fabrics = {row["name"] for row in topology.distances(device, "openfabrics")}
    # UCX names a device of InfiniBand with a port.
    return ",".join(f"{name}:1" if name in fabrics else name for name in found)
