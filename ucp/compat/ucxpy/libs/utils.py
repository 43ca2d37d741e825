# SPDX-License-Identifier: BSD-3-Clause
"""Texts, and the address of this host."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence

from ...._core.resolve import get_address

__all__ = [
    "format_bytes",
    "format_time",
    "get_address",
    "nvtx_annotate",
    "parse_bytes",
    "print_key_value",
    "print_multi",
    "print_separator",
]

_TIMES = ((1.0, "s", 1), (1e-3, "ms", 1e3), (1e-6, "us", 1e6))
_SIZES = ("KiB", "MiB", "GiB", "TiB")
_PREFIXES = "kmgtp"
_SIZE_TEXT = re.compile(r"\s*([0-9.]*(?:[0-9]e[+-]?[0-9]+)?)\s*([a-z]*)\s*")


@contextlib.contextmanager
def nvtx_annotate(
    message: str | None = None,
    color: str | None = None,
    domain: str | None = None,
) -> Iterator[None]:
    """A range in NVIDIA's profiler, if the module nvtx is installed."""
    try:
        import nvtx
    except ImportError:
        yield
    else:
        with nvtx.annotate(message, color=color, domain=domain):
            yield


def format_time(x: float) -> str:
    """Seconds in the unit that fits: ``"1.500 ms"``."""
    for least, unit, factor in _TIMES:
        if x >= least:
            return f"{x * factor:.3f} {unit}"
    return f"{x * 1e9:.3f} ns"


def format_bytes(x: float) -> str:
    """Bytes in the unit that fits: ``"1.50 MiB"``."""
    if x < 1024:
        return f"{x} B"
    for unit in _SIZES:
        x /= 1024
        if x < 1024 or unit == _SIZES[-1]:
            break
    return f"{x:.2f} {unit}"


def parse_bytes(s: float | str) -> int:
    """The number of bytes of a text such as ``"10 MB"``, ``"1.5GiB"`` or ``"2k"``.

    As Dask's: letters count in either case, ``MB`` is 10**6 and ``MiB`` 2**20,
    a unit alone is one of it, a number stays as it is.

    Raises:
        ValueError: the text is no size.
    """
    if not isinstance(s, str):
        return int(s)
    match = _SIZE_TEXT.fullmatch(s.lower())
    try:
        if match is None:
            raise ValueError
        number, unit = match.groups()
        return int(float(number or "1") * _unit(unit))
    except ValueError:
        raise ValueError(
            f"expected a size such as '10 MB', '1.5GiB' or '2k', got {s!r}"
        ) from None


def _unit(unit: str) -> int:
    """Bytes of a unit, given in small letters."""
    prefix = unit.removesuffix("b")
    if not prefix:
        return 1
    base = 1024 if prefix.endswith("i") and len(prefix) == 2 else 1000
    if len(prefix.removesuffix("i")) != 1:
        raise ValueError(unit)
    return int(base ** (_PREFIXES.index(prefix[0]) + 1))


def print_separator(separator: str = "-", length: int = 80) -> None:
    """Print a line of one character."""
    print(separator * length)


def print_key_value(key: object, value: object, key_length: int = 25) -> None:
    """Print a row of two columns."""
    print_multi((key, value), key_length)


def print_multi(values: Sequence[object], key_length: int = 25) -> None:
    """Print a row; all columns but the last are ``key_length`` wide."""
    *keys, last = (str(value) for value in values)
    print(" | ".join([*(f"{key:<{key_length}}" for key in keys), last]))
