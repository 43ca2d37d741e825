# SPDX-License-Identifier: BSD-3-Clause
"""No interleaving of producers and a proxy loses a command: tests/model/ring.py."""

import pytest
from model.ring import LONG, MEMORIES, SHAPES, VARIANTS, explore

WHOLE = [name for name, (_, shapes, _) in VARIANTS.items() if not shapes]
BROKEN = [
    (name, shape, memory)
    for name, (_, shapes, memories) in VARIANTS.items()
    for shape in shapes
    for memory in memories
]


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", WHOLE)
def test_every_command_is_read_as_it_was_written(name, shape, memory):
    states, ends, wrong = explore(SHAPES[shape], VARIANTS[name][0], MEMORIES[memory])
    assert states > 50
    assert ends > 0
    assert wrong == 0


def test_two_producers_may_fill_the_ring():
    shape = LONG["two producers, a full ring"]
    assert explore(shape, VARIANTS["whole"][0], MEMORIES["Tso"])[2] == 0


@pytest.mark.parametrize(("name", "shape", "memory"), BROKEN)
def test_each_part_of_the_ring_is_needed(name, shape, memory):
    assert explore(SHAPES[shape], VARIANTS[name][0], MEMORIES[memory])[2] > 0
