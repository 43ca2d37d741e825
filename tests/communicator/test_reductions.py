# SPDX-License-Identifier: BSD-3-Clause
# tests: ext/item ext/reduce
"""Operations and types of the reductions of a communicator; the reference is NumPy."""

import ctypes
from functools import reduce

import numpy as np
import pytest
from worlds import free_root, good_world

import ucp

SIZES = (1, 2, 3)
COUNTS = (33, 40_000)  # items that go whole, and in blocks

every_size = pytest.mark.parametrize("size", SIZES)

INTS = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"]
LOGICAL = {"land": np.logical_and, "lor": np.logical_or, "lxor": np.logical_xor}
BITWISE = {"band": np.bitwise_and, "bor": np.bitwise_or, "bxor": np.bitwise_xor}
NUMPY = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}


def alone():
    return ucp.Communicator.connect(free_root(), 0, 1)


def integers(rank, count, dtype):
    """Numbers with zeros among them, and bits everywhere."""
    rng = np.random.default_rng(rank)
    if np.dtype(dtype).kind == "b":
        return rng.integers(0, 2, count).astype("?")
    numbers = rng.integers(0, 256, count * np.dtype(dtype).itemsize, "u1").view(dtype)
    return np.where(rng.integers(0, 2, count), numbers, 0).astype(dtype)


def floats(rank, count, dtype):
    rng = np.random.default_rng(rank)
    numbers = rng.normal(size=count)
    if np.dtype(dtype).kind == "c":
        numbers = numbers + 1j * rng.normal(size=count)
    return numbers.astype(dtype)


async def both_reduce(comm, own, op, expected):
    """allreduce and reduce of `own`, which stays as it is."""
    before = own.copy()
    recv = np.zeros_like(own)
    await comm.allreduce(own, recv, op)
    np.testing.assert_array_equal(recv, expected, strict=True)
    root = comm.size // 2
    recv = np.zeros_like(own)
    await comm.reduce(own, recv if comm.rank == root else None, op, root)
    if comm.rank == root:
        np.testing.assert_array_equal(recv, expected, strict=True)
    np.testing.assert_array_equal(own, before)
    await comm.allreduce(own, op)
    np.testing.assert_array_equal(own, expected, strict=True)


@every_size
@pytest.mark.parametrize("op", LOGICAL)
def test_logical_operations_give_0_or_1(size, op):
    async def main(comm):
        for dtype in [*INTS, "?"]:
            for count in COUNTS:
                every = [integers(rank, count, dtype) for rank in range(size)]
                expected = reduce(LOGICAL[op], [each != 0 for each in every])
                expected = expected.astype(dtype)
                await both_reduce(comm, every[comm.rank], op, expected)

    good_world(size, main)


@every_size
@pytest.mark.parametrize("op", BITWISE)
def test_bitwise_operations(size, op):
    async def main(comm):
        for dtype in [*INTS, "?"]:
            for count in COUNTS:
                every = [integers(rank, count, dtype) for rank in range(size)]
                expected = reduce(BITWISE[op], every)
                await both_reduce(comm, every[comm.rank], op, expected)

    good_world(size, main)


@every_size
def test_the_average_is_the_sum_divided_by_the_number_of_ranks(size):
    async def main(comm):
        for dtype in ["f4", "f8", "c8", "c16"]:
            for count in COUNTS:
                every = [floats(rank, count, dtype) for rank in range(size)]
                expected = reduce(np.add, every)
                if expected.dtype.kind == "c":  # each part, as C divides
                    view = expected.view(expected.real.dtype)
                    view /= view.dtype.type(size)
                else:
                    expected /= expected.dtype.type(size)
                await both_reduce(comm, every[comm.rank], "avg", expected)

    good_world(size, main)


def short_floats():
    """float16, and bfloat16 if there is one."""
    yield np.dtype("f2")
    try:
        import ml_dtypes
    except ImportError:
        return
    yield np.dtype(ml_dtypes.bfloat16)


@every_size
@pytest.mark.parametrize("op", [*NUMPY, "avg"])
@pytest.mark.parametrize("dtype", [*short_floats()], ids=str)
def test_floats_of_16_bits_are_combined_as_32_bits_and_rounded_once(size, op, dtype):
    async def main(comm):
        for count in COUNTS:
            every = [floats(rank, count, dtype) for rank in range(size)]
            for rank, each in enumerate(every):
                each[rank : rank + 3] = np.nan
                each[rank + 5] = np.finfo("f2").max  # a sum of these is infinite
                each[rank + 7] = 2**-24
            wide = [each.astype("f4") for each in every]
            if op == "avg":
                expected = reduce(np.add, wide) / np.float32(size)
            else:
                expected = reduce(NUMPY[op], wide)
            with np.errstate(over="ignore"):
                expected = expected.astype(dtype)
            own = every[comm.rank]
            recv = np.zeros_like(own)
            await comm.allreduce(own, recv, op)
            same = recv.view("u2") == expected.view("u2")
            assert (same | (np.isnan(recv) & np.isnan(expected))).all()

    good_world(size, main)


async def test_bfloat16_is_taken_by_its_name():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    async with await alone() as comm:
        array = np.arange(8).astype(ml_dtypes.bfloat16)
        await comm.allreduce(array, recv := np.zeros_like(array))
        assert (recv == array).all()
        with pytest.raises(ValueError, match=r"^'band' is for .*, not for bfloat16$"):
            comm.allreduce(array, "band")
        with pytest.raises(
            ValueError, match=r"send are bfloat16, those of recv float16"
        ):
            comm.allreduce(array, np.zeros(8, "f2"))
        other = array.astype(ml_dtypes.float8_e5m2)
        with pytest.raises(ValueError, match="dtype"):
            comm.allreduce(other)


# ---- pairs ---------------------------------------------------------------------


def pair(value, index="i4", align=True):
    return np.dtype([("value", value), ("index", index)], align=align)


VALUES = [*INTS, "f4", "f8"]


@every_size
@pytest.mark.parametrize("index", ["i4", "i8"])
def test_maxloc_and_minloc_find_the_value_and_its_index(size, index):
    def of(rank, count, dtype):
        rng = np.random.default_rng(rank)
        result = np.zeros(count, dtype)
        result["value"] = rng.integers(0, 4, count)  # often the same
        if result["value"].dtype.kind == "f":
            result["value"][rng.integers(0, 8, count) == 0] = np.nan
        result["index"] = rng.permutation(count)
        return result

    def best(every, op):
        """NumPy's argmax() of the pairs in the order of their indices."""
        values = np.array([each["value"] for each in every])
        indices = np.array([each["index"] for each in every])
        order = np.argsort(indices, axis=0, kind="stable")
        find = np.argmax if op == "maxloc" else np.argmin
        place = find(np.take_along_axis(values, order, 0), axis=0)
        rank = np.take_along_axis(order, place[None], 0)
        result = np.zeros_like(every[0])
        result["value"] = np.take_along_axis(values, rank, 0)[0]
        result["index"] = np.take_along_axis(indices, rank, 0)[0]
        return result

    async def main(comm):
        for value in VALUES:
            for count in (33, 9000):
                every = [of(rank, count, pair(value, index)) for rank in range(size)]
                for op in ("maxloc", "minloc"):
                    expected = best(every, op)
                    recv = np.zeros_like(expected)
                    await comm.allreduce(every[comm.rank], recv, op)
                    for field in ("value", "index"):
                        np.testing.assert_array_equal(recv[field], expected[field])

    good_world(size, main)


async def test_pairs_are_any_structures_of_two_fields_as_c_has_them():
    class Pair(ctypes.Structure):
        _fields_ = [("x", ctypes.c_float), ("at", ctypes.c_int32)]

    async with await alone() as comm:
        pairs = (Pair * 2)((1.5, 7), (2.5, 8))
        into = (Pair * 2)()
        await comm.allreduce(pairs, into, "maxloc")
        assert [(each.x, each.at) for each in into] == [(1.5, 7), (2.5, 8)]
        named = np.array([(1, 2)], [("v", "i8"), ("where", "i8")])
        await comm.allreduce(named, "minloc")
        assert named.tolist() == [(1, 2)]


@pytest.mark.parametrize(
    "dtype",
    [
        pair("f8", align=False),
        pair("i1", "i4", align=False),
        np.dtype([("value", "i1"), ("pad", "V2"), ("index", "i4"), ("end", "i1")]),
        pair(">f8"),
        pair("f8", ">i4"),
        pair("f8", "f8"),
        pair("c8"),
        pair("f2"),
        pair("f8", "u4"),
        np.dtype([("value", "f8")]),
        np.dtype([("value", "f4"), ("index", "i4"), ("more", "i8")]),
        np.dtype([("value", "f8", (2,)), ("index", "i8")]),
        np.dtype([("value", "f4"), ("index", pair("i4"))]),
    ],
    ids=str,
)
async def test_other_structures_are_refused(dtype):
    async with await alone() as comm:
        with pytest.raises(ValueError, match=r"^items of the format 'T\{.* aligned$"):
            comm.allreduce(np.zeros(2, dtype), "maxloc")


# ---- what does not fit ---------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "dtype", "text"),
    [
        ("min", "c8", "'min' is for ints, floats and bools, not for complex64"),
        ("max", "c16", "'max' is for ints, floats and bools, not for complex128"),
        ("avg", "i4", "'avg' is for floats and complex numbers, not for int32"),
        ("avg", "?", "'avg' is for floats and complex numbers, not for bool"),
        ("land", "f8", "'land' is for ints and bools, not for float64"),
        ("lor", "c8", "'lor' is for ints and bools, not for complex64"),
        ("lxor", "f2", "'lxor' is for ints and bools, not for float16"),
        ("band", "f4", "'band' is for ints and bools, not for float32"),
        ("bor", pair("i4"), "'bor' is for .*, not for pairs of int32 and int32"),
        ("sum", pair("f8", "i8"), "'sum' is for .* pairs of float64 and int64"),
        ("maxloc", "f8", "'maxloc' is for pairs of a value and an index, .* float64"),
        ("minloc", "i4", "'minloc' is for pairs of a value and an index, .* int32"),
    ],
)
def test_an_operation_that_a_type_has_not_is_refused_before_anything_is_sent(
    op, dtype, text
):
    async def main(comm):
        array = np.ones(4, dtype)
        with pytest.raises(ValueError, match=f"^{text}$"):
            comm.allreduce(array, op)
        with pytest.raises(ValueError, match=f"^{text}$"):
            comm.reduce(array, np.ones(4, dtype), op)
        await comm.barrier()

    good_world(2, main)


async def test_types_without_arithmetic_are_refused():
    async with await alone() as comm:
        for dtype in ("g", "S4", "M8[s]", ">f2"):
            with pytest.raises(ValueError, match=r"cannot be reduced|dtype"):
                comm.allreduce(np.zeros(2, dtype))
        for op in ("mean", "SUM", "", None, 3):
            with pytest.raises(ValueError, match=r"^the operation is .*, not "):
                comm.allreduce(np.zeros(2), None, op)


def test_the_same_names_without_an_event_loop():
    with ucp.sync.Communicator.connect(free_root(), 0, 1) as comm:
        array = np.array([4, 0])
        comm.allreduce(array, "lor")
        assert array.tolist() == [1, 0]
        with pytest.raises(ValueError, match=r"^'avg' is for .*, not for int64$"):
            comm.allreduce(array, "avg")
