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
    add("--json", action="store_true", help="print one JSON object")
    add("--name", default="other host", help=argparse.SUPPRESS)


def run(options: argparse.Namespace) -> int:
    """Look at everything; returns 1 if there are problems."""
    if options.listen is not None or options.peer is not None:
        return _between_hosts(options)
    report = _Report(options.json)
    report.add(_guarded("installation", installation.check))
    is_usable = not report.has_problem()
    transports = None
    if is_usable:
        report.add(_guarded("UCX", ucx.check))
        transports = ucx.transports()
    report.add(_guarded("memory", memory.check))
    report.add(_guarded("limits", limits.check))
    report.add(_guarded("system", lambda: system.check(options.pid)))
    report.add(_guarded("GPU", lambda: gpu.check(transports)))
    report.add(_guarded("network", network.check))
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
        print("python -m ucp doctor: --listen or HOST:PORT, not both", file=sys.stderr)
        return 2
    report = _Report(options.json)
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
        print(f"python -m ucp doctor: {exc}", file=sys.stderr)
        return 2
    report.add(network.ports(exchange.WORKERS_HERE))
    if report.has_problem():
        return report.finish()
    if options.peer is None:
        asyncio.run(service.serve(host, port, end_with_input=False))
        return 0
    report.add(asyncio.run(exchange.reach(host, port, options.name)))
    return report.finish()


def _guarded(name: str, check: Callable[[], Findings]) -> Findings:
    """What a check finds; a check that fails itself does not end the others."""
    try:
        yield from check()
    except Exception as exc:
        yield note(name, f"This could not be looked at: {type(exc).__name__}: {exc}")


class _Report:
    """Prints findings as they come."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self._findings: list[Finding] = []
        self._last = ""

    def add(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            self._findings.append(finding)
            if not self._as_json:
                self._print(finding)

    def has_problem(self) -> bool:
        return any(finding.level == "problem" for finding in self._findings)

    def finish(self) -> int:
        """Print the end; the exit status."""
        problems = sum(finding.level == "problem" for finding in self._findings)
        if self._as_json:
            report = {
                "version": 1,
                "ucp": __version__,
                "problems": problems,
                "findings": [asdict(finding) for finding in self._findings],
            }
            print(json.dumps(report, indent=1))
        else:
            notes = sum(finding.level == "note" for finding in self._findings)
            print(f"\n{_number(problems, 'problem')}, {_number(notes, 'note')}")
        return 1 if problems else 0

    def _print(self, finding: Finding) -> None:
        if finding.check != self._last:
            print(finding.check)
            self._last = finding.check
        indent = "\n" + " " * 11
        print(f"  {finding.level:8} {finding.text.replace(chr(10), indent)}")
        if finding.remedy:
            print(f"  {'':8} -> {finding.remedy}")
        sys.stdout.flush()


def _number(count: int, what: str) -> str:
    return f"{count or 'no'} {what}{'' if count == 1 else 's'}"
