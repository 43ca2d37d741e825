# SPDX-License-Identifier: BSD-3-Clause
"""What an allocation asks for, checked before the other ranks hear of it."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any, NamedTuple, SupportsIndex

from .. import _ext
from .array import Array

_MOST = (1 << 63) - 1  # of what the library is asked for
_MOST_ALIGNED = 65536  # bytes: UMX_SHMEM_ALIGN_MAX


class Plan(NamedTuple):
    """The arguments of an allocation."""

    shape: tuple[int, ...]
    dtype: Any
    value: Any  # of full(): an array of that shape; else None
    wish: tuple[int, int, bool, str]  # arguments of _malloc()


def shape_of(shape: Any) -> tuple[int, ...]:
    """The lengths of the dimensions."""
    lengths = shape if isinstance(shape, Iterable) else (shape,)
    numbers = []
    for length in lengths:
        if not hasattr(type(length), "__index__"):
            raise TypeError(f"a shape is an int or a tuple of them, and has {length!r}")
        numbers.append(length.__index__())
    if any(number < 0 for number in numbers):
        raise ValueError(f"the shape {tuple(numbers)} has a negative length")
    return tuple(numbers)


def plan(
    heap: _ext.SymmetricHeap,
    method: str,
    shape: Any,
    dtype: Any,
    align: SupportsIndex,
    value: Any = None,
) -> Plan:
    """Check the arguments of ``heap.empty()``, ``zeros()`` or ``full()``."""
    import numpy

    kind = numpy.dtype(dtype)
    if kind.hasobject:
        raise TypeError(
            f"the dtype {kind} has Python objects, which other ranks cannot read"
        )
    lengths = shape_of(shape) + kind.shape
    kind = kind.base
    nbytes = prod(lengths) * kind.itemsize
    aligned = align.__index__()
    if not 0 <= aligned <= _MOST_ALIGNED:
        raise ValueError(
            f"align is {aligned}, and not 0 or a power of two up to {_MOST_ALIGNED}"
        )
    if nbytes <= heap.nbytes:  # else there is no room, whatever NumPy says
        Array.make(heap, 0, lengths, kind)
        if method == "full":
            value = numpy.broadcast_to(numpy.array(value, kind), lengths)
    what = f"{method}({lengths}, {kind})"
    if aligned:
        what = f"{what[:-1]}, align={aligned})"
    return Plan(
        lengths, kind, value, (min(nbytes, _MOST), aligned, method == "zeros", what)
    )


def check_free(heap: _ext.SymmetricHeap, array: Any) -> None:
    """Check the argument of ``heap.free()``."""
    if array is None:
        return
    if not isinstance(array, Array):
        raise TypeError(
            f"array is an array of the symmetric heap, not {type(array).__name__}"
        )
    if array.heap is not heap:
        raise ValueError("array is of another symmetric heap")
    if array.is_part:
        raise ValueError("array is a part of another one: free that one")
    if array.is_freed:
        raise ValueError("array has been freed")


def refusal(exc: Exception) -> tuple[int, int, bool, str, bool]:
    """What ``_malloc()`` is given to tell the others of bad arguments."""
    text = f"{type(exc).__name__}: {exc}".encode("utf-8", "replace").decode()
    return 0, 0, False, text.replace("\0", "?"), True
