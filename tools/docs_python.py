# SPDX-License-Identifier: BSD-3-Clause
"""The reference of Python: what is added to docstrings, for Sphinx.

docs/reference/examples has the examples of public names. A line without indentation
names what the indented lines below show, as one would type them at the prompt of
`python -m asyncio`; tests/project/test_docs_reference.py runs them.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parents[1] / "docs/reference/examples"


@dataclass(frozen=True)
class Shown:
    """An example: the names that it shows, and the lines at the prompt."""

    path: Path
    line: int
    names: tuple[str, ...]
    text: str


def read(path: Path) -> list[Shown]:
    """The examples of a file, in their order."""
    found = []
    source = path.read_text()
    for match in re.finditer(r"^(ucp[^\n]*)\n((?: {4}.*\n|\n)+)", source, re.MULTILINE):
        names = tuple(match[1].replace(",", " ").split())
        line = source.count("\n", 0, match.start(2)) + 1
        found.append(Shown(path, line, names, textwrap.dedent(match[2]).rstrip()))
    return found


def examples() -> list[Shown]:
    return [shown for path in sorted(EXAMPLES.glob("*.txt")) for shown in read(path)]


def mark_code(lines: list[str]) -> None:
    """Make what is indented below a paragraph of a docstring a block of code."""
    for at in range(len(lines) - 2, 0, -1):
        before, here, after = lines[at - 1 : at + 2]
        ends = before and before[0] != " " and not before.endswith("::")
        if ends and here == "" and re.match(r" {4}\S", after):
            lines[at:at] = ["", ".. code-block:: python"]
    # A name with an underscore at its end would be a reference.
    for at, line in enumerate(lines):
        lines[at] = re.sub(r"(?<![`\w])(\w+_)(?=[\s,.;:)]|$)", r"``\1``", line)


def setup(app: Any) -> dict[str, Any]:
    by_name: dict[str, list[Shown]] = {}
    for shown in examples():
        for name in shown.names:
            by_name.setdefault(name, []).append(shown)

    def complete(
        app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]
    ) -> None:
        mark_code(lines)

    def add_examples(
        app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]
    ) -> None:
        for shown in by_name.get(name, ()):
            code = ["   " + line if line else "" for line in shown.text.split("\n")]
            lines += ["", ".. code-block:: pycon", "", *code, ""]
            app.env.note_dependency(str(shown.path))

    def add_others(app: Any, docname: str, source: list[str]) -> None:
        """Put names of ucp that no other page has on the page of functions."""
        if docname != "reference/python/functions":
            return
        import ucp

        folder = Path(app.srcdir) / "reference/python"
        pages = "".join(page.read_text() for page in folder.glob("*.rst"))
        source[0] += "\nOthers\n------\n"
        for name in ucp.__all__:
            what = getattr(ucp, name)
            if name[0] == "_" or inspect.ismodule(what) or f":: ucp.{name}\n" in pages:
                continue
            if getattr(what, "__module__", "") == "ucp.exceptions":
                continue
            kind = "class" if inspect.isclass(what) else "function"
            kind = kind if callable(what) else "data"
            source[0] += f"\n.. auto{kind}:: ucp.{name}\n"

    app.connect("source-read", add_others)
    app.connect("autodoc-process-docstring", complete, priority=400)
    app.connect("autodoc-process-docstring", add_examples, priority=600)
    return {"parallel_read_safe": True}
