# SPDX-License-Identifier: BSD-3-Clause
"""The reference of C: what a header declares and the comments say, for Sphinx.

`.. umx-header:: tag.h` shows all that include/umx/tag.h declares, in its order. Each
public name gets a target of Sphinx's C domain, also one without a comment: readers of
doc comments, such as hawkmoth, leave those out, and the comments behind members and
constants, which these headers have. The headers are laid out by clang-format, so
their declarations are found by lines and brackets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

INCLUDE = Path(__file__).parents[1] / "include"

TOKEN = re.compile(
    r"(?P<comment>/\*.*?\*/)"
    r"|(?P<macro>^#define (?:[^\n]*\\\n)*[^\n]*)"
    r"|(?P<other>^#(?:[^\n]*\\\n)*[^\n]*)"
    r"|(?P<string>\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*')"
    r"|(?P<text>[^/\n#\"']+|.|\n)",
    re.MULTILINE | re.DOTALL,
)
WORDS = re.compile(r"UMX_(?:API|MUST_CHECK) |static inline |UMX_RING_FN ")


@dataclass
class Part:
    """A member of a struct, or a constant of an enum."""

    text: str
    comment: str = ""


@dataclass
class Item:
    """A declaration: `kind` is a directive of Sphinx's C domain."""

    kind: str
    name: str
    signature: str
    comment: str = ""
    parts: list[Part] = field(default_factory=list)
    body: str = ""  # shown as it stands


def plain(comment: str) -> str:
    """The text of a comment without its frame."""
    text = re.sub(r"^/\*+<?|\*/$", "", comment)
    lines = [re.sub(r"^\s*\* ?", "", line) for line in text.split("\n")]
    return "\n".join([lines[0].strip(), *(line.rstrip() for line in lines[1:])]).strip(
        "\n"
    )


def one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


# ---- reading -------------------------------------------------------------------


def without_inner_comments(text: str) -> str:
    return re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)


def declarations(source: str) -> Iterator[tuple[str, str]]:
    """Each declaration or macro of a header, with the comment above it."""
    comment, text, depth, end = "", "", 0, 0
    for match in TOKEN.finditer(source):
        kind, token = match.lastgroup, match[0]
        if depth == 0 and not text.strip():
            if kind == "comment":
                comment, end = token, match.end()
                continue
            if source.count("\n", end, match.end()) > 1 and not token.strip():
                comment = ""  # an empty line: about no declaration
            if kind == "macro":
                yield comment, token
                continue
            if kind == "other":
                comment = "" if "include" in token else comment
                continue
        if kind in ("macro", "other"):
            continue
        text += token
        if kind == "text":
            depth += token.count("{") - token.count("}")
        if text.strip() in ('extern "C" {', "}"):
            text, depth, comment = "", 0, ""
        elif depth == 0 and kind == "text":
            stripped = text.rstrip()
            if stripped.endswith(";") or is_function_with_body(stripped):
                yield comment, text.strip()
                text = comment = ""
                end = match.end()


def is_function_with_body(text: str) -> bool:
    return (
        text.endswith("}") and re.match(r"\s*(?:static|UMX_RING_FN)", text) is not None
    )


def joined(comment: str) -> str:
    """A comment behind a declaration, as one line unless it has paragraphs."""
    text = plain(comment)
    return text if "\n\n" in text else one_line(text)


def parts_of(body: str, end: str) -> list[Part]:
    """What stands between the braces of a struct (`end` is ";") or enum (",")."""
    parts: list[Part] = []
    above = text = ""
    closed = True
    for match in re.finditer(rf"/\*.*?\*/|\n|[^/\n{end}]+|.", body, re.DOTALL):
        token = match[0]
        if token.startswith("/*"):
            if text.strip():
                # Behind the last constant, which has no comma.
                parts.append(Part(one_line(text), joined(token)))
                text, closed = "", False
            elif not closed and parts:
                behind = parts[-1]
                behind.comment = (behind.comment + "\n\n" + joined(token)).strip()
            else:
                above = joined(token)
        elif token == end and text.count("(") == text.count(")"):
            parts.append(Part(one_line(text), above))
            above = text = ""
            closed = False
        elif token == "\n":
            text += " "
            closed = closed or not text.strip()
        else:
            text += token
    if text.strip():
        parts.append(Part(one_line(text), above))
    return parts


def statuses(table: str) -> list[Part]:
    """The constants of umx_status, which are rows of a table."""
    table = re.sub(r"\\\n", "\n", table)
    rows = re.findall(r'X\((\w+), (-?\d+),((?:\s*"[^"]*")+)\)', table)
    return [
        Part(f"{name} = {value}", "".join(re.findall(r'"([^"]*)"', text)))
        for name, value, text in rows
    ]


def macro(comment: str, text: str) -> Item | None:
    match = re.match(r"#define (\w+)(\([^)]*\))?\s*(.*)", text, re.DOTALL)
    assert match is not None
    name, arguments, value = match[1], match[2] or "", match[3]
    if name.endswith("_H") or name in ("UMX_RING_FN", "UMX_STATUS_ENUM"):
        return None
    behind = re.search(r"/\*(.*)\*/", value)
    value = without_inner_comments(value).strip()
    comment = plain(comment) or (behind[1].strip() if behind else "")
    item = Item("macro", name, name + arguments, comment)
    if value and "\\" not in value:
        item.body = f"#define {name}{arguments} {value}"
    return item


def aggregate(comment: str, text: str) -> Item | None:
    """A struct, union or enum with a body."""
    match = re.match(
        r"(?:typedef )?(struct|union|enum)\s*(\w*)\s*\{(.*)\}\s*(\w*);$",
        text,
        re.DOTALL,
    )
    if match is None:
        return None
    kind, tag, body, alias = match.groups()
    name = alias or tag
    item = Item(kind, name, name, plain(comment))
    if kind == "enum":
        item.parts = parts_of(body, ",")
    elif "{" in body:
        item.body = text
    else:
        item.parts = parts_of(body, ";")
    return item


def typedef(comment: str, text: str) -> Item | None:
    declared = one_line(without_inner_comments(text)).removesuffix(";")
    match = re.fullmatch(r"typedef (struct|union|enum) (\w+) (\w+)", declared)
    if match is not None and match[2] == match[3]:
        return Item(match[1], match[3], match[3], plain(comment))
    if not declared.startswith("typedef "):
        return None
    declared = declared.removeprefix("typedef ")
    name = re.search(r"\(\*(\w+)\)", declared) or re.search(
        r"(\w+)(?:\[.*\])?$", declared
    )
    assert name is not None, text
    return Item("type", name[1] or name[2], declared, plain(comment))


def function(comment: str, text: str) -> Item | None:
    head = without_inner_comments(text.partition("{")[0])
    signature = WORDS.sub("", one_line(head).removesuffix(";") + " ").strip()
    name = re.search(r"(\w+)\(", signature)
    if name is None:
        return None
    return Item("function", name[1], signature, plain(comment))


def read(header: Path) -> tuple[str, list[Item]]:
    """What a header says about itself, and its items."""
    source = header.read_text()
    about = re.search(r"/\*\*\s*\*?\s*@file \w+\.h\s*(.*?)\*/", source, re.DOTALL)
    items = []
    seen = set()
    for comment, text in declarations(source[about.end() :] if about else source):
        if text.startswith("#define"):
            item = macro(comment, text)
        else:
            item = aggregate(comment, text) or typedef(comment, text)
            item = item or function(comment, text)
        if item is None or (item.name in seen and item.name):
            continue
        seen.add(item.name)
        if item.name == "umx_status":
            item.parts = statuses(source)
        items.append(item)
    return (plain("/** " + about[1] + "*/") if about else ""), items


# ---- writing -------------------------------------------------------------------


def escape(text: str) -> str:
    return re.sub(r"([\\*`|_])", r"\\\1", text)


def inline(text: str, known: dict[str, str]) -> str:
    """Names as references, code between backquotes as such, the rest as it stands."""

    def replace(match: re.Match[str]) -> str:
        code, name = match["code"], match["name"]
        if code is not None:
            role = known.get(code)
            return f":c:{role}:`{code}`" if role else f"``{code}``"
        role = known.get(name)
        call = match["call"] or ""
        if role == "func" and call:
            return f":c:func:`{name}`"
        if role:
            return f":c:{role}:`{name}`\\ {escape(call)}".removesuffix("\\ ")
        return escape(match[0])

    pattern = r"`(?P<code>[^`]+)`|(?P<name>\b(?:umx|UMX)_\w+)(?P<call>\(\))?"
    out, at = [], 0
    for match in re.finditer(pattern, text):
        between = escape(text[at : match.start()])
        if out and between[:1] not in ("", *" .,;:)]/'>-"):
            between = "\\ " + between
        out += [between, replace(match)]
        at = match.end()
    rest = escape(text[at:])
    joint = "\\ " if out and rest[:1] not in ("", *" .,;:)]/'>-") else ""
    return "".join([*out, joint, rest])


def prose(text: str, known: dict[str, str]) -> list[str]:
    """A comment as reStructuredText."""
    lines: list[str] = []
    for paragraph in re.split(r"\n\s*\n|\n(?=@)", text):
        if not paragraph.strip():
            continue
        rows = paragraph.strip("\n").split("\n")
        tag = re.match(r"\s*@(param(?:\[[\w,]+\])?|return|file)\s+", rows[0])
        if tag is not None:
            said = one_line(paragraph)[len(one_line(tag[0])) + 1 :]
            if tag[1].startswith("param"):
                name, _, said = said.partition(" ")
                lines += [f":param {name}: {inline(said, known)}"]
            else:
                lines += [f":returns: {inline(said, known)}"]
            continue
        shift = min(len(row) - len(row.lstrip()) for row in rows if row.strip())
        if shift >= 2 or (
            all(re.match(r" {2,}|$", row) for row in rows[1:]) and rows[1:]
        ):
            lines += ["", "::", "", *("    " + row for row in rows), ""]
        else:
            lead, listing = rows, []
            while lead and lead[-1].startswith("  "):
                listing.insert(0, lead[-1])
                lead = lead[:-1]
            lines += ["", inline(" ".join(row.strip() for row in lead), known), ""]
            if listing:
                lines += ["::", "", *("    " + row for row in listing), ""]
    return lines


def indented(lines: list[str]) -> list[str]:
    return ["   " + line if line else "" for line in lines]


ROLES = {
    "function": "func",
    "macro": "macro",
    "struct": "struct",
    "union": "union",
    "enum": "enum",
    "type": "type",
}


def names(items: list[Item]) -> dict[str, str]:
    """The role of Sphinx's C domain for each public name."""
    found = {item.name: ROLES[item.kind] for item in items if item.name}
    for item in items:
        if item.kind == "enum":
            for part in item.parts:
                name = part.text.split(" ")[0]
                found[name] = "enumerator" if item.name else "macro"
    return found


def shown(item: Item, known: dict[str, str]) -> list[str]:
    """An item as directives of the C domain."""
    if item.kind == "enum" and not item.name:
        lines = []
        for part in item.parts:
            name = part.text.split(" ")[0]
            constant = Item("macro", name, name, part.comment or item.comment)
            constant.body = part.text
            lines += shown(constant, known)
        return lines
    inside = prose(item.comment, known)
    if item.body:
        inside += ["", ".. code-block:: c", "", *indented(item.body.split("\n")), ""]
    for part in item.parts:
        if item.kind == "enum":
            name, _, value = part.text.partition(" = ")
            text = ": ".join(filter(None, [value and f"`{value}`", part.comment]))
            said = prose(text, known)
            inside += ["", f".. c:enumerator:: {name}", ""]
        else:
            said = prose(part.comment, known)
            for declared in members(part.text):
                inside += ["", f".. c:member:: {declared}", ""]
        inside += indented(said)
    return ["", f".. c:{item.kind}:: {item.signature}", "", *indented(inside), ""]


def members(text: str) -> Iterator[str]:
    """`int a, *b` declares two members."""
    if "(" in text or "," not in text:
        yield text
        return
    first, *others = [part.strip() for part in text.split(",")]
    kind = first.rpartition(" ")[0]
    yield first
    yield from (f"{kind} {other}" for other in others)


def all_items() -> dict[str, tuple[str, list[Item]]]:
    """By header: its text and items. A name belongs to the first that defines it."""
    found = {path.name: read(path) for path in sorted(INCLUDE.glob("umx/*.h"))}
    rank: dict[str, tuple[int, str]] = {}
    for header, (_, items) in found.items():
        for item in items:
            weight = bool(item.parts or item.body or item.comment)
            best = rank.get(item.name)
            if best is None or weight > best[0]:
                rank[item.name] = (weight, header)
    return {
        header: (
            about,
            [item for item in items if not item.name or rank[item.name][1] == header],
        )
        for header, (about, items) in found.items()
    }


def page(header: str) -> list[str]:
    """What the directive shows of a header."""
    items = all_items()
    known = names([item for _, some in items.values() for item in some])
    about, here = items[header]
    lines = [f"``#include <umx/{header}>``", "", *prose(about, known), ""]
    for item in here:
        lines += shown(item, known)
    return lines


def setup(app: Any) -> dict[str, Any]:
    from docutils import nodes
    from docutils.parsers.rst import Directive
    from docutils.statemachine import StringList

    class Header(Directive):
        required_arguments = 1

        def run(self) -> list[nodes.Node]:
            header = self.arguments[0]
            source = str(INCLUDE / "umx" / header)
            self.state.document.settings.env.note_dependency(source)
            content = StringList(page(header), source=source)
            node = nodes.container()
            self.state.nested_parse(content, 0, node)
            return node.children

    def add_others(app: Any, docname: str, source: list[str]) -> None:
        """Put headers that no other page has on the page of the others."""
        if docname != "reference/c/others":
            return
        folder = Path(app.srcdir) / "reference/c"
        pages = "".join(page.read_text() for page in folder.glob("*.rst"))
        for path in sorted(INCLUDE.glob("umx/*.h")):
            if f"umx-header:: {path.name}\n" not in pages:
                title = f"{path.name}\n{'-' * len(path.name)}"
                source[0] += f"\n{title}\n\n.. umx-header:: {path.name}\n"

    app.add_directive("umx-header", Header)
    app.connect("source-read", add_others)
    return {"parallel_read_safe": True}
