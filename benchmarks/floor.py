# SPDX-License-Identifier: BSD-3-Clause
"""Where the time of a short message goes: half a round trip, layer by layer.

    python benchmarks/floor.py [--rounds 5] [--unpinned] [--other PYTHON] [--json FILE]

Each round takes the layers one after the other, in two processes each:

- `ring`: a ring in shared memory, in C: what the caches of the machine allow;
- `tag_lat`: UCX's own benchmark of its tags, ucx_perftest;
- `umx_tag`, `umx_channel`: libumx in C, which polls;
- `await`: `await ep.send(buffer)` and `await ep.recv(buffer)` in Python;
- `await, other`: those of the ucp of another Python, such as the commit before.

It prints nanoseconds, the best and the median of the rounds, the ratio to
`tag_lat`, and the state of the machine: a cache line goes from one core to the
other in about 40 ns ("near") or 200 ns ("far"), and which of the two it is
changes within seconds. The first column of the best shows the near state if
there was any."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from _contenders import CONTENDERS, Case, Python, libucx

import ucp

SIZES = (8, 64, 256, 1024)
NEAR_NS = 100  # a ring's half round trip is shorter in the near state
C_ROUNDS = 20  # within one run of floor.c
MESSAGES = 40_000

Found = dict[tuple[int, str], list[float]]


def build(folder: str) -> str:
    """floor.c with the library of the installed ucp, as a program in `folder`."""
    path = f"{folder}/floor"
    command = ["cc", "-std=gnu11", "-D_GNU_SOURCE", "-O3", f"-I{ucp.get_include()}"]
    command += [str(Path(__file__).with_suffix(".c")), "-o", path]
    command += ["-Wl,--disable-new-dtags"]  # libumx finds UCX by this path, too
    for libraries in (ucp.get_library_dir(), f"{libucx()}/lib"):
        command += [f"-L{libraries}", f"-Wl,-rpath,{libraries}"]
    subprocess.run([*command, "-lumx", "-lucp", "-lucs"], check=True)
    return path


def in_c(program: str, size: int, pinned: bool) -> dict[str, float]:
    """The best of each layer in C."""
    cpus = sorted(os.sched_getaffinity(0))
    places = [str(cpus[0]), str(cpus[1 % len(cpus)])] if pinned else ["-1", "-1"]
    done = subprocess.run(
        [program, str(size), str(C_ROUNDS), *places],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=120,
    )
    lines = (line.split() for line in done.stdout.splitlines())
    return {name: float(best) for name, best, _ in lines}


def measure(program: str, rounds: int, pinned: bool, other: str | None) -> Found:
    found: Found = defaultdict(list)
    awaits = {"await": CONTENDERS["ucp"]}
    if other:
        awaits["await, other"] = Python("other", 1e-6, "ucp", ucx=True, python=other)
    for _ in range(rounds):
        for size in SIZES:
            case = Case("latency", size=size, pinned=pinned)
            for name, value in in_c(program, size, pinned).items():
                found[size, name].append(value)
            tag_lat = 1e3 * CONTENDERS["perftest"].run(case, 5 * MESSAGES)
            found[size, "tag_lat"].append(tag_lat)
            for name, contender in awaits.items():
                found[size, name].append(1e3 * contender.run(case, MESSAGES))
    return found


def show(found: Found) -> None:
    names = list(dict.fromkeys(name for _, name in found))
    order = ["ring", "tag_lat", *(n for n in names if n not in ("ring", "tag_lat"))]
    for size in SIZES:
        rings = found[size, "ring"]
        near = sum(value < NEAR_NS for value in rings)
        print(f"{size} bytes; near in {near} of {len(rings)} rounds")
        floor = min(found[size, "tag_lat"])
        for name in order:
            values = found[size, name]
            best, median = min(values), statistics.median(values)
            print(f"  {name:14}{best:8.0f}{median:8.0f} ns{best / floor:8.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--unpinned", action="store_true")
    parser.add_argument("--other", metavar="PYTHON")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if libucx() is None:
        sys.exit("floor.py needs the libucx wheel, which has ucx_perftest")
    with tempfile.TemporaryDirectory(prefix="ucp-bench-") as folder:
        program = build(folder)
        found = measure(program, args.rounds, not args.unpinned, args.other)
    show(found)
    if args.json:
        rows = [
            {"size": size, "layer": name, "ns": values}
            for (size, name), values in found.items()
        ]
        args.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
