# SPDX-License-Identifier: BSD-3-Clause
"""No interleaving of a reader and a writer loses a wake-up: tests/model/near.py."""

import pytest
from model.bell import MEMORIES
from model.near import SHAPES, VARIANTS, explore


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", VARIANTS)
def test_a_wake_up_is_lost_only_without_a_part(name, shape, memory):
    variant, loses = VARIANTS[name]
    states, lost = explore(SHAPES[shape], variant, MEMORIES[memory])
    assert states > 40
    assert (lost > 0) == loses
