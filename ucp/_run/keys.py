# SPDX-License-Identifier: BSD-3-Clause
"""Single keys of a terminal, which are read as they are pressed."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import time
import tty
from types import FrameType, TracebackType
from typing import Any, Self

from . import ending


class Keys:
    """While this is entered, keys are not shown, and need no Enter.

    Without a terminal, or in the background, ``wait()`` only waits.

    Attributes:
        are_read: whether ``wait()`` returns keys.
    """

    def __init__(self, *, is_wanted: bool = True) -> None:
        self.are_read = is_wanted and _is_in_foreground()
        self._modes: list[Any] | None = None
        self._former: Any = None

    def __enter__(self) -> Self:
        if self.are_read:
            self._modes = termios.tcgetattr(0)
            self._former = signal.signal(signal.SIGTERM, self._end)
            tty.setcbreak(0, termios.TCSADRAIN)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._modes is not None:
            self._restore()
            signal.signal(signal.SIGTERM, self._former)

    def wait(self, seconds: float) -> str:
        """Wait for a key; "" if none was pressed in that time."""
        if not self.are_read:
            time.sleep(seconds)
            return ""
        ready, _, _ = select.select([0], [], [], seconds)
        if not ready:
            return ""
        data = os.read(0, 1)
        self.are_read = bool(data)  # the terminal may have gone
        return data.decode("ascii", "replace")

    def _restore(self) -> None:
        assert self._modes is not None
        termios.tcsetattr(0, termios.TCSADRAIN, self._modes)

    def _end(self, signum: int, frame: FrameType | None) -> None:
        self._restore()
        ending.die_by(signum)


def _is_in_foreground() -> bool:
    """May this process change the terminal? One in the background would be stopped."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False
