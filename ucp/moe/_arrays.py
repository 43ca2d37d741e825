# SPDX-License-Identifier: BSD-3-Clause
"""Arrays of any library as NumPy arrays of host memory, without a copy."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

F32, BF16, FP8 = 0, 1, 2  # umx_moe_dtype
BLOCK = 128  # numbers of fp8 with one scale
NAMES = {F32: "float32", BF16: "bfloat16", FP8: "fp8"}

# What the numbers of a kind are called elsewhere; of 16 and 8 bits also as
# integers, in which NumPy keeps what it has no type for.
_KINDS = {
    "float32": F32,
    "bfloat16": BF16,
    "uint16": BF16,
    "int16": BF16,
    "fp8": FP8,
    "float8_e4m3fn": FP8,
    "uint8": FP8,
    "int8": FP8,
}
_PLAIN: dict[int, Any] = {F32: np.float32, BF16: np.uint16, FP8: np.uint8}


@dataclass(frozen=True, slots=True)
class Kind:
    """A type of numbers, and the dtype of the arrays that users get."""

    code: int
    dtype: np.dtype[Any]

    @property
    def name(self) -> str:
        return NAMES[self.code]


def kind_of(dtype: Any, what: str = "dtype") -> Kind:
    """Return the kind for a name, or for a dtype of NumPy, ml_dtypes or torch."""
    name = dtype if isinstance(dtype, str) else getattr(dtype, "__name__", str(dtype))
    code = _KINDS.get(name.removeprefix("torch."))
    if code is None:
        raise ValueError(f"{what} is {dtype!r}, not float32, bfloat16 or fp8")
    if isinstance(dtype, str) or "torch" in type(dtype).__module__:
        return Kind(code, np.dtype(_PLAIN[code]))
    kind = Kind(code, np.dtype(dtype))
    if not kind.dtype.isnative:
        raise ValueError(f"{what} is {dtype!r}, whose bytes are swapped")
    return kind


def plain_kind(code: int) -> Kind:
    return Kind(code, np.dtype(_PLAIN[code]))


def as_array(obj: Any, what: str) -> Array:
    """The array itself, where its memory is.

    Raises:
        TypeError: it is not an array, or its memory is a device's.
    """
    if isinstance(obj, np.ndarray):
        return obj
    torch: Any = sys.modules.get("torch")
    if torch is not None and isinstance(obj, torch.Tensor):
        if obj.device.type != "cpu":
            raise TypeError(f"{what} is in memory of {obj.device}: copy it to the host")
        same = {torch.bfloat16: torch.int16, torch.float8_e4m3fn: torch.uint8}
        plain = same.get(obj.dtype)
        obj = obj.detach()
        array: Array = (obj if plain is None else obj.view(plain)).numpy()
        return array
    if hasattr(obj, "__cuda_array_interface__"):
        try:
            return np.asarray(memoryview(obj))  # managed
        except (TypeError, BufferError):
            raise TypeError(
                f"{what} is in memory of a device: copy it to the host"
            ) from None
    if hasattr(obj, "__dlpack__"):
        return np.from_dlpack(obj)
    try:
        return np.asarray(memoryview(obj))
    except TypeError:
        raise TypeError(f"{what} is no array: {type(obj).__name__}") from None


def rows_of(obj: Any, kind: Kind, shape: tuple[int, ...], what: str) -> Array:
    """Numbers of a kind, as contiguous bytes.

    Raises:
        ValueError: shape, dtype or strides are others.
    """
    array = as_array(obj, what)
    if _KINDS.get(array.dtype.name) != kind.code:
        raise ValueError(f"{what} has dtype {array.dtype}, not {kind.name}")
    if not array.dtype.isnative:
        raise ValueError(f"{what} has dtype {array.dtype!r}, whose bytes are swapped")
    return _bytes_of(array, shape, what)


def floats_of(obj: Any, shape: tuple[int, ...], what: str) -> Array:
    """Float32 numbers as bytes; other real numbers are cast."""
    array = as_array(obj, what) if not isinstance(obj, list) else np.asarray(obj)
    if array.dtype.kind not in "fiu":
        raise ValueError(f"{what} has dtype {array.dtype}, not float32")
    if array.dtype != np.float32:
        array = array.astype(np.float32)
    return _bytes_of(np.ascontiguousarray(array), shape, what)


def experts_of(obj: Any, num_experts: int) -> npt.NDArray[np.int64]:
    """``topk_idx`` as a contiguous array [token][k], a copy."""
    array = np.asarray(obj) if isinstance(obj, list) else as_array(obj, "topk_idx")
    if array.dtype.kind not in "iu" or array.ndim != 2:
        raise ValueError(
            f"topk_idx has dtype {array.dtype} and shape {array.shape}, not integers "
            "[token][k]"
        )
    experts = np.array(array, np.int64, order="C")
    if experts.size:
        least, most = int(experts.min()), int(experts.max())
        if least < -1 or most >= num_experts:
            wrong = least if least < -1 else most
            raise ValueError(
                f"topk_idx names expert {wrong}: there are 0 to {num_experts - 1}, and "
                "-1 for none"
            )
    return experts


def _bytes_of(array: Array, shape: tuple[int, ...], what: str) -> Array:
    if array.shape != shape:
        raise ValueError(f"{what} has shape {array.shape}, not {shape}")
    if not array.flags.c_contiguous:
        raise ValueError(
            f"{what} must be contiguous, got strides {array.strides} for items of "
            f"{array.itemsize} bytes"
        )
    return array.reshape(-1).view(np.uint8)
