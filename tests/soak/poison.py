# SPDX-License-Identifier: BSD-3-Clause
"""Use buffers for something else as soon as their awaits have ended, very often.

    python -P tests/soak/poison.py --seed 7 --operations 100000 [--tls tcp] [--kill]

``tests/poison`` says how. Printed are the operations of each kind, how many of them
were cancelled in which state, and what was wrong. The seed decides what is done, not
when. With ``--growth`` instead: the memory that 1000 cancelled sends and receives of
64 MiB cost. With ``--timeouts frames`` or ``--timeouts words``: a minute of time limits
that are too short.
"""

import argparse
import os
import sys

# Failures of a run that are printed whole.
_PRINTED = 20


def main():
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    from poison import growth, pair, timeouts

    parser = argparse.ArgumentParser(prog="poison", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", type=int, default=1, help="of one seed after another")
    parser.add_argument("--growth", action="store_true")
    parser.add_argument("--timeouts", help="frames or words")
    options, words = parser.parse_known_args()
    if options.growth:
        return growth.main([*words, "--seed", str(options.seed)])
    if options.timeouts:
        words = [options.timeouts, "--seconds", "60", *words]
        return timeouts.main([*words, "--seed", str(options.seed)])
    if "--limit" not in words:
        words += ["--limit", "3600"]
    status = 0
    for seed in range(options.seed, options.seed + options.runs):
        status |= _run(pair, ["--seed", str(seed), *words])
    return status


def _run(pair, words):
    """Run once, print the counts; 1 if something was wrong."""
    report = pair.run(words)
    print(f"poison {' '.join(words)}\n{report.table()}", flush=True)
    for (kind, fate), count in sorted(report.ends.items()):
        print(f"cancelled sends of {kind}: {count} {fate}")
    for text in report.failures[:_PRINTED]:
        print(text, file=sys.stderr)
    if len(report.failures) > _PRINTED:
        print(f"and {len(report.failures) - _PRINTED} more", file=sys.stderr)
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
