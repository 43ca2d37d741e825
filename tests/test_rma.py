"""Memory that peers read and write."""

import gc
import pickle
import weakref

import numpy as np
import pytest

import ucp

MIB = 1 << 20


@pytest.fixture
def connect_memory(connect_peer):
    """Connect; the peer has ``memory``, we have it as a RemoteMemory."""

    async def connect(make):
        peer, ep = await connect_peer()
        await peer.do(f"memory = {make}")
        return peer, ep.remote(await peer.do("memory.key"))

    return connect


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
        assert memory.closed
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
        with pytest.raises(ValueError, match=r"^kind is 'host', not 'cuda'$"):
            ucp.Memory.allocate(8, "cuda")
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
    """What holds where the memory is mapped."""

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
        worker.close()
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
