# SPDX-License-Identifier: BSD-3-Clause
# tests: ext/moe_rows ucp/arrays
"""``ucp.moe.to_fp8`` and ``ucp.moe.from_fp8``, and which arrays are taken."""

import numpy as np
import pytest
from moe_model import of_bf16, of_fp8, to_bf16, to_fp8

import ucp.moe


def floats(shape, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape) * 10.0 ** rng.integers(-20, 20, (*shape[:-1], 1))
    x = x.astype(np.float32)
    x[0, :128] = 0
    return x


def test_casts_are_those_of_numpy():
    x = floats((40, 384))
    fp8, scales = ucp.moe.to_fp8(x)
    want, want_scales = to_fp8(x)
    np.testing.assert_array_equal(scales, want_scales)
    np.testing.assert_array_equal(fp8, want)
    np.testing.assert_array_equal(ucp.moe.from_fp8(fp8, scales), of_fp8(fp8, scales))
    np.testing.assert_array_equal(
        ucp.moe.from_fp8(fp8, scales, "bfloat16"), to_bf16(of_fp8(fp8, scales))
    )


def test_bfloat16_is_cast_as_its_floats():
    x = to_bf16(floats((2, 5, 128), 1))
    fp8, scales = ucp.moe.to_fp8(x)
    want, want_scales = ucp.moe.to_fp8(of_bf16(x))
    np.testing.assert_array_equal(fp8, want)
    np.testing.assert_array_equal(scales, want_scales)


def test_numbers_that_are_none_stay_so():
    x = np.ones((1, 256), np.float32)
    x[0, 3], x[0, 5], x[0, 7] = np.nan, np.inf, -np.inf
    back = ucp.moe.from_fp8(*ucp.moe.to_fp8(x))
    assert np.flatnonzero(np.isnan(back)).tolist() == [3, 5, 7]
    assert (back[~np.isnan(back)] == 1).all()


class Tensor:
    """An array of another library, by DLPack only."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class OnDevice:
    __cuda_array_interface__ = {"shape": (1, 128)}  # noqa: RUF012


def test_arrays_of_other_libraries():
    x = floats((3, 128))
    want, _ = ucp.moe.to_fp8(x)
    for array in (Tensor(x), memoryview(x)):
        np.testing.assert_array_equal(ucp.moe.to_fp8(array)[0], want)
    with pytest.raises(TypeError, match="memory of a device"):
        ucp.moe.to_fp8(OnDevice())
    with pytest.raises(TypeError, match="x is no array: int"):
        ucp.moe.to_fp8(7)


def test_wrong_arrays_are_named():
    with pytest.raises(ValueError, match="no multiple of 128"):
        ucp.moe.to_fp8(np.zeros((1, 100), np.float32))
    with pytest.raises(ValueError, match=r"x\.dtype is .*float64"):
        ucp.moe.to_fp8(np.zeros((1, 128)))
    with pytest.raises(ValueError, match="fp8 already"):
        ucp.moe.to_fp8(np.zeros((1, 128), np.uint8))
    with pytest.raises(ValueError, match="contiguous"):
        ucp.moe.to_fp8(np.zeros((128, 128), np.float32).T)
    fp8, scales = ucp.moe.to_fp8(np.zeros((2, 128), np.float32))
    with pytest.raises(ValueError, match="scales has shape"):
        ucp.moe.from_fp8(fp8, scales[:1])
    with pytest.raises(ValueError, match="dtype is fp8"):
        ucp.moe.from_fp8(fp8, scales, "fp8")
