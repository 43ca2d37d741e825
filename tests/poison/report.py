# SPDX-License-Identifier: BSD-3-Clause
"""Counts and failures of a run."""

from collections import Counter

# In which state an operation was cancelled, as far as a program can see it.
# held: it waits for credit; untaken: no byte is in a buffer of the receiver;
# unseen: the same or further; nothing: no byte has come; middle: the first byte
# has moved, the last has not; complete: all have moved, and the await has not ended;
# timer: by a time, at a moment that nobody looked at. deferred counts those among
# them whose await went on after the cancellation; withdrawn, messages that were seen
# and then were gone.
STATES = [
    *("held", "untaken", "unseen", "nothing", "middle", "complete", "withdrawn"),
    *("timer", "deferred"),
]

# Of what a failure is.
WRONGS = ["wrong bytes", "written", "lost", "order", "error"]

_MAX_FAILURES = 400


class Report:
    """What both sides of a run have seen.

    Attributes:
        operations: by kind and direction.
        states: cancelled operations by kind, direction and state.
        ends: cancelled sends by kind and what became of the message.
        wrong: failures by kind and what is wrong.
        failures: texts, each for one failure.
    """

    def __init__(self):
        self.operations = Counter()
        self.states = Counter()
        self.ends = Counter()
        self.wrong = Counter()
        self.failures = []

    def fail(self, kind, what, text):
        self.wrong[kind, what] += 1
        if len(self.failures) < _MAX_FAILURES:
            self.failures.append(f"{what}: {text}")

    def as_json(self):
        counters = {
            name: [[list(key), count] for key, count in getattr(self, name).items()]
            for name in ("operations", "states", "ends", "wrong")
        }
        return {**counters, "failures": self.failures}

    def add(self, data):
        """What as_json() gave."""
        for name in ("operations", "states", "ends", "wrong"):
            for key, count in data[name]:
                getattr(self, name)[tuple(key)] += count
        self.failures += data["failures"]

    def table(self):
        """A line for each kind and direction."""
        head = ["kind", "", "all", "cancelled", *STATES, *WRONGS]
        rows = [head]
        for kind, way in sorted(self.operations):
            counts = [self.states[kind, way, state] for state in STATES]
            cancelled = sum(counts) - counts[-1] - counts[-3]
            row = [kind, way, self.operations[kind, way], cancelled, *counts]
            rows.append(row + [self.wrong[f"{kind} {way}", what] for what in WRONGS])
        lines = []
        for row in rows:
            cells = [f"{row[0]:<14} {row[1]:<5}"]
            cells += [f"{cell or '.':>11}" for cell in row[2:]]
            lines.append(" ".join(cells))
        return "\n".join(lines)

    def reached(self):
        """The states in which a send or a receive was cancelled, any kind's."""
        return {(way, state) for (_, way, state), count in self.states.items() if count}
