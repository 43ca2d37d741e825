# SPDX-License-Identifier: BSD-3-Clause
"""The receive cache of Dask's workers, and the limits of their memory."""

import contextlib

import pytest
from clusters import OPTIONS, complaints, run_cluster

distributed = pytest.importorskip("distributed", reason="distributed is missing")

import dask.config  # noqa: E402
from distributed import Scheduler, Worker  # noqa: E402
from distributed.core import Status  # noqa: E402
from distributed.system import MEMORY_LIMIT  # noqa: E402

from ucp.dask import _blocks, _memory  # noqa: E402

HOST = "ucp://127.0.0.1"
LARGE = 3 << 20
OF_HOST = min(512 << 20, MEMORY_LIMIT // 20)


pytestmark = pytest.mark.usefixtures("fresh_ucx")


@contextlib.asynccontextmanager
async def workers_of(*limits):
    """Workers of one scheduler in this process, with these memory limits."""
    async with contextlib.AsyncExitStack() as stack:
        scheduler = Scheduler(host=HOST, port=0, dashboard_address=":0")
        await stack.enter_async_context(scheduler)
        workers = []
        for limit in limits:
            worker = Worker(scheduler.address, nthreads=1, memory_limit=limit)
            workers.append(await stack.enter_async_context(worker))
            if (monitor := worker.periodic_callbacks.get("memory_monitor")) is not None:
                monitor.stop()  # a test measures when it wants to
        yield workers


@pytest.fixture
def cache():
    """The cache of this process; nothing is kept afterwards."""
    yield _blocks.blocks
    _blocks.blocks.clear()


def keep(cache, nbytes):
    """Keep blocks of so many bytes."""
    views = [cache.allocate(LARGE) for _ in range(nbytes // LARGE)]
    views.clear()
    assert cache.nbytes == nbytes


# ---- the bound ---------------------------------------------------------------


async def test_a_worker_keeps_a_twentieth_of_its_own_limit(cache):
    async with workers_of("400MB"):
        assert _memory.limit() == 20_000_000
        views = [cache.allocate(LARGE) for _ in range(8)]
        views.clear()
        assert cache.nbytes == 20_000_000 // LARGE * LARGE


async def test_of_two_workers_in_a_process_the_lower_limit_counts(cache):
    async with workers_of("400MB", "100MB") as (_, lower):
        assert _memory.limit() == 5_000_000
        await lower.close()
        assert _memory.limit() == 20_000_000
    assert _memory.limit() == OF_HOST


async def test_a_worker_without_a_limit_keeps_a_part_of_the_hosts_memory(cache):
    async with workers_of(0) as (worker,):
        assert _memory.limit() == OF_HOST
        keep(cache, LARGE)
        assert worker.monitor.get_process_memory() > 0
        assert cache.nbytes == LARGE


async def test_the_configuration_beats_the_workers_limit():
    async with workers_of("400MB"):
        with dask.config.set({"distributed.comm.ucp.receive-cache": "30MB"}):
            assert _memory.limit() == 30_000_000


LIMITS = f"""
from ucp.dask import _memory

def limit():
    return _memory.limit()

with LocalCluster(n_workers=2, memory_limit="400MB", {OPTIONS}) as cluster:
    with Client(cluster) as client:
        assert set(client.run(limit).values()) == {{20_000_000}}
        assert limit() == {OF_HOST}  # this process has no worker
print("done")
"""


def test_the_processes_of_a_cluster_keep_what_their_workers_may(tmp_path):
    assert not complaints(run_cluster(tmp_path, LIMITS))


# ---- freed before the worker acts --------------------------------------------

FRACTIONS = {"target": 0.6, "spill": False, "pause": False, "terminate": False}


@contextlib.asynccontextmanager
async def worker_near(cache, fraction, **fractions):
    """A worker whose process has that part of its limit without the kept blocks."""
    settings = {
        f"distributed.worker.memory.{key}": value for key, value in FRACTIONS.items()
    }
    settings |= {
        f"distributed.worker.memory.{key}": value for key, value in fractions.items()
    }
    with dask.config.set(settings):
        async with workers_of("400MB") as (worker,):
            worker.monitor.get_process_memory._measure = lambda: (
                int(fraction * 400_000_000) + cache.nbytes
            )
            yield worker


async def test_kept_blocks_pause_no_worker(cache):
    async with worker_near(cache, 0.78, pause=0.8) as worker:
        keep(cache, 4 * LARGE)
        await worker.memory_manager.memory_monitor(worker)
        assert worker.status == Status.running
        assert cache.nbytes == 0


async def test_kept_blocks_spill_no_data(cache):
    async with worker_near(cache, 0.68, spill=0.7) as worker:
        worker.data["x"] = 1
        keep(cache, 4 * LARGE)
        await worker.memory_manager.memory_monitor(worker)
        assert "x" in worker.data.fast
        assert cache.nbytes == 0


async def test_kept_blocks_restart_no_worker(cache):
    """The nanny measures; the worker's own measurements are what frees them."""
    async with worker_near(cache, 0.94, terminate=0.95) as worker:
        keep(cache, 4 * LARGE)
        worker.monitor.update()
        assert cache.nbytes == 0


async def test_with_memory_to_spare_blocks_are_kept(cache):
    async with worker_near(cache, 0.6, spill=0.7, pause=0.8) as worker:
        keep(cache, 4 * LARGE)
        await worker.memory_manager.memory_monitor(worker)
        assert cache.nbytes == 4 * LARGE


async def test_a_worker_that_uses_too_much_is_paused_all_the_same(cache):
    async with worker_near(cache, 0.9, pause=0.8) as worker:
        keep(cache, 4 * LARGE)
        await worker.memory_manager.memory_monitor(worker)
        assert worker.status == Status.paused
        assert cache.nbytes == 0


async def test_without_thresholds_blocks_are_kept(cache):
    async with worker_near(cache, 0.99) as worker:
        keep(cache, 4 * LARGE)
        worker.monitor.update()
        assert cache.nbytes == 4 * LARGE


# ---- two seconds -------------------------------------------------------------


class Clock:
    """A loop, and ``time``: the program says when the time passes."""

    def __init__(self):
        self.now = 0.0
        self.call = None

    def monotonic(self):
        return self.now

    def is_closed(self):
        return False

    def call_soon_threadsafe(self, callback, *args):
        callback(*args)

    def call_later(self, delay, callback, *args):
        assert self.call is None
        self.call = (self.now + delay, callback, args)

    def run_until(self, now):
        while self.call is not None and self.call[0] <= now:
            self.now, callback, args = self.call
            self.call = None
            callback(*args)
        self.now = now


async def test_each_block_is_gone_two_seconds_after_its_last_use(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(_blocks, "time", clock)
    cache = _blocks.Blocks()
    cache.use(clock, 1 << 30)
    views = [cache.allocate(LARGE) for _ in range(3)]
    for now in (0.0, 0.5, 1.75):
        clock.run_until(now)
        views.pop()
    kept = []
    for now in (1.875, 2.0, 2.5, 3.625, 3.75):
        clock.run_until(now)
        kept.append(cache.nbytes // LARGE)
    assert kept == [3, 2, 1, 1, 0]
    assert clock.call is None


async def test_a_new_loop_frees_what_the_last_one_kept(monkeypatch):
    first, second = Clock(), Clock()
    monkeypatch.setattr(_blocks, "time", second)
    cache = _blocks.Blocks()
    cache.use(first, 1 << 30)
    cache.allocate(LARGE)
    second.run_until(1.0)
    cache.use(second, 1 << 30)
    second.run_until(1.875)
    assert cache.nbytes == LARGE
    second.run_until(2.0)
    assert cache.nbytes == 0
    first.run_until(10.0)
    assert first.call is None
