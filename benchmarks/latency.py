# SPDX-License-Identifier: BSD-3-Clause
"""Half round trip of a ping-pong, microseconds.

python benchmarks/latency.py [--quick] [--sizes 8,4K] [--transports shm,tcp]
"""

import _harness
from _contenders import Case, sizes

if __name__ == "__main__":
    parser = _harness.parser(__doc__.splitlines()[0])
    _harness.add_contender_options(parser, base="perftest")
    parser.add_argument("--sizes", default="8,4K,64K,1M,16M", type=sizes)
    parser.add_argument("--transports", default="shm,tcp")
    options = parser.parse_args()
    cases = [
        Case("latency", size, transport)
        for transport in options.transports.split(",")
        for size in options.sizes
    ]
    _harness.main("latency", "us", cases, options)
