# SPDX-License-Identifier: BSD-3-Clause
"""Ranks that end in the middle of calls of ``ucp.moe.Buffer``."""

import glob
from pathlib import Path

import pytest
from worlds import Ranks

PROGRAM = f"""
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from moe_model import Layer, low_latency, run_experts
import ucp.moe

E, T, K, H = 12, 5, 3, 128

def end():
    os.kill(os.getpid(), signal.SIGKILL)

async def dispatch(buffer, layer):
    if buffer.comm.rank == 2:
        end()
    return await low_latency(buffer, layer)

async def rows_sent(buffer, layer):
    recv_x, count, handle, hook = await buffer.low_latency_dispatch(
        layer.x, layer.topk_idx, return_recv_hook=True
    )
    if buffer.comm.rank == 2:
        end()
    await hook()
    return await combine(buffer, layer, recv_x, count, handle)

async def received(buffer, layer):
    recv_x, count, handle = await buffer.low_latency_dispatch(layer.x, layer.topk_idx)
    if buffer.comm.rank == 2:
        end()
    return await combine(buffer, layer, recv_x, count, handle)

async def combine(buffer, layer, recv_x, count, handle):
    run_experts(buffer, recv_x, count, handle.outputs, layer.numbers)
    return await buffer.low_latency_combine(
        handle.outputs, layer.topk_idx, layer.weights, handle
    )

async def main(step, mask_failed, shared):
    comm = await connect()
    buffer = await ucp.moe.Buffer.create(
        comm, E, T, H, "float32", num_max_topk=K, mask_failed=mask_failed,
        shared=shared,
    )
    layer = Layer(comm.rank, E, T, K, H, "float32")
    await comm.barrier()
    assert (await low_latency(buffer, layer) == layer.combined()).all()
    if not mask_failed:
        try:
            await step(buffer, layer)
        except ucp.UCXRankFailed as exc:
            assert exc.rank == 2, repr(exc)
            print("failed")
        return
    want = layer.combined(without=range(8, 12))
    assert (await step(buffer, layer) == want).all()
    assert buffer.query_mask().tolist() == [False, False, True]
    for _ in range(3):
        assert (await low_latency(buffer, layer) == want).all()
    await buffer.close()
    print("went on")
"""


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("step", ["dispatch", "rows_sent", "received"])
@pytest.mark.parametrize("mask_failed", [False, True])
def test_a_rank_is_killed(step, mask_failed, shared):
    call = f"\nasyncio.run(main({step}, {mask_failed}, {shared}))\n"
    with Ranks(3, PROGRAM + call) as ranks:
        ends = [ranks.end(rank) for rank in range(2)]
    assert ends == ["went on" if mask_failed else "failed"] * 2


IDLE = """
import resource, time
import ucp.moe

async def main():
    comm = await connect()
    x, idx = np.zeros((1, 128), "f4"), np.zeros((1, 1), int)
    async with await ucp.moe.Buffer.create(comm, 2, 1, 128, "float32") as buffer:
        *_, handle = await buffer.low_latency_dispatch(x, idx)
        if comm.rank == 1:
            print("waits", flush=True)
            sys.stdin.readline()
        waiting = asyncio.ensure_future(
            buffer.low_latency_combine(handle.outputs, idx, [[1]], handle)
        )
        if comm.rank == 0:
            await asyncio.sleep(0.5)  # whatever is adaptive has settled
            before = time.process_time(), time.monotonic()
            await asyncio.sleep(1)
            used = time.process_time() - before[0]
            print(used < 0.05 * (time.monotonic() - before[1]), flush=True)
        await waiting

asyncio.run(main())
"""


def test_a_rank_that_waits_sleeps():
    with Ranks(2, IDLE) as ranks:
        assert ranks.line(1) == "waits"
        assert ranks.line(0) == "True"
        ranks.processes[1].stdin.write("\n")
        ranks.processes[1].stdin.flush()
        for rank in range(2):
            ranks.end(rank)


def segments():
    table = Path("/proc/sysvipc/shm").read_text().splitlines()[1:]
    return {line.split()[1] for line in table if int(line.split()[6]) == 0}


def test_nothing_is_left():
    before = segments(), set(glob.glob("/dev/shm/*ucp*"))
    call = "\nasyncio.run(main(received, False, True))\n"
    with Ranks(3, PROGRAM + call) as ranks:
        for rank in range(2):
            ranks.end(rank)
        ranks.processes[2].wait(20)
    assert segments() <= before[0]
    assert set(glob.glob("/dev/shm/*ucp*")) <= before[1]
