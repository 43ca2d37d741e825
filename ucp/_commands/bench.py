# SPDX-License-Identifier: BSD-3-Clause
"""``python -m ucp bench``: latency, bandwidth, rate and collective operations.

Between two processes of this host, between hosts, or between ranks. The loops are
those of ``benchmarks/`` in the sources, which compare ucp with other libraries.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TextIO

from .._communicator import environment
from .._communicator.communicator import Communicator
from .._core import loader, startup
from .._core.connect import create_endpoint
from .._core.context import get_lanes
from .._run.progress import Progress
from .._run.terminal import Terminal
from .._version import __version__
from ..exceptions import UCXBaseException, UCXConfigError
from . import chart, service
from .pair import (
    LARGEST,
    OPERATIONS,
    TESTS,
    Order,
    Pair,
    PairError,
    Ranks,
    Side,
    follow,
    lead,
)
from .table import Before, BeforeError, Result, heading, human, notes, row

_TIMEOUT = 10.0  # seconds until a connection is there
_SHIFTS = {"K": 10, "M": 20, "G": 30}
_UNITS = {"latency": "us", "bandwidth": "bytes/s", "rate": "messages/s"}
_WINDOWS = {"bandwidth": 16, "rate": 64}
_MOST = 5_000_000  # messages of a round
#: The sizes of each kind of test, unless --sizes says other ones.
_SIZES = {
    "latency": "1,8,64,512,4K,32K,256K,2M,16M",
    "bandwidth": "512,4K,32K,256K,2M,16M",
    "rate": "8",
}
_OPERATION_SIZES = "8,1K,64K,1M"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add = parser.add_argument
    add(
        "peer",
        nargs="?",
        metavar="HOST:PORT",
        type=service.peer,
        help="where 'bench --listen' runs; default: a process of this host",
    )
    add(
        "--listen",
        metavar="[HOST:]PORT",
        type=service.address,
        help="be the other side of 'bench HOST:PORT' until Ctrl-C",
    )
    add(
        "--tests",
        type=_tests,
        default=[*TESTS, *OPERATIONS],
        metavar="NAMES",
        help=f"separated by commas: {', '.join(TESTS)}; collective, or operations: "
        f"{', '.join(OPERATIONS)} (all)",
    )
    add(
        "--sizes",
        type=_sizes,
        metavar="SIZES",
        help="bytes, separated by commas, with K, M and G: 8,4K,1M",
    )
    add(
        "--seconds",
        type=_seconds,
        default=0.2,
        help="length of one measurement (%(default)g)",
    )
    add(
        "--rounds",
        type=_positive,
        default=3,
        help="measurements of each test and size (%(default)d)",
    )
    add("--no-pin", action="store_true", help="let processes move between CPUs")
    add("--json", metavar="FILE", help="write all results; - is standard output")
    add(
        "--compare",
        metavar="FILE",
        help="show beside each result that of an earlier --json FILE",
    )
    add("--plot", metavar="FILE", help="draw them, as .png or .svg; needs matplotlib")
    add("--end-with-input", action="store_true", help=argparse.SUPPRESS)
    parser.set_defaults(before=None)  # what --compare has read


def _tests(text: str) -> list[str]:
    found: list[str] = []
    for name in text.split(","):
        if name == "collective":
            found += OPERATIONS
        elif name in TESTS or name in OPERATIONS:
            found.append(name)
        else:
            known = ", ".join([*TESTS, "collective", *OPERATIONS])
            raise argparse.ArgumentTypeError(f"no test {name!r}; there are {known}")
    return found


def _sizes(text: str) -> list[int]:
    found = []
    for item in text.upper().split(","):
        digits = item.rstrip("KMG")
        shift = _SHIFTS.get(item[len(digits) :], 0 if item == digits else -1)
        if not digits.isdecimal() or shift < 0 or int(digits) == 0:
            raise argparse.ArgumentTypeError(f"not a size: {item!r}")
        if int(digits) << shift > LARGEST:
            raise argparse.ArgumentTypeError(f"{item} is above 1G")
        found.append(int(digits) << shift)
    return found


def _seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0
    if not 0 < number <= 3600:
        raise argparse.ArgumentTypeError(f"not a number of seconds: {text!r}")
    return number


def _positive(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= 10_000:
        raise argparse.ArgumentTypeError(f"expected 1 to 10000, not {text!r}")
    return int(text)


@dataclass
class Report:
    """All results, and where they were measured."""

    between: str
    cpus: list[int] | None = None  # that this process and the other are bound to
    machine: dict[str, Any] = field(default_factory=lambda: machine())
    lanes: list[str] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """What --json writes, as docs/commands.md describes it."""
        return {
            "version": 1,
            "machine": self.machine,
            "between": self.between,
            "cpus": self.cpus,
            "lanes": self.lanes,
            "results": [
                {**asdict(result), "best": result.best, "median": result.median}
                for result in self.results
            ],
        }


def machine() -> dict[str, Any]:
    """Return a description of the machine, and the versions of the software."""
    return {
        "cpus": len(os.sched_getaffinity(0)),
        "arch": platform.machine(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "ucp": __version__,
        "ucx": loader.which_ucx().version,
        "time": time.strftime("%Y-%m-%dT%H:%M:%S"),
    }


def run(options: argparse.Namespace) -> int:
    """Measure, or be measured; returns the exit status."""
    if (reason := _why_not_written(options)) is not None:
        print(f"{startup.program()} bench: {reason}", file=sys.stderr)
        return 2
    if options.listen is not None and options.peer is not None:
        print(
            f"{startup.program()} bench: --listen or HOST:PORT, not both",
            file=sys.stderr,
        )
        return 2
    try:
        options.before = _before(options)
        asyncio.run(_work(options))
    except BeforeError as exc:
        print(f"{startup.program()} bench: {exc}", file=sys.stderr)
        return 2
    except (UCXBaseException, PairError, OSError) as exc:
        if isinstance(exc, BrokenPipeError):
            raise
        print(f"{startup.program()} bench: {exc}", file=sys.stderr)
        return 1
    return 0


def _why_not_written(options: argparse.Namespace) -> str | None:
    """Why --plot or --json cannot be written, before minutes are spent; None: they can.

    Rank 0 alone writes them: where it runs, the others need not be able to.
    """
    if options.plot is not None:
        reason = chart.missing() or chart.refuses(options.plot)
        if reason is not None:
            return reason
    for option, path in (("--json", options.json), ("--plot", options.plot)):
        if path is None or (option == "--json" and path == "-"):
            continue
        file = Path(path)
        where = file if file.exists() else file.parent
        if file.is_dir():
            return f"{option} {path}: this is a directory"
        if not where.exists():
            return f"{option} {path}: there is no directory {where}"
        if not os.access(where, os.W_OK):
            return f"{option} {path}: {where} may not be written"
    return None


def _before(options: argparse.Namespace) -> Before | None:
    """What ``--compare`` names; None: nothing, or rank 0 reads it."""
    if options.compare is None:
        return None
    if _is_rank() and environment.from_environment().rank != 0:
        return None
    return Before(options.compare)


async def _work(options: argparse.Namespace) -> None:
    cpus = sorted(os.sched_getaffinity(0))
    if options.listen is not None:
        await service.serve(*options.listen, end_with_input=options.end_with_input)
    elif options.peer is not None:
        report = Report("two hosts")
        report.cpus = _pin(options, cpus[:1])
        host, port = options.peer
        await _lead_pair(host, port, report, options)
    elif _is_rank():
        await _measure_ranks(cpus, options)
    else:
        report = Report("two processes of this host")
        report.cpus = _pin(options, cpus[:2] if len(cpus) > 1 else [])
        cpu = report.cpus[1] if report.cpus else None
        async with service.process(cpu=cpu) as port:
            await _lead_pair("127.0.0.1", port, report, options)


def _pin(options: argparse.Namespace, cpus: list[int]) -> list[int] | None:
    """Bind this process to the first of these CPUs; what is bound."""
    if options.no_pin or not cpus:
        return None
    os.sched_setaffinity(0, cpus[:1])
    return cpus


def _is_rank() -> bool:
    """Has a launcher started this process?"""
    try:
        environment.from_environment()
    except UCXConfigError:
        if "UCP_RANK" in os.environ:
            raise
        return False
    return True


async def _lead_pair(
    host: str, port: int, report: Report, options: argparse.Namespace
) -> None:
    async with await create_endpoint(host, port, connect_timeout=_TIMEOUT) as ep:
        side = Pair(ep, 0)
        try:
            await side.tell(Order("hello"))
            report.lanes = get_lanes(ep)
            await _measure_all(side, report, options)
            await side.tell(Order("end"))
        finally:
            side.close()


async def _measure_ranks(cpus: list[int], options: argparse.Namespace) -> None:
    async with await Communicator.from_env() as comm:
        report = Report(f"{comm.size} ranks")
        cpu = cpus[comm.rank % len(cpus)]
        if _pin(options, [cpu] if comm.size <= len(cpus) else []):
            report.cpus = cpus[: comm.size]
        side = Ranks(comm)
        if comm.rank != 0:
            await follow(side)
            return
        if comm.size == 1:
            options.tests = [test for test in options.tests if test in OPERATIONS]
        await _measure_all(side, report, options)
        await side.tell(Order("end"))


def _cases(options: argparse.Namespace) -> Iterator[tuple[str, int]]:
    for test in options.tests:
        default = _SIZES.get(test, _OPERATION_SIZES)
        sizes = options.sizes or _sizes(default)
        for size in [8] if test == "barrier" else sizes:
            yield test, size


async def _measure_all(side: Side, report: Report, options: argparse.Namespace) -> None:
    out = sys.stderr if options.json == "-" else sys.stdout
    terminal = Terminal(out)
    cases = list(_cases(options))
    bar = Progress(len(cases) * (options.rounds + 1))
    for text in _head(report):
        _print_text(text, terminal, out)
    print("\n" + heading(terminal, options.before), file=out, flush=True)
    for test, size in cases:
        result = await _measure(side, test, size, options, bar)
        report.results.append(result)
        bar.clear()
        print(row(result, options.before, terminal), file=out, flush=True)
    print(file=out)
    _print_text(notes((test for test, _ in cases), _WINDOWS), terminal, out)
    if options.before is not None:
        for text in options.before.describe(report.machine, report.between):
            _print_text(text, terminal, out)
    if options.json == "-":
        print(json.dumps(report.as_dict(), indent=1))
    elif options.json:
        Path(options.json).write_text(json.dumps(report.as_dict(), indent=1) + "\n")
    if options.plot:
        await asyncio.to_thread(chart.draw, report.as_dict(), options.plot)


def _print_text(text: str, terminal: Terminal, out: TextIO) -> None:
    for line in terminal.wrap(text) if text else []:
        print(line, file=out)


async def _measure(
    side: Side, test: str, size: int, options: argparse.Namespace, bar: Progress
) -> Result:
    """Some short runs find out how many messages fill the seconds."""
    label = f"{test} {human(size)}"
    bar.step(label)
    window = _WINDOWS.get(test, 1)
    count, seconds = window, 0.0
    while count < _MOST:
        seconds = await lead(side, Order(test, size, count, window))
        if seconds > options.seconds / 10:
            break
        count *= 4
    count = int(count * options.seconds / seconds) // window * window
    count = max(window, min(count, _MOST // window * window))
    values = []
    for _ in range(options.rounds):
        bar.step(label)
        seconds = await lead(side, Order(test, size, count, window))
        values.append(_value(test, size, count, seconds))
    return Result(test, size, _UNITS.get(test, "us"), window, count, values)


def _value(test: str, size: int, count: int, seconds: float) -> float:
    if test == "bandwidth":
        return size * count / seconds
    if test == "rate":
        return count / seconds
    return seconds / count * 1e6 / (2 if test == "latency" else 1)


def _head(report: Report) -> list[str]:
    where = report.machine
    pinned = "processes are not bound to CPUs"
    if report.cpus is not None:
        pinned = f"bound to CPU {', '.join(map(str, report.cpus))}"
    lanes = [f"lanes: {', '.join(report.lanes)}"] if report.lanes else []
    return [
        f"ucp {where['ucp']}, UCX {where['ucx']}, Python {where['python']}, "
        f"Linux {where['kernel']} {where['arch']}, {where['cpus']} CPUs",
        f"between {report.between}; {pinned}",
        *lanes,
    ]
