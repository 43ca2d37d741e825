# SPDX-License-Identifier: BSD-3-Clause
"""Ranks that end in the middle of calls of ``ucp.moe.Buffer``."""

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

async def tell_rank_2(comm):
    # Rank 2 goes on when the others have their sums: before, what it has sent can be
    # lost with it, and they mask it one call too early.
    if comm.rank == 2:
        for rank in range(2):
            await comm.recv(bytearray(1), rank)
    else:
        await comm.send(b"s", 2)

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
    await tell_rank_2(comm)
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


def segments_of(pids):
    """System V segments that one of the processes has left."""
    with open("/proc/sysvipc/shm") as table:
        rows = [line.split() for line in list(table)[1:]]
    return [row for row in rows if int(row[4]) in pids]


@pytest.mark.parametrize(
    ("step", "mask_failed", "shared"),
    [
        ("dispatch", False, True),
        ("dispatch", True, False),
        ("rows_sent", True, True),
        ("received", True, True),
    ],
)
def test_a_rank_is_killed(step, mask_failed, shared):
    call = f"\nasyncio.run(main({step}, {mask_failed}, {shared}))\n"
    with Ranks(3, PROGRAM + call) as ranks:
        ends = [ranks.end(rank) for rank in range(2)]
        ranks.processes[2].wait(20)
    assert segments_of({process.pid for process in ranks.processes}) == []
    assert ends == ["went on" if mask_failed else "failed"] * 2
