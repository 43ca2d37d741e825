# SPDX-License-Identifier: BSD-3-Clause
"""A network that drops everything: who notices, when the program asked for it."""

import contextlib
import json
import re

import pytest
from relay import HOSTS, joined_hosts, start

# Three connections, which are idle, send much, and wait for an answer when the
# network goes. A line of the input says that it has gone.
ENDS = """
import asyncio, json, sys, ucp

async def line():
    return await asyncio.to_thread(sys.stdin.readline)

async def idle(ep, is_client):
    await ep.recv_obj()

async def busy(ep, is_client):
    data = bytearray(1 << 20)
    while True:
        await (ep.send(data) if is_client else ep.recv(data))

async def waiting(ep, is_client):
    if is_client:
        await gone.wait()
        await ep.send_obj(b"?")
    await ep.recv_obj()

async def end(program, ep, is_client):
    try:
        await program(ep, is_client)
    except ucp.UCXConnectionReset as error:
        print(program.__name__, error.errno, error, flush=True)

async def main(host, port, config):
    global gone
    gone = asyncio.Event()
    ucp.init(config=ucp.Config(**json.loads(config)))
    programs = [idle, busy, waiting]
    if port == "0":
        listener = ucp.create_listener(host=host)
        print(listener.port, flush=True)
        eps = [await anext(listener) for _ in programs]
    else:
        eps = [await ucp.create_endpoint(host, int(port)) for _ in programs]
    print("connected", flush=True)
    async with asyncio.TaskGroup() as group:
        for program, ep in zip(programs, eps):
            group.create_task(end(program, ep, port != "0"))
        await line()
        gone.set()

asyncio.run(main(*sys.argv[1:]))
"""


@contextlib.contextmanager
def connected(link, program, *arguments):
    """The program at the second host, and the one at the first that connects."""
    with start(link.namespaces[1], program, HOSTS[1], 0, *arguments) as server:
        port = server.stdout.readline().strip()
        with start(link.namespaces[0], program, HOSTS[1], port, *arguments) as client:
            for process in client, server:
                assert process.stdout.readline() == "connected\n"
            yield client, server


def ends(process):
    """What the connections ended with, by what they did: (errno, text)."""
    lines = process.communicate("gone\n")[0].splitlines()
    assert process.returncode == 0
    words = [line.split(" ", 2) for line in lines]
    return {name: (errno, text) for name, errno, text in words}


@pytest.mark.parametrize(
    ("config", "who"),
    [
        ({"heartbeat": 0.5}, "the peer"),
        ({"heartbeat": 60, "keepalive": 1}, "the host of the peer"),
    ],
)
def test_both_ends_notice_a_dead_link(config, who):
    with joined_hosts() as link:
        with connected(link, ENDS, json.dumps(config)) as processes:
            link.set(drop="both")
            for process in processes:
                for errno, text in ends(process).values():
                    assert errno in ("110", "113")  # what the kernel has found
                    assert re.search(rf"{who} has been silent for [0-9.]+ s: ", text)
                    assert text.endswith(f"(errno {errno})")


def test_one_direction_that_is_dead_ends_both():
    with joined_hosts() as link:
        config = json.dumps({"heartbeat": 0.5})
        with connected(link, ENDS, config) as (client, server):
            link.set(drop="first")
            for _errno, text in ends(server).values():
                assert "the peer has been silent for" in text
            assert len(ends(client)) == 3


# Sends and receives one message for each line of the input.
GOES_ON = """
import asyncio, json, sys, ucp

async def main(host, port, config):
    ucp.init(config=ucp.Config(**json.loads(config)))
    if port == "0":
        listener = ucp.create_listener(host=host)
        print(listener.port, flush=True)
        ep = await anext(listener)
    else:
        ep = await ucp.create_endpoint(host, int(port))
    print("connected", flush=True)
    if port == "0":
        for _ in range(2):
            await ep.send_obj(await ep.recv_obj())
    else:
        for _ in range(2):
            await asyncio.to_thread(sys.stdin.readline)
            await ep.send_obj(b"?" * (1 << 20))
            print(len(await ep.recv_obj()), flush=True)
    await ep.close()

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("config", [{"heartbeat": 0}, {"heartbeat": 60}])
def test_a_link_that_comes_back_in_time_goes_on(config):
    with joined_hosts() as link:
        with connected(link, GOES_ON, json.dumps(config)) as (client, server):
            print(file=client.stdin, flush=True)
            assert client.stdout.readline() == "1048576\n"
            link.set(drop="both")
            before = link.counts()[0][2]
            print(file=client.stdin, flush=True)
            while link.counts()[0][2] < before + 4:  # sent again and again
                pass
            link.set(drop="none")
            assert client.communicate()[0] == "1048576\n"
            assert (client.wait(), server.wait()) == (0, 0)


RANK = f"""
import asyncio, sys, ucp

async def main(rank):
    root = "tcp://{HOSTS[1]}:7300"
    comm = await ucp.Communicator.connect(root, rank, 2, heartbeat=0.5)
    print("connected", flush=True)
    try:
        while True:
            await comm.barrier()
    except ucp.UCXRankFailed as error:
        print(error.rank, error, flush=True)
    comm.abort()

asyncio.run(main(int(sys.argv[1])))
"""


def test_ranks_notice_a_dead_link():
    with (
        joined_hosts() as link,
        start(link.namespaces[1], RANK, 0) as root,
        start(link.namespaces[0], RANK, 1) as other,
    ):
        for process in root, other:
            assert process.stdout.readline() == "connected\n"
        link.set(drop="both")
        for rank, process in enumerate([other, root]):
            text = process.stdout.readline()  # its end tries to tell the other
            assert text.startswith(f"{rank} rank {rank} has ended: ")
            assert "silent for" in text
            assert "(errno 110)" in text


BULK = f"""
import asyncio, sys, numpy as np, ucp

async def main(rank):
    root = "tcp://{HOSTS[1]}:7300"
    comm = await ucp.Communicator.connect(root, rank, 2, heartbeat=1)
    await comm.barrier()
    print("connected", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    sent = np.full(2 * SIZE, rank, "u1")
    got = np.empty_like(sent)
    await comm.alltoall(sent, got)
    print(*np.unique(got[:SIZE]), *np.unique(got[SIZE:]), flush=True)
    comm.close()

SIZE = 5 << 20
asyncio.run(main(int(sys.argv[1])))
"""


def test_heartbeats_of_ranks_do_not_wait_behind_their_messages():
    """Each message takes longer than a rank may be silent."""
    with (
        joined_hosts() as link,
        start(link.namespaces[1], BULK, 0) as root,
        start(link.namespaces[0], BULK, 1) as other,
    ):
        for process in root, other:
            assert process.stdout.readline() == "connected\n"
        link.set(rate=20e6)
        for process in root, other:
            print(file=process.stdin, flush=True)
        for process in root, other:
            assert process.communicate()[0] == "0 1\n"
            assert process.returncode == 0
