# SPDX-License-Identifier: BSD-3-Clause
"""Private memory of an idle endpoint with a receive posted, bytes.

The slope between two numbers of endpoints, so that what a process needs once
does not count. ucx is UCX alone: the rest is the library's and Python's part.

python benchmarks/memory.py [--endpoints 50,250] [--only ucp,ucx]
"""

import _harness
from _contenders import Contender, Python
from _idle import idle_pair, private_bytes

DEFAULT = "ucp,ucx,ucxx-blocking,streams"


def held(contender: Contender, endpoints: int) -> list[int]:
    """Private bytes of server and client."""
    assert isinstance(contender, Python)
    with idle_pair(contender, endpoints) as pair:
        return [private_bytes(child.pid) for child in pair]


def measure(names: str, base: str, few: int, many: int, rounds: int):
    contenders = [c for c in _harness.chosen(names, base) if isinstance(c, Python)]
    names_found = [c.name for c in contenders]
    results = _harness.Results("memory", "bytes an endpoint", base, names_found)
    for number in range(rounds):
        for contender in contenders:
            sample = _harness.Sample("server", contender.name, number, 0)
            results.samples.append(sample)
            try:
                low, high = held(contender, few), held(contender, many)
            except _harness.FAILURES as error:
                sample.error = str(error)
                continue
            server, client = (
                (b - a) / (many - few) for a, b in zip(low, high, strict=True)
            )
            sample.value = server
            results.samples.append(
                _harness.Sample("client", contender.name, number, 0, client)
            )
    return results


if __name__ == "__main__":
    parser = _harness.parser(__doc__.splitlines()[0])
    _harness.add_contender_options(parser, base="ucx")
    parser.add_argument("--endpoints", default="50,250")
    parser.set_defaults(only=DEFAULT)
    options = parser.parse_args()
    few, many = (int(count) for count in options.endpoints.split(","))
    rounds = options.rounds or (1 if options.quick else 3)
    results = measure(options.only, options.base, few, many, rounds)
    _harness.finish(results, options)
