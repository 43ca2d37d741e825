# SPDX-License-Identifier: BSD-3-Clause
"""A model of the bell: who waits for a number in memory, and who stores it.

    python tests/model/bell.py

A waiter sleeps until a writer wakes it, and a writer sends a wake-up only to
who sleeps. Both sides are a store, a fence and a load:

    waiter                          writer
    announce itself in `waiters`    store the number
    fence                           fence
    look at the number again        read `waiters`
    sleep if it is not there        ring if there is somebody

`explore()` walks through every interleaving of the steps of all threads, and
through everything that the memory may do in between, and counts the states in
which nothing can happen any more. In one of them a wake-up is lost if a waiter
sleeps although the number is there. Two kinds of memory:

    Tso     what x86 does: the stores of a thread wait in a queue of its own,
            which the thread reads and nobody else does
    Views   what C allows: a thread may read any value that a variable has had
            since the latest one that the thread knows of; a fence makes known
            what fences before it knew, a message what its sender knew

A waiter can spare the writer its fence: by a membarrier, which the system has
executed on the processors of all processes that have registered for it. Then a
writer that has registered only keeps the order of its two instructions, and one
that has not fences as before.

`VARIANTS` has the protocol of src/worker/wait.h whole, with a membarrier and
without, and with one part of it left out each.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

WORD, WAITERS = 0, 1  # the variables

# `waiters`: how often somebody has announced itself, and how many are announced.
NUMBER = 1 << 8


def count(waiters: int) -> int:
    return waiters % NUMBER


def number(waiters: int) -> int:
    return waiters // NUMBER


# ---- memory ------------------------------------------------------------------


@dataclass(frozen=True)
class Tso:
    values: tuple[int, ...]
    queues: tuple[tuple[tuple[int, int], ...], ...]  # by thread: variable, value

    @classmethod
    def new(cls, threads: int) -> Tso:
        return cls((0, 0), ((),) * threads)

    def _with_queue(self, thread: int, queue: tuple[tuple[int, int], ...]) -> Tso:
        queues = (*self.queues[:thread], queue, *self.queues[thread + 1 :])
        return replace(self, queues=queues)

    def drains(self) -> Iterator[Tso]:
        """The oldest store of a thread becomes visible to all."""
        for thread, queue in enumerate(self.queues):
            if queue:
                (variable, value), *rest = queue
                yield self._with_queue(thread, tuple(rest))._write(variable, value)

    def _write(self, variable: int, value: int) -> Tso:
        values = list(self.values)
        values[variable] = value
        return replace(self, values=tuple(values))

    def load(self, thread: int, variable: int) -> Iterator[tuple[int, Tso]]:
        own = [value for where, value in self.queues[thread] if where == variable]
        yield (own[-1] if own else self.values[variable]), self

    def store(self, thread: int, variable: int, value: int) -> Tso:
        queue = self.queues[thread]
        return self._with_queue(thread, (*queue, (variable, value)))

    def change(
        self, thread: int, variable: int, by: Callable[[int], int]
    ) -> Iterator[Tso]:
        """An atomic instruction, which waits for the thread's stores."""
        if not self.queues[thread]:
            yield self._write(variable, by(self.values[variable]))

    def fence(self, thread: int) -> Iterator[Tso]:
        if not self.queues[thread]:
            yield self

    def send(self, thread: int) -> Iterator[Any]:
        """Return what a message carries, which follows the stores before it."""
        if not self.queues[thread]:
            yield None

    def receive(self, thread: int, message: Any) -> Tso:
        return self

    def final(self, variable: int) -> int:
        return self.values[variable]


View = tuple[int, ...]  # by variable: the first value that may still be read


def joined(one: View, other: View) -> View:
    return tuple(map(max, one, other))


@dataclass(frozen=True)
class Views:
    values: tuple[tuple[int, ...], ...]  # by variable: all that it has had
    views: tuple[View, ...]  # by thread
    fences: View  # what earlier fences knew

    @classmethod
    def new(cls, threads: int) -> Views:
        return cls(((0,), (0,)), ((0, 0),) * threads, (0, 0))

    def drains(self) -> Iterator[Views]:
        return iter(())

    def _know(self, thread: int, view: View) -> Views:
        view = joined(self.views[thread], view)
        return replace(
            self, views=(*self.views[:thread], view, *self.views[thread + 1 :])
        )

    def _at(self, variable: int, index: int) -> View:
        view = [0] * len(self.values)
        view[variable] = index
        return tuple(view)

    def load(self, thread: int, variable: int) -> Iterator[tuple[int, Views]]:
        values = self.values[variable]
        for index in range(self.views[thread][variable], len(values)):
            yield values[index], self._know(thread, self._at(variable, index))

    def store(self, thread: int, variable: int, value: int) -> Views:
        values = list(self.values)
        values[variable] += (value,)
        written = replace(self, values=tuple(values))
        return written._know(thread, self._at(variable, len(values[variable]) - 1))

    def change(
        self, thread: int, variable: int, by: Callable[[int], int]
    ) -> Iterator[Views]:
        """An atomic instruction: of the latest value, and no fence."""
        yield self.store(thread, variable, by(self.values[variable][-1]))

    def fence(self, thread: int) -> Iterator[Views]:
        view = joined(self.views[thread], self.fences)
        yield replace(self, fences=view)._know(thread, view)

    def send(self, thread: int) -> Iterator[Any]:
        yield self.views[thread]

    def receive(self, thread: int, message: Any) -> Views:
        return self._know(thread, message)

    def final(self, variable: int) -> int:
        return self.values[variable][-1]


Memory = Tso | Views

# ---- the protocol ------------------------------------------------------------


@dataclass(frozen=True)
class Variant:
    """The protocol, and what of it is left out."""

    second_look: bool = True
    waiter_fence: bool = True
    writer_fence: bool = True
    # The waiter's fence is a membarrier.
    membarrier: bool = False
    # Writers have registered for membarriers; or every second one has, and the
    # others fence.
    registered: bool = False
    mixed: bool = False
    # Each announcement has a number, and a writer rings once for each.
    numbers: bool = True
    # A waiter looks when a writer's connection ends.
    looks_at_ends: bool = True


@dataclass(frozen=True)
class Shape:
    """Participants: `waiters` wait for `stores` x `writers`.

    A writer counts up by atomic instructions if there are several, and stores
    otherwise. With `dies` a writer may end before any of its steps.
    """

    waiters: int = 1
    writers: int = 1
    stores: int = 1
    dies: bool = False

    @property
    def goal(self) -> int:
        return self.writers * self.stores


@dataclass(frozen=True)
class State:
    memory: Memory
    places: tuple[tuple[Any, ...], ...]  # by thread: where it is, and what it knows
    messages: tuple[frozenset[Any], ...]  # by waiter

    def go(self, thread: int, *place: Any, memory: Memory | None = None) -> State:
        return replace(
            self,
            places=(*self.places[:thread], place, *self.places[thread + 1 :]),
            memory=self.memory if memory is None else memory,
        )


class Protocol:
    def __init__(self, shape: Shape, variant: Variant) -> None:
        self.shape = shape
        self.variant = variant
        self.threads = shape.waiters + shape.writers

    def first(self, memory: type[Tso] | type[Views]) -> State:
        waiting = (("look",),) * self.shape.waiters
        writing = (("store", 0, 0),) * self.shape.writers  # stored, rung for
        return State(
            memory.new(self.threads),
            waiting + writing,
            (frozenset(),) * self.shape.waiters,
        )

    def steps(self, state: State) -> Iterator[State]:
        for memory in state.memory.drains():
            yield replace(state, memory=memory)
        for thread in range(self.threads):
            if thread < self.shape.waiters:
                yield from self._wait(state, thread)
            else:
                yield from self._write(state, thread)

    def is_lost(self, state: State) -> bool:
        """Nothing can happen in `state`: does a waiter miss what is there?"""
        return any(
            place[0] == "sleep" and self._is_over(state.memory.final(WORD))
            for place in state.places[: self.shape.waiters]
        )

    def _is_over(self, value: int) -> bool:
        # A writer that may die can leave fewer stores: then every value counts.
        return value >= (1 if self.shape.dies else self.shape.goal)

    # A waiter: look, announce, fence, again, sleep, withdraw, look ...

    def _wait(self, state: State, thread: int) -> Iterator[State]:
        memory, (place, *_) = state.memory, state.places[thread]
        if place in ("look", "again"):
            missing = "announce" if place == "look" else "sleep"
            found = "done" if place == "look" else "withdraw at the end"
            for value, after in memory.load(thread, WORD):
                is_over = self._is_over(value)
                yield state.go(thread, found if is_over else missing, memory=after)
        elif place == "announce":
            yield from self._change(state, thread, NUMBER + 1, "fence")
        elif place == "fence":
            if self.variant.membarrier:
                after_it = "membarrier"
            else:
                after_it = "again" if self.variant.second_look else "sleep"
            if self.variant.waiter_fence:
                for after in memory.fence(thread):
                    yield state.go(thread, after_it, frozenset(), memory=after)
            else:
                yield state.go(thread, after_it)
        elif place == "membarrier":
            yield from self._membarrier(state, thread)
        elif place == "sleep":
            for message in state.messages[thread]:
                left = list(state.messages)
                left[thread] -= {message}
                after = memory.receive(thread, message[-1])
                woken = state.go(thread, "withdraw", memory=after)
                yield replace(woken, messages=tuple(left))
        elif place == "withdraw":
            yield from self._change(state, thread, -1, "look")
        elif place == "withdraw at the end":
            yield from self._change(state, thread, -1, "done")

    def _membarrier(self, state: State, thread: int) -> Iterator[State]:
        """Fence the registered threads, one by one, then the waiter."""
        memory, (place, fenced) = state.memory, state.places[thread]
        left = self._registered() - fenced
        for other in left:
            for after in memory.fence(other):
                yield state.go(thread, place, fenced | {other}, memory=after)
        if not left:
            for after in memory.fence(thread):
                yield state.go(thread, "again", memory=after)

    def _registered(self) -> frozenset[int]:
        writers = range(self.shape.waiters, self.threads)
        if not self.variant.registered:
            return frozenset()
        return frozenset(writers[::2] if self.variant.mixed else writers)

    def _fences(self, thread: int) -> bool:
        if self.variant.mixed:
            return thread not in self._registered()
        return self.variant.writer_fence

    def _change(
        self, state: State, thread: int, by: int, place: str
    ) -> Iterator[State]:
        """Add to `waiters`: by a store if nobody else changes it."""
        if self.shape.waiters > 1:
            for memory in state.memory.change(thread, WAITERS, lambda old: old + by):
                yield state.go(thread, place, memory=memory)
            return
        for old, memory in state.memory.load(thread, WAITERS):
            after = memory.store(thread, WAITERS, old + by)
            yield state.go(thread, place, memory=after)

    # A writer: store, fence, read `waiters`, ring, store ...

    def _write(self, state: State, thread: int) -> Iterator[State]:
        memory, place = state.memory, state.places[thread]
        if place[0] in ("end", "dead"):
            return
        if self.shape.dies and place[0] != "store":
            yield from self._die(state, thread)
        step, stored, rung = place
        if step == "store":
            if stored == self.shape.stores:
                yield state.go(thread, "end")
            elif self.shape.writers > 1:
                for after in memory.change(thread, WORD, lambda old: old + 1):
                    yield state.go(thread, "fence", stored + 1, rung, memory=after)
            else:
                after = memory.store(thread, WORD, stored + 1)
                yield state.go(thread, "fence", stored + 1, rung, memory=after)
        elif step == "fence":
            if self._fences(thread):
                for after in memory.fence(thread):
                    yield state.go(thread, "read", stored, rung, memory=after)
            else:
                yield state.go(thread, "read", stored, rung)
        elif step == "read":
            for waiters, after in memory.load(thread, WAITERS):
                is_due = count(waiters) != 0 and self._is_new(waiters, rung)
                yield state.go(
                    thread,
                    "ring" if is_due else "store",
                    stored,
                    number(waiters) if is_due else rung,
                    memory=after,
                )
        elif step == "ring":
            yield from self._tell(state, thread, ("ring", thread, rung), "store")

    def _is_new(self, waiters: int, rung: int) -> bool:
        # Without numbers: one ring for all of an announcement's life, and the
        # next announcement looks like the one before.
        return number(waiters) != rung if self.variant.numbers else rung == 0

    def _tell(
        self, state: State, thread: int, what: tuple[Any, ...], then: str
    ) -> Iterator[State]:
        """A message to every waiter."""
        for carried in state.memory.send(thread):
            messages = tuple(there | {(*what, carried)} for there in state.messages)
            told = state.go(thread, then, *state.places[thread][1:])
            yield replace(told, messages=messages)

    def _die(self, state: State, thread: int) -> Iterator[State]:
        if self.variant.looks_at_ends:
            for told in self._tell(state, thread, ("end", thread), "dead"):
                yield told.go(thread, "dead")
        else:
            yield state.go(thread, "dead")


def explore(
    shape: Shape, variant: Variant, memory: type[Tso] | type[Views]
) -> tuple[int, int, int]:
    """The number of states, of those at the end, and of lost wake-ups."""
    protocol = Protocol(shape, variant)
    first = protocol.first(memory)
    seen, todo, ends, lost = {first}, [first], 0, 0
    while todo:
        state = todo.pop()
        is_end = True
        for after in protocol.steps(state):
            is_end = False
            if after not in seen:
                seen.add(after)
                todo.append(after)
        if is_end:
            ends += 1
            lost += protocol.is_lost(state)
    return len(seen), ends, lost


MEMORIES: dict[str, type[Tso] | type[Views]] = {"Tso": Tso, "Views": Views}

SHAPES = {
    "one store": Shape(),
    "three stores": Shape(stores=3),
    "two writers": Shape(writers=2, stores=2),
    "two writers of one store": Shape(writers=2),
    "two waiters": Shape(waiters=2, stores=2),
    "a writer that dies": Shape(stores=2, dies=True),
}

# Each with the shapes in which it loses a wake-up: a part that several numbers
# need may not be needed for one.
VARIANTS = {
    "whole": (Variant(), ()),
    "without the second look": (
        Variant(second_look=False),
        ("one store", "three stores", "two waiters", "a writer that dies"),
    ),
    "without the waiter's fence": (
        Variant(waiter_fence=False),
        ("one store", "three stores", "a writer that dies"),
    ),
    "without the writer's fence": (
        Variant(writer_fence=False),
        ("one store", "three stores", "two waiters", "a writer that dies"),
    ),
    "by membarrier": (
        Variant(writer_fence=False, membarrier=True, registered=True),
        (),
    ),
    "by membarrier, of some": (
        Variant(membarrier=True, registered=True, mixed=True),
        (),
    ),
    "by membarrier, and the writer is not registered": (
        Variant(writer_fence=False, membarrier=True),
        ("one store", "three stores", "two waiters", "a writer that dies"),
    ),
    "by membarrier, and the waiter only fences": (
        Variant(writer_fence=False, registered=True),
        ("one store", "three stores", "two waiters", "a writer that dies"),
    ),
    "without numbers": (Variant(numbers=False), ("three stores", "two waiters")),
    "without a look at ends": (
        Variant(looks_at_ends=False),
        ("a writer that dies",),
    ),
}


def main() -> int:
    is_as_expected = True
    for name, (variant, losing) in VARIANTS.items():
        for shape in losing or SHAPES:
            for memory in MEMORIES:
                states, ends, lost = explore(SHAPES[shape], variant, MEMORIES[memory])
                is_as_expected &= (lost > 0) == bool(losing)
                print(
                    f"{name}: {shape}, {memory}: {states} states, {ends} at the "
                    f"end, {lost} lost"
                )
    return 0 if is_as_expected else 1


if __name__ == "__main__":
    sys.exit(main())
