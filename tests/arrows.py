# SPDX-License-Identifier: BSD-3-Clause
"""Which files of C need which others: what project/test_layers*.py are made of."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from paths import ROOT

INCLUDE = re.compile(r'^\s*#\s*include\s+[<"]([^>"]+)[>"]', re.MULTILINE)
COMMENT_OR_TEXT = re.compile(r'/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)
# A function's name begins a line, as clang-format lays it out.
FUNCTION = re.compile(r"^([^\n]*)\n(\w+)\((?:[^;{}]*)\)\n\{", re.MULTILINE)
OBJECT = re.compile(
    r"^(?:const )?(?:\w+ )*\w+ \*?(\w+)(?:\[\w*\])? =(?: \{)?$", re.MULTILINE
)
NAME = re.compile(r"(?<![\w.>])[a-z]\w+")

Arrows = dict[tuple[str, str], str]


def sources(*patterns: str) -> list[Path]:
    return sorted(path for pattern in patterns for path in ROOT.glob(pattern))


def includes(path: Path) -> Iterator[tuple[str, str]]:
    """Each header included, and the first part of its path."""
    for header in INCLUDE.findall(path.read_text()):
        yield header, header.split("/")[0]


def code_of(path: Path) -> str:
    """The text without comments and strings."""
    return COMMENT_OR_TEXT.sub(" ", path.read_text())


def noun(path: Path) -> str:
    """The room and the name of a pair of files."""
    return f"{path.parent.name}/{path.stem}"


def room(name: str) -> str:
    return name.split("/")[0]


def circles(found: Iterable[tuple[str, str]]) -> list[set[str]]:
    """Sets of nouns, more than one each, of which each reaches every other."""
    reached: dict[str, set[str]] = {}
    for user, used in found:
        reached.setdefault(user, set()).add(used)
        reached.setdefault(used, set())
    for middle in reached:
        for ends in reached.values():
            if middle in ends:
                ends |= reached[middle]
    groups = {
        frozenset(other for other in reached[one] if one in reached[other])
        for one in reached
    }
    return [set(group) for group in groups if len(group) > 1]
