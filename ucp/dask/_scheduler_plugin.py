# SPDX-License-Identifier: BSD-3-Clause
"""The scheduler's part of shuffles: runs, epochs, and where tasks run.

An **epoch** is a communicator of the workers that there are when a run needs one. When
one of them has left the epoch is over, and so are its runs.

A **run** is a shuffle that is under way::

    (none) --insert--> inserting --barrier--> finished --barrier released--> (none)
                          |                      |
                          +---- worker lost -----+--> (none), tasks released

What has been released is run again by Dask, from whatever the inserts were made of; the
first insert begins the next run. Extracts whose results are in memory are not.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from distributed import Scheduler
from distributed.core import Status
from distributed.diagnostics.plugin import SchedulerPlugin
from distributed.metrics import time
from distributed.protocol.pickle import dumps

from ._tasks import BarrierTask, ExtractTask, ShuffleSpec, barrier_key, shuffle_of
from ._worker_plugin import ShuffleWorkerPlugin

logger = logging.getLogger("distributed.ucp")

# How often a run is begun again without that a worker has left.
_MOST_FAILURES = 3

# Seconds until it is tried again to connect workers, if none has come or left.
_PATIENCE = 2.0


@dataclass(eq=False)
class _Epoch:
    """A communicator of workers, in the order of their ranks."""

    number: int
    workers: tuple[str, ...]
    is_over: bool = False


@dataclass(eq=False)
class _Run:
    """A shuffle under way.

    Attributes:
        owners: the rank that owns each partition of the result.
        unrestricted: tasks that were pinned, and where they could run before.
    """

    id: int
    spec: ShuffleSpec
    epoch: _Epoch
    owners: list[int]
    is_finished: bool = False
    unrestricted: dict[Any, set[str] | None] = field(default_factory=dict)


class ShuffleSchedulerPlugin(SchedulerPlugin):
    """What ``bootstrap()`` adds to the scheduler."""

    name = "ucp-shuffle"
    idempotent = True

    async def start(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.runs: dict[str, _Run] = {}
        self.failures: dict[str, int] = {}
        # Runs that have ended by the last stimulus, and that.
        self._ended: tuple[str, set[str]] = ("", set())
        self._creating: dict[str, asyncio.Task[_Run | None]] = {}
        self._epoch: _Epoch | None = None
        self._connecting: _Epoch | None = None
        self._lock = asyncio.Lock()
        self._changed = asyncio.Event()  # a worker has come or left
        self._addresses: dict[str, bytes] = {}
        self._numbers = itertools.count(1)
        scheduler.handlers.update(
            {
                "ucp_shuffle_get": self.get,
                "ucp_shuffle_barrier": self.barrier,
                "ucp_shuffle_place": self.place,
                "ucp_shuffle_failed": self.failed,
            }
        )
        answers = await scheduler.register_worker_plugin(
            None,
            dumps(ShuffleWorkerPlugin()),
            name=ShuffleWorkerPlugin.name,
            idempotent=True,
        )
        for worker, answer in answers.items():
            if answer["status"] == "error":
                await scheduler.unregister_worker_plugin(None, self.name)
                raise RuntimeError(
                    f"{worker} cannot take part in shuffles: {answer['exception_text']}"
                )

    # What workers ask for.

    async def get(self, shuffle: str, key: Any, worker: str) -> dict[str, Any]:
        """The run of a shuffle, which an insert begins."""
        run = self.runs.get(shuffle)
        if run is None:
            making = self._creating.get(shuffle)
            if making is None:
                making = asyncio.ensure_future(self._create(shuffle))
                self._creating[shuffle] = making
                making.add_done_callback(lambda _: self._creating.pop(shuffle, None))
            try:
                run = await asyncio.shield(making)
            except Exception as exc:
                return {"status": "failed", "reason": f"{type(exc).__name__}: {exc}"}
        if run is None or self.runs.get(shuffle) is not run:
            return {"status": "again"}
        if worker not in run.epoch.workers:  # it has come later
            self._pin(run, key, run.epoch.workers)
            return {"status": "again"}
        return {
            "status": "OK",
            "run_id": run.id,
            "epoch": run.epoch.number,
            "num_tables": run.spec.num_tables,
            "owners": run.owners,
        }

    async def barrier(
        self, shuffle: str, run_id: int, inserted: dict[str, int]
    ) -> dict[str, Any]:
        """Finish the shufflers of a run, when all has been inserted.

        Args:
            shuffle: its id.
            run_id: that of all inserts; 0: they differ.
            inserted: how many inserts each rank has.
        """
        run = self.runs.get(shuffle)
        if run is None or run.id != run_id:
            if run is not None:
                self._begin_again(shuffle, f"ucp-barrier-{time()}")
            return {"status": "again"}
        counts = await self._ask(
            run.epoch.workers,
            op="ucp_shuffle_finish",
            shuffle=shuffle,
            run={
                "run_id": run.id,
                "epoch": run.epoch.number,
                "num_tables": run.spec.num_tables,
                "owners": run.owners,
            },
        )
        wrong = [
            f"{worker} has inserted {counts[worker]!r}"
            for rank, worker in enumerate(run.epoch.workers)
            if counts[worker] != inserted.get(str(rank), 0)
        ]
        if wrong:
            return await self.failed(shuffle, run_id, "; ".join(wrong))
        if self.runs.get(shuffle) is not run:
            return {"status": "again"}
        run.is_finished = True
        return {"status": "OK"}

    async def place(
        self, shuffle: str, run_id: int, key: Any, partition: int
    ) -> dict[str, Any]:
        """Have an extract run on the owner of its partition."""
        run = self.runs.get(shuffle)
        if run is not None and run.id == run_id:
            self._pin(run, key, [run.epoch.workers[run.owners[partition]]])
        elif not self._begin_again(shuffle, f"ucp-place-{time()}"):
            return {"status": "failed", "reason": "a task of it has failed"}
        return {"status": "again"}

    async def failed(
        self, shuffle: str, run_id: int, reason: str, counts: bool = True
    ) -> dict[str, Any]:
        """A worker cannot go on with a run.

        Args:
            shuffle: its id.
            run_id: that of the run.
            reason: why.
            counts: it is nobody's fault else.
        """
        run = self.runs.get(shuffle)
        if run is None or run.id != run_id:
            return {"status": "again"}  # that is known
        if counts:
            failures = self.failures.get(shuffle, 0) + 1
            self.failures[shuffle] = failures
            if failures > _MOST_FAILURES:
                return {"status": "failed", "reason": reason}
            logger.warning("Shuffle %s begins again: %s", shuffle, reason)
            run.epoch.is_over = True
        self._begin_again(shuffle, f"ucp-failed-{time()}")
        return {"status": "again"}

    # Runs.

    async def _create(self, shuffle: str) -> _Run | None:
        """A run; None: its tasks are gone."""
        epoch = await self._current_epoch()
        barrier = self.scheduler.tasks.get(barrier_key(shuffle))
        if barrier is None or epoch.is_over:
            return None
        if not isinstance(barrier.run_spec, BarrierTask):
            raise RuntimeError(f"{barrier.key} has been renamed or fused")
        spec = barrier.run_spec.args[0]
        run_id = next(self._numbers)
        ranks = self._ranks_of(epoch, barrier.worker_restrictions)
        first = run_id % len(ranks)  # small shuffles do not all go to one worker
        ranks = ranks[first:] + ranks[:first]
        owners = [
            ranks[partition * len(ranks) // spec.num_partitions]
            for partition in range(spec.num_partitions)
        ]
        run = _Run(run_id, spec, epoch, owners)
        self.runs[shuffle] = run
        for task in barrier.dependents:
            if isinstance(task.run_spec, ExtractTask) and task.state != "memory":
                rank = owners[task.run_spec.args[1]]
                self._pin(run, task.key, [epoch.workers[rank]])
        return run

    def _ranks_of(self, epoch: _Epoch, restrictions: set[str] | None) -> list[int]:
        """The ranks that may own partitions."""
        ranks = [
            rank
            for rank, worker in enumerate(epoch.workers)
            if not restrictions or worker in restrictions
        ]
        return ranks or list(range(len(epoch.workers)))

    def _pin(self, run: _Run, key: Any, workers: Iterable[str]) -> None:
        task = self.scheduler.tasks.get(key)
        if task is None:
            return
        if key not in run.unrestricted:
            before = task.worker_restrictions
            run.unrestricted[key] = set(before) if before else None
        self.scheduler.set_restrictions({key: set(workers)})

    def _end(self, shuffle: str, stimulus: str | None = None) -> None:
        """Forget a run, here and on its workers."""
        run = self.runs.pop(shuffle, None)
        if run is None:
            return
        if stimulus is not None:
            if self._ended[0] != stimulus:
                self._ended = (stimulus, set())
            self._ended[1].add(shuffle)
        message = {
            "op": "ucp-shuffle-end",
            "shuffle": shuffle,
            "run_id": run.id,
            "is_complete": run.is_finished and not run.epoch.is_over,
        }
        there = [w for w in run.epoch.workers if w in self.scheduler.workers]
        self.scheduler.send_all({}, {worker: [message] for worker in there})
        for key, before in run.unrestricted.items():
            if key in self.scheduler.tasks:
                self.scheduler.set_restrictions({key: before})

    def _begin_again(self, shuffle: str, stimulus: str) -> bool:
        """Have Dask run the tasks of a shuffle again, whose results are not there.

        False: it cannot be run, as a task before the extracts has failed. An extract
        that has failed concerns no other one.
        """
        self._end(shuffle)
        barrier = self.scheduler.tasks.get(barrier_key(shuffle))
        if barrier is None:
            return True
        before = (barrier, *barrier.dependencies)
        if any(task.state == "erred" for task in before):
            return False
        behind = [
            task for task in barrier.dependents if task.state not in ("memory", "erred")
        ]
        released = {task.key: "released" for task in (*behind, *before)}
        self.scheduler.transitions(released, stimulus_id=stimulus)
        self.scheduler.stimulus_queue_slots_maybe_opened(stimulus_id=stimulus)
        return True

    # Epochs.

    async def _current_epoch(self) -> _Epoch:
        """That of the workers that there are."""
        async with self._lock:
            failures = 0
            while True:
                workers = self._workers()
                epoch = self._epoch
                if epoch is None or epoch.is_over or epoch.workers != workers:
                    self._changed.clear()
                    epoch = _Epoch(next(self._numbers), workers)
                    reason = await self._connect(epoch)
                    if reason is None and not epoch.is_over:
                        self._epoch = epoch
                if not epoch.is_over and epoch is self._epoch:
                    return epoch
                if workers != self._workers():
                    continue
                # A worker that has gone is missed by its peers first.
                failures += 1
                if failures > _MOST_FAILURES:
                    raise RuntimeError(f"the workers do not connect: {reason}")
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), _PATIENCE)

    def _workers(self) -> tuple[str, ...]:
        """Those that stay, as far as is known."""
        leaving = (Status.closing_gracefully, Status.closing, Status.closed)
        workers = self.scheduler.workers.values()
        return tuple(sorted(w.address for w in workers if w.status not in leaving))

    async def _connect(self, epoch: _Epoch) -> str | None:
        """Have the workers make a communicator; why they have not."""
        if not epoch.workers:
            return "there are none"
        root = epoch.workers[0]
        self._connecting = epoch
        try:
            if root not in self._addresses:
                found = (await self._ask([root], op="ucp_shuffle_address"))[root]
                if not isinstance(found, bytes):
                    return f"{root}: {found!r}"
                self._addresses[root] = found
            answers = await self._ask(
                epoch.workers,
                op="ucp_shuffle_connect",
                epoch=epoch.number,
                root=self._addresses[root],
                ranks=list(epoch.workers),
            )
        finally:
            self._connecting = None
        wrong = [f"{w}: {a!r}" for w, a in answers.items() if a is not None]
        return "; ".join(wrong) if wrong else None

    async def _ask(self, workers: Iterable[str], **message: Any) -> dict[str, Any]:
        return await self.scheduler.broadcast(
            msg=message, workers=list(workers), on_error="return"
        )

    # What the scheduler tells.

    def transition(
        self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any
    ) -> None:
        """The end of a run: nobody needs its barrier any more."""
        if finish not in ("released", "erred", "forgotten"):
            return
        shuffle = shuffle_of(key)
        if shuffle is None:
            return
        self._end(shuffle, kwargs["stimulus_id"])
        if finish == "forgotten":
            self.failures.pop(shuffle, None)

    def add_worker(self, scheduler: Scheduler, worker: str) -> None:
        """Let it take part in the next epoch."""
        self._changed.set()

    def remove_worker(
        self, scheduler: Scheduler, worker: str, *, stimulus_id: str, **kwargs: Any
    ) -> None:
        """Begin the runs again in which the worker took part.

        The scheduler may have released their barriers before, for this reason.
        """
        self._changed.set()
        self._addresses.pop(worker, None)
        connecting = self._connecting
        if connecting is not None and worker in connecting.workers:
            connecting.is_over = True
            message = {"op": "ucp-shuffle-abandon", "epoch": connecting.number}
            there = [w for w in connecting.workers if w in scheduler.workers]
            scheduler.send_all({}, {each: [message] for each in there})
        if self._epoch is not None and worker in self._epoch.workers:
            self._epoch.is_over = True
        lost = self._ended[1] if self._ended[0] == stimulus_id else set()
        for shuffle, run in list(self.runs.items()):
            if worker in run.epoch.workers:
                run.epoch.is_over = True
                lost.add(shuffle)
        for shuffle in lost:
            self._begin_again(shuffle, stimulus_id)

    def valid_workers_downscaling(
        self, scheduler: Scheduler, workers: list[Any]
    ) -> list[Any]:
        """Workers in no run."""
        busy = {worker for run in self.runs.values() for worker in run.epoch.workers}
        return [worker for worker in workers if worker.address not in busy]

    def restart(self, scheduler: Scheduler) -> None:
        """Forget all; the workers are new ones."""
        self.runs.clear()
        self.failures.clear()
        self._addresses.clear()
        self._epoch = None
