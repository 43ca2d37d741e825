# SPDX-License-Identifier: BSD-3-Clause
"""No interleaving of waiters and writers loses a wake-up: tests/model/bell.py."""

import pytest
from model.bell import MEMORIES, SHAPES, VARIANTS, explore

BROKEN = [(name, shape) for name, (_, losing) in VARIANTS.items() for shape in losing]


WHOLE = [
    (name, shape)
    for name, (_, losing) in VARIANTS.items()
    for shape in SHAPES
    # With membarriers the longest ones take seconds; the program has them.
    if not losing and (name == "whole" or shape not in ("two writers", "two waiters"))
]


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize(("name", "shape"), WHOLE)
def test_no_wake_up_is_lost(name, shape, memory):
    states, ends, lost = explore(SHAPES[shape], VARIANTS[name][0], MEMORIES[memory])
    assert states > 50
    assert ends > 0
    assert lost == 0


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize(("name", "shape"), BROKEN)
def test_each_part_of_the_protocol_is_needed(name, shape, memory):
    assert explore(SHAPES[shape], VARIANTS[name][0], MEMORIES[memory])[2] > 0
