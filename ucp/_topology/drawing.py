# SPDX-License-Identifier: BSD-3-Clause
"""Draw a topology as SVG: the machine on the left, devices on the right.

Each object is a box. Its column is its depth, so the distance between two devices
can be counted in the drawing; a device has the row below the one before it, and
what is above devices is in the middle of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from xml.sax.saxutils import escape

from .labels import Labels
from .tree import DeviceType, Kind, Object

_WIDTH, _HEIGHT = 150, 36  # pixels of a box
_ACROSS, _DOWN = 178, 44  # from a box to the next one
_MARGIN = 16
_LETTERS = 21  # that fit into a box
_ENTRY = 140  # pixels of an entry of the legend

_CPUS, _BRIDGE = "#dbe7f3", "#eeeeee"
_COLOURS = {
    DeviceType.CUDA: ("GPU", "#c5e4b3"),
    DeviceType.OPENFABRICS: ("InfiniBand, RoCE", "#f6cfa3"),
    DeviceType.NETWORK: ("network", "#fbeab0"),
    DeviceType.BLOCK: ("disk", "#d9cdeb"),
    DeviceType.OTHER: ("other device", "#ffffff"),
}

_HEAD = """\
<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"
     viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">
<rect width="100%" height="100%" fill="white"/>
"""


@dataclass
class _Box:
    obj: Object
    row: float
    below: list[_Box]


def draw(labels: Labels) -> str:
    """Return the SVG of a topology."""
    root, rows = _place(labels, labels.tree.objects[0], 0)
    boxes = list(_all(root))
    columns = 1 + max(box.obj.depth for box in boxes)
    width = 2 * _MARGIN + (columns - 1) * _ACROSS + _WIDTH
    height = 2 * _MARGIN + int(rows) * _DOWN + _HEIGHT
    parts = [_HEAD.format(width=max(width, _legend_width()), height=height)]
    parts += [_edge(box, below) for box in boxes for below in box.below]
    parts += [_drawn(labels, box) for box in boxes]
    parts += _legend(height - _MARGIN - 14)
    return "".join([*parts, "</svg>\n"])


def _place(labels: Labels, obj: Object, row: float) -> tuple[_Box, float]:
    """Give an object and all below it rows from ``row`` on; returns the next row."""
    below = []
    end = row
    for child in labels.children(obj):
        box, end = _place(labels, child, end)
        below.append(box)
    if not below:
        return _Box(obj, row, []), row + 1
    return _Box(obj, (below[0].row + below[-1].row) / 2, below), end


def _all(box: _Box) -> Iterator[_Box]:
    yield box
    for below in box.below:
        yield from _all(below)


def _left(box: _Box) -> int:
    return _MARGIN + box.obj.depth * _ACROSS


def _top(box: _Box) -> float:
    return _MARGIN + box.row * _DOWN


def _edge(box: _Box, below: _Box) -> str:
    middle = _HEIGHT / 2
    bend = _left(below) - (_ACROSS - _WIDTH) / 2
    return (
        f'<path d="M{_left(box) + _WIDTH} {_top(box) + middle}H{bend}'
        f'V{_top(below) + middle}H{_left(below)}" fill="none" stroke="#777"/>\n'
    )


def _drawn(labels: Labels, box: _Box) -> str:
    title, detail = labels.title(box.obj), labels.detail(box.obj)
    whole = f"{title}: {detail}" if detail else title
    lines = [detail, title] if _is_device(box.obj) and detail else [title, detail]
    x, y = _left(box), _top(box)
    text = _text(x + 8, y + 15, lines[0], "#000", "bold" if detail else "normal")
    if lines[1]:
        text += _text(x + 8, y + 30, lines[1], "#444", "normal")
    else:
        text = _text(x + 8, y + 22, lines[0], "#444", "normal")
    return (
        f'<g><title>{_clean(whole)}</title><rect x="{x}" y="{y}" width="{_WIDTH}" '
        f'height="{_HEIGHT}" rx="4" fill="{_colour(labels, box.obj)}" '
        f'stroke="#777"/>\n{text}</g>\n'
    )


def _text(x: float, y: float, text: str, colour: str, weight: str) -> str:
    if len(text) > _LETTERS:
        text = text[: _LETTERS - 1] + "\N{HORIZONTAL ELLIPSIS}"
    return (
        f'<text x="{x}" y="{y}" fill="{colour}" font-weight="{weight}">'
        f"{_clean(text)}</text>\n"
    )


def _clean(text: str) -> str:
    """Escape a text. XML has no way to write most control characters."""
    return escape("".join(c if c.isprintable() else "?" for c in text))


def _is_device(obj: Object) -> bool:
    return obj.kind in (Kind.PCI_DEVICE, Kind.OS_DEVICE)


def _colour(labels: Labels, obj: Object) -> str:
    if _is_device(obj):
        return _COLOURS[labels.type(obj)][1]
    return _CPUS if obj.kind == Kind.CPUS else _BRIDGE


def _legend_width() -> int:
    return 2 * _MARGIN + (len(_COLOURS) + 2) * _ENTRY


def _legend(y: float) -> Iterator[str]:
    entries = [("CPUs", _CPUS), ("bridge", _BRIDGE), *_COLOURS.values()]
    for n, (name, colour) in enumerate(entries):
        x = _MARGIN + n * _ENTRY
        yield (
            f'<rect x="{x}" y="{y}" width="14" height="14" fill="{colour}" '
            f'stroke="#777"/>\n{_text(x + 20, y + 11, name, "#444", "normal")}'
        )
