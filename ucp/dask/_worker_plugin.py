# SPDX-License-Identifier: BSD-3-Clause
"""A worker's part of shuffles: its communicators, and the runs that it is in."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from dask.context import thread_state
from distributed import Reschedule, Worker, get_worker
from distributed.diagnostics.plugin import WorkerPlugin

from .._communicator.communicator import Communicator
from .._core.lifecycle import current_worker
from ..exceptions import UCXCanceled, UCXError
from ..shuffle import MemoryCache
from ._loop import LoopThread
from ._tasks import Passed, ShuffleSpec
from ._worker_shuffle import Epoch, ExtractedError, Run

_T = TypeVar("_T")

NAME = "ucp-shuffle"

# Seconds that workers have to meet.
_CONNECT = 30.0

# Parts of a worker's memory limit: for the chunks of a shuffle, and for memory that
# is kept for the next one.
_BUDGET = 0.3
_KEEP = 0.1
_MOST_KEPT = 1 << 30


# Shuffles that are remembered when they have ended: the scheduler may have told of
# them before, in a message that comes later.
_MOST_ENDED = 1000


class _Again(Exception):
    """The task is to run again, here or elsewhere."""


class ShuffleWorkerPlugin(WorkerPlugin):
    """What ``bootstrap()`` adds to each worker.

    UCX starts with the first shuffle, in a thread with its own event loop, so
    that messages move whatever the worker does.
    """

    name = NAME
    idempotent = True

    def setup(self, worker: Worker) -> None:
        self.worker = worker
        self.runs: dict[str, Run] = {}
        self.epochs: dict[int, Epoch] = {}
        self._dask = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._loop: LoopThread | None = None
        self._cache: MemoryCache | None = None
        self._connecting: dict[int, asyncio.Future[Any]] = {}
        self._abandoned: set[int] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self._ended: dict[str, int] = {}  # the last run of a shuffle that has ended
        self._is_closed = False
        worker.handlers.update(
            {
                "ucp_shuffle_address": self.address,
                "ucp_shuffle_connect": self.connect,
                "ucp_shuffle_finish": self.finish,
            }
        )
        worker.stream_handlers.update(
            {
                "ucp-shuffle-abandon": self.abandon,
                "ucp-shuffle-end": self.end,
            }
        )

    async def teardown(self, worker: Worker) -> None:
        """End all communicators; the other workers notice this."""
        self._is_closed = True
        loop, self._loop = self._loop, None
        if loop is not None:
            with suppress(UCXError):
                await asyncio.wrap_future(loop.begin(self._close()))
            await asyncio.to_thread(loop.stop)

    # What the scheduler asks for, in the worker's own event loop.

    async def address(self) -> bytes:
        """Return the worker address by which other workers meet this worker."""

        async def find() -> bytes:
            address: Any = current_worker().get_address()
            return bytes(address)

        return await self._in_loop(find())

    async def connect(self, epoch: int, root: bytes, ranks: list[str]) -> None:
        """Meet the other workers of a communicator, whose number is ``epoch``."""
        await self._in_loop(self._connect(epoch, root, list(ranks)))

    async def finish(self, shuffle: str, run: dict[str, Any]) -> int:
        """Say that this worker inserts nothing more; return the number of inserts."""

        async def finish() -> int:
            return self._begin(shuffle, run).finish()

        return await self._in_loop(finish())

    def abandon(self, epoch: int) -> None:
        """Stop waiting for the other workers of the communicator ``epoch``."""
        if self._loop is not None:
            self._loop.call_soon(lambda: self._abandon(epoch))

    def end(self, shuffle: str, run_id: int, is_complete: bool) -> None:
        """End a run of a shuffle."""
        if self._loop is not None:
            self._loop.call_soon(lambda: self._end(shuffle, run_id, is_complete))

    # What tasks ask for, in their threads.

    @contextmanager
    def inserting(self, spec: ShuffleSpec) -> Iterator[Run]:
        """The run of a shuffle, for an insert.

        Raises:
            Reschedule: the run is over, and the task runs again.
        """
        loop = self._started()
        with _rescheduled():
            run = loop.wait(self._fetch(spec.id, thread_state.key))
            with self._reported(spec, run):
                yield run

    @contextmanager
    def extracting(
        self, spec: ShuffleSpec, passed: Passed, partition: int
    ) -> Iterator[Run]:
        """The run of a shuffle, for an extract, which is on the owner.

        Raises:
            Reschedule: as above; or it is another worker.
        """
        run = self.runs.get(spec.id)
        with _rescheduled():
            if (
                run is None
                or run.id != passed.run_id
                or run.owners[partition] != run.rank
            ):
                answer = self._ask(
                    "ucp_shuffle_place",
                    shuffle=spec.id,
                    run_id=passed.run_id,
                    key=thread_state.key,
                    partition=partition,
                )
                _check(answer)
            assert run is not None
            with self._reported(spec, run):
                yield run

    def finish_all(self, spec: ShuffleSpec, passed: Passed, is_one: bool) -> None:
        """Have all workers finish their shufflers.

        Args:
            spec: of the shuffle.
            passed: what has been inserted.
            is_one: by one run.
        """
        counts: dict[str, int] = {}
        for table in passed.inserted:
            for rank, its in table.items():
                counts[str(rank)] = counts.get(str(rank), 0) + len(its)
        with _rescheduled():
            answer = self._ask(
                "ucp_shuffle_barrier",
                shuffle=spec.id,
                run_id=passed.run_id if is_one else 0,
                inserted=counts,
            )
            _check(answer)

    @contextmanager
    def _reported(self, spec: ShuffleSpec, run: Run) -> Iterator[None]:
        """Tell the scheduler that a run has failed, which begins it again."""
        try:
            yield
        except (UCXError, ExtractedError) as exc:
            if not run.is_over:
                answer = self._ask(
                    "ucp_shuffle_failed",
                    shuffle=spec.id,
                    run_id=run.id,
                    reason=f"{type(exc).__name__}: {exc}",
                    counts=isinstance(exc, UCXError),
                )
                if answer["status"] == "failed":
                    raise
            raise _Again from exc

    def _ask(self, what: str, **arguments: Any) -> dict[str, Any]:
        """Ask the scheduler, in the thread of a task."""

        async def ask() -> dict[str, Any]:
            return await getattr(self.worker.scheduler, what)(**arguments)

        return asyncio.run_coroutine_threadsafe(ask(), self._dask).result()

    def _started(self) -> LoopThread:
        with self._lock:
            if self._is_closed:
                raise Reschedule
            if self._loop is None:
                self._loop = LoopThread(NAME)
            return self._loop

    async def _in_loop(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        return await asyncio.wrap_future(self._started().begin(coroutine))

    # In the thread of the loop.

    async def _connect(self, number: int, root: bytes, workers: list[str]) -> None:
        if number in self._abandoned:
            raise UCXCanceled(f"epoch {number} is over")
        making = asyncio.ensure_future(
            Communicator.connect(
                root,
                workers.index(self.worker.address),
                len(workers),
                timeout=_CONNECT,
                name=f"epoch{number}",
                progress="thread",
            )
        )
        self._connecting[number] = making
        try:
            comm = await making
        except asyncio.CancelledError:
            raise UCXCanceled(f"epoch {number} is over") from None
        finally:
            del self._connecting[number]
        for old in list(self.epochs.values()):
            self._leave(old)
        self.epochs[number] = Epoch(number, comm)

    def _abandon(self, number: int) -> None:
        self._abandoned.add(number)
        if number in self._connecting:
            self._connecting[number].cancel()

    def _leave(self, epoch: Epoch) -> None:
        """Close an epoch that nothing uses."""
        if not epoch.runs:
            self.epochs.pop(epoch.number, None)
            epoch.comm.close()

    async def _fetch(self, shuffle: str, key: Any) -> Run:
        """The run that an insert belongs to."""
        run = self.runs.get(shuffle)
        if run is not None:
            return run
        asked = self.worker.scheduler.ucp_shuffle_get(
            shuffle=shuffle, key=key, worker=self.worker.address
        )
        answer = await asyncio.wrap_future(
            asyncio.run_coroutine_threadsafe(asked, self._dask)
        )
        _check(answer)
        return self._begin(shuffle, answer)

    def _begin(self, shuffle: str, message: dict[str, Any]) -> Run:
        """A run of which the scheduler has told."""
        run = self.runs.get(shuffle)
        if run is not None and run.id == message["run_id"]:
            return run
        if message["run_id"] <= self._ended.get(shuffle, 0):
            raise _Again
        epoch = self.epochs.get(message["epoch"])
        if epoch is None:
            raise _Again
        if run is not None:
            self._forget(shuffle, run, False)
        assert self._loop is not None
        run = Run(message, epoch, self._kept(), self._loop, self._limits())
        self.runs[shuffle] = run
        return run

    def _forget(self, shuffle: str, run: Run, is_complete: bool) -> None:
        del self.runs[shuffle]
        run.is_over = True
        ending = asyncio.ensure_future(run.end(is_complete))
        self._ending.add(ending)
        ending.add_done_callback(self._run_ended)

    def _run_ended(self, ending: asyncio.Task[None]) -> None:
        self._ending.discard(ending)
        newest = max(self.epochs, default=0)
        for epoch in list(self.epochs.values()):
            if epoch.number < newest or epoch.comm.failure is not None:
                self._leave(epoch)

    def _end(self, shuffle: str, run_id: int, is_complete: bool) -> None:
        self._ended[shuffle] = max(run_id, self._ended.pop(shuffle, 0))
        if len(self._ended) > _MOST_ENDED:
            del self._ended[next(iter(self._ended))]
        run = self.runs.get(shuffle)
        if run is not None and run.id <= run_id:
            self._forget(shuffle, run, is_complete)

    async def _close(self) -> None:
        for making in list(self._connecting.values()):
            making.cancel()
        for shuffle, run in list(self.runs.items()):
            self._forget(shuffle, run, False)
        await asyncio.gather(*self._ending, return_exceptions=True)
        for epoch in list(self.epochs.values()):
            self._leave(epoch)
        if self._cache is not None:
            self._cache.close()

    def _kept(self) -> MemoryCache:
        if self._cache is None:
            limit = self.worker.memory_manager.memory_limit
            keep = int(limit * _KEEP) if limit else _MOST_KEPT
            self._cache = MemoryCache(min(keep, _MOST_KEPT))
        return self._cache

    def _limits(self) -> dict[str, Any]:
        limit = self.worker.memory_manager.memory_limit
        if not limit:
            return {}
        budget = int(limit * _BUDGET)
        return {"budget": budget, "spill_dir": self.worker.local_directory}


@contextmanager
def _rescheduled() -> Iterator[None]:
    try:
        yield
    except (_Again, CancelledError):  # the second: this worker ends
        raise Reschedule from None


def _check(answer: dict[str, Any]) -> None:
    """What the scheduler says to a task.

    Raises:
        _Again: the task is to run again, here or elsewhere.
        RuntimeError: it is not.
    """
    if answer["status"] == "failed":
        raise RuntimeError(f"the shuffle has failed: {answer['reason']}")
    if answer["status"] != "OK":
        raise _Again


def worker_plugin() -> ShuffleWorkerPlugin:
    """That of the worker on which this task runs.

    Raises:
        RuntimeError: there is none.
    """
    try:
        worker = get_worker()
    except ValueError:
        raise RuntimeError(
            "frames of ucp.dask need distributed's scheduler: create a "
            "distributed.Client, and compute with it"
        ) from None
    plugin = worker.plugins.get(NAME)
    if plugin is None:
        raise RuntimeError(
            "this cluster has not been prepared: call ucp.dask.bootstrap(client)"
        )
    return plugin
