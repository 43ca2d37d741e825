# SPDX-License-Identifier: BSD-3-Clause
"""Dask over its own tcp, over ucp and over distributed-ucxx.

python benchmarks/dask.py [--quick] [--only tcp,ucp] [--json FILE] [--plot FILE]
"""

# Nothing here may import dask: in this directory that is this file. What does is
# in _dask.py, run with -P.

from __future__ import annotations

import importlib.util
import json
import random
import statistics
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import _harness
from _contenders import human
from _harness import Results, Sample
from _process import child_environment

CHILD = Path(__file__).with_name("_dask.py")
SCHEMES = {"tcp": "tcp", "ucp": "ucp", "distributed-ucxx": "ucx"}
MODULES = {"tcp": "distributed", "ucp": "ucp", "distributed-ucxx": "distributed_ucxx"}
SIZES = [8, 1 << 10, 8 << 10, 64 << 10, 1 << 20, 8 << 20, 64 << 20, 256 << 20]
TIME_LIMIT = 600

Values = dict[str, float | str]


def run_child(*arguments: object) -> Values:
    """The JSON that the child prints, or what it died of as the only value."""
    done = subprocess.run(
        [sys.executable, "-P", str(CHILD), *map(str, arguments)],
        env=child_environment({"UCX_WARN_UNUSED_ENV_VARS": "n"}),
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT,
    )
    lines = done.stdout.splitlines()
    if done.returncode != 0 or not lines:
        raise RuntimeError((done.stderr.strip().splitlines() or ["it died"])[-1])
    return dict(json.loads(lines[-1]))


def comm_values(name: str, seconds: float) -> Values:
    values = run_child("comm", SCHEMES[name], seconds, *SIZES)
    return {human(int(size)): value for size, value in values.items()}


def cluster_values(name: str, repeats: int) -> Values:
    return run_child("cluster", SCHEMES[name], repeats)


def add(results: Results, number: int, name: str, values: Values) -> None:
    for case, value in values.items():
        sample = Sample(case, name, number, 0.0)
        if isinstance(value, str):
            sample.error = value
        else:
            sample.value = value
        results.samples.append(sample)


def is_rate(case: str) -> bool:
    return case.endswith("/s")


def speed(results: Results, case: str, name: str) -> float | None:
    """How many times as fast as tcp: median of the ratios within a round."""
    paired = results.paired(case, name, "tcp")
    if paired is None:
        return None
    return paired if is_rate(case) else 1 / paired


def table(results: Results) -> str:
    """Cases as rows: they are many, and of several units."""
    names = results.contenders
    rows = [[results.benchmark, *names, *(f"{n}, times tcp" for n in names[1:])]]
    for case in results.cases():
        row = [case]
        for name in names:
            values = list(results.by_round(case, name).values())
            best = max if is_rate(case) else min
            row.append(
                f"{_harness.number(best(values))} / "
                f"{_harness.number(statistics.median(values))}"
                if values
                else "failed"
            )
        for name in names[1:]:
            ratio = speed(results, case, name)
            row.append(f"x{ratio:.2f}" if ratio and "%" not in case else "")
        rows.append(row)
    return f"{results.unit}\n\n{_harness.markdown(rows)}\n"


def plot(parts: list[Results], path: str) -> None:
    """How many times as fast as tcp, by case."""
    try:
        import matplotlib
    except ImportError:
        print("no plot: matplotlib is not installed", file=sys.stderr)
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, all_axes = pyplot.subplots(1, len(parts), figsize=(13, 6), squeeze=False)
    for axes, results in zip(all_axes[0], parts, strict=True):
        names = results.contenders[1:]
        cases = [
            case for case in results.cases() if "%" not in case and "MB" not in case
        ]
        height = 0.8 / max(len(names), 1)
        for i, name in enumerate(names):
            widths = [speed(results, case, name) or 0 for case in cases]
            axes.barh(
                [y + i * height for y in range(len(cases))], widths, height, label=name
            )
        axes.axvline(1, color="black", linewidth=1)
        axes.set_yticks(range(len(cases)), cases)
        axes.invert_yaxis()
        axes.set_xlabel(f"{results.benchmark}: times as fast as tcp")
        axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def chosen(only: str | None) -> list[str]:
    """tcp first: the others are compared with it."""
    names = only.split(",") if only else list(SCHEMES)
    unknown = sorted(set(names) - set(SCHEMES))
    if unknown:
        sys.exit(f"unknown: {', '.join(unknown)}; there are {', '.join(SCHEMES)}")
    found = []
    for name in dict.fromkeys(["tcp", *names]):
        if importlib.util.find_spec(MODULES[name]) is None:
            print(f"without {name}: no module {MODULES[name]}", file=sys.stderr)
        else:
            found.append(name)
    if "tcp" not in found:
        sys.exit("Dask is missing: pip install 'umx[dask]'")
    return found


def main() -> None:
    parser = _harness.parser(__doc__.splitlines()[0])
    parser.add_argument("--only", metavar="NAMES", help="of tcp,ucp,distributed-ucxx")
    parser.add_argument("--part", choices=["comm", "cluster"], help="only this one")
    options = parser.parse_args()
    plan = _harness.plan_of(options)
    names = chosen(options.only)
    comm = Results("ping-pong", "us, half round trip: best / median", "tcp", names)
    cluster = Results("cluster", "best / median", "tcp", names)
    parts = [
        part for part in (comm, cluster) if options.part in (None, part_name(part))
    ]
    order = random.Random(plan.seed)
    for number in range(plan.rounds):
        for name in order.sample(names, len(names)):
            for part in parts:
                _harness.progress(plan, f"{name}, {part.benchmark}, round {number + 1}")
                try:
                    if part is comm:
                        values = comm_values(name, plan.seconds)
                    else:
                        values = cluster_values(name, 2 if options.quick else 5)
                except (RuntimeError, subprocess.TimeoutExpired) as error:
                    print(f"{name}, {part.benchmark}: {error}", file=sys.stderr)
                else:
                    add(part, number, name, values)
    _harness.progress(plan, "")
    for part in parts:
        print(table(part))
        for line in _harness.errors(part):
            print(f"failed: {line}", file=sys.stderr)
    if options.json:
        text = json.dumps([asdict(part) for part in parts], indent=1)
        Path(options.json).write_text(text + "\n")
    if options.plot:
        plot(parts, options.plot)


def part_name(part: Results) -> str:
    return "comm" if part.benchmark == "ping-pong" else "cluster"


if __name__ == "__main__":
    main()
