# SPDX-License-Identifier: BSD-3-Clause
"""Small messages in one direction, a window posted at a time, messages/s.

ucp posts a window with one send_many and receives it with one recv_many; the
others do what comes nearest: gather, or writes followed by one drain.

python benchmarks/message_rate.py [--quick] [--sizes 8] [--window 64]
"""

import _harness
from _contenders import Case, sizes

if __name__ == "__main__":
    parser = _harness.parser(__doc__.splitlines()[0])
    _harness.add_contender_options(parser, base="perftest")
    parser.add_argument("--sizes", default="8", type=sizes)
    parser.add_argument("--transports", default="shm,tcp")
    parser.add_argument("--window", default=64, type=int)
    options = parser.parse_args()
    cases = [
        Case("rate", size, transport, options.window)
        for transport in options.transports.split(",")
        for size in options.sizes
    ]
    _harness.main("message rate", "messages/s", cases, options)
