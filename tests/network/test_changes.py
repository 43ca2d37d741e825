# SPDX-License-Identifier: BSD-3-Clause
# tests: endpoint/network host/routes
"""Networks of a host that change while a process uses UCX."""

import pytest
from relay import DEVICE, HOSTS, _ip, joined_hosts, start

MOVED = ("192.0.2.11", "192.0.2.12")  # of the same network

# Says "ready" when it has called UCX, and does what each line of the input says.
HOST = """
import asyncio, signal, sys, ucp
signal.alarm(50)  # the time limit

async def accept(listener):
    async for ep in listener:
        await ep.send_obj(b"hello")
        try:
            await ep.recv_obj()
        except ucp.UCXError:
            pass  # it has closed

async def connect(host, port):
    ep = await ucp.create_endpoint(host, int(port), connect_timeout=20)
    text = bytes(await ep.recv_obj()).decode()
    devices = [device for _, device in ep.transports()]
    await ep.close()  # before the test changes the network
    print(text, *devices, flush=True)

async def main():
    listener = ucp.create_listener(host="0.0.0.0")
    task = asyncio.ensure_future(accept(listener))
    print(listener.port, flush=True)
    while words := (await asyncio.to_thread(sys.stdin.readline)).split():
        try:
            await connect(*words)
        except ucp.UCXError as error:
            print(error, flush=True)

asyncio.run(main())
"""

PAIR = """
async def local_pair():
    from ucp.testing import connected_pair
    async with connected_pair() as (client, server):
        print("paired", flush=True)
        memory = ucp.Memory.allocate(1 << 20)
        await asyncio.to_thread(sys.stdin.readline)
        host, port = (await asyncio.to_thread(sys.stdin.readline)).split()
        await connect(host, port)
        other = ucp.Memory.allocate(1 << 20)
        for each in memory, other:
            sending = client.send(each)
            assert len(await server.recv_obj()) == 1 << 20
            await sending
        print("well", flush=True)

asyncio.run(local_pair())
"""


def bring(namespace, state):
    _ip("-n", namespace, "link", "set", DEVICE, state)
    if state == "up":
        while "state UP" not in _ip("-n", namespace, "link", "show", DEVICE):
            pass


def move(namespace, old, new):
    inside = ("-n", namespace, "addr")
    _ip(*inside, "del", f"{old}/24", "dev", DEVICE)
    _ip(*inside, "add", f"{new}/24", "dev", DEVICE)


def read(process):
    return process.stdout.readline().strip()


def say(process, *words):
    print(*words, file=process.stdin, flush=True)


def connects(process, host, port):
    say(process, host, port)
    return read(process)


@pytest.fixture
def link():
    with joined_hosts() as link:
        yield link


@pytest.mark.parametrize("side", [0, 1], ids=["connecting", "listening"])
def test_a_network_comes_up_later_than_the_process(link, side):
    first, second = link.namespaces
    bring(link.namespaces[side], "down")
    with start(second, HOST) as server, start(first, HOST) as client:
        port = read(server)
        read(client)
        bring(link.namespaces[side], "up")
        for _ in range(2):
            assert connects(client, HOSTS[1], port) == f"hello {DEVICE}"


def test_what_a_process_does_goes_on_when_a_network_comes_up(link):
    """Memory that was registered before can be used as well as another."""
    first, second = link.namespaces
    bring(first, "down")
    program = HOST.replace("asyncio.run(main())", "") + PAIR
    with start(second, HOST) as server, start(first, program) as client:
        port = read(server)
        assert read(client) == "paired"
        bring(first, "up")
        say(client, "go")
        assert connects(client, HOSTS[1], port) == f"hello {DEVICE}"
        assert read(client) == "well"


@pytest.mark.parametrize("side", [0, 1], ids=["connecting", "listening"])
def test_the_address_of_a_host_changes(link, side):
    first, second = link.namespaces
    addresses = list(HOSTS)
    with start(second, HOST) as server, start(first, HOST) as client:
        ports = [read(client), read(server)]
        assert connects(client, addresses[1], ports[1]) == f"hello {DEVICE}"
        move(link.namespaces[side], HOSTS[side], MOVED[side])
        addresses[side] = MOVED[side]
        for _ in range(2):
            assert connects(client, addresses[1], ports[1]) == f"hello {DEVICE}"
        assert connects(server, addresses[0], ports[0]) == f"hello {DEVICE}"


# Each asyncio.run() makes a worker.
LOOPS = """
import asyncio, signal, sys, ucp
from ucp.testing import connected_pair
signal.alarm(50)

async def main():
    async with connected_pair() as (client, server):
        await client.send_obj(b"x")
        print(len(await server.recv_obj()), flush=True)

while True:
    asyncio.run(main())
    sys.stdin.readline()
"""


def test_workers_are_made_while_a_network_is_down(link):
    [host, _] = link.namespaces
    with start(host, LOOPS) as process:
        assert read(process) == "1"
        for state in "down", "up":
            bring(host, state)
            say(process)
            assert read(process) == "1"
        _ip("-n", host, "addr", "flush", "dev", DEVICE)
        say(process)
        assert read(process) == "1"


RANK = """
import asyncio, os, signal, sys, time, ucp
signal.alarm(50)

async def main(root, rank, devices):
    if devices:
        os.environ["UCX_NET_DEVICES"] = devices
    ucp.current_worker()
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    try:
        comm = await ucp.Communicator.connect(root, int(rank), 2, timeout=30)
    except ucp.UCXError as error:
        print(type(error).__name__, error, flush=True)
        return
    await comm.barrier()
    print("met", flush=True)
    comm.close()

asyncio.run(main(*sys.argv[1:]))
"""


def test_a_rank_waits_for_its_network(link):
    root = f"{HOSTS[0]}:7078"
    first, second = link.namespaces
    bring(second, "down")
    with (
        start(first, RANK, root, 0, "") as one,
        start(second, RANK, root, 1, "") as other,
    ):
        for process in one, other:
            assert read(process) == "ready"
            say(process)
        bring(second, "up")
        assert [read(one), read(other)] == ["met", "met"]


def test_a_rank_does_not_wait_for_a_network_that_it_is_not_to_use(link):
    root = f"{HOSTS[0]}:7078"
    first, second = link.namespaces
    with (
        start(first, RANK, root, 0, "") as one,
        start(second, RANK, root, 1, "nosuch0") as other,
    ):
        for process in one, other:
            assert read(process) == "ready"
            say(process)
        line = read(other)
    assert line.startswith("UCXUnreachable connect: ")
    assert "the root, rank 0, cannot be reached: UCX has no network device" in line
