# SPDX-License-Identifier: BSD-3-Clause
# tests: ext/chunk ext/operations ext/type ucp/shuffle
"""``ucp.shuffle.Shuffler``: chunks come to the owners of their partitions."""

import asyncio
import contextlib
import gc
import itertools
import os
import random
import resource
import signal
import threading
from concurrent import futures

import numpy as np
import pytest
from objects import kept_objects
from worlds import Ranks, free_root, good_world, world

import ucp
from ucp.shuffle import Shuffler
from ucp.testing import live_objects

every_size = pytest.mark.parametrize("size", [1, 2, 3, 4])


def chunks_of(rank, size, partitions, count, seed):
    """What a rank inserts: (partition, bytes); reproducible on every rank."""
    rng = random.Random(f"{seed} {rank}")
    return [
        (
            rng.randrange(partitions),
            rng.randbytes(rng.choice([0, 7, 1000, 3000, 40000])),
        )
        for _ in range(count)
    ]


def memory_of(data):
    memory = ucp.Memory.allocate(max(len(data), 1))
    view = memoryview(memory)[: len(data)]
    view[:] = data
    return view


async def shuffle(comm, partitions, count, seed, op_id=0, **options):
    """Insert random chunks, extract everything, and check it."""
    size = comm.size
    inserted = {
        rank: chunks_of(rank, size, partitions, count, seed) for rank in range(size)
    }
    got = {}
    async with Shuffler(comm, op_id, partitions, **options) as shuffler:
        sent = [
            shuffler.insert(p, data if n % 2 else memory_of(data))
            for n, (p, data) in enumerate(inserted[comm.rank])
        ]
        shuffler.insert_finished()
        async for partition in shuffler:
            chunks = await shuffler.extract(partition)
            got[partition] = [(chunk.source, bytes(chunk)) for chunk in chunks]
            del chunks
        assert await shuffler.wait() is None
        await asyncio.gather(*sent)
        mine = [p for p in range(partitions) if shuffler.owner(p) == comm.rank]
    for partition in mine:
        assert got.pop(partition) == [
            (rank, data)
            for rank in range(size)
            for p, data in inserted[rank]
            if p == partition
        ]
    assert got == {}
    return shuffler.statistics


@every_size
@pytest.mark.parametrize("partitions", [1, 2, 7, 64])
def test_chunks_come_to_the_owner(size, partitions):
    async def main(comm):
        for seed in range(3):
            await shuffle(comm, partitions, 30, seed)

    good_world(size, main)


def test_two_shufflers_at_the_same_time():
    async def main(comm):
        ids = [3, 4, 5] if comm.rank else [5, 4, 3]
        await asyncio.gather(*[shuffle(comm, 5, 20, i, op_id=i) for i in ids])

    good_world(3, main)


def test_owners_are_as_asked():
    async def main(comm):
        await shuffle(comm, 6, 30, 1, owners=[2, 2, 1, 1, 0, 2])

    good_world(3, main)


def test_memory_is_viewed_and_bytes_are_copied():
    async def main(comm):
        async with Shuffler(comm, 0, 2) as shuffler:
            if comm.rank == 0:
                memory = ucp.Memory.allocate(5000)
                np.frombuffer(memory, "u1")[:] = 7
                for data in (memory, b"x" * 5000, b"y" * 10):
                    shuffler.insert(1, data)
            shuffler.insert_finished()
            async for partition in shuffler:
                found = await shuffler.extract(partition)
                return [(c.place, c.nbytes, bytes(c)[:1]) for c in found], repr(found)

    ends = good_world(2, main)
    assert ends[0] == ([], "[]")
    assert ends[1][0] == [
        ("mapped", 5000, b"\x07"),
        ("copied", 5000, b"x"),
        ("copied", 10, b"y"),
    ]
    assert "<ucp.Chunk of rank 0, 5000 bytes, mapped>" in ends[1][1]


def test_insert_is_done_when_the_chunk_is_released():
    async def main(comm):
        async with Shuffler(comm, 0, 2) as shuffler:
            sent = shuffler.insert(1 - comm.rank, ucp.Memory.allocate(5000))
            shuffler.insert_finished()
            [chunk] = await shuffler.extract(comm.rank)
            await comm.barrier()
            assert not sent.done()
            await comm.barrier()
            view = memoryview(chunk)
            with pytest.raises(BufferError, match="still viewed"):
                chunk.release()
            view.release()
            chunk.release()
            chunk.release()
            with pytest.raises(BufferError, match="released"):
                bytes(chunk)
            await sent

    good_world(2, main)


def test_chunks_outlive_everything():
    kept = []

    async def main(comm):
        shuffler = Shuffler(comm, 0, 4)
        sent = [shuffler.insert(p, memory_of(b"%d" % p * 2000)) for p in range(4)]
        shuffler.insert_finished()
        async for partition in shuffler:
            kept.extend(await shuffler.extract(partition))
        await shuffler.close()
        ends = await asyncio.gather(*sent, return_exceptions=True)
        assert {type(end) for end in ends} <= {ucp.UCXCloseError}

    good_world(2, main)
    gc.collect()
    assert sorted(bytes(chunk)[:1] for chunk in kept) == sorted(
        b"01230123"[i : i + 1] for i in range(8)
    )
    kept.clear()


def test_what_the_budget_does_not_hold_is_spilled(tmp_path):
    async def main(comm):
        have = await shuffle(comm, 4, 60, 5, budget=100_000, spill_dir=tmp_path)
        every = [chunk for r in range(3) for _, chunk in chunks_of(r, 3, 4, 60, 5)]
        small = sum(len(chunk) for chunk in every if len(chunk) <= 1024)
        assert have.most_held <= 100_000 + small
        return have.spilled_in, have.spilled_out

    for spilled_in, spilled_out in good_world(3, main):
        assert spilled_in + spilled_out > 0
    assert os.listdir(tmp_path) == []


def test_small_chunks_are_counted():
    async def main(comm):
        async with Shuffler(comm, 0, 2, budget=20_000) as shuffler:
            for _ in range(50):
                for partition in range(2):
                    shuffler.insert(partition, bytes(1000))
            shuffler.insert_finished()
            await shuffler.wait(comm.rank)
            assert shuffler.statistics.held == 100_000
            chunks = await shuffler.extract(comm.rank)
            assert shuffler.statistics.held == 0
            assert len(chunks) == 100
        assert shuffler.statistics.most_held == 100_000

    good_world(2, main)


def test_a_budget_without_a_file_says_so():
    async def main(comm):
        shuffler = Shuffler(comm, 0, 2, budget=20_000)
        if comm.rank == 0:
            for _ in range(3):
                shuffler.insert(1, bytes(9000))
        shuffler.insert_finished()
        if comm.rank == 1:
            with pytest.raises(ucp.UCXError, match="the budget holds no more"):
                await shuffler.extract(1)
        await comm.barrier()
        shuffler.abort()

    good_world(2, main)


@contextlib.contextmanager
def small_files(nbytes):
    """A file of this process that gets longer is as on a full disk."""
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_full_disk_is_an_error_and_ends_the_shuffle(tmp_path):
    source = """
        import errno, resource
        async def main():
            async with await connect() as comm:
                shuffler = ucp.shuffle.Shuffler(comm, 0, 1, budget=0, spill_dir="%s")
                await shuffler.insert(0, bytes(2000))
                soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))
                try:
                    await shuffler.insert(0, bytes(2_000_000))
                except ucp.UCXError as exc:
                    print(exc, exc.errno == errno.EFBIG)
                try:
                    shuffler.insert_finished()
                except ucp.UCXError as exc:
                    print(exc, exc.errno == errno.EFBIG)
                try:
                    await shuffler.extract(0)
                except ucp.UCXRankFailed as exc:
                    print(exc)
        import ucp.shuffle
        asyncio.run(main())
        """
    with Ranks(1, source % tmp_path) as ranks:
        end = ranks.end(0)
    text = f"the spill file cannot grow: [Errno 27] File too large: {str(tmp_path)!r}"
    lines = end.splitlines()
    assert lines[-3] == f"insert: {text} True"
    assert lines[-2] == f"insert_finished: an insert has failed: {text} True"
    assert lines[-1].endswith(f"rank 0 has aborted the communicator: insert: {text}")


# Rank 0 does not look at its inserts, of which most fail; rank 1 owns all chunks.
LOSES = """
import ucp.shuffle, resource

async def main():
    async with await connect() as comm:
        if comm.rank == 0:
            soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (3_000_000, hard))
        got = 0
        try:
            async with ucp.shuffle.Shuffler(
                comm, 0, 4, owners=[1] * 4, budget=4000, spill_dir=%r
            ) as shuffler:
                if comm.rank == 0:
                    for number in range(1000):
                        shuffler.insert(number %% 4, bytes(8000))
                if comm.rank == 1 or %r:
                    shuffler.insert_finished()
                async for partition in shuffler:
                    got += len(await shuffler.extract(partition))
        except ucp.UCXError as exc:
            print(type(exc).__name__, exc.errno if comm.rank == 0 else got, exc)

asyncio.run(main())
"""


@pytest.mark.parametrize("finishes", [True, False])
def test_a_lost_insert_is_an_error_on_every_rank(tmp_path, finishes):
    with Ranks(2, LOSES % (str(tmp_path), finishes)) as ranks:
        ends = [ranks.end(rank) for rank in (0, 1)]
    text = f"the spill file cannot grow: [Errno 27] File too large: {str(tmp_path)!r}"
    op = "insert_finished" if finishes else "close"
    assert ends[0] == f"UCXError 27 {op}: an insert has failed: {text}"
    assert ends[1].startswith("UCXRankFailed 0 ")
    assert ends[1].endswith(f"rank 0 has aborted the communicator: insert: {text}")


async def test_a_full_disk_is_told_when_the_shuffler_is_gone(tmp_path):
    async with await ucp.Communicator.connect(free_root(), 0, 1) as comm:
        shuffler = Shuffler(comm, 0, 1, budget=0, spill_dir=tmp_path)
        with small_files(1000):
            insert = shuffler.insert(0, bytes(2_000_000))
        shuffler.abort()
        with pytest.raises(ucp.UCXError, match=f"File too large: '{tmp_path}'$"):
            await insert


def test_small_chunks_are_spilled(tmp_path):
    async def main(comm):
        async with Shuffler(comm, 0, 2, budget=1000, spill_dir=tmp_path) as shuffler:
            for number in range(600):
                size = 300 + number
                shuffler.insert(number % 2, bytes([number % 251]) * size)
            shuffler.insert_finished()
            chunks = await shuffler.extract(comm.rank)
            for at, chunk in enumerate(chunks):
                number = at % 300 * 2 + comm.rank
                assert bytes(chunk) == bytes([number % 251]) * (300 + number)
            assert sum(chunk.place == "spilled" for chunk in chunks) > 590
            return shuffler.statistics.held

    for held in good_world(2, main):
        assert held < 1000


def test_inserts_of_other_threads_are_submitted():
    async def main(comm):
        async with Shuffler(comm, 0, 4) as shuffler:

            def insert(number):
                return [
                    shuffler.insert(at % 4, bytes([comm.rank, number, at]) * 1000)
                    for at in range(40)
                ]

            threads = [asyncio.to_thread(insert, number) for number in range(3)]
            inserts = list(itertools.chain(*await asyncio.gather(*threads)))
            shuffler.insert_finished()
            async for partition in shuffler:
                seen = {}
                for chunk in await shuffler.extract(partition):
                    source, number, at = bytes(chunk)[:3]
                    assert bytes(chunk) == bytes([source, number, at]) * 1000
                    seen.setdefault((source, number), []).append(at)
                    chunk.release()
                expected = list(range(partition, 40, 4))  # each thread's in their order
                assert seen == {(s, n): expected for s in range(2) for n in range(3)}
            await asyncio.gather(*inserts)
            await asyncio.to_thread(inserts[0].result, 10)

    good_world(2, main)


async def test_an_insert_of_another_thread_fails_in_its_future():
    async with await ucp.Communicator.connect(free_root(), 0, 1) as comm:
        async with Shuffler(comm, 0, 2) as shuffler:
            insert = await asyncio.to_thread(shuffler.insert, 2, b"")
            with pytest.raises(ValueError, match="there is no partition 2"):
                await insert
            shuffler.insert_finished()
            insert = await asyncio.to_thread(shuffler.insert, 0, b"late")
            with pytest.raises(ucp.UCXError, match="insert_finished"):
                await insert


def test_an_insert_of_another_thread_ends_with_the_loop():
    async def main():
        comm = await ucp.Communicator.connect(free_root(), 0, 1)
        shuffler = Shuffler(comm, 0, 1)
        thread = threading.Thread(
            target=lambda: inserts.append(shuffler.insert(0, bytes(2000)))
        )
        thread.start()
        thread.join()

    inserts = []
    asyncio.run(main())
    assert futures.wait(inserts, 10).not_done == set()


def test_progress_is_reported():
    async def main(comm):
        told = []
        async with Shuffler(
            comm, 0, 6, progress=lambda *numbers: told.append(numbers)
        ) as shuffler:
            for partition in range(6):
                shuffler.insert_finished(partition)
            async for partition in shuffler:
                await shuffler.extract(partition)
            await asyncio.sleep(0)
        return told

    for told in good_world(2, main):
        assert told == sorted(told)  # what ends together is told together
        assert told[-1] == (3, 3)


async def test_bad_arguments_are_named():
    comm = await ucp.Communicator.connect(free_root(), 0, 1)
    for count, error in [(0, ValueError), (65536, ValueError), ("4", TypeError)]:
        with pytest.raises(error):
            Shuffler(comm, 0, count)
    for op_id in (-1, 2**64):
        with pytest.raises(ValueError, match=rf"op_id must be 0 to .*, not {op_id}$"):
            Shuffler(comm, op_id, 2)
    with pytest.raises(ValueError, match=r"owners has 1 ranks for 2 partitions"):
        Shuffler(comm, 0, 2, owners=[0])
    with pytest.raises(ValueError, match=r"owners: 1 is no rank of 1, of partition 1"):
        Shuffler(comm, 0, 2, owners=[0, 1])
    with pytest.raises(ValueError, match="budget is -1 bytes"):
        Shuffler(comm, 0, 2, budget=-1)
    with pytest.raises(FileNotFoundError, match="no/such/place"):
        Shuffler(comm, 0, 2, spill_dir="/no/such/place")
    with pytest.raises(TypeError, match="progress must be callable"):
        Shuffler(comm, 0, 2, progress=3)
    async with Shuffler(comm, 0, 2) as shuffler:
        with pytest.raises(ValueError, match="no partition 2"):
            shuffler.insert(2, b"")
        with pytest.raises(TypeError):
            shuffler.insert(0, "text")
        with pytest.raises(ValueError, match="no partition 2"):
            await shuffler.extract(2)
        with pytest.raises(ValueError, match="no partition 7"):
            shuffler.insert_finished(7)
        for method in (shuffler.owner, lambda none: shuffler.insert(none, b"")):
            with pytest.raises(TypeError, match="NoneType"):
                method(None)
        with pytest.raises(TypeError, match="NoneType"):
            await shuffler.extract(None)
        shuffler.insert_finished(1)
        with pytest.raises(ucp.UCXError, match="insert_finished"):
            shuffler.insert_finished(1)
        with pytest.raises(ucp.UCXError, match="insert_finished"):
            await shuffler.insert(1, b"")
        shuffler.insert_finished()
        assert await shuffler.extract(1) == []
        with pytest.raises(LookupError, match="partition 1 has been extracted"):
            await shuffler.extract(1)
    with pytest.raises(ucp.UCXCloseError):
        shuffler.insert(0, b"")
    await shuffler.close()
    comm.close()


async def test_a_partition_of_another_rank_is_named():
    async def main(comm):
        async with Shuffler(comm, 0, 2) as shuffler:
            other = 1 - comm.rank
            with pytest.raises(
                ValueError, match=rf"partition {other} is rank {other}'s"
            ):
                await shuffler.extract(other)

    await asyncio.to_thread(good_world, 2, main)


def test_an_exception_ends_it_on_every_rank():
    async def main(comm):
        async with Shuffler(comm, 0, 6) as shuffler:
            if comm.rank == 2:
                raise ArithmeticError
            await shuffler.wait()

    ends = world(3, main)
    assert isinstance(ends[2], ArithmeticError)
    for end in ends[:2]:
        assert isinstance(end, ucp.UCXRankFailed)
        assert end.rank == 2


@pytest.mark.parametrize("step", range(5))
def test_a_killed_rank_is_named(step):
    source = f"""
        import ucp.shuffle
        async def main():
            comm = await connect()
            shuffler = ucp.shuffle.Shuffler(comm, 0, 6)
            def die(number):
                if comm.rank == 1 and number == {step}:
                    os.kill(os.getpid(), signal.SIGKILL)
            die(0)
            for i in range(12):
                shuffler.insert(i % 6, ucp.Memory.allocate(20000))
            die(1)
            shuffler.insert_finished()
            die(2)
            await asyncio.sleep(0)
            die(3)
            kept = []
            async for partition in shuffler:
                kept += await shuffler.extract(partition)
                die(4)
            await shuffler.close()
            await comm.barrier()
        try:
            asyncio.run(main())
        except ucp.UCXRankFailed as exc:
            print("failed", exc.rank)
        """
    with Ranks(3, source) as ranks:
        ends = [ranks.end(rank) for rank in (0, 2)]
    assert ends == ["failed 1"] * 2


def test_inserts_that_nobody_awaits_are_quiet():
    async def main(comm):
        told = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, context: told.append(context))
        kept = []
        shuffler = Shuffler(comm, 0, 2)
        for partition in range(2):
            shuffler.insert(partition, ucp.Memory.allocate(50_000))
        shuffler.insert_finished()
        async for partition in shuffler:
            kept += await shuffler.extract(partition)
        await comm.barrier()
        await shuffler.close()
        shuffler = Shuffler(comm, 0, 2)
        shuffler.insert(1 - comm.rank, ucp.Memory.allocate(50_000))
        if comm.rank == 0:
            shuffler.abort("enough")
        else:
            with pytest.raises(ucp.UCXRankFailed, match="enough"):
                await shuffler.wait()
        del shuffler
        gc.collect()
        await asyncio.sleep(0)
        assert len(kept) == 2
        return told

    assert good_world(2, main) == [[], []]


def test_every_close_waits_for_the_end():
    async def main(comm):
        shuffler = Shuffler(comm, 0, 2)
        if comm.rank == 1:
            await comm.barrier()  # rank 0 is closing
        closes = [asyncio.ensure_future(shuffler.close()) for _ in range(3)]
        await asyncio.sleep(0)
        if comm.rank == 0:
            closes[0].cancel()
            await asyncio.wait(closes[:1])
            assert not any(close.done() for close in closes[1:])
            assert not shuffler.closed()
            await comm.barrier()
        ends = await asyncio.gather(*closes, return_exceptions=True)
        assert shuffler.closed()
        assert shuffler.statistics.num_complete == 1
        await shuffler.close()
        return [type(end) for end in ends[1:]]

    assert good_world(2, main) == [[type(None)] * 2] * 2


def test_a_cancelled_close_that_fails_is_quiet():
    async def main(comm):
        told = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, context: told.append(context))
        shuffler = Shuffler(comm, 0, 2)
        if comm.rank == 1:
            await comm.barrier()
            shuffler.abort("enough")
            return told
        closing = asyncio.ensure_future(shuffler.close())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait([closing])
        await comm.barrier()
        with pytest.raises(ucp.UCXRankFailed, match="enough"):
            await shuffler.close()
        del shuffler, closing
        gc.collect()
        await asyncio.sleep(0)
        return told

    assert good_world(2, main) == [[], []]


def test_an_abort_before_the_report_is_quiet():
    async def main(comm):
        told, reports = [], []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, context: told.append(context))
        shuffler = Shuffler(comm, 0, 1, progress=lambda *have: reports.append(have))
        shuffler.insert_finished()
        shuffler.abort()
        for _ in range(5):
            await asyncio.sleep(0)
        return told, reports

    assert good_world(1, main) == [([], [])]


@pytest.mark.parametrize("keeps_inserts", [False, True])
@pytest.mark.parametrize("has_progress", [False, True])
@pytest.mark.parametrize("partition", [0, 1, None])
def test_dropping_it_ends_it_on_every_rank(partition, has_progress, keeps_inserts):
    async def main(comm):
        progress = (lambda *have: None) if has_progress else None
        if comm.rank == 1:
            with pytest.raises(ucp.UCXRankFailed, match=r"given back before the"):
                shuffler = Shuffler(comm, 0, 2, progress=progress)
                shuffler.insert_finished()
                await shuffler.extract(1)
            return True
        shuffler = Shuffler(comm, 0, 2, progress=progress)
        inserts = []
        if partition is not None:
            for size in (8, 1 << 20):
                inserts.append(shuffler.insert(partition, bytes(size)))
            inserts.append(shuffler.insert(partition, memory_of(bytes(1 << 20))))
        if not keeps_inserts:
            inserts.clear()
        del shuffler
        for end in await asyncio.gather(*inserts, return_exceptions=True):
            assert end is None or "dropped before its end" in str(end)
        await comm.recv(bytearray(1), 1)
        return True

    async def tell(comm):
        result = await main(comm)
        if comm.rank == 1:
            await comm.send(b"x", 0)
        return result

    assert good_world(2, tell) == [True, True]


def test_a_close_that_has_begun_keeps_it():
    async def main(comm):
        shuffler = Shuffler(comm, 0, 2)
        shuffler.insert(1 - comm.rank, bytes(1 << 20))
        if comm.rank == 0:
            closing = asyncio.create_task(shuffler.close())
            await asyncio.sleep(0)
            closing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await closing
            del closing, shuffler
            gc.collect()
            await comm.recv(bytearray(1), 1)
        else:
            shuffler.insert_finished()
            [chunk] = await shuffler.extract(1)
            assert bytes(chunk) == bytes(1 << 20)
            del chunk
            await shuffler.close()
            await comm.send(b"x", 0)
        return True

    assert good_world(2, main) == [True, True]


def test_nothing_stays():
    async def main(comm):
        await shuffle(comm, 5, 10, 0)

    good_world(2, main)
    gc.collect()
    before = kept_objects()
    for _ in range(5):
        good_world(2, main)
    gc.collect()
    assert live_objects() == before


def test_the_reason_of_a_rank_that_has_ended_long_ago_is_told():
    program = """
    import ucp.shuffle

    async def main():
        async with await connect() as comm:
            await comm.barrier()
            if comm.rank == 0:
                print("up", flush=True)
                await asyncio.to_thread(sys.stdin.readline)
            shuffler = ucp.shuffle.Shuffler(comm, 0, 2)
            if comm.rank == 1:
                shuffler.abort("enough")
                return
            try:
                await shuffler.wait()
            except ucp.UCXRankFailed as exc:
                print(exc.rank, exc)

    asyncio.run(main())
    """
    with Ranks(2, program) as ranks:
        assert ranks.line(0) == "up"
        assert ranks.end(1) == ""
        ranks.processes[0].stdin.write("go\n")
        ranks.processes[0].stdin.flush()
        assert ranks.end(0) == "1 rank 1 has aborted the communicator: enough"
