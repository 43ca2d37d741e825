# SPDX-License-Identifier: BSD-3-Clause
"""Ranks of one host as people start them: `ucp.sync` compared with mpi4py.

Messages one at a time, 16 in flight, Python objects, and collective operations,
between 2 and 4 ranks that `python -m ucp run` and mpiexec have started. Nothing is
pinned. Microseconds: half a round trip (send, object), a message (isend), or the
whole operation, of the slowest rank; with 4 ranks two pairs exchange messages at the
same time. Behind a value: how many times as fast as mpi4py that is.

python benchmarks/ranks.py [--quick] [--ranks 2,4] [--kinds send,barrier]
    [--mpi /venv/bin/python] [--mpiexec "mpiexec"] [--other /old/venv/bin/python]
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import select
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import _harness
import _sides
from _contenders import human, sizes
from _harness import Plan, Results
from _process import Child
from _sides import Counts

RANK = Path(__file__).with_name("_ranks.py")
BASE = "mpi4py"
WINDOW = 16
LIMIT = 60.0  # seconds for one measurement, and for the ranks to meet
MESSAGES = ("send", "isend", "object")
# What is measured, and for which sizes.
KINDS = {
    "send": "8,1K,4K,16K,64K,256K,1M,16M",
    "isend": "8,4K,64K,1M",
    "object": "100,8M",
    "bcast object": "100",
    "allreduce object": "8",
    "barrier": "0",
    "bcast": "8,1K,64K,1M,16M",
    "allreduce": "8,1K,64K,1M,16M",
    "allgather": "8,1K,64K,1M,16M",
    "alltoall": "8,1K,64K,1M,16M",
}


@dataclass(frozen=True)
class Case:
    """One thing to measure."""

    ranks: int
    kind: str
    nbytes: int

    def __str__(self) -> str:
        size = f" {human(self.nbytes)}" if self.nbytes else ""
        return f"{self.ranks} ranks, {self.kind}{size}"

    def task(self, times: int) -> str:
        what = {"kind": self.kind, "nbytes": self.nbytes, "window": WINDOW}
        return json.dumps({**what, "times": times}) + "\n"

    def microseconds(self, seconds: float) -> float:
        """What is shown of the seconds of one call."""
        parts = {"send": 2, "object": 2, "isend": WINDOW}
        return seconds * 1e6 / parts.get(self.kind, 1)


# --- the contenders -----------------------------------------------------------


@dataclass(frozen=True)
class Contender:
    """How ranks are started, before `_ranks.py LIBRARY PATH`."""

    name: str
    library: str
    command: Callable[[int], list[str]]


def by_ucp_run(name: str, python: str) -> Contender:
    start = [python, "-P", "-m", "ucp", "run", "--no-prefix", "-n"]
    return Contender(name, "ucp", lambda ranks: [*start, str(ranks), str(RANK)])


def by_mpiexec(name: str, library: str, mpiexec: str, python: str) -> Contender:
    start = [*shlex.split(mpiexec), "-n"]
    return Contender(
        name, library, lambda ranks: [*start, str(ranks), python, "-P", str(RANK)]
    )


def can_import(python: str, module: str) -> bool:
    found = subprocess.run([python, "-P", "-c", f"import {module}"], check=False)
    return found.returncode == 0


def find_contenders(options: argparse.Namespace) -> list[Contender]:
    """Those that can be started here; says who cannot."""
    found = [by_ucp_run("ucp", sys.executable)]
    beside = str(Path(options.mpi).parent)
    mpiexec = options.mpiexec or shutil.which("mpiexec", path=beside) or "mpiexec"
    if shutil.which(shlex.split(mpiexec)[0]) is None:
        print("without mpi4py: there is no mpiexec", file=sys.stderr)
    else:
        found.append(by_mpiexec("ucp-mpiexec", "ucp", mpiexec, sys.executable))
        if can_import(options.mpi, "mpi4py.MPI"):
            found.append(by_mpiexec(BASE, "mpi4py", mpiexec, options.mpi))
        else:
            print(f"without mpi4py: {options.mpi} has none", file=sys.stderr)
    if options.other:
        found.append(by_ucp_run("other", options.other))
    if options.only:
        names = options.only.split(",")
        found = [contender for contender in found if contender.name in names]
    return found


class Ranks:
    """The ranks of one contender; leaving the block ends them."""

    def __init__(self, contender: Contender, count: int) -> None:
        self.name = contender.name
        self._stack = contextlib.ExitStack()
        self._counts = Counts()
        folder = self._stack.enter_context(tempfile.TemporaryDirectory())
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(f"{folder}/ranks")
            server.listen(count)
            command = [*contender.command(count), contender.library, f"{folder}/ranks"]
            child = Child(command, {}, pinned=False, index=0)
            self._child = self._stack.enter_context(child)
            self._ranks = [self._accept(server) for _ in range(count)]

    def _accept(self, server: socket.socket) -> socket.socket:
        """A rank that has met the others."""
        deadline = time.monotonic() + LIMIT
        while not select.select([server], [], [], 0.1)[0]:
            if self._child.process.poll() is not None:
                raise self._child.failure("the ranks have ended")
            if time.monotonic() > deadline:
                raise self._child.failure(f"the ranks have not met in {LIMIT:g} s")
        sock = self._stack.enter_context(server.accept()[0])
        self._read(sock, deadline)
        return sock

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def _read(self, sock: socket.socket, deadline: float) -> float:
        """The number that a rank says."""
        line = b""
        while not line.endswith(b"\n"):
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([sock], [], [], left)[0]:
                raise RuntimeError(f"no answer in {LIMIT:g} s")
            part = sock.recv(100)
            if not part:
                self._child.process.wait(5)
                raise self._child.failure("a rank has ended")
            line += part
        return float(line)

    def _ask(self, case: Case, times: int) -> float:
        """Seconds of one operation on the slowest rank."""
        for sock in self._ranks:
            sock.sendall(case.task(times).encode())
        deadline = time.monotonic() + LIMIT
        return max(self._read(sock, deadline) for sock in self._ranks)

    def measure(self, case: Case, seconds: float) -> float:
        """Microseconds, by as many operations as fill the seconds."""
        ask = functools.partial(self._ask, case)
        return case.microseconds(self._counts.seconds_of(case, seconds, ask))


def starts(
    contenders: Iterable[Contender], count: int
) -> list[tuple[str, Callable[[], _sides.Side]]]:
    """How the ranks of each are started, and what an error names."""
    return [(each.name, functools.partial(Ranks, each, count)) for each in contenders]


# --- rounds -------------------------------------------------------------------


def by_number(cases: Sequence[Case]) -> Iterator[tuple[int, list[Case]]]:
    """The cases of each number of ranks."""
    for count in dict.fromkeys(case.ranks for case in cases):
        yield count, [case for case in cases if case.ranks == count]


def measure(
    contenders: Sequence[Contender], cases: Sequence[Case], plan: Plan, limit: float
) -> Results:
    """All samples; `limit` is in seconds, for each number of ranks."""
    names = [contender.name for contender in contenders]
    results = Results("ranks", "us", BASE, names)

    def missing(name: str, error: str) -> None:
        print(f"without {name}, {count} ranks: {error}", file=sys.stderr)

    for count, mine in by_number(cases):
        with contextlib.ExitStack() as stack:
            sides = _sides.start(starts(contenders, count), stack, missing)
            end = time.monotonic() + limit
            _sides.run_rounds(results, sides, mine, plan, range(plan.rounds), end)
    _harness.progress(plan, "")
    return results


# --- output -------------------------------------------------------------------


def cell(results: Results, case: str, name: str) -> str:
    best, middle = results.best(case, name), results.median(case, name)
    if best is None or middle is None:
        return "failed" if any(s.contender == name for s in results.samples) else ""
    text = "/".join(map(_harness.number, (best, middle)))
    ratio = results.ratio(case, BASE, name)
    return text if name == BASE or not ratio else f"{text} (x{ratio:.2f})"


def table(results: Results) -> str:
    names = results.contenders
    rows = [["ranks", *names]]
    rows += [
        [case, *(cell(results, case, name) for name in names)]
        for case in results.cases()
    ]
    head = "us, best/median (less is better); in brackets mpi4py's best over this best"
    return f"{head}.\n\n{_harness.markdown(rows)}"


def bar_of(case: Case, name: str) -> float | None:
    """How many times as fast as mpi4py a contender must be."""
    if case.ranks == 4:
        is_small = case.kind not in MESSAGES and case.nbytes <= 1024
        limits = {"ucp": 1.5, "ucp-mpiexec": 0.8}
        return limits.get(name) if is_small and "object" not in case.kind else None
    if name != "ucp":
        return None
    if "object" in case.kind:
        return 2 if case.nbytes > 1 << 20 else 1
    if case.kind == "isend":
        return 1 if case.nbytes <= 1 << 20 else None
    if case.kind == "send":
        return 1.3 if case.nbytes <= 1 << 20 else 1.1
    limits = [(1 << 10, 2.0), (1 << 16, 1.2), (1 << 20, 1.1)]
    return next((bar for nbytes, bar in limits if case.nbytes <= nbytes), 1.0)


def bars(results: Results, cases: Iterable[Case]) -> Iterator[str]:
    """What must be reached, and whether it is."""
    for case in cases:
        for name in results.contenders:
            bar = bar_of(case, name)
            ratio = results.ratio(str(case), BASE, name)
            if bar is not None and ratio:
                verdict = "reached" if ratio >= bar else "MISSED"
                yield f"{case}, {name}: x{ratio:.2f}, at least x{bar:g}: {verdict}"


def main() -> None:
    parser = _harness.parser(__doc__.splitlines()[0])
    add = parser.add_argument
    add("--ranks", default="2,4", help="how many (%(default)s)")
    add("--kinds", default=",".join(KINDS), help="what is measured (%(default)s)")
    add("--sizes", type=sizes, help="bytes, of all but barrier and objects")
    add("--mpi", default=sys.executable, metavar="PYTHON", help="has mpi4py")
    add("--mpiexec", help="the command (beside that Python, or in PATH)")
    add("--other", metavar="PYTHON", help="has another ucp, to compare with")
    add("--only", metavar="NAMES", help="contenders, separated by commas")
    add("--compare", metavar="FILE", help="JSON of an earlier run")
    options = parser.parse_args()
    plan = _harness.plan_of(options)
    if options.seconds is None:
        plan.seconds = 0.02 if options.quick else 0.04
    if options.rounds is None:
        plan.rounds = 5 if options.quick else 15
    cases = [
        Case(int(ranks), kind, size)
        for ranks in options.ranks.split(",")
        for kind in options.kinds.split(",")
        for size in sizes_of(kind, options.sizes)
    ]
    limit = 60.0 if options.quick else 300.0  # on a machine that is busy otherwise
    results = measure(find_contenders(options), cases, plan, limit)

    def shown(results: Results) -> str:
        return "\n".join([table(results), "", *bars(results, cases)])

    _harness.finish(results, options, shown)


def sizes_of(kind: str, asked: list[int] | None) -> list[int]:
    usual = sizes(KINDS[kind])
    is_fixed = kind == "barrier" or "object" in kind
    return usual if asked is None or is_fixed else asked


if __name__ == "__main__":
    main()
