# SPDX-License-Identifier: BSD-3-Clause
"""Arrays in device memory to receive into.

array = await ep.recv_obj(allocator=ucp.cuda.allocator)
ucp.register_am_allocator(ucp.cuda.allocator, "cuda")
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

from . import _ext

__all__ = ["allocator", "is_available", "use"]


def __dir__() -> list[str]:
    return __all__


def _cupy() -> Callable[[int], Any]:
    cupy = importlib.import_module("cupy")
    return lambda nbytes: cupy.empty(nbytes, "u1")


def _rmm() -> Callable[[int], Any]:
    rmm = importlib.import_module("rmm")
    return lambda nbytes: rmm.DeviceBuffer(size=nbytes)


def _numba() -> Callable[[int], Any]:
    cuda = importlib.import_module("numba.cuda")
    return lambda nbytes: cuda.device_array(nbytes, "u1")


def _torch() -> Callable[[int], Any]:
    torch = importlib.import_module("torch")
    return lambda nbytes: torch.empty(nbytes, dtype=torch.uint8, device="cuda")


_LIBRARIES = {"cupy": _cupy, "rmm": _rmm, "numba": _numba, "torch": _torch}
_allocate: Callable[[int], Any] | None = None
_is_chosen = False  # by the program
_preferred: list[str] = []


def is_available() -> bool:
    """True if NVIDIA's driver and a device are present."""
    return _ext.cuda_is_present()


def use(library: str | None) -> None:
    """Choose the library that makes the arrays of ``allocator``.

    Args:
        library: "cupy" (``cupy.ndarray``), "rmm" (``rmm.DeviceBuffer``),
            "numba" (``DeviceNDArray``) or "torch" (``torch.Tensor``). None: the
            first of these that the program has imported, else the first that can
            be imported.

    Raises:
        ValueError: ``library`` is none of these.
        ImportError: the library cannot be imported.
    """
    global _allocate, _is_chosen
    if library is not None and library not in _LIBRARIES:
        raise ValueError(f"library is one of {', '.join(_LIBRARIES)}, not {library!r}")
    _allocate = None if library is None else _LIBRARIES[library]()
    _is_chosen = library is not None


def _prefer(library: str) -> None:
    """Try a library before the others, if the program has chosen none."""
    global _allocate
    if library not in _preferred:
        _preferred.append(library)
        _allocate = _allocate if _is_chosen else None


def allocator(nbytes: int) -> Any:
    """Return an array of ``nbytes`` bytes in the memory of the current device.

    Raises:
        ImportError: none of the libraries that ``use()`` names is installed.
    """
    global _allocate
    if _allocate is None:
        _allocate = _find()
    return _allocate(nbytes)


def _find() -> Callable[[int], Any]:
    imported = [name for name in _LIBRARIES if name in sys.modules]
    for name in [*_preferred, *imported, *_LIBRARIES]:
        try:
            return _LIBRARIES[name]()
        except ImportError:
            continue
    raise ImportError(
        f"arrays in device memory need one of {', '.join(_LIBRARIES)}; none is there"
    )
