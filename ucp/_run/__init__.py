# SPDX-License-Identifier: BSD-3-Clause
"""``python -m ucp run`` and ``python -m ucp demo``."""

# Layout:
#
#   launcher      starts ranks on this host, and ends them all
#   output        what ranks print
#   process_tree  all that ranks start, and its end
#   demo          two processes that exchange arrays
#   streams       asyncio's streams, which the demo measures as well
#   progress      a bar on a terminal
#   keys          single keys of a terminal
#   terminal      colours, and lines as wide as a terminal
#   ending        how programs end: Ctrl-C, output that nobody reads
