# SPDX-License-Identifier: BSD-3-Clause
"""Contenders whose processes stay, and sleep while the others are measured."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol, Self

import _harness
from _harness import Plan, Results, Sample

MAX_TIMES = 20000


class Side(Protocol):
    """The processes of one contender; leaving the block ends them."""

    name: str

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc: object) -> None: ...

    def measure(self, case: Any, seconds: float) -> float:
        """The case's value, by about as many seconds."""
        ...


class Counts:
    """How many operations of each case fill a measurement.

    How many these are is found out by the first call, and follows the machine: beside
    other work an operation may take a hundred times as long.
    """

    def __init__(self) -> None:
        self._counts: dict[Hashable, int] = {}

    def seconds_of(
        self, case: Hashable, seconds: float, ask: Callable[[int], float]
    ) -> float:
        """What an operation takes: `ask(times)` says it of so many of them."""
        if case not in self._counts:
            few = min(ask(3), ask(10))
            self._counts[case] = max(3, min(MAX_TIMES, int(seconds / few)))
        times = self._counts[case]
        took = ask(times)
        wanted = max(times // 4, min(4 * times, int(seconds / took)))
        self._counts[case] = max(3, min(MAX_TIMES, wanted))
        return took


def start(
    starts: Sequence[tuple[str, Callable[[], Side]]],
    stack: contextlib.ExitStack,
    failed: Callable[[str, str], None],
) -> list[Side]:
    """Those that can be started."""
    sides = []
    for name, begin in starts:
        try:
            sides.append(stack.enter_context(begin()))
        except (RuntimeError, OSError) as error:
            failed(name, str(error))
    return sides


def run_rounds(
    results: Results,
    sides: list[Side],
    cases: Sequence[Any],
    plan: Plan,
    numbers: range,
    end: float = float("inf"),
) -> None:
    """Take a sample of each case and side in each round, the sides in random order.

    A round but the first stops at the time `end`.
    """
    seed = None if plan.seed is None else f"{plan.seed} {numbers.start}"
    order = random.Random(seed)
    for number, case in ((number, case) for number in numbers for case in cases):
        if number > numbers.start and time.monotonic() > end:
            return
        text = f"{results.benchmark}: round {number + 1}/{plan.rounds}, {case}"
        _harness.progress(plan, text)
        state = _harness.state_of_machine() if plan.probe else 0.0
        for side in order.sample(sides, len(sides)):
            sample = Sample(str(case), side.name, number, state)
            try:
                sample.value = side.measure(case, plan.seconds)
            except _harness.FAILURES as error:
                sample.error = str(error)
                if not isinstance(side, Fresh):
                    sides.remove(side)  # its processes are in different operations
            results.samples.append(sample)


# --- processes that are new now and then ----------------------------------------


class Fresh:
    """A side that is started when it is needed, and again after a failure.

    A case that has failed is not tried again.
    """

    def __init__(self, name: str, begin: Callable[[], Side]) -> None:
        self.name = name
        self._begin = begin
        self._stack = contextlib.ExitStack()
        self._side: Side | None = None
        self._never: str | None = None  # why it cannot be started
        self._failed: dict[Any, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        """End the processes; the next measurement has new ones."""
        self._side = None
        self._stack.close()

    def _started(self) -> Side:
        if self._side is None:
            try:
                self._side = self._stack.enter_context(self._begin())
            except _harness.FAILURES as error:
                self._never = str(error)
                raise
        return self._side

    def measure(self, case: Any, seconds: float) -> float:
        if reason := self._never or self._failed.get(case):
            raise RuntimeError(reason)
        try:
            return self._started().measure(case, seconds)
        except _harness.FAILURES as error:
            self._failed[case] = str(error)
            self.__exit__()
            raise


def fresh_rounds(
    results: Results,
    starts: Sequence[tuple[str, Callable[[], Side]]],
    cases: Sequence[Any],
    plan: Plan,
    each: int = 1,
) -> None:
    """Rounds whose processes are new after every `each` of them.

    What differs between two starts of one program, such as where its memory lies,
    is then among what differs between the rounds.
    """
    sides = [Fresh(name, begin) for name, begin in starts]
    for first in range(0, plan.rounds, each):
        with contextlib.ExitStack() as stack:
            for side in sides:
                stack.enter_context(side)
            numbers = range(first, min(first + each, plan.rounds))
            run_rounds(results, [*sides], cases, plan, numbers)
    _harness.progress(plan, "")
