# SPDX-License-Identifier: BSD-3-Clause
"""What ``send_recv`` can measure; each module has a server and a client."""

# Layout:
#
#   base        what they have in common
#   ucp_async   awaitables             ucp_core   the low-level API, no loop
#   tornado     tornado's TCP streams
