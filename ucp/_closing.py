# SPDX-License-Identifier: BSD-3-Clause
"""``with`` for what has a ``close()``."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol, Self


class _Closable(Protocol):
    def close(self) -> None: ...


class Closing:
    """Closed at the end of its ``with`` block."""

    __slots__ = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self: _Closable,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
