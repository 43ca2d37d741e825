# SPDX-License-Identifier: BSD-3-Clause
"""The memory in which ranks exchange rows of tokens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Literal, Self, SupportsIndex, overload

import numpy as np
import numpy.typing as npt

from .. import _ext
from .._communicator.communicator import Communicator
from .._core.memory import Memory
from ._arrays import (
    BF16,
    BLOCK,
    F32,
    FP8,
    Array,
    Kind,
    experts_of,
    floats_of,
    kind_of,
    plain_kind,
    rows_of,
)
from ._handle import Handle, Rows, _Part

UNIQUE, CAST_FP8 = 1, 2  # umx_moe_call_flags
MAX_TOPK = 64

Hook = Callable[[], Awaitable[None]]
Counts = npt.NDArray[np.uint32]


class Buffer(_ext.MoeBuffer):
    """Memory of every rank, in which tokens go to experts and come back.

        async with await ucp.moe.Buffer.create(
            comm, num_experts, num_max_tokens, hidden, "bfloat16"
        ) as buffer:
            recv_x, recv_count, handle = await buffer.low_latency_dispatch(x, topk_idx)
            for e, s in np.ndindex(recv_count.shape):
                expert, n = experts[e], recv_count[e, s]
                handle.outputs[e, s, :n] = expert(recv_x[e, s, :n])
            y = await buffer.low_latency_combine(
                handle.outputs, topk_idx, topk_weights, handle
            )

    Every rank calls ``create()``. Each rank has ``num_experts / size`` experts: rank r
    has the experts from ``r * num_experts // size`` on. Every rank calls dispatches
    and combines in the same order, even if it has no tokens, and combines each
    dispatch. Two dispatches may be live, that is not combined yet.

    If ranks map each other's memory, a dispatch writes rows to the place where the
    experts read them, and a combine reads the outputs of the experts in place. So
    each row is moved once. Otherwise rows are put and outputs are got. The results
    are the same, byte by byte.

    Arguments are arrays in host memory: of NumPy, ml_dtypes, torch, or any library
    with DLPack. The buffer uses them until the await has ended. If a dispatch or a
    combine is cancelled, the buffer ends on every rank, and later calls raise.
    """

    __slots__ = (
        "_comm",
        "_kind",
        "_memory",
        "_order",
        "_sizes",
        "_view",
    )

    _comm: Communicator
    _kind: Kind
    _memory: Memory
    _order: asyncio.Lock  # of dispatches: some wait before they send
    _sizes: tuple[int, int, int, int]  # experts, max_tokens, max_topk, hidden
    _view: Array

    @classmethod
    async def create(
        cls,
        comm: Communicator,
        num_experts: SupportsIndex,
        num_max_tokens: SupportsIndex,
        hidden: SupportsIndex,
        dtype: Any = "bfloat16",
        *,
        num_max_topk: SupportsIndex = 16,
        timeout: float | None = None,
        mask_failed: bool = False,
        shared: bool = True,
    ) -> Self:
        """Make a buffer; a collective operation. All ranks give the same numbers.

        The memory has room for ``2 * num_experts * num_max_tokens`` rows and as
        many outputs. The system gives only the pages that are used.

        Args:
            comm: the communicator.
            num_experts: number of experts of all ranks together, a multiple of the
                number of ranks.
            num_max_tokens: tokens that a rank dispatches at most.
            hidden: numbers of a row; a multiple of 128 for fp8.
            dtype: of rows and outputs: "float32", "bfloat16" or "fp8", or a dtype
                of NumPy, ml_dtypes or torch. NumPy has bfloat16 as uint16 and fp8
                (E4M3, with float32 scales for 128 numbers each) as uint8.
            num_max_topk: experts that a token has at most; up to 64.
            timeout: seconds that this call, and each step of others, waits for other
                ranks; None: no limit.
            mask_failed: a rank that has failed, or has not come in time, is masked
                instead of ending the buffer: see ``query_mask()``.
            shared: ranks of this host may map the memory. False: rows are put and
                got, as between hosts.

        Raises:
            UCXError: the ranks give different numbers.
            UCXRankFailed: the communicator has failed, or a rank has left.
            ValueError: a number that makes no sense, which the text names.
        """
        kind = kind_of(dtype)
        sizes = _sizes_of(num_experts, num_max_tokens, num_max_topk, hidden)
        _check_sizes(sizes, kind, comm.size)
        nbytes = _ext.moe_memory_size(*sizes, kind.code, comm.size)
        if nbytes == 0:
            raise ValueError(
                f"no memory has room for 2 * {sizes[0]} * {sizes[1]} rows of {sizes[3]}"
            )
        memory: Memory
        if shared:
            memory = Memory.allocate(nbytes)
        else:
            memory = Memory.register(np.zeros(nbytes, np.uint8))
        self = cls(comm, memory, *sizes, kind.code, timeout, mask_failed)
        self._comm = comm
        self._kind = kind
        self._memory = memory
        self._order = asyncio.Lock()
        self._sizes = sizes
        self._view = np.asarray(memory)
        try:
            await self._until(self._create())
        except BaseException:
            self.abort()
            raise
        return self

    # ---- what it is ---------------------------------------------------------

    @property
    def comm(self) -> Communicator:
        """The communicator."""
        return self._comm

    @property
    def num_experts(self) -> int:
        """Experts of all ranks."""
        return self._sizes[0]

    @property
    def num_local_experts(self) -> int:
        """Experts of each rank."""
        return self._sizes[0] // self._comm.size

    @property
    def num_max_tokens(self) -> int:
        """Tokens that a rank dispatches at most."""
        return self._sizes[1]

    @property
    def hidden(self) -> int:
        """Numbers of a row."""
        return self._sizes[3]

    # ---- low latency --------------------------------------------------------

    @overload
    async def low_latency_dispatch(
        self, x: Any, topk_idx: Any, *, use_fp8: bool = False
    ) -> tuple[Rows, Counts, Handle]: ...
    @overload
    async def low_latency_dispatch(
        self,
        x: Any,
        topk_idx: Any,
        *,
        use_fp8: bool = False,
        return_recv_hook: Literal[True],
    ) -> tuple[Rows, Counts, Handle, Hook]: ...
    async def low_latency_dispatch(
        self,
        x: Any,
        topk_idx: Any,
        *,
        use_fp8: bool = False,
        return_recv_hook: bool = False,
    ) -> Any:
        """Send each token to each of its experts.

        Args:
            x: the rows of this rank's tokens, [token][hidden]; of an fp8 buffer a
                pair (numbers, scales).
            topk_idx: their experts, [token][k]; -1 is none.
            use_fp8: cast the rows to fp8 on the way, as ``to_fp8()`` does.
            return_recv_hook: return as soon as the rows are sent. ``await hook()``
                waits for what the others send; until then neither ``recv_x`` nor
                ``recv_count`` tells anything.

        Returns:
            ``recv_x``, [expert][source][slot][hidden]: rows for the experts of this
            rank, in memory that the other ranks write. Of expert e and rank s the
            first ``recv_count[e, s]`` are rows, in the order of the tokens; the
            rest is undefined. With fp8 a pair (numbers, scales), scales
            [...][hidden / 128]. It stays until the combine of this dispatch begins.
            Then ``recv_count``, [expert][source], the handle, and the hook.

        Raises:
            UCXBusy: two dispatches have not been combined.
            UCXRankFailed: a rank has failed, or has cancelled a call.
            UCXTimedOut: a rank has not come in time.
            ValueError: shape, dtype or strides; too many tokens; an expert that
                does not exist, or that a token has twice.
        """
        experts = self._experts_of(topk_idx)
        data, scales = self._rows_of(x, (len(experts), self.hidden), "x")
        async with self._turn():
            handle = self._new_handle(experts, CAST_FP8 if use_fp8 else 0, None)
            try:
                handle._call._pack(data, scales, None)
                arrival = handle._call._dispatch()
            except BaseException:
                handle._call._drop()
                raise

        async def hook() -> None:
            if not handle._has_dispatched:
                await self._until(arrival)
                handle._received()

        if return_recv_hook:
            return handle.recv_x, handle.recv_count, handle, hook
        await hook()
        return handle.recv_x, handle.recv_count, handle

    async def low_latency_combine(
        self,
        y: Any,
        topk_idx: Any,
        topk_weights: Any,
        handle: Handle,
        *,
        out: Any = None,
    ) -> Array:
        """Compute the weighted sum of the experts' outputs for each token of this rank.

        The sum is made in float32 in the order of ``topk_idx``, and rounded once:
        the same input gives the same bytes in every run. Experts of masked ranks
        are left out.

        Args:
            y: the outputs of this rank's experts, in the places of ``recv_x``. If it
                is ``handle.outputs``, nothing is copied.
            topk_idx: the same as in the dispatch.
            topk_weights: [token][k]; weights of the expert -1 do not count.
            handle: the handle of the oldest dispatch that has not been combined.
            out: where to write the sums, [token][hidden]: float32 or bfloat16;
                None: a new array of the buffer's dtype, of fp8 float32.

        Raises:
            UCXError: another dispatch is older.
            ValueError: shape, dtype or strides; ``topk_idx`` is another.

        Other exceptions are as for ``low_latency_dispatch()``.
        """
        self._check_handle(handle, is_unique=False)
        if not np.array_equal(self._experts_of(topk_idx), handle.topk_idx):
            raise ValueError("topk_idx is not that of the dispatch")
        weights = floats_of(topk_weights, handle.topk_idx.shape, "topk_weights")
        return await self._combine(y, handle, weights, out)

    # ---- high throughput ----------------------------------------------------

    def get_dispatch_layout(
        self, topk_idx: Any
    ) -> tuple[Counts, Counts, npt.NDArray[np.bool_]]:
        """Count where the tokens of this rank go. Nothing is sent.

        Returns:
            ``num_tokens_per_rank``; ``num_tokens_per_expert``; and
            ``is_token_in_rank``, [token][rank]. A token counts once for a rank.

        Raises:
            ValueError: an expert that does not exist, or that a token has twice.
        """
        experts = experts_of(topk_idx, self.num_experts)
        return _layout_of(experts, self.num_experts, self._comm.size)

    async def dispatch(
        self,
        x: Any,
        topk_idx: Any = None,
        topk_weights: Any = None,
        *,
        handle: Handle | None = None,
        use_fp8: bool = False,
    ) -> tuple[
        Rows,
        npt.NDArray[np.int64] | None,
        npt.NDArray[np.float32] | None,
        list[int] | None,
        Handle,
    ]:
        """Send each token once to each rank that has an expert of it.

        Args:
            x: as in ``low_latency_dispatch()``.
            topk_idx: the experts of the tokens, [token][k]; -1 is none.
            topk_weights: their weights, [token][k]; None: 1.
            handle: of an earlier ``dispatch()``, in place of the two: the tokens go
                the same way. So the ranks need not tell each other how many come.
            use_fp8: cast the rows to fp8 on the way.

        Returns:
            ``recv_x``, [row][hidden], by the rank and the token that they are of;
            ``recv_topk_idx``, [row][k], with the largest k of any rank: numbers of
            experts of this rank, from 0, -1 for experts elsewhere;
            ``recv_topk_weights``, [row][k], 0 there; how many rows each expert of this
            rank has; and the handle. The middle three are None with ``handle``.

        Raises:
            UCXUnsupportedError: a rank is masked.

        Other exceptions are as for ``low_latency_dispatch()``.
        """
        if handle is not None:
            self._check_handle(handle, is_unique=True, is_again=True)
            if topk_idx is not None or topk_weights is not None:
                raise ValueError("with a handle there are no topk_idx and topk_weights")
            experts = handle.topk_idx
        else:
            experts = self._experts_of(topk_idx)
        data, scales = self._rows_of(x, (len(experts), self.hidden), "x")
        weights = None
        if topk_weights is not None:
            weights = floats_of(topk_weights, experts.shape, "topk_weights")
        async with self._turn():
            flags = UNIQUE | (CAST_FP8 if use_fp8 else 0)
            made = self._new_handle(experts, flags, handle)
            try:
                if handle is None:
                    await self._until(made._call._count())
                made._call._pack(data, scales, weights)
                await self._until(made._call._dispatch())
            except BaseException:
                made._call._drop()
                raise
        made._received()
        if handle is not None:
            return made.recv_x, None, None, None, made
        recv_idx, recv_weights = made._topk()
        local = recv_idx[recv_idx >= 0]
        per_expert = np.bincount(local, minlength=self.num_local_experts).tolist()
        return made.recv_x, recv_idx, recv_weights, per_expert, made

    async def combine(self, y: Any, handle: Handle, *, out: Any = None) -> Array:
        """Sum the rows of all ranks for each token of this rank, in the order of ranks.

        Args:
            y: a row for each row of ``recv_x``: the weighted sum of the outputs of
                this rank's experts.
            handle: the handle of the oldest dispatch that has not been combined.
            out: as in ``low_latency_combine()``. The exceptions are the same, too.
        """
        self._check_handle(handle, is_unique=True)
        return await self._combine(y, handle, None, out)

    # ---- masks --------------------------------------------------------------

    def query_mask(self) -> npt.NDArray[np.bool_]:
        """Return which ranks are masked on this rank.

        This rank sends nothing to masked ranks, waits for nothing of them, and leaves
        their experts out of sums. With ``mask_failed`` a rank that fails, or is late,
        is masked. Each rank notices failures separately, so masks of ranks may differ.
        """
        return np.array([self._is_masked(i) for i in range(self._comm.size)])

    def update_mask(self, rank: SupportsIndex, masked: bool) -> None:
        """Mask a rank, or remove its mask.

        A rank whose mask is removed must have made the same calls as the others.

        Raises:
            ValueError: there is no such rank, or it is this one.
        """
        self._set_mask(int(rank), bool(masked))

    def clean_mask(self) -> None:
        """Remove all masks."""
        for rank in range(self._comm.size):
            if rank != self._comm.rank:
                self._set_mask(rank, False)

    # ---- the end ------------------------------------------------------------

    async def close(self) -> None:
        """Wait until every rank closes its buffer: then no rank needs this memory.

        Arrays that were returned stay readable.

        Raises:
            UCXRankFailed: a rank has failed. The buffer is closed all the same.
        """
        if self.closed():
            return
        try:
            await self._until(self._leave())
        finally:
            self.abort()

    def abort(self) -> None:
        """Leave without waiting: ranks that wait for this one fail, or mask it."""
        super().abort()
        if hasattr(self, "_memory"):
            self._view = np.empty(0, np.uint8)
            self._memory.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close; after an exception leave at once."""
        if exc is not None:
            self.abort()
        await self.close()

    def __repr__(self) -> str:
        if self.closed():
            return "<ucp.moe.Buffer, closed>"
        experts, tokens, _, hidden = self._sizes
        return (
            f"<ucp.moe.Buffer, rank {self._comm.rank} of {self._comm.size}, {experts} "
            f"experts, {tokens} tokens of {hidden} {self._kind.name}>"
        )

    # ---- parts --------------------------------------------------------------

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """Wait for dispatches that have begun earlier."""
        try:
            await self._order.acquire()
        except BaseException:  # the other ranks wait for this dispatch
            if not self.closed():
                self._cancel()
            raise
        try:
            yield
        finally:
            self._order.release()

    def _until(self, request: _ext.Request[None]) -> Awaitable[None]:
        """What is awaited until a request is done."""
        return request

    def _experts_of(self, topk_idx: Any) -> npt.NDArray[np.int64]:
        experts = experts_of(topk_idx, self.num_experts)
        if len(experts) > self.num_max_tokens:
            raise ValueError(
                f"topk_idx has {len(experts)} tokens, and the buffer room for "
                f"{self.num_max_tokens}"
            )
        if experts.shape[1] > self._sizes[2]:
            raise ValueError(
                f"topk_idx has {experts.shape[1]} experts a token, and the buffer room "
                f"for {self._sizes[2]}"
            )
        return experts

    def _rows_of(
        self, rows: Any, shape: tuple[int, ...], what: str
    ) -> tuple[Array, Array | None]:
        """Rows of the buffer's dtype, and their scales, as bytes."""
        if self._kind.code != FP8:
            return rows_of(rows, self._kind, shape, what), None
        if not isinstance(rows, tuple) or len(rows) != 2:
            raise TypeError(f"{what} of an fp8 buffer is a pair: numbers and scales")
        scales = (*shape[:-1], shape[-1] // BLOCK)
        return (
            rows_of(rows[0], self._kind, shape, what),
            floats_of(rows[1], scales, f"{what}_scales"),
        )

    def _new_handle(
        self, experts: npt.NDArray[np.int64], flags: int, like: Handle | None
    ) -> Handle:
        self._check("dispatch")
        if flags & CAST_FP8 and (self._kind.code == FP8 or self.hidden % BLOCK):
            raise ValueError(
                f"use_fp8 casts float32 and bfloat16 whose hidden is a multiple of "
                f"{BLOCK}, not {self._kind.name} of {self.hidden}"
            )
        if like is None:
            _layout_of(experts, self.num_experts, self._comm.size)
        earlier = None if like is None else like._call
        num_tokens, num_topk = experts.shape
        flat = experts.reshape(-1)
        call = self._begin(flat, num_tokens, num_topk, flags, earlier)
        lead = (self.num_local_experts, self._comm.size, self.num_max_tokens)
        part = _Part(
            self._view,
            self._kind,
            self.hidden,
            self._sizes[2],
            None if flags & UNIQUE else lead,
            self._comm.size,
        )
        return Handle(self, call, part, experts)

    def _check_handle(
        self, handle: Handle, is_unique: bool, is_again: bool = False
    ) -> None:
        if not isinstance(handle, Handle):
            raise TypeError(f"handle is {handle!r}, not what a dispatch has returned")
        if handle._owner is not self:
            raise ValueError("the handle is of another buffer")
        if (handle._part.lead is None) != is_unique:
            raise ValueError("the handle is of the other kind of dispatch")
        if not is_again:
            handle._check_dispatched()

    async def _combine(
        self, y: Any, handle: Handle, weights: Array | None, out: Any
    ) -> Array:
        self._check("combine")
        call, part = handle._call, handle._part
        lead = (part.num_rows,) if part.lead is None else part.lead
        shape = (len(handle.topk_idx), self.hidden)
        data, scales = self._rows_of(y, (*lead, self.hidden), "y")
        result, target, code = self._out_of(out, shape)
        call._unpack(data, scales, int(np.prod(lead)))
        await self._until(call._combine())
        call._sum(weights, code, target)
        return result

    def _out_of(self, out: Any, shape: tuple[int, int]) -> tuple[Array, Array, int]:
        """What is returned, its bytes, and its kind."""
        if out is None:
            kind = plain_kind(F32) if self._kind.code == FP8 else self._kind
            out = np.empty(shape, kind.dtype)
        else:
            kind = kind_of(getattr(out, "dtype", None), "out.dtype")
            if kind.code not in (F32, BF16):
                raise ValueError(f"out is {kind.name}, not float32 or bfloat16")
        target = rows_of(out, kind, shape, "out")
        if not target.flags.writeable:
            raise ValueError("out is read-only")
        return out, target, kind.code


def _sizes_of(*sizes: SupportsIndex) -> tuple[int, int, int, int]:
    experts, tokens, topk, hidden = (int(size) for size in sizes)
    return experts, tokens, topk, hidden


def _check_sizes(sizes: tuple[int, int, int, int], kind: Kind, num_ranks: int) -> None:
    names = ("num_experts", "num_max_tokens", "num_max_topk", "hidden")
    limits = (1 << 16, 1 << 24, MAX_TOPK, 1 << 24)
    for name, size, limit in zip(names, sizes, limits, strict=True):
        if not 1 <= size <= limit:
            raise ValueError(f"{name} is {size}, not 1 to {limit}")
    if sizes[0] % num_ranks:
        raise ValueError(f"num_experts is {sizes[0]}, no multiple of {num_ranks} ranks")
    if kind.code == FP8 and sizes[3] % BLOCK:
        raise ValueError(f"hidden is {sizes[3]}, no multiple of {BLOCK}, with fp8")


def _layout_of(
    experts: npt.NDArray[np.int64], num_experts: int, num_ranks: int
) -> tuple[Counts, Counts, npt.NDArray[np.bool_]]:
    per_rank = np.zeros(num_ranks, np.uint32)
    per_expert = np.zeros(num_experts, np.uint32)
    is_in_rank = np.zeros((len(experts), num_ranks), np.uint8)
    if experts.size and not _ext.moe_layout(
        experts.reshape(-1),
        experts.shape[1],
        num_experts,
        num_ranks,
        per_rank,
        per_expert,
        is_in_rank.reshape(-1),
    ):
        raise ValueError("topk_idx names an expert twice for one token")
    return per_rank, per_expert, is_in_rank.astype(np.bool_)
