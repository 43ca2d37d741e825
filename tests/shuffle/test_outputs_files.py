# SPDX-License-Identifier: BSD-3-Clause
# tests: ucp/outputs ucp/reader ucp/writer
"""Outputs of maps that are files, and windows of them."""

import asyncio
import os
import random
import struct

import pytest
from worlds import good_world

import ucp
from ucp.shuffle import MapOutputs, Reader, Writer


async def put(outputs, map_id, pieces, **options):
    async with Writer(outputs, map_id, "file", **options) as writer:
        for partition, data in pieces:
            writer.write(partition, data)
        return await writer.commit()


async def take(blocks):
    return {(b.map_id, b.partition): bytes(b) async for b in blocks}


@pytest.mark.parametrize("elsewhere", [False, True])
@pytest.mark.parametrize("is_ordered", [False, True])
def test_files_are_read_by_windows(tmp_path, elsewhere, is_ordered):
    """16 windows of which two at most are mapped by their owner."""
    window, parts = 1 << 16, 64
    rng = random.Random(1)
    data = [
        rng.randbytes(rng.choice([0, 100, 9000, 30000, 150000])) for _ in range(parts)
    ]

    async def main(comm):
        outputs = await MapOutputs.create(
            comm, 2, parts, window=window, max_mapped=2 * window
        )
        pieces = list(enumerate(data))
        if not is_ordered:
            random.Random(2).shuffle(pieces)
        await put(outputs, comm.rank, pieces, path=tmp_path / f"{comm.rank}")
        reader = Reader(outputs, elsewhere=elsewhere)
        got = await take(reader.fetch(range(parts), timeout=20, max_inflight=200000))
        assert got == {
            (m, p): each for m in range(2) for p, each in enumerate(data) if each
        }
        statistics = reader.statistics
        assert statistics.own == 0
        assert (statistics.copied > 0) == elsewhere
        assert statistics.num_windows > 4
        await comm.barrier()
        most = outputs.most_window_bytes
        assert window <= most <= 2 * window if elsewhere else most == 0
        reader.close()
        await outputs.close(20)

    good_world(2, main)
    assert sorted(os.listdir(tmp_path)) == ["0", "1"]


def test_much_is_read_through_one_window(tmp_path):
    """OUTPUTS_MIB is how much, of which a window is a sixteenth."""
    total = int(os.environ.get("OUTPUTS_MIB", "4")) << 20
    window, part = total // 16, total // 48

    async def main(comm):
        outputs = await MapOutputs.create(
            comm, 1, 48, window=window, max_mapped=window, lease=20
        )
        if comm.rank == 0:
            pieces = ((p, bytes([p + 1]) * part) for p in range(48))
            await put(outputs, 0, pieces, path=tmp_path / "map")
        reader, count = Reader(outputs, elsewhere=comm.rank == 1), 0
        blocks = reader.fetch(range(48), timeout=20, max_inflight=window)
        async for block in blocks:
            view = memoryview(block)
            assert view.nbytes == part
            assert view[0] == view[part // 2] == view[-1] == block.partition + 1
            count += 1
            del view
            block.release()
        assert count == 48
        await comm.barrier()
        most = outputs.most_window_bytes
        assert most == (window if comm.rank == 0 else 0)
        outputs.abort()

    good_world(2, main)


def test_checksums_name_what_is_damaged(tmp_path):
    async def main(comm):
        outputs = await MapOutputs.create(comm, 2, 3)
        path = tmp_path / "map"
        pieces = [(p, bytes([p]) * 100) for p in range(3)]
        await put(outputs, 1, pieces, path=path, checksums=True)
        assert outputs.find(1).checksums
        reader = Reader(outputs)
        assert len(await take(reader.fetch(range(3), [1]))) == 3
        reader.forget()
        before = os.stat(path)
        with open(path, "r+b") as file:  # of the second partition
            file.seek(8 * 4 + 8 * 4 + 150)
            file.write(b"?")
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert len(await take(reader.fetch(0, [1]))) == 1
        with pytest.raises(
            ucp.UCXError, match=r"map 1 for partition 1 .*checksum"
        ) as exc:
            await take(reader.fetch(range(3), [1]))
        assert (exc.value.map_id, exc.value.rank) == (1, 0)
        outputs.abort()

    good_world(1, main)


def test_damaged_offsets_lose_no_partition(tmp_path):
    async def main(comm):
        outputs = await MapOutputs.create(comm, 1, 3)
        path = tmp_path / "map"
        pieces = [(p, bytes([p]) * 100) for p in range(3)]
        await put(outputs, 0, pieces, path=path, checksums=True)
        before = os.stat(path)
        with open(path, "r+b") as file:  # the second partition seems to be empty
            file.seek(8)
            file.write(struct.pack("<2Q", 200, 200))
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        with pytest.raises(ucp.UCXError, match=r"map 0 .* is damaged: its offsets"):
            await take(Reader(outputs).fetch(range(3)))
        with pytest.raises(ucp.UCXError, match="no output of so many partitions"):
            await outputs.publish_file(0, path, checksums=True)
        outputs.abort()

    good_world(1, main)


def test_checksums_of_memory():
    async def main(comm):
        outputs = await MapOutputs.create(comm, 1, 3)
        async with Writer(outputs, 0, checksums=True, byteorder="big") as writer:
            writer.write(1, b"x" * 1000)
            await writer.commit()
        for elsewhere in (False, True):
            reader = Reader(outputs, elsewhere=elsewhere)
            assert await take(reader.fetch(range(3))) == {(0, 1): b"x" * 1000}
        outputs.abort()

    good_world(1, main)


def test_a_file_that_has_changed_is_noticed(tmp_path):
    async def main(comm):
        outputs = await MapOutputs.create(comm, 1, 1)
        path = tmp_path / "map"
        if comm.rank == 0:
            await put(outputs, 0, [(0, b"x" * 100)], path=path)
            path.rename(tmp_path / "moved")
            path.write_bytes(b"y" * 116)
        await comm.barrier()
        for elsewhere in (False, True):
            reader = Reader(outputs, elsewhere=elsewhere)
            with pytest.raises(ucp.UCXError, match="not the one that was committed"):
                await take(reader.fetch(0))
        await comm.barrier()
        if comm.rank == 0:
            path.unlink()
        await comm.barrier()
        with pytest.raises(ucp.UCXError, match=r"map 0 .* cannot be read any more"):
            await take(Reader(outputs).fetch(0))
        await comm.barrier()
        outputs.abort()

    good_world(2, main)


@pytest.mark.parametrize("window", [1 << 16, 1 << 20])
def test_a_map_is_written_again_to_the_same_file(tmp_path, window):
    """While it is read, the file as well as its windows."""
    size, parts, turns = 20000, 8, 40

    async def main(comm):
        outputs = await MapOutputs.create(comm, 2, parts, window=window)
        path = tmp_path / "map"
        if comm.rank == 0:
            for turn in range(turns):
                pieces = [(p, bytes([turn]) * size) for p in range(parts)]
                await put(outputs, 0, pieces, path=path)
                await asyncio.sleep(0)
            await put(outputs, 1, [], path=tmp_path / "end")
        else:
            readers = [
                Reader(outputs, elsewhere=elsewhere) for elsewhere in (False, True)
            ]
            while outputs.find(1) is None:
                for reader in readers:
                    got = await take(reader.fetch(range(parts), [0], timeout=20))
                    assert len(got) == parts
                    assert all(data == data[:1] * size for data in got.values())
        await comm.barrier()
        outputs.abort()

    good_world(2, main)


def test_files_that_are_no_outputs_are_refused(tmp_path):
    async def main(comm):
        outputs = await MapOutputs.create(comm, 1, 2)
        path = tmp_path / "map"
        with pytest.raises(ucp.UCXError, match="No such file") as exc:
            await outputs.publish_file(0, path)
        assert exc.value.errno == 2
        for data in (
            b"",
            struct.pack("<3Q", 0, 5, 9),  # nine bytes are missing
            struct.pack("<3Q", 0, 5, 4) + b"1234",
            struct.pack("<3Q", 1, 1, 1) + b"1",
            struct.pack(">3Q", 0, 1, 1) + b"1",
        ):
            path.write_bytes(data)
            with pytest.raises(ucp.UCXError, match="no output of so many partitions"):
                await outputs.publish_file(0, path)
        assert outputs.find(0) is None
        await outputs.publish_file(0, path, byteorder="big")
        assert await take(Reader(outputs).fetch(range(2))) == {(0, 0): b"1"}
        with pytest.raises(ucp.UCXError, match="No such file"):
            Writer(outputs, 0, "file", path=tmp_path / "none" / "map")
        outputs.abort()

    good_world(1, main)


def test_long_paths(tmp_path):
    """Of which a slot has not the room."""

    async def main(comm):
        outputs = await MapOutputs.create(comm, 2, 2)
        folder = tmp_path / ("d" * 200) / ("e" * 200)
        folder.mkdir(parents=True, exist_ok=True)
        await put(outputs, comm.rank, [(1, b"x")], path=folder / f"{comm.rank}")
        for elsewhere in (False, True):
            reader = Reader(outputs, elsewhere=elsewhere)
            got = await take(reader.fetch(1, timeout=20))
            assert got == {(0, 1): b"x", (1, 1): b"x"}
        await comm.barrier()
        with pytest.raises(ucp.UCXError, match="File name too long"):
            Writer(outputs, 0, "file", path="/tmp/" + "x" * 5000)
        await outputs.close(20)

    good_world(2, main)


def test_a_partition_of_more_than_2_gib(tmp_path):
    """A sparse file, which is mapped and looked at in few places."""
    size = (2 << 30) + 12345

    async def main(comm):
        outputs = await MapOutputs.create(comm, 1, 3)
        path = tmp_path / "map"
        if comm.rank == 0:
            with open(path, "wb") as file:
                file.write(struct.pack("<4Q", 0, 5, 5 + size, 5 + size) + b"first")
                file.seek(8 * 4 + 5 + size - 4)
                file.write(b"last")
            await outputs.publish_file(0, path)
        [block] = [b async for b in Reader(outputs).fetch(1, timeout=20)]
        assert block.nbytes == size
        view = memoryview(block)
        assert (bytes(view[:3]), bytes(view[-4:])) == (b"\0\0\0", b"last")
        del view, block
        await comm.barrier()
        outputs.abort()

    good_world(2, main)
