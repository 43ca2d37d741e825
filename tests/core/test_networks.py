# SPDX-License-Identifier: BSD-3-Clause
"""Peers in two network namespaces: a network between two hosts."""

import pytest
from networks import HOST, cut, first_device, ip, start

pytestmark = pytest.mark.default_workers  # namespaces have other devices

ECHO = """
import asyncio, sys, ucp

async def main(host, port):
    if port == "0":
        listener = ucp.create_listener(host=host)
        print(listener.port, flush=True)
        ep = await anext(listener)
    else:
        ep = await ucp.create_endpoint(host, int(port))
    for size in (1, 1 << 20):
        data = bytearray(size)
        if port == "0":
            await ep.recv(data)
            await ep.send(data)
        else:
            await ep.send(b"x" * size)
            await ep.recv(data)
            assert data == b"x" * size
    print(sorted({lane[0] for lane in ep.transports()}), flush=True)
    await ep.close()

asyncio.run(main(*sys.argv[1:]))
"""


CUT_OFF = """
import asyncio, sys, ucp

async def main(host, port):
    if port == "0":
        listener = ucp.create_listener(host=host)
        print(listener.port, flush=True)
        ep = await anext(listener)
    else:
        ep = await ucp.create_endpoint(host, int(port))
    await ep.send(b"x")
    await ep.recv(bytearray(1))
    receive = ep.recv(bytearray(1), tag=1)
    send = ep.send(bytearray(64 << 20), tag=2)  # nobody receives it
    print("connected", flush=True)
    for request in receive, send:
        try:
            await request
        except ucp.UCXConnectionReset as error:
            print(error.status, flush=True)

ucp.init(config=ucp.Config(heartbeat=0.3))
asyncio.run(main(*sys.argv[1:]))
"""


def test_peers_in_two_network_namespaces_use_the_network(namespaces):
    with start(namespaces[0], ECHO, HOST, "0") as server:
        port = server.stdout.readline().strip()
        with start(namespaces[1], ECHO, HOST, port) as client:
            assert client.communicate()[0] == "['tcp']\n"
        assert server.communicate()[0] == "['tcp']\n"
    assert (client.returncode, server.returncode) == (0, 0)


def test_peers_cut_off_from_each_other_find_out(namespaces):
    with start(namespaces[0], CUT_OFF, HOST, "0") as server:
        port = server.stdout.readline().strip()
        with start(namespaces[1], CUT_OFF, HOST, port) as client:
            assert server.stdout.readline() == "connected\n"
            assert client.stdout.readline() == "connected\n"
            cut(namespaces)
            assert client.communicate()[0] == "-80\n-80\n"
        assert server.communicate()[0] == "-80\n-80\n"
    assert (client.returncode, server.returncode) == (0, 0)


ADDRESS = """
import asyncio, sys, ucp

async def main(text=None):
    own = ucp.get_worker_address()
    print(bytes(own).hex(), flush=True)
    address = bytes.fromhex(text or input())
    ep = await ucp.create_endpoint_from_worker_address(address)
    other = await anext(ucp.accept_addressed())
    await ep.send(b"abc")
    assert await other.recv_obj() == b"abc"
    lanes = sorted({lane[0] for lane in ep.transports()})
    await ep.send(bytes(1 << 20), tag=1, force_tag=True)  # then the peer may close
    await ucp.recv(bytearray(1 << 20), 1)
    print(lanes, flush=True)
    await asyncio.gather(ep.close(), other.close())

asyncio.run(main(*sys.argv[1:]))
"""


def test_worker_addresses_lead_from_one_network_namespace_to_another(namespaces):
    with start(namespaces[0], ADDRESS) as first:
        text = first.stdout.readline().strip()
        with start(namespaces[1], ADDRESS, text) as second:
            first.stdin.write(second.stdout.readline())
            first.stdin.flush()
            assert second.communicate()[0] == "['tcp']\n"
        assert first.communicate()[0] == "['tcp']\n"
    assert (first.returncode, second.returncode) == (0, 0)


def test_a_worker_address_out_of_reach_is_refused(namespaces):
    """Without a network between them, the loopback of another is no way."""
    ip("-n", namespaces[0], "addr", "flush", "dev", first_device())
    program = """
import asyncio, sys, ucp

async def main(text=None):
    if text is None:
        print(bytes(ucp.get_worker_address()).hex(), flush=True)
        await asyncio.Event().wait()
    ep = await ucp.create_endpoint_from_worker_address(bytes.fromhex(text))
    try:
        await ep.send(b"abc")
    except ucp.UCXUnreachable:
        print("unreachable")

asyncio.run(main(*sys.argv[1:]))
"""
    with start(namespaces[0], program) as first:
        text = first.stdout.readline().strip()
        with start(namespaces[1], program, text) as second:
            assert second.communicate()[0] == "unreachable\n"
        first.kill()
