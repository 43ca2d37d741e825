# SPDX-License-Identifier: BSD-3-Clause
"""CPU time and wake-ups of idle processes with receives posted.

python benchmarks/idle.py [--seconds 60] [--endpoints 10] [--only ucp,streams]
"""

import time

import _harness
from _contenders import Contender, Python
from _idle import cpu_seconds, idle_pair, wake_ups

DEFAULT = "ucp,ucp-uvloop,ucxx-blocking,ucxx-thread-future,streams"


def samples(
    contender: Contender, endpoints: int, seconds: float, number: int
) -> list[_harness.Sample]:
    """CPU in percent of a core and wake-ups a second, of both processes."""
    assert isinstance(contender, Python)
    found = []
    with idle_pair(contender, endpoints) as pair:
        time.sleep(1)  # until the last handshake has gone quiet
        before = [(cpu_seconds(child.pid), wake_ups(child.pid)) for child in pair]
        start = time.monotonic()
        time.sleep(seconds)
        passed = time.monotonic() - start
        after = [(cpu_seconds(child.pid), wake_ups(child.pid)) for child in pair]
    for role, old, new in zip(("server", "client"), before, after, strict=True):
        cpu = 100 * (new[0] - old[0]) / passed
        waking = (new[1] - old[1]) / passed
        for case, value in (("cpu %", cpu), ("wake-ups per s", waking)):
            found.append(
                _harness.Sample(f"{role} {case}", contender.name, number, 0, value)
            )
    return found


def measure(names: str, base: str, endpoints: int, seconds: float, rounds: int):
    contenders = [c for c in _harness.chosen(names, base) if isinstance(c, Python)]
    results = _harness.Results("idle", "as named", base, [c.name for c in contenders])
    for number in range(rounds):
        for contender in contenders:
            try:
                found = samples(contender, endpoints, seconds, number)
            except _harness.FAILURES as error:
                found = [
                    _harness.Sample(
                        "server cpu %", contender.name, number, 0, error=str(error)
                    )
                ]
            results.samples.extend(found)
    return results


if __name__ == "__main__":
    parser = _harness.parser(__doc__.splitlines()[0])
    _harness.add_contender_options(parser, base="")
    parser.add_argument("--endpoints", type=int, default=10)
    parser.set_defaults(only=DEFAULT, rounds=1)
    options = parser.parse_args()
    seconds = options.seconds or (5 if options.quick else 60)
    results = measure(
        options.only, options.base, options.endpoints, seconds, options.rounds
    )
    _harness.finish(results, options)
