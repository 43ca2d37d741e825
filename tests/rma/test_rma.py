# SPDX-License-Identifier: BSD-3-Clause
# tests: ext/atomic ext/memh ext/rkey ucp/memory
"""Memory that peers read and write."""

import asyncio
import gc
import pickle
import weakref

import numpy as np
import pytest
from conftest import TLS

import ucp
import ucp.testing

MIB = 1 << 20


def allocate(nbytes):
    return f"ucp.Memory.allocate({nbytes})"


# ---- the owner's side ------------------------------------------------------


@pytest.mark.usefixtures("fresh_ucx")
class TestMemory:
    def test_allocated_memory_is_zeros_and_writable(self):
        with ucp.Memory.allocate(1000) as memory:
            array = np.asarray(memory)
            assert array.nbytes == memory.nbytes == 1000
            assert not array.any()
            array[:] = 7
            assert bytes(memory) == b"\x07" * 1000
            assert not memory.readonly

    def test_array_interface_is_the_memory(self):
        with ucp.Memory.allocate(16) as memory:
            face = memory.__array_interface__
            assert face["data"] == (memory.address, False)
            assert face["shape"] == (16,)
            assert face["typestr"] == "|u1"

    @pytest.mark.parametrize(
        ("buffer", "readonly"),
        [
            (bytearray(24), False),
            (bytes(24), True),
            (np.zeros(3, "M8[s]"), False),
            (memoryview(bytes(24)), True),
        ],
    )
    def test_registered_memory_is_the_buffer(self, buffer, readonly):
        with ucp.Memory.register(buffer) as memory:
            assert memory.nbytes == 24
            assert memory.readonly is readonly
            assert memoryview(memory).readonly is readonly

    def test_no_bytes_are_memory_too(self):
        with ucp.Memory.register(b"") as memory, ucp.Memory.allocate(0) as other:
            assert memory.nbytes == other.nbytes == 0

    def test_a_registered_buffer_is_held(self):
        buffer = bytearray(8)
        memory = ucp.Memory.register(buffer)
        with pytest.raises(BufferError):
            buffer.append(1)
        memory.close()
        buffer.append(1)

    def test_views_keep_closed_memory(self):
        memory = ucp.Memory.allocate(MIB)
        array = np.asarray(memory)
        memory.close()
        array[-1] = 3
        assert array[-1] == 3
        with pytest.raises(BufferError, match=r"^the memory is closed$"):
            memoryview(memory)

    def test_views_keep_a_closed_memorys_buffer(self):
        buffer = bytearray(8)
        memory = ucp.Memory.register(buffer)
        with memoryview(memory):
            memory.close()
            with pytest.raises(BufferError):
                buffer.append(1)
        buffer.append(1)

    def test_a_closed_memory_has_no_key(self):
        memory = ucp.Memory.allocate(8)
        memory.close()
        memory.close()
        assert memory.closed()
        with pytest.raises(ucp.UCXInvalidKey):
            _ = memory.key
        assert repr(memory) == "<ucp.Memory of closed>"

    def test_keys_are_plain_bytes(self):
        with ucp.Memory.allocate(8) as one, ucp.Memory.allocate(8) as other:
            assert one.key != other.key
            assert pickle.loads(pickle.dumps(one.key)) == one.key

    @pytest.mark.parametrize("buffer", [3, "text", np.zeros((4, 4))[:, 1]])
    def test_what_is_no_memory_is_refused(self, buffer):
        with pytest.raises((TypeError, ValueError)):
            ucp.Memory.register(buffer)

    def test_bad_sizes_and_kinds_are_refused(self):
        with pytest.raises(ValueError, match=r"^nbytes is -1$"):
            ucp.Memory.allocate(-1)
        with pytest.raises(ValueError, match=r"^kind is 'host', .* not 'disk'$"):
            ucp.Memory.allocate(8, "disk")
        with pytest.raises(MemoryError):
            ucp.Memory.allocate(1 << 60)

    def test_open_memory_is_named_by_reset(self):
        memory = ucp.Memory.allocate(8)
        with pytest.raises(ucp.UCXError, match=r"ucp\.Memory of 8 bytes"):
            ucp.reset()
        memory.close()
        ucp.reset()

    def test_a_cycle_with_its_buffer_is_collected(self):
        class Owner(np.ndarray):
            pass

        array = np.zeros(8).view(Owner)
        array.memory = ucp.Memory.register(array)
        gone = weakref.ref(array)
        del array
        gc.collect()
        assert gone() is None


# ---- the peer's side -------------------------------------------------------


@pytest.mark.usefixtures("fresh_ucx")
class TestMapped:
    """Behaviour of memory that is mapped."""

    async def test_allocated_memory_is_mapped(self, connect_memory):
        _peer, remote = await connect_memory(allocate(8))
        assert remote.mapped
        assert repr(remote) == "<ucp.RemoteMemory of 8 bytes, mapped>"

    async def test_operations_are_done_at_once(self, connect_memory):
        _peer, remote = await connect_memory(allocate(MIB))
        for request in (
            remote.put(bytes(MIB)),
            remote.get(bytearray(MIB)),
            remote.fetch_add(0, 1),
            remote.put_many([(b"x", 0)] * 10),
        ):
            assert request.done()

    async def test_operations_need_no_progress_of_the_owner(self, connect_memory):
        peer, remote = await connect_memory(allocate(8))
        peer.stop()
        await remote.add(0, 3)
        assert await remote.fetch_add(0, 3) == 3
        peer.resume()
        assert await peer.do("memoryview(memory)[0]") == 6

    async def test_a_view_is_the_memory(self, connect_memory):
        peer, remote = await connect_memory(allocate(64))
        view = np.frombuffer(remote.view(8, 16), "i8")
        await peer.do("np.asarray(memory).view('i8')[:] = range(8)")
        assert list(view) == [1, 2]
        view[0] = -5
        assert await peer.do("int(np.asarray(memory).view('i8')[1])") == -5

    async def test_a_view_outlives_everything(self, connect_memory):
        peer, remote = await connect_memory(allocate(64))
        view = np.asarray(remote.view())
        await remote.put(b"abc")
        endpoint = remote.endpoint
        remote.close()
        del remote
        await endpoint.close()
        peer.kill()
        assert bytes(view[:3]) == b"abc"

    async def test_a_view_outlives_the_worker(self, connect_memory):
        _peer, remote = await connect_memory(allocate(64))
        view = np.asarray(remote.view())
        await remote.endpoint.close()
        worker = ucp.current_worker()
        worker.abort()
        view[0] = 1
        del view, remote
        gc.collect()

    async def test_a_view_is_within_the_memory(self, connect_memory):
        _peer, remote = await connect_memory(allocate(64))
        assert remote.view(64).nbytes == 0
        with pytest.raises(IndexError):
            remote.view(0, 65)
        with pytest.raises(IndexError):
            remote.view(65)


# Sizes on both sides of every switch: inline, one frame, eager, rendezvous.
SIZES = [0, 1, 8, 92, 8192, 65535, 65536, 65537, 256 * 1024, 256 * 1024 + 1, 3 * MIB]


def register(nbytes):
    return f"ucp.Memory.register(bytearray({nbytes}))"


@pytest.fixture(params=["mapped", "shm", "tcp"])
def make(request):
    """Mapped memory; memory that is not, over shared memory and over tcp."""
    tls = "tcp" if request.param == "tcp" else "shm"
    ucp.reset()
    ucp.init(options=TLS[tls])
    yield allocate if request.param == "mapped" else register
    ucp.reset()


@pytest.fixture
def connect_memory(connect_peer, request):
    """Connect; the peer has ``memory``, we have it as a RemoteMemory."""

    async def connect(source):
        env = {}
        if "make" in request.fixturenames:
            if request.node.callspec.params["make"] == "tcp":
                env["UCX_TLS"] = "tcp"
        peer, ep = await connect_peer(**env)
        await peer.do(f"memory = {source}")
        return peer, ep.remote(await peer.do("memory.key"))

    return connect


@pytest.fixture
def connect_self(make):
    """Connect both ends in this process: refusals need no second one."""
    kept = []

    async def connect(source):
        memory = eval(source, {"ucp": ucp})
        kept.append(memory)
        listener = ucp.create_listener(host="127.0.0.1")
        ep = await ucp.create_endpoint("127.0.0.1", listener.port)
        kept.append(await anext(listener))
        return memory, ep.remote(memory.key)

    yield connect
    kept.clear()


class TestRemote:
    """Behaviour that does not depend on how operations are executed."""

    async def test_bytes_go_there_and_back(self, connect_memory, make):
        _peer, remote = await connect_memory(make(4 * MIB))
        assert remote.nbytes == 4 * MIB
        rng = np.random.default_rng(1)
        for size in SIZES:
            out = rng.bytes(size)
            await remote.put(out, 5)
            back = bytearray(size)
            await remote.get(back, 5)
            assert back == out

    async def test_a_put_is_in_the_owners_memory(self, connect_memory, make):
        peer, remote = await connect_memory(make(16))
        await remote.put(b"abc", 1)
        assert await peer.do("bytes(memory)") == b"\0abc" + bytes(12)

    async def test_arrays_are_buffers(self, connect_memory, make):
        _peer, remote = await connect_memory(make(800))
        await remote.put(np.arange(100.0))
        array = np.empty((10, 10))
        await remote.get(array)
        assert (array.ravel() == np.arange(100.0)).all()

    async def test_lists_are_one_await(self, connect_memory, make):
        peer, remote = await connect_memory(make(MIB))
        out = np.arange(MIB // 8)
        pieces = [(out[i : i + 512], 8 * i) for i in range(0, len(out), 512)]
        await remote.put_many(pieces)
        assert await peer.do(
            "bool((np.frombuffer(memory, 'i8') == np.arange(1 << 17)).all())"
        )
        back = np.zeros_like(out)
        places = [(back[i : i + 512], 8 * i) for i in range(0, len(out), 512)]
        await remote.get_many(places[::-1])
        assert (back == out).all()
        await remote.put_many([])

    @pytest.mark.parametrize("bits", [32, 64])
    async def test_atomic_operations(self, connect_memory, make, bits):
        _peer, remote = await connect_memory(make(64))
        ones = 2**bits - 1
        assert await remote.fetch_add(8, 5, bits) == 0
        assert await remote.add(8, -6, bits) is None
        assert await remote.fetch_and(8, 0xF0, bits) == ones
        await remote.and_(8, 0x30, bits)
        assert await remote.fetch_or(8, 1, bits) == 0x30
        await remote.or_(8, 2, bits)
        assert await remote.fetch_xor(8, 0xFF, bits) == 0x33
        await remote.xor(8, 1, bits)
        assert await remote.swap(8, ones, bits) == 0xCD
        assert await remote.cswap(8, 3, 4, bits) == ones
        assert await remote.cswap(8, -1, 4, bits) == ones
        assert await remote.fetch_add(8, 0, bits) == 4
        neighbours = bytearray(16)
        await remote.get(neighbours)
        assert neighbours == bytes(8) + b"\4" + bytes(7)

    async def test_no_addition_is_lost(self, connect_memory, make):
        _peer, remote = await connect_memory(make(8))
        adds = [remote.fetch_add(0, 1) for _ in range(1000)]
        values = [await add for add in adds]
        assert sorted(values) == list(range(1000))

    async def test_a_signal_follows_its_bytes(self, connect_memory, make):
        peer, remote = await connect_memory(make(8 * MIB + 8))
        check = peer.begin(
            "array = np.frombuffer(memory, 'u1')\n"
            "flag = np.frombuffer(memory, 'u8')[:1]\n"
            "while not flag[0]:\n"
            "    await asyncio.sleep(0)\n"
            "assert (array[8:] == 7).all()\n"
        )
        out = np.full(8 * MIB, 7, "u1")
        await remote.put_signal(out, 8, 0, 1)
        await peer.result(check)
        await remote.put_signal(b"", 0, 0, 2, "add")
        assert await peer.do("int(flag[0])") == 3

    async def test_a_fence_keeps_the_order(self, connect_memory, make):
        peer, remote = await connect_memory(make(8 * MIB + 8))
        put = remote.put(np.full(8 * MIB, 7, "u1"), 8)
        ucp.fence()
        assert await remote.fetch_add(0, 1) == 0
        assert await peer.do("bool((np.frombuffer(memory, 'u1')[8:] == 7).all())")
        await put

    async def test_a_flush_covers_puts(self, connect_memory, make):
        peer, remote = await connect_memory(make(3 * MIB))
        for flush in (remote.flush, remote.endpoint.flush, ucp.flush):
            put = remote.put(np.full(3 * MIB, 7, "u1"))
            await flush()
            assert await peer.do("bool((np.frombuffer(memory, 'u1') == 7).all())")
            await peer.do("np.frombuffer(memory, 'u1')[:] = 0")
            await put

    async def test_out_of_range_is_an_index_error(self, connect_self, make):
        _memory, remote = await connect_self(make(16))
        text = r"^8 bytes at offset 9 are out of the memory's 16$"
        with pytest.raises(IndexError, match=text):
            remote.put(bytes(8), 9)
        with pytest.raises(IndexError):
            remote.get(bytearray(1), 16)
        with pytest.raises(IndexError):
            remote.put(b"", -1)
        with pytest.raises(IndexError):
            remote.put(b"x", 2**64)
        with pytest.raises(IndexError):
            remote.get_many([(bytearray(8), 0), (bytearray(8), 2**64 - 4)])
        with pytest.raises(IndexError):
            remote.add(16, 1)
        with pytest.raises(IndexError):
            remote.put_signal(b"x", 0, 16, 1)

    async def test_bad_arguments_are_refused(self, connect_self, make):
        _memory, remote = await connect_self(make(16))
        with pytest.raises(ValueError, match=r"^bits is 32 or 64, not 16$"):
            remote.add(0, 1, 16)
        with pytest.raises(ValueError, match="is not a multiple of that"):
            remote.add(4, 1)
        with pytest.raises(OverflowError, match="does not fit in 64 bits"):
            remote.add(0, 2**64)
        with pytest.raises(OverflowError, match="does not fit in 32 bits"):
            remote.add(0, -(2**31) - 1, 32)
        with pytest.raises(ValueError, match=r"^op is 'set' or 'add', not 'mul'$"):
            remote.put_signal(b"", 0, 0, 1, "mul")
        with pytest.raises(TypeError, match="expected a tuple"):
            remote.put_many([b"x"])
        with pytest.raises(ValueError, match="read-only"):
            remote.get(b"x")
        with pytest.raises(TypeError):
            remote.put("text")
        with pytest.raises(TypeError):
            remote.put(b"x", 1.5)

    async def test_readonly_memory_is_not_written(self, connect_self):
        memory, remote = await connect_self("ucp.Memory.register(b'read only')")
        assert remote.readonly
        for call in (
            lambda: remote.put(b"x"),
            lambda: remote.put_many([(b"x", 0)]),
            lambda: remote.add(0, 1),
            lambda: remote.put_signal(b"x", 0, 0, 1),
        ):
            with pytest.raises(ucp.UCXError, match="read-only"):
                call()
        back = bytearray(9)
        await remote.get(back)
        assert back == bytes(memory) == b"read only"

    async def test_keys_of_closed_memory_are_refused(self, connect_self, make):
        memory, remote = await connect_self(make(16))
        key = memory.key
        memory.close()
        with pytest.raises(ucp.UCXInvalidKey, match="closed"):
            await remote.put(b"x")
        with pytest.raises(ucp.UCXInvalidKey):
            await remote.fetch_add(0, 1)
        late = remote.endpoint.remote(key)
        with pytest.raises(ucp.UCXInvalidKey):
            await late.get(bytearray(1))

    async def test_keys_of_other_processes_are_refused(self, connect_memory, make):
        _peer, remote = await connect_memory(make(16))
        with ucp.Memory.allocate(16) as mine, pytest.raises(ucp.UCXInvalidKey):
            remote.endpoint.remote(mine.key)

    async def test_damaged_keys_are_refused(self, connect_self, make):
        memory, remote = await connect_self(make(16))
        key = memory.key
        for wrong in (b"", key[:-1], key + b"x", bytes(len(key)), b"x" + key[1:]):
            with pytest.raises(ucp.UCXInvalidKey):
                remote.endpoint.remote(wrong)
        with pytest.raises(TypeError):
            remote.endpoint.remote("key")

    async def test_a_closed_remote_memory_is_refused(self, connect_self, make):
        _memory, remote = await connect_self(make(16))
        remote.close()
        text = r"^RemoteMemory closed by close\(\) in this process$"
        for operation in (
            remote.put(b"x"),
            remote.put_many([(b"x", 0)]),
            remote.get(bytearray(1)),
            remote.add(0, 1),
            remote.fetch_add(0, 1),
        ):
            with pytest.raises(ucp.UCXCloseError, match=text):
                await operation

    async def test_the_number_of_a_signal_is_in_a_closed_memory(
        self, connect_self, make
    ):
        memory, remote = await connect_self(make(16))
        signals = remote.endpoint.remote(memory.key)
        signals.close()
        with pytest.raises(ucp.UCXCloseError, match=r"^RemoteMemory closed"):
            await remote.put_signal(b"x", 8, 0, 1, signal_memory=signals)

    async def test_a_closed_endpoint_is_refused(self, connect_self, make):
        memory, remote = await connect_self(make(16))
        remote.endpoint.abort()
        with pytest.raises(ucp.UCXCloseError):
            await remote.put(b"x")
        with pytest.raises(ucp.UCXCloseError):
            remote.endpoint.remote(memory.key)

    async def test_a_close_waits_for_operations(self, connect_memory, make):
        peer, remote = await connect_memory(make(3 * MIB))
        put = remote.put(np.full(3 * MIB, 7, "u1"))
        await remote.endpoint.close()
        await put
        assert await peer.do("bool((np.frombuffer(memory, 'u1') == 7).all())")

    async def test_a_dropped_endpoint_finishes_operations(self, connect_memory, make):
        peer, remote = await connect_memory(make(3 * MIB))
        put = remote.put(np.full(3 * MIB, 7, "u1"))
        del remote
        await put
        assert await peer.do("bool((np.frombuffer(memory, 'u1') == 7).all())")


async def is_cancelled(request, turns):
    """Whether it was cancelled after so many turns of the loop."""

    async def wait():
        await request

    task = asyncio.create_task(wait())
    for _ in range(turns + 1):  # in the first one it begins to wait
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    return task.cancelled()


@pytest.mark.usefixtures("transport")
class TestCancelAndDeath:
    """Operations that the owner executes, and does not."""

    async def test_a_cancelled_put_gives_its_buffer_back(self, connect_memory):
        peer, remote = await connect_memory(register(8 * MIB))
        peer.stop()
        out = np.full(8 * MIB, 7, "u1")
        gone = weakref.ref(out)
        put = asyncio.ensure_future(remote.put(out))
        await asyncio.sleep(0)
        put.cancel()
        with pytest.raises(asyncio.CancelledError):
            await put
        out[:] = 9
        del out, put
        gc.collect()
        await ucp.testing.until(lambda: gone() is None)
        peer.resume()
        await remote.fetch_add(0, 0)
        assert await peer.do("np.frombuffer(memory, 'u1').max() in (0, 7)")

    @pytest.mark.parametrize("size", [100, 30_000, 200_000, 8 * MIB])
    async def test_a_cancelled_put_is_done_whole_or_not_at_all(
        self, connect_memory, size
    ):
        _peer, remote = await connect_memory(register(8 * MIB))
        for turns in range(8):
            out = np.full(size, turns + 1, "u1")
            await is_cancelled(remote.put(out), turns)
            out[:] = 99
            await remote.endpoint.flush()
            seen = np.zeros(size, "u1")
            await remote.get(seen)
            assert seen[0] <= turns + 1
            assert (seen == seen[0]).all()

    @pytest.mark.parametrize("size", [100, 30_000, 200_000, 8 * MIB])
    async def test_a_cancelled_get_leaves_its_buffer(self, connect_memory, size):
        _peer, remote = await connect_memory(register(8 * MIB))
        for turns in range(8):
            back = np.ones(size, "u1")
            expected = 99 if await is_cancelled(remote.get(back), turns) else 0
            back[:] = expected
            await remote.endpoint.flush()
            assert (back == expected).all()

    async def test_a_cancelled_get_writes_nothing_later(self, connect_memory):
        peer, remote = await connect_memory(register(64))
        await remote.put(b"x" * 64)
        peer.stop()
        back = bytearray(64)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(remote.get(back), 0.05)
        back.append(0)  # the bytearray is not held
        peer.resume()
        assert await remote.fetch_add(0, 0) != 0
        assert back == bytes(65)

    async def test_a_killed_peer_resets_operations(self, connect_memory):
        peer, remote = await connect_memory(register(8 * MIB))
        peer.stop()
        pending = [
            remote.put(np.zeros(8 * MIB, "u1")),
            remote.put(b"x"),
            remote.get(bytearray(8 * MIB)),
            remote.fetch_add(0, 1),
            remote.put_many([(b"x", 0), (b"y", 3)]),
            remote.put_signal(b"x", 16, 0, 1),
        ]
        peer.kill()
        for request in pending:
            with pytest.raises(ucp.UCXConnectionReset):
                await request
        with pytest.raises(ucp.UCXConnectionReset):
            await remote.put(b"x")

    async def test_a_closing_peer_ends_operations(self, connect_memory):
        peer, remote = await connect_memory(register(8 * MIB))
        peer.stop()
        get = remote.get(bytearray(8 * MIB))
        peer.resume()
        await peer.do("await ep.close()")
        try:
            await get
        except ucp.UCXPeerClosed:
            pass
        with pytest.raises(ucp.UCXCloseError):
            await remote.get(bytearray(1))

    async def test_memory_goes_while_a_get_is_under_way(self, connect_memory):
        peer, remote = await connect_memory("ucp.Memory.register(bytearray(b'x') * 64)")
        gets = [remote.get(bytearray(64)) for _ in range(100)]
        await peer.do("del memory; gc.collect()")
        results = await asyncio.gather(*gets, return_exceptions=True)
        assert {type(result) for result in results} <= {type(None), ucp.UCXInvalidKey}
