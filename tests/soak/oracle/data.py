# SPDX-License-Identifier: BSD-3-Clause
"""Bytes and numbers that every rank can compute, and buffers that hold them."""

import random

import numpy as np

import ucp

FILL = 0xEE

DTYPES = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8", "c8", "c16", "?"]
NUMPY = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}

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
        elif kind == "array":
            self.unit = item
            self.object = np.array(data).view("c16" if item == 16 else f"u{item}")
        else:
            self.object = bytearray(data)

    def counts(self, counts):
        """What the operation is given for these numbers of bytes."""
        return None if counts is None else [count // self.unit for count in counts]

    def data(self):
        view = memoryview(self.object)
        return np.frombuffer(view, "u1") if view.nbytes else np.empty(0, "u1")

    def close(self):
        if self.memory is not None:
            self.memory.close()


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
    if not np.array_equal(got, expected, equal_nan=expected.dtype.kind in "fc"):
        assert len(got) == len(expected), (what, len(got), len(expected))
        where = np.flatnonzero(
            ~((got == expected) | ((got != got) & (expected != expected)))
        )
        raise AssertionError(
            f"{what}: {len(where)} of {len(got)} items differ, first {where[0]}: "
            f"{got[where[0]]} is not {expected[where[0]]}"
        )
