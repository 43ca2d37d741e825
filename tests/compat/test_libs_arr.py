# SPDX-License-Identifier: BSD-3-Clause
# tests: compat/arr ucp/arr
"""``ucp._libs.arr``: the memory of an object and its layout."""

import array
import gc
import weakref

import numpy as np
import pytest

from ucp._libs.arr import Array, asarray


class Interface:
    """Has one of the array interfaces."""

    def __init__(self, name, **values):
        setattr(self, name, {"version": 3, "typestr": "<i4", **values})


def test_a_buffer_is_described_as_memoryview_does():
    matrix = memoryview(bytearray(12)).cast("B", (3, 4))
    for thing in (b"abc", bytearray(0), array.array("d", [1, 2]), matrix, matrix[::2]):
        got, expected = Array(thing), memoryview(thing)
        for name in (
            "obj",
            "itemsize",
            "ndim",
            "shape",
            "strides",
            "nbytes",
            "readonly",
            "c_contiguous",
            "f_contiguous",
            "contiguous",
        ):
            assert getattr(got, name) == getattr(expected, name), (thing, name)
        assert not got.cuda


@pytest.mark.parametrize("dtype", ["u1", "f8", "M8[s]", "c16"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_an_ndarray_of_any_order_and_type(dtype, order):
    source = np.zeros((3, 4), dtype, order=order)
    got = Array(source)
    assert got.ptr == source.ctypes.data
    assert got.obj is source
    assert (got.shape, got.strides) == (source.shape, source.strides)
    assert (got.nbytes, got.itemsize) == (source.nbytes, source.itemsize)
    assert got.c_contiguous == (order == "C")
    assert got.f_contiguous == (order == "F")
    assert not Array(source[:, ::2]).contiguous


def test_readonly_is_of_the_memory():
    source = np.zeros(3)
    assert not Array(source).readonly
    source.flags.writeable = False
    assert Array(source).readonly


@pytest.mark.parametrize(
    ("name", "is_cuda"),
    [("__array_interface__", False), ("__cuda_array_interface__", True)],
)
def test_an_interface_without_strides_is_in_c_order(name, is_cuda):
    thing = Interface(name, shape=(2, 3), data=(4096, True))
    got = Array(thing)
    assert got.obj is thing
    assert (got.ptr, got.readonly, got.cuda) == (4096, True, is_cuda)
    assert (got.strides, got.nbytes, got.itemsize, got.ndim) == ((12, 4), 24, 4, 2)
    assert (got.c_contiguous, got.f_contiguous) == (True, False)


def test_an_interface_with_gaps_has_its_strides():
    thing = Interface(
        "__cuda_array_interface__", shape=(2, 3), strides=(24, 8), data=(4096, False)
    )
    got = Array(thing)
    assert (got.strides, got.contiguous) == ((24, 8), False)


def test_no_items_are_contiguous_however_large_the_other_sizes():
    thing = Interface(
        "__array_interface__", shape=(0, 2**62, 2**62), data=(4096, False)
    )
    got = Array(thing)
    assert (got.nbytes, got.c_contiguous, got.f_contiguous) == (0, True, True)


def test_it_holds_the_memory():
    source = bytearray(8)
    got = Array(source)
    with pytest.raises(BufferError):
        source.append(1)
    del got
    source.append(1)


def test_it_is_collected_in_a_cycle():
    class Holder(bytearray):
        pass

    source = Holder(8)
    source.array = Array(source)
    gone = weakref.ref(source)
    del source
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("thing", [None, 1, "text", [1], object()])
def test_what_has_no_memory_is_refused(thing):
    with pytest.raises(TypeError, match="buffer protocol"):
        Array(thing)


def test_python_objects_are_refused():
    with pytest.raises(ValueError, match="Python objects"):
        Array(np.array([None]))


def test_asarray_keeps_an_array():
    got = asarray(b"abc")
    assert isinstance(got, Array)
    assert asarray(got) is got
    assert Array[bytes] is not None
