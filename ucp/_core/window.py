# SPDX-License-Identifier: BSD-3-Clause
"""How much of one connection may be unread: the arguments that say so."""

from __future__ import annotations

import operator

Window = tuple[int, int]  # messages and bytes; 0: as the Config says

_MOST_MESSAGES = (1 << 31) - 1
_MOST_BYTES = (1 << 63) - 1


def window_of(receive_messages: int | None, receive_bytes: int | None) -> Window | None:
    """The window for ``worker._connect()`` and ``worker._listen()``."""
    if receive_messages is None and receive_bytes is None:
        return None
    return (
        _number("receive_messages", receive_messages, _MOST_MESSAGES),
        _number("receive_bytes", receive_bytes, _MOST_BYTES),
    )


def last_of(count: int | None) -> int:
    """The number of messages that are kept; 0: all."""
    return _number("count", count, _MOST_MESSAGES)


def _number(name: str, value: int | None, most: int) -> int:
    if value is None:
        return 0
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(
            f"{name} must be an int or None, not {type(value).__name__}"
        ) from None
    if not 1 <= number <= most:
        raise ValueError(f"{name} must be from 1 to {most}, or None, not {number}")
    return number
