# SPDX-License-Identifier: BSD-3-Clause
"""What a program can see of ucp while it runs: numbers, traces, log lines, dumps."""

# Layout:
#
#   page      the counters of a process, which others read while it runs or hangs
#   stats     ucp.stats(): all counters of this process, and latencies
#   latency   histograms of how long operations take
#   families  the names and values of metrics
#   metrics   ucp.metrics(): OpenMetrics text, and a collector for Prometheus
#   trace     ucp.trace(): a timeline of this process
#   timeline  the events of a trace, as JSON that Perfetto opens
#   dump      ucp.dump(): what everything waits for
#
# Nothing here is imported by the rooms below: what happens there is recorded in
# C, and read from here.
