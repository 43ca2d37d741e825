# SPDX-License-Identifier: BSD-3-Clause
"""What people write with ucp, in two processes as they start them.

Nothing is pinned, and nothing else is set. Microseconds, each for one of:

    gather    64 sends by one `asyncio.gather`, as many receives by another one, and
              an answer: a message
    ucp.gather  the same by `ucp.gather`: a message
    post      the same by posting all, then awaiting each: a message
    TaskGroup  the same by a task for each: a message
    send_many  the same by `send_many` and `recv_many`: a message
    streams   64 writes to asyncio's streams over an endpoint, each drained, as many
              reads of that length, and an answer: a write
    request   `send_obj` and `recv_obj`: a question and its answer
    clients   the same of 8 clients at a time, by gather: a question and its answer
    pickle    `send_pickle` and `recv_pickle` of a small object: there and back
    array     `await ep.send(array)` of NumPy, and an answer of 8 bytes
    connect   `async with ucp.connect(...)`, one message, and the end of the block
    put, get  of memory of the peer
    sync      `ucp.sync`, in a thread, and a server of asyncio: a round trip

python benchmarks/idioms.py [--quick] [--kinds gather,put] [--loop uvloop]
    [--other /old/venv/bin/python]
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import _harness
import _sides
from _contenders import human, sizes
from _harness import Plan, Results
from _process import TIME_LIMIT, Child
from _sides import Counts

PROGRAM = Path(__file__).with_name("_idioms.py")
# What is measured, and for which sizes.
KINDS = {
    "gather": "8,4K,64K",
    "ucp.gather": "8,4K,64K",
    "post": "8,4K,64K",
    "TaskGroup": "8,4K,64K",
    "send_many": "8,4K,64K",
    "streams": "8,4K,64K",
    "request": "100,64K",
    "clients": "100",
    "pickle": "0",
    "array": "1M,16M",
    "connect": "0",
    "put": "8,64K",
    "get": "8,64K",
    "sync": "8,64K",
}
PARTS = {
    "gather": 64,
    "ucp.gather": 64,
    **dict.fromkeys(("post", "TaskGroup", "send_many", "streams"), 64),
    "clients": 8,
}  # of what is timed as one


@dataclass(frozen=True)
class Case:
    """One thing to measure."""

    kind: str
    nbytes: int

    def __str__(self) -> str:
        return f"{self.kind} {human(self.nbytes)}" if self.nbytes else self.kind

    def task(self, times: int) -> str:
        total = times + times // 10 + 2  # with those that warm up
        what = {"kind": self.kind, "nbytes": self.nbytes}
        return json.dumps({**what, "times": times, "total": total})


class Pair:
    """A server and its client; leaving the block ends them."""

    def __init__(self, name: str, python: str, loop: str) -> None:
        self.name = name
        self._counts = Counts()
        command = [python, "-P", str(PROGRAM)]
        with contextlib.ExitStack() as stack:
            server = Child([*command, "server", loop], {}, pinned=False, index=0)
            self._server = stack.enter_context(server)
            port = str(server.message()["port"])
            client = Child([*command, "client", loop, port], {}, pinned=False, index=1)
            self._client = stack.enter_context(client)
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def _ask(self, case: Case, times: int) -> float:
        """Seconds of one operation."""
        self._client.deadline = time.monotonic() + TIME_LIMIT
        try:
            self._client.send(case.task(times))
            return float(self._client.message()["value"])
        except (RuntimeError, OSError) as error:
            raise RuntimeError(f"{error}; {self._server.failure('server')}") from error

    def measure(self, case: Case, seconds: float) -> float:
        """Microseconds, by as many operations as fill the seconds."""
        ask = functools.partial(self._ask, case)
        took = self._counts.seconds_of(case, seconds, ask)
        return took * 1e6 / PARTS.get(case.kind, 1)


def cases(kinds: Sequence[str]) -> list[Case]:
    return [Case(kind, size) for kind in kinds for size in sizes(KINDS[kind])]


def starts(
    pythons: dict[str, str], loop: str
) -> list[tuple[str, Callable[[], _sides.Side]]]:
    """How the pair of each is started, and what an error names."""
    return [
        (name, functools.partial(Pair, name, python, loop))
        for name, python in pythons.items()
    ]


def measure(
    pythons: dict[str, str], what: Sequence[Case], plan: Plan, loop: str, base: str
) -> Results:
    """All samples; each round has new processes."""
    results = Results("idioms", "us", base, list(pythons))
    _sides.fresh_rounds(results, starts(pythons, loop), what, plan)
    return results


def table(results: Results) -> str:
    rows = [[results.benchmark, *results.contenders]]
    for case in results.cases():
        cells = (_harness.cell(results, case, name) for name in results.contenders)
        rows.append([case, *cells])
    head = "us, best/median (less is better)"
    if results.base:
        head += f"; in brackets best to best of {results.base}, and in the round"
    return f"{head}.\n\n{_harness.markdown(rows)}"


def kinds(text: str) -> list[str]:
    names = text.split(",")
    if unknown := [name for name in names if name not in KINDS]:
        there = ", ".join(KINDS)
        raise argparse.ArgumentTypeError(
            f"unknown: {', '.join(unknown)}; there are {there}"
        )
    return names


def main() -> None:
    parser = _harness.parser(__doc__.splitlines()[0])
    add = parser.add_argument
    add("--kinds", default=list(KINDS), type=kinds, help="what is measured (all)")
    add("--loop", default="asyncio", choices=("asyncio", "uvloop"))
    add("--other", metavar="PYTHON", help="has another ucp, to compare with")
    add("--compare", metavar="FILE", help="JSON of an earlier run")
    options = parser.parse_args()
    plan = _harness.plan_of(options)
    if options.seconds is None:
        plan.seconds = 0.05 if options.quick else 0.2
    pythons = {"ucp": sys.executable}
    if options.other:
        pythons["other"] = options.other
    base = "other" if options.other else ""
    results = measure(pythons, cases(options.kinds), plan, options.loop, base)
    _harness.finish(results, options, table)


if __name__ == "__main__":
    main()
