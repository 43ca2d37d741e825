# SPDX-License-Identifier: BSD-3-Clause
"""Frames for the tests of Dask, and clusters of processes that they share."""

import contextlib
import logging
import os
import signal
import threading

import dask.config
import numpy as np
import pandas as pd
from distributed import Client, LocalCluster
from distributed.core import Status

import ucp.dask
from ucp.dask import _merge, _worker_plugin, _worker_shuffle

SETTINGS = {
    # A cluster gives up a worker whose process is being started again after it.
    "distributed.deploy.lost-worker-timeout": "300s",
    # Processes of workers are forked from one that has imported distributed and
    # pandas, and has not used UCX: that is much quicker, most of all where many die.
    "distributed.worker.multiprocessing-method": "forkserver",
}


@contextlib.contextmanager
def cluster_of(workers, is_prepared=True, **options):
    """A client of a cluster over tcp, whose workers have a thread each."""
    options = {"threads_per_worker": 1, "dashboard_address": ":0", **options}
    with (
        dask.config.set(SETTINGS),
        LocalCluster(
            n_workers=workers,
            host="127.0.0.1",
            silence_logs=logging.CRITICAL,
            **options,
        ) as cluster,
        Client(cluster) as client,
    ):
        if is_prepared:
            ucp.dask.bootstrap(client)
        yield client


def scheduler_state(dask_scheduler):
    """Runs that there are."""
    plugin = dask_scheduler.plugins["ucp-shuffle"]
    return [*plugin.runs, *plugin.failures]


def worker_state(dask_worker):
    """Runs, and bytes that are lent."""
    plugin = dask_worker.plugins["ucp-shuffle"]
    taken = plugin._cache.taken if plugin._cache is not None else 0
    return len(plugin.runs), len(plugin._ending), taken


def until_a_run_has_begun(client):
    """Wait for the first insert."""
    while not client.run_on_scheduler(scheduler_state):
        pass


def until_nothing_is_left(client):
    """Wait for the ends of all runs; a test that waits forever has failed."""
    while client.run_on_scheduler(scheduler_state):
        pass
    while any(any(state) for state in client.run(worker_state).values()):
        pass


def tables(rows=3000, seed=0):
    """Two frames with a key, which some rows of each have in common."""
    rng = np.random.default_rng(seed)
    left = pd.DataFrame({"k": rng.integers(0, rows, rows), "l": np.arange(rows)})
    right = pd.DataFrame({"k": rng.integers(0, rows, rows), "r": np.arange(rows)})
    return left, right


def in_order(frame):
    """The rows in an order that does not depend on who had them."""
    names = list(frame.columns)
    frame = frame.reset_index(drop=True)
    return frame.iloc[frame.map(str).sort_values(names).index].reset_index(drop=True)


def same(found, wanted):
    """Both have the same rows and types."""
    pd.testing.assert_frame_equal(
        in_order(found), in_order(wanted), check_categorical=False
    )


def slowly(frame):
    """A partition that takes as long as others need to be inserted."""
    if frame.index[0]:
        threading.Event().wait(0.3)
    return frame


class Unreadable:
    """An object that can be pickled, but not read."""

    def __reduce__(self):
        return _fail, ()


def _fail():
    raise ValueError("it cannot be read")


def part_with_objects(number):
    """A partition of several; the first has an object that cannot be read."""
    frame = pd.DataFrame({"k": np.arange(200), "o": pd.Series([()] * 200)})
    if number == 0:
        frame.at[100, "o"] = Unreadable()
    return frame


def die_once(step, file):
    """Have the worker that unlinks the file die at a step of its next shuffle."""
    plugin, run = _worker_plugin.ShuffleWorkerPlugin, _worker_shuffle.Run
    owner, name = {
        "insert": (run, "insert"),
        "inserted": (run, "insert"),
        "barrier": (plugin, "finish_all"),
        "passed": (plugin, "finish_all"),
        "finish": (run, "finish"),
        "extract": (run, "extract"),
        "extracted": (run, "extract"),
    }[step]
    method = getattr(owner, name)

    def die():
        try:
            os.unlink(file)
        except FileNotFoundError:
            return  # another one has
        os.kill(os.getpid(), signal.SIGKILL)

    def mortal(*args, **kwargs):
        if step in ("insert", "barrier", "finish", "extract"):
            die()
        found = method(*args, **kwargs)
        die()
        return found

    setattr(owner, name, mortal)


def left_part(number):
    """One of the partitions of a larger frame."""
    return tables(50_000, number)[0]


def right_part(number):
    """One of the partitions of a larger frame."""
    return tables(50_000, number)[1]


def epoch_size(dask_worker):
    """Ranks of the newest communicator."""
    epochs = dask_worker.plugins["ucp-shuffle"].epochs
    return epochs[max(epochs)].comm.size


def finished_runs(dask_scheduler):
    """How many runs have passed their barriers."""
    runs = dask_scheduler.plugins["ucp-shuffle"].runs.values()
    return sum(run.is_finished for run in runs)


def set_status(status, dask_worker):
    """Pause a worker, or have it go on; its monitor would decide otherwise."""
    dask_worker.periodic_callbacks["memory_monitor"].stop()
    dask_worker.status = Status[status]


def fail_once(file):
    """Have a task that unlinks the file fail, when it has its rows."""
    extract = _merge.extract

    def fallible(*args):
        found = extract(*args)
        try:
            os.unlink(file)
        except FileNotFoundError:
            return found  # another one has
        raise ZeroDivisionError("once")

    _merge.extract = fallible
