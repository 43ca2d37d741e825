# SPDX-License-Identifier: BSD-3-Clause
"""Workers that are lost, come, are restarted or short of memory during shuffles."""

import os
import signal

import pytest

pd = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")
pytest.importorskip("distributed")
dd = pytest.importorskip("dask.dataframe")

import dask.config  # noqa: E402
from dask_frames import (  # noqa: E402
    cluster_of,
    die_once,
    epoch_size,
    fail_once,
    finished_runs,
    left_part,
    part_with_objects,
    right_part,
    same,
    scheduler_state,
    set_status,
    slowly,
    tables,
    until_a_run_has_begun,
    until_nothing_is_left,
)
from distributed import futures_of, wait  # noqa: E402

import ucp.dask  # noqa: E402


def shared_memory():
    return {name for name in os.listdir("/dev/shm") if "ucp" in name or "umx" in name}


@pytest.fixture(scope="module")
def client():
    before = shared_memory()
    with cluster_of(3) as client:
        yield client
        until_nothing_is_left(client)
    assert shared_memory() <= before


def merge_of(seed):
    frames = tables(2000, seed)
    left, right = (
        dd.from_pandas(frame, npartitions=parts)
        for frame, parts in zip(frames, (6, 5), strict=True)
    )
    return ucp.dask.merge(left, right, on="k"), frames[0].merge(frames[1], on="k")


@pytest.mark.parametrize(
    "steps",
    [
        ("insert",),
        ("inserted",),
        ("barrier",),
        ("passed",),
        ("finish",),
        ("extract",),
        ("extracted",),
        ("inserted", "extract"),
    ],
    ids="-".join,
)
def test_a_worker_is_killed(client, tmp_path, steps):
    """With its inserts, and while others extract what came from it."""
    client.wait_for_workers(3)
    there = set(client.scheduler_info(-1)["workers"])
    for step in steps:
        file = tmp_path / step
        file.touch()
        client.run(die_once, step, str(file))
    merged, wanted = merge_of(len("".join(steps)))
    same(merged.compute(), wanted)
    assert not list(tmp_path.iterdir())  # every one has been killed
    assert len(there - set(client.scheduler_info(-1)["workers"])) == len(steps)
    until_nothing_is_left(client)


def test_results_in_memory_are_kept(client, tmp_path):
    """Those of workers that stay, when another one is killed while it extracts."""
    client.wait_for_workers(3)
    merged, wanted = merge_of(31)
    file = tmp_path / "extracted"
    file.touch()
    client.run(die_once, "extracted", str(file))
    kept = client.persist(merged)
    same(kept.compute(), wanted)
    assert not file.exists()
    del kept
    until_nothing_is_left(client)


def test_a_partition_that_fails_concerns_no_other_when_a_worker_is_lost(client):
    client.wait_for_workers(3)
    meta = part_with_objects(0)[:0]
    with dask.config.set({"dataframe.convert-string": False}):
        pieces = dd.from_map(part_with_objects, range(4), meta=meta)
        shuffled = ucp.dask.shuffle(pieces, "k", npartitions=12)
        slow = shuffled.map_partitions(slowly, meta=meta)
        futures = futures_of(client.persist(slow))
    wait(futures, return_when="FIRST_COMPLETED")
    while not any(future.status == "error" for future in futures):
        assert not all(future.status == "finished" for future in futures)
    os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)
    wait(futures)
    statuses = [future.status for future in futures]
    assert statuses.count("error") == 1
    assert statuses.count("finished") == 11
    del futures, slow
    until_nothing_is_left(client)


def test_a_worker_that_comes_takes_part_later(client):
    client.wait_for_workers(3)
    (first, second) = tables(2000, 33)
    left, right = (dd.from_pandas(frame, npartitions=6) for frame in (first, second))
    slow = left.map_partitions(slowly, meta=left._meta)
    future = client.compute(ucp.dask.merge(slow, right, on="k"))
    until_a_run_has_begun(client)
    client.cluster.scale(4)
    client.wait_for_workers(4)
    same(future.result(), first.merge(second, on="k"))
    del future
    merged, wanted = merge_of(34)
    same(merged.compute(), wanted)
    assert set(client.run(epoch_size).values()) == {4}
    client.cluster.scale(3)
    merged, wanted = merge_of(35)
    same(merged.compute(), wanted)


def test_workers_are_restarted(client):
    merged, wanted = merge_of(36)
    (first, _) = tables(2000, 36)
    left = dd.from_pandas(first, npartitions=6)
    slow = left.map_partitions(slowly, meta=left._meta)
    future = client.compute(ucp.dask.shuffle(slow, "k"))
    until_a_run_has_begun(client)
    client.restart(timeout=40)
    assert not client.run_on_scheduler(scheduler_state)
    del future
    same(merged.compute(), wanted)


def test_a_worker_may_be_paused(client):
    """Others do not wait for it; what it owns is extracted when it goes on."""
    client.wait_for_workers(3)
    merged, wanted = merge_of(38)
    worker = sorted(client.scheduler_info(-1)["workers"])[0]
    client.run(set_status, "paused", workers=[worker])
    future = client.compute(merged)
    while not client.run_on_scheduler(finished_runs):
        pass
    client.run(set_status, "running", workers=[worker])
    same(future.result(), wanted)


def test_a_task_that_has_failed_is_tried_again(client, tmp_path):
    """What it has extracted is gone: all is inserted again."""
    client.wait_for_workers(3)
    merged, wanted = merge_of(39)
    file = tmp_path / "fails"
    file.touch()
    client.run(fail_once, str(file))
    same(client.compute(merged, retries=2).result(), wanted)
    assert not file.exists()


def test_workers_that_spill_their_results_have_them(tmp_path):
    # A worker that pauses may do so for ever: a fork server that was there before Dask
    # does not have its variables, by which the C library gives free memory back.
    settings = {
        f"distributed.worker.memory.{name}": value
        for name, value in {
            "target": 0.1, "spill": 0.2, "pause": False, "terminate": False,
        }.items()
    }  # fmt: skip
    with (
        dask.config.set(settings),
        cluster_of(2, memory_limit="300MB", local_directory=str(tmp_path)) as client,
    ):
        left, right = (dd.from_map(part, range(8)) for part in (left_part, right_part))
        merged = ucp.dask.merge(left, right, on="k")
        frames = [pd.concat(map(part, range(8))) for part in (left_part, right_part)]
        wanted = frames[0].merge(frames[1], on="k")
        assert merged["l"].sum().compute() == wanted["l"].sum()
        kept = client.persist(merged)
        assert len(kept) == len(wanted)
        assert kept["r"].sum().compute() == wanted["r"].sum()
        del kept
        until_nothing_is_left(client)
