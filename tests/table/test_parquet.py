# SPDX-License-Identifier: BSD-3-Clause
"""``ucp.table.read_parquet`` and ``write_parquet``."""

import os

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
        ("none", {}, OSError, "rank 0: there is no Parquet file '.*none'$"),
        ("0.parquet", {"columns": ["x"]}, KeyError, "has no column 'x', only 'n', 's'"),
        ("0.parquet", {"filters": 5}, Exception, "rank 0: "),
        ("other.txt", {}, Exception, "rank 0: "),
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
        with pytest.raises(ValueError, match=r"rank 0 calls .*, and rank 1 "):
            await ucp.table.read_parquet(folder / f"x{comm.rank}.parquet", comm=comm)

    good_world(2, main)


def test_ranks_write_files_of_a_directory(tmp_path):
    async def main(comm):
        table = rows_of(10 * comm.rank, 10 * comm.rank + 10)
        path = tmp_path / "new" / "folder"
        given = table if comm.rank != 1 else None
        name = await ucp.table.write_parquet(given, path, comm=comm, compression="gzip")
        assert name == str(path / f"part-{comm.rank:05}.parquet")
        await comm.barrier()
        with pytest.raises(OSError, match="folder' is not empty: give overwrite=True"):
            await ucp.table.write_parquet(table, path, comm=comm)
        return await ucp.table.read_parquet(path, comm=comm), path

    found, paths = zip(*good_world(3, main), strict=True)
    expected = pa.concat_tables([rows_of(0, 10), rows_of(20, 30)])
    assert pa.concat_tables(found).equals(expected)
    assert sorted(os.listdir(paths[0])) == [f"part-0000{n}.parquet" for n in range(3)]

    async def again(comm):
        table = rows_of(0, 5)
        await ucp.table.write_parquet(table, paths[0], comm=comm, overwrite=True)
        with pytest.raises(OSError, match="is a file: give a directory"):
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
