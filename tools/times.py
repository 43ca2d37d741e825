#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Print how long the tests of each room take, by what `make test` has left behind.

    python tools/times.py [--slowest N] [FILE...]

A FILE is what pytest writes with --junitxml, or the times of C programs that
tests/c/run.sh writes. Without one: those of the last `make test`. The seconds are
those on the clock, and beside them those of CPU: of the process that runs the tests
and of the processes that it has waited for.
"""

import argparse
import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PYTHON = ROOT / "build/tests.xml"
C = ROOT / "src/build"


class Test(NamedTuple):
    room: str
    name: str
    seconds: float
    cpu: float | None  # not in files of older runs


def of_python(file: Path) -> list[Test]:
    """Each test, with its setup and teardown."""
    found = []
    for case in ET.parse(file).iter("testcase"):
        _tests, room, module, *_ = [*case.get("classname", "").split("."), "", ""]
        name = f"{module}: {case.get('name')}"
        known = {each.get("name"): each.get("value") for each in case.iter("property")}
        cpu = known.get("cpu")
        seconds = float(case.get("time", 0))
        found.append(Test(room, name, seconds, None if cpu is None else float(cpu)))
    return found


def of_c(file: Path) -> list[Test]:
    """Each program, in the room of its source."""
    rooms = {path.stem: path.parent.name for path in ROOT.glob("tests/c/*/test_*.c")}
    found = []
    for line in file.read_text().splitlines():
        seconds, *cpu, name = line.split()
        used = float(cpu[0]) if cpu else None
        found.append(Test(rooms.get(name, "?"), name, float(seconds), used))
    return found


def cpu_of(tests: Iterable[Test]) -> str:
    """The sum of what is known."""
    known = [test.cpu for test in tests if test.cpu is not None]
    return f"{sum(known):.1f}" if known else "?"


def table(title: str, found: list[Test], slowest: int) -> str:
    rooms: dict[str, list[Test]] = defaultdict(list)
    for test in found:
        rooms[test.room].append(test)
    rows = sorted(rooms.items(), key=lambda row: -sum(test.seconds for test in row[1]))
    lines = [
        f"| {title} | tests | seconds | CPU | the slowest |",
        "|---|---:|---:|---:|---|",
    ]
    for room, tests in rows:
        most = max(tests, key=lambda test: test.seconds)
        total = sum(test.seconds for test in tests)
        lines.append(
            f"| {room} | {len(tests)} | {total:.1f} | {cpu_of(tests)} | "
            f"{most.seconds:.1f} {most.name} |"
        )
    total = sum(test.seconds for test in found)
    lines.append(f"| all | {len(found)} | {total:.1f} | {cpu_of(found)} | |")
    if slowest:
        lines += ["", " seconds      CPU"]
        for test in sorted(found, key=lambda test: -test.seconds)[:slowest]:
            both = f"{test.seconds:8.1f} {cpu_of([test]):>8}"
            lines.append(f"{both}  {test.room}  {test.name}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--slowest", type=int, default=0, metavar="N")
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    files = arguments.files or [*sorted(C.glob("*/closing.times")), PYTHON]
    for file in files:
        if not file.exists():
            parser.error(f"{file} does not exist: run `make test` first")
        is_python = file.suffix == ".xml"
        title = "Python" if is_python else f"C, {file.parent.name}"
        found = of_python(file) if is_python else of_c(file)
        print(table(title, found, arguments.slowest), end="\n\n")


if __name__ == "__main__":
    main()
