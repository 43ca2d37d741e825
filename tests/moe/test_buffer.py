# SPDX-License-Identifier: BSD-3-Clause
# tests: ext/moe_buffer ext/moe_call ucp/blocking ucp/handle ucp/moe
"""``ucp.moe.Buffer``."""

import asyncio
import gc
import os

import numpy as np
import pytest
from moe_model import (
    Layer,
    Numbers,
    at,
    high_throughput,
    low_latency,
    put,
    run_experts,
    run_rank,
    to_bf16,
)
from worlds import good_world, sync_world

import ucp
import ucp.moe

E, T, K, H = 12, 7, 3, 256
DTYPES = ["float32", "bfloat16", "fp8"]


def create(comm, dtype="float32", **options):
    return ucp.moe.Buffer.create(comm, E, T, H, dtype, num_max_topk=K, **options)


def layer_of(comm, dtype="float32", seed=0, num_tokens=T, **options):
    seeds = seed if isinstance(seed, tuple) else (seed,)
    return Layer((*seeds, comm.rank), E, num_tokens, K, H, dtype, **options)


def same(out, want):
    assert out.dtype == want.dtype
    np.testing.assert_array_equal(out.view(np.uint8), want.view(np.uint8))


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
def test_both_modes_give_the_bytes_of_one_process(dtype, shared):
    async def main(comm):
        async with await create(comm, dtype, shared=shared) as buffer:
            for seed, use_fp8 in enumerate([False, dtype != "fp8"]):
                layer = layer_of(comm, dtype, seed)
                same(await low_latency(buffer, layer, use_fp8), layer.combined(use_fp8))
                same(
                    await high_throughput(buffer, layer, use_fp8),
                    layer.combined_by_ranks(comm.size, use_fp8),
                )

    for size in (1, 3):
        good_world(size, main)


def test_no_tokens_and_one_hot_expert():
    async def main(comm):
        async with await create(comm) as buffer:
            for num_tokens in (0, T if comm.rank == 1 else 0):
                layer = layer_of(comm, num_tokens=num_tokens, hot=True)
                same(await low_latency(buffer, layer), layer.combined())
                same(await high_throughput(buffer, layer), layer.combined_by_ranks(2))
            layer = layer_of(comm, hot=True)
            same(await low_latency(buffer, layer), layer.combined())
            layer.topk_idx[:] = -1
            assert not (await low_latency(buffer, layer)).any()
            assert not (await high_throughput(buffer, layer)).any()

    good_world(2, main)


async def random_calls(comm, dtype, shared, seed):
    """Calls of both kinds, of which two are live at times."""
    rng = np.random.default_rng(seed)  # the same on every rank
    live = []
    async with await create(comm, dtype, shared=shared) as buffer:
        for step in range(12):
            if len(live) == 2 or (live and rng.random() < 0.5):
                await live.pop(0)
                continue
            num_tokens = int(rng.integers(0, T + 1, comm.size)[comm.rank])
            layer = layer_of(comm, dtype, (seed, step), num_tokens)
            use_fp8 = bool(rng.random() < 0.3) and dtype != "fp8"
            start = begin_low if rng.random() < 0.6 else begin_high
            live.append(await start(buffer, layer, use_fp8))
        for end in live:
            await end


async def begin_low(buffer, layer, use_fp8):
    recv_x, count, handle = await buffer.low_latency_dispatch(
        layer.x, layer.topk_idx, use_fp8=use_fp8
    )

    async def end():
        run_experts(buffer, recv_x, count, handle.outputs, layer.numbers)
        out = await buffer.low_latency_combine(
            handle.outputs, layer.topk_idx, layer.weights, handle
        )
        same(out, layer.combined(use_fp8))

    return end()


async def begin_high(buffer, layer, use_fp8):
    recv_x, idx, weights, _, handle = await buffer.dispatch(
        layer.x, layer.topk_idx, layer.weights, use_fp8=use_fp8
    )

    async def end():
        run_rank(buffer, recv_x, idx, weights, handle.outputs, layer.numbers)
        out = await buffer.combine(handle.outputs, handle)
        same(out, layer.combined_by_ranks(buffer.comm.size, use_fp8))

    return end()


@pytest.mark.parametrize("seed", range(int(os.environ.get("MOE_PROGRAMS", "6"))))
def test_random_programs(seed):
    size, dtype = (2, 4, 3)[seed % 3], DTYPES[seed % 3]
    shared = seed % 2 == 0

    async def main(comm):
        await random_calls(comm, dtype, shared, seed)

    good_world(size, main)


def test_outputs_may_lie_anywhere_and_sums_be_float32_or_bfloat16():
    async def main(comm):
        async with await create(comm, "bfloat16") as buffer:
            layer = layer_of(comm, "bfloat16")
            recv_x, count, handle = await buffer.low_latency_dispatch(
                layer.x, layer.topk_idx
            )
            y = np.empty_like(recv_x)
            run_experts(buffer, recv_x, count, y, layer.numbers)
            out = np.empty((T, H), np.float32)
            result = await buffer.low_latency_combine(
                y, layer.topk_idx, layer.weights, handle, out=out
            )
            assert result is out
            same(to_bf16(out), layer.combined())
            recv_x, idx, weights, per_expert, handle = await buffer.dispatch(
                layer.x, layer.topk_idx, layer.weights
            )
            assert per_expert == [(idx == e).sum() for e in range(E // comm.size)]
            y = np.empty_like(recv_x)
            run_rank(buffer, recv_x, idx, weights, y, layer.numbers)
            same(await buffer.combine(y, handle), layer.combined_by_ranks(comm.size))

    good_world(2, main)


def test_a_hook_waits_for_what_the_others_send():
    async def main(comm):
        async with await create(comm) as buffer:
            layer = layer_of(comm)
            recv_x, count, handle, hook = await buffer.low_latency_dispatch(
                layer.x, layer.topk_idx, return_recv_hook=True
            )
            if comm.rank == 0:
                with pytest.raises(ValueError, match="hook"):
                    _ = handle.outputs
                with pytest.raises(ValueError, match="hook"):
                    await buffer.low_latency_combine(
                        recv_x, layer.topk_idx, layer.weights, handle
                    )
            await hook()
            await hook()
            run_experts(buffer, recv_x, count, handle.outputs, layer.numbers)
            out = await buffer.low_latency_combine(
                handle.outputs, layer.topk_idx, layer.weights, handle
            )
            same(out, layer.combined())

    good_world(2, main)


def test_a_layout_is_used_again():
    async def main(comm):
        numbers = Numbers("float32")
        async with await create(comm) as buffer:
            layer = layer_of(comm)
            first, idx, weights, _, handle = await buffer.dispatch(
                layer.x, layer.topk_idx, layer.weights
            )
            first = first.copy()
            await buffer.combine(handle.outputs, handle)
            again = handle
            for _ in range(3):
                recv_x, none, _, _, again = await buffer.dispatch(layer.x, handle=again)
                assert none is None
                same(recv_x, first)
                run_rank(buffer, recv_x, idx, weights, again.outputs, numbers)
                out = await buffer.combine(again.outputs, again)
                same(out, layer.combined_by_ranks(comm.size))
            with pytest.raises(ValueError, match="handle"):
                await buffer.dispatch(layer.x, layer.topk_idx, handle=handle)

    good_world(3, main)


def test_layout_counts_a_token_once_for_a_rank():
    async def main(comm):
        async with await create(comm) as buffer:
            idx = layer_of(comm).topk_idx
            per_rank, per_expert, is_in_rank = buffer.get_dispatch_layout(idx)
            local = E // comm.size
            want = np.array(
                [[any(e >= 0 and e // local == r for e in row) for r in range(2)]
                 for row in idx]
            )  # fmt: skip
            np.testing.assert_array_equal(is_in_rank, want)
            np.testing.assert_array_equal(per_rank, want.sum(0))
            np.testing.assert_array_equal(
                per_expert, [(idx == e).sum() for e in range(E)]
            )

    good_world(2, main)


def test_a_thread_makes_the_progress():
    async def main(comm):
        async with await create(comm) as buffer:
            layer = layer_of(comm)
            for _ in range(3):
                same(await low_latency(buffer, layer), layer.combined())
                same(await high_throughput(buffer, layer), layer.combined_by_ranks(2))

    good_world(2, main, progress="thread")


def test_a_third_call_is_refused():
    async def main(comm):
        async with await create(comm) as buffer:
            layer = layer_of(comm)
            handles = []
            for _ in range(2):
                *_, handle = await buffer.low_latency_dispatch(layer.x, layer.topk_idx)
                handles.append(handle)
            with pytest.raises(ucp.UCXBusy, match="two calls are live"):
                await buffer.low_latency_dispatch(layer.x, layer.topk_idx)
            with pytest.raises(ucp.UCXError, match="order in which they began"):
                await buffer.low_latency_combine(
                    handles[1].outputs, layer.topk_idx, layer.weights, handles[1]
                )
            for handle in handles:
                await buffer.low_latency_combine(
                    handle.outputs, layer.topk_idx, layer.weights, handle
                )
            same(await low_latency(buffer, layer), layer.combined())

    good_world(2, main)


@pytest.mark.parametrize("is_combine", [False, True])
def test_a_cancelled_call_ends_the_buffer_on_all_ranks(is_combine):
    async def main(comm):
        buffer = await create(comm)
        layer = layer_of(comm)
        out = np.full((T, H), 7, np.float32)
        if is_combine:
            *_, handle = await buffer.low_latency_dispatch(layer.x, layer.topk_idx)
        await comm.barrier()
        if comm.rank == 0:
            call = (
                buffer.low_latency_combine(
                    handle.outputs, layer.topk_idx, layer.weights, handle, out=out
                )
                if is_combine
                else buffer.low_latency_dispatch(layer.x, layer.topk_idx)
            )
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(call, 0.05)
            with pytest.raises(ucp.UCXError, match="was cancelled here"):
                await buffer.low_latency_dispatch(layer.x, layer.topk_idx)
            assert (out == 7).all()
        await comm.barrier()
        if comm.rank == 1:
            with pytest.raises(ucp.UCXRankFailed) as caught:
                await low_latency(buffer, layer)
                await low_latency(buffer, layer)
            assert caught.value.rank == 0
        buffer.abort()
        await comm.barrier()
        async with await create(comm) as buffer:
            same(await low_latency(buffer, layer), layer.combined())

    good_world(2, main)


def test_arrays_are_the_callers_when_the_await_has_ended():
    async def main(comm):
        async with await create(comm, shared=False) as buffer:
            layer = layer_of(comm)
            x, idx = layer.x.copy(), layer.topk_idx.copy()
            recv_x, count, handle, hook = await buffer.low_latency_dispatch(
                x, idx, return_recv_hook=True
            )
            x[:], idx[:] = 0, 0
            await hook()
            run_experts(buffer, recv_x, count, handle.outputs, layer.numbers)
            out = await buffer.low_latency_combine(
                handle.outputs, layer.topk_idx, layer.weights, handle
            )
            same(out, layer.combined())

    good_world(2, main)


def test_a_handle_belongs_to_its_buffer():
    async def main(comm):
        async with await create(comm) as first, await create(comm) as second:
            layer = layer_of(comm)
            *_, handle = await first.dispatch(layer.x, layer.topk_idx)
            with pytest.raises(ValueError, match="of another buffer"):
                await second.dispatch(layer.x, handle=handle)
            with pytest.raises(ValueError, match="of another buffer"):
                await second.combine(handle.outputs, handle)
            with pytest.raises(ValueError, match="of another buffer"):
                second._begin(b"", 0, 0, 0, handle._call)
            await first.combine(handle.outputs, handle)

    good_world(1, main)


def test_ranks_may_have_different_numbers_of_experts_a_token():
    async def main(comm):
        async with await create(comm) as buffer:
            layer = layer_of(comm)
            if comm.rank == 1:
                layer.x = np.zeros((0, H), np.float32)
                layer.topk_idx = np.zeros((0, 1), np.int64)
                layer.weights = np.zeros((0, 1), np.float32)
            same(await high_throughput(buffer, layer), layer.combined_by_ranks(2))
            _, idx, *_, handle = await buffer.dispatch(layer.x, layer.topk_idx)
            assert idx.shape[1] == K
            await buffer.combine(handle.outputs, handle)

    good_world(2, main)


def test_scales_of_outputs_may_lie_elsewhere():
    async def main(comm):
        async with await create(comm, "fp8") as buffer:
            layer = layer_of(comm, "fp8")
            recv_x, count, handle = await buffer.low_latency_dispatch(
                layer.x, layer.topk_idx
            )
            numbers, scales = handle.outputs
            scales[:] = 7
            elsewhere = np.zeros_like(scales)
            run_experts(buffer, recv_x, count, (numbers, elsewhere), layer.numbers)
            out = await buffer.low_latency_combine(
                (numbers, elsewhere), layer.topk_idx, layer.weights, handle
            )
            same(out, layer.combined())

    good_world(2, main)


def test_a_dispatch_that_is_cancelled_in_the_queue_ends_the_buffer():
    async def main(comm):
        buffer = await create(comm)
        layer = layer_of(comm)
        if comm.rank == 0:
            first = asyncio.ensure_future(buffer.dispatch(layer.x, layer.topk_idx))
            await asyncio.sleep(0)
            second = asyncio.ensure_future(buffer.dispatch(layer.x, layer.topk_idx))
            await asyncio.sleep(0)
            second.cancel()
            with pytest.raises(asyncio.CancelledError):
                await second
            with pytest.raises(ucp.UCXError, match="was cancelled here"):
                await first
            await comm.barrier()
        else:
            await comm.barrier()  # without this rank, no dispatch ends before
            with pytest.raises(ucp.UCXRankFailed):
                # All of the first one may have arrived.
                await buffer.dispatch(layer.x, layer.topk_idx)
                await buffer.dispatch(layer.x, layer.topk_idx)
        buffer.abort()
        await comm.barrier()

    good_world(2, main)


def test_a_rank_that_closes_is_missed():
    async def main(comm):
        buffer = await create(comm)
        layer = layer_of(comm)
        if comm.rank == 1:
            await buffer.close()
        else:
            with pytest.raises(ucp.UCXRankFailed) as caught:
                await buffer.low_latency_dispatch(layer.x, layer.topk_idx)
            assert caught.value.rank == 1
        buffer.abort()
        await comm.barrier()

    good_world(2, main)


def test_a_rank_that_does_not_create_is_missed():
    async def main(comm):
        if comm.rank == 0:
            with pytest.raises(ucp.UCXTimeout, match="not all ranks have come"):
                await create(comm, timeout=0.05)
        await comm.barrier()

    good_world(2, main)


def test_a_late_rank_is_an_error():
    async def main(comm):
        buffer = await create(comm)
        late = await create(comm, timeout=0.05)
        layer = layer_of(comm)
        if comm.rank == 0:
            with pytest.raises(ucp.UCXTimeout, match="rank 1 has not come"):
                await late.low_latency_dispatch(layer.x, layer.topk_idx)
        same(await low_latency(buffer, layer), layer.combined())
        late.abort()
        await buffer.close()

    good_world(2, main)


def test_others_go_on_without_a_masked_rank():
    async def main(comm):
        buffer = await create(comm, mask_failed=True)
        layer = layer_of(comm)
        if comm.rank < 2:
            buffer.update_mask(2, True)
            want = layer.combined(without=range(8, 12))
            same(await low_latency(buffer, layer), want)
            assert buffer.query_mask().tolist() == [False, False, True]
            with pytest.raises(ucp.UCXError, match="masked"):
                await buffer.dispatch(layer.x, layer.topk_idx)
            with pytest.raises(ValueError, match="rank is"):
                buffer.update_mask(comm.rank, True)
        await comm.barrier()
        if comm.rank == 2:
            with pytest.raises(
                ucp.UCXRankFailed, match="has masked this one"
            ) as caught:
                await buffer.low_latency_dispatch(layer.x, layer.topk_idx)
            assert caught.value.rank in (0, 1)
        await comm.barrier()
        if comm.rank < 2:
            same(await low_latency(buffer, layer), want)
            buffer.clean_mask()
            assert not buffer.query_mask().any()
        await comm.barrier()
        buffer.abort()

    good_world(3, main)


def test_wrong_arguments_are_named():
    async def main(comm):
        for name, wrong in (
            ("num_experts", (0, T, H)),
            ("num_max_tokens", (E, 0, H)),
            ("hidden", (E, T, -1)),
            ("dtype", (E, T, H, "int32")),
            ("hidden", (E, T, 100, "fp8")),
        ):
            with pytest.raises(ValueError, match=name):
                await ucp.moe.Buffer.create(comm, *wrong)
        async with await create(comm, "bfloat16") as buffer:
            x, idx = np.zeros((2, H), np.uint16), np.zeros((2, K), int)
            idx[:] = np.arange(K)
            for match, args in (
                ("x has shape", (x[:1], idx)),
                ("x has dtype", (x.astype("f4"), idx)),
                ("bytes are swapped", (x.astype(">u2"), idx)),
                ("contiguous", (np.zeros((2, 2 * H), "u2")[:, ::2], idx)),
                ("expert 13", (x, idx + E - 1)),
                ("expert -2", (x, idx - 2)),
                ("twice", (x, idx * 0)),
                ("room for 7", (np.zeros((8, H), "u2"), np.full((8, 1), -1))),
                ("room for 3", (x, np.full((2, 4), -1))),
                ("not integers", (x, idx.astype("f4"))),
            ):
                with pytest.raises(ValueError, match=match):
                    await buffer.low_latency_dispatch(*args)
            with pytest.raises(TypeError, match="no array"):
                await buffer.low_latency_dispatch(7, idx)
            weights = np.ones((2, K), np.float32)
            recv_x, _, handle = await buffer.low_latency_dispatch(x, idx)
            for match, args, out in (
                ("y has shape", (recv_x[:1], idx, weights), None),
                ("not that of the dispatch", (recv_x, idx[:, ::-1], weights), None),
                ("topk_weights has shape", (recv_x, idx, weights[:1]), None),
                ("out has shape", (recv_x, idx, weights), np.zeros((3, H), "f4")),
                ("out.dtype", (recv_x, idx, weights), np.zeros((2, H), "i4")),
            ):
                with pytest.raises(ValueError, match=match):
                    await buffer.low_latency_combine(*args, handle, out=out)
            with pytest.raises(ValueError, match="other kind"):
                await buffer.combine(recv_x, handle)
            with pytest.raises(TypeError, match="handle is 3"):
                await buffer.combine(recv_x, 3)
            await buffer.low_latency_combine(recv_x, idx, weights, handle)
        assert buffer.closed()
        with pytest.raises(ucp.UCXCloseError):
            await buffer.low_latency_dispatch(x, idx)

    good_world(1, main)


def test_ranks_that_give_different_numbers():
    async def main(comm):
        with pytest.raises(ucp.UCXError, match="different numbers"):
            await ucp.moe.Buffer.create(comm, E, T + comm.rank, H)
        await comm.barrier()
        async with await create(comm) as buffer:
            layer = layer_of(comm)
            same(await low_latency(buffer, layer), layer.combined())

    good_world(2, main)


def test_rows_outlive_the_buffer():
    async def main(comm):
        async with await create(comm) as buffer:
            layer = layer_of(comm)
            recv_x, count, handle = await buffer.low_latency_dispatch(
                layer.x, layer.topk_idx
            )
            index = next(zip(*np.nonzero(count), strict=True))
            row = at(recv_x, (*index, 0)).copy()
            put(handle.outputs, slice(None), recv_x)
            await buffer.low_latency_combine(
                recv_x, layer.topk_idx, layer.weights, handle
            )
        del buffer, handle
        gc.collect()
        await comm.barrier()
        same(recv_x[(*index, 0)], row)

    good_world(2, main)


def test_numbers_of_ml_dtypes():
    ml_dtypes = pytest.importorskip("ml_dtypes")

    async def main(comm):
        async with await create(comm, ml_dtypes.bfloat16) as buffer:
            layer = layer_of(comm, "bfloat16")
            recv_x, count, handle = await buffer.low_latency_dispatch(
                layer.x.view(ml_dtypes.bfloat16), layer.topk_idx.astype("i4")
            )
            assert recv_x.dtype == ml_dtypes.bfloat16
            run_experts(
                buffer,
                recv_x.view(np.uint16),
                count,
                handle.outputs.view(np.uint16),
                layer.numbers,
            )
            out = await buffer.low_latency_combine(
                handle.outputs, layer.topk_idx.tolist(), layer.weights, handle
            )
            same(out.view(np.uint16), layer.combined())

    good_world(1, main)


def test_blocking_calls():
    def main(comm):
        layer = layer_of(comm)
        with ucp.moe.SyncBuffer.create(comm, E, T, H, "float32") as buffer:
            for _ in range(3):
                recv_x, count, handle = buffer.low_latency_dispatch(
                    layer.x, layer.topk_idx
                )
                run_experts(buffer._async, recv_x, count, handle.outputs, layer.numbers)
                out = buffer.low_latency_combine(
                    handle.outputs, layer.topk_idx, layer.weights, handle
                )
                same(out, layer.combined())
            recv_x, idx, weights, _, handle = buffer.dispatch(
                layer.x, layer.topk_idx, layer.weights
            )
            y = np.empty_like(recv_x)
            run_rank(buffer._async, recv_x, idx, weights, y, layer.numbers)
            same(buffer.combine(y, handle), layer.combined_by_ranks(comm.size))
            assert not buffer.query_mask().any()
        assert buffer.closed()

    sync_world(2, main)
