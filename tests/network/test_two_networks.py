# SPDX-License-Identifier: BSD-3-Clause
"""Two hosts with two networks: that of the relay, which may be silent, and another."""

import contextlib

import pytest
from relay import DEVICE, _ip, joined_hosts, start

OTHER = ("198.51.100.1", "198.51.100.2")  # reserved for documentation
LABELLED = ("203.0.113.1", "203.0.113.2")  # reserved, too; of the same interfaces
SERVER = """
import asyncio, signal, sys, ucp
signal.alarm(30)  # the time limit

async def main():
    listener = ucp.create_listener(host=sys.argv[1])
    print(listener.port, flush=True)
    async for ep in listener:
        await ep.send_obj(b"hello")
        if sys.argv[2:] == ["close"]:
            await ep.close()
            continue
        try:
            await ep.send_obj(await ep.recv_obj())
        except ucp.UCXError:
            pass  # who has not been answered hangs up

asyncio.run(main())
"""

# What is logged goes to the standard output.
LOGGING = """
import logging, sys
logging.basicConfig(stream=sys.stdout)
"""

CLIENT = """
import asyncio, signal, sys, ucp
signal.alarm(30)

async def main():
    host, port, timeout = sys.argv[1:4]
    try:
        ep = await ucp.create_endpoint(host, int(port), connect_timeout=float(timeout))
    except ucp.UCXError as error:
        print(type(error).__name__, error)
        return
    print(*(device for _, device in ep.transports()))
    print(bytes(await ep.recv_obj()).decode())
    if sys.argv[4:] != ["close"]:
        await ep.send_obj(b"x" * (1 << 20))
        print(len(await ep.recv_obj()))
    await ep.close()

asyncio.run(main())
"""


@pytest.fixture
def hosts():
    """The Link, and a veth pair "other" beside it."""
    with joined_hosts() as link:
        first, second = link.namespaces
        pair = ("link", "add", "other", "netns", first, "type", "veth")
        _ip(*pair, "peer", "name", "other", "netns", second)
        for host, address in zip(link.namespaces, OTHER, strict=True):
            _ip("-n", host, "addr", "add", f"{address}/24", "dev", "other")
            _ip("-n", host, "link", "set", "other", "up")
        for host, address in zip(link.namespaces, LABELLED, strict=True):
            label = ("dev", "other", "label", "other:1")
            _ip("-n", host, "addr", "add", f"{address}/24", *label)
        for host in link.namespaces:
            while "state UP" not in _ip("-n", host, "link", "show", "other"):
                pass
        yield link


@contextlib.contextmanager
def served(link, address, *arguments):
    with start(link.namespaces[1], SERVER, address, *arguments) as server:
        yield server.stdout.readline().strip()


def connect(link, *arguments):
    with start(link.namespaces[0], CLIENT, *arguments) as client:
        return client.communicate(timeout=30)[0].splitlines()


def test_bytes_are_counted_for_the_host_of_the_peer(hosts):
    source = "    print(ucp.metrics())\n"
    told = CLIENT.replace("    await ep.close()\n", source + "    await ep.close()\n")
    with (
        served(hosts, OTHER[1]) as port,
        start(hosts.namespaces[0], told, OTHER[1], port, "10") as client,
    ):
        lines = client.communicate(timeout=30)[0].splitlines()
    lines = [line for line in lines if "peer_host=" in line]
    label = f'worker="1",peer_host="{OTHER[1]}"'
    size = (1 << 20) + len(b"hello")
    assert f"ucp_peer_host_received_bytes_total{{{label}}} {size}" in lines
    assert f"ucp_peer_host_sent_bytes_total{{{label}}} {1 << 20}" in lines
    assert f'ucp_transport_info{{{label},transport="tcp"}} 1' in lines
    assert {line.split('_host="')[1].split('"')[0] for line in lines} == {OTHER[1]}


def test_a_listener_of_both_families_counts_for_the_name_of_ipv4(hosts):
    echo = "await ep.send_obj(await ep.recv_obj())\n"
    told = SERVER.replace(echo, echo + " " * 12 + "print(ucp.metrics(), flush=True)\n")
    with start(hosts.namespaces[1], told, "::") as server:
        port = server.stdout.readline().strip()
        assert connect(hosts, OTHER[1], port, 10)[1:] == ["hello", str(1 << 20)]
        line = next(x for x in server.stdout if "peer_host_sent_bytes_total{" in x)
    assert f'peer_host="{OTHER[0]}"' in line


@pytest.mark.parametrize("there", [OTHER[1], LABELLED[1]])
def test_data_go_over_the_network_by_which_the_program_connected(hosts, there):
    hosts.set(drop="both")
    with served(hosts, there) as port:
        assert connect(hosts, there, port, 10) == ["other", "hello", str(1 << 20)]


def test_the_other_network_is_taken_where_the_program_takes_it(hosts):
    with served(hosts, "192.0.2.2") as port:
        assert connect(hosts, "192.0.2.2", port, 10)[0] == DEVICE


def test_a_connection_is_open_when_ucx_has_been_answered(hosts, monkeypatch):
    hosts.set(drop="both")
    monkeypatch.setenv("UCX_NET_DEVICES", DEVICE)  # the program knows better
    with served(hosts, OTHER[1]) as port:
        [line] = connect(hosts, OTHER[1], port, 1)
    assert line.startswith(f"UCXTimeout connect to {OTHER[1]}:{port}: connected, but")
    assert f"by tcp/{DEVICE}, are not answered" in line


def test_the_first_message_of_a_server_that_closes_at_once_arrives(hosts):
    hosts.set(delay=0.02)
    with served(hosts, "192.0.2.2", "close") as port:
        assert connect(hosts, "192.0.2.2", port, 10, "close") == [DEVICE, "hello"]


@pytest.mark.parametrize("side", ["connecting", "listening"])
def test_who_has_no_network_is_told_at_both_ends(hosts, side):
    none = "import os; os.environ['UCX_NET_DEVICES'] = 'nosuch0'\n"
    programs = {"connecting": CLIENT, "listening": LOGGING + SERVER}
    programs[side] = none + programs[side]
    with start(hosts.namespaces[1], programs["listening"], "192.0.2.2") as server:
        lines = iter(server.stdout.readline, "")
        port = next(line.strip() for line in lines if line.strip().isdigit())
        arguments = ("192.0.2.2", port, 10)
        with start(hosts.namespaces[0], programs["connecting"], *arguments) as client:
            [line] = client.communicate(timeout=30)[0].splitlines()
        why = f"UCX has no network device on the {side} side: its options TLS and"
        assert line.startswith(f"UCXUnreachable connect to 192.0.2.2:{port}: ")
        assert why in line
        assert any(why in logged for logged in lines)


# Prints how long each network may be silent, in ms: the system ends sockets then.
LIMITS = """
import asyncio, os, signal, socket, sys, ucp
signal.alarm(30)

def limits():
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            sock = socket.socket(fileno=os.dup(int(name)))
        except OSError:
            continue
        with sock:
            if sock.family == socket.AF_INET and sock.type == socket.SOCK_STREAM:
                try:
                    device = sock.getpeername()[0].split(".")[0]
                except OSError:
                    continue
                limit = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
                found.add((device, limit))
    return sorted(found)

async def main(host, port):
    ucp.init(config=ucp.Config(heartbeat=20))
    if port == "0":
        listener = ucp.create_listener(host=host)
        print(listener.port, flush=True)
        ep = await anext(listener)
    else:
        ep = await ucp.create_endpoint(host, int(port))
    await ep.send_obj(b"x")
    await ep.recv_obj()
    print(limits(), flush=True)
    await asyncio.to_thread(sys.stdin.readline)

asyncio.run(main(*sys.argv[1:]))
"""


# UCX accepts a socket after the connection has opened where its network is slower.
@pytest.mark.parametrize("delay", [0, 0.05])
def test_the_network_of_the_data_may_not_be_silent_for_ever(hosts, delay, monkeypatch):
    """That of the connection ends first where both are silent."""
    monkeypatch.setenv("UCX_NET_DEVICES", DEVICE)
    hosts.set(delay=delay)
    first, second = hosts.namespaces
    with start(second, LIMITS, OTHER[1], 0) as server:
        port = server.stdout.readline().strip()
        with start(first, LIMITS, OTHER[1], port) as client:
            for process in client, server:
                line = process.stdout.readline()
                assert line == "[('192', 37500), ('198', 25000)]\n"
