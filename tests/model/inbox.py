# SPDX-License-Identifier: BSD-3-Clause
"""A model of a cell of an inbox whose bytes come while they are received.

A sender clears `word` of the cell, stores `stamp`, the number of the message, and
then each byte of the ring and after it, in `word`, how many bytes are there. The
receiver that has seen the stamp reads as many bytes as `word` says, and stores
`consumed` when it has all; then the sender uses the cell and the bytes again.
`explore()` goes through every interleaving, and counts the bytes that were read
wrongly, and the ends at which a message has not been read.

    PYTHONPATH=tests python tests/model/inbox.py    prints the table of VARIANTS

The memories are those of ring.py. How a rank that sleeps is woken is in bell.py.
`VARIANTS` has the protocol of src/comm/inbox_out.c and inbox.c whole, and with one
part of it left out each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from model.ring import MEMORIES, Memory, Tso, Views, go_through

LENGTH = 2  # bytes of a message
MESSAGES = 2

# The variables: the bytes of the ring, and three words.
WORD, STAMP, CONSUMED = LENGTH, LENGTH + 1, LENGTH + 2

SENDER, RECEIVER = 0, 1  # the threads


@dataclass(frozen=True)
class Variant:
    """The protocol, and what of it is left out."""

    stamp_release: bool = True
    stamp_acquire: bool = True
    word_release: bool = True
    word_acquire: bool = True
    clears_first: bool = True  # else `word` is cleared behind the stamp
    room: bool = True  # the sender looks at `consumed`


@dataclass(frozen=True)
class State:
    memory: Memory
    # Place, and number of the message. The sender: bytes that are there. The
    # receiver: bytes that it has read, and that it knows to be there.
    sender: tuple[Any, ...] = ("room", 0, 0)
    receiver: tuple[Any, ...] = ("look", 0, 0, 0)
    is_wrong: bool = False


class Protocol:
    def __init__(self, variant: Variant) -> None:
        self.variant = variant

    def steps(self, state: State) -> Iterator[State]:
        if state.is_wrong:
            return
        for memory in state.memory.drains():
            yield replace(state, memory=memory)
        if state.sender[1] < MESSAGES:
            yield from self._send(state)
        if state.receiver[1] < MESSAGES:
            yield from self._receive(state)

    def is_lost(self, state: State) -> bool:
        """Is a message not read, where nothing happens any more?"""
        return state.receiver[1] < MESSAGES

    def _send(self, state: State) -> Iterator[State]:
        memory, variant = state.memory, self.variant
        place, number, there = state.sender
        first, second = (
            ("clear", "stamp") if variant.clears_first else ("stamp", "clear")
        )

        def go(place: str, there: int, memory: Memory, number: int = number) -> State:
            return replace(state, memory=memory, sender=(place, number, there))

        if place == "room":
            for value, after in memory.load(SENDER, CONSUMED, True):
                has_room = value == number or not variant.room
                yield go(first if has_room else "room", 0, after)
        elif place == "clear":
            after = memory.store(SENDER, WORD, 0, False)
            yield go("byte" if place == second else second, 0, after)
        elif place == "stamp":
            after = memory.store(SENDER, STAMP, number + 1, variant.stamp_release)
            yield go("byte" if place == second else second, 0, after)
        elif place == "byte":
            yield go("word", there, memory.store(SENDER, there, number + 1, False))
        else:
            after = memory.store(SENDER, WORD, there + 1, variant.word_release)
            if there + 1 < LENGTH:
                yield go("byte", there + 1, after)
            else:
                yield go("room", 0, after, number + 1)

    def _receive(self, state: State) -> Iterator[State]:
        memory, variant = state.memory, self.variant
        place, number, filled, there = state.receiver

        def go(*receiver: Any, memory: Memory, is_wrong: bool = False) -> State:
            return replace(state, memory=memory, receiver=receiver, is_wrong=is_wrong)

        if place == "look":
            for value, after in memory.load(RECEIVER, STAMP, variant.stamp_acquire):
                step = "word" if value == number + 1 else "look"
                yield go(step, number, 0, 0, memory=after)
        elif place == "word":
            for value, after in memory.load(RECEIVER, WORD, variant.word_acquire):
                if value > filled:
                    yield go("byte", number, filled, value, memory=after)
                else:
                    yield go("word", number, filled, 0, memory=after)
        elif place == "byte":
            left = filled + 1 < there
            step = "byte" if left else "word" if filled + 1 < LENGTH else "consume"
            known = there if left else 0
            for value, after in memory.load(RECEIVER, filled, False):
                is_wrong = value != number + 1
                yield go(
                    step, number, filled + 1, known, memory=after, is_wrong=is_wrong
                )
        else:
            after = memory.store(RECEIVER, CONSUMED, number + 1, True)
            yield go("look", number + 1, 0, 0, memory=after)


def explore(variant: Variant, memory: type[Tso] | type[Views]) -> tuple[int, int, int]:
    """The number of states, of those at the end, and of the wrong ones: a byte was
    read wrongly, or a message is never read."""
    return go_through(Protocol(variant), State(memory.new(2)))


# What each variant is, and in which memories it goes wrong.
VARIANTS: dict[str, tuple[Variant, tuple[str, ...]]] = {
    "whole": (Variant(), ()),
    "stamp without release": (Variant(stamp_release=False), ("Views",)),
    "stamp without acquire": (Variant(stamp_acquire=False), ("Views",)),
    "word without release": (Variant(word_release=False), ("Views",)),
    "word without acquire": (Variant(word_acquire=False), ("Views",)),
    "word is cleared behind the stamp": (Variant(clears_first=False), ("Tso", "Views")),
    "without looking for room": (Variant(room=False), ("Tso", "Views")),
}


def main() -> None:
    for name, (variant, _) in VARIANTS.items():
        for memory, kind in MEMORIES.items():
            states, ends, wrong = explore(variant, kind)
            print(f"{name:35} {memory:6} {states:6} states, {ends} ends, {wrong} wrong")


if __name__ == "__main__":
    main()
