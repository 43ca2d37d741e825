# SPDX-License-Identifier: BSD-3-Clause
"""ucx-py's benchmark of round trips, and clusters of processes for others.

``python -m ucp.benchmarks.send_recv`` takes ucx-py's options. The project's own
benchmarks, which say more, are in the directory ``benchmarks`` of the sources.
"""

# Layout:
#
#   send_recv   the program            utils   processes that know each other
#   backends    what it measures
