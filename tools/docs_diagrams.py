# SPDX-License-Identifier: BSD-3-Clause
"""Draws docs/diagrams: python tools/docs_diagrams.py

The drawings have a ground of their own and follow the reader's light or dark scheme,
so that a page shows them in either, and a code host as well.
"""

from __future__ import annotations

from pathlib import Path
from xml.sax.saxutils import escape

FOLDER = Path(__file__).parents[1] / "docs/diagrams"

STYLE = """
text { font-family: system-ui, sans-serif; font-size: 14px; fill: #24292f; }
.mono { font-family: ui-monospace, monospace; font-size: 13px; }
.small { font-size: 12px; fill: #57606a; }
.title { font-weight: 600; }
.ground { fill: #ffffff; }
.box { fill: #f0f4f9; stroke: #8c959f; }
.blue { fill: #ddebff; stroke: #3b7ddd; }
.green { fill: #dff3e4; stroke: #2f8a4c; }
.amber { fill: #fdf0d0; stroke: #b7791f; }
.red { fill: #fde3e1; stroke: #c0392b; }
.line { stroke: #57606a; stroke-width: 1.5; fill: none; }
.thick { stroke: #3b7ddd; stroke-width: 4; fill: none; }
.life { stroke: #8c959f; stroke-dasharray: 4 4; }
.head { fill: #57606a; }
.thickhead { fill: #3b7ddd; }
@media (prefers-color-scheme: dark) {
  text { fill: #dfe3e8; }
  .small { fill: #a2abb6; }
  .ground { fill: #16191d; }
  .box { fill: #22272e; stroke: #768390; }
  .blue { fill: #16304f; stroke: #5b9bf0; }
  .green { fill: #173924; stroke: #57ab6f; }
  .amber { fill: #3f3010; stroke: #d9a441; }
  .red { fill: #4a1f1c; stroke: #e5766b; }
  .line { stroke: #a2abb6; }
  .thick { stroke: #5b9bf0; }
  .life { stroke: #768390; }
  .head { fill: #a2abb6; }
  .thickhead { fill: #5b9bf0; }
}
"""

MARKER = (
    '<marker id="{name}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="{size}" '
    'markerHeight="{size}" orient="auto-start-reverse">'
    '<path class="{kind}" d="M0 0L10 5L0 10z"/></marker>'
)


class Drawing:
    """An SVG that grows by its methods; coordinates are pixels."""

    def __init__(self, width: int, height: int, about: str) -> None:
        heads = MARKER.format(name="head", size=8, kind="head")
        heads += MARKER.format(name="thickhead", size=3.5, kind="thickhead")
        self.parts = [
            "<!-- SPDX-License-Identifier: BSD-3-Clause -->",
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" role="img">',
            f"<title>{escape(about)}</title>",
            f"<style>{STYLE}</style><defs>{heads}</defs>",
            f'<rect class="ground" width="{width}" height="{height}" rx="8"/>',
        ]

    def text(
        self, x: float, y: float, text: str, kind: str = "", anchor: str = "middle"
    ) -> None:
        self.parts.append(
            f'<text x="{x:g}" y="{y:g}" class="{kind}" text-anchor="{anchor}">'
            f"{escape(text)}</text>"
        )

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        lines: str,
        kind: str = "box",
        mono: bool = False,
    ) -> None:
        """A box with centred lines; the second and further ones are small."""
        self.parts.append(
            f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" '
            f'height="{height:g}" rx="5"/>'
        )
        rows = lines.split("\n") if lines else []
        top = y + height / 2 - 8.5 * (len(rows) - 1) + 5
        for n, row in enumerate(rows):
            kinds = ("mono" if mono else "title") if n == 0 else "small"
            self.text(x + width / 2, top + 17 * n, row, kinds)

    def arrow(
        self,
        x1: float,
        y1: float,
        x2: float,
        y2: float,
        label: str = "",
        kind: str = "line",
        both: bool = False,
        above: float = 7,
    ) -> None:
        head = "thickhead" if kind == "thick" else "head"
        start = f'marker-start="url(#{head})" ' if both else ""
        self.parts.append(
            f'<line class="{kind}" x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" '
            f'{start}marker-end="url(#{head})"/>'
        )
        if label:
            self.text((x1 + x2) / 2, (y1 + y2) / 2 - above, label, "small")

    def path(self, d: str, x: float, y: float, label: str, anchor: str) -> None:
        self.parts.append(f'<path class="line" d="{d}" marker-end="url(#head)"/>')
        self.text(x, y, label, "small", anchor)

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str) -> None:
        self.parts.append(
            f'<line class="{kind}" x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"/>'
        )

    def save(self, name: str) -> None:
        text = "\n".join([*self.parts, "</svg>"])
        (FOLDER / f"{name}.svg").write_text(text + "\n")


def wire() -> None:
    draw = Drawing(760, 400, "What connects two processes, and a message's header")
    draw.box(20, 20, 150, 120, "process A\none worker")
    draw.box(590, 20, 150, 120, "process B\none worker")
    draw.arrow(176, 45, 584, 45, "TCP socket: handshake, sign of life", both=True)
    draw.arrow(176, 92, 584, 92, "", kind="thick", both=True)
    draw.text(380, 82, "link: one pair of UCX endpoints for all connections", "small")
    draw.text(380, 116, "messages and control messages, as active messages", "small")
    draw.arrow(176, 134, 584, 134, "", both=True)
    draw.text(380, 152, "Unix socket: only for loans, on one host", "small")
    draw.text(20, 194, "The header of a data message, little-endian", "title", "start")
    at = 20
    fields = [
        ("kind", 1, 56, "box"),
        ("flags", 1, 56, "box"),
        ("channel", 2, 88, "box"),
        ("seq", 4, 100, "box"),
        ("endpoint", 8, 150, "box"),
        ("tag", 8, 150, "amber"),
        ("bytes", 0, 120, "blue"),
    ]
    byte = 0
    for name, size, width, kind in fields:
        about = f"{name}\n{size} B" if size else name
        draw.box(at, 225, width, 52, about, kind, mono=True)
        draw.text(at, 218, str(byte), "small", "start")
        at, byte = at + width, byte + size
    notes = [
        "kind: message, active message, stream or frames; each has 65536 channels",
        "seq: the place in the channel, by which the receiver restores the order",
        "endpoint: the number of this connection at the receiver",
        "tag: absent if the message has none, so that 8 bytes of data fit a cache line",
    ]
    for n, note in enumerate(notes):
        draw.text(20, 306 + 22 * n, note, "small", "start")
    draw.save("wire")


# The rooms of src that are beside each other in a column use none of each other, and
# may use those of the columns to the right. tests/project/test_layers.py compares them
# with the arrows that it checks.
ROOMS = (
    ("messenger", "rma"),
    ("channel",),
    ("endpoint",),
    ("lend", "bounce"),
    ("ops",),
    ("worker",),
    ("keys",),
    ("host",),
    ("mem",),
    ("util",),
)
LAYERS = (("outputs", "shmem", "proxy", "moe"), ("joint",), ("region",), ("comm",))


def _layers_of_libumx(draw: Drawing, y: float) -> None:
    """Draw LAYERS in a row, and the shuffler below, which is on top of comm only."""
    at = 20.0
    for column, width in zip(LAYERS, (290, 92, 92, 92), strict=True):
        last = column == LAYERS[-1]
        height = 82 if last else 36
        draw.box(at, y, width, height, ", ".join(column), mono=True)
        if not last:
            draw.arrow(at + width + 2, y + 18, at + width + 49, y + 18)
        at += width + 51.3
    draw.box(20, y + 46, 290, 36, "shuffle", mono=True)
    draw.arrow(312, y + 64, 645, y + 64)


def _rooms_of_libumx(draw: Drawing, y: float) -> None:
    """Draw ROOMS around the height y, with an arrow from each column to the next."""
    widths = [14 + 7.85 * max(map(len, column)) for column in ROOMS]
    gap = (720 - sum(widths)) / (len(ROOMS) - 1)
    at = 20.0
    for column, width in zip(ROOMS, widths, strict=True):
        height = 14 + 22 * len(column)
        draw.box(at, y - height / 2, width, height, "")
        for n, room in enumerate(column):
            top = y - 11 * (len(column) - 1) + 5
            draw.text(at + width / 2, top + 22 * n, room, "mono")
        if column != ROOMS[-1]:
            draw.arrow(at + width + 1, y, at + width + gap - 1, y)
        at += width + gap


def layers() -> None:
    draw = Drawing(760, 730, "Layers of the project, and rooms of the C library")
    draw.text(20, 30, "Python", "title", "start")
    draw.box(20, 42, 720, 40, "your program", "green")
    upper = ["ucp.dask\nDask's protocol", "ucp.join, table\ntables of all ranks"]
    upper += ["ucp.moe\nlayers of experts", "ucp.proxy\nrings of commands"]
    lower = ["ucp.compat\nucx-py and ucxx", "ucp.shuffle\nchunks and outputs"]
    lower += ["ucp.sync\nblocking calls", "ucp.shmem\nsymmetric heaps"]
    for y, row in ((94, upper), (150, lower)):
        for n, text in enumerate(row):
            draw.box(20 + 182.67 * n, y, 172, 46, text, "blue")
    draw.box(20, 208, 720, 40, "ucp: endpoints, memory, communicators", "blue")
    draw.box(20, 260, 720, 40, "ucp_ext: the extension, one awaitable for an operation")
    draw.text(20, 332, "C: libumx", "title", "start")
    draw.box(
        20, 344, 720, 36, "include/umx: a header for each noun", "amber", mono=True
    )
    draw.text(20, 402, "layers: libraries on top of the rooms below", "small", "start")
    _layers_of_libumx(draw, 410)
    draw.text(20, 514, "rooms: each may use all to its right", "small", "start")
    _rooms_of_libumx(draw, 562)
    beside = ["progress\nwhat drives a worker", "codec\nthe bytes on the wire"]
    beside += ["library\nconnects the rooms", "data, topology\nuse util only"]
    for n, text in enumerate(beside):
        draw.box(20 + 182.67 * n, 616, 172, 46, text)
    draw.box(20, 674, 720, 40, "UCX: shared memory, TCP, InfiniBand, CUDA", "green")
    draw.save("layers")


class Sequence:
    """Sender and receiver, with arrows between them from the top down."""

    def __init__(
        self, draw: Drawing, x: float, y: float, title: str, about: str
    ) -> None:
        self.draw, self.x, self.y = draw, x, y + 84
        draw.text(x, y, title, "title", "start")
        draw.text(x, y + 18, about, "small", "start")
        draw.box(x, y + 30, 96, 26, "sender", "blue")
        draw.box(x + 264, y + 30, 96, 26, "receiver", "green")
        for side in (x + 48, x + 312):
            draw.line(side, y + 56, side, y + 232, "life")

    def there(self, label: str, kind: str = "line") -> None:
        self.draw.arrow(self.x + 50, self.y, self.x + 310, self.y, label, kind)
        self.y += 28

    def back(self, label: str, kind: str = "line") -> None:
        self.draw.arrow(self.x + 310, self.y, self.x + 50, self.y, label, kind)
        self.y += 28

    def note(self, side: str, text: str) -> None:
        x = self.x + (54 if side == "sender" else 306)
        anchor = "start" if side == "sender" else "end"
        self.draw.text(x, self.y - 6, text, "small", anchor)
        self.y += 24


def message() -> None:
    draw = Drawing(800, 560, "Four ways of a message")
    way = Sequence(draw, 20, 30, "Eager", "the bytes go with the header")
    way.there("header and bytes", "thick")
    way.note("sender", "the send is done")
    way.note("receiver", "a receive matches: it is done")
    way.note("receiver", "or the message is kept, within the credit")
    way.back("credit, when it has been read")

    way = Sequence(
        draw, 420, 30, "Rendezvous", "from 64 KiB (TCP: 256 KiB): without a copy"
    )
    way.there("header: the length, and where")
    way.note("receiver", "waits until a receive matches")
    way.back("asks for the bytes")
    way.there("bytes, directly into the buffer", "thick")
    way.back("done: the send is done")

    way = Sequence(draw, 20, 310, "Loan", "same host, cma_max: one system call")
    way.there("header: a slot of the lender's table")
    way.note("receiver", "waits until a receive matches")
    way.back("reads the sender's memory, and the slot", "thick")
    way.note("receiver", "the slot is the same: it is done")
    way.back("returned: the send is done")

    way = Sequence(draw, 420, 310, "Pieces", "network, from 16 KiB: others go between")
    way.there("header: the length")
    way.back("asks, where it was announced")
    way.there("piece, 48 KiB at most", "thick")
    way.there("a short message of another connection")
    way.there("the last piece: the send is done", "thick")
    draw.save("message")


def endpoint() -> None:
    draw = Drawing(760, 250, "States of an endpoint")
    states = [
        (20, "connecting", "amber", "the handshake"),
        (222, "open", "green", "both directions"),
        (424, "draining", "amber", "no new work"),
        (626, "closed", "box", "for good"),
    ]
    for x, name, kind, about in states:
        draw.box(x, 40, 114, 56, f"{name}\n{about}", kind)
    for x, label in ((136, "WELCOME"), (338, "close()"), (540, "settled")):
        draw.arrow(x, 68, x + 83, 68, label)
    draw.box(312, 174, 135, 56, "failed\nerror says why", "red")
    draw.arrow(77, 98, 310, 196)
    draw.arrow(300, 98, 360, 172)
    draw.arrow(470, 98, 410, 172)
    draw.text(150, 172, "no answer, refused", "small")
    draw.text(345, 140, "peer lost", "small", "start")
    draw.text(458, 145, "peer lost", "small", "start")
    draw.path("M280 38C280 8 682 8 682 38", 481, 30, "abort()", "middle")
    draw.save("endpoint")


def member() -> None:
    draw = Drawing(760, 270, "States of a member of a communicator")
    draw.box(40, 40, 150, 56, "alive\nheartbeats are due", "green")
    draw.box(320, 40, 170, 56, "suspect\noperations with it wait", "amber")
    draw.box(590, 40, 150, 56, "dead\nrevoked on all ranks", "red")
    draw.box(40, 190, 150, 56, "left\nno endpoint", "box")
    draw.arrow(192, 68, 318, 68, "an endpoint fails")
    draw.arrow(492, 68, 588, 68, "verdict")
    draw.arrow(90, 98, 90, 188)
    draw.text(84, 148, "goodbye", "small", "end")
    draw.arrow(140, 188, 140, 98)
    draw.text(147, 148, "a new endpoint", "small", "start")
    draw.arrow(192, 205, 370, 98)
    draw.text(300, 160, "cannot be reached", "small", "start")
    draw.path("M192 230C480 240 640 200 664 98", 470, 246, "its end is known", "start")
    draw.path("M115 38C115 4 664 4 664 38", 390, 26, "its end is known", "middle")
    draw.save("member")


def bars(
    draw: Drawing, x: float, y: float, kinds: str, labels: str = "", size: int = 22
) -> None:
    """Draw a row of squares: g, b, a and r are colours, a space is a gap."""
    names = {"g": "green", "b": "blue", "a": "amber", "r": "red", "-": "box"}
    for n, kind in enumerate(kinds):
        if kind != " ":
            label = labels[n] if n < len(labels) else ""
            draw.box(x + (size + 3) * n, y, size, size, label, names[kind], mono=True)


def join() -> None:
    draw = Drawing(760, 330, "A shuffle join of two tables on two ranks")
    for y, rank, left, right in ((40, 0, "gbg", "bbg"), (190, 1, "bgb", "gbg")):
        draw.box(20, y, 190, 110, "", "box")
        draw.text(30, y + 22, f"rank {rank}: its rows", "title", "start")
        draw.text(30, y + 54, "left", "small", "start")
        bars(draw, 80, y + 38, left)
        draw.text(30, y + 88, "right", "small", "start")
        bars(draw, 80, y + 72, right)
    for y, kind, left, right in (
        (40, "green", "ggg", "ggg"),
        (190, "blue", "bbb", "bbb"),
    ):
        draw.box(350, y, 190, 110, "", "box")
        draw.text(360, y + 22, "the partition it owns", "title", "start")
        draw.text(360, y + 54, "left", "small", "start")
        bars(draw, 410, y + 38, left)
        draw.text(360, y + 88, "right", "small", "start")
        bars(draw, 410, y + 72, right)
        draw.arrow(544, y + 55, 606, y + 55, "joins")
        draw.box(610, y + 25, 130, 60, "its part\nof the result", kind)
    draw.arrow(214, 95, 346, 95, "hash of the key")
    draw.arrow(214, 112, 346, 230)
    draw.arrow(214, 230, 346, 112)
    draw.arrow(214, 248, 346, 248)
    draw.text(
        20,
        322,
        "A colour is a partition: equal keys have equal hashes.",
        "small",
        "start",
    )
    draw.save("join")


def sort() -> None:
    draw = Drawing(760, 230, "A sort on two ranks")
    columns = [
        (20, "1. rows of the ranks", ("rgabgr", "bragab"), ("714295", "392618")),
        (280, "2. sample: ranges of values", ("  gbab", "  agrr"), ("", "")),
        (560, "3. each sorts its ranges", ("gggbbb", "aaarrr"), ("111222", "345679")),
    ]
    for n, (x, title, rows, labels) in enumerate(columns):
        draw.text(x, 36, title, "title", "start")
        if n != 1:
            for y, row, label in zip((56, 130), rows, labels, strict=True):
                bars(draw, x, y, row, label)
    for y, kind, text in (
        (56, "green", "1"),
        (86, "blue", "2"),
        (126, "amber", "3 to 5"),
        (156, "red", "6 to 9"),
    ):
        draw.box(300, y, 110, 24, text, kind, mono=True)
    draw.text(420, 88, "to rank 0", "small", "start")
    draw.text(420, 158, "to rank 1", "small", "start")
    for y in (67, 141):
        draw.arrow(176, y, 292, y)
        draw.arrow(486, y + 12, 552, y + 12)
    draw.text(20, 190, "rank 0 above, rank 1 below", "small", "start")
    draw.text(
        20,
        212,
        "Ranges are chosen so that ranks have about as many rows.",
        "small",
        "start",
    )
    draw.save("sort")


def shuffle() -> None:
    draw = Drawing(760, 300, "The shuffler, and outputs of maps")
    draw.text(20, 30, "Shuffler: the bytes are brought", "title", "start")
    draw.text(400, 30, "MapOutputs: the bytes stay, readers fetch", "title", "start")
    for n, y in enumerate((56, 136, 216)):
        draw.box(20, y, 110, 56, f"rank {n}\ninserts chunks")
        draw.box(
            230,
            y,
            130,
            56,
            f"owner of {n}\ntakes its chunks",
            ("green", "blue", "amber")[n],
        )
        for m in (84, 164, 244):
            draw.arrow(132, y + 28, 228, m)
        draw.box(400, y, 150, 56, "", "box")
        draw.text(414, y + 20, f"map {n}", "small", "start")
        bars(draw, 414, y + 28, "gba", size=20)
    draw.box(610, 66, 130, 56, "reader of 0\ngreen of each map", "green")
    draw.box(610, 186, 130, 56, "reader of 2\namber of each map", "amber")
    for y in (84, 164, 244):
        draw.arrow(552, y, 608, 94)
        draw.arrow(552, y, 608, 214)
    draw.save("shuffle")


def experts() -> None:
    draw = Drawing(760, 250, "Dispatch and combine of a layer of experts")
    titles = ((20, "tokens"), (250, "experts"), (640, "sums"))
    for x, title in titles:
        draw.text(x, 30, title, "title", "start")
    for n, (y, row) in enumerate(((50, "gbag"), (150, "abgb"))):
        draw.box(20, y, 130, 70, "", "box")
        draw.text(30, y + 20, f"rank {n}", "small", "start")
        bars(draw, 30, y + 34, row)
        draw.box(250, y, 130, 70, f"rank {n}\nexperts {2 * n} and {2 * n + 1}", "amber")
        draw.box(640, y, 100, 70, f"rank {n}\nits tokens", "green")
        draw.box(430, y, 120, 70, "outputs\nstay in place", "blue")
        draw.arrow(382, y + 35, 428, y + 35)
        draw.arrow(152, y + 35, 248, 85)
        draw.arrow(152, y + 35, 248, 185)
        draw.arrow(552, 85, 638, y + 35)
        draw.arrow(552, 185, 638, y + 35)
    draw.text(
        200, 242, "dispatch: rows are written to the ranks of their experts", "small"
    )
    draw.text(590, 242, "combine: ranks read, and add by the weights", "small")
    draw.save("experts")


def heap() -> None:
    draw = Drawing(760, 270, "A symmetric heap on three ranks")
    for n, x in enumerate((20, 280, 540)):
        draw.text(x, 34, f"rank {n}", "title", "start")
        draw.box(x, 48, 200, 40, "x\noffset 0", "green")
        draw.box(x, 88, 200, 34, "signal", "amber")
        draw.box(x, 122, 200, 60, "free", "box")
    draw.path("M120 184C120 236 360 236 380 92", 160, 244, "", "start")
    draw.text(20, 232, "rank 0: put_signal(x, data, 1, signal, 1)", "small", "start")
    draw.text(400, 204, "writes x of rank 1, then signal of rank 1", "small", "start")
    draw.text(
        20,
        256,
        "All ranks allocate alike, so an array has one offset on all of them.",
        "small",
        "start",
    )
    draw.save("heap")


def ring() -> None:
    draw = Drawing(760, 230, "A ring, its proxy, and the memory of a peer")
    draw.box(20, 40, 130, 50, "a thread\nproducer", "green")
    draw.box(20, 130, 130, 50, "a GPU's kernel\nproducer", "green")
    for y, text in ((48, "put put signal"), (138, "put quiet")):
        draw.box(210, y, 160, 34, text, "amber", mono=True)
        draw.arrow(152, y + 17, 208, y + 17)
        draw.arrow(372, y + 17, 438, 110)
    draw.text(290, 34, "rings: commands of 16 bytes", "small")
    draw.box(440, 80, 120, 60, "proxy\na thread, its worker", "blue")
    draw.arrow(562, 110, 618, 110, "", kind="thick")
    draw.box(620, 62, 120, 96, "a region\nmemory of\neach rank")
    draw.text(590, 176, "bytes, then the signal", "small")
    draw.text(
        20,
        212,
        "A producer needs no worker, no endpoint and no lock.",
        "small",
        "start",
    )
    draw.save("ring")


def closest() -> None:
    draw = Drawing(760, 330, "Devices of a host, as a tree")
    draw.box(320, 20, 120, 34, "machine")
    for x, name in ((80, "package 0"), (540, "package 1")):
        draw.arrow(380, 56, x + 70, 78)
        draw.box(x, 80, 140, 34, name)
        draw.arrow(x + 70, 116, x + 70, 138)
        draw.box(x, 140, 140, 34, "host bridge")
        for dx in (-50, 110):
            draw.arrow(x + 70, 176, x + dx + 40, 198)
            draw.box(x + dx, 200, 80, 30, "switch")
    for x, name, kind in (
        (10, "cuda0", "green"),
        (84, "mlx5_0", "blue"),
        (172, "cuda1", "green"),
        (246, "mlx5_1", "blue"),
        (470, "cuda2", "green"),
        (544, "mlx5_2", "blue"),
        (632, "cuda3", "green"),
        (690, "", ""),
    ):
        if name:
            draw.box(x, 260, 68, 30, name, kind, mono=True)
    for x, left, right in ((70, 44, 118), (230, 206, 280), (530, 504, 578)):
        draw.arrow(x, 232, left, 258)
        draw.arrow(x, 232, right, 258)
    draw.arrow(690, 232, 668, 258)
    draw.text(
        20,
        318,
        "cuda0 and mlx5_0 meet at a switch, cuda0 and other devices higher up.",
        "small",
        "start",
    )
    draw.save("closest")


def launch() -> None:
    draw = Drawing(760, 220, "python -m ucp run -n 4 prog.py")
    draw.box(20, 80, 170, 56, "python -m ucp run\nlauncher, one session", "amber")
    for n, y in enumerate((16, 64, 112, 160)):
        draw.box(300, y, 150, 40, f"rank {n}\nprog.py", "blue")
        draw.arrow(192, 108, 298, y + 20)
        draw.arrow(452, y + 20, 548, 108, both=True)
    draw.box(550, 80, 190, 56, "a communicator\nmessages, barriers, sums", "green")
    draw.text(190, 30, "UCP_RANK, UCP_SIZE", "small")
    draw.text(550, 30, "Communicator.from_env()", "small")
    draw.save("launch")


def ranks() -> None:
    draw = Drawing(760, 250, "Messages and collective operations of ranks")
    draw.text(20, 30, "messages between two ranks", "title", "start")
    draw.text(420, 30, "allreduce: all ranks take part", "title", "start")
    for n, (x, y) in enumerate(((20, 60), (240, 60), (20, 170), (240, 170))):
        draw.box(x, y, 110, 50, f"rank {n}", "blue")
    draw.arrow(132, 78, 238, 78, "send(array, 1)")
    draw.arrow(238, 185, 132, 185, "tag 5")
    draw.arrow(75, 112, 75, 168)
    for n, x in enumerate((420, 505, 590, 675)):
        draw.box(x, 60, 65, 40, f"rank {n}\nhas {n + 1}", "blue")
        draw.box(x, 180, 65, 40, f"rank {n}\nhas 10", "green")
        draw.arrow(x + 32, 102, 580, 128)
        draw.arrow(580, 154, x + 32, 178)
    draw.box(520, 128, 120, 26, "1 + 2 + 3 + 4", "amber", mono=True)
    draw.save("ranks")


def dask() -> None:
    draw = Drawing(760, 250, "What goes over ucp in a Dask cluster")
    draw.box(310, 20, 140, 46, "scheduler\ntasks", "amber")
    draw.box(20, 20, 140, 46, "client", "green")
    for x, name in ((150, "worker 0"), (470, "worker 1")):
        draw.box(x, 150, 140, 70, f"{name}\nframes, arrays", "blue")
        draw.arrow(380 + (x - 310) * 0.3, 68, x + 70, 148, both=True)
    draw.arrow(162, 43, 308, 43, "protocol ucp://", both=True)
    draw.arrow(292, 172, 468, 172, "", kind="thick", both=True)
    draw.text(380, 164, "protocol ucp://: arrays", "small")
    draw.arrow(292, 204, 468, 204, "", both=True)
    draw.text(380, 222, "ucp.dask.merge(): rows,", "small")
    draw.text(380, 238, "with any protocol of the cluster", "small")
    draw.save("dask")


def devices() -> None:
    draw = Drawing(760, 300, "Ways between memory of two processes of a host")
    for x, name in ((20, "sender"), (560, "receiver")):
        draw.text(x, 30, name, "title", "start")
        draw.box(x, 46, 180, 50, "device\nCuPy, torch, Numba", "green")
        draw.box(x, 136, 180, 50, "pinned host memory", "amber")
        draw.box(x, 226, 180, 50, "ordinary host memory", "box")
    draw.arrow(
        202, 64, 558, 64, "cuda_ipc: the driver exports the memory", kind="thick"
    )
    draw.arrow(202, 84, 558, 84, "")
    draw.text(380, 102, "device slots: it does not", "small")
    draw.arrow(202, 150, 558, 92, "")
    draw.arrow(202, 92, 558, 150, "")
    draw.text(380, 142, "device slots", "small")
    draw.arrow(202, 240, 558, 95)
    draw.arrow(202, 95, 558, 240)
    draw.text(380, 196, "host slots", "small")
    draw.arrow(202, 256, 558, 256)
    draw.text(380, 274, "as without a GPU", "small")
    draw.save("devices")


DRAWINGS = (
    *(wire, layers, message, endpoint, member, join, sort, shuffle),
    *(experts, heap, ring, closest, launch, ranks, dask, devices),
)

if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for drawing in DRAWINGS:
        drawing()
