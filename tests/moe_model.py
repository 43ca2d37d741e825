# SPDX-License-Identifier: BSD-3-Clause
"""What a layer of experts has to give, by NumPy in one process."""

import numpy as np

BLOCK = 128
F32 = np.float32


def to_bf16(x):
    bits = np.asarray(x, F32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def of_bf16(x):
    return (x.astype(np.uint32) << 16).view(F32)


# The numbers of fp8 from 0 on, by the definition of E4M3.
CODES = np.arange(0x7F)
MEANING = np.where(
    CODES < 8, CODES * 2.0**-9, (8 + CODES % 8) * 2.0 ** ((CODES >> 3) - 10.0)
).astype(F32)
MIDDLES = (MEANING[1:] + MEANING[:-1]) / 2


def to_fp8(x):
    """Rows of floats as numbers and scales."""
    blocks = np.asarray(x, F32).reshape(*x.shape[:-1], x.shape[-1] // BLOCK, BLOCK)
    most = np.maximum(np.abs(blocks).max(-1), F32(1e-30))
    scaled = blocks * (F32(448) / most)[..., None]
    size = np.abs(scaled)
    low = np.searchsorted(MIDDLES, size, "left")  # of the middle: the lower
    high = np.searchsorted(MIDDLES, size, "right")
    code = np.where(low % 2 == 0, low, high) | np.where(np.signbit(scaled), 0x80, 0)
    return code.reshape(x.shape).astype(np.uint8), most / F32(448)


def of_fp8(x, scales):
    values = np.where(x >= 0x80, -1, 1).astype(F32) * MEANING[x & 0x7F]
    return (values.reshape(*scales.shape, BLOCK) * scales[..., None]).reshape(x.shape)


class Numbers:
    """Rows of one dtype: how floats become such rows, and are read."""

    def __init__(self, name):
        self.name = name

    def make(self, floats):
        """Rows: an array, or of fp8 a pair."""
        floats = np.asarray(floats, F32)
        if self.name == "fp8":
            return to_fp8(floats)
        return floats if self.name == "float32" else to_bf16(floats)

    def read(self, rows):
        """The rows as floats."""
        if isinstance(rows, tuple):
            return of_fp8(*rows)
        return rows if rows.dtype == F32 else of_bf16(rows)

    def sums(self, floats):
        """What sums become: fp8 gives float32."""
        return to_bf16(floats) if self.name == "bfloat16" else floats


def at(rows, index):
    """Rows of an array, or of a pair."""
    if isinstance(rows, tuple):
        return tuple(part[index] for part in rows)
    return rows[index]


def put(rows, index, values):
    if isinstance(rows, tuple):
        for part, value in zip(rows, values, strict=True):
            part[index] = value
    else:
        rows[index] = values


def expert(number, floats):
    """What an expert makes of a row: something that depends on both."""
    return floats * F32(0.37 * (number + 1)) + F32(number % 3)


class Layer:
    """The tokens of one rank, with their experts and weights."""

    def __init__(self, seed, num_experts, num_tokens, topk, hidden, dtype, hot=False):
        rng = np.random.default_rng(seed)
        self.num_experts, self.topk, self.hidden = num_experts, topk, hidden
        self.numbers = Numbers(dtype)
        shape = (num_tokens, topk)
        order = rng.random((num_tokens, num_experts)).argsort(1)
        self.topk_idx = order[:, :topk].astype(np.int64)
        if hot and num_tokens:  # every token has expert 0, and no other one
            self.topk_idx[:] = -1
            self.topk_idx[:, -1] = 0
        else:
            self.topk_idx[rng.random(shape) < 0.2] = -1
        self.weights = rng.random(shape).astype(F32)
        floats = rng.standard_normal((num_tokens, hidden)) * 10.0 ** rng.integers(-3, 3)
        self.x = self.numbers.make(floats.astype(F32))

    def sent(self, use_fp8):
        """The rows as the experts read them, as floats."""
        floats = self.numbers.read(self.x)
        return of_fp8(*to_fp8(floats)) if use_fp8 else floats

    def combined(self, use_fp8=False, without=()):
        """What the combine of a low latency dispatch has to give."""
        floats = self.sent(use_fp8)
        total = np.zeros((len(self.topk_idx), self.hidden), F32)
        for t, row in enumerate(self.topk_idx):
            for k, number in enumerate(row):
                if number >= 0 and number not in without:
                    y = self.numbers.make(expert(number, floats[t : t + 1]))
                    total[t] += self.weights[t, k] * self.numbers.read(y)[0]
        return self.numbers.sums(total)

    def combined_by_ranks(self, num_ranks, use_fp8=False):
        """The same of a dispatch that sends a token once to a rank."""
        floats = self.sent(use_fp8)
        local = self.num_experts // num_ranks
        total = np.zeros((len(self.topk_idx), self.hidden), F32)
        for t, row in enumerate(self.topk_idx):
            for rank in range(num_ranks):
                here = [k for k, e in enumerate(row) if e >= 0 and e // local == rank]
                if here:
                    experts = [row[k] for k in here]
                    y = rank_sum(experts, self.weights[t, here], floats[t])
                    total[t] += self.numbers.read(self.numbers.make(y[None]))[0]
        return self.numbers.sums(total)


def rank_sum(experts, weights, row):
    """What a rank gives for a token: the weighted sum of its experts."""
    total = np.zeros(len(row), F32)
    for number, weight in zip(experts, weights, strict=True):
        total += weight * expert(number, row)
    return total


def run_experts(buffer, recv_x, recv_count, y, numbers):
    """Let each expert of this rank write what it makes of its rows to ``y``."""
    first = buffer.comm.rank * buffer.num_local_experts
    for e, s in np.ndindex(recv_count.shape):
        index = (e, s, slice(0, int(recv_count[e, s])))
        rows = numbers.read(at(recv_x, index))
        put(y, index, numbers.make(expert(first + e, rows)))


async def low_latency(buffer, layer, use_fp8=False, **options):
    """A dispatch, the experts and a combine."""
    recv_x, recv_count, handle = await buffer.low_latency_dispatch(
        layer.x, layer.topk_idx, use_fp8=use_fp8
    )
    run_experts(buffer, recv_x, recv_count, handle.outputs, layer.numbers)
    return await buffer.low_latency_combine(
        handle.outputs, layer.topk_idx, layer.weights, handle, **options
    )


def run_rank(buffer, recv_x, topk_idx, weights, y, numbers):
    """Let this rank write the sums of its experts to ``y``."""
    first = buffer.comm.rank * buffer.num_local_experts
    floats = numbers.read(recv_x)
    for i, row in enumerate(topk_idx):
        here = row >= 0
        total = rank_sum(row[here] + first, weights[i, here], floats[i])
        put(y, slice(i, i + 1), numbers.make(total[None]))


async def high_throughput(buffer, layer, use_fp8=False):
    recv_x, topk_idx, weights, _, handle = await buffer.dispatch(
        layer.x, layer.topk_idx, layer.weights, use_fp8=use_fp8
    )
    run_rank(buffer, recv_x, topk_idx, weights, handle.outputs, layer.numbers)
    return await buffer.combine(handle.outputs, handle)
