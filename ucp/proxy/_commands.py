# SPDX-License-Identifier: BSD-3-Clause
"""Commands, as the pair of numbers that include/umx/ring.h says."""

from __future__ import annotations

import operator
from typing import SupportsIndex

_NOP, _PUT, _SIGNAL, _QUIET, _BARRIER = range(5)
_SET = 1

MAX_LOCAL = 1 << 35  # bytes
MAX_REMOTE = 1 << 36


def _number(value: SupportsIndex, name: str, below: int) -> int:
    number = operator.index(value)
    if not 0 <= number < below:
        raise ValueError(f"{name} is {number}, not 0 to {below - 1}")
    return number


def _offset(value: SupportsIndex, name: str, below: int) -> int:
    number = _number(value, name, below)
    if number % 16:
        raise ValueError(f"{name} is {number}, not a multiple of 16")
    return number


def _w0(op: int, flags: int, rank: int, region: int, nbytes: int) -> int:
    return op | flags << 4 | rank << 8 | region << 24 | nbytes << 32


def put(
    rank: SupportsIndex,
    nbytes: SupportsIndex,
    local: SupportsIndex,
    remote: SupportsIndex,
    region: SupportsIndex = 0,
) -> tuple[int, int]:
    """Make a command: copy bytes from this rank's memory to the memory of a rank.

    Args:
        rank: the rank to whose memory the bytes are written.
        nbytes: number of bytes, below 2**32.
        local: offset from which the bytes are read, a multiple of 16 below 32 GiB.
        remote: offset to which the bytes are written, a multiple of 16 below 64 GiB.
        region: the region to which both memories belong.

    Returns:
        Two numbers, for a row of a NumPy array of ``uint64``.

    Raises:
        ValueError: a number does not fit into a command; the text names it.
    """
    w0 = _w0(
        _PUT,
        0,
        _number(rank, "rank", 1 << 16),
        _number(region, "region", 256),
        _number(nbytes, "nbytes", 1 << 32),
    )
    where = _offset(local, "local", MAX_LOCAL) >> 4 << 1
    return w0, where | _offset(remote, "remote", MAX_REMOTE) >> 4 << 32


def signal(
    rank: SupportsIndex,
    slot: SupportsIndex,
    value: SupportsIndex = 1,
    region: SupportsIndex = 0,
    *,
    set: bool = False,
) -> tuple[int, int]:
    """Make a command: add to a number of 8 bytes in the memory of a rank, or set it.

    The rank sees the new number after the bytes of earlier puts of the same ring.

    Args:
        rank: the rank whose memory is changed.
        slot: index of the number in the region, counted in 8 bytes from 0 on.
        value: the value to add, below 2**31.
        region: the region.
        set: True: store the value instead of adding it.

    Raises:
        ValueError: a number does not fit into a command.
    """
    w0 = _w0(
        _SIGNAL,
        _SET if set else 0,
        _number(rank, "rank", 1 << 16),
        _number(region, "region", 256),
        0,
    )
    where = _number(slot, "slot", 1 << 32) << 32
    return w0, where | _number(value, "value", 1 << 31) << 1


def quiet() -> tuple[int, int]:
    """Make a command that is over when all earlier commands of the ring are over. The
    bytes of their puts are in the memory of the ranks then."""
    return _QUIET, 0


def barrier(group: SupportsIndex = 0) -> tuple[int, int]:
    """Make a command: a quiet, then wait for the barrier of every rank.

    Args:
        group: 0 to 255; barriers of different groups are independent.
    """
    return _w0(_BARRIER, 0, 0, _number(group, "group", 256), 0), 0


def nop() -> tuple[int, int]:
    """Make a command that does nothing."""
    return _NOP, 0
