# SPDX-License-Identifier: BSD-3-Clause
# tests: ucp/threads
"""A call that is cancelled ends when its thread does not read tables any more."""

import asyncio
import importlib
import threading
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from worlds import good_world

import ucp.join
import ucp.table
from ucp._tables.threads import finished, in_thread, outlast


class Held:
    """A function that stays in its thread until it is let go."""

    def __init__(self, work=lambda: None):
        self.begun = threading.Event()
        self.let_go = threading.Event()
        self.has_ended = False
        self._work = work

    def __call__(self, *args):
        self.begun.set()
        assert self.let_go.wait(20)
        found = self._work(*args)
        self.has_ended = True
        return found

    async def cancel(self, task):
        """Cancel a task twice while the function is in its thread."""
        assert await asyncio.to_thread(self.begun.wait, 20)
        for _ in range(2):
            task.cancel()
            done, _ = await asyncio.wait([task], timeout=0.02)
            assert not done
        self.let_go.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert self.has_ended


def test_a_cancel_waits_for_the_thread():
    def fail():
        raise RuntimeError("nobody asks for it")

    async def main():
        for held in (Held(), Held(fail)):
            if held._work is fail:
                held.has_ended = True  # by an exception
            await held.cancel(asyncio.ensure_future(in_thread("test", held)))
        with pytest.raises(RuntimeError, match="nobody asks"):
            await in_thread("test", fail)
        assert await in_thread("test", lambda: 5) == 5

    asyncio.run(main())


def test_work_that_has_not_begun_never_does():
    async def main():
        done, held = [], Held()
        with ThreadPoolExecutor(1) as pool:
            first = asyncio.ensure_future(finished(pool.submit(held)))
            second = asyncio.ensure_future(finished(pool.submit(done.append, 1)))
            await asyncio.sleep(0)
            second.cancel()
            with pytest.raises(asyncio.CancelledError):
                await second
            held.let_go.set()
            await first
        assert done == []

    asyncio.run(main())


def test_tasks_are_outlasted():
    async def main():
        async def fail():
            raise RuntimeError("nobody asks for it")

        wanted = asyncio.get_running_loop().create_future()
        waiting = asyncio.ensure_future(
            outlast([asyncio.ensure_future(fail()), wanted])
        )
        for _ in range(3):
            await asyncio.sleep(0)
            waiting.cancel()
        await asyncio.sleep(0)
        assert not waiting.done()
        wanted.set_result(None)
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await outlast([wanted])

    asyncio.run(main())


TABLE = {"k": [2, 1, 3], "x": [1, 2, 3]}


@pytest.mark.parametrize(
    ("place", "begin"),
    [
        ("ucp.table._jobs.range_partition_to", "sort"),
        ("ucp.table._one_rank.read_chunks", "sort"),
        ("ucp.table._jobs.range_partition_to", "stream"),
        ("ucp.join._one_rank.hash_partition_to", "join"),
        ("ucp.join._one_rank.read_chunks", "join"),
    ],
)
def test_a_cancelled_call_reads_no_table_any_more(place, begin, monkeypatch):
    async def main(comm):
        table = pa.table(TABLE)
        with monkeypatch.context() as patch:
            path, name = place.rsplit(".", 1)
            module = importlib.import_module(path)
            held = Held(getattr(module, name))
            if begin == "join":
                call = ucp.join.inner(
                    table, table, on="k", comm=comm, strategy="shuffle"
                )
            elif begin == "sort":
                call = ucp.table.sort(table, "k", comm=comm)
            else:
                call = anext(ucp.table.stream("sort", table, "k", comm=comm))
            patch.setattr(module, name, held)
            await held.cancel(asyncio.ensure_future(call))
        return (await ucp.table.sort(table, "k", comm=comm)).num_rows

    assert good_world(1, main) == [3]
