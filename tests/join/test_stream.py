# SPDX-License-Identifier: BSD-3-Clause
"""``ucp.join.stream``: the parts of a join as they are complete."""

import gc

import numpy as np
import pyarrow as pa
import pytest
from worlds import good_world

import ucp
import ucp.join

HOWS = ("inner", "left", "right", "outer", "semi", "anti")


def tables_of(comm):
    keys = np.arange(3000) + 1000 * comm.rank
    left = pa.table({"k": keys, "a": keys, "s": pa.array(keys).cast(pa.string())})
    right = pa.table({"k": keys[::2], "b": -keys[::2]})
    return left, right


def sortable(rows):
    return sorted(map(repr, rows))


@pytest.mark.parametrize("strategy", ["shuffle", "broadcast"])
def test_parts_are_the_rows_of_the_join(strategy):
    hows = [how for how in HOWS if (how, strategy) != ("outer", "broadcast")]

    async def main(comm):
        ends = []
        for how in hows:
            options = {"on": "k", "comm": comm, "strategy": strategy}
            if strategy == "shuffle":
                options["over_decomposition"] = 4
            whole = await getattr(ucp.join, how)(*tables_of(comm), **options)
            stream = ucp.join.stream(how, *tables_of(comm), **options)
            ends.append((whole.table, [part async for part in stream]))
        return ends

    for ends in zip(*good_world(2, main), strict=True):
        whole, parts = zip(*ends, strict=True)
        parts = [part for its in parts for part in its]
        names = whole[0].column_names
        assert all(part.column_names == names for part in parts)
        both = [pa.concat_tables(its).to_pylist() for its in (whole, parts)]
        assert sortable(both[0]) == sortable(both[1])


def test_frames_and_results_without_rows():
    pd = pytest.importorskip("pandas")

    async def main(comm):
        frame = pd.DataFrame({"k": [1, 2], "a": [1.5, 2.5]})
        none = pd.DataFrame({"k": [5], "b": ["x"]})
        options = {"on": "k", "comm": comm}
        stream = ucp.join.stream("inner", frame, none, **options)
        empty = [part async for part in stream]
        stream = ucp.join.stream("left", frame, none, **options)
        return empty, [part async for part in stream]

    for empty, parts in good_world(2, main):
        assert [len(part) for part in empty] == [0]
        assert list(empty[0].columns) == ["k", "a", "b"]
        assert all(list(part.columns) == ["k", "a", "b"] for part in parts)


@pytest.mark.parametrize("way", ["break", "never"])
def test_a_stream_that_is_left_ends_on_all_ranks(way):
    async def main(comm):
        options = {"on": "k", "comm": comm, "over_decomposition": 8}
        options["strategy"] = "shuffle"
        stream = ucp.join.stream("inner", *tables_of(comm), **options)
        failed = None
        if comm.rank == 0 and way == "never":
            del stream
        elif comm.rank == 0:
            async with stream:
                async for _ in stream:
                    break
            with pytest.raises(StopAsyncIteration):
                await anext(stream)
        else:
            try:
                async for _ in stream:
                    pass
            except ucp.exceptions.UCXRankFailed as exc:
                failed = exc.rank
        gc.collect()
        again = await ucp.join.inner(*tables_of(comm), on="k", comm=comm)
        return failed, again.table.num_rows

    (_, first), (failed, second) = good_world(2, main)
    assert failed == 0
    assert first + second > 0


def test_errors_of_a_stream():
    with pytest.raises(ValueError, match=r"^how is 'all', not one of \('inner'"):
        ucp.join.stream("all", None, None)
    with pytest.raises(TypeError, match=r"^stream\(\) needs the argument 'comm'$"):
        ucp.join.stream("inner", None, None)

    async def main(comm):
        with pytest.raises(ValueError, match="no rank has a left table"):
            await anext(ucp.join.stream("inner", None, None, on="k", comm=comm))

    good_world(2, main)
