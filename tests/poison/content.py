# SPDX-License-Identifier: BSD-3-Clause
"""What is in a message, and what must never be in one.

A byte of a message is less than 128, a byte of a pattern is not. The first byte of
a message is its number, the others depend on its lane, its number and its part.
"""

import numpy as np

END = 126  # the number of the last message of a lane
MAX_NUMBER = 120

LARGEST = (16 << 20) + 4096

_SHIFT = 1 << 20

# What was written by whom. FRESH is in a buffer before it is received into.
FRESH = 0x99
PATTERNS = {
    0xC1: "the poison of a send of side 0",
    0xC2: "the poison of a send of side 1",
    0xD1: "the poison of a receive of side 0",
    0xD2: "the poison of a receive of side 1",
    FRESH: "what was there before",
}
_BLOCK = np.random.default_rng(1).integers(0, 127, LARGEST + 2 * _SHIFT, dtype=np.uint8)


def send_pattern(side):
    return 0xC1 + side


def recv_pattern(side):
    return 0xD1 + side


def _body(lane, number, part, size):
    start = (lane * 7919 + number * 104_729 + part * 1_299_709) % _SHIFT
    return _BLOCK[start : start + size]


def fill(view, lane, number, part=0):
    """Make ``view``, an array of bytes, that part of that message."""
    if len(view):
        view[:] = _body(lane, number, part, len(view))
        view[0] = number


def fault(view, lane, number, part=0):
    """What is wrong with a part that was received; or an empty string."""
    body = _body(lane, number, part, len(view))
    if not len(view) or (view[0] == number and np.array_equal(view[1:], body[1:])):
        return ""
    wrong = np.flatnonzero(view != body)
    wrong = wrong[wrong > 0] if view[0] == number else wrong
    whose = f"message {number}" if number <= END else "any message"
    where = f"{len(wrong)} of {len(view)} bytes, from {wrong[0]} to {wrong[-1]}, "
    return f"{where}are not those of {whose}: {origin(view[wrong])}"


def origin(values):
    """Say which patterns are among wrong bytes."""
    counts = np.bincount(values, minlength=256)
    seen = [
        f"{counts[value]} are {whose}"
        for value, whose in PATTERNS.items()
        if counts[value]
    ]
    return ", ".join(seen) or "no pattern"


def change(view, pattern):
    """How ``view`` differs from ``pattern``; or an empty string."""
    wrong = np.flatnonzero(view != pattern)
    if not len(wrong):
        return ""
    return f"{len(wrong)} of {len(view)} bytes, from {wrong[0]} to {wrong[-1]}"
