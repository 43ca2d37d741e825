#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Count the comments of C code that only who knows the file understands.

usage: tools/comments.py [--max PERCENT] [--list] [--draw N --seed SEED] [ROOM ...]

A comment should begin with a verb, or with the thing that it is about. One that
begins with a pronoun or a bare relative ("It has ended.", "Which is held.",
"False: nobody knows.") sends its reader to look for that thing. Printed for each
room of src/, or for those that are named: such comments, all that are sentences,
and their share. Words beside a declaration, without a capital, are of what is
declared, and not counted. --list prints such comments, --draw some sentences that
are drawn by a seed, to be read by somebody who does not know the file. The status
is 1 if the share of a room is above --max.
"""

import argparse
import random
import re
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
TEXT_OR_COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|/\*.*?\*/', re.DOTALL)
RIDDLE = re.compile(
    r"(?:It|Its|They|Their|Theirs|Them|This|That|These|Those|Which|Whom|Whose|Nobody"
    r"|Somebody|None|One|Ones|The same|Same|Such|False:|True:)(?!\w)"
)
# "This rank", "that of the peer": a noun, or what stands for one, follows.
NAMED = re.compile(
    r"(?:This|These|One|Such) (?!is|are|was|were|has|have|of|that|who|which|by|to|in)\w"
)


class Comment(NamedTuple):
    path: Path
    line: int
    text: str

    @property
    def is_riddle(self) -> bool:
        begin = RIDDLE.match(self.text)
        return begin is not None and NAMED.match(self.text) is None

    @property
    def is_sentence(self) -> bool:
        return re.match(r"[A-Z](?:[^A-Z_]|$)", self.text) is not None

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}: {self.text}"


def comments(path: Path) -> list[Comment]:
    """Comments of a file, but for its licence and lines between sections."""
    text = path.read_text()
    found = []
    for match in TEXT_OR_COMMENT.finditer(text):
        if match.group().startswith('"'):
            continue
        words = re.sub(r"\s+\*?\s*|^/\*+\s*", " ", match.group()[:-2]).strip()
        words = words.removeprefix("* ")
        if words and not words.startswith(("SPDX", "----", "*INDENT")):
            line = text.count("\n", 0, match.start()) + 1
            found.append(Comment(path, line, words))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--max", type=float, default=100.0, metavar="PERCENT")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--draw", type=int, default=0, metavar="N")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("rooms", nargs="*", metavar="ROOM")
    args = parser.parse_args()
    rooms = args.rooms or sorted({path.parent.name for path in ROOT.glob("src/*/*.c")})
    too_many = False
    for room in rooms:
        files = sorted(ROOT.glob(f"src/{room}/*.[ch]"))
        if not files:
            parser.error(f"no room of src/ is called {room!r}")
        found = [comment for path in files for comment in comments(path)]
        sentences = [comment for comment in found if comment.is_sentence]
        riddles = [comment for comment in sentences if comment.is_riddle]
        share = 100 * len(riddles) / max(len(sentences), 1)
        too_many = too_many or share > args.max
        print(f"{room:10} {len(riddles):4} of {len(sentences):5}  {share:5.1f} %")
        drawn = random.Random(args.seed).sample(
            sentences, min(args.draw, len(sentences))
        )
        for comment in riddles if args.list else drawn:
            print(f"    {comment}")
    return 1 if too_many else 0


if __name__ == "__main__":
    sys.exit(main())
