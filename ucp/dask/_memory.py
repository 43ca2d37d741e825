# SPDX-License-Identifier: BSD-3-Clause
"""How much of a process's memory the receive cache may have.

distributed compares the memory of the process with the limit of each worker that
runs there, and spills, pauses or restarts the worker. Blocks that are kept are part
of that memory, so they are bounded by the limit, and freed before it matters.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable
from typing import Any

import dask.config
from dask.utils import parse_bytes
from distributed.system import MEMORY_LIMIT
from distributed.worker_memory import WorkerMemoryManager

from . import _config
from ._blocks import blocks

_LIMIT_MAX = 512 << 20
_LIMIT_PART = 20  # of the memory there is

_lock = threading.Lock()
# Those that listen in this process, any subclass of distributed's Worker.
_workers: weakref.WeakSet[Any] = weakref.WeakSet()


def use_blocks(loop: asyncio.AbstractEventLoop) -> None:
    """Let ``loop`` use the receive cache, as large as it may be now."""
    blocks.use(loop, limit())


def limit() -> int:
    """Return the number of bytes to keep.

    That is what Dask's configuration says, else a part of the lowest memory limit of
    the workers in this process, else a part of the memory of the host.
    """
    value = _config.get("receive-cache")
    if value is not None:
        return int(parse_bytes(value))
    with _lock:
        limits = [_memory_limit(worker) for worker in _workers]
    memory = min([int(MEMORY_LIMIT), *(limit for limit in limits if limit)])
    return min(_LIMIT_MAX, memory // _LIMIT_PART)


def worker_starts(server: Any) -> None:
    """Take note of what listens, if it is a worker."""
    if not _is_worker(server):
        return
    with _lock:
        is_new = server not in _workers
        _workers.add(server)
    if is_new:
        monitor = server.monitor
        monitor.get_process_memory = _Measure(server, monitor.get_process_memory)


def worker_stops(server: Any) -> None:
    """Forget what does not listen any more, if it is a worker."""
    if _is_worker(server):
        with _lock:
            _workers.discard(server)


def _is_worker(server: object) -> bool:
    return isinstance(getattr(server, "memory_manager", None), WorkerMemoryManager)


def _memory_limit(worker: Any) -> int | None:
    """Return the bytes that the worker may use, or None if there is no limit."""
    value: int | None = worker.memory_manager.memory_limit
    return value or None


class _Measure:
    """What a worker calls to learn the memory of its process.

    The worker acts on the number which this returns: so above the lowest threshold
    the kept blocks are freed, and the memory is measured again.
    """

    def __init__(self, worker: Any, measure: Callable[[], int]) -> None:
        self._worker = weakref.ref(worker)
        self._measure = measure

    def __call__(self) -> int:
        memory = self._measure()
        if blocks.nbytes and memory > self._threshold():
            blocks.clear()
            memory = self._measure()
        return memory

    def _threshold(self) -> float:
        """Return the bytes above which the worker spills, pauses or is restarted."""
        worker = self._worker()
        limit = None if worker is None else _memory_limit(worker)
        if worker is None or limit is None:
            return float("inf")
        fractions = (
            worker.memory_manager.memory_spill_fraction,
            worker.memory_manager.memory_pause_fraction,
            dask.config.get("distributed.worker.memory.terminate"),
        )
        return limit * min((part for part in fractions if part), default=float("inf"))
