# SPDX-License-Identifier: BSD-3-Clause
"""Rows of floats as fp8 with scales, and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import _ext
from ._arrays import (
    BLOCK,
    FP8,
    Array,
    as_array,
    floats_of,
    kind_of,
    plain_kind,
    rows_of,
)


def to_fp8(x: Any) -> tuple[Array, Array]:
    """Cast rows to fp8 (E4M3 without infinities), as ``use_fp8=True`` does.

    Args:
        x: float32 or bfloat16, whose last axis is a multiple of 128.

    Returns:
        The numbers, uint8 of the same shape; and float32 scales, one for each 128
        numbers: the largest finite magnitude of these, and at least 1e-30, divided
        by 448. A number is what its bits say, times the scale. Infinities become
        NaN.

    Raises:
        ValueError: dtype, strides, or the last axis.
    """
    array = as_array(x, "x")
    kind = kind_of(array.dtype, "x.dtype")
    _check_hidden(array)
    if kind.code == FP8:
        raise ValueError("x is fp8 already")
    fp8 = np.empty(array.shape, np.uint8)
    scales = np.empty((*array.shape[:-1], array.shape[-1] // BLOCK), np.float32)
    _ext.moe_to_fp8(
        fp8.reshape(-1),
        scales.reshape(-1),
        rows_of(array, kind, array.shape, "x"),
        kind.code,
        array.shape[-1],
    )
    return fp8, scales


def from_fp8(x: Any, scales: Any, dtype: Any = "float32") -> Array:
    """Cast rows of fp8 back.

    Args:
        x: the numbers.
        scales: float32, one for each 128 numbers.
        dtype: float32 or bfloat16, which NumPy has as uint16.

    Raises:
        ValueError: dtype, shape or strides.
    """
    array = as_array(x, "x")
    kind = kind_of(dtype)
    _check_hidden(array)
    if kind.code == FP8:
        raise ValueError("dtype is fp8, which x is already")
    floats = np.empty(array.shape, kind.dtype)
    _ext.moe_from_fp8(
        rows_of(array, plain_kind(FP8), array.shape, "x"),
        floats_of(scales, (*array.shape[:-1], array.shape[-1] // BLOCK), "scales"),
        floats.reshape(-1).view(np.uint8),
        kind.code,
        array.shape[-1],
    )
    return floats


def _check_hidden(array: Array) -> None:
    if array.ndim == 0 or array.shape[-1] % BLOCK or array.shape[-1] == 0:
        raise ValueError(
            f"x has shape {array.shape}, whose last axis is no multiple of {BLOCK}"
        )
