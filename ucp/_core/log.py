# SPDX-License-Identifier: BSD-3-Clause
"""The logger ``ucp``: lines of this library and of UCX, and their level.

libumx makes a line only if the logger wants lines of that level: a line that
nobody wants costs one comparison in C. The level of the logger may change at any
time, by ``setLevel()`` of it or of the root logger, or by ``logging.disable()``.
libumx is told when a worker is made, when the program connects, listens or closes,
and else by the next event of any worker, if the last look is about 50 ms ago, or more.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import warnings
from collections.abc import Iterator
from typing import Any

from .. import _ext
from ..exceptions import UCXWarning

logger = logging.getLogger("ucp")

LEVEL = "UCP_LOG_LEVEL"

# libumx's levels in terms of the logging module, and by their names.
_LEVELS = (logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG)
_NAMES = {
    "error": logging.ERROR,
    "warning": logging.WARNING,
    "info": logging.INFO,
    "debug": logging.DEBUG,
}
_FORMAT = "%(asctime)s ucp[%(process)d] %(levelname)s: %(message)s"

_said: list[str] | None = None

#: Tells libumx the level of the logger, and delivers the lines that wait.
catch_up = _ext.log_catch_up


class Fallback(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes to standard error while the program has configured no handler."""

    @property
    def stream(self) -> Any:
        """Standard error of the moment: the program may replace it."""
        return sys.stderr

    @stream.setter
    def stream(self, stream: Any) -> None:
        """Nothing: the class that this one is made of sets what it was given."""

    def emit(self, record: logging.LogRecord) -> None:
        if sys.stderr is not None and not _has_handlers():
            super().emit(record)


def _has_handlers() -> bool:
    """True if a handler of the program gets what ``ucp`` logs."""
    if any(not isinstance(handler, Fallback) for handler in logger.handlers):
        return True
    return logger.propagate and logging.getLogger().hasHandlers()


def apply_environment(environ: os._Environ[str] | dict[str, str] = os.environ) -> None:
    """Do what ``UCP_LOG_LEVEL`` says, if it is set."""
    name = environ.get(LEVEL, "")
    if not name:
        return
    level = _NAMES.get(name.lower())
    if level is None:
        warnings.warn(
            f"{LEVEL}={name!r} is no level: it is {', '.join(_NAMES)}",
            UCXWarning,
            stacklevel=2,
        )
        return
    logger.setLevel(level)
    if not any(isinstance(handler, Fallback) for handler in logger.handlers):
        handler = Fallback()
        handler.setFormatter(logging.Formatter(_FORMAT))
        logger.addHandler(handler)


def listen() -> None:
    """Have libumx's lines given to the logger."""
    _ext.set_log_handler(_on_line, _wanted)


def _wanted() -> int:
    """The highest of libumx's levels that the logger wants.

    Errors and warnings are always made: init() reads what UCX refuses from them.
    """
    if logger.isEnabledFor(logging.DEBUG):
        return 3
    return 2 if logger.isEnabledFor(logging.INFO) else 1


def _on_line(level: int, text: str) -> None:
    if _said is not None:
        _said.append(text)
    if not text.isprintable():  # a peer may have sent it
        text = text.encode("unicode_escape").decode("ascii")
    logger.log(_LEVELS[min(level, len(_LEVELS) - 1)], "%s", text)


@contextlib.contextmanager
def hearing() -> Iterator[list[str]]:
    """Collect the texts that libumx and UCX log in the block; they are logged, too."""
    global _said
    _said = []
    try:
        yield _said
    finally:
        _said = None
