# SPDX-License-Identifier: BSD-3-Clause
"""Reductions of a random program, and their results by NumPy."""

from functools import reduce
from itertools import pairwise

import numpy as np
from collective import Collective
from data import draw_size, numbers, same, with_gaps

import ucp

_INTS = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"]
_FLOATS = ["f2", "f4", "f8"]
_COMPLEX = ["c8", "c16"]
try:
    import ml_dtypes
except ImportError:
    _SHORT = [np.dtype("f2")]
else:
    _SHORT = [np.dtype("f2"), np.dtype(ml_dtypes.bfloat16)]
    _FLOATS.append(ml_dtypes.bfloat16)
_PAIRS = [
    np.dtype([("value", value), ("index", index)], align=True)
    for value in [*_INTS, "f4", "f8"]
    for index in ("i4", "i8")
]

_NUMPY = {
    "sum": np.add,
    "prod": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "avg": np.add,
    "land": np.logical_and,
    "lor": np.logical_or,
    "lxor": np.logical_xor,
    "band": np.bitwise_and,
    "bor": np.bitwise_or,
    "bxor": np.bitwise_xor,
}
_BITS = ["land", "lor", "lxor", "band", "bor", "bxor"]

# Each operation with the types that it is for.
CASES = [
    *((op, dtype) for op in ("sum", "prod", "min", "max") for dtype in [*_INTS, "?"]),
    *((op, dtype) for op in ("sum", "prod", "min", "max") for dtype in _FLOATS),
    *((op, dtype) for op in ("sum", "prod", "avg") for dtype in _COMPLEX),
    *(("avg", dtype) for dtype in _FLOATS),
    *((op, dtype) for op in _BITS for dtype in [*_INTS, "?"]),
    *((op, dtype) for op in ("maxloc", "minloc") for dtype in _PAIRS),
]


def contribution(key, count, dtype):
    """The array of a rank."""
    dtype = np.dtype(dtype)
    if dtype.names is None:
        return numbers(key, count, dtype)
    pairs = np.zeros(count, dtype)
    value = dtype["value"]
    # Often the same, so that the index decides.
    pairs["value"] = numbers(key, count, "u1") % 3
    if value.kind == "f":
        pairs["value"][:: key % 5 + 3] = np.nan
    pairs["index"] = numbers(key + 1, count, "i2")
    return pairs


def _found(op, first, other):
    """The pair of two that maxloc or minloc finds."""
    a, b = first["value"], other["value"]
    better = b > a if op == "maxloc" else b < a
    better |= (b != b) & (a == a)
    worse = a > b if op == "maxloc" else a < b
    worse |= (a != a) & (b == b)
    takes_other = better | (~worse & (other["index"] < first["index"]))
    return np.where(takes_other, other, first)


def combined(op, arrays):
    """What the arrays are together, in their order."""
    dtype = arrays[0].dtype
    if op in ("maxloc", "minloc"):
        return reduce(lambda a, b: _found(op, a, b), arrays)
    if op in ("land", "lor", "lxor"):
        arrays = [each != 0 for each in arrays]
    if dtype in _SHORT:
        arrays = [each.astype("f4") for each in arrays]
    with np.errstate(all="ignore"):
        result = reduce(_NUMPY[op], arrays)
        if op == "avg":
            parts = result.copy().view(result.real.dtype)
            result = (parts / parts.dtype.type(len(arrays))).view(result.dtype)
        return result.astype(dtype)


class Reduce(Collective):
    to_all = False

    def draw(self, rng):
        self.op, dtype = rng.choice(CASES)
        self.dtype = np.dtype(dtype)
        self.count = min(draw_size(rng), 16 << 20) // self.dtype.itemsize
        self.has_gaps = [rng.random() < 0.25 for _ in range(self.size)]

    def every(self):
        return [
            contribution(self.key + r, self.count, self.dtype) for r in range(self.size)
        ]

    def placed(self, comm, array):
        """Give the memory of an array, and of what is around it."""
        return with_gaps(array) if self.has_gaps[comm.rank] else array

    def expected(self, every, rank):
        """The result of a rank; None: it gets none."""
        return combined(self.op, every) if self.to_all or rank == self.root else None

    def begin(self, comm):
        every = self.every()
        own = every[comm.rank]
        expected = self.expected(every, comm.rank)
        if self.in_place and expected is not None:
            recv, send = self.placed(comm, own.copy()), ucp.IN_PLACE
            expected = np.concatenate([expected, own[len(expected) :]])
        else:
            send = self.placed(comm, own.copy())
            recv = None
            if expected is not None:
                recv = self.placed(comm, np.ones_like(expected))

        def check(_):
            if recv is not None:
                same(recv, expected, f"{self} on rank {comm.rank}")
            if send is not ucp.IN_PLACE:
                same(send, own, f"what {self} sends on rank {comm.rank}")

        return self.post(comm, send, recv), check

    def post(self, comm, send, recv):
        return comm.reduce(send, recv, self.op, self.root)

    def __str__(self):
        return f"{super().__str__()} ({self.op} of {self.count} {self.dtype})"


class Allreduce(Reduce):
    to_all = True

    def method(self, comm):
        return comm.allreduce

    def post(self, comm, send, recv):
        if send is ucp.IN_PLACE and self.key % 2:
            return self.method(comm)(recv, op=self.op)
        return self.method(comm)(send, recv, self.op)


class Scan(Allreduce):
    def method(self, comm):
        return comm.scan

    def expected(self, every, rank):
        return combined(self.op, every[: rank + 1])


class Exscan(Allreduce):
    def method(self, comm):
        return comm.exscan

    def expected(self, every, rank):
        """Rank 0 keeps what its memory has."""
        if rank == 0:
            return every[0] if self.in_place else np.ones_like(every[0])
        return combined(self.op, every[:rank])


class ReduceScatter(Reduce):
    to_all = True

    def draw(self, rng):
        super().draw(rng)
        self.counts = [self.count // self.size] * self.size
        self.is_even = rng.random() < 0.5
        if not self.is_even:
            cuts = sorted(rng.randint(0, self.count) for _ in range(self.size - 1))
            edges = [0, *cuts, self.count]
            self.counts = [b - a for a, b in pairwise(edges)]
        self.count = sum(self.counts)

    def expected(self, every, rank):
        start = sum(self.counts[:rank])
        return combined(self.op, every)[start:][: self.counts[rank]]

    def post(self, comm, send, recv):
        counts = None if self.is_even else self.counts
        return comm.reduce_scatter(send, recv, self.op, counts=counts)


ALL = [Reduce, Allreduce, Scan, Exscan, ReduceScatter]
