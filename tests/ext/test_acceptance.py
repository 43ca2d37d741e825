# SPDX-License-Identifier: BSD-3-Clause
# tests: ext/args ext/array ext/item
"""What an operation takes: kinds of objects, both directions, with strided=True.

`python -m pytest tests/ext/test_acceptance.py -v` prints the table, a line a kind
and use; `python tests/ext/test_acceptance.py` prints it as one of Markdown.
"""

import array
import collections
import ctypes
import importlib
import mmap
from functools import partial
from typing import NamedTuple

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from ucp._libs.arr import Array
from ucp.testing import connected_pair

YES = "yes"
READ_ONLY = "cannot receive into a read-only buffer"
GAPS = "expected a contiguous buffer"
OBJECTS = "expected a buffer of plain data, got Python objects"
NOTHING = "expected an object with the buffer protocol"
SHARED = "cannot receive into items that share memory"
MASKED = "masked arrays cannot be sent"


class Kind(NamedTuple):
    """How to make one; for each use, yes or what is said."""

    make: object
    send: str = YES
    recv: str = YES
    send_strided: str = YES
    recv_strided: str = YES

    @classmethod
    def refused(cls, make, why):
        return cls(make, why, why, why, why)

    @classmethod
    def read_only(cls, make):
        return cls(make, YES, READ_ONLY, YES, READ_ONLY)

    @classmethod
    def with_gaps(cls, make):
        return cls(make, GAPS, GAPS)


class Interface:
    """An array's __array_interface__, and nothing else of it."""

    def __init__(self, of, **kwargs):
        self.of = of
        self.__array_interface__ = {**of.__array_interface__, **kwargs}


class Tensor:
    """An array's DLPack, and nothing else of it."""

    def __init__(self, of):
        self.of = of

    def __dlpack_device__(self):
        return self.of.__dlpack_device__()

    def __dlpack__(self, **kwargs):
        return self.of.__dlpack__(**kwargs)


def frozen(data):
    data.flags.writeable = False
    return data


def library(name, make):
    """An object of a library that may not be installed."""

    def made():
        try:
            module = importlib.import_module(name)
        except ImportError:
            pytest.skip(f"{name} is not installed")
        return make(module)

    return made


padded = np.dtype([("a", "u1"), ("b", "<f8")], align=True)
zeros = partial(partial, np.zeros)

KINDS = {
    "bytes": Kind.read_only(lambda: bytes(range(48))),
    "bytearray": Kind(lambda: bytearray(range(48))),
    "memoryview": Kind(lambda: memoryview(bytearray(50))[1:49]),
    "memoryview, read-only": Kind.read_only(lambda: memoryview(bytes(48))),
    "memoryview with steps": Kind.with_gaps(lambda: memoryview(bytearray(96))[::2]),
    "array.array": Kind(lambda: array.array("d", range(6))),
    "mmap": Kind(lambda: mmap.mmap(-1, 4096)),
    "ctypes array": Kind(lambda: (ctypes.c_double * 6)(*range(6))),
    "ctypes structure": Kind(lambda: ctypes.c_uint64(7)),
    "ndarray": Kind(lambda: np.arange(48.0).reshape(6, 8)),
    "ndarray, read-only": Kind.read_only(lambda: frozen(np.arange(6.0))),
    "ndarray, Fortran order": Kind(lambda: np.asfortranarray(np.ones((3, 5)))),
    "ndarray, no dimension": Kind(zeros((), "u8")),
    "ndarray, no item": Kind(zeros((3, 0, 2), "f4")),
    "ndarray, big-endian": Kind(lambda: np.arange(6, dtype=">i4")),
    "ndarray, bool": Kind(zeros(9, "?")),
    "ndarray, float16": Kind(zeros(9, "f2")),
    "ndarray, long double": Kind(zeros(3, "g")),
    "ndarray, complex": Kind(zeros((3, 2), "c16")),
    "ndarray, datetime64": Kind(zeros(6, "M8[ns]")),
    "ndarray, timedelta64": Kind(zeros(6, "m8[s]")),
    "ndarray, bytes": Kind(zeros(6, "S5")),
    "ndarray, str": Kind(zeros(6, "U5")),
    "ndarray, void": Kind(zeros(6, "V7")),
    "ndarray, structured with padding": Kind(zeros(4, padded)),
    "ndarray, a field of it": Kind.with_gaps(lambda: np.zeros(4, padded)["b"]),
    "recarray": Kind(lambda: np.zeros(4, [("mask", "i4")]).view(np.recarray)),
    "ndarray, steps": Kind.with_gaps(lambda: np.arange(24.0)[::3]),
    "ndarray, backwards": Kind.with_gaps(lambda: np.arange(24.0)[::-1]),
    "ndarray, transposed block": Kind.with_gaps(lambda: np.ones((8, 8))[1:5, 2:6].T),
    "ndarray, broadcast": Kind(
        lambda: as_strided(np.arange(4.0), (3, 4), (0, 8)), GAPS, GAPS, YES, SHARED
    ),
    "ndarray, objects": Kind.refused(lambda: np.array([{}, None]), OBJECTS),
    "ndarray, a field of objects": Kind.refused(
        zeros(3, [("a", "i4"), ("b", "O")]), OBJECTS
    ),
    "masked array": Kind.refused(
        lambda: np.ma.array([1, 2], mask=[True, False]), MASKED
    ),
    "numpy scalar": Kind.read_only(lambda: np.float64(1.5)),
    "ucp Array": Kind(lambda: Array(np.arange(6.0))),
    "ucp Array of bytes": Kind.read_only(lambda: Array(b"123456")),
    "__array_interface__": Kind(lambda: Interface(np.arange(6.0))),
    "__array_interface__, data is a buffer": Kind(
        lambda: Interface(np.zeros(6), data=bytearray(64), offset=16)
    ),
    "__array_interface__, read-only": Kind.read_only(
        lambda: Interface(frozen(np.arange(6.0)))
    ),
    "__array_interface__ with steps": Kind.with_gaps(
        lambda: Interface(np.arange(24, dtype="i2")[::4])
    ),
    "__dlpack__": Kind(lambda: Tensor(np.arange(6.0))),
    "__dlpack__ with steps": Kind.with_gaps(lambda: Tensor(np.arange(6.0)[::2])),
    "__dlpack__, read-only": Kind.read_only(lambda: Tensor(frozen(np.arange(6.0)))),
    "pyarrow.Buffer": Kind.read_only(
        library("pyarrow", lambda arrow: arrow.py_buffer(b"0123456789"))
    ),
    "pyarrow.Array": Kind.read_only(
        library("pyarrow", lambda arrow: arrow.array([1, 2, 3]))
    ),
    "torch.Tensor": Kind(library("torch", lambda torch: torch.arange(6.0))),
    "torch.Tensor with steps": Kind.with_gaps(
        library("torch", lambda torch: torch.arange(24.0)[::3])
    ),
    "jax.Array": Kind.read_only(library("jax", lambda jax: jax.numpy.arange(6.0))),
    "str": Kind.refused(lambda: "text", NOTHING),
    "int": Kind.refused(lambda: 7, NOTHING),
    "None": Kind.refused(lambda: None, NOTHING),
    "list": Kind.refused(lambda: [1, 2], NOTHING),
    "a generator": Kind.refused(lambda: (i for i in b"12"), NOTHING),
    "deque": Kind.refused(lambda: collections.deque(b"12"), NOTHING),
}
USES = ("send", "recv", "send_strided", "recv_strided")


def view(thing):
    """The same memory as an array, items in the order in which they travel."""
    if isinstance(thing, Array):
        return view(thing.obj)
    if isinstance(thing, Interface):
        return np.asarray(thing)
    if isinstance(thing, Tensor):
        return thing.of
    if type(thing).__module__.startswith(("torch", "jax")):
        return np.from_dlpack(thing)
    return np.asarray(thing)


def bytes_of(thing, is_strided):
    items = view(thing)
    # What ucx-py's Array shows goes in the order of memory.
    order = "A" if isinstance(thing, Array) and not is_strided else "C"
    return items.tobytes(order)


async def take(make, use):
    """Send one, or receive into one, and compare."""
    thing = make()
    options = {"strided": True} if use.endswith("strided") else {}
    async with connected_pair() as (left, right):
        if use.startswith("send"):
            sending = left.send(thing, **options)
            got = await right.recv_obj()
            await sending
            assert got == bytes_of(thing, bool(options))
            return
        size = len(bytes_of(thing, bool(options)))
        receiving = right.recv(thing, **options)
        data = bytes(i % 2 for i in range(size))
        await left.send(data)
        await receiving
        assert bytes_of(thing, bool(options)) == data


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("name", KINDS)
async def test_what_is_taken(name, use):
    expected = getattr(KINDS[name], use)
    if expected == YES:
        await take(KINDS[name].make, use)
    else:
        with pytest.raises((TypeError, ValueError), match=expected):
            await take(KINDS[name].make, use)


if __name__ == "__main__":
    print("| object | " + " | ".join(USES) + " |")
    print("|---|" + "---|" * len(USES))
    for name, kind in KINDS.items():
        print(f"| {name} | " + " | ".join(getattr(kind, use) for use in USES) + " |")
