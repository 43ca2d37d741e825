# SPDX-License-Identifier: BSD-3-Clause
"""A layer of experts that are divided among the ranks.

    python -m ucp run -n 4 examples/moe_layer.py

A gate chooses two experts for each token and says what each of them counts. The
tokens go to the ranks of their experts, the experts work, and what they give comes
back as a weighted sum. At the end each rank compares that with what it gets when it
has all experts itself.
"""

import asyncio
import sys

import numpy as np

import ucp
import ucp.moe

EXPERTS = 12
TOPK = 2
TOKENS = 64  # of each rank
HIDDEN = 256
LAYERS = 3


def weights_of(layer):
    """The gate and the experts of a layer: the same on every rank."""
    rng = np.random.default_rng(layer)
    gate = rng.standard_normal((HIDDEN, EXPERTS), "f4")
    experts = rng.standard_normal((EXPERTS, HIDDEN, HIDDEN), "f4") / HIDDEN**0.5
    return gate, experts


def choose(x, gate):
    """The best experts of each token, and their shares, whose sum is 1."""
    scores = x @ gate
    topk_idx = np.argsort(-scores, axis=1, kind="stable")[:, :TOPK]
    best = np.exp(np.take_along_axis(scores, topk_idx, 1) - scores.max(1)[:, None])
    return topk_idx, best / best.sum(1, keepdims=True)


def work(expert, rows):
    """What an expert makes of its rows."""
    return np.maximum(rows @ expert, 0)


async def layer_of_ranks(buffer, x, gate, experts):
    """The layer with the experts of all ranks."""
    topk_idx, shares = choose(x, gate)
    recv_x, recv_count, handle = await buffer.low_latency_dispatch(x, topk_idx)
    first = buffer.comm.rank * buffer.num_local_experts
    for e, source in np.ndindex(recv_count.shape):
        count = recv_count[e, source]
        rows = recv_x[e, source, :count]
        handle.outputs[e, source, :count] = work(experts[first + e], rows)
    return await buffer.low_latency_combine(handle.outputs, topk_idx, shares, handle)


def layer_of_one(x, gate, experts):
    """The same with all experts here."""
    topk_idx, shares = choose(x, gate)
    y = np.zeros_like(x)
    for e in range(EXPERTS):
        token, k = np.nonzero(topk_idx == e)
        y[token] += shares[token, k][:, None] * work(experts[e], x[token])
    return y


async def main():
    async with await ucp.Communicator.from_env() as comm:
        x = np.random.default_rng((1, comm.rank)).standard_normal(
            (TOKENS, HIDDEN), "f4"
        )
        async with await ucp.moe.Buffer.create(
            comm, EXPERTS, TOKENS, HIDDEN, "float32", num_max_topk=TOPK
        ) as buffer:
            for layer in range(LAYERS):
                gate, experts = weights_of(layer)
                y = await layer_of_ranks(buffer, x, gate, experts)
                expected = layer_of_one(x, gate, experts)
                assert np.allclose(y, expected, rtol=1e-4, atol=1e-4)
                x = y / np.abs(y).max()
        if comm.rank == 0:
            print(f"{LAYERS} layers of {EXPERTS} experts on {comm.size} ranks: right")


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        sys.exit(130)
