# SPDX-License-Identifier: BSD-3-Clause
# tests: ucp/outputs
"""Outputs of maps whose ranks end, fork, or have no room."""

import os

import pytest
from worlds import Ranks

# How the programs of ranks begin.
BEGIN = """
from ucp.shuffle import MapOutputs, Reader, Writer
import contextlib, struct

async def put(outputs, map_id, pieces, *args, **options):
    async with Writer(outputs, map_id, *args, **options) as writer:
        for partition, data in pieces:
            writer.write(partition, data)
        return await writer.commit()

async def take(blocks):
    return {(b.map_id, b.partition): bytes(b) async for b in blocks}

def say(*words):
    print(*words, flush=True)

async def hear():
    return await asyncio.to_thread(sys.stdin.readline)
"""


def ranks(size, source):
    return Ranks(size, BEGIN + source)


def tell(group, rank):
    stdin = group.processes[rank].stdin
    stdin.write("go on\n")
    stdin.flush()


def test_a_reader_dies_with_views():
    source = """
async def main():
    comm = await connect(heartbeat=None)
    outputs = await MapOutputs.create(comm, 3, 1)
    if comm.rank == 0:
        for map_id in range(3):
            await put(outputs, map_id, [(0, b"x" * 10000)])
        say("committed")
        await hear()
        with contextlib.suppress(ucp.UCXRankFailed):
            await comm.barrier()
        try:
            await outputs.close(0.1)
        except ucp.UCXTimeout as exc:
            say(exc)
        await hear()
        await outputs.close(20)
        say("closed")
    else:
        blocks = [b async for b in Reader(outputs).fetch(0, timeout=20)]
        say([b.place for b in blocks])
        await comm.barrier()
        await hear()
    os._exit(0)

asyncio.run(main())
"""
    with ranks(2, source) as group:
        assert group.line(0) == "committed"
        assert group.line(1) == str(["mapped"] * 3)
        tell(group, 0)
        assert group.line(0) == (
            "close: operation timed out: 3 memories that were committed here are "
            "still mapped by others, or by children of fork()"
        )
        group.processes[1].kill()
        group.processes[1].wait()
        tell(group, 0)
        assert group.line(0) == "closed"


def test_forked_children_count():
    """Of the owner, and of a reader that has ended itself."""
    source = """
def forked():
    r, w = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(w)
        os.read(r, 1)  # until the parent says so
        os._exit(0)
    os.close(r)
    return child, w

def end(child, w):
    os.close(w)
    os.waitpid(child, 0)

async def mapped(outputs):
    try:
        await outputs.close(0.05)
    except ucp.UCXTimeout as exc:
        say(str(exc).split(": ")[2].split()[0])
    else:
        say("none")

async def main():
    comm = await connect()
    outputs = await MapOutputs.create(comm, 2, 1)
    if comm.rank == 0:
        await put(outputs, 0, [(0, b"x" * 10000)])
        child = forked()
        await comm.barrier()
        await mapped(outputs)
        end(*child)
        await mapped(outputs)
        await comm.barrier()
        await comm.barrier()
        await outputs.close(20)
        say("closed")
    else:
        reader = Reader(outputs)
        [block] = [b async for b in reader.fetch(0, [0], timeout=20)]
        child = forked()
        block.release()
        reader.close()
        await comm.barrier()
        await comm.barrier()
        end(*child)
        await comm.barrier()
    comm.close()

asyncio.run(main())
"""
    with ranks(2, source) as group:
        assert [group.line(0) for _ in range(3)] == ["1", "1", "closed"]
        group.end(1)


@pytest.mark.parametrize("step", ["before", "in", "after"])
def test_a_writer_is_killed(step):
    """Before, in and after its commits: others find a whole output or none."""
    source = """
async def main():
    comm = await connect(heartbeat=None)
    outputs = await MapOutputs.create(comm, 1, 2)
    step = STEP
    if comm.rank == 1:
        writer = Writer(outputs, 0)
        writer.write(0, b"a" * 5000)
        writer.write(1, b"b" * 5000)
        if step == "before":
            say("ready")
        elif step == "after":
            await writer.commit()
            say("ready")
        else:
            say("ready")
            while True:
                letter = bytes([97 + (writer.epoch or 0) % 26])
                await writer.commit()
                writer = Writer(outputs, 0)
                writer.write(0, letter * 5000)
                writer.write(1, letter * 5000)
        await hear()
    else:
        say("ready")
        await hear()
        with contextlib.suppress(ucp.UCXRankFailed):
            await comm.barrier()
        reader, found = Reader(outputs), None
        try:
            found = await take(reader.fetch(range(2), timeout=0.1))
            say("found", {k: (len(v), len(set(v))) for k, v in found.items()})
        except ucp.UCXTimeout:
            say("missing")
        except ucp.UCXError as exc:
            say("lost", exc.map_id, exc.rank)
        await put(outputs, 0, [(0, b"again")])
        assert await take(reader.fetch(range(2))) == {(0, 0): b"again"}
        say("again")
        os._exit(0)

asyncio.run(main())
""".replace("STEP", repr(step))
    with ranks(2, source) as group:
        assert group.line(0) == group.line(1) == "ready"
        group.processes[1].kill()
        group.processes[1].wait()
        tell(group, 0)
        said = group.line(0)
        # One that is killed early enough in its first commit has said nothing.
        may_say = {"before": ["missing"], "after": ["lost 0 1"]}
        assert said in may_say.get(step, ["missing", "lost 0 1"])
        assert group.line(0) == "again"


def test_half_a_slot_is_never_seen():
    """Two ranks commit the same maps again and again, and a third reads them.

    OUTPUTS_PUBLISHES is how many commits there are; 100000 is the long form.
    """
    count = int(os.environ.get("OUTPUTS_PUBLISHES", "1500"))
    source = """
import signal
signal.alarm(0)

async def main():
    comm = await connect(heartbeat=None)
    outputs = await MapOutputs.create(comm, 3, 1)
    if comm.rank < 2:
        for n in range(COUNT // 2):
            number = struct.pack("<Q", 2 * n + comm.rank)
            await put(outputs, n % 2, [(0, number * (n % 50 + 1))])
        await put(outputs, 2, [])
        while (found := outputs.find(2)) is None or found.epoch < 2:
            await asyncio.sleep(0.001)
    else:
        reader, seen, last = Reader(outputs), 0, {}
        while (found := outputs.find(2)) is None or found.epoch < 2:
            async for block in reader.fetch(0, [0, 1], timeout=10):
                data = bytes(block)
                n, rank = divmod(int.from_bytes(data[:8], "little"), 2)
                assert data == data[:8] * (n % 50 + 1)
                assert (block.map_id, block.rank) == (n % 2, rank)
                assert block.epoch >= last.get(block.map_id, 0)
                last[block.map_id] = block.epoch
                seen += 1
            await asyncio.sleep(0)
        say(seen > 0)
    await comm.barrier()
    await outputs.close(30)
    comm.close()

asyncio.run(main())
""".replace("COUNT", str(count))
    with ranks(3, source) as group:
        for rank, said in enumerate(["", "", "True"]):
            out, err = group.processes[rank].communicate(timeout=40 + count / 100)
            assert group.processes[rank].returncode == 0, err
            assert out.strip() == said


def test_a_file_survives_its_writer(tmp_path):
    source = """
async def main():
    comm = await connect(heartbeat=None)
    outputs = await MapOutputs.create(comm, 1, 3)
    if comm.rank == 1:
        await put(outputs, 0, [(2, b"z" * 9000), (0, b"a")], "file", path=PATH)
        say("ready")
        await hear()
    await hear()
    with contextlib.suppress(ucp.UCXRankFailed):
        await comm.barrier()
    reader = Reader(outputs)
    say([len(b) for b in (await take(reader.fetch(range(3)))).values()])
    await outputs.publish_file(0, PATH)
    found = outputs.find(0)
    say(found.epoch, found.rank, found.kind)
    say([len(b) for b in (await take(reader.fetch(range(3)))).values()])
    os._exit(0)

asyncio.run(main())
""".replace("PATH", repr(str(tmp_path / "map0")))
    with ranks(2, source) as group:
        assert group.line(1) == "ready"
        group.processes[1].kill()
        group.processes[1].wait()
        tell(group, 0)
        assert [group.line(0) for _ in range(3)] == [
            "[1, 9000]",
            "2 0 file",
            "[1, 9000]",
        ]
    assert os.listdir(tmp_path) == ["map0"]


def test_a_file_that_cannot_grow_is_one_clear_error(tmp_path):
    source = """
import resource
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

async def main():
    comm = await connect()
    outputs = await MapOutputs.create(comm, 1, 1)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100000, resource.RLIM_INFINITY))
    with contextlib.suppress(ucp.UCXError):
        async with Writer(outputs, 0, "file", path=PATH) as writer:
            writer.write(0, b"x" * 90000)
            try:
                writer.write(0, b"x" * 20000)
            except ucp.UCXError as exc:
                say(exc)
            await writer.commit()
    say(outputs.find(0), os.listdir(os.path.dirname(PATH)))
    outputs.abort()

asyncio.run(main())
""".replace("PATH", repr(str(tmp_path / "map0")))
    with ranks(1, source) as group:
        assert group.line(0) == f"write: [Errno 27] File too large: '{tmp_path}/map0'"
        assert group.line(0) == "None []"
        group.end(0)


def test_a_cancelled_fetch_touches_nothing_afterwards():
    """Without shared memory: the owner's library executes what a reader asks for."""
    source = """
os.environ["UCX_TLS"] = "tcp"
SIZE = 300000

async def main():
    comm = await connect()
    outputs = await MapOutputs.create(comm, 1, 12)
    if comm.rank == 0:
        await put(outputs, 0, [(p, bytes([p + 1]) * SIZE) for p in range(12)])
        await comm.barrier()
    else:
        await comm.barrier()
        reader = Reader(outputs)
        with ucp.BufferPool(4, SIZE) as pool:
            for turn in range(24):
                blocks = reader.fetch(range(12), pool=pool, timeout=20)
                taking = asyncio.create_task(anext(blocks))
                for _ in range(turn % 12):
                    await asyncio.sleep(0)
                taking.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await taking
                del taking
                await blocks.aclose()
                buffers = [await pool.acquire() for _ in range(4)]
                for buffer in buffers:
                    np.frombuffer(buffer, "u1")[:] = 0xEE
                await ucp.flush()  # bytes that were on their way have come
                assert all((np.frombuffer(b, "u1") == 0xEE).all() for b in buffers)
                del buffer, buffers
            blocks = reader.fetch(range(12), pool=pool)
            got = {b.partition: (b.place, bytes(b)) async for b in blocks}
            assert got == {p: ("copied", bytes([p + 1]) * SIZE) for p in range(12)}
        say("good")
    await comm.barrier()
    outputs.abort()
    comm.close()

asyncio.run(main())
"""
    with ranks(2, source) as group:
        assert group.end(1) == "good"
        group.end(0)
