#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Draw functions by a seed, for somebody who does not know the code to read.

usage: tools/draw.py [--seed SEED] N [ROOM ...]

N functions of C in src/ and ucp_ext/ and of Python in ucp/ are printed, each with the
file and the line of its name, and with the comment above it. What a header says of a
function of C is printed first. The reader says of each function whether one reading
tells what it does and why. A ROOM is a directory, such as src/channel or ucp/dask, of
which alone functions are drawn. One seed draws the same functions as long as no file
changes.

A function within another one is read with that one, and not drawn by itself; overloads
for type checkers are not drawn either.
"""

import argparse
import ast
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("src", "ucp_ext", "ucp")
# In C the name of a function begins a line, below what it returns.
DEFINED = re.compile(r"(\w+)\(")
DECLARED = re.compile(r"(?:[A-Za-z].*?[ *])?(\w+)\(")
RETURNED = re.compile(r"[A-Za-z][^;{}()]*$")


class Function(NamedTuple):
    path: Path
    line: int
    name: str
    text: str

    def __str__(self) -> str:
        place = f"{self.path.relative_to(ROOT)}:{self.line}"
        return f"#### {place}: {self.name}\n{self.text}"


class Lines(NamedTuple):
    """Indices of the lines of a function of C; `end` is that behind its last one."""

    begin: int
    named: int
    end: int


def begin_of(lines: list[str], named: int) -> int:
    """Find the first line of the function that is named in a line."""
    begin = named
    while begin > 0 and RETURNED.match(lines[begin - 1]):
        begin -= 1
    if begin == 0 or not lines[begin - 1].endswith("*/"):
        return begin
    comment = begin - 1
    while comment > 0 and lines[comment].startswith(" *"):
        comment -= 1
    is_of_it = lines[comment].startswith("/*") and "/* ---" not in lines[comment]
    return comment if is_of_it else begin


def defined(lines: list[str]) -> Iterator[tuple[str, Lines]]:
    for brace, line in enumerate(lines):
        if line != "{":
            continue
        named = brace - 1
        while DEFINED.match(lines[named]) is None:
            named -= 1
        name = lines[named].partition("(")[0]
        end = lines.index("}", brace) + 1
        yield name, Lines(begin_of(lines, named), named, end)


def declared(lines: list[str]) -> Iterator[tuple[str, Lines]]:
    """Functions of a header that has a comment on them."""
    for named, line in enumerate(lines):
        found = DECLARED.match(line)
        begin = begin_of(lines, named)
        if found is None or not lines[begin].startswith("/*"):
            continue
        end = named
        while end < len(lines) and lines[end] not in ("", "{"):
            end += 1
            if lines[end - 1].endswith(";"):
                yield found[1], Lines(begin, named, end)
                break


def said_in_headers() -> dict[str, str]:
    """What headers say of functions, by their names."""
    said = {}
    for tree in ("include", *ROOMS):
        for path in sources(tree, ".h"):
            lines = path.read_text().splitlines()
            for name, found in declared(lines):
                place = f"{path.relative_to(ROOT)}:{found.named + 1}"
                text = "\n".join(lines[found.begin : found.end])
                said[name] = f"({place})\n{text}\n\n"
    return said


def of_c(path: Path, said: dict[str, str]) -> Iterator[Function]:
    lines = path.read_text().splitlines()
    for name, found in defined(lines):
        text = "\n".join(lines[found.begin : found.end])
        yield Function(path, found.named + 1, name, said.get(name, "") + text)


def of_python(path: Path) -> Iterator[Function]:
    text = path.read_text()
    lines = text.splitlines()
    for name, node in outermost(ast.parse(text)):
        begin = min([node.lineno, *(one.lineno for one in node.decorator_list)]) - 1
        while lines[begin - 1].lstrip().startswith("#"):
            begin -= 1
        body = "\n".join(lines[begin : node.end_lineno])
        yield Function(path, node.lineno, name, body)


def outermost(
    node: ast.AST, prefix: str = ""
) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Functions that are not within another one, and methods by `Class.name`."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            decorators = [ast.unparse(one) for one in child.decorator_list]
            if not {"overload", "typing.overload"}.intersection(decorators):
                yield prefix + child.name, child
        elif isinstance(child, ast.ClassDef):
            yield from outermost(child, f"{prefix}{child.name}.")
        else:
            yield from outermost(child, prefix)


def sources(room: str, *suffixes: str) -> list[Path]:
    """Files below a directory, but for those that a build has made."""
    paths = (path for path in ROOT.glob(f"{room}/**/*") if path.suffix in suffixes)
    return sorted(path for path in paths if "build" not in path.parts)


def functions(rooms: list[str]) -> list[Function]:
    """Return the functions of rooms, in the order of their files and lines."""
    said = said_in_headers()
    found: set[Function] = set()
    for room in rooms:
        for path in sources(room, ".c", ".h"):
            found.update(of_c(path, said))
        for path in sources(room, ".py"):
            found.update(of_python(path))
    return sorted(found)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("number", type=int, metavar="N")
    parser.add_argument("rooms", nargs="*", metavar="ROOM")
    args = parser.parse_args()
    for room in args.rooms:
        if Path(room).parts[:1] not in [(each,) for each in ROOMS]:
            parser.error(f"{room!r} is not in {', '.join(ROOMS)}")
        if not (ROOT / room).is_dir():
            parser.error(f"there is no directory {room!r}")
    found = functions(args.rooms or [*ROOMS])
    drawn = random.Random(args.seed).sample(found, min(args.number, len(found)))
    print(f"{len(drawn)} of {len(found)} functions, drawn by the seed {args.seed}")
    for function in drawn:
        print(f"\n{function}")


if __name__ == "__main__":
    main()
