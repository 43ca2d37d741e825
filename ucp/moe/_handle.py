# SPDX-License-Identifier: BSD-3-Clause
"""What a dispatch leaves for its combine."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .. import _ext
from ._arrays import BLOCK, FP8, Array, Kind, plain_kind

Rows = Array | tuple[Array, Array]  # of fp8 with scales


class Handle:
    """A dispatch, for its combine: made by ``Buffer``.

    Attributes:
        topk_idx: the experts of this rank's tokens.
    """

    __slots__ = (
        "_call",
        "_counts",
        "_has_dispatched",
        "_info",
        "_owner",
        "_part",
        "topk_idx",
    )

    def __init__(
        self,
        owner: _ext.MoeBuffer,
        call: _ext.MoeCall,
        part: _Part,
        topk_idx: npt.NDArray[np.int64],
    ) -> None:
        self._owner = owner
        self._call = call
        self._part = part
        self._info = call._info()
        self._counts = np.zeros(part.counts_shape, np.uint32)
        self._has_dispatched = False
        self.topk_idx = topk_idx

    @property
    def outputs(self) -> Rows:
        """Where the other ranks read what the experts of this one give.

        It has the shape of ``recv_x``; with fp8 a pair, as that. Experts that write
        there save ``combine`` a copy. It is theirs until the combine begins.

        Raises:
            ValueError: the dispatch is not complete. Until then other ranks may read
                there what experts gave in an earlier call.
        """
        self._check_dispatched()
        return self._part.rows(self._info[3], self._info[4], self._part.kind)

    @property
    def recv_x(self) -> Rows:
        """The rows that have come. They stay until the combine has begun."""
        code = self._info[0]
        kind = self._part.kind if code == self._part.kind.code else plain_kind(code)
        return self._part.rows(self._info[1], self._info[2], kind)

    @property
    def recv_count(self) -> npt.NDArray[np.uint32]:
        """How many rows have come: [expert][source], or [source]."""
        return self._counts

    def _check_dispatched(self) -> None:
        if not self._has_dispatched:
            raise ValueError("the dispatch is not complete: await its hook first")

    def _received(self) -> None:
        """The dispatch is complete."""
        self._has_dispatched = True
        self._info = self._call._info()
        counts = np.frombuffer(self._info[7], np.uint32)
        self._counts[...] = counts.reshape(self._counts.shape)
        self._part.num_rows = int(self._counts.sum())

    def _topk(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        """The experts of the rows that have come, and their weights: copies."""
        num_topk = self._info[8]  # the most that any rank has given
        part, stride = self._part, 8 * self._part.max_topk
        length = part.num_rows * stride
        at = self._info[5]
        table = part.memory[at : at + length].reshape(part.num_rows, stride)
        experts = table[:, : 4 * part.max_topk].view(np.int32)[:, :num_topk]
        weights = table[:, 4 * part.max_topk :].view(np.float32)[:, :num_topk]
        return experts.astype(np.int64), weights.copy()


class _Part:
    """Where the rows of a call are in the memory of this rank."""

    __slots__ = (
        "counts_shape",
        "hidden",
        "kind",
        "lead",
        "max_topk",
        "memory",
        "num_rows",
    )

    def __init__(
        self,
        memory: Array,
        kind: Kind,
        hidden: int,
        max_topk: int,
        lead: tuple[int, int, int] | None,
        num_ranks: int,
    ) -> None:
        self.memory = memory
        self.kind = kind
        self.hidden = hidden
        self.max_topk = max_topk
        self.lead = lead  # [expert][source][slot]; None: packed
        self.counts_shape = (num_ranks,) if lead is None else lead[:2]
        self.num_rows = 0

    def rows(self, at: int, scales_at: int, kind: Kind) -> Rows:
        lead = (self.num_rows,) if self.lead is None else self.lead
        data = self.view(at, (*lead, self.hidden), kind.dtype)
        if kind.code != FP8:
            return data
        shape = (*lead, self.hidden // BLOCK)
        return data, self.view(scales_at, shape, np.dtype(np.float32))

    def view(self, at: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        length = int(np.prod(shape)) * dtype.itemsize
        return self.memory[at : at + length].view(dtype).reshape(shape)
