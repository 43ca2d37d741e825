# SPDX-License-Identifier: BSD-3-Clause
# tests: ext/endpoint ucp/endpoint ucp/resolve
"""Connecting: what works, and each way it fails."""

import asyncio
import socket
import time

import pytest
from objects import kept_objects

import ucp
import ucp.sync
from ucp.testing import connected_pair, live_objects

pytestmark = pytest.mark.usefixtures("transport")


def ipv6_works():
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


needs_ipv6 = pytest.mark.skipif(not ipv6_works(), reason="no ::1 here")


async def test_a_closed_port_refuses_at_once(closed_port):
    start = time.monotonic()
    with pytest.raises(ucp.UCXNotConnected) as caught:
        await ucp.create_endpoint("127.0.0.1", closed_port)
    assert isinstance(caught.value, ConnectionRefusedError)
    assert caught.value.status == -24
    assert caught.value.peer == ("127.0.0.1", closed_port)
    assert time.monotonic() - start < 5  # not the connect timeout


async def test_a_mute_server_times_out(mute_server):
    with pytest.raises(ucp.UCXTimeout) as caught:
        await ucp.create_endpoint("127.0.0.1", mute_server, connect_timeout=0.3)
    assert isinstance(caught.value, TimeoutError)


async def test_the_timeout_of_init_is_the_default(mute_server):
    ucp.reset()
    ucp.init(connect_timeout=0.1)
    with pytest.raises(ucp.UCXTimeout):
        await ucp.create_endpoint("127.0.0.1", mute_server)


async def test_a_server_that_hangs_up_is_an_error():
    async def hang_up(_reader, writer):
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(ucp.UCXBaseException):
            await ucp.create_endpoint("127.0.0.1", port, connect_timeout=5)


async def test_a_cancelled_connect_leaves_nothing(mute_server):
    ucp.current_worker()
    before = kept_objects()
    task = asyncio.ensure_future(ucp.create_endpoint("127.0.0.1", mute_server))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    del task
    await ucp.testing.until(lambda: live_objects() == before)


async def test_a_name_with_two_addresses_tries_both():
    async with ucp.create_listener(host="127.0.0.1") as listener:
        ep = await ucp.create_endpoint("localhost", listener.port)
        other = await anext(listener)
        await ep.send(b"x")
        assert await other.recv_obj() == b"x"


NO_HOST = "no-such-host.invalid"


@pytest.mark.parametrize(
    "call",
    [
        lambda: ucp.create_endpoint(NO_HOST, 1),
        lambda: ucp.connect("127.0.0.1", 1, local_host=NO_HOST),
        lambda: ucp.create_listener(host=NO_HOST),
        lambda: ucp.Communicator.connect(f"tcp://{NO_HOST}:1", 1, 2),
        lambda: ucp.sync.connect(NO_HOST, 1),
        lambda: ucp.sync.Communicator.connect(f"tcp://{NO_HOST}:1", 1, 2),
    ],
)
async def test_an_unknown_name_is_an_oserror_that_tells_the_name(call):
    with pytest.raises(socket.gaierror, match=rf"\] host '{NO_HOST}': ") as caught:
        await call()
    assert caught.value.errno in (socket.EAI_NONAME, socket.EAI_AGAIN)


@needs_ipv6
async def test_ipv6_and_ipv4_work_side_by_side():
    for host in ("::1", "127.0.0.1"):
        async with connected_pair(host) as (client, server):
            assert client.peer_address[0] == host
            await client.send(b"six")
            assert await server.recv_obj() == b"six"


async def test_family_selects_addresses():
    with pytest.raises(socket.gaierror):
        await ucp.create_endpoint("::1", 1, family=socket.AF_INET)


async def test_local_host_is_the_source_address():
    async with ucp.create_listener(host="127.0.0.1") as listener:
        ep = await ucp.create_endpoint(
            "127.0.0.1", listener.port, local_host="127.0.0.1"
        )
        other = await anext(listener)
        assert other.peer_address[0] == "127.0.0.1"
        assert ep.peer_address == ("127.0.0.1", listener.port)


async def test_both_ends_know_their_addresses():
    async with connected_pair() as (client, server):
        assert client.peer_address == server.local_address
        assert client.local_address == server.peer_address


async def test_many_endpoints_share_a_listener(start_peer):
    peer = start_peer()
    port = await peer.do("listener.port")
    echo = peer.begin(
        "eps = [await anext(listener) for _ in range(50)]\n"
        "for ep in eps: await ep.send(await ep.recv_obj())\n"
    )
    eps = await asyncio.gather(
        *[ucp.create_endpoint("127.0.0.1", port) for _ in range(50)]
    )
    assert len({ep.uid for ep in eps}) == 50
    for number, ep in enumerate(eps):
        await ep.send(bytes([number]))
    assert [(await ep.recv_obj())[0] for ep in eps] == list(range(50))
    await peer.result(echo)


async def test_garbage_on_the_port_harms_nobody():
    async with ucp.create_listener(host="127.0.0.1") as listener:
        for garbage in (b"GET / HTTP/1.1\r\n\r\n", bytes(5000), b"\xff" * 100_000):
            with socket.create_connection(("127.0.0.1", listener.port)) as sock:
                sock.settimeout(5)
                try:
                    sock.sendall(garbage)
                except OSError:
                    pass  # hung up on: fine
        ep = await ucp.create_endpoint("127.0.0.1", listener.port)
        other = await anext(listener)
        await ep.send(b"fine")
        assert await other.recv_obj() == b"fine"


async def test_a_mute_client_harms_nobody():
    async with ucp.create_listener(host="127.0.0.1") as listener:
        with socket.create_connection(("127.0.0.1", listener.port)):
            ep = await ucp.create_endpoint("127.0.0.1", listener.port)
            other = await anext(listener)
            await ep.send(b"fine")
            assert await other.recv_obj() == b"fine"


async def test_the_wrong_token_is_refused(start_peer):
    peer = start_peer()
    await peer.do("listener.close(); ucp.reset()")
    await peer.do("ucp.init(config=ucp.Config(token=b'right'))")
    await peer.do("listener = ucp.create_listener(host='127.0.0.1')")
    port = await peer.do("listener.port")
    ucp.reset()
    ucp.init(config=ucp.Config(token=b"wrong"))
    with pytest.raises(ucp.UCXAuthError):
        await ucp.create_endpoint("127.0.0.1", port)
    ucp.reset()
    ucp.init(config=ucp.Config(token=b"right"))
    ep = await ucp.create_endpoint("127.0.0.1", port)
    await ep.close()


@pytest.mark.parametrize("host", ["fe80::1", "febf::2"])
async def test_a_link_local_address_needs_its_interface(host):
    words = rf"'{host}' is a link-local address: .*'{host}%eth0'"
    with pytest.raises(ValueError, match=words):
        await ucp.create_endpoint(host, 7)
    with pytest.raises(ValueError, match=words):
        ucp.create_listener(host=host)
