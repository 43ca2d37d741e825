# SPDX-License-Identifier: BSD-3-Clause
"""Ctrl-C ends a benchmark that imports this without a traceback.

Python then ends the process by SIGINT, which a shell reports as status 130.
"""

from __future__ import annotations

import sys
from types import TracebackType


def _hook(
    kind: type[BaseException], exc: BaseException, traceback: TracebackType | None
) -> None:
    if not issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, exc, traceback)


sys.excepthook = _hook
