# SPDX-License-Identifier: BSD-3-Clause
# tests: compat/application_context compat/lib compat/lib_async compat/libucxx
# tests: compat/listener compat/testing compat/types compat/ucxx
"""Programs written for ucxx run with ``import ucp.compat.ucxx as ucxx``."""

import asyncio

import numpy as np
import pytest
from conftest import over_shm

import ucp
import ucp.compat.ucxx as ucxx
from ucp.compat.ucxx import exceptions
from ucp.testing import until

pytestmark = pytest.mark.usefixtures("transport")


@pytest.fixture
def pair():
    """Makes the two ends of a connection."""

    async def make():
        accepted = asyncio.get_running_loop().create_future()
        listener = ucxx.create_listener(accepted.set_result)
        client = await ucxx.create_endpoint("127.0.0.1", listener.port)
        server = await accepted
        listener.close()
        return client, server

    return make


async def test_the_tutorials_echo_program():
    async def echo(ep):
        size = np.empty(1, dtype=np.uint64)
        await ep.recv(size)
        data = np.empty(size[0], dtype=np.uint8)
        await ep.recv(data)
        await ep.send(data)
        await ep.close()
        listener.close()

    listener = ucxx.create_listener(echo)
    ep = await ucxx.create_endpoint(ucxx.get_address(ifname="lo"), listener.port)
    message = np.arange(1 << 20, dtype=np.uint8)
    await ep.send(np.array([message.nbytes], dtype=np.uint64))
    await ep.send(message)
    back = np.empty_like(message)
    await ep.recv(back)
    np.testing.assert_array_equal(back, message)
    await ep.close()
    assert ep.closed
    await until(lambda: listener.closed)
    await until(lambda: listener.active_clients == 0)


async def test_what_are_properties_there_are_properties(pair):
    client, server = await pair()
    assert client.alive
    assert not client.closed
    assert client.uid != server.uid
    assert client.ucp_endpoint == client.ucp.get_ucp_endpoint() != 0
    assert client.ucp_worker == ucxx.get_ucp_worker()
    for address in ("ucxx_endpoint", "ucxx_worker"):
        with pytest.raises(exceptions.UCXUnsupportedError):
            getattr(client, address)
    with pytest.raises(exceptions.UCXUnsupportedError):
        ucxx.get_ucxx_worker()
    await client.close()
    await client.close()
    assert (client.closed, client.alive) == (True, False)
    await until(lambda: server.closed)
    assert client.ucp_endpoint == 0
    assert repr(server).startswith("<ucxx.Endpoint on <ucp.Endpoint")
    server.abort()


async def test_a_listener_counts_its_clients():
    gate = asyncio.Event()

    async def wait(ep):
        await gate.wait()

    listener = ucxx.create_listener(wait, port=0)
    endpoints = [
        await ucxx.create_endpoint("127.0.0.1", listener.port) for _ in range(3)
    ]
    await until(lambda: listener.active_clients == 3)
    assert listener.ip == "0.0.0.0"
    assert listener.addresses[0] == ("0.0.0.0", listener.port)
    gate.set()
    await until(lambda: listener.active_clients == 0)
    listener.close()
    assert listener.closed
    assert repr(listener).startswith("<ucxx.Listener on <ucp.Listener")
    for ep in endpoints:
        ep.abort()


async def test_a_shorter_message_is_received_a_longer_one_is_not(pair):
    client, server = await pair()
    buffer = bytearray(8)
    await client.send(b"short")
    await server.recv(buffer)
    assert buffer == b"short\0\0\0"
    await client.send(b"far too long")
    with pytest.raises(exceptions.UCXMessageTruncatedError):
        await server.recv(buffer)
    client.abort()
    server.abort()


async def test_tags_and_raw_tags(pair):
    client, server = await pair()
    await client.send(b"tagged", tag="x")
    await client.send(b"raw", tag=ucxx.types.Tag(77), force_tag=True)
    await client.send(b"other", tag=78, force_tag=True)
    await client.send(b"plain")
    buffer = bytearray(5)
    await server.recv(buffer)
    assert buffer == b"plain"
    await ucxx.recv(buffer, 78)
    assert buffer == b"other"
    await server.recv(buffer, tag=77, force_tag=True)
    assert buffer[:3] == b"raw"
    assert await server.recv_obj(tag="x") == b"tagged"
    with pytest.raises(TypeError, match="force_tag"):
        await server.recv(buffer, force_tag=True)
    assert (ucxx.types.Tag(7).value, ucxx.types.TagMaskFull) == (7, 2**64 - 1)
    client.abort()
    server.abort()


async def test_a_longer_raw_message_is_not_received(pair):
    client, server = await pair()
    await client.send(b"far too long", tag=77, force_tag=True)
    with pytest.raises(exceptions.UCXMessageTruncatedError):
        await server.recv(bytearray(8), tag=77, force_tag=True)
    client.abort()
    server.abort()


async def test_raw_receives_end_with_their_endpoint(pair):
    client, server = await pair()
    buffer = bytearray(4)
    pending = asyncio.ensure_future(server.recv(buffer, tag=1, force_tag=True))
    await asyncio.sleep(0)
    await client.send(b"last", tag=2, force_tag=True)
    await client.close()
    with pytest.raises(exceptions.UCXCanceledError):
        await pending
    await until(lambda: server.closed)
    await server.recv(buffer, tag=2, force_tag=True)
    assert buffer == b"last"
    with pytest.raises(exceptions.UCXCloseError):
        await server.recv(buffer, tag=2, force_tag=True)


async def test_endpoints_from_worker_addresses():
    address = ucxx.get_ucx_address_from_buffer(bytes(ucxx.get_worker_address()))
    ep = await ucxx.create_endpoint_from_worker_address(address)
    await ep.send(b"raw", tag=3, force_tag=True)
    buffer = bytearray(3)
    await ucxx.recv(buffer, 3)
    assert buffer == b"raw"
    await ep.close()


async def test_objects_and_active_messages(pair):
    client, server = await pair()
    await client.send_obj(b"object")
    assert await server.recv_obj(allocator=np.zeros) is not None
    await client.am_send(np.arange(10, dtype="u1"))
    received = await server.am_recv()
    assert isinstance(received, np.ndarray)
    assert received.tolist() == list(range(10))
    client.abort()
    server.abort()


@pytest.mark.parametrize("force_tag", [False, True])
@pytest.mark.parametrize("sizes", [[], [0], [5, 0, 100_000], [1] * 300])
async def test_many_buffers_are_one_message(pair, sizes, force_tag):
    client, server = await pair()
    buffers = [np.full(size, number % 256, "u1") for number, size in enumerate(sizes)]
    tag = 9 if force_tag else None
    receiving = asyncio.ensure_future(server.recv_multi(tag, force_tag))
    await client.send_multi(buffers, tag, force_tag)
    received = await receiving
    assert [part.tobytes() for part in received] == [b.tobytes() for b in buffers]
    client.abort()
    server.abort()


async def test_many_buffers_come_in_a_list(pair):
    client, server = await pair()
    with pytest.raises(ValueError, match=r"^The `buffers` argument must be a `list`"):
        await client.send_multi(b"x")
    client.abort()
    server.abort()


@pytest.mark.parametrize("force_tag", [False, True])
async def test_a_probed_message_can_be_received_by_its_handle(pair, force_tag):
    client, server = await pair()
    assert not server.tag_probe(5, force_tag)
    await client.send(b"found", tag=5, force_tag=force_tag)
    await until(lambda: server.tag_probe(5, force_tag))
    found = server.tag_probe(5, force_tag)
    assert (found.matched, found.sender_tag, found.length) == (True, 5, 5)
    assert found.handle is None
    with pytest.raises(ValueError, match=r"^a probe with remove=True"):
        await server.recv_with_handle(bytearray(5), found)
    taken = server.tag_probe(5, force_tag, remove=True)
    assert not server.tag_probe(5, force_tag)
    buffer = bytearray(5)
    await server.recv_with_handle(buffer, taken)
    assert buffer == b"found"
    client.abort()
    server.abort()


async def test_every_error_is_one_of_ucxxs(closed_port, pair):
    with pytest.raises(exceptions.UCXNotConnectedError) as caught:
        await ucxx.create_endpoint("127.0.0.1", closed_port)
    assert isinstance(caught.value, ConnectionRefusedError)
    assert caught.value.status == -24
    assert isinstance(caught.value.__cause__, ucp.UCXNotConnected)
    client, server = await pair()
    pending = asyncio.ensure_future(server.recv(bytearray(1)))
    await asyncio.sleep(0)
    await client.close()
    with pytest.raises(exceptions.UCXCloseError) as caught:
        await pending
    assert isinstance(caught.value, exceptions.UCXCanceled)
    with pytest.raises(exceptions.UCXCloseError, match=r"^Endpoint closed by "):
        await client.send(b"x")
    server.abort()


async def test_a_mute_server_is_a_timeout(mute_server):
    with pytest.raises(exceptions.UCXTimedOutError) as caught:
        await ucxx.create_endpoint("127.0.0.1", mute_server, connect_timeout=0.05)
    assert isinstance(caught.value, TimeoutError)


async def test_a_killed_peer_is_a_reset(start_peer):
    peer = start_peer()
    ep = await ucxx.create_endpoint("127.0.0.1", await peer.do("listener.port"))
    await peer.do("ep = await anext(listener)")
    pending = asyncio.ensure_future(ep.recv(bytearray(1)))
    await asyncio.sleep(0)
    peer.kill()
    with pytest.raises(exceptions.UCXConnectionResetError):
        await pending
    await ep.close()


@pytest.mark.parametrize(
    "kind",
    [
        exceptions.UCXUnreachableError,
        exceptions.UCXConnectionResetError,
        exceptions.UCXEndpointTimeoutError,
        exceptions.UCXNotConnectedError,
    ],
)
async def test_the_address_of_a_dead_worker(start_peer, kind):
    peer = start_peer()
    address = await peer.do("bytes(ucp.get_worker_address())")
    peer.kill()
    ep = await ucxx.create_endpoint_from_worker_address(
        ucxx.get_ucx_address_from_buffer(address)
    )
    operations = [
        ep.send(b"x", tag=0, force_tag=True),
        ep.recv(bytearray(1), tag=0, force_tag=True),
        ep.am_send(b"x"),
        ep.am_recv(),
    ]
    for operation in operations:
        with pytest.raises(kind, match=r"Destination is unreachable"):
            await operation
    assert not ep.alive


async def test_close_has_a_bound(start_peer):
    peer = start_peer()
    ep = await ucxx.create_endpoint("127.0.0.1", await peer.do("listener.port"))
    await peer.do("ep = await anext(listener)")
    peer.stop()
    await ep.close(period=10**7)
    assert ep.closed


async def test_callbacks_and_counts_close(pair):
    client, server = await pair()
    calls = []
    server.set_close_callback(
        lambda *args, **kwargs: calls.append((args, kwargs)), (1, 2), {"three": 3}
    )
    server.close_after_n_recv(1)
    with pytest.raises(exceptions.UCXError, match="already been set"):
        server.close_after_n_recv(2)
    await client.send(b"x")
    await server.recv(bytearray(1))
    await until(lambda: calls)
    assert calls == [((1, 2), {"three": 3})]
    client.abort()


@over_shm
def test_init_checks_what_ucxx_checks(fresh_ucx):
    with pytest.raises(ValueError, match=r"^Unknown progress mode spin"):
        ucxx.init(progress_mode="spin")
    with pytest.raises(exceptions.UCXConfigError):
        ucxx.init({"NO_SUCH_OPTION": "y"})
    with pytest.raises(exceptions.UCXInvalidParamError):
        ucxx.init({"SEG_SIZE": "invalid"})
    ucxx.init({"TLS": "tcp"}, progress_mode="thread", enable_python_future=True)
    assert ucxx.get_config()["TLS"] == "tcp"
    with pytest.raises(RuntimeError, match="already initiated"):
        ucxx.init()
    ucxx.stop_notifier_thread()
    ucxx.reset()


@over_shm
async def test_reset_names_what_is_open():
    listener = ucxx.create_listener(print)
    with pytest.raises(exceptions.UCXError, match=r"^Trying to reset UCX but not all"):
        ucxx.reset()
    listener.close()


@over_shm
def test_every_exception_is_a_ucxxs_error():
    names = [name for name in vars(exceptions) if name.startswith("UCX")]
    assert len(names) == 35
    for name in names:
        assert issubclass(getattr(exceptions, name), exceptions.UCXError)


@over_shm
def test_every_exception_of_ucp_has_one_here():
    kinds = [kind for name, kind in vars(ucp).items() if name.startswith("UCX")]
    for kind in kinds:
        if issubclass(kind, ucp.UCXBaseException):
            error = exceptions.translate(kind("text"))
            assert isinstance(error, exceptions.UCXError)
            assert str(error) == "text"
