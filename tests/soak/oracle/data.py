# SPDX-License-Identifier: BSD-3-Clause
"""Bytes and numbers that every rank can compute, and buffers that hold them."""

import random

import numpy as np

import ucp

FILL = 0xEE

_KIB = 1024
_MIB = 1024 * _KIB
_LIMITS = [0, 8, 64, 300, 4 * _KIB, 20 * _KIB, 150 * _KIB, _MIB, 64 * _MIB]
_WEIGHTS = [1000, 2000, 3000, 2000, 1500, 1000, 400, 100, 2]

_PATTERN = np.frombuffer(random.Random(1).randbytes((1 << 20) + 7), "u1")


def draw_size(rng):
    """A number of bytes: small ones often, large ones rarely."""
    at = rng.choices(range(len(_LIMITS)), _WEIGHTS)[0]
    return rng.randint(_LIMITS[max(at - 1, 0)], _LIMITS[at])


def pattern(key, nbytes):
    """Bytes that belong to a key."""
    start = key * 7919 % (len(_PATTERN) - 1)
    if start + nbytes <= len(_PATTERN):
        return _PATTERN[start : start + nbytes]
    times = (start + nbytes) // len(_PATTERN) + 1
    return np.tile(_PATTERN, times)[start : start + nbytes]


def numbers(key, count, dtype):
    """Numbers whose sums and products are the same in every implementation that
    keeps the order."""
    dtype = np.dtype(dtype)
    if dtype.kind in "iu":
        return np.frombuffer(pattern(key, count * dtype.itemsize).tobytes(), dtype)
    raw = pattern(key, 2 * count).view("i1")
    if dtype.kind == "b":
        return (raw[:count] & 1).astype(dtype)
    if dtype.kind == "c":  # small: no product is rounded
        raw = raw % 8 - 4
        return (raw[:count] + 1j * raw[count:]).astype(dtype)
    result = (raw[:count] / 7 + raw[count:]).astype(dtype)
    if key % 4 == 0:
        result[:: key % 7 + 2] = np.nan
    return result


class Buffer:
    """Memory of some kind. Its counts are in items of `unit` bytes."""

    def __init__(self, data, kind, item=1):
        self.unit = 1
        self.memory = None
        if kind == "memory" and data.nbytes:
            self.memory = self.object = ucp.Memory.allocate(data.nbytes)
            np.asarray(self.object).view("u1")[:] = data
        elif kind == "bytes":
            self.object = data.tobytes()
        elif kind in ("array", "gaps"):
            self.unit = item
            items = np.array(data).view("c16" if item == 16 else f"u{item}")
            self.object = with_gaps(items) if kind == "gaps" else items
        else:
            self.object = bytearray(data)

    def counts(self, counts):
        """What the operation is given for these numbers of bytes."""
        return None if counts is None else [count // self.unit for count in counts]

    def data(self):
        items = self.object
        if isinstance(items, np.ndarray):
            _check_gaps(items, "a buffer")
            items = np.ascontiguousarray(items)
        view = memoryview(items)
        return np.frombuffer(view, "u1") if view.nbytes else np.empty(0, "u1")

    def close(self):
        if self.memory is not None:
            self.memory.close()


def with_gaps(array):
    """The items with a gap around each: same() looks at the gaps, too."""
    room = np.full((len(array), 3 * array.itemsize), FILL, "u1")
    view = room.view(array.dtype)[:, 1]
    view[...] = array
    return view


def _check_gaps(array, what):
    if isinstance(array.base, np.ndarray) and not array.flags.c_contiguous:
        room = array.base.view("u1").reshape(len(array), 3 * array.itemsize)
        gaps = np.delete(room, slice(array.itemsize, 2 * array.itemsize), axis=1)
        assert (gaps == FILL).all(), f"{what}: something was written beside the items"


def _comparable(array):
    """Floats of 16 bits as floats that NumPy compares."""
    is_short = array.dtype.itemsize == 2 and array.dtype.kind not in "iu"
    return array.astype("f4") if is_short else array


def interleave(rng, *sequences):
    """All items in a random order that keeps the order of each sequence."""
    left = [list(reversed(each)) for each in sequences]
    result = []
    while total := sum(map(len, left)):
        at = rng.randrange(total)
        for each in left:
            if at < len(each):
                result.append(each.pop())
                break
            at -= len(each)
    return result


def same(got, expected, what):
    """Compare, and say where they differ."""
    _check_gaps(got, what)
    assert got.dtype == expected.dtype, (what, got.dtype, expected.dtype)
    if expected.dtype.names is not None:
        for name in expected.dtype.names:
            same(got[name].copy(), expected[name].copy(), f"{what}, {name}")
        return
    got, expected = _comparable(got), _comparable(expected)
    if not np.array_equal(got, expected, equal_nan=expected.dtype.kind in "fc"):
        assert len(got) == len(expected), (what, len(got), len(expected))
        where = np.flatnonzero(
            ~((got == expected) | ((got != got) & (expected != expected)))
        )
        raise AssertionError(
            f"{what}: {len(where)} of {len(got)} items differ, first {where[0]}: "
            f"{got[where[0]]} is not {expected[where[0]]}"
        )
