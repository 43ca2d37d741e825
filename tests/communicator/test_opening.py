# SPDX-License-Identifier: BSD-3-Clause
"""Making a communicator by ``await`` or ``async with``; trusting its ranks once."""

import asyncio
import gc
import inspect

import pytest
from worlds import free_root, good_world

import ucp


@pytest.fixture
def alone(monkeypatch):
    """The environment of a launcher that has started one rank."""
    monkeypatch.setenv("UCP_RANK", "0")
    monkeypatch.setenv("UCP_SIZE", "1")
    monkeypatch.setenv("UCP_ROOT", free_root().removeprefix("tcp://"))


WAYS = {
    "from_env": lambda **more: ucp.Communicator.from_env(**more),
    "connect": lambda **more: ucp.Communicator.connect(free_root(), 0, 1, **more),
    "from_allgather": lambda **more: ucp.Communicator.from_allgather(
        0, 1, lambda own: [own], **more
    ),
}
every_way = pytest.mark.parametrize("make", WAYS.values(), ids=WAYS)


@every_way
async def test_a_block_closes_it(make, alone, loop_factory):
    async with make() as comm:
        await comm.barrier()
        assert comm.size == 1
    assert comm.closed()
    async with await make() as comm:
        await comm.barrier()
    assert comm.closed()


@every_way
async def test_an_exception_in_the_block_aborts_it(make, alone):
    with pytest.raises(ZeroDivisionError):
        async with make() as comm:
            raise ZeroDivisionError
    assert comm.closed()


@every_way
async def test_a_task_may_make_it(make, alone, loop_factory):
    task = asyncio.create_task(make())
    (await task).close()
    (await asyncio.gather(make()))[0].close()
    (await asyncio.wait_for(make(), 60)).close()


async def test_what_is_wrong_is_raised_by_the_await():
    making = ucp.Communicator.connect("nowhere", 0, 1)
    assert repr(making) == "<ucp.Communicator, rank 0 of 1, not made>"
    with pytest.raises(ValueError, match="nowhere"):
        await making
    with pytest.raises(ValueError, match="progress is 5"):
        async with ucp.Communicator.connect(free_root(), 0, 1, progress=5):
            pass
    assert not inspect.iscoroutinefunction(ucp.Communicator.connect)


async def test_one_that_is_not_awaited_warns():
    making = ucp.Communicator.connect(free_root(), 0, 1)
    with pytest.warns(RuntimeWarning, match="was never awaited"):
        del making
        gc.collect()


# ---- trusting the ranks once -----------------------------------------------------


def test_objects_of_trusted_ranks_need_no_word_in_each_call():
    async def main(comm):
        pieces = [comm, comm.dup(), comm.split(0), comm.create(comm.group)]
        for each in pieces:
            each = each if each is comm else await each
            other = 1 - comm.rank
            assert await each.sendrecv_pickle(comm.rank, other) == other
            await each.send_pickle("x", other)
            assert await each.recv_pickle(other) == "x"
            assert await each.allgather_pickle(comm.rank) == [0, 1]
            assert await each.bcast_pickle(comm.rank) == 0
            assert await each.allreduce_pickle(comm.rank) == 1
            with pytest.raises(ValueError, match="or where the communicator is made"):
                each.recv_pickle(allow_pickle=False)
        return True

    assert good_world(2, main, allow_pickle=True) == [True, True]


def test_by_default_nobody_is_trusted():
    async def main(comm):
        for each in (comm, await comm.dup()):
            with pytest.raises(ValueError, match="allow_pickle=True says that you"):
                each.recv_pickle()
            with pytest.raises(ValueError, match="allow_pickle=True says that you"):
                await each.allgather_pickle(1)
            assert await each.allgather_pickle(1, allow_pickle=True) == [1, 1]
        return True

    assert good_world(2, main) == [True, True]


@pytest.mark.parametrize("value", [1, "yes", None])
async def test_only_true_trusts_them(value, alone):
    async with ucp.Communicator.from_env(allow_pickle=value) as comm:
        with pytest.raises(ValueError, match="allow_pickle=True"):
            comm.recv_pickle()


def test_blocking_communicators_may_trust_once(alone):
    with ucp.sync.Communicator.from_env(allow_pickle=True) as comm:
        assert comm.allgather_pickle(1) == [1]
        comm.send_pickle(2, 0)
        assert comm.recv_pickle() == 2
        assert comm.iallgather_pickle(3).result() == [3]
        with comm.dup() as other:
            assert other.allgather_pickle(1) == [1]
    with ucp.sync.Communicator.from_env() as comm:
        with pytest.raises(ValueError, match="or where the communicator is made"):
            comm.recv_pickle()


@pytest.mark.parametrize("on_channel", [False, True])
async def test_endpoints_may_trust_their_peer_once(on_channel):
    async with ucp.create_listener(host="127.0.0.1", allow_pickle=True) as listener:
        async with ucp.connect("127.0.0.1", listener.port) as client:
            server = await listener.accept()
            ends = [end.channel(2) if on_channel else end for end in (client, server)]
            await ends[0].send_pickle(1)
            assert await ends[1].recv_pickle() == 1
            for allow_pickle in (None, False, 1):
                with pytest.raises(ValueError, match="where the endpoint is made"):
                    ends[0].recv_pickle(allow_pickle=allow_pickle)
            with pytest.raises(ValueError, match="where the endpoint is made"):
                ends[1].recv_pickle(allow_pickle=False)
            server.abort()
