# SPDX-License-Identifier: BSD-3-Clause
"""Containers that share network and IPC, but not the numbers of their processes."""

import os
import sys

import pytest
from relay import UNSHARE, missing
from script import started

SERVER = """
import asyncio, signal, ucp
signal.alarm(30)  # the time limit

async def main():
    async with ucp.create_listener(host="127.0.0.1") as listener:
        print(listener.port, flush=True)
        async for ep in listener:
            await ep.send_obj(await ep.recv_obj())
            await ep.close()

asyncio.run(main())
"""

CLIENT = """
import asyncio, signal, sys, ucp
signal.alarm(30)

async def main():
    try:
        ep = await ucp.create_endpoint("127.0.0.1", int(sys.argv[1]))
    except ucp.UCXError as error:
        print(type(error).__name__, error)
        return
    print({transport for transport, _ in ep.transports()})
    await ep.send_obj(b"x" * (1 << 20))
    print(len(await ep.recv_obj()))
    await ep.close()

asyncio.run(main())
"""

RANK = """
import asyncio, signal, sys, ucp
signal.alarm(30)

async def main():
    rank, root = int(sys.argv[1]), sys.argv[2]
    async with await ucp.Communicator.connect(root, rank=rank, size=2) as comm:
        with ucp.Memory.allocate(8) as memory:
            keys = await comm.allgather_pickle(memory.key, allow_pickle=True)
            peer = await comm.endpoint(1 - rank)
            theirs = peer.remote(keys[1 - rank])
            await theirs.put(bytes([rank] * 8))
            await theirs.flush()
            await comm.barrier()
            print(theirs.mapped, *memoryview(memory))
            await comm.barrier()

asyncio.run(main())
"""


@pytest.fixture(autouse=True)
def _root():
    if reason := missing():
        pytest.skip(reason)


def container(program, *arguments, **environ):
    """A program whose namespace of process numbers is its own."""
    words = [word for word in UNSHARE if word not in ("--ipc", "--uts")]
    return started(
        [*words, sys.executable, "-P", "-c", program, *map(str, arguments)],
        env={**os.environ, **environ},
    )


def connect(port, **environ):
    with container(CLIENT, port, **environ) as client:
        return client.communicate(timeout=30)[0].splitlines()


def test_their_messages_go_by_tcp():
    with container(SERVER) as server:
        port = server.stdout.readline().strip()
        assert connect(port) == ["{'tcp'}", str(1 << 20)]
        # Where tcp is left out there is no way, and the error tells why.
        [line] = connect(port, UCX_TLS="shm,self")
        assert line.startswith(f"UCXUnreachable connect to 127.0.0.1:{port}: ")
        assert "the two do not share process numbers" in line
        assert connect(port) == ["{'tcp'}", str(1 << 20)]


def test_ranks_in_containers_reach_the_memory_of_each_other(tmp_path):
    root = f"file:{tmp_path}/root"
    with container(RANK, 0, root) as first, container(RANK, 1, root) as second:
        lines = [rank.communicate(timeout=30)[0] for rank in (first, second)]
    assert lines == [f"False{' 1' * 8}\n", f"False{' 0' * 8}\n"]
