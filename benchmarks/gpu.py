# SPDX-License-Identifier: BSD-3-Clause
"""Messages between kinds of memory in two processes, beside the driver's own copies.

A message goes one way: its time ends when an answer of 8 bytes of the host is there.
Fresh arrays are new for each message, all others are used again. `ucp.Memory` is
"memory". The driver's copies are those of one process: from and to pinned memory,
from and to ordinary memory ("pageable"), and within the device. "cancel" is what
cancelling a receive takes while its message comes. Rows whose memory or library is
not to be had are left out, and sizes at which one message would take a second.

python benchmarks/gpu.py [--rounds 3] [--sizes 8,64K,1M,16M,64M,256M] [--limit 170]
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import random
import statistics
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import _harness
from _contenders import human, sizes, ucx_environment
from _gpu import DRIVER, HOST, LIBRARIES
from _process import Child

PROGRAM = str(Path(__file__).with_name("_gpu.py"))
SLOWEST = 1.0  # seconds of a message
FULL_SPEED = 64 << 10  # longer ones take the longer the longer they are
LATENCY = 4096  # shorter ones are shown as microseconds
EXPANDABLE = "expandable_segments:True"


class Way(NamedTuple):
    """Kinds of memory, the driver's copy to compare with, and a setting."""

    source: str
    target: str
    copy: str | None = None
    env: dict[str, str] | None = None
    library: str = "ucp"
    cma_max: int | None = None


COPIES = {
    "copy, pinned to device": Way("pinned", "device", library="driver"),
    "copy, pageable to device": Way("pageable", "device", library="driver"),
    "copy, device to pinned": Way("device", "pinned", library="driver"),
    "copy, device to pageable": Way("device", "pageable", library="driver"),
    "copy, device to device": Way("device", "device", library="driver"),
}
IN_PINNED, IN_PAGEABLE, OUT_PINNED, OUT_PAGEABLE, WITHIN = COPIES
NO_IPC, NO_CUDA = {"UCX_TLS": "^cuda_ipc"}, {"UCX_MODULES": "^cuda"}
TCP = {"UCX_TLS": "tcp,cuda_copy"}
WAYS = {
    "numpy to device": Way("numpy", "device", IN_PAGEABLE),
    "fresh numpy to device": Way("fresh numpy", "device", IN_PAGEABLE),
    "numpy to device, cma_max": Way("numpy", "device", IN_PAGEABLE, cma_max=1 << 40),
    "memory to device": Way("memory", "device", IN_PINNED),
    "pinned to device": Way("pinned", "device", IN_PINNED),
    "device to numpy": Way("device", "numpy", OUT_PAGEABLE),
    "device to fresh numpy": Way("device", "fresh numpy", OUT_PAGEABLE),
    "device to memory": Way("device", "memory", OUT_PINNED),
    "device to pinned": Way("device", "pinned", OUT_PINNED),
    "device": Way("device", "device", WITHIN),
    "device, no cuda_ipc": Way("device", "device", WITHIN, NO_IPC),
    "device, UCX without CUDA": Way("device", "device", WITHIN, NO_CUDA),
    "device, tcp": Way("device", "device", WITHIN, TCP),
    "managed to device": Way("managed", "device", WITHIN),
    "async": Way("async", "async", WITHIN),
    "cupy": Way("cupy", "cupy", WITHIN),
    "cupy-async": Way("cupy-async", "cupy-async", WITHIN),
    "cupy-managed to cupy": Way("cupy-managed", "cupy", WITHIN),
    "numpy to cupy": Way("numpy", "cupy", IN_PAGEABLE),
    "torch": Way("torch", "torch", WITHIN),
    "torch-expandable": Way("torch-expandable", "torch-expandable", WITHIN),
    "numpy": Way("numpy", "numpy"),
    "ucxx, numpy to cupy": Way("numpy", "cupy", IN_PAGEABLE, library="ucxx"),
    "ucxx, cupy to numpy": Way("cupy", "numpy", OUT_PAGEABLE, library="ucxx"),
    "ucxx, cupy": Way("cupy", "cupy", WITHIN, library="ucxx"),
}
CANCEL = "cancel"
CANCELLED = ("numpy", "numpy to device", "device to numpy", "device")
DASK = (("ucp", 8192, 2048), ("tcp", 8192, 2048), ("ucp", 16384, 4096))
DASK_LIMIT, DASK_SHARE = 25.0, 50.0  # seconds of one, and kept for all


# ---- processes -----------------------------------------------------------------------


def variables(way: Way) -> dict[str, str]:
    if way.library == "driver":
        return {}
    kinds = f"{way.source} {way.target}"
    env = {**ucx_environment("shm", {}), **(way.env or {})}
    if "expandable" in kinds:
        names = "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"
        env |= dict.fromkeys(names, EXPANDABLE)
    return env


def role(*words: str) -> list[str]:
    return [sys.executable, "-P", PROGRAM, *words]


class Pairs:
    """Processes that stay: rows of the same libraries and settings share them."""

    def __init__(self, stack: ExitStack, limit: float) -> None:
        self.stack = stack
        self.limit = limit
        self.clients: dict[object, Child | None] = {}
        self.starting = 0.0  # seconds of all starts

    def ask(
        self, way: Way, what: str, size: int, count: int, limit: float
    ) -> list[float]:
        """Seconds of each message; a process that fails is not asked again."""
        key = self._key(way)
        if key not in self.clients:
            self.clients[key] = None  # until it is there
            begun = time.monotonic()
            self.clients[key] = self._start(way)
            self.starting += time.monotonic() - begun
        child = self.clients[key]
        if child is None:
            raise RuntimeError("its processes have failed before")
        child.deadline = time.monotonic() + limit
        try:
            child.send(json.dumps([what, way.source, way.target, size, count]))
            return [float(seconds) for seconds in child.message()["times"]]
        except (RuntimeError, OSError, ValueError):
            self.clients[key] = None
            raise

    def _key(self, way: Way) -> object:
        libraries = {LIBRARIES.get(kind) for kind in (way.source, way.target)}
        env = tuple(sorted(variables(way).items()))
        # What device memory has to do with the processes changes UCX's choices.
        has_device = not {way.source, way.target} <= set(HOST)
        return way.library, way.cma_max, env, frozenset(libraries - {None}), has_device

    def _start(self, way: Way) -> Child:
        env = variables(way)
        if way.library == "driver":
            return self.stack.enter_context(Child(role("copy"), env, False, 1))
        is_of_host = {way.source, way.target} <= set(HOST)
        words = [way.library, "host" if is_of_host else "device"]
        last = [] if way.cma_max is None else [str(way.cma_max)]
        server = self.stack.enter_context(
            Child(role("serve", *words, *last), env, False, 0)
        )
        port = str(server.message()["port"])
        command = role("drive", *words, port, *last)
        return self.stack.enter_context(Child(command, env, False, 1))


def usable() -> list[str]:
    """The rows whose memory and library are here; says which are not."""
    kinds = [*HOST, *DRIVER, *LIBRARIES]
    reasons: dict[str, str] = {}
    cupy = tuple(kind for kind in LIBRARIES if LIBRARIES[kind] == "cupy")
    for group in (HOST, DRIVER, cupy, ("torch",), ("torch-expandable",)):
        env = variables(Way(group[0], group[0]))
        with Child(role("probe", *group), env, False, 1) as child:
            try:
                reasons |= child.message()
            except RuntimeError as error:
                reasons |= dict.fromkeys(group, str(error))
    for kind in kinds:
        if reasons[kind]:
            print(f"without {kind}: {reasons[kind]}", flush=True)
    if importlib.util.find_spec("ucxx") is None:
        reasons["ucxx"] = "ucxx is not installed"
        print("without ucxx: it is not installed", flush=True)
    return [
        name
        for name, way in {**COPIES, **WAYS}.items()
        if not any(reasons.get(need) for need in (way.source, way.target, way.library))
        and (way.library != "driver" or not reasons["device"])
    ]


# ---- measuring -----------------------------------------------------------------------


def expected_of(known: dict[int, float], size: int) -> float:
    """Seconds of a message: what it took before, or what a smaller one says."""
    smaller = [one for one in known if one <= size]
    if not smaller:
        return 1e-3
    before = max(smaller)
    return known[before] * max(1.0, size / max(before, FULL_SPEED))


class Run:
    """Samples of one run: microseconds of a message, the median of a round."""

    def __init__(self, plan: _harness.Plan, limit: float) -> None:
        self.plan = plan
        self.end = time.monotonic() + limit
        self.samples: list[_harness.Sample] = []
        self.seconds: dict[tuple[str, str], dict[int, float]] = {}  # of each size
        self.best: dict[tuple[str, str], float] = {}
        self.failed: dict[str, str] = {}
        self.slow: set[tuple[str, str]] = set()

    def left(self) -> float:
        return self.end - time.monotonic()

    def sample(self, pairs: Pairs, name: str, what: str, size: int, turn: int) -> None:
        way = {**COPIES, **WAYS}[name]
        case = CANCEL if what == CANCEL else human(size)
        known = self.seconds.setdefault((name, what), {})
        expected = expected_of(known, size)
        if expected > SLOWEST:
            self.slow.add((case, name))
        if name in self.failed or expected > SLOWEST or self.left() < 2:
            return
        count = max(1, min(200, int(self.plan.seconds / expected)))
        limit = max(2.0, min(30.0, self.left()))
        try:
            if turn == 0:
                pairs.ask(way, what, size, 1, limit)  # memory is made, and found
            times = pairs.ask(way, what, size, count + 1, limit)
        except (RuntimeError, OSError, ValueError) as error:
            self.failed[name] = str(error)
            error_sample = _harness.Sample(case, name, turn, 0, error=str(error))
            self.samples.append(error_sample)
            return
        times = times[1:] if what != CANCEL else times
        if not times:
            return
        middle = statistics.median(times)
        known[size] = middle
        self.samples.append(_harness.Sample(case, name, turn, 0, 1e6 * middle))
        key = case, name
        self.best[key] = min(self.best.get(key, 1e9), 1e6 * min(times))

    def rounds(self, names: list[str], lengths: list[int]) -> None:
        """All rows and sizes, as often as there is time."""
        order = random.Random(self.plan.seed)
        with ExitStack() as stack:
            pairs = Pairs(stack, self.left())
            for turn in range(self.plan.rounds):
                begun = time.monotonic() - pairs.starting
                for size in lengths:
                    for name in order.sample(names, len(names)):
                        self.sample(pairs, name, "send", size, turn)
                for name in filter(names.__contains__, CANCELLED):
                    self.sample(pairs, name, CANCEL, min(16 << 20, lengths[-1]), turn)
                if time.monotonic() - pairs.starting - begun > self.left():
                    break

    def dask(self) -> None:
        needed = ("cupy", "dask", "distributed")
        missing = [name for name in needed if importlib.util.find_spec(name) is None]
        if missing:
            print(f"without Dask: {', '.join(missing)} not installed", flush=True)
            return
        for protocol, side, chunk in DASK:
            name, case = f"dask, {protocol}", f"x + x.T {side} / {chunk}"
            if self.left() < 5:
                return
            with Child(
                role("dask", protocol, str(side), str(chunk)), {}, False, 1
            ) as child:
                child.deadline = time.monotonic() + min(DASK_LIMIT, self.left())
                sample = _harness.Sample(case, name, 0, 0)
                try:
                    times = child.message()["times"]
                    sample.value = 1e6 * statistics.median(times)
                    self.best[case, name] = 1e6 * min(times)
                except (RuntimeError, ValueError) as error:
                    sample.error = str(error)
                self.samples.append(sample)


# ---- output --------------------------------------------------------------------------


def table(run: Run, results: _harness.Results, lengths: list[int]) -> str:
    cases = [*map(human, lengths), CANCEL]
    rows = [["", *cases]]
    for name in results.contenders:
        if not name.startswith("dask"):
            cells = [
                cell(run, results, name, case, size)
                for case, size in zip(cases, [*lengths, 0], strict=True)
            ]
            rows.append([name, *cells])
    head = (
        "Best/median of one message, one way and an answer: us below 4 KiB and of a "
        "cancel, GB/s else; in brackets the median's part of the rate of the "
        "driver's own copy.\n\n"
    )
    lines = [head + _harness.markdown(rows)]
    for sample in results.samples:
        if sample.contender.startswith("dask") and sample.value:
            side = int(sample.case.split()[3])
            best = run.best[sample.case, sample.contender]
            rates = [side * side * 8 / us / 1e3 for us in (best, sample.value)]
            text = "/".join(map(_harness.number, rates))
            lines.append(f"{sample.contender}: {sample.case}: {text} GB/s of x")
    return "\n".join(lines)


def cell(run: Run, results: _harness.Results, name: str, case: str, size: int) -> str:
    middle, best = results.median(case, name), run.best.get((case, name))
    if middle is None or best is None:
        if (case, name) in run.slow:
            return "too slow"
        return "failed" if name in run.failed else ""
    if size < LATENCY:
        return f"{_harness.number(best)}/{_harness.number(middle)}"
    rates = [_harness.number(size / us / 1e3) for us in (best, middle)]
    way = WAYS.get(name)
    copied = results.median(case, way.copy) if way and way.copy else None
    ratio = f" ({copied / middle:.2f})" if copied else ""
    return "/".join(rates) + ratio


def options_of(words: list[str] | None = None) -> argparse.Namespace:
    parser = _harness.parser(__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="8,64K,1M,16M,64M,256M", type=sizes)
    parser.add_argument("--only", help="rows, separated by semicolons")
    parser.add_argument("--limit", type=float, default=170, help="seconds in all (170)")
    options = parser.parse_args(words)
    options.compare = None
    return options


def main() -> int:
    options = options_of()
    plan = _harness.plan_of(options)
    plan.rounds = options.rounds or (2 if options.quick else 3)
    plan.seconds = options.seconds or (0.01 if options.quick else 0.05)
    run = Run(plan, options.limit)
    names = usable()
    if options.only:
        wanted = options.only.split(";")
        names = [name for name in names if name in (*COPIES, *wanted)]
    # Dask comes last, and its time is kept for it.
    has_dask = not options.only and importlib.util.find_spec("cupy") is not None
    share = min(DASK_SHARE, options.limit / 3) if has_dask else 0.0
    run.end -= share
    run.rounds(names, options.sizes)
    run.end += share
    if not options.only:
        run.dask()
    dask = dict.fromkeys(f"dask, {protocol}" for protocol, *_ in DASK)
    measured = {sample.contender for sample in run.samples}
    names = [name for name in (*names, *dask) if name in measured]
    results: Any = _harness.Results("gpu", "us", "", names, run.samples)
    _harness.finish(results, options, lambda _: table(run, results, options.sizes))
    return 1 if any(sample.error for sample in run.samples) else 0


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    sys.exit(main())
