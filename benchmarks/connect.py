# SPDX-License-Identifier: BSD-3-Clause
"""Connect and close, one after the other, connections/s.

Pinned, each process has one core, so a library's own threads compete with its
Python thread; unpinned they need not. Both are shown.

python benchmarks/connect.py [--quick] [--transports shm,tcp]
"""

import _harness
from _contenders import Case

if __name__ == "__main__":
    parser = _harness.parser(__doc__.splitlines()[0])
    _harness.add_contender_options(parser, base="sockets")
    parser.add_argument("--transports", default="shm")
    options = parser.parse_args()
    cases = [
        Case("connect", transport=transport, pinned=pinned)
        for transport in options.transports.split(",")
        for pinned in (True, False)
    ]
    _harness.main("connect", "connections/s", cases, options)
