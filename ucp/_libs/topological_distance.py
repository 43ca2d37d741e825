# SPDX-License-Identifier: BSD-3-Clause
"""``TopologicalDistance`` by the path that it has in ucx-py."""

from .._topology.distance import TopologicalDistance

__all__ = ["TopologicalDistance"]
