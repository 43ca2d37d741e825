# SPDX-License-Identifier: BSD-3-Clause
"""``python -P tests/poison --seed 7``: a run, whose last line is its Report.

With "serve" first: its second process; with "growth": what cancelled operations cost;
with "timeouts": what time limits that are too short leave behind.
"""

import json
import os
import sys


def main():
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    from poison import growth, pair, timeouts

    if sys.argv[1:2] == ["growth"]:
        return growth.main(sys.argv[2:])
    if sys.argv[1:2] == ["timeouts"]:
        return timeouts.main(sys.argv[2:])
    if sys.argv[1:2] == ["serve"]:
        pair.serve(*json.loads(sys.argv[2]))
        return 0
    report = pair.run(sys.argv[1:])
    print(json.dumps(report.as_json()))
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
