#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Print how long the tests of each room take, by what `make test` has left behind.

    python tools/times.py [--slowest N] [FILE...]

A FILE is what pytest writes with --junitxml, or the times of C programs that
tests/c/run.sh writes. Without one: those of the last `make test`.
"""

import argparse
import xml.etree.ElementTree as ET
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PYTHON = ROOT / "build/tests.xml"
C = ROOT / "src/build"


class Test(NamedTuple):
    room: str
    name: str
    seconds: float


def of_python(file: Path) -> list[Test]:
    """Each test, with its setup and teardown."""
    found = []
    for case in ET.parse(file).iter("testcase"):
        _tests, room, module, *_ = [*case.get("classname", "").split("."), "", ""]
        name = f"{module}: {case.get('name')}"
        found.append(Test(room, name, float(case.get("time", 0))))
    return found


def of_c(file: Path) -> list[Test]:
    """Each program, in the room of its source."""
    rooms = {path.stem: path.parent.name for path in ROOT.glob("tests/c/*/test_*.c")}
    found = []
    for line in file.read_text().splitlines():
        seconds, name = line.split()
        found.append(Test(rooms.get(name, "?"), name, float(seconds)))
    return found


def table(title: str, found: list[Test], slowest: int) -> str:
    rooms: dict[str, list[Test]] = defaultdict(list)
    for test in found:
        rooms[test.room].append(test)
    rows = sorted(rooms.items(), key=lambda row: -sum(test.seconds for test in row[1]))
    lines = [
        f"| {title} | tests | seconds | the slowest |",
        "|---|---:|---:|---|",
    ]
    for room, tests in rows:
        most = max(tests, key=lambda test: test.seconds)
        total = sum(test.seconds for test in tests)
        lines.append(
            f"| {room} | {len(tests)} | {total:.1f} | {most.seconds:.1f} {most.name} |"
        )
    total = sum(test.seconds for test in found)
    lines.append(f"| all | {len(found)} | {total:.1f} | |")
    if slowest:
        lines.append("")
        for test in sorted(found, key=lambda test: -test.seconds)[:slowest]:
            lines.append(f"{test.seconds:8.1f}  {test.room}  {test.name}")
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
