# SPDX-License-Identifier: BSD-3-Clause
"""A model of the ring between producers and a proxy that sleeps: every interleaving.

Commands are numbered. A producer stores w0, then w1 with the phase of the lap; the
proxy sees the phase, reads w0, and stores `retired`. A producer that finds the ring
full reads `retired`. Before the proxy sleeps, it stores `doze` and makes a fence for
all threads (membarrier); a producer that sees `doze` after its commands exchanges
it for zero and wakes the proxy. `explore()` goes through all states, and counts the
commands that were read wrongly, and the ends in which a command is never read.

    python tests/model/ring.py      prints the table of VARIANTS

Two memories are tried:

    Tso     x86: each thread has a queue of stores that others do not see yet
    Views   weaker, as C11 has it: a load gives any value of a variable that is not
            older than what the thread knows. A store with release semantics makes
            known what its thread knew, to those who load it with acquire
            semantics. Loads are done in their order, so what keeps a load before
            a later store is not tried: the release of `retired`.

`VARIANTS` has the protocol of include/umx/ring.h and src/proxy/thread.c whole, and
with one part of it left out each.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

CAPACITY = 2

# The variables: w0 and w1 of each place, and three words.
RETIRED, HEAD, DOZE = 2 * CAPACITY, 2 * CAPACITY + 1, 2 * CAPACITY + 2
VARIABLES = 2 * CAPACITY + 3


def w0(number: int) -> int:
    return number % CAPACITY


def w1(number: int) -> int:
    return CAPACITY + number % CAPACITY


# ---- memory ------------------------------------------------------------------


@dataclass(frozen=True)
class Tso:
    values: tuple[int, ...]
    queues: tuple[tuple[tuple[int, int], ...], ...]  # by thread: variable, value

    @classmethod
    def new(cls, threads: int) -> Tso:
        return cls((0,) * VARIABLES, ((),) * threads)

    def _with_queue(self, thread: int, queue: tuple[tuple[int, int], ...]) -> Tso:
        queues = (*self.queues[:thread], queue, *self.queues[thread + 1 :])
        return replace(self, queues=queues)

    def _write(self, variable: int, value: int) -> Tso:
        values = list(self.values)
        values[variable] = value
        return replace(self, values=tuple(values))

    def drains(self) -> Iterator[Tso]:
        """The oldest store of a thread becomes visible to all."""
        for thread, queue in enumerate(self.queues):
            if queue:
                (variable, value), *rest = queue
                yield self._with_queue(thread, tuple(rest))._write(variable, value)

    def load(self, thread: int, variable: int, _: bool) -> Iterator[tuple[int, Tso]]:
        own = [value for where, value in self.queues[thread] if where == variable]
        yield (own[-1] if own else self.values[variable]), self

    def store(self, thread: int, variable: int, value: int, _: bool) -> Tso:
        queue = self.queues[thread]
        return self._with_queue(thread, (*queue, (variable, value)))

    def swap(self, thread: int, variable: int, by: Any) -> Iterator[tuple[int, Tso]]:
        """An atomic instruction, which waits for the thread's stores."""
        if not self.queues[thread]:
            old = self.values[variable]
            yield old, self._write(variable, by(old))

    def fence(self, thread: int) -> Iterator[Tso]:
        if not self.queues[thread]:
            yield self

    def pruned(self) -> Tso:
        return self

    def membarrier(self) -> Tso:
        """Every thread makes a fence."""
        memory = self
        for thread, queue in enumerate(self.queues):
            for variable, value in queue:
                memory = memory._write(variable, value)
            memory = memory._with_queue(thread, ())
        return memory


View = tuple[int, ...]  # by variable: the first value that may still be read
NOTHING: View = (0,) * VARIABLES


def joined(one: View, other: View) -> View:
    return tuple(map(max, one, other))


@dataclass(frozen=True)
class Views:
    # By variable: all values that it has had, each with what it makes known.
    values: tuple[tuple[tuple[int, View], ...], ...]
    views: tuple[View, ...]  # by thread
    fences: View  # what earlier fences knew

    @classmethod
    def new(cls, threads: int) -> Views:
        return cls((((0, NOTHING),),) * VARIABLES, (NOTHING,) * threads, NOTHING)

    def drains(self) -> Iterator[Views]:
        return iter(())

    def _know(self, thread: int, view: View) -> Views:
        view = joined(self.views[thread], view)
        views = (*self.views[:thread], view, *self.views[thread + 1 :])
        return replace(self, views=views)

    def pruned(self) -> Views:
        """The same without the values that no thread may read any more."""
        old = tuple(map(min, zip(*self.views, strict=True)))
        if not any(old):
            return self

        def since(view: View) -> View:
            return tuple(
                max(0, at - first) for at, first in zip(view, old, strict=True)
            )

        return Views(
            tuple(
                tuple((value, since(carried)) for value, carried in values[first:])
                for values, first in zip(self.values, old, strict=True)
            ),
            tuple(map(since, self.views)),
            since(self.fences),
        )

    def _at(self, variable: int, index: int) -> View:
        return (*NOTHING[:variable], index, *NOTHING[variable + 1 :])

    def load(
        self, thread: int, variable: int, is_acquire: bool
    ) -> Iterator[tuple[int, Views]]:
        values = self.values[variable]
        for index in range(self.views[thread][variable], len(values)):
            value, carried = values[index]
            after = self._know(thread, self._at(variable, index))
            yield value, after._know(thread, carried) if is_acquire else after

    def store(self, thread: int, variable: int, value: int, is_release: bool) -> Views:
        index = len(self.values[variable])
        after = self._know(thread, self._at(variable, index))
        carried = after.views[thread] if is_release else NOTHING
        values = list(self.values)
        values[variable] += ((value, carried),)
        return replace(after, values=tuple(values))

    def swap(self, thread: int, variable: int, by: Any) -> Iterator[tuple[int, Views]]:
        """An atomic instruction: of the latest value, and no fence."""
        old = self.values[variable][-1][0]
        if variable != HEAD:
            yield old, self.store(thread, variable, by(old), False)
            return
        # Nobody loads it otherwise, so who knows which value does not matter.
        values = list(self.values)
        values[variable] = ((by(old), NOTHING),)
        yield old, replace(self, values=tuple(values))

    def fence(self, thread: int) -> Iterator[Views]:
        view = joined(self.views[thread], self.fences)
        yield replace(self, fences=view)._know(thread, view)

    def membarrier(self) -> Views:
        view = self.fences
        for each in self.views:
            view = joined(view, each)
        return replace(self, fences=view, views=(view,) * len(self.views))


Memory = Tso | Views

# ---- the protocol ------------------------------------------------------------


@dataclass(frozen=True)
class Variant:
    """The protocol, and what of it is left out."""

    release: bool = True  # of w1
    acquire: bool = True
    phase: bool = True  # else every lap has the same
    room: bool = True  # a producer looks at `retired`
    second_look: bool = True
    membarrier: bool = True
    # Producers make a fence of their own, and the proxy one for itself only.
    fences: bool = False
    # A producer that waits for room wakes the proxy before.
    wakes_before_waiting: bool = True


@dataclass(frozen=True)
class Shape:
    """Each producer writes `batches`, of as many commands as `sizes` says."""

    sizes: tuple[int, ...] = (1,)
    batches: int = 1

    @property
    def producers(self) -> int:
        return len(self.sizes)

    @property
    def total(self) -> int:
        return self.batches * sum(self.sizes)


PROXY = 0  # the thread


@dataclass(frozen=True)
class State:
    memory: Memory
    # By thread. The proxy: its place, the next number, a command it has seen.
    # A producer: its place, batches begun, the next number, how many are left,
    # and what it has last seen of `retired`.
    places: tuple[tuple[Any, ...], ...]
    is_woken: bool = False  # the proxy has been sent a wake-up
    is_wrong: bool = False  # a command was read that was not written there

    def go(self, thread: int, *place: Any, **changes: Any) -> State:
        places = (*self.places[:thread], place, *self.places[thread + 1 :])
        return replace(self, places=places, **changes)


class Protocol:
    def __init__(self, shape: Shape, variant: Variant) -> None:
        self.shape = shape
        self.variant = variant

    def first(self, memory: type[Tso] | type[Views]) -> State:
        producing = (("begin", 0, 0, 0, 0),) * self.shape.producers
        threads = 1 + self.shape.producers
        return State(memory.new(threads), (("look", 0), *producing))

    def phase(self, number: int) -> int:
        return (number // CAPACITY % 2) ^ 1 if self.variant.phase else 1

    def steps(self, state: State) -> Iterator[State]:
        if state.is_wrong:
            return
        for memory in state.memory.drains():
            yield replace(state, memory=memory)
        yield from self._take(state)
        for thread in range(1, 1 + self.shape.producers):
            yield from self._produce(state, thread)

    def is_lost(self, state: State) -> bool:
        """Nothing can happen in `state`: has a command not been read?"""
        return state.places[PROXY][1] < self.shape.total

    # The proxy: look, read, retire; or doze, fence, look again, sleep.

    def _take(self, state: State) -> Iterator[State]:
        memory, (place, tail, *_) = state.memory, state.places[PROXY]
        if tail == self.shape.total:
            return
        if place in ("look", "again"):
            missing = "doze" if place == "look" else "sleep"
            acquire = self.variant.acquire
            for value, after in memory.load(PROXY, w1(tail), acquire):
                is_there = value == self.phase(tail)
                step = "read" if is_there else missing
                yield state.go(PROXY, step, tail, memory=after)
        elif place == "read":
            for value, after in memory.load(PROXY, w0(tail), False):
                is_wrong = value != tail + 1
                yield state.go(PROXY, "retire", tail, memory=after, is_wrong=is_wrong)
        elif place == "retire":
            after = memory.store(PROXY, RETIRED, tail + 1, True)
            yield state.go(PROXY, "look", tail + 1, memory=after)
        elif place == "doze":
            after = memory.store(PROXY, DOZE, 1, False)
            yield state.go(PROXY, "fence", tail, memory=after)
        elif place == "fence":
            yield from self._fence(state, tail)
        elif place == "sleep" and state.is_woken:
            yield state.go(PROXY, "wake", tail, is_woken=False)
        elif place == "wake":
            after = memory.store(PROXY, DOZE, 0, False)
            yield state.go(PROXY, "look", tail, memory=after)

    def _fence(self, state: State, tail: int) -> Iterator[State]:
        step = "again" if self.variant.second_look else "sleep"
        if self.variant.fences:
            for after in state.memory.fence(PROXY):
                yield state.go(PROXY, step, tail, memory=after)
        elif self.variant.membarrier:
            yield state.go(PROXY, step, tail, memory=state.memory.membarrier())
        else:
            yield state.go(PROXY, step, tail)

    # A producer: begin a batch, look for room, w0, w1, ..., look at `doze`.

    def _produce(self, state: State, thread: int) -> Iterator[State]:
        memory = state.memory
        place, begun, number, left, seen = state.places[thread]
        rest = (begun, number, left, seen)
        if place == "begin" and begun < self.shape.batches:
            size = self.shape.sizes[thread - 1]
            if self.shape.producers == 1:
                yield state.go(thread, "room", begun + 1, number, size, seen)
            else:
                for old, after in memory.swap(thread, HEAD, lambda at: at + size):
                    yield state.go(
                        thread, "room", begun + 1, old, size, seen, memory=after
                    )
        elif place == "room":
            is_full = number - seen >= CAPACITY and self.variant.room
            yield state.go(thread, "full" if is_full else "w0", *rest)
        elif place in ("full", "wait"):
            yield from self._look_for_room(state, thread)
        elif place == "w0":
            after = memory.store(thread, w0(number), number + 1, False)
            yield state.go(thread, "w1", *rest, memory=after)
        elif place == "w1":
            release = self.variant.release
            after = memory.store(thread, w1(number), self.phase(number), release)
            step = "room" if left > 1 else "order"
            place = (step, begun, number + 1, left - 1, seen)
            yield state.go(thread, *place, memory=after)
        elif place.startswith(("order", "doze", "swap")):
            yield from self._wake(state, thread)

    def _look_for_room(self, state: State, thread: int) -> Iterator[State]:
        place, begun, number, left, _ = state.places[thread]
        for value, after in state.memory.load(thread, RETIRED, True):
            if number - value < CAPACITY:
                step = "w0"
            elif place == "full" and self.variant.wakes_before_waiting:
                step = "order, wait"
            else:
                step = "wait"
            yield state.go(thread, step, begun, number, left, value, memory=after)

    def _wake(self, state: State, thread: int) -> Iterator[State]:
        """Wake the proxy if it dozes; then wait for room, or begin again."""
        memory = state.memory
        place, *rest = state.places[thread]
        what, _, then = place.partition(", ")
        after_it = then or "begin"
        tail = f", {then}" if then else ""
        if what == "order":
            if self.variant.fences:
                for after in memory.fence(thread):
                    yield state.go(thread, f"doze{tail}", *rest, memory=after)
            else:
                yield state.go(thread, f"doze{tail}", *rest)
        elif what == "doze":
            for value, after in memory.load(thread, DOZE, False):
                step = f"swap{tail}" if value else after_it
                yield state.go(thread, step, *rest, memory=after)
        else:
            for old, after in memory.swap(thread, DOZE, lambda _: 0):
                is_woken = state.is_woken or old != 0
                yield state.go(thread, after_it, *rest, memory=after, is_woken=is_woken)


def go_through(protocol: Any, first: Any) -> tuple[int, int, int]:
    """The number of states from ``first`` on, of those at the end, and of the wrong
    ones: ``protocol`` has ``steps()`` and, at an end, ``is_lost()``."""
    seen, todo, ends, wrong = {first}, [first], 0, 0
    while todo:
        state = todo.pop()
        wrong += state.is_wrong
        is_end = True
        for after in protocol.steps(state):
            after = replace(after, memory=after.memory.pruned())
            is_end &= after == state
            if after not in seen:
                seen.add(after)
                todo.append(after)
        if is_end and not state.is_wrong:
            ends += 1
            wrong += protocol.is_lost(state)
    return len(seen), ends, wrong


def explore(
    shape: Shape, variant: Variant, memory: type[Tso] | type[Views]
) -> tuple[int, int, int]:
    """The number of states, of those at the end, and of the wrong ones: a command
    was read wrongly, or is never read."""
    protocol = Protocol(shape, variant)
    return go_through(protocol, protocol.first(memory))


MEMORIES: dict[str, type[Tso] | type[Views]] = {"Tso": Tso, "Views": Views}

SHAPES = {
    "one command": Shape(),
    "two laps, one by one": Shape(batches=4),
    "two laps at once": Shape(sizes=(4,)),
    "two producers": Shape(sizes=(1, 1)),
}

# Seconds to minutes; main() tries them, too.
LONG = {
    "two producers, a full ring": Shape(sizes=(2, 1)),
    "two producers, two laps": Shape(sizes=(2, 2)),
}

BOTH = ("Tso", "Views")

# Each with the shapes in which it goes wrong, and the memories.
VARIANTS: dict[str, tuple[Variant, tuple[str, ...], tuple[str, ...]]] = {
    "whole": (Variant(), (), ()),
    "with fences of the producers": (Variant(fences=True), (), ()),
    "without the release": (Variant(release=False), ("one command",), ("Views",)),
    "without the acquire": (Variant(acquire=False), ("one command",), ("Views",)),
    "without the phase": (Variant(phase=False), ("two laps, one by one",), BOTH),
    "without a look at retired": (Variant(room=False), ("two laps at once",), BOTH),
    "without the second look": (Variant(second_look=False), ("one command",), BOTH),
    "without the fence of all": (Variant(membarrier=False), ("one command",), BOTH),
    "without a wake-up before waiting": (
        Variant(wakes_before_waiting=False),
        ("two laps at once",),
        BOTH,
    ),
}


def main() -> int:
    is_as_expected = True
    for name, (variant, shapes, memories) in VARIANTS.items():
        for shape in shapes or (SHAPES | LONG):
            for memory in memories or MEMORIES:
                states, ends, wrong = explore(
                    (SHAPES | LONG)[shape], variant, MEMORIES[memory]
                )
                is_as_expected &= (wrong > 0) == bool(shapes)
                print(
                    f"{name}: {shape}, {memory}: {states} states, {ends} at the "
                    f"end, {wrong} wrong",
                    flush=True,
                )
    return 0 if is_as_expected else 1


if __name__ == "__main__":
    sys.exit(main())
