# SPDX-License-Identifier: BSD-3-Clause
"""How what all ranks make together ends: every error names rank, operation, cause."""

import asyncio

import pytest
from worlds import good_world, world

import ucp
import ucp.moe
from ucp.proxy import Proxy
from ucp.shmem import SymmetricHeap
from ucp.shuffle import MapOutputs

MAKERS = {
    "heap": lambda comm: SymmetricHeap.create(comm, 4096),
    "outputs": lambda comm: MapOutputs.create(comm, 2, 2),
    "buffer": lambda comm: ucp.moe.Buffer.create(comm, comm.size, 4, 16, "float32"),
    "proxy": lambda comm: Proxy.create(comm, timeout=None),
}
kinds = pytest.mark.parametrize("kind", MAKERS)


async def failure_of(making):
    """The failure of a rank that ``making`` raises."""
    with pytest.raises(ucp.UCXRankFailed) as caught:
        await making
    return caught.value


@kinds
def test_who_cancels_is_named(kind):
    async def main(comm):
        if comm.rank == 0:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(MAKERS[kind](comm), 0.05)
            await comm.barrier()
            return None
        await comm.barrier()
        return await failure_of(MAKERS[kind](comm))

    exc = world(2, main)[1]
    assert (exc.rank, exc.op) == (0, "create")
    assert isinstance(exc.cause, ucp.UCXCanceled)
    assert f"making the {kind} was cancelled" in str(exc)


@kinds
def test_one_rank_makes_it_alone_and_may_close_it_twice(kind):
    async def main(comm):
        made = await MAKERS[kind](comm)
        for _ in range(2):
            if hasattr(made, "abort"):
                made.abort()
            else:
                made.close()
            assert made.closed()

    good_world(1, main)


@kinds
def test_who_has_made_it_may_close_it_at_once(kind):
    async def main(comm):
        for _ in range(20):
            made = await MAKERS[kind](comm)
            if comm.rank != 0:  # the others may be late
                await asyncio.sleep(0)
            close = made.abort if hasattr(made, "abort") else made.close
            close()

    good_world(3, main)


@kinds
def test_who_has_ended_is_named(kind):
    async def main(comm):
        if comm.rank == 1:
            comm.abort("enough")
            return None
        return await failure_of(MAKERS[kind](comm))

    exc = world(3, main)[0]
    assert (exc.rank, "enough" in str(exc)) == (1, True)
    assert isinstance(exc.cause, ucp.UCXError)


@kinds
def test_who_has_left_is_named(kind):
    async def main(comm):
        if comm.rank == 1:
            comm.close()
            return None
        return await failure_of(MAKERS[kind](comm))

    exc = world(2, main)[0]
    assert (exc.rank, exc.op) == (1, "create")


def test_who_is_late_is_named():
    """The time limit is that of the communicator, but for what has its own."""
    makers = MAKERS | {"proxy": lambda comm: Proxy.create(comm, timeout=0.5)}
    makers["buffer"] = lambda comm: ucp.moe.Buffer.create(
        comm, comm.size, 4, 16, "float32", timeout=0.5
    )

    async def main(comm):
        if comm.rank == 1:
            await comm.barrier()
            return [await failure_of(makers[kind](comm)) for kind in makers]
        ends = await asyncio.gather(
            *(makers[kind](comm) for kind in makers), return_exceptions=True
        )
        await comm.barrier()
        return ends

    timeouts, failures = good_world(2, main, timeout=2)
    for kind, timeout, exc in zip(makers, timeouts, failures, strict=True):
        text = f"not all ranks have come in time to make the {kind}: rank 1 has not"
        assert isinstance(timeout, ucp.UCXTimeout)
        assert text in str(timeout)
        assert text in str(exc)
        assert exc.rank == 0
        assert isinstance(exc.cause, ucp.UCXTimeout)
