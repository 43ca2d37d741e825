# SPDX-License-Identifier: BSD-3-Clause
"""Compare the ucp of this Python with that of another commit, or two JSON files.

python benchmarks/compare.py --base COMMIT [--quick] [--only latency,ranks]
python benchmarks/compare.py OLD NEW

With --base both are measured in one run: `latency`, `bandwidth`, `ranks` and `idioms`,
each case of both in turns, in random order, with new processes in each round or every
few rounds. The commit is built in build/compare/, and kept there. The tables are of
times, also where a rate is measured: above 1 the new one is slower.

    best/best  best of the new over best of the base
    paired     median of the ratios within the rounds
    spread     of these: the difference of their quartiles
    state      of the machine by UCX's own ping-pong before each round: near, far, or
               busy, if other programs take the cores

A case is slower if both ratios exceed 1 by more than the spread, and by 3 %, in four
rounds or more. The status tells nothing of times: it is 1 if a measurement has failed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import _commits
import _contenders
import _harness
import _sides
import idioms
import ranks
from _commits import ROOT
from _harness import Plan, Results

NEW, BASE = "new", "base"
ENOUGH = 4  # rounds: the spread of fewer says nothing
LEAST = 0.03  # what is not worth a line, however narrow the spread
Pythons = dict[str, str]


# --- what is measured ---------------------------------------------------------


def pairs(
    benchmark: str,
    unit: str,
    cases: list[_contenders.Case],
    pythons: Pythons,
    plan: Plan,
) -> Results:
    """Two processes of each, new ones for each measurement."""
    contenders = [
        _contenders.Python(name, 1e-6, "ucp", ("ucp",), ucx=True, python=python)
        for name, python in pythons.items()
    ]
    return _harness.run(benchmark, unit, BASE, cases, contenders, plan)


def latency(pythons: Pythons, is_quick: bool, rounds: int | None) -> Results:
    tcp, sizes = ("8", "8,64K,1M") if is_quick else ("8,4K,64K,1M,16M",) * 2
    cases = [
        _contenders.Case("latency", size, transport)
        for transport, text in (("shm", sizes), ("tcp", tcp))
        for size in _contenders.sizes(text)
    ]
    plan = Plan(rounds or (5 if is_quick else 9), 0.1 if is_quick else 0.3)
    return pairs("latency", "us", cases, pythons, plan)


def bandwidth(pythons: Pythons, is_quick: bool, rounds: int | None) -> Results:
    tcp, sizes = ("1M", "64K,16M") if is_quick else ("64K,1M,16M",) * 2
    cases = [
        _contenders.Case("bandwidth", size, transport, 16)
        for transport, text in (("shm", sizes), ("tcp", tcp))
        for size in _contenders.sizes(text)
    ]
    plan = Plan(rounds or (5 if is_quick else 9), 0.1 if is_quick else 0.3)
    return pairs("bandwidth", "MB/s", cases, pythons, plan)


QUICK_RANKS = {
    2: ("send 8,64K,1M", "isend 8", "object 100", "allreduce 8"),
    4: ("send 8", "barrier 0", "alltoall 64K"),
}


def of_ranks(is_quick: bool) -> Iterator[ranks.Case]:
    kinds = tuple(f"{kind} {sizes}" for kind, sizes in ranks.KINDS.items())
    for count, what in (QUICK_RANKS if is_quick else {2: kinds, 4: kinds}).items():
        for kind, _, text in (each.rpartition(" ") for each in what):
            for size in _contenders.sizes(text):
                yield ranks.Case(count, kind, size)


def between_ranks(pythons: Pythons, is_quick: bool, rounds: int | None) -> Results:
    """Ranks that are started as by users, new ones every few rounds."""
    contenders = [ranks.by_ucp_run(name, python) for name, python in pythons.items()]
    plan = Plan(rounds or (6 if is_quick else 9), 0.04, probe=True)
    results = Results("ranks", "us", BASE, list(pythons))
    for count, cases in ranks.by_number([*of_ranks(is_quick)]):
        starts = ranks.starts(contenders, count)
        _sides.fresh_rounds(results, starts, cases, plan, each=2 if is_quick else 3)
    return results


def of_people(pythons: Pythons, is_quick: bool, rounds: int | None) -> Results:
    plan = Plan(rounds or (5 if is_quick else 9), 0.05 if is_quick else 0.2, probe=True)
    cases = idioms.cases(list(idioms.KINDS))
    return idioms.measure(pythons, cases, plan, "asyncio", BASE)


PARTS: dict[str, Callable[[Pythons, bool, int | None], Results]] = {
    "latency": latency,
    "bandwidth": bandwidth,
    "ranks": between_ranks,
    "idioms": of_people,
}


# --- what is said of it -------------------------------------------------------


@dataclass(frozen=True)
class Verdict:
    """How the times of a case differ; above 1 the new one is slower."""

    case: str
    best: float  # of the new over that of the base
    paired: float
    spread: float
    rounds: int
    state: str

    def differs(self, sign: int) -> bool:
        """Is the new one slower (1), or faster (-1), by more than the spread?"""
        if self.rounds < ENOUGH:
            return False
        least = max(self.spread, LEAST)
        if sign < 0:
            return max(self.best, self.paired) < 1 - least
        return min(self.best, self.paired) > 1 + least

    def line(self, benchmark: str) -> str:
        return (
            f"{benchmark}: {self.case}: best x{self.best:.2f}, paired "
            f"x{self.paired:.2f}, spread {self.spread:.0%}, {self.state}"
        )


def states(results: Results, case: str) -> list[str]:
    """Of the machine before each round of a case, as far as they are known."""
    rounds = {s.round: s for s in results.samples if s.case == case}.values()
    return [sample.state for sample in rounds if sample.probe_us]


def state(results: Results, case: str) -> str:
    known = states(results, case)
    if not known:
        return "state unknown"
    parts = [(known.count(name), name) for name in ("near", "far", "busy")]
    return ", ".join(f"{count} {name}" for count, name in parts if count)


def verdicts(results: Results) -> Iterator[Verdict]:
    """Of the cases that both have done."""
    for case in results.cases():
        new, base = results.by_round(case, NEW), results.by_round(case, BASE)
        ratios = [new[number] / base[number] for number in new if number in base]
        best = results.ratio(case, NEW, BASE)
        if best is None or not ratios:
            continue
        if not _harness.lower_is_better(results.unit):
            best, ratios = 1 / best, [1 / ratio for ratio in ratios]
        low, _, high = quartiles(ratios)
        middle, spread = statistics.median(ratios), high - low
        told = state(results, case)
        yield Verdict(case, best, middle, spread, len(ratios), told)


def quartiles(values: list[float]) -> list[float]:
    if len(values) == 1:
        return values * 3
    return statistics.quantiles(values, n=4, method="inclusive")


def table(results: Results, found: Iterable[Verdict]) -> str:
    head = [results.benchmark, f"base, {results.unit}", f"new, {results.unit}"]
    rows = [[*head, "best/best", "paired", "spread", "state"]]
    for each in found:
        best = (results.best(each.case, name) or 0 for name in (BASE, NEW))
        values = (_harness.scaled(value, results.unit) for value in best)
        rows.append(
            [
                each.case,
                *map(_harness.number, values),
                f"x{each.best:.2f}",
                f"x{each.paired:.2f}",
                f"{each.spread:.0%}",
                each.state,
            ]
        )
    return _harness.markdown(rows)


@dataclass
class Outcome:
    """What is said at the end."""

    faster: list[str] = field(default_factory=list)
    slower: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    states: list[str] = field(default_factory=list)

    def add(self, results: Results, found: list[Verdict]) -> None:
        name = results.benchmark
        self.faster += [each.line(name) for each in found if each.differs(-1)]
        self.slower += [each.line(name) for each in found if each.differs(1)]
        self.failures += [f"{name}: {error}" for error in _harness.errors(results)]
        for case in results.cases():
            self.states += states(results, case)

    def summary(self) -> str:
        """What differs, a line each."""
        text = []
        if busy := self.states.count("busy"):
            text.append(
                f"Other programs took the cores before {busy} of {len(self.states)} "
                "rounds of a case: run it again on a machine that does nothing else."
            )
        for word, lines in (("faster", self.faster), ("slower", self.slower)):
            text.append(f"{word} by more than the spread: {len(lines) or 'nothing'}")
            text += [f"  {line}" for line in lines]
        return "\n".join(text)


# --- command line -------------------------------------------------------------


def compare_files(old: str, new: str) -> int:
    print(_harness.compare(Results.read(old), Results.read(new)))
    return 0


def compare_commit(options: argparse.Namespace) -> int:
    begun = time.monotonic()
    commit = _commits.resolve(options.base)
    folder = _commits.folder_of(commit)
    pythons = {NEW: sys.executable, BASE: _commits.python_of(commit)}
    _commits.check(pythons[NEW], Path(sys.prefix))
    _commits.check(pythons[BASE], folder)
    print(f"base: {_commits.describe(commit)}", flush=True)
    outcome = Outcome()
    for name in options.only:
        results = PARTS[name](pythons, options.quick, options.rounds)
        results.write(str(folder / f"{name}.json"))
        found = [*verdicts(results)]
        print(f"\n{table(results, found)}", flush=True)
        outcome.add(results, found)
    print(f"\n{outcome.summary()}\n\nsamples: {folder.relative_to(ROOT)}/*.json")
    print(f"{time.monotonic() - begun:.0f} s")
    for failure in outcome.failures:
        print(f"failed: {failure}", file=sys.stderr)
    return 1 if outcome.failures else 0


def names(text: str) -> list[str]:
    found = text.split(",")
    if unknown := [name for name in found if name not in PARTS]:
        raise argparse.ArgumentTypeError(
            f"unknown: {', '.join(unknown)}; there are {', '.join(PARTS)}"
        )
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("files", nargs="*", metavar="OLD NEW", help="two JSON files of one program")
    add("--base", metavar="COMMIT", help="what is compared with")
    add("--quick", action="store_true", help="fewer cases and rounds: three minutes")
    add("--rounds", type=int, help="of each case (9)")
    add("--only", type=names, default=list(PARTS), help="of " + ", ".join(PARTS))
    options = parser.parse_args()
    if options.base is None:
        if len(options.files) != 2:
            parser.error("give --base COMMIT, or two files")
        return compare_files(*options.files)
    if options.files:
        parser.error("give --base COMMIT or two files, not both")
    try:
        return compare_commit(options)
    except _commits.BuildError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
