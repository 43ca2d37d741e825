# SPDX-License-Identifier: BSD-3-Clause
"""Text for a terminal: colours, and lines as wide as it is."""

from __future__ import annotations

import os
import shutil
import textwrap
from typing import TextIO

_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33"}
_NARROWEST = 20  # columns: a narrower terminal wraps lines itself


class Terminal:
    """A stream that may be a terminal.

    Colours are used on a terminal only. The variable ``NO_COLOR`` of the environment
    switches them off, and so does ``TERM=dumb``.
    """

    def __init__(self, stream: TextIO) -> None:
        self.is_terminal = stream.isatty()
        self._has_colours = (
            self.is_terminal
            and not os.environ.get("NO_COLOR")
            and os.environ.get("TERM") != "dumb"
        )

    @property
    def columns(self) -> int | None:
        """The width of the terminal; None: the stream is a file or a pipe."""
        if not self.is_terminal:
            return None
        return max(shutil.get_terminal_size().columns, _NARROWEST)

    def paint(self, text: str, style: str) -> str:
        """The text in a style: words of ``_CODES``, such as "bold red"."""
        if not self._has_colours or not style:
            return text
        codes = ";".join(_CODES[word] for word in style.split())
        return f"\033[{codes}m{text}\033[0m"

    def wrap(self, text: str, first: str = "", other: str = "") -> list[str]:
        """Lines of the text: the first begins with ``first``, others with ``other``.

        Words are not broken, so one that is wider than the terminal makes a line that
        is wider as well. A file or a pipe gets the lines that the text has.
        """
        columns = self.columns
        found: list[str] = []
        for line in text.split("\n"):
            start = other if found else first
            if columns is None:
                found.append(f"{start}{line}")
                continue
            found += textwrap.wrap(
                line,
                columns,
                initial_indent=start,
                subsequent_indent=other,
                break_long_words=False,
                break_on_hyphens=False,
            ) or [start]
        return found
