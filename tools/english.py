#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Count the sentences of pages and docstrings that have to be read twice.

usage: tools/english.py [--only pages|docstrings] [--max PERCENT] [--list]
                        [--kind KIND] [FILE ...]

Many readers of the documentation read English as a second language. These turns make
them read a sentence again:

also        an afterthought: ", also if the peer has died"
is-no       "is no tuple" for "is not a tuple"; "there is no" is not counted
that-of     "that of the peer", "those of a heap" instead of the noun
what        a clause that begins with "what" or "who": "What was sent is kept."
own         "of its own", "of their own"
whatever    whatever, whoever, whichever
hand        "given back", "handed out" and their like

Printed is the number of each kind, first in the pages, which are README.md and those
in docs without the notes of changes, then in the docstrings of the package ucp; then
the sentences with at least one of them, all sentences, and the share. Code and
headings are left out. FILE is a page or a module to count instead. --list prints the
sentences, --kind only those of one kind. The status is 1 if a share is above --max.
"""

import argparse
import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
FENCE = re.compile(r"^(```|:::).*?^\1\s*?$", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
CODE = re.compile(r"(``?)(?!`).+?\1", re.DOTALL)
ITEM = re.compile(r"\s*(?:[-*]|\d+\.) ")
LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
KINDS = {
    "also": re.compile(r", also\b"),
    "is-no": re.compile(r"(?<!here )\b(?:is|are|was|were|be) no\b(?! longer| more)"),
    "that-of": re.compile(r"\b(?:[Tt]hat|[Tt]hose) of\b"),
    "what": re.compile(
        r"(?:^(?:What|Who)|(?<=[;:] )(?:and |but |so )?what"
        r"|(?<=, )(?:and|but|so|for|since|because) what)\b(?!.*\?$)"
    ),
    "own": re.compile(r"\bof (?:its|their|his|one's|our|your) own\b"),
    "whatever": re.compile(r"\b(?:what|who|which)ever\b", re.IGNORECASE),
    "hand": re.compile(
        r"\b(?:gives?|given|gave|giving) (?:\w+ ){0,2}back\b"
        r"|\bhand(?:s|ed|ing)? (?:\w+ ){0,2}(?:out|over)\b"
    ),
}


class Sentence(NamedTuple):
    path: Path
    line: int
    text: str

    @property
    def kinds(self) -> list[str]:
        return [name for name, mark in KINDS.items() if mark.search(self.text)]

    def __str__(self) -> str:
        path = self.path
        if path.is_relative_to(ROOT):
            path = path.relative_to(ROOT)
        return f"{path}:{self.line}: {', '.join(self.kinds)}: {self.text}"


def blank(match: re.Match[str]) -> str:
    """Nothing, on as many lines."""
    return "\n" * match.group().count("\n")


def paragraphs(text: str) -> Iterator[tuple[int, str]]:
    """Paragraphs, items of lists and cells of tables, with the lines they begin in."""
    text = FENCE.sub(blank, COMMENT.sub(blank, text))
    begun, words = 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        line = re.sub(r"^#+ .*", "", line)
        if re.match(r"\s*(?:[-*#>]+ |\d+\. |\||$)|\w[\w*, ]*:$", line) and words:
            yield begun, words
            words = ""
        if line.startswith("|"):
            yield from ((number, cell) for cell in re.split(r"(?<!\\)\|", line))
            continue
        is_code = line.startswith("    ") and not words and not re.match(ITEM, line)
        if line.strip() and not is_code:
            begun = begun if words else number
            words = f"{words} {line.strip(' #-*>')}".strip()
    if words:
        yield begun, words


def sentences(path: Path, first: int, text: str) -> Iterator[Sentence]:
    for line, words in paragraphs(text):
        words = LINK.sub(r"\1", CODE.sub("CODE", words)).replace("**", "")
        for part in re.split(r"(?<=[.!?]) (?=[A-Z])", words):
            if re.search(r"[a-z]{2}", part):
                yield Sentence(path, first + line - 1, part.strip())


def of_docstrings(path: Path) -> Iterator[Sentence]:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, kinds) and (text := ast.get_docstring(node)):
            # Sections such as "Args:" have indented text, which is no code.
            text = re.sub(r"^ {4,}", "", text, flags=re.MULTILINE)
            yield from sentences(path, getattr(node, "lineno", 1), text)


def of_page(path: Path) -> Iterator[Sentence]:
    return sentences(path, 1, path.read_text())


def pages() -> list[Path]:
    found = sorted((ROOT / "docs").rglob("*.md"))
    return [ROOT / "README.md", *(p for p in found if "changes" not in p.parts)]


def modules() -> list[Path]:
    return sorted((ROOT / "ucp").rglob("*.py"))


def count(name: str, found: list[Sentence]) -> float:
    """Print the numbers of one group; return its share in percent."""
    marked = [sentence for sentence in found if sentence.kinds]
    numbers = Counter(kind for sentence in marked for kind in sentence.kinds)
    share = 100 * len(marked) / max(len(found), 1)
    print(f"{name:10}", *(f"{kind} {numbers[kind]}" for kind in KINDS), sep="  ")
    print(f"{'':10}  {len(marked)} of {len(found)} sentences, {share:.1f} %")
    return share


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=("pages", "docstrings"))
    parser.add_argument("--max", type=float, default=100.0, metavar="PERCENT")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--kind", choices=KINDS)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    args = parser.parse_args()
    files = [path.resolve() for path in args.files] or [*pages(), *modules()]
    groups: dict[str, list[Sentence]] = {"pages": [], "docstrings": []}
    for path in files:
        if not path.is_file():
            parser.error(f"there is no file {str(path)!r}")
        is_page = path.suffix == ".md"
        found = of_page(path) if is_page else of_docstrings(path)
        groups["pages" if is_page else "docstrings"] += found
    is_above = False
    for name, found in groups.items():
        if found and args.only in (None, name):
            is_above = count(name, found) > args.max or is_above
            for sentence in found if args.list else []:
                if sentence.kinds and args.kind in (None, *sentence.kinds):
                    print(f"    {sentence}")
    return 1 if is_above else 0


if __name__ == "__main__":
    sys.exit(main())
