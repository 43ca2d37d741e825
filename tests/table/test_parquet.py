# SPDX-License-Identifier: BSD-3-Clause
"""``ucp.table.read_parquet`` and ``write_parquet``."""

import asyncio
import os
import threading

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from worlds import good_world

import ucp
import ucp.table


def rows_of(begin, end):
    texts = pa.array([f"row {n}" for n in range(begin, end)])
    return pa.table({"n": np.arange(begin, end), "s": texts})


@pytest.fixture
def folder(tmp_path):
    """Three files of 1000 rows in all, in row groups of 50."""
    for number, (begin, end) in enumerate([(0, 400), (400, 410), (410, 1000)]):
        file = tmp_path / f"{number}.parquet"
        pq.write_table(rows_of(begin, end), file, row_group_size=50)
    (tmp_path / "other.txt").write_text("no Parquet")
    (tmp_path / "empty").mkdir()
    return tmp_path


@pytest.mark.parametrize("size", [1, 2, 3])
def test_row_groups_are_divided_between_ranks(folder, size):
    async def main(comm):
        whole = await ucp.table.read_parquet(folder, comm=comm)
        some = await ucp.table.read_parquet(
            f"{folder}/[02].parquet",
            comm=comm,
            columns=["s"],
            filters=[("n", ">=", 395), ("n", "<", 500)],
        )
        one = await ucp.table.read_parquet(folder / "1.parquet", comm=comm)
        return whole, some, one

    ends = good_world(size, main)
    whole, some, one = map(pa.concat_tables, zip(*ends, strict=True))
    assert whole.equals(rows_of(0, 1000))
    assert one.equals(rows_of(400, 410))
    texts = [f"row {n}" for n in (*range(395, 400), *range(410, 500))]
    assert some.to_pydict() == {"s": texts}
    counts = [end[0].num_rows for end in ends]
    assert max(counts) - min(counts) <= 100


@pytest.mark.parametrize(
    ("path", "options", "error", "text"),
    [
        ("none", {}, FileNotFoundError, "0: there is no file or directory '.*/none'$"),
        ("*.parq", {}, FileNotFoundError, "there is no file or .*/\\*.parq'$"),
        ("empty", {}, FileNotFoundError, "directory '.*/empty' has no file that ends"),
        ("0.parquet", {"columns": ["x"]}, KeyError, "has no column 'x', only 'n', 's'"),
        ("0.parquet", {"columns": []}, ValueError, "rank 0: columns names no column"),
        ("0.parquet", {"filters": [("x", "=", 5)]}, KeyError, "there is only 'n', 's'"),
        ("0.parquet", {"filters": 5}, Exception, "rank 0: "),
        ("other.txt", {}, ValueError, "'.*other.txt' cannot be read as a Parquet file"),
        (5, {}, TypeError, "rank 0: expected str"),
    ],
)
def test_what_cannot_be_read_is_told_to_all(folder, path, options, error, text):
    async def main(comm):
        given = path if path == 5 else folder / path
        with pytest.raises(error, match=text):
            await ucp.table.read_parquet(given, comm=comm, **options)
        pq.write_table(pa.table({"other": [1]}), folder / f"x{comm.rank}.parquet")
        await comm.barrier()
        with pytest.raises(TypeError, match="has other columns than"):
            await ucp.table.read_parquet(folder, comm=comm)
        with pytest.raises(ValueError, match=r"^rank 0 calls read_parquet with path="):
            await ucp.table.read_parquet(folder / f"x{comm.rank}.parquet", comm=comm)
        with pytest.raises(ValueError, match=r"^rank 0 calls with .*, rank 1 with 're"):
            if comm.rank == 0:
                await ucp.table.write_parquet(rows_of(0, 1), folder / "o", comm=comm)
            await ucp.table.read_parquet(folder, comm=comm)

    good_world(2, main)


def test_ranks_write_files_of_a_directory(tmp_path):
    async def main(comm):
        table = rows_of(10 * comm.rank, 10 * comm.rank + 10)
        path = tmp_path / "new" / "folder"
        given = table if comm.rank != 1 else None
        name = await ucp.table.write_parquet(given, path, comm=comm, compression="gzip")
        assert name == str(path / f"part-{comm.rank:05}.parquet")
        await comm.barrier()
        with pytest.raises(
            FileExistsError, match="folder' is not empty: give overwrite=True"
        ):
            await ucp.table.write_parquet(table, path, comm=comm)
        return await ucp.table.read_parquet(path, comm=comm), path

    found, paths = zip(*good_world(3, main), strict=True)
    expected = pa.concat_tables([rows_of(0, 10), rows_of(20, 30)])
    assert pa.concat_tables(found).equals(expected)
    assert sorted(os.listdir(paths[0])) == [f"part-0000{n}.parquet" for n in range(3)]

    async def again(comm):
        table = rows_of(0, 5)
        await ucp.table.write_parquet(table, paths[0], comm=comm, overwrite=True)
        with pytest.raises(FileExistsError, match="is a file: give a directory"):
            await ucp.table.write_parquet(
                table, f"{paths[0]}/part-00000.parquet", comm=comm
            )

    good_world(2, again)
    assert sorted(os.listdir(paths[0])) == ["part-00000.parquet", "part-00001.parquet"]
    assert pq.read_table(paths[0]).num_rows == 10


def test_frames_are_read_with_their_types(tmp_path):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(
        {"n": pd.array([1, None], "Int16"), "c": pd.Categorical(["a", "b"])}
    )

    async def main(comm):
        mine = frame if comm.rank else None
        await ucp.table.write_parquet(mine, tmp_path / "out", comm=comm)

    good_world(2, main)
    found = pd.read_parquet(tmp_path / "out")
    assert found.dtypes.equals(frame.dtypes)


def test_a_rank_that_cannot_write_leaves_nothing(tmp_path, monkeypatch):
    def fail(*args, **options):
        raise OSError(28, "no space, on purpose")

    async def main(comm):
        options = {"compression": "gzip"}
        errors = (OSError, ucp.exceptions.UCXRankFailed)
        with pytest.raises(errors, match="on purpose"):
            await ucp.table.write_parquet(rows_of(0, 5), tmp_path, comm=comm, **options)
        await comm.barrier()

    monkeypatch.setattr(pq, "write_table", fail)
    good_world(2, main)
    assert os.listdir(tmp_path) == []


def old_and_new(size, folder):
    """A folder of files with 0, and what overwrites them with 1."""
    for rank in range(size):
        pq.write_table(pa.table({"x": [0]}), folder / f"part-{rank:05}.parquet")
    pq.write_table(pa.table({"x": [0]}), folder / "other.parquet")
    return pa.table({"x": [1]})


def values_in(folder):
    files = sorted(os.listdir(folder))
    return {file: pq.read_table(folder / file)["x"].to_pylist() for file in files}


def test_a_file_that_is_missing_at_the_end_leaves_the_old_ones(tmp_path, monkeypatch):
    table = old_and_new(2, tmp_path)
    before = values_in(tmp_path)
    give_names = ucp.table._parquet._give_names

    def lose_one(path, hidden, old):
        os.remove(os.path.join(path, hidden[1]))
        give_names(path, hidden, old)

    async def main(comm):
        with pytest.raises(OSError, match=r"^rank 0: \[Errno 2\] No such file"):
            await ucp.table.write_parquet(table, tmp_path, comm=comm, overwrite=True)

    with monkeypatch.context() as patch:
        patch.setattr("ucp.table._parquet._give_names", lose_one)
        good_world(2, main)
    assert values_in(tmp_path) == before


def test_files_are_overwritten_by_all_ranks_or_by_none(tmp_path):
    table = old_and_new(2, tmp_path)
    before = values_in(tmp_path)
    after = {f"part-0000{rank}.parquet": [1] for rank in range(2)}

    async def main(comm):
        ends = set()
        for steps in range(0, 120, 8):
            if comm.rank == 0:
                old_and_new(2, tmp_path)
            await comm.barrier()
            call = ucp.table.write_parquet(table, tmp_path, comm=comm, overwrite=True)
            task = asyncio.ensure_future(call)
            if comm.rank == 1:
                for _ in range(steps):
                    await asyncio.sleep(0 if steps % 16 else 0.0002)
                task.cancel()
            await asyncio.wait([task])
            await comm.barrier()
            found = values_in(tmp_path)
            assert found in (before, after)
            if comm.rank == 0:
                assert (found == after) == (task.exception() is None)
            ends.add(len(found))
            await comm.barrier()
        return ends

    assert good_world(2, main)[0] <= {2, 3}


def test_a_cancel_while_files_get_their_names_is_too_late(tmp_path, monkeypatch):
    table = old_and_new(2, tmp_path)
    cancels = []  # of rank 1's task
    done = []
    replace, remove = os.replace, os.remove

    def cancel_third(work):
        def counted(*args):
            done.append(args)
            while len(done) == 3 and cancels:
                was_told = threading.Event()
                cancels.pop()(was_told.set)
                assert was_told.wait(20)
            work(*args)

        return counted

    async def main(comm):
        call = ucp.table.write_parquet(table, tmp_path, comm=comm, overwrite=True)
        task = asyncio.ensure_future(call)
        if comm.rank == 1:
            loop = asyncio.get_running_loop()

            def cancel(then):
                loop.call_soon_threadsafe(task.cancel)
                loop.call_soon_threadsafe(then)

            cancels.append(cancel)
        await asyncio.wait([task])
        await comm.barrier()
        if comm.rank == 0:
            return task.result()
        assert task.cancelled()
        return None

    monkeypatch.setattr(os, "replace", cancel_third(replace))
    monkeypatch.setattr(os, "remove", cancel_third(remove))
    assert good_world(2, main)[0] == str(tmp_path / "part-00000.parquet")
    assert values_in(tmp_path) == {f"part-0000{rank}.parquet": [1] for rank in range(2)}


def test_a_cancel_waits_for_the_file_and_removes_it(tmp_path, monkeypatch):
    begun, let_go = threading.Event(), threading.Event()
    write = pq.write_table

    def hold(*args, **options):
        begun.set()
        assert let_go.wait(20)
        write(*args, **options)

    async def main(comm):
        call = ucp.table.write_parquet(rows_of(0, 5), tmp_path, comm=comm)
        task = asyncio.ensure_future(call)
        assert await asyncio.to_thread(begun.wait, 20)
        for _ in range(2):
            task.cancel()
            assert not (await asyncio.wait([task], timeout=0.02))[0]
        let_go.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert os.listdir(tmp_path) == []

    monkeypatch.setattr(pq, "write_table", hold)
    good_world(1, main)
