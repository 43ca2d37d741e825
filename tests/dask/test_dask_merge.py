# SPDX-License-Identifier: BSD-3-Clause
# tests: ucp/api ucp/merge ucp/worker_shuffle ucp/scheduler_plugin ucp/shuffle ucp/steps
# tests: ucp/support ucp/tasks ucp/worker_plugin ucp/loop ucp/order ucp/sort ucp/groupby
"""Frames of Dask that are merged, shuffled and sorted over ucp, as Dask's own are."""

import asyncio
import os
import random
import subprocess
import sys

import numpy as np
import pytest

pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")
pytest.importorskip("distributed")
dd = pytest.importorskip("dask.dataframe")

import dask.config  # noqa: E402
from dask_frames import (  # noqa: E402
    cluster_of,
    same,
    slowly,
    tables,
    until_a_run_has_begun,
    until_nothing_is_left,
)
from distributed import Client, wait  # noqa: E402

import ucp.dask  # noqa: E402
from ucp.dask import _support, _worker_plugin  # noqa: E402
from ucp.exceptions import UCXWarning  # noqa: E402


@pytest.fixture(scope="module")
def client():
    with cluster_of(2) as client:
        yield client
        until_nothing_is_left(client)


def both(rows=3000, seed=0, parts=(4, 3)):
    frames = tables(rows, seed)
    return frames, [
        dd.from_pandas(frame, npartitions=count)
        for frame, count in zip(frames, parts, strict=True)
    ]


# --- lazy frames, without a cluster -------------------------------------------


@pytest.mark.parametrize("how", ["inner", "left", "right", "outer", "leftsemi"])
def test_meta_and_partitions_are_those_of_dask(how):
    (_, (left, right)) = both()
    left = left.assign(x=1.5, r="a")
    for options in (
        {"on": "k"},
        {"left_on": "k", "right_on": "r"} if how != "leftsemi" else {"on": "k"},
        {"on": ["k"], "suffixes": ("", "_2"), "npartitions": 5},
    ):
        found = ucp.dask.merge(left, right, how=how, **options)
        wanted = left.merge(right, how=how, **options)
        pd.testing.assert_frame_equal(found._meta, wanted._meta)
        assert found.npartitions == wanted.npartitions
        assert not found.known_divisions
    left, right = (frame.rename_axis(index="i") for frame in (left, right))
    options = {"left_index": True, "right_on": "k", "how": "inner"}
    found = ucp.dask.merge(left, right, **options)
    pd.testing.assert_frame_equal(found._meta, left.merge(right, **options)._meta)


def test_only_columns_that_are_used_move():
    (_, (left, right)) = both()
    left = left.assign(unused=1, used=2)
    merged = ucp.dask.merge(left, right, on="k")[["used"]].optimize(fuse=False)
    sides = [each for each in merged.expr.walk() if type(each).__name__ == "HashMerge"]
    assert list(sides[0].left.columns) == ["k", "used"]
    assert list(sides[0].right.columns) == ["k"]
    shuffled = ucp.dask.shuffle(left, "k")[["used"]].optimize(fuse=False)
    its = [each for each in shuffled.expr.walk() if type(each).__name__ == "Shuffle"]
    assert list(its[0].frame.columns) == ["k", "used"]


def test_tasks_have_names_for_the_dashboard():
    (_, (left, right)) = both()
    names = {
        str(key[0] if isinstance(key, tuple) else key).rpartition("-")[0]
        for key in ucp.dask.merge(left, right, on="k").optimize(fuse=False).dask
    }
    assert names >= {"ucp-insert-0", "ucp-insert-1", "ucp-barrier", "ucp-merge"}


def test_merges_without_a_shuffle_are_those_of_dask():
    (_, (left, right)) = both(parts=(4, 1))
    merged = ucp.dask.merge(left, right, on="k")
    assert not any("insert" in str(key) for key in merged.optimize(fuse=False).dask)
    same(merged.compute(scheduler="sync"), left.merge(right, on="k").compute())


def frame_of_lists():
    values = pd.array([[1]], dtype=pd.ArrowDtype(pa.list_(pa.int64())))
    return dd.from_pandas(pd.DataFrame({"k": [1], "x": values}), npartitions=1)


def test_what_does_not_move_is_refused_and_a_way_named():
    (_, (left, right)) = both()
    lists = frame_of_lists()
    with pytest.raises(NotImplementedError, match=r"left.merge\(right"):
        ucp.dask.merge(lists, right, on="k")
    with pytest.raises(NotImplementedError, match=r"ddf.shuffle\("):
        ucp.dask.shuffle(lists, "k")
    with pytest.raises(NotImplementedError, match=r"ddf.shuffle\("):
        ucp.dask.shuffle(left, left["k"])
    with pytest.raises(NotImplementedError, match=r"ddf.shuffle\("):
        ucp.dask.shuffle(left["k"], "k")
    with pytest.raises(KeyError, match="nothing"):
        ucp.dask.shuffle(left, ["k", "nothing"])
    with pytest.raises(NotImplementedError, match=r"Series is no frame; use left"):
        ucp.dask.merge(left, right["r"], left_on="k", right_index=True)
    with pytest.raises(ValueError, match="cross"):
        ucp.dask.merge(left, right, on="k", how="cross")
    for on in ([], None):
        with pytest.raises(ValueError, match="which names no column"):
            ucp.dask.shuffle(left, on)
    for count in (0, -1, 2.0, "2"):
        text = f"npartitions is {count!r}, not"
        with pytest.raises(ValueError, match=text):
            ucp.dask.merge(left, right, on="k", npartitions=count)
        with pytest.raises(ValueError, match=text):
            ucp.dask.shuffle(left, "k", count)
        with pytest.raises(ValueError, match=text):
            ucp.dask.sort_values(left, "k", count)


def test_frames_need_a_cluster_that_is_prepared():
    (_, (left, right)) = both(rows=20)
    merged = ucp.dask.merge(left, right, on="k")
    with pytest.raises(RuntimeError, match=r"create a distributed\.Client"):
        merged.compute(scheduler="sync")
    with Client(processes=False, n_workers=1, dashboard_address=":0"):
        with pytest.raises(RuntimeError, match=r"ucp\.dask\.bootstrap\(client\)"):
            merged.compute()


def test_a_worker_that_cannot_be_prepared_is_named(monkeypatch):
    def fails(self, worker):
        raise OSError("no ucp here")

    monkeypatch.setattr(_worker_plugin.ShuffleWorkerPlugin, "setup", fails)
    with Client(processes=False, n_workers=1, dashboard_address=":0") as client:
        with pytest.raises(RuntimeError, match=r"inproc://.*no ucp here"):
            ucp.dask.bootstrap(client)
        monkeypatch.undo()
        ucp.dask.bootstrap(client)
        (first, second), (left, right) = both(rows=20)
        found = ucp.dask.merge(left, right, on="k").compute()
        same(found, first.merge(second, on="k"))


# --- what is used of Dask -----------------------------------------------------


def test_dask_has_what_is_used_of_it():
    """Names that no documentation of Dask has. Each is in SEMI_PUBLIC."""
    assert {
        f"{module}.{name}"
        for module, names in _support.SEMI_PUBLIC.items()
        for name in names
        if not _support.has(module, name)
    } == set()
    assert _support.missing() is None


@pytest.mark.parametrize("what", ["version", "part"])
def test_with_another_dask_its_own_frames_go_on(monkeypatch, what):
    _support.missing.cache_clear()
    if what == "version":
        monkeypatch.setattr(_support, "TESTED", ((1990, 1), (1990, 2)))
    else:
        monkeypatch.setitem(_support.SEMI_PUBLIC, "dask.base", ("no_such_name",))
    try:
        ((first, second), (left, right)) = both(rows=50)

        class Other:
            asynchronous = False

        with pytest.warns(UCXWarning, match="distributed"):
            ucp.dask.bootstrap(Other())
        with dask.config.set({"dataframe.shuffle.method": "tasks"}):  # needs no client
            merged = ucp.dask.merge(left, right, on="k")
            same(merged.compute(scheduler="sync"), first.merge(second, on="k"))
            assert not any("ucp" in str(key) for key in merged.dask)
            shuffled = ucp.dask.shuffle(left, "k", ignore_index=True)
            same(shuffled.compute(scheduler="sync"), first)
    finally:
        _support.missing.cache_clear()


def test_the_protocol_needs_no_pandas():
    code = (
        "import sys, ucp.dask; assert not {'pandas', 'dask.dataframe'} & {*sys.modules}"
    )
    subprocess.run([sys.executable, "-P", "-c", code], check=True)


# --- results ------------------------------------------------------------------


def test_a_shuffle_brings_equal_keys_together(client):
    (frame, _), (ddf, _) = both()
    found = ucp.dask.shuffle(ddf, "k", npartitions=5)
    parts = [part.compute() for part in found.partitions]
    keys = [set(part["k"]) for part in parts]
    assert sum(map(len, keys)) == len(set.union(*keys))
    # Rows of a partition are in the order that they had.
    assert all(part.index.is_monotonic_increasing for part in parts)
    pd.testing.assert_frame_equal(pd.concat(parts).sort_index(), frame)
    without = ucp.dask.shuffle(ddf, ["k"], ignore_index=True).compute()
    same(without, frame)
    by_index = ucp.dask.shuffle(ddf.rename_axis(index="i"), "i").compute()
    assert sorted(by_index.index) == list(range(len(frame)))


@pytest.mark.parametrize("how", ["inner", "left", "right", "outer", "leftsemi"])
def test_merges_are_those_of_dask(client, how):
    ((first, second), (left, right)) = both(rows=400)
    left, right = left.assign(x=1), right.assign(x=2.5)
    if how == "leftsemi":
        wanted = left.merge(right, how=how, on="k")
        same(ucp.dask.merge(left, right, how=how, on="k").compute(), wanted.compute())
        return
    first["x"], second["x"] = 1, 2.5
    for options in (
        {"on": "k"},
        {"left_on": "k", "right_on": "r", "suffixes": ("_a", "_b")},
        {"left_on": ["k", "l"], "right_on": ["k", "r"]},
        {"left_index": True, "right_on": "r", "indicator": True},
    ):
        found = ucp.dask.merge(left, right, how=how, npartitions=3, **options)
        same(found.compute(), first.merge(second, how=how, **options))


def random_frame(rng, kinds, keys, name):
    """Columns of some of the types, with nulls where they may be."""
    rows = rng.choice([1, 7, 40])
    numbers = [rng.randrange(-4, 6) for _ in range(rows)]
    texts = [rng.choice("abcdef") for _ in range(rows)]
    days = pd.date_range("2024", periods=8)
    makes = {
        "int64": lambda: numbers,
        "int8": lambda: np.array(numbers, "i1"),
        "float64": lambda: [n if n else None for n in map(float, numbers)],
        "bool": lambda: [n > 0 for n in numbers],
        "str": lambda: pd.array([t if t != "a" else None for t in texts], "str"),
        "string": lambda: pd.array(texts, "string"),
        "Int64": lambda: pd.array([n if n else None for n in numbers], "Int64"),
        "boolean": lambda: pd.array([n > 0 if n else None for n in numbers], "boolean"),
        "datetime": lambda: [days[n] for n in numbers],
        "zone": lambda: [days[n].tz_localize("Europe/Berlin") for n in numbers],
        "timedelta": lambda: pd.to_timedelta(numbers, unit="s"),
        "category": lambda: pd.Categorical(texts, list("fedcba")),
        "arrow": lambda: pd.array(numbers, "int32[pyarrow]"),
        "object": lambda: pd.Series([*texts[:-1], None], dtype=object),
    }
    columns = {f"k{i}": makes[kind]() for i, kind in enumerate(keys)}
    columns |= {f"{name}{kind}": makes[kind]() for kind in kinds}
    return pd.DataFrame(columns)


KINDS = ("int64", "int8", "float64", "bool", "str", "string", "Int64", "boolean",
         "datetime", "zone", "timedelta", "category", "arrow", "object")  # fmt: skip
KEYS = ("int64", "float64", "str", "Int64", "datetime", "category", "object", "zone")


@pytest.mark.parametrize("seed", range(8))
def test_random_schemas_are_merged_as_by_dask(client, seed):
    rng = random.Random(seed)
    keys = [KEYS[seed], *rng.sample(KEYS, rng.randrange(2))]
    frames = [
        random_frame(rng, rng.sample(KINDS, 5), keys, rng.choice(["x", name]))
        for name in "ab"
    ]
    left, right = (dd.from_pandas(frame, npartitions=3) for frame in frames)
    options = {
        "how": rng.choice(["inner", "left", "right", "outer"]),
        "on": [f"k{i}" for i in range(len(keys))],
        "npartitions": 3,
    }
    found = ucp.dask.merge(left, right, **options).compute()
    wanted = left.merge(right, shuffle_method="tasks", **options).compute()
    same(found, wanted)


def test_keys_of_two_types_meet(client):
    left = pd.DataFrame({"k": range(50), "l": range(50)})
    right = pd.DataFrame({"k": np.arange(0, 50, 0.5), "r": range(100)})
    frames = [dd.from_pandas(frame, npartitions=3) for frame in (left, right)]
    with pytest.warns(UserWarning, match="mismatches"):
        merged = ucp.dask.merge(*frames, on="k")
    found = merged.compute()
    same(
        found,
        left.astype({"k": "float64"})
        .merge(right, on="k")
        .astype({"k": found["k"].dtype}),
    )


def test_a_frame_can_be_computed_many_times_and_at_once(client):
    (first, second), (left, right) = both(seed=1)
    merged = ucp.dask.merge(left, right, on="k")
    wanted = first.merge(second, on="k")
    for _ in range(2):
        same(merged.compute(), wanted)
    futures = [client.compute(merged["l"].sum()), client.compute(merged["r"].sum())]
    assert [future.result() for future in futures] == [
        wanted["l"].sum(),
        wanted["r"].sum(),
    ]
    part = merged.partitions[[1]].compute()
    same(pd.concat([part, merged.partitions[[0, 2, 3]].compute()]), wanted)
    assert len(merged.head(3)) == 3


def test_merges_may_follow_each_other(client):
    (first, second), (left, right) = both(seed=2)
    merged = ucp.dask.merge(ucp.dask.merge(left, right, on="k"), right, on="k")
    wanted = first.merge(second, on="k").merge(second, on="k")
    same(merged.compute(), wanted)
    # Dask does not take our partitions for those of its own shuffles.
    again = ucp.dask.merge(left, right, on="k").merge(right, on="k")
    same(again.compute(), wanted)


def test_several_merges_at_once_with_one_thread_a_worker(client):
    made = [both(seed=seed) for seed in range(4)]
    futures = [client.compute(ucp.dask.merge(*frames, on="k")) for _, frames in made]
    wait(futures, timeout=40)
    for (frames, _), future in zip(made, futures, strict=True):
        same(future.result(), frames[0].merge(frames[1], on="k"))


def test_results_can_be_written_to(client):
    (_, (left, right)) = both()

    def change(frame):
        frame["l"] += 1
        frame.iloc[0, 0] = -5
        return frame

    merged = ucp.dask.merge(left, right, on="k").map_partitions(change)
    assert (merged.compute()["k"] == -5).sum() >= merged.npartitions


def test_a_partition_may_be_wanted_several_times(client):
    ((left, right), frames) = both()
    merged = ucp.dask.merge(*frames, on="k")
    whole = [part.compute() for part in merged.partitions]
    found = merged.partitions[[2, 0, 2]].compute()
    same(found, pd.concat([whole[2], whole[0], whole[2]]))
    assert sum(map(len, whole)) == len(left.merge(right, on="k"))


def test_times_of_two_units_meet(client):
    days = pd.date_range("2020-01-01", periods=300)
    left = pd.DataFrame({"k": days.as_unit("ns"), "l": range(300)})
    right = pd.DataFrame({"k": days.as_unit("us")[::-2], "r": range(150)})
    frames = [dd.from_pandas(frame, npartitions=3) for frame in (left, right)]
    with pytest.warns(UserWarning, match="data type mismatches"):
        merged = ucp.dask.merge(*frames, on="k")
    assert len(merged.compute()) == len(left.merge(right, on="k")) == 150


def test_an_error_of_an_input_is_the_result(client):
    (_, (left, right)) = both()

    def fails(frame):
        raise ZeroDivisionError("in a partition")

    with pytest.raises(ZeroDivisionError, match="in a partition"):
        bad = left.map_partitions(fails, meta=left._meta)
        ucp.dask.merge(bad, right, on="k").compute()
    until_nothing_is_left(client)


def test_what_is_cancelled_or_forgotten_leaves_nothing(client):
    (_, (left, right)) = both()
    slow = left.map_partitions(slowly, meta=left._meta)
    for _ in range(2):
        future = client.compute(ucp.dask.merge(slow, right, on="k"))
        until_a_run_has_begun(client)
        future.cancel()
        del future
        until_nothing_is_left(client)


def test_a_client_that_goes_leaves_nothing(client):
    (_, (left, right)) = both()
    slow = left.map_partitions(slowly, meta=left._meta)
    with Client(client.scheduler.address, set_as_default=False) as other:
        future = other.compute(ucp.dask.merge(slow, right, on="k"))
        until_a_run_has_begun(client)
        assert not future.done()
    until_nothing_is_left(client)


def test_bootstrap_may_be_repeated_and_awaited(client):
    ucp.dask.bootstrap(client)

    async def main():
        address = client.scheduler.address
        async with Client(address, asynchronous=True, set_as_default=False) as other:
            await ucp.dask.bootstrap(other)
            (first, second), (left, right) = both(seed=3)
            found = await other.compute(ucp.dask.merge(left, right, on="k"))
            same(found, first.merge(second, on="k"))

    asyncio.run(main())


def test_rows_are_in_one_order_whoever_has_had_them(client):
    (_, (left, right)) = both(seed=4)
    merged = ucp.dask.merge(left, right, on="k")
    one, two = merged.compute(), merged.compute()
    pd.testing.assert_frame_equal(one, two)


# --- sort_values --------------------------------------------------------------


def columns_to_sort(rows):
    rng = np.random.default_rng(0)
    numbers = rng.integers(0, rows // 3, rows)
    is_null = numbers < 9
    texts = [
        None if null else f"text {n}" for n, null in zip(numbers, is_null, strict=True)
    ]
    days = pd.Series(pd.to_datetime(numbers, unit="D")).mask(is_null)
    return {
        "int64": numbers,
        "float64": np.where(is_null, np.nan, numbers / 2),
        "str": pd.array(texts, "str"),
        "object": pd.Series(texts, dtype=object),
        "datetime": days,
        "zone": days.dt.tz_localize("Europe/Berlin"),
        "category": pd.Categorical(texts, sorted({t for t in texts if t}, key=hash)),
        "Int64": pd.array(
            [None if t is None else n for t, n in zip(texts, numbers, strict=True)],
            "Int64",
        ),
        "bool": numbers % 2 == 0,
        "nothing": np.full(rows, np.nan),
    }


@pytest.mark.parametrize("name", columns_to_sort(30))
def test_rows_are_in_the_order_of_pandas(client, name):
    frame = pd.DataFrame({"x": columns_to_sort(600)[name], "y": np.arange(600)[::-1]})
    ddf = dd.from_pandas(frame, npartitions=4)
    wanted = ddf.compute()
    for options in (
        {"by": ["x", "y"], "ascending": True, "na_position": "last"},
        {"by": ["x", "y"], "ascending": [False, True], "na_position": "first"},
    ):
        found = ucp.dask.sort_values(ddf, npartitions=3, **options)
        pd.testing.assert_frame_equal(found._meta, ddf.sort_values("x")._meta)
        parts = client.gather(client.compute([*found.partitions]))
        pd.testing.assert_frame_equal(pd.concat(parts), wanted.sort_values(**options))
        if name not in ("bool", "nothing"):
            assert max(map(len, parts)) < 300  # they are about as large


def test_a_frame_is_sorted_by_the_columns_that_are_needed(client):
    (frame, _), (ddf, _) = both(seed=5)
    found = ucp.dask.sort_values(ddf.assign(unused=1), "k", ignore_index=True)
    its = [
        each
        for each in found[["l"]].optimize(fuse=False).expr.walk()
        if type(each).__name__ == "SortValues"
    ]
    assert list(its[0].frame.columns) == ["k", "l"]
    assert found["k"].compute().tolist() == sorted(frame["k"])
    first = found.partitions[0].compute()
    assert first.index.tolist() == list(range(len(first)))


def test_what_cannot_be_sorted_is_refused_and_a_way_named():
    (_, (ddf, _)) = both()
    for bad in (frame_of_lists(), ddf["k"]):
        with pytest.raises(NotImplementedError, match=r"ddf.sort_values\("):
            ucp.dask.sort_values(bad, "k")
    with pytest.raises(NotImplementedError, match="auto"):
        ucp.dask.sort_values(ddf, "k", npartitions="auto")
    with pytest.raises(KeyError, match="nothing"):
        ucp.dask.sort_values(ddf, "nothing")
    with pytest.raises(ValueError, match="na_position is 'middle'"):
        ucp.dask.sort_values(ddf, "k", na_position="middle")
    with pytest.raises(ValueError, match="ascending has 2 values"):
        ucp.dask.sort_values(ddf, "k", ascending=[True, False])


# --- groupby ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("by", "spec"),
    [
        ("k", "sum"),
        (["k"], {"x": ["mean", "std"], "y": ["count", "min"]}),
        (["k", "t"], ["max", "size"]),
        ("t", {"x": "median"}),
        (["t", "c"], {"y": "first", "x": "last"}),
    ],
)
def test_groups_are_those_of_dask(client, by, spec):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "k": rng.integers(0, 90, 900),
            "t": pd.array(rng.choice(["a", "b", None], 900), "string[pyarrow]"),
            "c": pd.Categorical(rng.choice(["a", "b"], 900)),
            "x": rng.random(900),
            "y": rng.integers(0, 9, 900).astype("i1"),
        }
    )
    frame = frame[[*([by] if isinstance(by, str) else by), "x", "y"]]
    ddf = dd.from_pandas(frame, npartitions=4)
    options = {"observed": True, "dropna": "c" in by}
    found = ucp.dask.groupby(ddf, by, **options).agg(spec, npartitions=3)
    wanted = ddf.groupby(by, **options).agg(spec, split_out=1)
    pd.testing.assert_frame_equal(found._meta, wanted._meta)
    assert found.npartitions == 3
    wanted = ddf.compute().groupby(by, **options).agg(spec)
    pd.testing.assert_frame_equal(found.compute().sort_index(), wanted.sort_index())


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("by", ["k", ["k", "j"], ["j", "k", "i"]])
def test_each_group_that_is_not_observed_is_there_once(client, by, count):
    frame = pd.DataFrame(
        {
            "k": pd.Categorical(list("abba"), categories=list("abc")),
            "j": pd.Categorical([2, 1, 1, 2], categories=[2, 1, 3]),
            "i": [7, 7, 8, 9],
            "x": [1, 2, 3, 4],
        }
    )
    ddf = dd.from_pandas(frame, npartitions=2)
    spec = {"x": ["sum", "count", "mean", "min"]}
    groups = ucp.dask.groupby(ddf, by, observed=False)
    found = groups.agg(spec, npartitions=count)
    assert found.npartitions == count
    wanted = frame.groupby(by, observed=False).agg(spec)
    pd.testing.assert_frame_equal(found.compute().sort_index(), wanted.sort_index())
    found = groups.agg({"x": ["median", "size"]}, npartitions=count).compute()
    wanted = frame.groupby(by, observed=False).agg({"x": ["median", "size"]})
    pd.testing.assert_frame_equal(found.sort_index(), wanted.sort_index())


def test_categories_that_only_partitions_know(client):
    frame = pd.DataFrame({"k": list("abba"), "j": list("uvwv"), "x": [1, 2, 3, 4]})
    categories = {"k": "category", "j": "category"}
    ddf = dd.from_pandas(frame, npartitions=2).astype(categories)
    whole = frame.astype(categories)
    for by in ("k", ["k", "j"]):
        groups = ucp.dask.groupby(ddf, by, observed=False)
        found = groups.agg({"x": "sum"}).compute()
        wanted = whole.groupby(by, observed=False).agg({"x": "sum"})
        assert rows_of(found) == rows_of(wanted)


PROGRAMS = int(os.environ.get("UCP_FRAME_PROGRAMS", 20))  # random ones
FUNCTIONS = ["sum", "count", "mean", "size", "min", "max", "std", "first", "last"]


def rows_of(frame):
    """Keys and values of rows in no order, as texts."""
    rows = frame.reset_index().astype(object).to_numpy().tolist()
    return sorted(
        repr([round(each, 9) if isinstance(each, float) else each for each in row])
        for row in rows
    )


def random_groups(seed):
    """A frame with few rows, and what is asked for of it."""
    rng = random.Random(seed)
    rows = rng.choice([1, 2, 5, 40])

    def categorical(values):
        known = rng.choices([*values[1:], None], k=rows)
        return pd.Categorical(known, values, rng.random() < 0.5)

    frame = pd.DataFrame(
        {
            "a": categorical(["x", "y", "z"]),
            "b": categorical([5, 3, 1, 7]),
            "i": rng.choices([1, 2, 3], k=rows),
            "s": rng.choices(["p", "q"], k=rows),
            "x": np.arange(rows) * 1.5,
            "y": np.arange(rows),
        }
    )
    by = rng.sample(["a", "b", "i", "s"], rng.choice([1, 1, 2, 3]))
    functions = [*FUNCTIONS, "median"] if rng.random() < 0.2 else FUNCTIONS
    spec = {"x": rng.sample(functions, 3), "y": rng.choice(functions)}
    options = {"observed": rng.choice([None, True, False, False])}
    options["dropna"] = rng.choice([None, True, False])
    return frame, by, spec, options, rng.choice([1, 2, 4]), rng.choice([1, 2, 3])


@pytest.mark.parametrize("first", range(0, PROGRAMS, 20))
def test_random_groups_of_categories(client, first):
    for seed in range(first, first + 20):
        frame, by, spec, options, parts, count = random_groups(seed)
        ddf = dd.from_pandas(frame, npartitions=parts, sort=False)
        found = ucp.dask.groupby(ddf, by, **options).agg(spec, npartitions=count)
        given = {name: each for name, each in options.items() if each is not None}
        wanted = frame.groupby(by, **given).agg(spec)
        found = found.compute()[wanted.columns]
        assert rows_of(found) == rows_of(wanted), (seed, by, spec, options)


def test_what_cannot_be_grouped_is_refused_and_a_way_named():
    (_, (ddf, _)) = both()
    for bad, by in ((ddf["k"], "k"), (ddf, ddf["k"]), (ddf, [ddf["k"]])):
        with pytest.raises(NotImplementedError, match=r"ddf.groupby\("):
            ucp.dask.groupby(bad, by)
    with pytest.raises(KeyError, match="nothing"):
        ucp.dask.groupby(ddf, "nothing")
    with pytest.raises(ValueError, match="unknown aggregate"):
        ucp.dask.groupby(ddf, "k").agg({"l": "nunique"})
