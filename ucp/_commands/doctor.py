# SPDX-License-Identifier: BSD-3-Clause
"""``python -m ucp doctor``: looks for what keeps ucp from working, or makes it slow.

This module and what it imports at its top need neither UCX nor the extension.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any

from .._core import startup
from .._run.progress import Progress
from .._run.terminal import Terminal
from .._version import __version__
from . import gpu, installation, limits, memory, network, system, ucx
from .finding import Finding, Findings, note, problem


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add = parser.add_argument
    add(
        "peer",
        nargs="?",
        metavar="HOST:PORT",
        help="look at the way to that host only, where 'doctor --listen' runs",
    )
    add(
        "--listen",
        metavar="[HOST:]PORT",
        help="be the other side of 'doctor HOST:PORT' until Ctrl-C",
    )
    add("--pid", type=int, help="also tell what separates this process from that one")
    add("-v", "--verbose", action="store_true", help="also print what is as it should")
    add("--json", action="store_true", help="print one JSON object")
    add("--name", default="other host", help=argparse.SUPPRESS)


def run(options: argparse.Namespace) -> int:
    """Look at everything; returns 1 if there are problems."""
    if options.listen is not None or options.peer is not None:
        return _between_hosts(options)
    report = _Report(options, steps=8)
    report.begin("installation")
    report.add(_guarded("installation", installation.check))
    is_usable = not report.has_problem()
    transports = None
    report.begin("UCX")
    if is_usable:
        report.add(_guarded("UCX", ucx.check))
        transports = ucx.transports()
    for name, check in (
        ("memory", memory.check),
        ("limits", limits.check),
        ("system", lambda: system.check(options.pid)),
        ("GPU", lambda: gpu.check(transports)),
        ("network", network.check),
    ):
        report.begin(name)
        report.add(_guarded(name, check))
    report.begin("two processes")
    if is_usable:
        report.add(_two_processes())
    else:
        report.add([note("two processes", "Not tried: ucp cannot be imported.")])
    return report.finish()


def _two_processes() -> Findings:
    name = "two processes"
    try:
        exchange: Any = importlib.import_module("ucp._commands.exchange")
        scarce = list(network.ports(exchange.WORKERS))
        yield from scarce
        if scarce:
            yield note(name, "Not tried: UCX would have too few ports.")
        else:
            yield from asyncio.run(exchange.check())
    except (OSError, ImportError) as exc:
        yield problem(
            name,
            f"This could not be tried: {exc}.",
            "Look at what was found above, first at the limits of descriptors.",
        )


def _between_hosts(options: argparse.Namespace) -> int:
    """Listen, or look at the way to who listens."""
    if options.listen is not None and options.peer is not None:
        print(
            f"{startup.program()} doctor: --listen or HOST:PORT, not both",
            file=sys.stderr,
        )
        return 2
    report = _Report(options, steps=1)
    try:
        service: Any = importlib.import_module("ucp._commands.service")
        exchange: Any = importlib.import_module("ucp._commands.exchange")
    except ImportError as exc:
        report.add(_guarded("installation", installation.check))
        if not report.has_problem():
            report.add([problem("package", f"It cannot be used: {exc}", "Try again.")])
        return report.finish()
    try:
        if options.peer is None:
            host, port = service.address(options.listen)
        else:
            host, port = service.peer(options.peer)
    except argparse.ArgumentTypeError as exc:
        print(f"{startup.program()} doctor: {exc}", file=sys.stderr)
        return 2
    report.add(network.ports(exchange.WORKERS_HERE))
    if report.has_problem():
        return report.finish()
    if options.peer is None:
        asyncio.run(service.serve(host, port, end_with_input=False))
        return 0
    report.begin(f"the way to {host}")
    report.add(asyncio.run(exchange.reach(host, port, options.name)))
    return report.finish()


def _guarded(name: str, check: Callable[[], Findings]) -> Findings:
    """What a check finds; a check that fails itself does not end the others."""
    try:
        yield from check()
    except Exception as exc:
        yield note(name, f"This could not be looked at: {type(exc).__name__}: {exc}")


_LEVELS = {"problem": "bold red", "note": "yellow", "ok": "green"}
_INDENT = " " * 9  # what begins below the text of a finding


class _Report:
    """Collects findings and prints them: problems first, then notes.

    With ``--verbose`` each finding is printed as it comes, with those that are ok.
    """

    def __init__(self, options: argparse.Namespace, steps: int) -> None:
        self._as_json = options.json
        self._is_verbose = options.verbose and not options.json
        self._findings: list[Finding] = []
        self._terminal = Terminal(sys.stdout)
        self._bar = Progress(steps)

    def begin(self, name: str) -> None:
        """Tell what is looked at now."""
        self._bar.step(name)

    def add(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            self._findings.append(finding)
            if self._is_verbose:
                self._bar.clear()
                self._print(finding)

    def has_problem(self) -> bool:
        return self._count("problem") > 0

    def finish(self) -> int:
        """Print what is found; the exit status."""
        self._bar.clear()
        problems = self._count("problem")
        if self._as_json:
            report = {
                "version": 1,
                "ucp": __version__,
                "problems": problems,
                "findings": [asdict(finding) for finding in self._findings],
            }
            print(json.dumps(report, indent=1))
            return 1 if problems else 0
        if not self._is_verbose:
            for level in ("problem", "note"):
                for finding in self._findings:
                    if finding.level == level:
                        self._print(finding)
        print(("\n" if self._is_verbose or self._has_printed() else "") + self._end())
        return 1 if problems else 0

    def _has_printed(self) -> bool:
        return self._count("problem") + self._count("note") > 0

    def _count(self, level: str) -> int:
        return sum(finding.level == level for finding in self._findings)

    def _end(self) -> str:
        """The last line: "no problems, 2 notes, 18 checks ok"."""
        paint = self._terminal.paint
        problems, notes = self._count("problem"), self._count("note")
        okay = self._count("ok")
        parts = [
            paint(_number(problems, "problem"), "bold red" if problems else "green"),
            _number(notes, "note"),
            f"{_number(okay, 'check')} ok",
        ]
        hint = "" if self._is_verbose or not okay else " (-v prints them)"
        return f"{', '.join(parts)}{hint}"

    def _print(self, finding: Finding) -> None:
        """The level, what was looked at, what is found and what to do about it."""
        terminal = self._terminal
        head = f"{finding.level:8} "
        first, *others = terminal.wrap(
            f"{finding.check}: {finding.text}", head, _INDENT
        )
        level = terminal.paint(finding.level, _LEVELS[finding.level])
        print(level + first[len(finding.level) :])
        for line in others:
            print(line)
        if finding.remedy:
            arrow, under = f"{_INDENT}-> ", f"{_INDENT}   "
            for line in terminal.wrap(finding.remedy, arrow, under):
                print(line)
        sys.stdout.flush()


def _number(count: int, what: str) -> str:
    return f"{count or 'no'} {what}{'' if count == 1 else 's'}"
