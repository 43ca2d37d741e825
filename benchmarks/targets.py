# SPDX-License-Identifier: BSD-3-Clause
"""Every row of the project's performance targets in one go: reached or missed.

python benchmarks/targets.py [--quick] [--rounds 7] [--only latency,rate]
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import _harness
import idle
import memory
import per_call
import worker
from _contenders import CONTENDERS, Case
from _harness import Plan, Results

MIB = 1 << 20
UCXX = ("ucxx-blocking", "ucxx-polling", "ucxx-thread-future")


@dataclass(frozen=True)
class Row:
    """One target: `value` must stay below (or above) both numbers."""

    what: str
    value: float | None
    must: float
    stretch: float
    below: bool = True
    unit: str = "x"

    def cells(self) -> list[str]:
        sign = "<=" if self.below else ">="
        limits = [f"{sign} {limit:g}{self.unit}" for limit in (self.must, self.stretch)]
        if self.value is None:
            return [self.what, "no value", *limits, "missed"]
        holds = operator.le if self.below else operator.ge
        verdict = "reached" if holds(self.value, self.must) else "MISSED"
        if holds(self.value, self.stretch):
            verdict = "stretch"
        value = f"{_harness.number(self.value)}{self.unit}"
        return [self.what, value, *limits, verdict]


def measure(
    plan: Plan, unit: str, base: str, names: Iterable[str], *cases: Case
) -> Results:
    """Run `cases`; prints the table, so that the values stay visible."""
    found = [CONTENDERS[n] for n in (base, *names) if CONTENDERS[n].missing() is None]
    results = _harness.run(cases[0].test, unit, base, cases, found, plan)
    print(f"\n{_harness.table(results)}\n", flush=True)
    for line in _harness.errors(results):
        print(f"failed: {line}", file=sys.stderr)
    return results


def inverse(value: float | None) -> float | None:
    return 1 / value if value else None


def latency(plan: Plan) -> Iterable[Row]:
    """Against UCX itself."""
    limits = {8: (2, 1.5), 65536: (1.15, 1), MIB: (1.05, 1), 16 * MIB: (1.03, 1)}
    cases = [Case("latency", size) for size in limits]
    found = measure(plan, "us", "perftest", ["ucp"], *cases)
    for case in cases:
        ratio = found.ratio(str(case), "ucp")
        yield Row(f"latency {case} / perftest", ratio, *limits[case.size])
    case = Case("latency", 8, "tcp")
    found = measure(plan, "us", "perftest", ["ucp"], case)
    yield Row(f"latency {case} / perftest", found.ratio(str(case), "ucp"), 1.15, 1.05)


def peers(plan: Plan) -> Iterable[Row]:
    """Against ucxx in the mode that is best for the case."""
    limits = {8: (40, 80), MIB: (5, 8)}
    cases = [Case("latency", size) for size in limits]
    found = measure(plan, "us", "ucp", UCXX, *cases)
    for case in cases:
        ratios = [found.ratio(str(case), name) for name in UCXX]
        best = min((ratio for ratio in ratios if ratio), default=None)
        yield Row(f"latency {case}, ucxx / ucp", best, *limits[case.size], below=False)


def sleeping(plan: Plan) -> Iterable[Row]:
    """Without spinning: against what an event loop and UCX need when they sleep."""
    case = Case("latency", 8, "tcp")
    name, text = "ucp-nospin-uvloop", str(case)
    others = [name, "perftest-sleep"]
    found = measure(plan, "us", "protocol-uvloop", others, case)
    ratio = found.ratio(text, name)
    yield Row(f"latency {case}, no spin / uvloop protocol", ratio, 1.1, 1.0)
    ours, floor = found.median(text, name), found.median(text, "perftest-sleep")
    ratio = ours / floor if ours and floor else None
    yield Row(f"latency {case}, no spin / perftest -E sleep, medians", ratio, 1.6, 1.3)


def rate(plan: Plan) -> Iterable[Row]:
    for transport in ("shm", "tcp"):
        case = Case("rate", 8, transport, 64)
        found = measure(plan, "messages/s", "perftest", ["ucp"], case)
        ratio = found.ratio(str(case), "ucp")
        what = f"rate {case}, window 64 / perftest"
        yield Row(what, ratio, 0.25, 0.5, below=False)


def sockets(plan: Plan) -> Iterable[Row]:
    """Bulk over tcp, ratios paired within a round."""
    cases = [Case("latency", size, "tcp") for size in (MIB, 16 * MIB)]
    found = measure(plan, "us", "sockets", ["ucp"], *cases)
    for case in cases:
        ratio = found.paired(str(case), "ucp")
        yield Row(f"latency {case} / blocking sockets, paired", ratio, 1.5, 1.0)


def bandwidth(plan: Plan) -> Iterable[Row]:
    must = {65536: 0.6, MIB: 0.9, 16 * MIB: 0.9}
    cases = [Case("bandwidth", size, "shm", 16) for size in must]
    found = measure(plan, "MB/s", "perftest", ["ucp"], *cases)
    for case in cases:
        ratio = found.ratio(str(case), "ucp")
        what = f"bandwidth {case}, window 16 / perftest"
        yield Row(what, ratio, must[case.size], 1.0, below=False)


def connect(plan: Plan) -> Iterable[Row]:
    limits = {True: (2, 5), False: (10, 30)}
    cases = [Case("connect", pinned=pinned) for pinned in limits]
    found = measure(plan, "connections/s", "ucp", [*UCXX, "ucx"], *cases)
    for case in cases:
        ratios = [inverse(found.ratio(str(case), name)) for name in UCXX]
        best = min((ratio for ratio in ratios if ratio), default=None)
        what = f"connect + close {'pinned' if case.pinned else 'unpinned'}, ucp / ucxx"
        yield Row(what, best, *limits[case.pinned], below=False)


def idling(plan: Plan) -> Iterable[Row]:
    seconds = 5 if plan.seconds < 0.5 else 60
    found = idle.measure("ucp", "", 10, seconds, 1)
    for role in ("server", "client"):
        used = found.best(f"{role} cpu %", "ucp")
        yield Row(f"idle {role}, cpu over {seconds} s", used, 0.5, 0.5, unit=" %")
        waking = found.best(f"{role} wake-ups per s", "ucp")
        yield Row(f"idle {role}, wake-ups", waking, 0.1, 0.1, unit="/s")


def calls(plan: Plan) -> Iterable[Row]:
    found = per_call.measure(plan.rounds, 500)
    value = found.best("asyncio", "await of the finished send")
    yield Row("await of a finished operation", value, 45, 25, unit=" ns")


def memory_rows(plan: Plan) -> Iterable[Row]:
    """The library's part: what UCX alone needs is taken off."""
    found = memory.measure("ucp,ucx", "ucx", 50, 250, 1)
    print(f"\n{_harness.table(found)}\n")
    for role in ("server", "client"):
        ours, floor = found.best(role, "ucp"), found.best(role, "ucx")
        part = None if ours is None or floor is None else ours - floor
        yield Row(f"idle endpoint, {role}, above UCX", part, 1024, 1024, unit=" B")


def worker_rows(plan: Plan) -> Iterable[Row]:
    """Of UCX's 6.3 MB of shared memory most are never used."""
    found = worker.measure(plan.rounds)
    yield from taken_rows("worker", found, (2200, 1700), (600, 600), (500, 300))
    yield Row("worker, CPU to make it", found.ms, 25, 15, unit=" ms")


def endpoint_rows(plan: Plan) -> Iterable[Row]:
    """One end of a connection, with UCX's part."""
    found = worker.measure_endpoint(20 * plan.rounds)
    yield from taken_rows("endpoint", found, (0, 0), (0, 0), (16, 8))
    yield Row("endpoint, CPU to make it", found.ms, 0.5, 0.25, unit=" ms")


def rank_rows(plan: Plan) -> Iterable[Row]:
    """One of four ranks, after short operations: its worker, endpoints and inbox."""
    found = worker.measure_rank(4)
    yield from taken_rows("rank", found, (2500, 1900), (600, 600), (4000, 2500))
    yield Row("rank, CPU to make it", found.ms, 80, 40, unit=" ms")


def taken_rows(
    what: str,
    found: worker.Taken,
    shared: tuple[float, float],
    dev_shm: tuple[float, float],
    private: tuple[float, float],
) -> Iterable[Row]:
    yield Row(
        f"{what}, shared memory", found.dev_shm + found.sysv, *shared, unit=" KiB"
    )
    yield Row(f"{what}, of it in /dev/shm", found.dev_shm, *dev_shm, unit=" KiB")
    yield Row(f"{what}, own memory", found.private, *private, unit=" KiB")


GROUPS: dict[str, Callable[[Plan], Iterable[Row]]] = {
    "latency": latency,
    "peers": peers,
    "sleeping": sleeping,
    "rate": rate,
    "sockets": sockets,
    "bandwidth": bandwidth,
    "connect": connect,
    "idle": idling,
    "per_call": calls,
    "memory": memory_rows,
    "worker": worker_rows,
    "endpoint": endpoint_rows,
    "rank": rank_rows,
}


if __name__ == "__main__":
    parser = _harness.parser(__doc__.splitlines()[0])
    parser.add_argument("--only", help=f"of {','.join(GROUPS)}", default=None)
    options = parser.parse_args()
    if reason := CONTENDERS["ucp"].missing():
        sys.exit(reason)
    plan = _harness.plan_of(options)
    chosen = options.only.split(",") if options.only else list(GROUPS)
    rows = [row for name in chosen for row in GROUPS[name](plan)]
    head = ["target", "measured", "must", "stretch", ""]
    print(_harness.markdown([head, *(row.cells() for row in rows)]))
    sys.exit(any("missed" in row.cells()[-1].lower() for row in rows))
