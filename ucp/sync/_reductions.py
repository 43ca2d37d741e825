# SPDX-License-Identifier: BSD-3-Clause
"""Arguments of reductions."""

from __future__ import annotations

from typing import Any, Literal, cast

ReduceOp = Literal[
    "sum",
    "prod",
    "min",
    "max",
    "avg",
    "land",
    "lor",
    "lxor",
    "band",
    "bor",
    "bxor",
    "maxloc",
    "minloc",
]


def recv_and_op(recv: Any, op: ReduceOp) -> tuple[Any, ReduceOp]:
    """Read the arguments of ``allreduce(array, "max")``, too."""
    return (None, cast(ReduceOp, recv)) if isinstance(recv, str) else (recv, op)
