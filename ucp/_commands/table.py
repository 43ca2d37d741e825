# SPDX-License-Identifier: BSD-3-Clause
"""The table of ``python -m ucp bench``: results, and those of a run before."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._run.terminal import Terminal

_COLUMNS = f"{'test':9}{'size':>9}{'best':>12}{'median':>12}"
_BEFORE = f"{'before':>12}  {'change':12}"
# What is shown of values in a unit: the unit, what it is divided by, and digits.
_SHOWN = {
    "us": ("us", 1.0, 2),
    "bytes/s": ("MB/s", 1e6, 1),
    "messages/s": ("messages/s", 1.0, 0),
}
# What of machines has to be alike for their results to be compared.
_ALIKE = ("cpus", "arch", "kernel", "ucx", "python")


@dataclass(frozen=True)
class Result:
    """What one test of one size took.

    Attributes:
        test: one of ``pair.TESTS`` or ``pair.OPERATIONS``.
        size: bytes of a message.
        unit: of the values.
        window: messages under way at a time.
        count: messages of a round, round trips or operations.
        values: one for each round.
    """

    test: str
    size: int
    unit: str
    window: int
    count: int
    values: list[float]

    @property
    def best(self) -> float:
        return (max if self.is_rate else min)(self.values)

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def is_rate(self) -> bool:
        """Is a greater value a better one?"""
        return self.unit.endswith("/s")


class BeforeError(Exception):
    """A file is none that ``--json`` has written."""


class Before:
    """The results of a run before, which ``--json`` has written.

    Raises:
        BeforeError: the file cannot be read, or is none of those.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        try:
            report = json.loads(Path(path).read_text())
        except OSError as exc:
            raise BeforeError(f"--compare {path}: {exc.strerror}") from exc
        except ValueError as exc:
            raise BeforeError(f"--compare {path}: this is no JSON: {exc}") from exc
        try:
            self._machine: dict[str, Any] = dict(report["machine"])
            self._between = str(report["between"])
            found = [_result(each) for each in report["results"]]
        except (AttributeError, KeyError, TypeError, ValueError) as exc:
            raise BeforeError(
                f"--compare {path}: 'bench --json FILE' has not written this"
            ) from exc
        self._results = {(each.test, each.size): each for each in found}

    def find(self, result: Result) -> Result | None:
        """The result of the same test and size; None: that was not measured."""
        found = self._results.get((result.test, result.size))
        return found if found is not None and found.unit == result.unit else None

    def describe(self, machine: dict[str, Any], between: str) -> list[str]:
        """What it is, and what else differs from this machine."""
        then = self._machine
        told = f"before: {self._path}, ucp {then.get('ucp')}, {then.get('time')}"
        lines = [f"{told}; same: the values of the rounds overlap"]
        other = [
            f"{name} {then.get(name)}, now {machine.get(name)}"
            for name in _ALIKE
            if then.get(name) != machine.get(name)
        ]
        if self._between != between:
            other.append(f"between {self._between}, now {between}")
        if other:
            lines.append(f"before, other things differed as well: {'; '.join(other)}")
        return lines


def _result(each: dict[str, Any]) -> Result:
    values = [float(value) for value in each["values"]]
    if not values or min(values) <= 0 or each["unit"] not in _SHOWN:
        raise ValueError("no result")
    return Result(
        *(str(each["test"]), int(each["size"]), each["unit"]),
        *(int(each["window"]), int(each["count"]), values),
    )


def heading(terminal: Terminal, before: Before | None) -> str:
    """The first line of the table."""
    line = f"{_COLUMNS}{'' if before is None else _BEFORE}  unit"
    return terminal.paint(line, "bold")


def row(result: Result, before: Before | None, terminal: Terminal) -> str:
    """The line of a result."""
    unit, divisor, digits = _SHOWN[result.unit]
    size = "" if result.test == "barrier" else human(result.size)

    def number(value: float) -> str:
        return f"{value / divisor:>12,.{digits}f}"

    line = f"{result.test:9}{size:>9}{number(result.best)}{number(result.median)}"
    if before is not None:
        was = before.find(result)
        text, style = ("", "") if was is None else _change(was, result)
        line += f"{'-':>12}" if was is None else number(was.best)
        line += f"  {terminal.paint(f'{text:12}', style)}"
    return f"{line}  {unit}"


def _change(was: Result, now: Result) -> tuple[str, str]:
    """By how much the best value has changed, and the style of that."""
    if min(was.values) <= max(now.values) and min(now.values) <= max(was.values):
        return "same", ""
    gain = now.best / was.best if now.is_rate else was.best / now.best
    if gain > 1:
        return f"{_percent(gain)} faster", "green"
    return f"{_percent(1 / gain)} slower", "red"


def _percent(ratio: float) -> str:
    """How much more that is: "12 %", and "3.4 x" from twice on."""
    if ratio < 2:
        return f"{(ratio - 1) * 100:.0f} %"
    return f"{ratio:.2g} x" if ratio < 10 else f"{min(ratio, 9999):.0f} x"


def notes(tests: Iterable[str], windows: dict[str, int]) -> str:
    """What the numbers of these tests are; "" if they need no note."""
    told = {
        "latency": "latency is half a round trip",
        "bandwidth": f"bandwidth is one way, {windows['bandwidth']} messages under way",
        "rate": f"rate is one way, {windows['rate']} messages with each call",
    }
    return "; ".join(told[test] for test in dict.fromkeys(tests) if test in told)


def human(size: int) -> str:
    """8 B, 64 KiB, 1 MiB."""
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size >= 1 << shift and size % (1 << shift) == 0:
            return f"{size >> shift} {unit}"
    return f"{size} B"
