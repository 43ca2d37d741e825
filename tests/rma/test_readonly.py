# SPDX-License-Identifier: BSD-3-Clause
# tests: ext/memory_kind
"""Memory that its owner writes and peers only read."""

import asyncio
import gc

import numpy as np
import pytest
from conftest import TLS

import ucp

READONLY = "ucp.Memory.allocate(4096, readonly=True)"


@pytest.fixture
def connect(connect_peer):
    """A peer's read-only memory, which begins with a text."""

    async def connect():
        peer, ep = await connect_peer()
        await peer.do(f"memory = {READONLY}")
        await peer.do("memoryview(memory)[:4] = b'text'")
        return peer, ep.remote(await peer.do("memory.key"))

    return connect


async def test_the_owner_writes_and_the_peer_reads(connect):
    peer, remote = await connect()
    assert remote.mapped
    assert remote.readonly
    assert await peer.do("(memory.readonly, memoryview(memory).readonly)") == (
        True,
        False,
    )
    view = remote.view()
    assert view.readonly
    assert view[:4] == b"text"
    await peer.do("np.asarray(memory)[:4] = 7")
    assert view[:4] == b"\7\7\7\7"
    back = bytearray(8)
    await remote.get(back)
    assert back == b"\7\7\7\7\0\0\0\0"
    with pytest.raises(ValueError, match="read-only"):
        np.asarray(view)[0] = 1


async def test_what_writes_is_refused(connect):
    peer, remote = await connect()
    for write in (
        lambda: remote.put(b"x"),
        lambda: remote.put_many([(b"x", 0)]),
        lambda: remote.put_many(b"x", np.array([0]), 1),
        lambda: remote.put_signal(b"x", 0, 8, 1),
        lambda: remote.add(0, 1),
        lambda: remote.swap(0, 1),
    ):
        with pytest.raises(ucp.UCXError, match="read-only"):
            await write()
    assert await peer.do("bytes(memory)[:8]") == b"text\0\0\0\0"


@pytest.fixture
def over_tcp():
    ucp.reset()
    ucp.init(options=TLS["tcp"])
    yield
    ucp.reset()


@pytest.mark.usefixtures("over_tcp")
async def test_where_it_is_not_mapped_the_owner_refuses(connect_peer):
    peer, ep = await connect_peer(UCX_TLS="tcp")
    await peer.do(f"memory = {READONLY}")
    remote = ep.remote(await peer.do("memory.key"))
    assert not remote.mapped
    with pytest.raises(ucp.UCXError, match="read-only"):
        await remote.put(b"x")
    await remote.get(bytearray(4096))


async def test_the_owner_knows_who_has_mapped_it(connect):
    peer, remote = await connect()
    asks = "memory.is_mapped_elsewhere()"
    assert await peer.do(asks)
    view = remote.view(0, 10)
    del remote
    gc.collect()
    assert await peer.do(asks)
    view.release()
    del view
    gc.collect()
    async with asyncio.timeout(10):
        while await peer.do(asks):  # until this process has made progress
            pass


async def test_a_peer_that_is_killed_has_it_mapped_no_more(connect_peer):
    memory = ucp.Memory.allocate(100, readonly=True)
    assert not memory.is_mapped_elsewhere()
    peer, _ep = await connect_peer()
    await peer.do(f"remote = ep.remote({memory.key!r})")
    await peer.do("await remote.get(bytearray(1))")
    assert await peer.do("remote.mapped")
    assert memory.is_mapped_elsewhere()
    peer.kill()
    assert not memory.is_mapped_elsewhere()


@pytest.mark.usefixtures("fresh_ucx")
class TestOwner:
    def test_registered_memory_is_nowhere_mapped(self):
        with ucp.Memory.register(bytearray(8)) as memory:
            assert not memory.is_mapped_elsewhere()

    def test_closed_memory_is_refused(self):
        memory = ucp.Memory.allocate(8, readonly=True)
        memory.close()
        with pytest.raises(ucp.UCXError, match="closed"):
            memory.is_mapped_elsewhere()

    @pytest.mark.parametrize("kind", ["pinned", "cuda", "cuda-managed"])
    def test_memory_of_a_driver_cannot_be_so(self, kind):
        text = f"^memory of kind '{kind}' cannot be read-only"
        with pytest.raises(ValueError, match=text):
            ucp.Memory.allocate(8, kind, readonly=True)
