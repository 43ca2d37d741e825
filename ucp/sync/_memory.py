# SPDX-License-Identifier: BSD-3-Clause
"""Waiting for what peers write into memory."""

from __future__ import annotations

from typing import Literal

from .._core.memory import Memory
from ._runner import call, current_worker


def wait_until(
    memory: Memory,
    offset: int,
    cmp: Literal["==", "!=", ">", ">=", "<", "<="],
    value: int,
    bits: int = 64,
    *,
    timeout: float | None = None,
) -> None:
    """Wait until a number in ``memory`` has a value.

    The arguments are those of ``Memory.wait_until()``.
    """
    if memory.test(offset, cmp, value, bits):
        return
    call(current_worker(), timeout, memory.wait_until, offset, cmp, value, bits)
