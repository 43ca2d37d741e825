# SPDX-License-Identifier: BSD-3-Clause
"""Which devices of a host are close to which GPU, by hwloc."""

# Layout:
#
#   hwloc        finds the library hwloc and has libumx open it
#   tree         the objects of a topology, from the extension
#   cuda         which GPU has which number for CUDA in this process
#   distance     TopologicalDistance
#   net_devices  the argument of init()
#   labels       what people read of objects
#   text         python -m ucp topology    drawing    its option --svg
