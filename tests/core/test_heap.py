# SPDX-License-Identifier: BSD-3-Clause
"""Small memories that share segments of the system, and its limits on these."""

import gc
import os

import numpy as np
import pytest
from conftest import TLS
from script import run_script

import ucp
from ucp.testing import connected_pair, until

# Limits of the system are too small for the segments of a worker.
pytestmark = pytest.mark.default_workers

KIB = 1 << 10
SLAB = 1 << 20  # bytes; UCX's segments are smaller


def mappings_of(pid):
    """The slabs that process has made: how often each is mapped."""
    with open("/proc/sysvipc/shm") as table:
        rows = [[int(word) for word in line.split()] for line in list(table)[1:]]
    return [row[6] for row in rows if row[3] == SLAB and row[4] == pid]


def slabs_of(pid):
    """How many slabs that process has made, whoever uses them still."""
    return len(mappings_of(pid))


# ---- the owner's side ------------------------------------------------------


@pytest.mark.usefixtures("fresh_ucx")
class TestHeap:
    def test_a_memory_is_zeros_and_writable(self):
        with ucp.Heap() as heap, heap.allocate(1000) as memory:
            assert isinstance(memory, ucp.Memory)
            array = np.asarray(memory)
            assert array.nbytes == memory.nbytes == 1000
            assert not array.any()
            array[:] = 7
            assert bytes(memory) == b"\x07" * 1000
            assert not memory.readonly
            del array

    def test_more_memories_than_the_system_has_segments(self):
        before = slabs_of(os.getpid())
        with ucp.Heap() as heap:
            memories = [heap.allocate(4 * KIB) for _ in range(5000)]
            assert heap.memories == 5000
            assert heap.segments == slabs_of(os.getpid()) - before <= 22
            assert len({memory.address for memory in memories}) == 5000
            assert len({memory.key for memory in memories}) == 5000
            del memories
            assert heap.memories == 0
            assert heap.segments == 1
        assert slabs_of(os.getpid()) == before

    def test_what_was_used_is_zeros_again(self):
        with ucp.Heap() as heap:
            for _ in range(100):
                with heap.allocate(60 * KIB) as memory:
                    array = np.asarray(memory)
                    assert not array.any()
                    array[:] = 1
                    del array
            assert heap.segments == 1

    def test_a_large_memory_is_a_segment_of_its_own(self):
        with ucp.Heap() as heap, heap.allocate(SLAB) as memory:
            assert heap.segments == heap.memories == 0
            assert memory.nbytes == SLAB

    def test_memories_outlive_their_heap(self):
        heap = ucp.Heap()
        memory = heap.allocate(8)
        heap.close()
        heap.close()
        assert heap.closed()
        assert repr(heap) == "<ucp.Heap, closed>"
        assert heap.segments == heap.memories == 0
        with pytest.raises(ucp.UCXCloseError, match=r"^the heap is closed$"):
            heap.allocate(8)
        memoryview(memory)[:] = b"12345678"
        memory.close()

    def test_a_view_keeps_the_space(self):
        with ucp.Heap() as heap:
            memory = heap.allocate(60 * KIB)
            array = np.asarray(memory)
            array[:] = 5
            memory.close()
            for _ in range(50):
                with heap.allocate(60 * KIB) as other:
                    np.asarray(other)[:] = 6
            assert (array == 5).all()
            assert heap.memories == 1
            del array, other
            gc.collect()
            assert heap.memories == 0

    def test_what_is_no_size_is_refused(self):
        with ucp.Heap() as heap:
            with pytest.raises(ValueError, match=r"^nbytes is -1$"):
                heap.allocate(-1)
            with pytest.raises(TypeError):
                heap.allocate("8")
            with pytest.raises(MemoryError):
                heap.allocate(1 << 60)
            assert heap.allocate(0).nbytes == 0
            assert repr(heap) == "<ucp.Heap of 0 memories in 1 segments>"

    def test_an_open_heap_is_named_by_reset(self):
        heap = ucp.Heap()
        with pytest.raises(ucp.UCXError, match=r"<ucp\.Heap of 0 memories in 0 seg"):
            ucp.reset()
        heap.close()
        ucp.reset()

    def test_a_heap_of_another_context_is_refused(self):
        heap = ucp.Heap()
        context = heap._context
        heap.close()
        ucp.reset()
        with ucp.Heap() as other, pytest.raises(ValueError, match="another context"):
            ucp._ext.Memory(context, nbytes=8, heap=other)

    def test_a_pool_takes_no_segment(self):
        before = slabs_of(os.getpid())
        with ucp.BufferPool(1, SLAB - 2048):  # a segment has a header
            assert slabs_of(os.getpid()) == before


# ---- the peer's side -------------------------------------------------------


@pytest.mark.usefixtures("fresh_ucx")
@pytest.mark.parametrize("tls", TLS)
class TestPeers:
    """Mapped over shared memory, executed by the owner over tcp."""

    async def connect(self, connect_peer, tls):
        env = {"UCX_TLS": "tcp"} if tls == "tcp" else {}
        peer, ep = await connect_peer(**env)
        await peer.do("heap = ucp.Heap()")
        await peer.do("one, other = heap.allocate(100), heap.allocate(100)")
        remotes = [ep.remote(key) for key in await peer.do("[one.key, other.key]")]
        assert all(remote.mapped is (tls != "tcp") for remote in remotes)
        return peer, ep, remotes

    async def test_memories_do_not_mix(self, connect_peer, tls):
        peer, _ep, (one, other) = await self.connect(connect_peer, tls)
        await one.put(b"1" * 100)
        await other.put(b"2" * 100)
        assert await peer.do("bytes(one), bytes(other)") == (b"1" * 100, b"2" * 100)
        with pytest.raises(IndexError):
            await one.put(b"33", 99)
        with pytest.raises(IndexError):
            await one.get(bytearray(1), 128)
        assert await other.fetch_add(8, 1) == int.from_bytes(b"2" * 8, "little")

    async def test_a_closed_memory_is_stale_alone(self, connect_peer, tls):
        peer, ep, (one, other) = await self.connect(connect_peer, tls)
        key = await peer.do("one.key")
        await peer.do("one.close()")
        with pytest.raises(ucp.UCXInvalidKey):
            await one.put(b"late")
        with pytest.raises(ucp.UCXInvalidKey):
            await ep.remote(key).get(bytearray(1))
        await other.put(b"fine")
        assert await peer.do("bytes(other)[:4]") == b"fine"

    async def test_an_old_key_does_not_reach_what_came_after(self, connect_peer, tls):
        peer, ep, (one, other) = await self.connect(connect_peer, tls)
        keys = await peer.do("[one.key, other.key]")
        await peer.do("one.close(), other.close()")
        del one, other
        gc.collect()
        await until(lambda: mappings_of(peer.pid) == [1])
        # All that there is: what was theirs is among it.
        await peer.do("more = [heap.allocate(60000) for _ in range(15)]")
        await peer.do("more += [heap.allocate(64) for _ in range(900)]")
        assert await peer.do("heap.segments") == 1
        for key in keys:
            with pytest.raises(ucp.UCXInvalidKey):
                await ep.remote(key).put(b"late")
        assert not await peer.do("any(any(bytes(memory)) for memory in more)")

    async def test_a_killed_owner_leaves_what_is_mapped(self, connect_peer, tls):
        peer, _ep, (one, other) = await self.connect(connect_peer, tls)
        await one.put(b"abc")
        pid = peer.pid
        assert slabs_of(pid) == 1
        peer.kill()
        if tls == "tcp":
            assert slabs_of(pid) == 0
            return
        view = np.asarray(one.view())
        assert bytes(view[:3]) == b"abc"
        assert slabs_of(pid) == 1
        await one.endpoint.close()
        del view, one, other, _ep
        gc.collect()
        await until(lambda: slabs_of(pid) == 0)


@pytest.mark.usefixtures("fresh_ucx")
class TestSpace:
    """When space is used again."""

    def fill(self, heap):
        return [heap.allocate(60 * KIB) for _ in range(15)]

    async def test_not_while_a_peer_has_it_mapped(self):
        async with connected_pair() as (client, _server):
            with ucp.Heap() as heap:
                memories = self.fill(heap)
                addresses = {memory.address for memory in memories}
                remote = client.remote(memories[3].key)
                assert remote.mapped
                remote.close()  # the mapping stays until the object goes
                for memory in memories[:10]:
                    memory.close()
                others = self.fill(heap)
                assert not addresses & {memory.address for memory in others}
                del remote, memories, others, memory

    async def test_once_the_peer_has_let_go(self):
        async with connected_pair() as (client, _server):
            with ucp.Heap() as heap:
                memories = self.fill(heap)
                addresses = {memory.address for memory in memories[:10]}
                remote = client.remote(memories[3].key)
                assert remote.mapped
                for memory in memories[:10]:
                    memory.close()
                del remote
                await until(lambda: mappings_of(os.getpid()) == [1])
                others = self.fill(heap)
                assert addresses & {memory.address for memory in others}
                del memories, others, memory


# ---- the system's limits ---------------------------------------------------

# In an IPC namespace of its own, where limits are this process's alone.
OWN_LIMITS = """
import asyncio, ctypes, logging, ucp

logging.disable()  # UCX says, too, what it lacks

def limit(**limits):
    for name, value in limits.items():
        with open(f"/proc/sys/kernel/{name}", "w") as file:
            file.write(str(value))

def refused(function, *arguments):
    try:
        function(*arguments)
    except ucp.UCXNoMemory as exc:
        assert exc.status == -216
        return str(exc)
    raise AssertionError("not refused")

CLONE_NEWIPC = 0x08000000
assert ctypes.CDLL(None).unshare(CLONE_NEWIPC) == 0
"""

LIMIT = "the system's limit on shared memory segments is reached: "


def run_limited(source):
    if os.geteuid() != 0:
        pytest.skip("a namespace needs root")
    return run_script(OWN_LIMITS + source)


class TestLimits:
    def test_the_number_of_segments_is_named(self):
        said = run_limited("""
limit(shmmni=8)
memories = [ucp.Memory.allocate(100) for _ in range(8)]
print(refused(ucp.Memory.allocate, 100))
with ucp.Heap() as heap:
    print(refused(heap.allocate, 100))
    memories.pop().close()
    memories += [heap.allocate(100) for _ in range(1000)]
    assert heap.segments == 1
    print(refused(heap.allocate, 1 << 20))
""")
        of_all = "kernel.shmmni is 8, and 8 are in use: 8 of this user"
        assert said == f"Memory: {LIMIT}{of_all}, 8 of this process\n" * 3

    def test_a_worker_that_finds_no_segment_names_the_number(self):
        said = run_limited("""
limit(shmmni=3)
memories = [ucp.Memory.allocate(100) for _ in range(3)]

async def main():
    print(refused(ucp.create_listener))

asyncio.run(main())
""")
        of_all = "kernel.shmmni is 3, and 3 are in use: 3 of this user"
        assert said == f"Worker: {LIMIT}{of_all}, 3 of this process\n"

    @pytest.mark.parametrize(
        ("limits", "named"),
        [
            ("shmmni=1", "kernel.shmmni is 1, and 0 are in use; kernel.shmmax is "),
            ("shmmax=8192", "kernel.shmmax is 8192 bytes, "),
            ("shmmax=2_000_000", "kernel.shmmax is 2000000 bytes, "),
            ("shmall=10", "kernel.shmall is 10 pages and 0 are in use"),
        ],
    )
    def test_a_worker_that_has_nothing_else_names_the_limits(self, limits, named):
        said = run_limited(f"""
limit({limits})
ucp.init({{"TLS": "sysv"}})

async def main():
    print(refused(ucp.create_listener))

asyncio.run(main())
""")
        assert said.startswith(f"Worker: {LIMIT}")
        assert named in said

    def test_sizes_are_named(self):
        said = run_limited("""
limit(shmmax=8192)
print(refused(ucp.Memory.allocate, 100_000))
limit(shmmax=1 << 40, shmall=10)
memory = ucp.Memory.allocate(100)
print(refused(ucp.Memory.allocate, 100_000))
""")
        first, second = said.splitlines()
        assert first.startswith(f"Memory: {LIMIT}kernel.shmmax is 8192 bytes, ")
        assert "kernel.shmall is 10 pages and 1 are in use: 1 segments" in second

    def test_what_needs_no_segment_goes_on(self):
        """Memory that peers do not map still works: the program's own, and pools."""
        run_limited("""
limit(shmmni=1)
memories = [ucp.Memory.allocate(100)]
print(refused(ucp.Memory.allocate, 100))
memories.append(ucp.Memory.register(bytearray(100)))
with ucp.BufferPool(4, 100_000) as pool:
    pool.acquire_nowait().release()
""")

    def test_other_processes_count(self):
        said = run_limited("""
import os
limit(shmmni=4)
memory = ucp.Memory.allocate(100)
there, here = os.pipe(), os.pipe()
pid = os.fork()
if pid == 0:
    libc = ctypes.CDLL(None)
    for _ in range(3):  # as any program does
        libc.shmat(libc.shmget(0, 1, 0o1600), None, 0)
    os.write(there[1], b".")
    os.read(here[0], 1)
    os._exit(0)
os.read(there[0], 1)
print(refused(ucp.Memory.allocate, 100))
os.write(here[1], b".")
os.waitpid(pid, 0)
""")
        assert "4 are in use: 4 of this user, 1 of this process" in said
