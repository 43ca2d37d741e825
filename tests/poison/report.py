# SPDX-License-Identifier: BSD-3-Clause
"""Counts and failures of a run."""

from collections import Counter

# In which state an operation was cancelled, as far as a program can see it.
# held: it waits for credit; untaken: no byte is in a buffer of the receiver;
# unseen: the same or further; nothing: no byte has come; middle: the first byte
# has moved, the last has not; complete: all have moved, and the await has not ended;
# timer: by a time, at a moment that nobody looked at.
STATES = ["held", "untaken", "unseen", "nothing", "middle", "complete", "timer"]

# Some of these: deferred: the await went on after the cancellation; stopped, blocked:
# it ended while the peer was stopped or computed. Besides, messages that were seen and
# then were withdrawn.
MARKS = ["deferred", "stopped", "blocked", "withdrawn"]

# Of what a failure is.
WRONGS = ["wrong", "written", "lost", "order", "error"]

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
        """A line for each kind and direction; columns without a count are left out."""
        states = [
            each for each in STATES + MARKS if any(k[2] == each for k in self.states)
        ]
        wrongs = [each for each in WRONGS if any(k[1] == each for k in self.wrong)]
        rows = [["kind", "", "all", "cancelled", *states, *wrongs]]
        for kind, way in sorted(self.operations):
            counts = {each: self.states[kind, way, each] for each in STATES + MARKS}
            cancelled = sum(counts[each] for each in STATES)
            row = [kind, way, self.operations[kind, way], cancelled]
            row += [counts[each] for each in states]
            rows.append(row + [self.wrong[f"{kind} {way}", each] for each in wrongs])
        rest = sum(count for (key, _), count in self.wrong.items() if key == "run")
        lines = [_line(row) for row in rows]
        if rest:
            lines.append(f"failures of the run: {rest}")
        return "\n".join(lines)

    def reached(self):
        """The states in which a send or a receive was cancelled, any kind's."""
        return {(way, state) for (_, way, state), count in self.states.items() if count}


def _line(row):
    cells = [f"{row[0]:<13} {row[1]:<5}"]
    return " ".join(cells + [f"{cell or '.':>9}" for cell in row[2:]])
