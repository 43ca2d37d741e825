# SPDX-License-Identifier: BSD-3-Clause
"""No interleaving of a sender and a receiver reads other bytes than were sent:
tests/model/inbox.py."""

import pytest
from model.inbox import VARIANTS, explore
from model.ring import MEMORIES

BROKEN = [(name, memory) for name, (_, broken) in VARIANTS.items() for memory in broken]


@pytest.mark.parametrize("memory", MEMORIES)
def test_all_bytes_are_read_as_they_were_sent(memory):
    states, ends, wrong = explore(VARIANTS["whole"][0], MEMORIES[memory])
    assert states > 40
    assert ends > 0
    assert wrong == 0


@pytest.mark.parametrize(("name", "memory"), BROKEN)
def test_each_part_of_the_protocol_is_needed(name, memory):
    assert explore(VARIANTS[name][0], MEMORIES[memory])[2] > 0
