# SPDX-License-Identifier: BSD-3-Clause
# tests: ext/block ext/fetch ext/reader ext/writer ucp/reader ucp/writer
"""``ucp.shuffle.MapOutputs``: maps are written, and read where they are."""

import asyncio
import contextlib
import random
import struct

import pytest
from worlds import good_world, world

import ucp
from ucp.shuffle import MapOutputs, Reader, Writer
from ucp.testing import live_objects

every_size = pytest.mark.parametrize("size", [1, 2, 3])


async def put(outputs, map_id, pieces, *args, **options):
    """Commit a map of pieces (partition, bytes)."""
    async with Writer(outputs, map_id, *args, **options) as writer:
        for partition, data in pieces:
            writer.write(partition, data)
        return await writer.commit()


async def take(blocks):
    """The bytes of blocks, by map and partition."""
    got = {}
    async for block in blocks:
        key = block.map_id, block.partition
        assert key not in got
        got[key] = bytes(block)
        assert len(got[key]) == block.nbytes > 0
        block.release()
    return got


def content(map_id, num_partitions, seed=0):
    rng = random.Random(f"{map_id} {seed}")
    sizes = [rng.choice([0, 1, 500, 3000, 20000]) for _ in range(num_partitions)]
    return [(partition, rng.randbytes(size)) for partition, size in enumerate(sizes)]


def expected(pieces, map_id):
    return {(map_id, p): data for p, data in pieces if data}


@every_size
def test_every_rank_reads_every_map(size):
    async def main(comm):
        outputs = await MapOutputs.create(comm, 5, 6)
        for map_id in range(comm.rank, 5, size):
            assert await put(outputs, map_id, content(map_id, 6)) == 1
        reader = Reader(outputs)
        whole = {}
        for map_id in range(5):
            whole |= expected(content(map_id, 6), map_id)
        assert await take(reader.fetch(range(6), timeout=20)) == whole
        assert await take(reader.fetch(slice(None))) == whole
        for p in range(6):
            wanted = {key: data for key, data in whole.items() if key[1] == p}
            assert await take(reader.fetch(p)) == wanted
            some = {key: data for key, data in wanted.items() if key[0] in (1, 3)}
            assert await take(reader.fetch(p, [3, 1])) == some
        assert await take(reader.fetch(range(2, 2))) == {}
        assert await take(reader.fetch(1, [])) == {}
        await comm.barrier()
        reader.close()
        await outputs.close(20)
        return reader, outputs

    good_world(size, main)


def test_blocks_say_where_they_are():
    async def main(comm):
        outputs = await MapOutputs.create(comm, 2, 3)
        await put(outputs, comm.rank, [(1, b"x" * 5000)])
        async with Reader(outputs) as reader:
            blocks = [block async for block in reader.fetch(1, timeout=20)]
            places = {block.map_id: block.place for block in blocks}
            assert places == {comm.rank: "own", 1 - comm.rank: "mapped"}
            for block in blocks:
                assert (block.rank, block.epoch) == (block.map_id, 1)
                view = memoryview(block)
                assert view.readonly
                with pytest.raises(BufferError, match="still viewed"):
                    block.release()
                view.release()
            statistics = reader.statistics
            assert statistics.num_blocks == statistics.num_opened == 2
            assert statistics.own == statistics.mapped == 5000
            assert statistics.copied == statistics.num_reads == 0
        async with Reader(outputs, elsewhere=True) as reader:
            blocks = [block async for block in reader.fetch(1)]
            assert {block.place for block in blocks} == {"own", "copied"}
            assert reader.statistics.num_reads == 1
        found = outputs.find(1 - comm.rank)
        assert (found.epoch, found.rank, found.kind) == (1, 1 - comm.rank, "memory")
        assert found.nbytes == 5000 + 8 * 4
        text = repr(blocks[0])
        await comm.barrier()
        blocks[0].release()
        with pytest.raises(BufferError, match="released"):
            memoryview(blocks[0])
        assert "of map" in text and "5000 bytes" in text
        outputs.abort()

    good_world(2, main)


def test_pieces_of_a_partition_follow_each_other():
    async def main(comm):
        outputs = await MapOutputs.create(comm, 1, 3)
        pieces = [
            (2, b"e"),
            (0, b"a"),
            (2, b"f" * 70000),
            (1, b""),
            (0, b"b"),
            (2, b"g"),
        ]
        writer = Writer(outputs, 0)
        for partition, data in pieces:
            writer.write(partition, bytearray(data))
        assert writer.nbytes == 70004
        assert writer.epoch is None
        assert await writer.commit() == writer.epoch == 1
        with pytest.raises(ucp.UCXCloseError):
            writer.write(0, b"more")
        with pytest.raises(ucp.UCXCloseError):
            await writer.commit()
        got = await take(Reader(outputs).fetch(range(3)))
        assert got == {(0, 0): b"ab", (0, 2): b"e" + b"f" * 70000 + b"g"}
        outputs.abort()

    good_world(1, main)


def test_what_is_not_committed_is_not_seen():
    async def main(comm):
        outputs = await MapOutputs.create(comm, 2, 2)
        async with Writer(outputs, 0) as writer:
            writer.write(0, b"dropped")
        with pytest.raises(ucp.UCXCloseError):
            await writer.commit()
        assert outputs.find(0) is None
        await comm.barrier()
        reader = Reader(outputs)
        with pytest.raises(ucp.UCXTimeout, match=r"0\.05 s: maps 0, 1 have") as exc:
            await take(reader.fetch(0, timeout=0.05))
        assert exc.value.maps == [0, 1]
        await comm.barrier()
        if comm.rank == 0:
            await put(outputs, 1, [(0, b"here")])
        with pytest.raises(TimeoutError, match=r"map 0 has not been committed$"):
            await take(reader.fetch(0, timeout=0.3))
        assert await take(reader.fetch(0, [1])) == {(1, 0): b"here"}
        await comm.barrier()
        outputs.abort()

    good_world(2, main)


def test_a_fetch_waits_for_maps():
    async def main(comm):
        outputs = await MapOutputs.create(comm, 8, 2)
        if comm.rank == 0:
            taking = asyncio.create_task(take(Reader(outputs).fetch(1, timeout=20)))
            await asyncio.sleep(0)
            await comm.barrier()
            got = await taking
            assert got == {(m, 1): bytes([m]) * 100 for m in range(8)}
        else:
            await comm.barrier()
            for map_id in range(8):
                await put(outputs, map_id, [(1, bytes([map_id]) * 100)])
                await asyncio.sleep(0)
        await comm.barrier()
        outputs.abort()

    good_world(2, main)


def test_the_last_commit_counts():
    async def main(comm):
        outputs = await MapOutputs.create(comm, 1, 1)
        reader = Reader(outputs)
        kept = []
        for epoch in range(1, 8):
            if comm.rank == epoch % 2:
                assert await put(outputs, 0, [(0, bytes([epoch]) * 99)]) == epoch
            await comm.barrier()
            [block] = [block async for block in reader.fetch(0)]
            assert (bytes(block), block.epoch) == (bytes([epoch]) * 99, epoch)
            assert outputs.find(0).rank == block.rank == epoch % 2
            kept.append(block)
            await comm.barrier()
        assert [bytes(block)[0] for block in kept] == [*range(1, 8)]
        outputs.abort()

    good_world(2, main)


def test_two_ranks_commit_one_map_at_once():
    async def main(comm):
        outputs = await MapOutputs.create(comm, 3, 1)
        for _ in range(30):
            data = bytes([comm.rank]) * 2000
            await asyncio.gather(*[put(outputs, m, [(0, data)]) for m in range(3)])
            await comm.barrier()
            got = await take(Reader(outputs).fetch(0))
            assert len(got) == 3
            assert all(set(data) == {data[0]} for data in got.values())
            found = [outputs.find(m).epoch for m in range(3)]
            told = bytearray(24 * comm.size)
            await comm.allgather(struct.pack("3Q", *found), told)
            assert bytes(told) == struct.pack("3Q", *found) * comm.size
        outputs.abort()

    good_world(3, main)


def test_an_output_begins_as_an_index_of_spark(tmp_path):
    async def main(comm):
        outputs = await MapOutputs.create(comm, 1, 4)
        pieces = [(0, b"abc"), (2, b"d" * 300)]
        path = tmp_path / "shuffle_0_0_0.data"
        await put(outputs, 0, pieces, "file", path=path, byteorder="big")
        assert outputs.find(0).byteorder == "big"
        with open(path, "rb") as file:
            assert file.read() == struct.pack(">5q", 0, 3, 3, 303, 303) + b"abc" + (
                b"d" * 300
            )
        assert await take(Reader(outputs).fetch(range(4))) == expected(pieces, 0)
        outputs.abort()

    good_world(1, main)


def test_wrong_arguments_are_named():
    async def main(comm):
        with pytest.raises(ValueError, match="num_maps is 0"):
            await MapOutputs.create(comm, 0, 3)
        with pytest.raises(ValueError, match="num_partitions is -1"):
            await MapOutputs.create(comm, 1, -1)
        with pytest.raises(ValueError, match="window is 0"):
            await MapOutputs.create(comm, 1, 1, window=0)
        with pytest.raises(ValueError, match="max_mapped is 10 bytes, less"):
            await MapOutputs.create(comm, 1, 1, window=20, max_mapped=10)
        outputs = await MapOutputs.create(comm, 2, 3)
        with pytest.raises(ValueError, match="no map 2"):
            Writer(outputs, 2)
        with pytest.raises(ValueError, match="backend is 'disk'"):
            Writer(outputs, 1, "disk")
        with pytest.raises(ValueError, match="a path is given"):
            Writer(outputs, 1, "file")
        with pytest.raises(ValueError, match="byteorder is 'middle'"):
            Writer(outputs, 1, byteorder="middle")
        with pytest.raises(ValueError, match="no map -1"):
            outputs.find(-1)
        writer = Writer(outputs, 1)
        with pytest.raises(ValueError, match="no partition 3"):
            writer.write(3, b"")
        with pytest.raises(TypeError):
            writer.write(0, "text")
        reader = Reader(outputs)
        for partition, text in (
            (3, "no partition 3"),
            (range(4), "no partitions"),
            (range(0, 3, 2), "gaps"),
        ):
            with pytest.raises(ValueError, match=text):
                await take(reader.fetch(partition))
        with pytest.raises(ValueError, match="no map 7"):
            await take(reader.fetch(0, [7]))
        with pytest.raises(ValueError, match="max_inflight is 0"):
            await take(reader.fetch(0, max_inflight=0))
        reader.close()
        with pytest.raises(ucp.UCXCloseError, match="reader is closed"):
            await take(reader.fetch(0))
        outputs.abort()
        with pytest.raises(ucp.UCXCloseError):
            Writer(outputs, 1)
        with pytest.raises(ucp.UCXCloseError):
            Reader(outputs)
        with pytest.raises(ucp.UCXCloseError):
            outputs.find(0)
        with pytest.raises(ucp.UCXCloseError):
            await writer.commit()
        assert outputs.closed()
        await outputs.close()

    good_world(1, main)


def test_ranks_that_give_different_numbers():
    async def main(comm):
        with pytest.raises(ucp.UCXError, match="different numbers of maps"):
            await MapOutputs.create(comm, 1 + comm.rank, 1)
        outputs = await MapOutputs.create(comm, 1, 1)
        outputs.abort()

    good_world(2, main)


def test_a_cancelled_fetch_can_be_begun_again():
    async def main(comm):
        outputs = await MapOutputs.create(comm, 2, 1)
        reader = Reader(outputs)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(take(reader.fetch(0)), 0.02)
        await put(outputs, comm.rank, [(0, b"x" * 1000)])
        assert len(await take(reader.fetch(0))) == 2
        await comm.barrier()
        outputs.abort()

    good_world(2, main)


@pytest.mark.parametrize("elsewhere", [False, True])
def test_blocks_are_landed_in_a_pool(elsewhere):
    async def main(comm):
        outputs = await MapOutputs.create(comm, 3, 4)
        pieces = {m: content(m, 4, 5) for m in range(3)}
        if comm.rank == 0:
            for map_id in range(3):
                await put(outputs, map_id, pieces[map_id])
        await comm.barrier()
        with ucp.BufferPool(4, 4096) as pool:
            reader = Reader(outputs, elsewhere=elsewhere)
            got = await take(reader.fetch(range(4), pool=pool, max_inflight=9000))
            assert got == {
                key: data
                for m in range(3)
                for key, data in expected(pieces[m], m).items()
            }
            assert pool.free == 4
            async with contextlib.aclosing(reader.fetch(range(4), pool=pool)) as blocks:
                block = await anext(blocks)
                assert memoryview(block).readonly
            del block
            assert pool.free == 4
            reader.close()
            await comm.barrier()
        await outputs.close(20)

    good_world(2, main)


def test_preconnecting_opens_what_is_committed():
    async def main(comm):
        outputs = await MapOutputs.create(comm, 6, 2)
        for map_id in range(comm.rank, 5, 2):
            await put(outputs, map_id, [(0, b"data")])
        await comm.barrier()
        for elsewhere in (False, True):
            reader = Reader(outputs, elsewhere=elsewhere)
            assert await reader.preconnect() == 5
            assert await reader.preconnect([1, 5]) == 1
            assert reader.statistics.num_opened == 5
            await take(reader.fetch(0, range(5)))
            assert reader.statistics.num_opened == 5
            reader.forget()
            await take(reader.fetch(0, [1]))
            assert reader.statistics.num_opened == 6
        await comm.barrier()
        outputs.abort()

    good_world(2, main)


def test_many_maps_of_many_partitions():
    """1000 maps of 200 partitions of 0 to 4 KiB."""
    sizes = [0, 0, 0, 1, 20, 100, 400, 4096]

    def pieces_of(map_id):
        rng = random.Random(map_id)
        picked = rng.choices(sizes, [40, 20, 20, 8, 6, 3, 2, 1], k=200)
        return [(p, bytes([(map_id + p) % 251]) * n) for p, n in enumerate(picked) if n]

    async def main(comm):
        outputs = await MapOutputs.create(comm, 1000, 200)
        for map_id in range(comm.rank, 1000, 2):
            await put(outputs, map_id, pieces_of(map_id))
        await comm.barrier()
        whole = [pieces_of(map_id) for map_id in range(1000)]
        for elsewhere in (False, True):
            reader = Reader(outputs, elsewhere=elsewhere)
            half = range(100 * comm.rank, 100 * comm.rank + 100)
            got = await take(reader.fetch(half))
            assert got == {
                (m, p): data
                for m, pieces in enumerate(whole)
                for p, data in pieces
                if p in half
            }
            reader.close()
        await comm.barrier()
        await outputs.close(20)

    good_world(2, main)


def test_blocks_outlive_everything():
    kept = []

    async def main(comm):
        outputs = await MapOutputs.create(comm, 2, 2)
        await put(outputs, comm.rank, [(0, b"x" * 4000), (1, b"y")])
        blocks = [block async for block in Reader(outputs).fetch(range(2), timeout=20)]
        kept.extend(blocks)
        await comm.barrier()
        outputs.abort()

    good_world(2, main)
    assert sorted(bytes(block) for block in kept) == [b"x" * 4000] * 4 + [b"y"] * 4
    kept.clear()
    assert live_objects()["requests"] == 0


def test_a_failed_rank_ends_neither_reading_nor_writing():
    async def main(comm):
        outputs = await MapOutputs.create(comm, 5, 1)
        await put(outputs, comm.rank, [(0, bytes([comm.rank]) * 5000)])
        await comm.barrier()
        if comm.rank == 2:
            outputs.abort()
            raise RuntimeError("it ends")
        with pytest.raises(ucp.UCXRankFailed):
            await comm.barrier()
        assert comm.failure
        reader = Reader(outputs, elsewhere=True)
        with pytest.raises(ucp.UCXError, match=r"map 2 .*of rank 2") as exc:
            await take(reader.fetch(0, range(3)))
        assert (exc.value.map_id, exc.value.rank) == (2, 2)
        await say(outputs, comm.rank, 1)
        if comm.rank == 0:
            await put(outputs, 2, [(0, b"again")])
        while outputs.find(2).epoch != 2:
            await asyncio.sleep(0.001)
        got = await take(reader.fetch(0, [0, 1, 2]))
        assert got == {(0, 0): b"\0" * 5000, (1, 0): b"\1" * 5000, (2, 0): b"again"}
        await say(outputs, comm.rank, 2)
        return got

    async def say(outputs, rank, epoch):
        """Wait until both ranks have come here, of which maps tell."""
        await put(outputs, 3 + rank, [])
        found = [None]
        while not all(each and each.epoch >= epoch for each in found):
            found = [outputs.find(3), outputs.find(4)]
            await asyncio.sleep(0.001)

    ends = world(3, main)
    assert isinstance(ends[2], RuntimeError)
    assert ends[0] == ends[1] and isinstance(ends[0], dict), ends


@pytest.mark.parametrize("has_pool", [False, True])
@pytest.mark.parametrize("is_again", [False, True])
def test_a_later_epoch_is_read_instead_of_one_that_has_gone(has_pool, is_again):
    """Also in the middle of a fetch; without one the error names map and rank."""
    parts, size = 24, 60000

    async def main(comm):
        outputs = await MapOutputs.create(comm, 1, parts)
        if comm.rank == 0:
            await put(outputs, 0, [(p, b"a" * size) for p in range(parts)])
            await comm.barrier()
            await comm.barrier()  # the reader has its first block
            if is_again:
                await put(outputs, 0, [(p, b"b" * size) for p in range(parts)])
            else:
                outputs.abort()
            await comm.barrier()
            await comm.barrier()
            outputs.abort()
            return
        await comm.barrier()
        pool = ucp.BufferPool(4, 1 << 16) if has_pool else None
        reader, got = Reader(outputs, elsewhere=True), []
        error = None
        try:
            async for block in reader.fetch(
                range(parts), max_inflight=2 * size, pool=pool, timeout=20
            ):
                got.append((block.epoch, bytes(block)))
                block.release()
                del block
                if len(got) == 1:
                    await comm.barrier()
                    await comm.barrier()
        except ucp.UCXError as exc:
            error = exc.map_id, exc.rank
        assert {(epoch, set(data)) == (1, {97}) for epoch, data in got[:1]} == {True}
        assert all(data == b" ab"[n : n + 1] * size for n, data in got)
        if is_again:
            assert (len(got), got[-1][0], error) == (parts, 2, None)
        else:
            assert (len(got) < parts, error) == (True, (0, 0))
        await comm.barrier()
        outputs.abort()

    good_world(2, main)


def test_time_counts_while_a_pool_is_empty():
    async def main(comm):
        outputs = await MapOutputs.create(comm, 1, 4)
        if comm.rank == 0:
            await put(outputs, 0, [(p, b"x" * 5000) for p in range(4)])
        await comm.barrier()
        with ucp.BufferPool(2, 8192) as pool:
            reader = Reader(outputs, elsewhere=True)
            if comm.rank == 1:
                kept = []
                with pytest.raises(ucp.UCXTimeout, match=r"no free buffer for 0\.05 s"):
                    async for block in reader.fetch(range(4), pool=pool, timeout=0.05):
                        kept.append(block)
                assert len(kept) == 2
                view = memoryview(kept[0])
                with pytest.raises(BufferError, match="still viewed"):
                    kept[0].release()
                view.release()
                kept[0].release()
                assert kept[0].place == "copied"
                del kept, block
            with pytest.raises(TypeError, match="pool must be a BufferPool"):
                await take(reader.fetch(0, pool=5))
        await comm.barrier()
        outputs.abort()

    good_world(2, main)


def test_maps_are_read_once_each():
    async def main(comm):
        outputs = await MapOutputs.create(comm, 2, 1)
        await put(outputs, 0, [(0, b"x")])
        reader = Reader(outputs)
        assert await take(reader.fetch(0, [0, 0, 0])) == {(0, 0): b"x"}
        for maps in (b"\0", bytearray(1), "0"):
            with pytest.raises(TypeError, match="maps must be an iterable"):
                await take(reader.fetch(0, maps))
        for options, text in (
            ({"window": 2**62}, r"window is .* not 1 to"),
            ({"window": 2**63 - 1}, r"window is .* not 1 to"),
            ({"max_mapped": 2**50}, r"max_mapped is .* not 1 to"),
            ({"lease": 0}, "lease is 0"),
        ):
            with pytest.raises(ValueError, match=text):
                await MapOutputs.create(comm, 1, 1, **options)
        outputs.abort()

    good_world(1, main)


def test_a_commit_needs_a_communicator_that_is_open():
    async def main(comm):
        outputs = await MapOutputs.create(comm, 2, 1)
        writer = Writer(outputs, comm.rank)
        writer.write(0, b"nobody would hear of it")
        await comm.barrier()
        comm.close()
        with pytest.raises(ucp.UCXCloseError, match="communicator"):
            await writer.commit()
        outputs.abort()

    good_world(2, main)


def test_a_cancelled_creation_is_told_to_the_others():
    async def main(comm):
        making = MapOutputs.create(comm, 1, 1)
        if comm.rank == 0:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(making, 0.05)
            await comm.barrier()
        else:
            await comm.barrier()
            with pytest.raises(ucp.UCXRankFailed, match="making the outputs") as exc:
                await making
            assert (exc.value.rank, exc.value.op) == (0, "create")
        await comm.barrier()

    good_world(2, main)


def test_what_has_gone_is_named_while_it_is_opened(tmp_path):
    """An output that cannot be opened at all, at the first look."""

    async def main(comm):
        outputs = await MapOutputs.create(comm, 2, 1)
        path = tmp_path / "map"
        await put(outputs, 1, [(0, b"x")], "file", path=path)
        path.unlink()
        with pytest.raises(ucp.UCXError, match="No such file") as exc:
            await take(Reader(outputs).fetch(0, [1]))
        assert (exc.value.map_id, exc.value.rank, exc.value.errno) == (1, 0, 2)
        outputs.abort()

    good_world(1, main)


def test_closing_in_any_order():
    kept = []

    async def main(comm):
        outputs = await MapOutputs.create(comm, 3, 1)
        await put(outputs, comm.rank, [(0, b"x" * 100000)])
        await comm.barrier()
        reader, writer = Reader(outputs), Writer(outputs, 2)
        writer.write(0, b"late")
        blocks = [block async for block in reader.fetch(0, [0, 1])]
        await comm.barrier()
        comm.close()
        waiting = reader.fetch(0, [2])
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(waiting), 0.01)
        kept.append((outputs, reader, writer, blocks, waiting))

    good_world(2, main)
    for _, _, _, blocks, _ in kept:
        assert all(bytes(block) == b"x" * 100000 for block in blocks)
    kept.clear()
