# SPDX-License-Identifier: BSD-3-Clause
"""Litmus tests of what threads and processes tell each other by stores and loads.

Each test is the core of a protocol: a few accesses of two or three threads, and
values that the loads must never give together. `is_allowed()` goes through all
executions that give these values and asks a model whether one of them may happen:

    rc11      C11 as repaired by Lahav and others: what a compiler may make of it
    aarch64   Armv8 as compilers use it: exclusives, or with `lse` atomic
              instructions; an acquire load may be LDAPR
    x86       total store order

x86 keeps nearly every order, so a test that runs there shows no such fault. The
variants of a protocol have one part of it left out: by them it is seen that the
part is needed, and that the models find a fault.

    python tests/model/litmus.py      prints the table of PROTOCOLS

An access is a tuple: ("W", variable, value, order), ("R", variable, value, order),
("U", variable, old value, new value, order) for an atomic operation, ("F", order)
for a fence, and ("M", thread) for a membarrier, which executes a fence in that
thread as well, wherever it is. Variables are zero at first, and no two stores to
one have the same value. Dependencies of addresses and data order nothing here.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

RELEASES = ("rel", "acq_rel", "sc")
ACQUIRES = ("acq", "acq_rel", "sc")

Access = tuple[Any, ...]
Threads = tuple[tuple[Access, ...], ...]
Relation = set[tuple[int, int]]


class Event(NamedTuple):
    thread: int
    kind: str  # "R", "W" or "F"
    variable: str
    value: int
    order: str
    is_atomic: bool = False  # part of an atomic operation


@dataclass
class Program:
    """Threads with their membarriers put somewhere."""

    events: list[Event] = field(default_factory=list)
    before: Relation = field(default_factory=set)  # in the order of the program
    atomic: Relation = field(default_factory=set)  # load and store of an operation
    barriers: Relation = field(default_factory=set)  # between fences of membarriers


def programs(threads: Threads) -> Iterator[Program]:
    """One for each place in which a membarrier may meet the other thread."""
    places = [
        (number, access[1])
        for number, thread in enumerate(threads)
        for access in thread
        if access[0] == "M"
    ]
    ranges = [range(len(threads[target]) + 1) for _, target in places]
    for chosen in itertools.product(*ranges):
        met = {
            (target, at): number
            for (number, target), at in zip(places, chosen, strict=True)
        }
        yield _program(threads, met)


def _program(threads: Threads, met: dict[tuple[int, int], int]) -> Program:
    program = Program()
    ends: dict[int, tuple[int, int]] = {}  # of the membarrier of a thread
    targets: dict[int, int] = {}

    def add(event: Event) -> int:
        number = len(program.events)
        same = [i for i, one in enumerate(program.events) if one[0] == event.thread]
        program.before |= {(i, number) for i in same}
        program.events.append(event)
        return number

    for thread, accesses in enumerate(threads):
        for at in range(len(accesses) + 1):
            if (thread, at) in met:
                targets[met[thread, at]] = add(Event(thread, "F", "", 0, "sc"))
            if at == len(accesses):
                break
            kind, *rest = accesses[at]
            if kind == "F":
                add(Event(thread, "F", "", 0, rest[0]))
            elif kind == "M":
                first = add(Event(thread, "F", "", 0, "sc"))
                ends[thread] = (first, add(Event(thread, "F", "", 0, "sc")))
            elif kind == "U":
                variable, old, new, order = rest
                load = add(Event(thread, "R", variable, old, order, True))
                store = add(Event(thread, "W", variable, new, order, True))
                program.atomic.add((load, store))
            else:
                add(Event(thread, kind, *rest))
    for thread, (first, last) in ends.items():
        program.barriers |= {(first, targets[thread]), (targets[thread], last)}
    return program


# ---- relations ---------------------------------------------------------------


def closure(relation: Relation) -> Relation:
    found = set(relation)
    while more := {
        (a, d) for a, b in found for c, d in found if b == c and (a, d) not in found
    }:
        found |= more
    return found


def composed(*relations: Relation) -> Relation:
    first, *others = relations
    for relation in others:
        first = {(a, d) for a, b in first for c, d in relation if b == c}
    return first


def is_acyclic(relation: Relation) -> bool:
    return all(a != b for a, b in closure(relation))


@dataclass
class Execution:
    """Which store each load reads, and the order of the stores to a variable."""

    program: Program
    reads: Relation  # store to load
    stores: Relation
    overtakes: Relation  # load to a store that is newer than what it read

    def __post_init__(self) -> None:
        self.events = self.program.events
        self.before = self.program.before

    def across(self, relation: Relation) -> Relation:
        events = self.events
        return {(a, b) for a, b in relation if events[a].thread != events[b].thread}

    def same_place(self, relation: Relation) -> Relation:
        events = self.events
        return {
            (a, b)
            for a, b in relation
            if events[a].variable == events[b].variable != ""
        }

    def all(self, kind: str, orders: Iterable[str] | None = None) -> set[int]:
        return {
            i
            for i, event in enumerate(self.events)
            if event.kind == kind and (orders is None or event.order in orders)
        }

    def is_atomic(self) -> bool:
        """No store comes between the load and the store of an operation."""
        between = composed(self.overtakes, self.stores)
        return not (self.program.atomic & between)


def executions(program: Program) -> Iterator[Execution]:
    events = program.events
    variables = {event.variable for event in events if event.variable}
    orders = []
    for variable in variables:
        own = [i for i, one in enumerate(events) if one[1:3] == ("W", variable)]
        orders.append(list(itertools.permutations(own)))
    for chosen in itertools.product(*orders):
        stores = {pair for order in chosen for pair in itertools.combinations(order, 2)}
        reads: Relation = set()
        overtakes: Relation = set()
        for i, event in enumerate(events):
            if event.kind != "R":
                continue
            own = [
                j for j, one in enumerate(events) if one[1:3] == ("W", event.variable)
            ]
            source = next((j for j in own if events[j].value == event.value), None)
            if source is None:
                assert event.value == 0, f"nobody stores {event}"
                overtakes |= {(i, j) for j in own}
            else:
                reads.add((source, i))
                overtakes |= {(i, j) for j in own if (source, j) in stores}
        # The store of an operation does not come before its own load.
        yield Execution(program, reads, stores, overtakes)


# ---- models ------------------------------------------------------------------


def rc11(execution: Execution) -> bool:
    """Does C11 allow the execution?"""
    events, before = execution.events, execution.before
    heads: Relation = set()  # store, and load that reads of its release sequence
    for store, load in execution.reads:
        source: int | None = store
        while source is not None:
            heads.add((source, load))
            rmw = next((a for a, b in execution.program.atomic if b == source), None)
            source = next((a for a, b in execution.reads if b == rmw), None)
    synced: Relation = set(execution.program.barriers)
    for store, load in heads:
        begins = {a for a, b in before if b == store and events[a].kind == "F"}
        ends = {b for a, b in before if a == load and events[b].kind == "F"}
        begins = {a for a in {store, *begins} if events[a].order in RELEASES}
        ends = {b for b in {load, *ends} if events[b].order in ACQUIRES}
        synced |= set(itertools.product(begins, ends))
    happens = closure(before | synced)
    eco = closure(execution.reads | execution.stores | execution.overtakes)
    if any(a == b for a, b in happens | composed(happens, eco)):
        return False
    if not execution.is_atomic() or not is_acyclic(before | execution.reads):
        return False
    apart = before - execution.same_place(before)
    scb = before | composed(apart, happens, apart) | execution.same_place(happens)
    scb |= execution.stores | execution.overtakes
    fences = {(i, i) for i in execution.all("F", ["sc"])}
    accesses = {(i, i) for kind in "RW" for i in execution.all(kind, ["sc"])}
    everything = happens | {(i, i) for i in range(len(events))}
    psc = composed(
        accesses | composed(fences, everything),
        scb,
        accesses | composed(everything, fences),
    )
    psc |= composed(fences, happens | composed(happens, eco, happens), fences)
    return is_acyclic(psc)


def aarch64(execution: Execution, *, lse: bool = False) -> bool:
    """Does Armv8 allow what a compiler makes of the execution?"""
    events, before = execution.events, execution.before
    if not execution.is_atomic() or not is_acyclic(
        execution.same_place(before)
        | execution.reads
        | execution.stores
        | execution.overtakes
    ):
        return False
    loads, stores = execution.all("R"), execution.all("W")
    acquires = execution.all("R", ACQUIRES)
    strong = {i for i in acquires if events[i].order == "sc" or events[i].is_atomic}
    releases = execution.all("W", RELEASES)
    full = execution.all("F", RELEASES)
    light = execution.all("F", ["acq"])
    ordered = execution.across(execution.reads | execution.stores | execution.overtakes)
    ordered |= execution.program.atomic | execution.program.barriers
    own_reads = execution.reads - execution.across(execution.reads)
    results = {b for _, b in execution.program.atomic}
    ordered |= {(a, b) for a, b in own_reads if a in results and b in acquires}
    for a, b in before:
        if (
            a in full
            or b in full
            or (a in loads and b in light)
            or a in light
            or a in acquires
            or b in releases
            or (a in releases and b in strong)
        ):
            ordered.add((a, b))
    if lse:
        for load, store in execution.program.atomic:
            if load in acquires and store in releases:
                earlier = {a for a, b in before if b == load}
                later = {b for a, b in before if a == store}
                ordered |= set(itertools.product(earlier | {store}, later))
    assert loads.isdisjoint(stores)
    return is_acyclic(ordered)


def x86(execution: Execution) -> bool:
    """Does x86 allow what a compiler makes of the execution?"""
    events, before = execution.events, execution.before
    seen = execution.reads | execution.stores | execution.overtakes
    if not execution.is_atomic():
        return False
    if not is_acyclic(execution.same_place(before) | seen):
        return False
    locked = {i for i, event in enumerate(events) if event.is_atomic}
    locked |= execution.all("F", ["sc"]) | execution.all("W", ["sc"])
    kept = set(execution.program.barriers)
    for a, b in before:
        if (events[a].kind, events[b].kind) != ("W", "R") or {a, b} & locked:
            if not {events[a].kind, events[b].kind} & {"F"} or {a, b} & locked:
                kept.add((a, b))
    own = execution.reads - execution.across(execution.reads)
    return is_acyclic(kept | (seen - own))


def arm_lse(execution: Execution) -> bool:
    return aarch64(execution, lse=True)


MODELS = {"rc11": rc11, "aarch64": aarch64, "aarch64 lse": arm_lse, "x86": x86}


def is_allowed(threads: Threads, model: str) -> bool:
    """May the loads give these values?"""
    return any(
        MODELS[model](execution)
        for program in programs(threads)
        for execution in executions(program)
    )


# ---- protocols ---------------------------------------------------------------

RELAXED = "rlx"


def message(store: str = "rel", load: str = "acq") -> Threads:
    """Data, then a word that says that they are there: the word, but no data."""
    return (
        (("W", "data", 1, RELAXED), ("W", "word", 1, store)),
        (("R", "word", 1, load), ("R", "data", 0, RELAXED)),
    )


def revoked(
    *fence: Access, load_fence: tuple[Access, ...] = (("F", "acq"),)
) -> Threads:
    """A mark, then other data: a reader has the data and does not see the mark."""
    return (
        (("W", "mark", 1, "rel"), *fence, ("W", "data", 1, RELAXED)),
        (("R", "data", 1, RELAXED), *load_fence, ("R", "mark", 0, "acq")),
    )


def asleep(writer: tuple[Access, ...], waiter: tuple[Access, ...]) -> Threads:
    return (writer, waiter)


ANNOUNCE: Access = ("U", "waiters", 0, 1, "sc")
LOOK: Access = ("R", "number", 0, "sc")
FENCE: Access = ("F", "sc")
SLEEPER = (ANNOUNCE, FENCE, LOOK)


def pushed(push: str = "rel", take: str = "acq") -> Threads:
    """Two nodes are pushed; who takes both does not see what the first one has."""
    return (
        (("W", "first", 1, RELAXED), ("U", "newest", 0, 1, push)),
        (("U", "newest", 1, 2, push),),
        (("U", "newest", 2, 3, take), ("R", "first", 0, RELAXED)),
    )


# Each protocol whole, which no model may allow; and with a part left out, with the
# models that allow it then.
EVERY_ARM = ("rc11", "aarch64", "aarch64 lse")
ALL = (*EVERY_ARM, "x86")

PROTOCOLS: dict[
    str, tuple[dict[str, Threads], dict[str, tuple[Threads, tuple[str, ...]]]]
]
PROTOCOLS = {
    # src/comm/inbox_out.c, inbox.c: a stamp behind the bytes; a rank that leaves
    # marks its inbox before the program writes to its buffers.
    "inbox": (
        {"stamp": message(), "mark": revoked(FENCE)},
        {
            "stamp without release": (message(store=RELAXED), EVERY_ARM),
            "stamp without acquire": (message(load=RELAXED), EVERY_ARM),
            "mark without fence": (revoked(), EVERY_ARM),
            "look without fence": (revoked(FENCE, load_fence=()), EVERY_ARM),
        },
    ),
    # src/util/mpsc.h
    "mpsc": (
        {"push": pushed()},
        {
            "push without release": (pushed(push=RELAXED), EVERY_ARM),
            "take without acquire": (pushed(take=RELAXED), EVERY_ARM),
        },
    ),
    # include/umx/ring.h, src/proxy/thread.c: w1 behind w0; a proxy that sleeps
    # makes a membarrier, or producers fence.
    "ring": (
        {
            "command": message(),
            "doze, membarrier": asleep(
                (("W", "number", 1, "rel"), ("R", "doze", 0, RELAXED)),
                (("W", "doze", 1, RELAXED), ("M", 0), ("R", "number", 0, "acq")),
            ),
            "doze, fences": asleep(
                (("W", "number", 1, "rel"), FENCE, ("R", "doze", 0, RELAXED)),
                (("W", "doze", 1, RELAXED), FENCE, ("R", "number", 0, "acq")),
            ),
        },
        {
            "command without release": (message(store=RELAXED), EVERY_ARM),
            "doze, one fence": (
                asleep(
                    (("W", "number", 1, "rel"), ("R", "doze", 0, RELAXED)),
                    (("W", "doze", 1, RELAXED), FENCE, ("R", "number", 0, "acq")),
                ),
                ALL,
            ),
        },
    ),
    # src/shmem/put_get.c, umx_shmem_direct_ring(), src/rma/rma.c, src/worker/wait.c
    "bell": (
        {
            "atomic": asleep(
                (("U", "number", 0, 1, "sc"), ("R", "waiters", 0, "sc")), SLEEPER
            ),
            "store": asleep(
                (("W", "number", 1, RELAXED), FENCE, ("R", "waiters", 0, "sc")),
                SLEEPER,
            ),
            "store, membarrier": asleep(
                (("W", "number", 1, RELAXED), ("R", "waiters", 0, "sc")),
                (ANNOUNCE, ("M", 0), FENCE, LOOK),
            ),
        },
        {
            "atomic, relaxed load": (
                asleep(
                    (("U", "number", 0, 1, "sc"), ("R", "waiters", 0, RELAXED)),
                    SLEEPER,
                ),
                ("rc11", "aarch64"),
            ),
            "store without fence": (
                asleep(
                    (("W", "number", 1, RELAXED), ("R", "waiters", 0, "sc")), SLEEPER
                ),
                ALL,
            ),
        },
    ),
    # src/moe/moe.c, pack.c: a rank masks another one before it writes outputs.
    "mask": (
        {"whole": revoked(FENCE)},
        {"without fence": (revoked(), EVERY_ARM)},
    ),
    # src/lend/loans.c: the id is zero before the owner writes to the memory; the
    # reader is the kernel, whose copy ends with a full barrier.
    "lend": (
        {
            "ended": revoked(FENCE, load_fence=(FENCE,)),
            "written": message(),
        },
        {
            "ended without fence": (revoked(load_fence=(FENCE,)), EVERY_ARM),
            "written without release": (message(store=RELAXED), EVERY_ARM),
        },
    ),
}


def main() -> None:
    failed = False
    print(f"{'protocol':8} {'':26}", *(f"{name:12}" for name in MODELS))
    for name, (whole, broken) in PROTOCOLS.items():
        rows = [(part, threads, ()) for part, threads in whole.items()]
        rows += [(part, *rest) for part, rest in broken.items()]
        for part, threads, expected in rows:
            allowed = [model for model in MODELS if is_allowed(threads, model)]
            failed |= tuple(allowed) != tuple(expected)
            words = ["allowed" if one in allowed else "forbidden" for one in MODELS]
            print(f"{name:8} {part:26}", *(f"{word:12}" for word in words))
    sys.exit(failed)


if __name__ == "__main__":
    main()
