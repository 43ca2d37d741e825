# SPDX-License-Identifier: BSD-3-Clause
"""One direction, a window of messages in flight, MB/s.

python benchmarks/bandwidth.py [--quick] [--sizes 64K,1M] [--window 16]
"""

import _harness
from _contenders import Case, sizes

if __name__ == "__main__":
    parser = _harness.parser(__doc__.splitlines()[0])
    _harness.add_contender_options(parser, base="perftest")
    parser.add_argument("--sizes", default="64K,1M,16M", type=sizes)
    parser.add_argument("--transports", default="shm,tcp")
    parser.add_argument("--window", default=16, type=int)
    options = parser.parse_args()
    cases = [
        Case("bandwidth", size, transport, options.window)
        for transport in options.transports.split(",")
        for size in options.sizes
    ]
    _harness.main("bandwidth", "MB/s", cases, options)
