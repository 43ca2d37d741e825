# SPDX-License-Identifier: BSD-3-Clause
# tests: ucp/hidden
"""What writers of Parquet files leave when they are killed, and who removes it."""

import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from worlds import Ranks, good_world

import ucp
import ucp.table
from ucp.table import _hidden

LEFT = ".part-00001.0123456789abcdef.tmp"

# One rank ends in the middle of a step, as by SIGKILL.
KILLED = """
import ucp.table, pyarrow as pa, pyarrow.parquet as pq
folder, victim, step = %r, %r, %r

def kill():
    os.kill(os.getpid(), signal.SIGKILL)

def die_after(work, calls):
    left = list(range(calls))
    def counted(*args, **options):
        work(*args, **options)
        left.pop()
        if not left:
            kill()
    return counted

async def main():
    comm = await connect()
    if comm.rank == victim:
        if step == "open":
            pq.write_table = lambda *args, **options: kill()
        elif step == "written":
            pq.write_table = die_after(pq.write_table, 1)
        else:
            os.replace = die_after(os.replace, step)
    table = pa.table({"x": [0]})
    try:
        await ucp.table.write_parquet(table, folder, comm=comm, overwrite=True)
    except ucp.UCXRankFailed:
        print("failed", flush=True)
    os._exit(0)

asyncio.run(main())
"""


def write(folder, value, size=2, **options):
    async def main(comm):
        table = pa.table({"x": [value]})
        await ucp.table.write_parquet(table, folder, comm=comm, **options)

    good_world(size, main)


def values_in(folder):
    files = sorted(os.listdir(folder))
    return {file: pq.read_table(folder / file)["x"].to_pylist() for file in files}


@pytest.mark.parametrize(
    ("victim", "step", "left"),
    [
        (1, "open", (1,)),
        (0, "written", (1,)),
        (0, 1, (1,)),
        (0, 2, (2,)),
        (0, 3, (1,)),
    ],
)
def test_the_next_writer_removes_what_a_killed_one_has_left(
    tmp_path, victim, step, left
):
    with Ranks(2, KILLED % (str(tmp_path), victim, step)) as ranks:
        assert ranks.end(1 - victim) == "failed"
        ranks.processes[victim].wait()
    hidden = [name for name in os.listdir(tmp_path) if name.startswith(".part-")]
    assert len(hidden) in left
    finished = set(os.listdir(tmp_path)).difference(hidden)
    if finished:
        assert finished == {"part-00000.parquet"}
        with pytest.raises(FileExistsError, match="is not empty: give overwrite=True"):
            write(tmp_path, 1, size=1)
        assert values_in(tmp_path) == {"part-00000.parquet": [0]}
    write(tmp_path, 1, overwrite=bool(finished))
    expected = {f"part-0000{rank}.parquet": [1] for rank in range(2)}
    assert values_in(tmp_path) == expected


def test_files_of_a_writer_that_goes_on_are_not_removed(tmp_path):
    other = _hidden.HiddenFile(str(tmp_path), 3)
    other.make()
    (tmp_path / LEFT).touch()
    (tmp_path / f"{LEFT}.all").touch()
    write(tmp_path, 1, size=1)
    names = {"part-00000.parquet", other.name}
    assert set(os.listdir(tmp_path)) == names
    write(tmp_path, 2, size=1, overwrite=True)
    assert set(os.listdir(tmp_path)) == names
    other.remove()
    other.remove()
    assert values_in(tmp_path) == {"part-00000.parquet": [2]}


def test_only_names_of_hidden_files_are_removed(tmp_path):
    names = {
        ".part-00001.tmp",
        LEFT[1:],
        f"{LEFT}.parquet.bak",
        f"{LEFT.upper()}",
        "notes.txt",
    }
    for name in names:
        (tmp_path / name).touch()
    (tmp_path / LEFT.replace("1", "2")).symlink_to(tmp_path / "notes.txt")
    (tmp_path / LEFT.replace("1", "3")).mkdir()
    kept = set(os.listdir(tmp_path))
    (tmp_path / LEFT).touch()
    with pytest.raises(FileExistsError, match="is not empty: give overwrite=True"):
        write(tmp_path, 1, size=1)
    assert set(os.listdir(tmp_path)) == kept
    write(tmp_path, 1, size=1, overwrite=True)
    assert set(os.listdir(tmp_path)) == kept | {"part-00000.parquet"}


def test_a_file_that_is_removed_before_it_is_locked_is_made_again(
    tmp_path, monkeypatch
):
    flock = _hidden.fcntl.flock
    names = []

    def late(file, flags):
        if not names:
            names.extend(os.listdir(tmp_path))
            monkeypatch.setattr(_hidden.fcntl, "flock", flock)
            _hidden.remove_left(str(tmp_path))
        flock(file, flags)

    monkeypatch.setattr(_hidden.fcntl, "flock", late)
    file = _hidden.HiddenFile(str(tmp_path), 0)
    file.make()
    assert os.listdir(tmp_path) == [file.name] != names
    file.remove()
    assert os.listdir(tmp_path) == []


def test_a_file_system_without_locks_keeps_hidden_files(tmp_path, monkeypatch):
    def refuse(file, flags):
        raise OSError(95, "no locks, on purpose")

    monkeypatch.setattr(_hidden.fcntl, "flock", refuse)
    (tmp_path / LEFT).touch()
    write(tmp_path, 1)
    assert sorted(os.listdir(tmp_path)) == [
        LEFT,
        "part-00000.parquet",
        "part-00001.parquet",
    ]


@pytest.mark.parametrize("overwrite", [False, True])
def test_files_that_another_has_finished_meanwhile_stay(
    tmp_path, monkeypatch, overwrite
):
    write_table = pq.write_table

    def write_late(table, *args, **options):
        write_table(pa.table({"x": [0]}), tmp_path / "other.parquet")
        write_table(table, *args, **options)

    monkeypatch.setattr(pq, "write_table", write_late)
    if overwrite:
        write(tmp_path, 1, size=1, overwrite=True)
        expected = {"other.parquet": [0], "part-00000.parquet": [1]}
    else:
        with pytest.raises(FileExistsError, match=r"rank 0: .* is not empty: give"):
            write(tmp_path, 1, size=1)
        expected = {"other.parquet": [0]}
    assert values_in(tmp_path) == expected


def test_two_programs_do_not_give_names_at_once(tmp_path):
    text = "rank 0: another program finishes its files in .*: write one after the oth"

    async def main(comm):
        call = ucp.table.write_parquet(pa.table({"x": [1]}), tmp_path, comm=comm)
        with pytest.raises(FileExistsError, match=text):
            await call
        await comm.barrier()

    with _hidden.locked(str(tmp_path)):
        good_world(2, main)
    assert os.listdir(tmp_path) == []
    write(tmp_path, 1)
    assert len(values_in(tmp_path)) == 2
