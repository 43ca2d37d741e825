# SPDX-License-Identifier: BSD-3-Clause
"""What random programs with frames of several libraries have in common."""

import datetime
import os

PROGRAMS = int(os.environ.get("UCP_FRAME_PROGRAMS", 12))  # of each number of ranks
BATCH = 24  # those of one world, at most

START = datetime.datetime(2026, 1, 1)
NAMES = ["b", "a", "\u00e9", "aa"]
SIZES = ["small", "medium", "large"]
NUMBERS = ["sum", "count", "mean", "min", "max", "first", "last", "std", "nunique"]
EXTREMES = ["count", "min", "max", "first", "last"]


def some(rng, values, rows):
    """Values, some of which are missing."""
    return [rng.choice([*values, *values, None]) for _ in range(rows)]


def batches():
    """The seeds of all programs, those of a world together."""
    return [
        range(first, min(first + BATCH, PROGRAMS))
        for first in range(0, PROGRAMS, BATCH)
    ]


def known(value):
    """A value as something that is equal, whatever its type."""
    if value is None or type(value).__name__ in ("NaTType", "NAType") or value != value:
        return None
    if isinstance(value, datetime.datetime):
        zone = value.tzinfo and datetime.UTC
        value = value - START.replace(tzinfo=zone)
    if isinstance(value, datetime.date):
        value = datetime.timedelta(days=value.toordinal())
    if isinstance(value, datetime.timedelta):
        value = value.total_seconds()
    if isinstance(value, str):
        return value
    return round(float(value), 5)


def sorted_rows(rows):
    return sorted(rows, key=repr)


def are_equal(found, expected):
    """Are rows equal, but for the last digits of floats?"""

    def is_near(first, second):
        are_floats = isinstance(first, float) and isinstance(second, float)
        return first == second or (are_floats and abs(first - second) < 3e-5)

    return len(found) == len(expected) and all(
        all(map(is_near, *rows)) for rows in zip(found, expected, strict=True)
    )
