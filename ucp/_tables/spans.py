# SPDX-License-Identifier: BSD-3-Clause
"""What a rank has done when, and what it has sent and got."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .._core.statistics import Statistics


@dataclass(frozen=True, slots=True)
class Span(Statistics):
    """Work of a rank.

    Attributes:
        name: ``"agree"``, ``"partition"``, ``"exchange"``, ``"join"`` or
            ``"release"``.
        begin: seconds after the ranks had agreed, which was at nearly the same time
            on all of them; so the begin of ``"agree"`` is negative.
        end: the same.
        partition: the number of a ``"join"``; else None.
    """

    name: str
    begin: float
    end: float
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class PeerBytes(Statistics):
    """Bytes between this rank and another one.

    Attributes:
        rank: the other rank, or this one.
        path: how they are reached: see ``Communicator.explain``.
        sent: bytes of partitions that are the other rank's.
        mapped: bytes from it that were read where it has them.
        copied: bytes from it that were copied here, also to the spill file.
    """

    rank: int
    path: str
    sent: int
    mapped: int
    copied: int


def covered(spans: Sequence[Span]) -> float:
    """The seconds that at least one of the spans has."""
    total, last = 0.0, float("-inf")
    for span in sorted(spans, key=lambda span: span.begin):
        total += max(0.0, span.end - max(span.begin, last))
        last = max(last, span.end)
    return total
