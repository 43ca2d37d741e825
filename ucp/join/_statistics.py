# SPDX-License-Identifier: BSD-3-Clause
"""What a join has done, and when."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from .._communicator.agree import allgather_bytes
from .._communicator.communicator import Communicator
from .._core.statistics import Statistics
from .._tables.spans import PeerBytes, Span, covered


@dataclass(frozen=True, slots=True)
class JoinStatistics(Statistics):
    """What a join has done on this rank.

    Attributes:
        rank: this rank.
        strategy: ``"shuffle"``, ``"broadcast left"`` or ``"broadcast right"``.
        reason: why it was chosen.
        over_decomposition: partitions of a rank.
        rows: of both tables on all ranks.
        nbytes: of both tables on all ranks.
        result_rows: rows of the result on this rank.
        peers: bytes to and from each rank.
        spilled: bytes that went to the spill file.
        most_held: bytes at most that the budget has counted.
        spans: what was done when.
        skewed: keys that one rank had many rows of, as the warnings name them.
        local: the name of the local join.
    """

    rank: int
    strategy: str
    reason: str
    over_decomposition: int
    rows: tuple[int, int]
    nbytes: tuple[int, int]
    result_rows: int
    peers: tuple[PeerBytes, ...]
    spilled: int
    most_held: int
    spans: tuple[Span, ...]
    skewed: tuple[str, ...]
    local: str = ""

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        """The statistics of which ``as_dict()`` has made ``fields``, which may have
        been JSON in between."""
        return cls(
            **{
                **fields,
                "rows": tuple(fields["rows"]),
                "nbytes": tuple(fields["nbytes"]),
                "peers": tuple(PeerBytes(**peer) for peer in fields["peers"]),
                "spans": tuple(Span(**span) for span in fields["spans"]),
                "skewed": tuple(fields["skewed"]),
            }
        )

    @property
    def seconds(self) -> float:
        """From the call to the result."""
        begin = min((span.begin for span in self.spans), default=0.0)
        return max((span.end for span in self.spans), default=0.0) - begin

    def spent(self, name: str) -> float:
        """The seconds of all spans of a name; ``"idle"``: those of none."""
        if name == "idle":
            return self.seconds - covered(
                [span for span in self.spans if span.name != "exchange"]
            )
        return covered([span for span in self.spans if span.name == name])


def explain(statistics: JoinStatistics) -> str:
    """Say in a few lines what a join has done on a rank."""
    its = statistics
    by = f", {its.local}" if its.local else ""
    lines = [
        f"rank {its.rank}: {its.strategy}, {its.over_decomposition} partitions "
        f"a rank ({its.reason}){by}",
        f"  {its.rows[0]} x {its.rows[1]} rows, {its.nbytes[0] / 1e6:.1f} x "
        f"{its.nbytes[1] / 1e6:.1f} MB on all ranks; {its.result_rows} rows here",
        "  "
        + ", ".join(
            f"{name} {its.spent(name) * 1e3:.1f} ms"
            for name in ("agree", "partition", "exchange", "join", "release", "idle")
        )
        + f"; in all {its.seconds * 1e3:.1f} ms",
    ]
    for peer in its.peers:
        lines.append(
            f"  rank {peer.rank} ({peer.path}): {peer.sent / 1e6:.1f} MB sent, "
            f"{peer.mapped / 1e6:.1f} MB viewed, {peer.copied / 1e6:.1f} MB copied"
        )
    if its.spilled:
        lines.append(f"  {its.spilled / 1e6:.1f} MB in the spill file")
    lines += [f"  skewed: {text}" for text in its.skewed]
    return "\n".join(lines)


async def gather_statistics(
    comm: Communicator, statistics: JoinStatistics
) -> list[JoinStatistics]:
    """The statistics of all ranks, on every rank, which all call this."""
    told = await allgather_bytes(comm, json.dumps(statistics.as_dict()).encode())
    return [JoinStatistics.from_dict(json.loads(text)) for text in told]


_COLOURS = {
    "agree": "0.6",
    "partition": "tab:orange",
    "exchange": "tab:blue",
    "join": "tab:green",
    "release": "0.8",
}


def plot(statistics: Sequence[JoinStatistics], path: Any = None) -> Any:
    """Draw the timeline of the ranks, with matplotlib.

    Args:
        statistics: of all ranks: see ``gather_statistics``.
        path: a file to write, as ``Figure.savefig`` takes it; None: none.

    Returns:
        The ``matplotlib.figure.Figure``.
    """
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    figure = Figure(figsize=(9, 1.2 + 0.8 * len(statistics)), layout="constrained")
    axes = figure.subplots()
    for row, its in enumerate(statistics):
        for span in its.spans:
            height, at = (0.2, row + 0.3) if span.name == "exchange" else (0.6, row)
            axes.barh(
                at,
                (span.end - span.begin) * 1e3,
                height,
                left=span.begin * 1e3,
                color=_COLOURS[span.name],
                edgecolor="white",
                linewidth=0.5,
            )
    axes.set_yticks(range(len(statistics)), [f"rank {its.rank}" for its in statistics])
    axes.invert_yaxis()
    axes.set_xlabel("ms")
    names = [
        name
        for name in _COLOURS
        if any(span.name == name for its in statistics for span in its.spans)
    ]
    handles = [Patch(color=_COLOURS[name], label=name) for name in names]
    figure.legend(handles=handles, loc="outside upper center", ncols=len(names))
    if path is not None:
        figure.savefig(path)
    return figure
