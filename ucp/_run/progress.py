# SPDX-License-Identifier: BSD-3-Clause
"""A progress bar on a terminal; nothing elsewhere."""

from __future__ import annotations

import shutil
import sys


class Progress:
    """A bar on standard error that shows how many of ``total`` steps are done.

    It draws only if standard error is a terminal.
    """

    WIDTH = 30

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0
        self._visible = sys.stderr.isatty()

    def step(self, label: str) -> None:
        """Show the bar with ``label`` for the step that starts."""
        self._draw(label)
        self._done += 1

    def finish(self, label: str) -> None:
        """Show a full bar and leave its line."""
        self._draw(label)
        if self._visible:
            print(file=sys.stderr)

    def clear(self) -> None:
        """Take the bar away, so that a line can be printed; step() shows it again."""
        if self._visible:
            print("\r\033[K", end="", file=sys.stderr, flush=True)

    def _draw(self, label: str) -> None:
        if not self._visible:
            return
        done = min(self._done, self._total)
        full = self.WIDTH * done // self._total
        bar = "#" * full + "." * (self.WIDTH - full)
        percent = 100 * done // self._total
        text = f"[{bar}] {percent:3d} % {label:40.40}"
        width = max(1, shutil.get_terminal_size().columns - 1)  # a longer one wraps
        print(f"\r{text[:width]}", end="", file=sys.stderr, flush=True)
