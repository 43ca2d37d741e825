# SPDX-License-Identifier: BSD-3-Clause
"""Compare two JSON files of one benchmark: python compare.py OLD NEW"""

import sys

import _harness

if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    old, new = (_harness.Results.read(path) for path in sys.argv[1:])
    print(_harness.compare(old, new))
