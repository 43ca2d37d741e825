# SPDX-License-Identifier: BSD-3-Clause
"""``Communicator.endpoint``: a connection to the worker of a rank."""

import pytest
from worlds import good_world, world

import ucp


def test_it_reaches_the_memory_of_a_rank():
    async def main(comm):
        memory = ucp.Memory.allocate(64)
        memoryview(memory)[:8] = bytes([comm.rank]) * 8
        keys = await comm.allgather_pickle(memory.key, allow_pickle=True)
        found = []
        for rank, key in enumerate(keys):
            endpoint = await comm.endpoint(rank)
            back = bytearray(8)
            await endpoint.remote(key).get(back)
            found.append(set(back))
            await endpoint.close()
        await comm.barrier()
        return found

    assert good_world(3, main) == [[{0}, {1}, {2}]] * 3


def test_its_end_does_not_concern_the_communicator():
    async def main(comm):
        endpoint = await comm.endpoint((comm.rank + 1) % comm.size)
        await endpoint.send(b"x")
        accepted = await anext(ucp.accept_addressed())
        assert await accepted.recv_obj() == b"x"
        endpoint.abort()
        await comm.barrier()
        return await comm.allgather_pickle(comm.rank, allow_pickle=True)

    assert good_world(2, main) == [[0, 1]] * 2


def test_wrong_ranks_are_named():
    async def main(comm):
        for rank in (-1, comm.size):
            with pytest.raises(ValueError, match=f"^rank is {rank}, but"):
                await comm.endpoint(rank)
        with pytest.raises(TypeError):
            await comm.endpoint("one")

    good_world(2, main)


def test_a_closed_or_failed_communicator_has_none():
    async def main(comm):
        await comm.barrier()
        if comm.rank == 0:
            comm.abort("enough")
        with pytest.raises(ucp.UCXRankFailed, match="enough"):
            while True:
                await comm.barrier()
        with pytest.raises(ucp.UCXRankFailed, match="enough"):
            await comm.endpoint(1 - comm.rank)
        comm.close()
        with pytest.raises(ucp.UCXCloseError, match="closed"):
            await comm.endpoint(1 - comm.rank)

    assert world(2, main) == [None, None]
