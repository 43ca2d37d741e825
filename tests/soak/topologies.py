# SPDX-License-Identifier: BSD-3-Clause
"""XML files of topologies, truncated and changed at random.

hwloc reads each file or refuses it, and its parser crashes on some; nothing else
may come of that here. The numbers of the inputs decide what they are, so a run of
the same count has the same inputs.
"""

import random
import re
import tempfile
from pathlib import Path

import ucp

_FILES = sorted((Path(__file__).parents[1] / "topology/xml").glob("*.xml"))
_TYPES = ("network", "openfabrics", "block", "cuda")

# Values of attributes that mean something to hwloc, or too much.
_VALUES = [
    *("", "0", "1", "-1", "2", "255", "65536", "4294967295", "99999999999999999999"),
    *("0x", "0x0", "0xf...f", "0x00000001,,0x0", "0000:00:00.0", "ffff:ff:1f.7"),
    *("10000000:00:00.0", "0-1", "1-1", "1-0", "0302 [10de:1db1] [0000:0000] a1"),
    *("Machine", "Package", "PU", "Group", "NUMANode", "Misc", "L2Cache", "Bridge"),
    *("PCIDev", "OSDev", "MemCache", "a" * 300, "é&amp;", "\x01"),
]
_TAG = re.compile(r"<[^>]*>")
_VALUE = re.compile(r'(?<=")[^"]*(?=")')
_ATTRIBUTE = re.compile(r' \w+="[^"]*"')


def _replace(text, pattern, rand, new):
    """Replace one match by ``new(match, another match)``, if there is a match."""
    found = list(pattern.finditer(text))
    if not found:
        return text
    match, other = rand.choice(found), rand.choice(found)
    return text[: match.start()] + new(match[0], other[0]) + text[match.end() :]


def _truncate(text, rand):
    return text[: rand.randrange(len(text) + 1)]


def _change_bytes(text, rand):
    characters = list(text)
    for _ in range(rand.randint(1, 8) if text else 0):
        characters[rand.randrange(len(characters))] = chr(rand.randrange(1, 256))
    return "".join(characters)


def _change_values(text, rand):
    for _ in range(rand.randint(1, 4)):
        value = rand.choice(_VALUES) if rand.random() < 0.6 else None
        text = _replace(
            text,
            _VALUE,
            rand,
            lambda _old, other, value=value: other if value is None else value,
        )
    return text


def _remove_attributes(text, rand):
    for _ in range(rand.randint(1, 4)):
        text = _replace(text, _ATTRIBUTE, rand, lambda _old, _other: "")
    return text


def _change_tags(text, rand):
    for _ in range(rand.randint(1, 3)):
        what = rand.randrange(3)
        text = _replace(
            text, _TAG, rand, lambda old, other, what=what: ["", other, old * 2][what]
        )
    return text


def _repeat(text, rand):
    """Put a part of the file into it again, from one tag to another."""
    tags = [match.start() for match in _TAG.finditer(text)] or [0]
    start, end = sorted((rand.choice(tags), rand.choice(tags)))
    at = rand.choice(tags)
    return text[:at] + text[start:end] * rand.randint(1, 3) + text[at:]


_CHANGES = [
    *(_truncate, _change_bytes, _change_values),
    *(_remove_attributes, _change_tags, _repeat),
]


def changed(number):
    """Return the ``number``-th input, as bytes."""
    rand = random.Random(number)
    text = rand.choice(_FILES).read_text()
    for _ in range(rand.choice([1, 1, 2])):
        text = rand.choice(_CHANGES)(text, rand)
    return text.encode("latin-1", "ignore")


def _use(topology):
    """Call all that looks at the objects."""
    for gpu in range(len(topology.gpus)):
        for kind in _TYPES:
            found = topology.distances(gpu, kind)
            assert found == sorted(found, key=lambda row: row["distance"])
        assert topology.cpus(gpu) is not None


async def run(count):
    read = 0
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "changed.xml")
        for number in range(count):
            path.write_bytes(changed(number))
            try:
                topology = ucp.TopologicalDistance(path)
            except ValueError:
                continue
            _use(topology)
            read += 1
    return f"{count} files, of which hwloc read {read}"
