# SPDX-License-Identifier: BSD-3-Clause
"""Ping-pong of more pairs than the machine has cores for, with spinning and without.

All pairs run at the same time, each process wherever the system puts it. The
table has the half round trip of the slowest pair, `all` that of the mean: none
may be slower for the spinning of the others.

python benchmarks/crowd.py [--quick] [--pairs 4] [--sizes 8] [--messages 20000]
"""

from __future__ import annotations

import random
import statistics
from concurrent.futures import ThreadPoolExecutor

import _harness
from _contenders import CONTENDERS, Case, Contender, probe, sizes


def run_pairs(contender: Contender, case: Case, pairs: int, count: int) -> list[float]:
    """Half round trips in seconds, of pairs that run at the same time."""
    with ThreadPoolExecutor(pairs) as pool:
        runs = [pool.submit(contender.run, case, count) for _ in range(pairs)]
        return [run.result() for run in runs]


def measure(
    cases: list[Case], names: list[str], pairs: int, count: int, rounds: int
) -> _harness.Results:
    results = _harness.Results("crowd", "us", "ucp-nospin", names)
    for number in range(rounds):
        for case in cases:
            state = probe()
            for name in random.sample(names, len(names)):
                found = run_pairs(CONTENDERS[name], case, pairs, count)
                for what, value in (
                    ("slowest", max(found)),
                    ("all", statistics.mean(found)),
                ):
                    results.samples.append(
                        _harness.Sample(
                            f"{case} {what} of {pairs}", name, number, state, value
                        )
                    )
    return results


if __name__ == "__main__":
    parser = _harness.parser(__doc__.splitlines()[0])
    _harness.add_contender_options(parser, base="ucp-nospin")
    parser.add_argument("--sizes", default="8", type=sizes)
    parser.add_argument("--transports", default="shm,tcp")
    parser.add_argument("--pairs", default=4, type=int)
    parser.add_argument("--messages", default=20000, type=int)
    parser.set_defaults(only="ucp-nospin,ucp", rounds=5)
    options = parser.parse_args()
    cases = [
        Case("latency", size, transport, pinned=False)
        for transport in options.transports.split(",")
        for size in options.sizes
    ]
    rounds = 1 if options.quick else options.rounds
    _harness.finish(
        measure(
            cases, options.only.split(","), options.pairs, options.messages, rounds
        ),
        options,
    )
