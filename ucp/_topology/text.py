# SPDX-License-Identifier: BSD-3-Clause
"""``python -m ucp topology``: print a topology, or draw it."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator

from . import drawing
from .distance import TopologicalDistance
from .labels import Labels
from .tree import Object

_TYPES = ("openfabrics", "network", "block", "cuda")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``python -m ucp topology``."""
    parser.add_argument(
        "--source", metavar="XML", help="an XML file of hwloc; default: this host"
    )
    parser.add_argument("--svg", metavar="FILE", help="write a drawing to this file")


def run(options: argparse.Namespace) -> int:
    """Print the tree and the distances from each GPU; returns the exit status."""
    try:
        topology = TopologicalDistance(options.source)
        if options.svg is not None:
            with open(options.svg, "w", encoding="utf-8") as file:
                file.write(drawing.draw(topology._labels()))
    except (ImportError, OSError, ValueError) as error:
        print(f"python -m ucp topology: {error}", file=sys.stderr)
        return 1
    encoding = sys.stdout.encoding or "utf-8"
    for line in [*_tree(topology._labels()), "", *_distances(topology)]:
        print(line.encode(encoding, "backslashreplace").decode(encoding))
    return 0


def _tree(labels: Labels) -> Iterator[str]:
    def lines(obj: Object, indent: str) -> Iterator[str]:
        left = f"{indent}{labels.title(obj)}"
        yield f"{left:36} {labels.detail(obj)}".rstrip()
        for child in labels.children(obj):
            yield from lines(child, indent + "  ")

    yield from lines(labels.tree.objects[0], "")


def _distances(topology: TopologicalDistance) -> Iterator[str]:
    """Write a table: a row for each device, a column for each GPU."""
    count = len(topology.gpus)
    if count == 0:
        yield "no GPU"
        return
    rows: dict[tuple[str, str], list[int | None]] = {}
    for gpu in range(count):
        for kind in _TYPES:
            for found in topology.distances(gpu, kind):
                row = rows.setdefault((kind, found["name"]), [None] * count)
                row[gpu] = found["distance"]
    yield f"{'distance from':28}" + "".join(f"{f'cuda{n}':>8}" for n in range(count))
    for (kind, name), row in sorted(rows.items(), key=lambda item: _order(*item[0])):
        cells = "".join(f"{'-' if cell is None else cell:>8}" for cell in row)
        yield f"{kind:12} {name:15}{cells}"


def _order(kind: str, name: str) -> tuple[int, list[tuple[int, str]]]:
    """Order types, then names, in which numbers count: ``mlx5_10`` is a late one."""
    parts = re.findall(r"\d+|\D+", name)
    return _TYPES.index(kind), [
        (int(part), "") if part.isdecimal() else (-1, part) for part in parts
    ]
