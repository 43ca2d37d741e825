# SPDX-License-Identifier: BSD-3-Clause
"""ucp and asyncio's sockets between two hosts, over networks with a delay.

The hosts are network namespaces, and between them is the relay of the tests, whose
delay, rate and losses are set. Both ways are measured in the same two processes,
one after the other in random order. Needs root.

python benchmarks/network.py [--quick] [--delays 0,1,10,50] [--loss 0.001]
                             [--rate 1000] [--only TEXT]
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import _harness
from _harness import Results, Sample
from _process import Child, free_port

sys.path.append(str(Path(__file__).parent.parent / "tests"))
import relay

PROGRAM = str(Path(__file__).with_name("_network.py"))
WAYS = ("ucp", "sockets")
MIB = 1 << 20
SIZES = {"64 KiB": 1 << 16, "1 MiB": MIB, "16 MiB": 16 * MIB}
BESIDE = (("12 KiB", 12 << 10, 64), ("1 MiB", MIB, 4), ("64 MiB", 64 * MIB, 1))


@dataclass(frozen=True)
class Network:
    """Round trip in ms, part of the packets that are lost."""

    trip: float
    loss: float = 0.0

    def __str__(self) -> str:
        return f"{self.trip:g} ms" + (f", {self.loss:.1%} lost" if self.loss else "")


@dataclass(frozen=True)
class Test:
    """`moved`: bytes of one of `n`, from which follows how many there are."""

    name: str
    unit: str
    order: dict[str, Any]
    moved: int = 0


def tests() -> Iterator[Test]:
    yield Test("connect", "ms", {"test": "connect", "n": 5})
    for name, size in {"8 B": 8, "64 KiB": 1 << 16, "1 MiB": MIB}.items():
        order = {"test": "ping", "size": size, "n": 10}
        yield Test(f"round trip of {name}", "ms", order)
    for name, size in SIZES.items():
        order = {"test": "bulk", "size": size, "window": 1}
        yield Test(f"{name}, one at a time", "MB/s", order, size)
    order = {"test": "bulk", "size": MIB, "window": 16}
    yield Test("1 MiB, 16 in flight", "MB/s", order, 16 * MIB)
    order = {"test": "many", "size": 8, "n": 100_000}
    yield Test("8 B, many at a time", "thousands/s", order)
    for name, size in list(SIZES.items())[:2]:
        order = {"test": "stream", "size": size}
        yield Test(f"stream, writes of {name}", "MB/s", order, size)
    order = {"test": "frames", "size": MIB // 4}
    yield Test("frames, 4 of 256 KiB", "MB/s", order, MIB)
    for what in ("put", "get"):
        order = {"test": "memory", "size": MIB, "what": what}
        yield Test(f"{what} of 1 MiB", "MB/s", order, 4 * MIB)
    order = {"test": "memory", "size": 8, "what": "fetch_add", "n": 10}
    yield Test("fetch_add", "ms", order)
    order = {"test": "exchange", "size": MIB, "n": 10}
    yield Test("allgather of 1 MiB", "ms", order)
    for name, size, window in BESIDE:
        order = {"test": "beside", "size": size, "window": window}
        yield Test(f"8 B beside {name}, {window} in flight", "ms", order)
    order = {"test": "fairness", "sizes": [100_000, MIB, 16 * MIB]}
    yield Test("three senders, most to least", "ms", order)


def measure(
    client: Child, test: Test, way: str, options: Any, where: dict[str, Any]
) -> float:
    """One value; `options.mib` bytes are moved where that is a choice."""
    order = {**where, **test.order, "way": way, "seconds": options.seconds}
    if "n" not in order and test.moved:
        order["n"] = max(2, options.mib * MIB // test.moved)
    client.deadline += 60
    client.send(json.dumps(order))
    return float(client.message()["value"])


def run(network: Network, results: dict[str, Results], options: Any) -> None:
    """Every test on one network, `options.rounds` times."""
    settings = {
        "delay": network.trip / 2e3,
        "rate": options.rate * 1e6,
        "loss": network.loss,
    }
    order = random.Random(options.seed)
    with relay.joined_hosts(**settings) as link:
        program = [sys.executable, "-P", PROGRAM]
        there, here = [[*relay.as_host(host), *program] for host in link.namespaces]
        env = {"PYTHONPATH": ""}
        with Child([*there, "server", relay.HOSTS[0]], env, False, 0) as server:
            ports = server.message()["port"]
            command = [*here, "client", relay.HOSTS[0], json.dumps(ports)]
            with Child(command, env, False, 1) as client:
                where = {"comm_port": free_port()}
                for number in range(options.rounds):
                    for test in chosen(options):
                        for way in order.sample(WAYS, 2):
                            sample = Sample(f"{network}", way, number, 0.0)
                            sample.value = measure(client, test, way, options, where)
                            results[test.name].samples.append(sample)


def chosen(options: Any) -> list[Test]:
    return [test for test in tests() if options.only in test.name]


def cell(results: Results, case: str) -> str:
    """Ours beside sockets, best of the rounds, and how much better ours is."""
    ours, theirs = results.best(case, "ucp"), results.best(case, "sockets")
    if not ours or not theirs:
        return ""
    ratio = theirs / ours if _harness.lower_is_better(results.unit) else ours / theirs
    return f"{_harness.number(ours)} / {_harness.number(theirs)} ({ratio:.2f})"


def table(results: dict[str, Results]) -> str:
    cases = next(iter(results.values())).cases()
    rows = [["ucp / sockets (of sockets' speed)", "unit", *cases]]
    for name, found in results.items():
        unit = "ratio" if "most to least" in name else found.unit
        rows.append([name, unit, *(cell(found, case) for case in cases)])
    return _harness.markdown(rows)


def main() -> None:
    assert __doc__ is not None
    parser = _harness.parser(__doc__.splitlines()[0])
    add = parser.add_argument
    add("--delays", default="0,1,10,50", help="round trips in ms")
    add("--loss", type=float, default=0.001, help="one more network; 0 for none")
    add("--rate", type=float, default=1000, help="Mbit/s")
    add("--mib", type=int, help="MiB that a test moves (64)")
    add("--only", default="", help="tests whose names have this text")
    options = parser.parse_args()
    if reason := relay.missing():
        sys.exit(f"no network between two hosts: {reason}")
    options.rounds = options.rounds or (1 if options.quick else 3)
    options.seconds = options.seconds or (1.0 if options.quick else 2.0)
    options.mib = options.mib or (32 if options.quick else 64)
    networks = [Network(float(trip)) for trip in options.delays.split(",")]
    if options.loss:
        networks.append(Network(1.0, options.loss))
    results = {
        test.name: Results(test.name, test.unit, "sockets", list(WAYS))
        for test in chosen(options)
    }
    for network in networks:
        run(network, results, options)
    print(table(results))
    if options.json:
        text = {name: vars(found) for name, found in results.items()}
        Path(options.json).write_text(json.dumps(text, default=vars, indent=1) + "\n")


if __name__ == "__main__":
    main()
