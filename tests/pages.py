# SPDX-License-Identifier: BSD-3-Clause
"""The pages of the documentation, and the blocks of code in them.

docs/hacking.md says how a block is marked that is not run.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from paths import ROOT

PAGES = [
    ROOT / "README.md",
    *(
        page
        for page in sorted((ROOT / "docs").rglob("*.md"))
        if "changes" not in page.parts
    ),
]
# With which programs of pages run. Dask tells at its level "info" that a cluster has
# closed the connection by which the scheduler would tell it of its last worker's end.
ENVIRONMENT = {**os.environ, "DASK_LOGGING__DISTRIBUTED": "warning"}
ENVIRONMENT.pop("PYTHONSAFEPATH", None)  # programs import files beside them
FENCE = re.compile(
    r"(?:^<!-- not run: (?P<reason>\S[^\n]*) -->\n)?"
    r"^```(?P<language>[\w+-]*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
# The first line of a program that is a file, whose name other blocks use.
FILE = re.compile(r"# ([\w/]+\.py)\b")


@dataclass(frozen=True)
class Block:
    """A fenced block of code."""

    page: Path
    line: int  # of its first line of code
    language: str
    text: str
    reason: str | None  # why it is not run

    @property
    def file(self) -> str | None:
        match = FILE.match(self.text)
        return match and match[1]

    def __str__(self) -> str:
        return f"{name_of(self.page)}-{self.line}"


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT)).removeprefix("docs/")


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text()
    for match in FENCE.finditer(text):
        line = text.count("\n", 0, match.start("text")) + 1
        yield Block(page, line, match["language"], match["text"], match["reason"])
