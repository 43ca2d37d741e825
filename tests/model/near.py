# SPDX-License-Identifier: BSD-3-Clause
"""A model of how the reader of a ring of short messages is woken.

It is the bell of bell.py with one waiter, the reader, one writer and numbers: the
word that is odd while the reader sleeps counts announcements. What differs is that
a WAKE may fail to be sent, for lack of memory. Then the writer reads the word again
a while later, from a timer, as there may be no next message.

`VARIANTS` has the protocol of src/near whole, with a membarrier and without, and
with one part of it left out each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from model import bell
from model.bell import WAITERS, Shape, State, Variant

_WHOLE = Variant()


@dataclass(frozen=True)
class NearVariant:
    bell: Variant = _WHOLE
    retries: bool = True  # a WAKE that failed, from a timer
    forgets: bool = True  # that the announcement was to be answered


class Protocol(bell.Protocol):
    def __init__(self, shape: Shape, variant: NearVariant) -> None:
        super().__init__(shape, variant.bell)
        self.near = variant

    def _write(self, state: State, thread: int) -> Iterator[State]:
        step, *rest = state.places[thread]
        if step == "read again":
            yield from self._read_again(state, thread, *rest)
        elif step == "ring again":
            yield from self._tell(state, thread, ("ring", thread, rest[1]), "store")
        else:
            yield from super()._write(state, thread)
        if step == "ring":
            yield self._fail(state, thread, *rest)

    def _fail(self, state: State, thread: int, stored: int, rung: int) -> State:
        if self.near.retries:
            return state.go(thread, "read again", stored, 0)
        return state.go(thread, "store", stored, 0 if self.near.forgets else rung)

    def _read_again(
        self, state: State, thread: int, stored: int, rung: int
    ) -> Iterator[State]:
        for waiters, after in state.memory.load(thread, WAITERS):
            if bell.count(waiters) != 0:
                number = bell.number(waiters)
                yield state.go(thread, "ring again", stored, number, memory=after)
            else:
                yield state.go(thread, "store", stored, rung, memory=after)


def explore(
    shape: Shape, variant: NearVariant, memory: type[bell.Tso] | type[bell.Views]
) -> tuple[int, int]:
    """The number of states, and of lost wake-ups."""
    protocol = Protocol(shape, variant)
    first = protocol.first(memory)
    seen, todo, lost = {first}, [first], 0
    while todo:
        state = todo.pop()
        after = set(protocol.steps(state))
        if not after:
            lost += protocol.is_lost(state)
        todo += after - seen
        seen |= after
    return len(seen), lost


SHAPES = {
    "one message": Shape(),
    "two messages": Shape(stores=2),
    "three messages": Shape(stores=3),
}
_BY_MEMBARRIER = Variant(writer_fence=False, membarrier=True, registered=True)

# Each with: does it lose a wake-up?
VARIANTS = {
    "whole": (NearVariant(), False),
    "by membarrier": (NearVariant(_BY_MEMBARRIER), False),
    "without the second look": (NearVariant(Variant(second_look=False)), True),
    "without the reader's fence": (NearVariant(Variant(waiter_fence=False)), True),
    "without the writer's fence": (NearVariant(Variant(writer_fence=False)), True),
    "by membarrier, and the writer is not registered": (
        NearVariant(replace(_BY_MEMBARRIER, registered=False)),
        True,
    ),
    "without a second WAKE": (NearVariant(retries=False), True),
    "with an answer that was not sent": (
        NearVariant(retries=False, forgets=False),
        True,
    ),
}
