# SPDX-License-Identifier: BSD-3-Clause
"""Which of the ranks that have failed was the first.

Ranks that wait for one that has failed fail soon after it, and may end before it: what
tells them apart is what they have printed last. A traceback that ends with
UCXRankFailed names another rank; the one that is looked for names none, or is the one
that most of the others name.
"""

from __future__ import annotations

import re
import signal
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

_TRACEBACK = re.compile(
    r"([ |+]*)(?:Exception Group )?Traceback \(most recent call last\):"
)
_VICTIM = re.compile(r"(?:[\w.]*\.)?UCXRankFailed: (.*)", re.DOTALL)
# What it says of who has ended the communicator; else the first rank that it names.
_NAMED = (re.compile(r"cancelled by rank (\d+)"), re.compile(r"\brank (\d+)\b"))
_MAX_REASON = 300  # characters


class End(NamedTuple):
    """How a rank has ended."""

    rank: int
    status: int  # or the negative number of the signal
    how: str  # for people: "status 3", "SIGSEGV"
    reason: str  # for people; or ""

    @property
    def is_for_another(self) -> bool:
        """Has it failed with UCXRankFailed? The rank that this names may be that of
        another communicator than the one of all ranks."""
        return _VICTIM.fullmatch(self.reason) is not None

    @property
    def names(self) -> int | None:
        """The rank for which this one has failed; or None."""
        found = _VICTIM.fullmatch(self.reason)
        if found is None:
            return None
        text = found[1]
        # A heap's communicator is aborted by each rank, with the text of another.
        while text.startswith(
            own := f"rank {self.rank} has aborted the communicator: "
        ):
            text = text.removeprefix(own)
        for pattern in _NAMED:
            if (named := pattern.search(text)) is not None:
                rank = int(named[1])
                return None if rank == self.rank else rank
        return None

    def __str__(self) -> str:
        return f"({self.how})" + (f": {self.reason}" if self.reason else "")


def reason_of(tail: bytes, status: int) -> str:
    """Find in the end of a rank's standard error why it has failed; or "".

    It is the exception of the last traceback, the innermost one of a group; or what
    ``sys.exit(text)`` has printed.
    """
    lines = tail.decode(errors="replace").splitlines()
    for i in reversed(range(len(lines))):
        found = _TRACEBACK.match(lines[i])
        if found is not None:
            if status not in (1, -signal.SIGINT):  # it was caught and printed
                return ""
            return _exception_in(lines[i + 1 :], len(found[1]))[:_MAX_REASON]
    written = [line.strip() for line in lines if line.strip()]
    return written[-1][:_MAX_REASON] if written and status == 1 else ""


def _exception_in(lines: list[str], column: int) -> str:
    """The line that ends a traceback whose lines begin at a column."""
    for line in lines:
        text = line[column:]
        if text and not text[0].isspace() and not line[:column].strip(" |+-"):
            return text.strip()
    return ""


def first_of(ends: Sequence[End]) -> End:
    """The one that has failed first of those that have failed, in the order in which
    they have ended."""
    votes = Counter(end.names for end in ends)
    candidates = (
        [end for end in ends if not end.is_for_another]
        or [end for end in ends if end.names is None]
        or ends
    )
    return max(candidates, key=lambda end: votes[end.rank])


def is_victim(end: End, first: End, ends: Sequence[End]) -> bool:
    """Has it failed for the first one, perhaps by way of another one?"""
    by_rank = {each.rank: each for each in ends}
    seen: set[int] = set()
    while end.names is not None and end.rank not in seen:
        seen.add(end.rank)
        if end.names == first.rank or end.names not in by_rank:
            return end.names == first.rank
        end = by_rank[end.names]
    return False


def describe(ends: Sequence[End], size: int, more: int) -> str:
    """Say who has failed first, who for it, and who besides; ``more`` still run."""
    first = first_of(ends)
    rest = [end for end in ends if end is not first]
    victims = sorted(end.rank for end in rest if is_victim(end, first, ends))
    text = f"rank {first.rank} failed{' first' if size > 1 else ''} {first}"
    if victims:
        numbers = ", ".join(map(str, victims))
        text += f"; rank{'s' if len(victims) > 1 else ''} {numbers} ended for it"
    for end in rest:
        if end.rank not in victims:
            text += f"; rank {end.rank} failed, too {end}"
    return text + (f"; ending {more} more" if more else "")
