# SPDX-License-Identifier: BSD-3-Clause
"""Interleaved rounds of contenders, and what is printed and stored of them.

A round takes the cases one after the other; in each it probes the machine's
state and then runs every contender once, in random order, in fresh processes.
So values of one round and case were measured within seconds of each other:
their ratio is a "paired" one. The first, short run of each contender and case
only finds out how many messages fill `--seconds`, and is dropped.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from _contenders import CONTENDERS, Case, Contender, probe

NEAR_US = 0.2  # the probe is below this in the machine's fast state
BUSY_US = 1.0  # and above this if other programs take the cores


@dataclass
class Sample:
    """One measurement; `error` says why there is no value."""

    case: str
    contender: str
    round: int
    probe_us: float
    value: float | None = None
    error: str | None = None

    @property
    def state(self) -> str:
        if self.probe_us < NEAR_US:
            return "near"
        return "far" if self.probe_us < BUSY_US else "busy"


@dataclass
class Results:
    """All samples of one benchmark; what a JSON file holds."""

    benchmark: str
    unit: str
    base: str
    contenders: list[str]
    samples: list[Sample] = field(default_factory=list)
    machine: dict[str, Any] = field(default_factory=lambda: machine())

    def cases(self) -> list[str]:
        return list(dict.fromkeys(sample.case for sample in self.samples))

    def by_round(self, case: str, contender: str) -> dict[int, float]:
        return {
            s.round: s.value
            for s in self.samples
            if s.case == case and s.contender == contender and s.value is not None
        }

    def best(self, case: str, contender: str) -> float | None:
        values = self.by_round(case, contender).values()
        if not values:
            return None
        return min(values) if lower_is_better(self.unit) else max(values)

    def median(self, case: str, contender: str) -> float | None:
        values = self.by_round(case, contender).values()
        return statistics.median(values) if values else None

    def ratio(self, case: str, contender: str, base: str | None = None) -> float | None:
        """Best over the base's best."""
        ours = self.best(case, contender)
        theirs = self.best(case, base or self.base)
        return ours / theirs if ours and theirs else None

    def paired(
        self, case: str, contender: str, base: str | None = None
    ) -> float | None:
        """Median over the rounds of the ratio within the round."""
        ours = self.by_round(case, contender)
        theirs = self.by_round(case, base or self.base)
        ratios = [ours[i] / theirs[i] for i in ours if theirs.get(i)]
        return statistics.median(ratios) if ratios else None

    def write(self, path: str) -> None:
        Path(path).write_text(json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def read(cls, path: str) -> Results:
        data = json.loads(Path(path).read_text())
        data["samples"] = [Sample(**sample) for sample in data["samples"]]
        return cls(**data)


def lower_is_better(unit: str) -> bool:
    return not unit.endswith("/s")


def machine() -> dict[str, Any]:
    """Where and with what it was measured."""
    versions = {}
    ours = ("umx", "libucx-cu12", "libucx-cu13")
    theirs = ("ucxx-cu12", "uvloop", "numpy", "mpi4py", "distributed", "pyarrow")
    for name in (*ours, *theirs):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {
        "cpus": len(os.sched_getaffinity(0)),
        "arch": platform.machine(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "versions": versions,
        "time": time.strftime("%Y-%m-%dT%H:%M:%S"),
    }


# --- running ------------------------------------------------------------------


@dataclass
class Plan:
    """How much to run."""

    rounds: int = 5
    seconds: float = 0.5
    seed: int | None = None
    quiet: bool = False
    probe: bool = False  # of processes that stay; the others are always probed for


def per_message(value: float, case: Case) -> float:
    """Seconds that one message took, from the case's unit."""
    if case.test == "latency":
        return 2e-6 * value
    return case.size / value if case.test == "bandwidth" else 1 / value


def calibrate(contender: Contender, case: Case, seconds: float) -> int:
    """How many messages fill `seconds`, by a run of a tenth of that."""
    guess = max(contender.guess, case.size / 2e9)
    if case.test == "connect":
        guess = 10e-3
    few = max(int(seconds / 10 / guess), 2 * case.window)
    value = contender.run(case, few)
    return max(int(seconds / per_message(value, case)), 2 * case.window)


def adjusted(count: int, value: float, case: Case, seconds: float) -> int:
    """How many messages the next sample has: beside other work one takes far longer."""
    wanted = int(seconds / per_message(value, case))
    return max(count // 4, min(4 * count, wanted), 2 * case.window)


FAILURES = (RuntimeError, OSError, ValueError, LookupError)


def state_of_machine() -> float:
    """What the probe says, microseconds; 0 if it cannot."""
    try:
        return probe()
    except FAILURES:
        return 0.0


def run_round(
    case: Case,
    contenders: Sequence[Contender],
    counts: dict[tuple[Case, str], int],
    number: int,
    seconds: float,
) -> Iterable[Sample]:
    """Take one sample of each contender, in the order given."""
    state = state_of_machine()
    for contender in contenders:
        sample = Sample(str(case), contender.name, number, state)
        key = case, contender.name
        try:
            sample.value = contender.run(case, counts[key])
            counts[key] = adjusted(counts[key], sample.value, case, seconds)
        except KeyError:
            sample.error = "failed in its first, short run"
        except FAILURES as error:
            sample.error = str(error)
        yield sample


def calibrate_all(
    case: Case, contenders: Sequence[Contender], seconds: float
) -> dict[tuple[Case, str], int]:
    counts = {}
    for contender in contenders:
        try:
            counts[case, contender.name] = calibrate(contender, case, seconds)
        except FAILURES as error:
            print(f"{contender.name}, {case}: {error}", file=sys.stderr)
    return counts


def run(
    benchmark: str,
    unit: str,
    base: str,
    cases: Sequence[Case],
    contenders: Sequence[Contender],
    plan: Plan,
) -> Results:
    """Measure every case with every contender, `plan.rounds` times."""
    results = Results(benchmark, unit, base, [c.name for c in contenders])
    order = random.Random(plan.seed)
    counts: dict[tuple[Case, str], int] = {}
    for number in range(plan.rounds):
        for case in cases:
            progress(plan, f"{benchmark}: round {number + 1}/{plan.rounds}, {case}")
            able = [c for c in contenders if c.supports(case)]
            if number == 0:
                counts |= calibrate_all(case, able, plan.seconds)
            shuffled = order.sample(able, len(able))
            samples = run_round(case, shuffled, counts, number, plan.seconds)
            results.samples.extend(samples)
    progress(plan, "")
    return results


def progress(plan: Plan, text: str) -> None:
    if not plan.quiet and sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


# --- output -------------------------------------------------------------------


def number(value: float) -> str:
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"


def scaled(value: float, unit: str) -> float:
    """bytes/s are printed as MB/s."""
    return value / 1e6 if unit == "MB/s" else value


def cell(results: Results, case: str, contender: str) -> str:
    best, middle = results.best(case, contender), results.median(case, contender)
    if best is None or middle is None:
        tried = any(
            s.case == case and s.contender == contender for s in results.samples
        )
        return "failed" if tried else ""
    text = "/".join(number(scaled(v, results.unit)) for v in (best, middle))
    ratio, paired = results.ratio(case, contender), results.paired(case, contender)
    if contender != results.base and ratio and paired:
        text += f" (x{number(ratio)}, x{number(paired)})"
    return text


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """A table of figures; the first row is its head, the first column are names."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        name, *figures = zip(row, widths, strict=True)
        cells = [name[0].ljust(name[1]), *(text.rjust(w) for text, w in figures)]
        lines.append("| " + " | ".join(cells) + " |")
    ends = ["-" * (widths[0] + 2), *("-" * (w + 1) + ":" for w in widths[1:])]
    lines.insert(1, "|" + "|".join(ends) + "|")
    return "\n".join(lines)


def table(results: Results) -> str:
    """Contenders as rows, cases as columns, the base first."""
    cases = results.cases()
    names = results.contenders
    rows = [[results.benchmark, *cases]]
    rows += [[name, *(cell(results, case, name) for case in cases)] for name in names]
    better = "less" if lower_is_better(results.unit) else "more"
    head = f"{results.unit}, best/median ({better} is better)"
    if results.base:
        head += (
            f"; in brackets best to best of {results.base}, and median of the "
            "paired ratios"
        )
    probes = [s.state for s in results.samples if s.probe_us]
    if probes:
        head += f". State near in {probes.count('near') / len(probes):.0%} of samples"
    return f"{head}.\n\n{markdown(rows)}"


def errors(results: Results) -> Iterable[str]:
    return dict.fromkeys(
        f"{s.contender}, {s.case}: {s.error}" for s in results.samples if s.error
    )


def compare(old: Results, new: Results) -> str:
    """Best of the new file over best of the old one, case by case."""
    cases = [case for case in new.cases() if case in old.cases()]
    rows = [[f"{new.benchmark}, new/old", *cases]]
    for name in new.contenders:
        row = [name]
        for case in cases:
            before, after = old.best(case, name), new.best(case, name)
            row.append(f"x{after / before:.2f}" if before and after else "")
        rows.append(row)
    return f"{new.unit}, best of {new.machine['time']} over best of " + (
        f"{old.machine['time']}\n\n{markdown(rows)}"
    )


def plot(results: Results, path: str) -> None:
    """Best values, one group of bars a case, on a logarithmic axis."""
    try:
        import matplotlib
    except ImportError:
        print("no plot: matplotlib is not installed", file=sys.stderr)
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    cases, names = results.cases(), results.contenders
    figure, axes = pyplot.subplots(figsize=(2 + 2 * len(cases), 5))
    width = 0.8 / len(names)
    for i, name in enumerate(names):
        values = [scaled(results.best(c, name) or 0, results.unit) for c in cases]
        places = [x + (i - len(names) / 2 + 0.5) * width for x in range(len(cases))]
        axes.bar(places, values, width, label=name)
    axes.set_yscale("log")
    axes.set_xticks(range(len(cases)), cases)
    axes.set_ylabel(f"{results.benchmark}, {results.unit}")
    axes.legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(path, dpi=120)


# --- command line -------------------------------------------------------------


def parser(description: str) -> argparse.ArgumentParser:
    """The options that all benchmarks share."""
    result = argparse.ArgumentParser(description=description)
    add = result.add_argument
    add("--quick", action="store_true", help="2 short rounds")
    add("--rounds", type=int, help="interleaved rounds (5)")
    add("--seconds", type=float, help="length of one measurement (0.5)")
    add("--seed", type=int, help="of the order of contenders")
    add("--json", metavar="FILE", help="write all samples")
    add("--plot", metavar="FILE", help="write a PNG; needs matplotlib")
    return result


def add_contender_options(result: argparse.ArgumentParser, base: str) -> None:
    add = result.add_argument
    add("--base", default=base, help="contender the ratios refer to (%(default)s)")
    add("--only", metavar="NAMES", help="contenders, separated by commas")
    add("--compare", metavar="FILE", help="JSON of an earlier run")


def plan_of(options: argparse.Namespace) -> Plan:
    return Plan(
        rounds=options.rounds or (2 if options.quick else 5),
        seconds=options.seconds or (0.1 if options.quick else 0.5),
        seed=options.seed,
    )


def chosen(only: str | None, base: str) -> list[Contender]:
    """The contenders asked for and usable here; says who is missing."""
    names = only.split(",") if only else list(CONTENDERS)
    unknown = [name for name in [*names, base or names[0]] if name not in CONTENDERS]
    if unknown:
        sys.exit(f"unknown: {', '.join(unknown)}; there are {', '.join(CONTENDERS)}")
    found = []
    for name in dict.fromkeys([base, *names] if base else names):
        if reason := CONTENDERS[name].missing():
            print(f"without {name}: {reason}", file=sys.stderr)
        else:
            found.append(CONTENDERS[name])
    return found


def finish(
    results: Results,
    options: argparse.Namespace,
    shown: Callable[[Results], str] = table,
) -> None:
    """Print the table and the errors, write what was asked for."""
    print(shown(results))
    for line in errors(results):
        print(f"failed: {line}", file=sys.stderr)
    if options.json:
        results.write(options.json)
    if options.plot:
        plot(results, options.plot)
    if options.compare:
        print("\n" + compare(Results.read(options.compare), results))


def main(
    benchmark: str,
    unit: str,
    cases: Sequence[Case],
    options: argparse.Namespace,
) -> None:
    contenders = chosen(options.only, options.base)
    results = run(benchmark, unit, options.base, cases, contenders, plan_of(options))
    finish(results, options)
