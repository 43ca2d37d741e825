# SPDX-License-Identifier: BSD-3-Clause
"""Endpoints from worker addresses."""

import asyncio
import gc
import os
import pickle

import numpy as np
import pytest

import ucp
from ucp.testing import connected_pair

SIZES = [0, 1, 8, 8191, 65_535, 65_537, 524_288, (1 << 20) + 1]


@pytest.fixture
def peer_address(start_peer):
    """Start a peer process; it, and its worker's address."""

    async def start(**env):
        peer = start_peer(**env)
        text = await peer.do("bytes(ucp.get_worker_address())")
        return peer, ucp.get_ucx_address_from_buffer(text)

    return start


# ---- addresses ---------------------------------------------------------------


async def test_an_address_is_bytes():
    address = ucp.get_worker_address()
    assert bytes(address) == bytearray(address) == memoryview(address)
    assert address.nbytes == address.length == len(bytes(address)) < 1000
    assert memoryview(address).readonly
    assert bytes(np.frombuffer(address, "u1")) == bytes(address)
    assert ucp.get_worker_address() == address
    assert repr(address).startswith("<ucp.UCXAddress of worker ")


async def test_an_address_survives_pickle_and_buffers():
    address = ucp.get_worker_address()
    data = bytes(address)
    for other in (
        pickle.loads(pickle.dumps(address)),
        ucp.get_ucx_address_from_buffer(address),
        ucp.get_ucx_address_from_buffer(bytearray(data)),
        ucp.get_ucx_address_from_buffer(np.frombuffer(data, "u1")),
        ucp.get_ucx_address_from_buffer(data + bytes(5000)),
    ):
        assert (other, hash(other), bytes(other)) == (address, hash(address), data)
    assert address != data
    assert {address: 1}[pickle.loads(pickle.dumps(address))] == 1
    with pytest.raises(TypeError):
        _ = address < address


BROKEN = {
    "empty": (lambda data: b"", r"it does not begin as one \(0 bytes, b''\)"),
    "foreign": (
        lambda data: b"not an address at all",
        r"it does not begin as one \(21 bytes, b'not an address a'\.\.\.\)",
    ),
    "cut": (lambda data: data[:-1], r"it is cut off \(\d+ bytes, b.UMXA.*\.\.\.\)"),
    "changed": (
        lambda data: data[:20] + bytes([data[20] ^ 1]) + data[21:],
        r"its checksum is wrong \(.*\)",
    ),
    "longer": (lambda data: data + b"x", r"something follows it \(.*\)"),
}


@pytest.mark.parametrize("name", BROKEN)
async def test_bytes_that_are_no_address_are_refused(name):
    change, words = BROKEN[name]
    data = change(bytes(ucp.get_worker_address()))
    match = rf"(?s)^not a worker address of ucp: {words}$"
    with pytest.raises(ValueError, match=match):
        ucp.get_ucx_address_from_buffer(data)
    with pytest.raises(ValueError, match=match):
        await ucp.create_endpoint_from_worker_address(data)


@pytest.mark.parametrize("thing", [None, 7, "text", 1.5], ids=repr)
async def test_what_is_no_buffer_is_refused(thing):
    with pytest.raises(TypeError):
        ucp.get_ucx_address_from_buffer(thing)
    with pytest.raises(TypeError):
        await ucp.create_endpoint_from_worker_address(thing)


async def test_addresses_of_workers_differ(peer_address):
    _, address = await peer_address()
    assert address != ucp.get_worker_address()


# ---- connecting --------------------------------------------------------------


async def test_messages_of_every_size_both_ways(transport, peer_address):
    peer, address = await peer_address()
    ep = await ucp.create_endpoint_from_worker_address(address)
    assert ep.state == "connecting"
    assert not ep.closed()
    echo = peer.begin(
        "ep = await anext(ucp.accept_addressed())\n"
        f"for size in {SIZES}:\n"
        "    await ep.send(await ep.recv_obj())\n"
        "    data = np.empty(size, 'u1')\n"
        "    await ucp.recv(data, 1)\n"
        "    await ep.send(data, tag=2, force_tag=True)\n"
    )
    for size in SIZES:
        data = np.arange(size, dtype="u4").astype("u1")
        back = np.zeros(size, "u1")
        await ep.send(data)
        await ep.recv(back)
        np.testing.assert_array_equal(back, data)
        back[:] = 0
        await ep.send(data, tag=1, force_tag=True)
        await ep.recv(back, tag=2, force_tag=True)
        np.testing.assert_array_equal(back, data)
    await peer.result(echo)
    assert ep.state == "open"
    assert ep.peer_address[0] in ("127.0.0.1", "::1")
    assert ep.transports()


async def test_nothing_waits_for_the_handshake(transport, peer_address):
    """The peer's loop stands still until all of it has been posted."""
    peer, address = await peer_address()
    peer.stop()
    ep = await ucp.create_endpoint_from_worker_address(address)
    assert ep.state == "connecting"
    large = bytes(range(256)) * 10_000
    sends = [
        asyncio.ensure_future(send)
        for send in (
            ep.send(b"one"),
            ep.send(large),
            ep.send(b"raw", tag=1, force_tag=True),
            ep.send_many([b"a", b"b"], tag=5),
            ep.flush(),
        )
    ]
    receive = ep.recv_obj(tag=9)
    peer.resume()
    echo = peer.begin(
        "ep = await anext(ucp.accept_addressed())\n"
        "assert await ep.recv_obj() == b'one'\n"
        "assert await ep.recv_obj() == bytes(range(256)) * 10_000\n"
        "await ucp.recv(bytearray(3), 1)\n"
        "assert [bytes(await ep.recv_obj(tag=5)) for _ in 'ab'] == [b'a', b'b']\n"
        "await ep.send(b'done', tag=9)\n"
    )
    assert await receive == b"done"
    await asyncio.gather(*sends)
    await peer.result(echo)


async def test_a_close_delivers_what_waits_for_the_handshake(peer_address):
    peer, address = await peer_address()
    ep = await ucp.create_endpoint_from_worker_address(address)
    sent = ep.send(b"message")
    raw = ep.send(b"raw", tag=1, force_tag=True)
    await ep.close()
    await sent
    await raw
    assert await peer.do(
        "bytes(await (await anext(ucp.accept_addressed())).recv_obj())"
    ) == (b"message")
    await peer.do("await ucp.recv(bytearray(3), 1)")


async def test_both_sides_connect_at_once(transport, peer_address):
    peer, address = await peer_address()
    own = bytes(ucp.get_worker_address())
    connecting = peer.begin(
        f"ep = await ucp.create_endpoint_from_worker_address({own})"
    )
    ep = await ucp.create_endpoint_from_worker_address(address)
    await peer.result(connecting)
    await ep.send(b"from here")
    there = peer.begin(
        "await ep.send(b'from there')\n"
        "other = await anext(ucp.accept_addressed())\n"
        "assert await other.recv_obj() == b'from here'\n"
    )
    other = await anext(ucp.accept_addressed())
    assert await other.recv_obj() == b"from there"
    await peer.result(there)


async def test_a_worker_connects_to_itself(transport):
    ep = await ucp.create_endpoint_from_worker_address(ucp.get_worker_address())
    other = await anext(ucp.accept_addressed())
    await ep.send(b"abc")
    assert await other.recv_obj() == b"abc"
    await other.send(b"def", tag=1, force_tag=True)
    back = bytearray(3)
    await ep.recv(back, tag=1, force_tag=True)
    assert back == b"def"
    await ep.close()
    await other.close()


async def test_addresses_and_listeners_share_what_is_between_workers(transport):
    async with connected_pair() as (client, server):
        address = ucp.get_worker_address()
        async with await ucp.create_endpoint_from_worker_address(address) as ep:
            async with await anext(ucp.accept_addressed()) as other:
                await ep.send(b"abc")
                await client.send(b"def")
                assert await other.recv_obj() == b"abc"
                assert await server.recv_obj() == b"def"


# ---- accepting ---------------------------------------------------------------


async def test_each_endpoint_goes_to_one_iterator():
    address = ucp.get_worker_address()
    taken = []

    async def take():
        async for ep in ucp.accept_addressed():
            taken.append(ep)

    tasks = [asyncio.ensure_future(take()) for _ in range(3)]
    eps = [await ucp.create_endpoint_from_worker_address(address) for _ in range(9)]
    for number, ep in enumerate(eps):
        await ep.send(bytes([number]))
    while len(taken) < 9:
        await asyncio.sleep(0)
    assert sorted([(await ep.recv_obj())[0] for ep in taken]) == [*range(9)]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for ep in eps + taken:
        await ep.close()


async def test_a_cancelled_iterator_loses_no_endpoint():
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(anext(ucp.accept_addressed()), 0.01)
    ep = await ucp.create_endpoint_from_worker_address(ucp.get_worker_address())
    await ep.send(b"abc")
    other = await anext(ucp.accept_addressed())
    assert await other.recv_obj() == b"abc"
    await ep.close()
    await other.close()


async def test_an_iterator_ends_with_the_worker(fresh_ucx):
    waiting = asyncio.ensure_future(anext(ucp.accept_addressed(), "the end"))
    await asyncio.sleep(0)
    ucp.reset()
    assert await waiting == "the end"


async def test_what_nobody_takes_ends_with_its_peer(transport, peer_address):
    peer, _ = await peer_address()
    before = ucp.current_worker().statistics.endpoints
    own = bytes(ucp.get_worker_address())
    for end in ("await ep.close()", "ep.abort()", "del ep; gc.collect()", None):
        await peer.do(
            f"ep = await ucp.create_endpoint_from_worker_address({own})\n"
            "await ep.flush()"
        )
        assert ucp.current_worker().statistics.endpoints == before + 1
        if end is None:
            peer.kill()
        else:
            await peer.do(end)
        while ucp.current_worker().statistics.endpoints != before:
            await asyncio.sleep(0.001)
    assert ucp.current_worker()._take_addressed() is None


async def test_messages_of_a_closed_peer_are_kept(peer_address):
    peer, _ = await peer_address()
    own = bytes(ucp.get_worker_address())
    await peer.do(
        f"ep = await ucp.create_endpoint_from_worker_address({own})\n"
        "await ep.send(b'last words')\n"
        "await ep.close()"
    )
    ep = await anext(ucp.accept_addressed())
    assert await ep.recv_obj() == b"last words"
    with pytest.raises(ucp.UCXCloseError):
        await ep.recv_obj()


async def test_untaken_endpoints_do_not_keep_reset_from_its_work(
    fresh_ucx, peer_address
):
    peer, _ = await peer_address()
    own = bytes(ucp.get_worker_address())
    await peer.do(
        f"ep = await ucp.create_endpoint_from_worker_address({own})\n"
        "await ep.flush()\n"
        "pending = asyncio.ensure_future(ep.recv_obj())"
    )
    ucp.reset()
    with pytest.raises(AssertionError, match=r"UCX(PeerClosed|ConnectionReset)\("):
        await peer.do("await pending")


async def test_an_iterator_needs_a_loop():
    with pytest.raises(RuntimeError, match=r"needs a running event loop$"):
        await asyncio.to_thread(ucp.accept_addressed)


# ---- nobody there ------------------------------------------------------------


async def dead_address(start_peer):
    peer = start_peer()
    data = await peer.do("bytes(ucp.get_worker_address())")
    peer.kill()
    return ucp.get_ucx_address_from_buffer(data)


async def test_the_address_of_a_dead_worker(transport, start_peer):
    address = await dead_address(start_peer)
    ep = await ucp.create_endpoint_from_worker_address(address)
    operations = [
        ep.send(b"abc"),
        ep.send(b"abc", tag=1, force_tag=True),
        ep.recv(bytearray(3)),
        ep.recv(bytearray(3), tag=1, force_tag=True),
        ep.flush(),
    ]
    for operation in operations:
        with pytest.raises(
            ucp.UCXNotConnected, match=r"Destination is unreachable|Endpoint timeout"
        ) as caught:
            await operation
        assert isinstance(caught.value, ucp.UCXWorkerGone)
        assert isinstance(caught.value, ucp.UCXError)  # of sends, in ucx-py
        assert isinstance(caught.value, ucp.UCXCanceled)  # of receives
        assert isinstance(caught.value, ConnectionRefusedError)
    with pytest.raises(ucp.UCXWorkerGone):
        await ep.send(b"abc")
    assert (ep.closed(), ep.state) == (True, "failed")
    await ep.close()


async def test_a_close_of_what_never_connected_does_not_fail(start_peer):
    ep = await ucp.create_endpoint_from_worker_address(await dead_address(start_peer))
    sent = asyncio.ensure_future(ep.send(b"abc"))
    await asyncio.sleep(0)
    await ep.close()
    with pytest.raises(ucp.UCXWorkerGone):
        await sent


async def test_a_peer_that_stands_still_is_a_timeout(peer_address):
    peer, address = await peer_address()
    peer.stop()
    ep = await ucp.create_endpoint_from_worker_address(address, connect_timeout=0.05)
    with pytest.raises(ucp.UCXTimeout):
        await ep.send(b"abc")
    peer.resume()


async def test_a_close_callback_is_called_when_nobody_is_there(start_peer):
    ep = await ucp.create_endpoint_from_worker_address(await dead_address(start_peer))
    closed = asyncio.Event()
    ep.set_close_callback(closed.set)
    await closed.wait()
    assert ep.closed()


async def test_the_peers_death_is_a_reset(transport, peer_address):
    peer, address = await peer_address()
    ep = await ucp.create_endpoint_from_worker_address(address)
    await ep.flush()
    receive = ep.recv(bytearray(1))
    peer.kill()
    with pytest.raises(ucp.UCXConnectionReset):
        await receive


async def test_an_endpoint_dropped_while_connecting_leaves_nothing(peer_address):
    _, address = await peer_address()
    before = ucp.current_worker().statistics.endpoints
    for _ in range(10):
        await ucp.create_endpoint_from_worker_address(address)
    gc.collect()
    while ucp.current_worker().statistics.endpoints != before:
        await asyncio.sleep(0.001)


# ---- many --------------------------------------------------------------------

# Workers, each with descriptors and memory of its own: `make soak` has 1000.
NUM_WORKERS = int(os.environ.get("UCP_WORKERS", "60"))

# Workers without a loop, in one process, and what they got.
WORKERS = """
from ucp import _ext
from ucp._core import context
workers = [
    _ext.Worker(context.get_context(), None, _ext.Endpoint, _ext.Listener)
    for _ in range(count)
]
eps = [worker._connect_address(address, None) for worker in workers]
sent = [ep.send(number.to_bytes(4, "little")) for number, ep in enumerate(eps, first)]
answers = [bytearray(4) for _ in eps]
received = [ep.recv(answer) for ep, answer in zip(eps, answers, strict=True)]
left = {*range(count)}
while left:
    for number in [*left]:
        workers[number].arm()
        if received[number].done() and sent[number].done():
            left.discard(number)
for number, answer in enumerate(answers, first):
    assert answer == (number ^ 0xFFFF).to_bytes(4, "little")
for worker in workers:
    worker.abort()
"""


@pytest.mark.timeout(600)
async def test_many_workers_connect_to_one(fresh_ucx, start_peer):
    # Many handshakes at once, on a machine that may have little to give.
    ucp.init(config=ucp.Config(connect_timeout=600))
    own = bytes(ucp.get_worker_address())
    count = NUM_WORKERS // 4
    connecting = []
    for first in range(0, 4 * count, count):
        peer = start_peer()
        await peer.do(f"count, first, address = {count}, {first}, {own}")
        connecting.append((peer, peer.begin(WORKERS)))
    accepted = {}
    async for ep in ucp.accept_addressed():
        accepted[int.from_bytes(await ep.recv_obj(), "little")] = ep
        if len(accepted) == 4 * count:
            break
    assert sorted(accepted) == [*range(4 * count)]
    for number, ep in accepted.items():
        await ep.send((number ^ 0xFFFF).to_bytes(4, "little"))
    for peer, request in connecting:
        await peer.result(request)
    for ep in accepted.values():
        ep.abort()


async def test_a_thousand_endpoints_on_one_worker(start_peer):
    """From workers of four processes."""
    own = bytes(ucp.get_worker_address())
    peers = [start_peer() for _ in range(4)]
    connecting = [
        peer.begin(
            "eps = [await ucp.create_endpoint_from_worker_address("
            f"{own}, connect_timeout=60) for _ in range(250)]\n"
            "for number, ep in enumerate(eps):\n"
            "    await ep.send(number.to_bytes(2, 'little'))\n"
            "    await ep.send(b'raw', tag=number, force_tag=True)\n"
            "assert [await ep.recv_obj() for ep in eps] == [b'back'] * 250"
        )
        for peer in peers
    ]
    numbers = []
    accepted = []
    async for ep in ucp.accept_addressed():
        accepted.append(ep)
        numbers.append(int.from_bytes(await ep.recv_obj(), "little"))
        await ep.send(b"back")
        if len(accepted) == 1000:
            break
    for peer, number in zip(peers, connecting, strict=True):
        await peer.result(number)
    assert sorted(numbers) == sorted([*range(250)] * 4)
    worker = ucp.current_worker()
    for number in range(250):
        for _ in range(4):
            assert await worker.recv(bytearray(3), number) == 3
    for ep in accepted:
        ep.abort()
