# SPDX-License-Identifier: BSD-3-Clause
"""Sizes; whether, how and when an operation is cancelled."""

import math

from .content import LARGEST

_KIB = 1024
_MIB = 1024 * _KIB

# Where the library or UCX changes its way.
THRESHOLDS = [
    *(92, 256, 4 * _KIB, 8 * _KIB, 16 * _KIB, 64 * _KIB, 128 * _KIB, 256 * _KIB),
    *(512 * _KIB, _MIB, 8 * _MIB),
]

# The ways in which an await can end early.
HOWS = ["task", "request", "awaited", "timeout", "wait_for", "anyio"]

# When, as far as the operation says it; some more often than others.
WHENS = ["turns", "turns", "middle", "middle", "complete"]

# Seconds of those that are given a time.
_SECONDS = [0, 0.0001, 0.0005, 0.002]


def size(rng, largest, smallest=0):
    """Bytes of a message: log-uniform, a fifth of them just above a threshold."""
    largest = max(min(largest, LARGEST), smallest)
    if rng.random() < 0.2:
        steps = [each for each in THRESHOLDS if smallest <= each < largest]
        least = rng.choice(steps or [smallest])
        return min(least + rng.choice([0, 1, 1, 8, rng.randrange(64)]), largest)
    exponent = rng.uniform(math.log2(smallest + 1), math.log2(largest + 1))
    return max(smallest, min(int(2**exponent) - 1, largest))


class Plan:
    """What is to become of an operation.

    Attributes:
        how: one of HOWS, or "" for an operation that is not cancelled.
        when: "turns": after so many turns of the loop; "middle": as soon as the
            first byte has moved and the last has not; "complete": when it is done
            and its task does not know it yet; "stopped": after so many turns,
            while the peer is stopped; "blocked": while the peer computes.
        turns: a number.
        seconds: for "wait_for".
    """

    def __init__(self, rng, options):
        self.how = rng.choice(HOWS) if rng.random() < options.share else ""
        self.when = rng.choice(options.when)
        self.turns = int(2 ** rng.choice([0, rng.uniform(0, 4), rng.uniform(0, 8)])) - 1
        self.seconds = rng.choice(_SECONDS)
        if rng.random() < options.disturbances:
            self.when = rng.choice(["stopped", "blocked"])

    @classmethod
    def none(cls):
        """Not cancelled."""
        plan = cls.__new__(cls)
        plan.how, plan.when, plan.turns, plan.seconds = "", "turns", 0, 0
        return plan

    def __str__(self):
        if not self.how:
            return "not cancelled"
        if self.how == "wait_for":
            return f"wait_for {self.seconds} s"
        return f"cancelled by {self.how}, {self.when} {self.turns}"
