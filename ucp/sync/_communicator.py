# SPDX-License-Identifier: BSD-3-Clause
"""Communicators whose operations return when they have ended."""

# mypy: disable-error-code="empty-body"
# Methods that are @forwarded have no code.

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Self

from .._communicator import blocking, bootstrap, environment, meeting, steps
from .._communicator import communicator as _communicator
from .._communicator.communicator import ANY_SOURCE, ANY_TAG, PeerPath
from .._core import ending
from .._ext import CommMessage, InPlace, Status, UCXAddress, UCXRankFailed
from ._exit import Thing, register
from ._forward import forwarded
from ._nonblocking import NonBlocking
from ._operations import Operations
from ._reductions import ReduceOp, recv_and_op

_Counts = Sequence[int]


class Communicator(Operations, NonBlocking):
    """``ucp.Communicator`` whose operations return when they have ended.

        with ucp.sync.Communicator.from_env() as comm:
            array = np.full(1000, comm.rank, dtype="f8")
            comm.allreduce(array)

    Made by connect(), from_env(), from_allgather() or split(). It has its own worker,
    which communicators that are split off share. An operation makes progress in the
    thread that calls it; between the calls a thread of the library does, so that
    other ranks hear of this one while it computes. Arguments, results and exceptions
    are as for ``ucp.Communicator``, and ``timeout`` is as in this module: a
    collective operation whose time runs out, or that Ctrl-C interrupts, revokes the
    communicator.

    Dropping the last reference closes it, unless collective operations are under
    way, which aborts it. So does the exit of the interpreter; after an exception that
    nothing has caught, the communicator is aborted with its text.
    """

    def __init__(
        self,
        communicator: _communicator.Communicator,
        shared: blocking.SharedWorker,
    ) -> None:
        self._async = communicator
        self._shared = shared
        self._worker = shared.worker
        self._wait_for = shared.worker._call
        self._begin = shared.begin
        self._begin_receive = shared.begin_receive
        shared.hold()
        self._release = weakref.finalize(self, shared.release, os.getpid())
        self._release.atexit = False  # _exit() comes before
        register(self)

    @classmethod
    def connect(
        cls,
        root: str | UCXAddress | bytes,
        rank: int | None,
        size: int,
        timeout: float | None = 60,
        name: str = "",
        heartbeat: float | None = 30,
        *,
        allow_pickle: bool = False,
    ) -> Self:
        """Meet the other ranks. The arguments are those of
        ``ucp.Communicator.connect()``."""
        shared = blocking.SharedWorker()
        try:
            comm = blocking.connect(
                shared.worker, root, rank, size, timeout, name, heartbeat
            )
        except BaseException:
            shared.stop()
            raise
        comm._allows_pickle = allow_pickle is True
        return cls(comm, shared)

    @classmethod
    def from_env(
        cls,
        timeout: float | None = 60,
        name: str = "",
        heartbeat: float | None = 30,
        *,
        allow_pickle: bool = False,
    ) -> Self:
        """Meet the ranks that a launcher has started."""
        ranks = environment.from_environment()
        with meeting.announced(ranks):
            return cls.connect(
                *(ranks.root, ranks.rank, ranks.size, timeout, name, heartbeat),
                allow_pickle=allow_pickle,
            )

    @classmethod
    def from_allgather(
        cls,
        rank: int,
        size: int,
        allgather: Callable[[bytes], Iterable[bytes]],
        timeout: float | None = 60,
        name: str = "",
        heartbeat: float | None = 30,
        *,
        allow_pickle: bool = False,
    ) -> Self:
        """Meet ranks that can reach each other by other means.

        ``allgather`` is called in this thread.
        """
        shared = blocking.SharedWorker()
        worker = shared.worker
        try:
            own = bootstrap.own_part(rank, worker)
            root = bootstrap.root_part(rank, size, allgather(own))
            comm = blocking.meet(worker, rank, size, root, timeout, name, heartbeat)
        except BaseException:
            shared.stop()
            raise
        comm._allows_pickle = allow_pickle is True
        return cls(comm, shared)

    def __repr__(self) -> str:
        return f"<ucp.sync.Communicator of {self._async!r}>"

    @property
    def rank(self) -> int:
        """This process's rank, from 0."""
        return self._async.rank

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return self._async.size

    @property
    def name(self) -> str:
        """Its name; "" if it was given none."""
        return self._async.name

    @property
    def failure(self) -> UCXRankFailed | None:
        """The exception that operations raise after a failure; None before."""
        return self._async.failure

    def explain(self) -> list[PeerPath]:
        """Say for each rank by which path messages of collective operations reach
        it, and why."""
        self._shared.check()
        return self._async.explain()

    @forwarded
    def send(
        self, buffer: Any, dest: int, tag: int = 0, *, timeout: float | None = None
    ) -> None:
        """Send all of ``buffer`` to the rank ``dest``."""

    @forwarded
    def recv(
        self,
        buffer: Any,
        source: int = ANY_SOURCE,
        tag: int = ANY_TAG,
        *,
        timeout: float | None = None,
    ) -> Status:
        """Receive the next message. By default any rank and any tag will do."""

    @forwarded
    def probe(
        self,
        source: int = ANY_SOURCE,
        tag: int = ANY_TAG,
        *,
        timeout: float | None = None,
    ) -> Status:
        """Wait for a message, and leave it in the queue."""

    def iprobe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Status | None:
        """The Status of a message that has come; or None."""
        self._make_progress()
        return self._async.iprobe(source, tag)

    def mprobe(
        self,
        source: int = ANY_SOURCE,
        tag: int = ANY_TAG,
        *,
        timeout: float | None = None,
    ) -> CommMessage:
        """Wait for a message and take it without its bytes, for mrecv()."""
        end = None if timeout is None else time.monotonic() + timeout
        while (message := self.improbe(source, tag)) is None:
            left = None if end is None else max(0, end - time.monotonic())
            request = self._async.probe(source, tag)
            steps.finish(self._worker, request, left, timeout, "mprobe")
        return message

    def _make_progress(self) -> None:
        self._shared.check()
        self._worker.progress()

    def improbe(
        self, source: int = ANY_SOURCE, tag: int = ANY_TAG
    ) -> CommMessage | None:
        """Take a message that has come, without its bytes, for mrecv(); or None."""
        self._make_progress()
        return self._async.improbe(source, tag)

    def mrecv(
        self, message: CommMessage, buffer: Any, *, timeout: float | None = None
    ) -> Status:
        """Receive the bytes of a message of mprobe() or improbe()."""
        return self._wait_for(timeout, message.recv, buffer)

    @forwarded
    def barrier(self, *, timeout: float | None = None) -> None:
        """Wait until every rank has called it."""

    @forwarded
    def bcast(
        self, buffer: Any, root: int = 0, *, timeout: float | None = None
    ) -> None:
        """Copy the bytes of the root's ``buffer`` to the ``buffer`` of every rank."""

    @forwarded
    def gather(
        self,
        send: Any,
        recv: Any = None,
        root: int = 0,
        *,
        counts: _Counts | None = None,
        displs: _Counts | None = None,
        timeout: float | None = None,
    ) -> None:
        """Collect every rank's ``send`` in the root's ``recv``."""

    @forwarded
    def scatter(
        self,
        send: Any,
        recv: Any,
        root: int = 0,
        *,
        counts: _Counts | None = None,
        displs: _Counts | None = None,
        timeout: float | None = None,
    ) -> None:
        """Give each rank its part of the root's ``send``, in its ``recv``."""

    @forwarded
    def allgather(self, send: Any, recv: Any, *, timeout: float | None = None) -> None:
        """Collect every rank's ``send`` in every rank's ``recv``."""

    @forwarded
    def allgatherv(
        self,
        send: Any,
        recv: Any,
        counts: _Counts,
        displs: _Counts | None = None,
        *,
        timeout: float | None = None,
    ) -> None:
        """Do the same as allgather(), with parts of different lengths."""

    @forwarded
    def alltoall(self, send: Any, recv: Any, *, timeout: float | None = None) -> None:
        """Send part i of ``send`` to rank i; receive part i of ``recv`` from it."""

    @forwarded
    def alltoallv(
        self,
        send: Any | InPlace,
        send_counts: _Counts | None,
        recv: Any,
        recv_counts: _Counts,
        *,
        send_displs: _Counts | None = None,
        recv_displs: _Counts | None = None,
        timeout: float | None = None,
    ) -> None:
        """Do the same as alltoall(), with parts of different lengths."""

    @forwarded
    def alltoall_buffers(
        self, buffers: Sequence[Any], *, timeout: float | None = None
    ) -> list[memoryview]:
        """Send buffers[i] to rank i; return what the ranks have sent."""

    @forwarded
    def reduce(
        self,
        send: Any,
        recv: Any = None,
        op: ReduceOp = "sum",
        root: int = 0,
        *,
        timeout: float | None = None,
    ) -> None:
        """Combine the arrays of all ranks into the root's ``recv``."""

    def allreduce(
        self,
        send: Any | InPlace,
        recv: Any = None,
        op: ReduceOp = "sum",
        *,
        timeout: float | None = None,
    ) -> None:
        """Give every rank the result of reduce(), in ``recv``, or else in ``send``."""
        recv, op = recv_and_op(recv, op)
        self._wait_for(timeout, self._async.allreduce, send, recv, op)

    def scan(
        self,
        send: Any | InPlace,
        recv: Any = None,
        op: ReduceOp = "sum",
        *,
        timeout: float | None = None,
    ) -> None:
        """Combine the arrays of the ranks from 0 to this one."""
        recv, op = recv_and_op(recv, op)
        self._wait_for(timeout, self._async.scan, send, recv, op)

    def exscan(
        self,
        send: Any | InPlace,
        recv: Any = None,
        op: ReduceOp = "sum",
        *,
        timeout: float | None = None,
    ) -> None:
        """Combine the arrays of the ranks before this one; rank 0 gets no result."""
        recv, op = recv_and_op(recv, op)
        self._wait_for(timeout, self._async.exscan, send, recv, op)

    @forwarded
    def reduce_scatter(
        self,
        send: Any | InPlace,
        recv: Any,
        op: ReduceOp = "sum",
        *,
        counts: _Counts | None = None,
        timeout: float | None = None,
    ) -> None:
        """Give each rank only its part of the result of allreduce(), in ``recv``."""

    def split(
        self, color: int | None, key: int = 0, *, timeout: float | None = None
    ) -> Self | None:
        """Make a communicator of the ranks that give the same ``color``."""
        made = self._wait_for(timeout, self._async.split, color, key)
        return None if made is None else self._of(made)

    def abort(
        self, reason: str | None = None, _fault: tuple[int, int, int] | None = None
    ) -> None:
        """End the communicator on every rank."""
        if not self._worker.closed():
            self._async.abort(reason, _fault)

    def close(self) -> None:
        """Leave the communicator. A second call does nothing."""
        if self._release.alive:
            if not self._worker.closed():
                self._async.close()
            self._release()

    def closed(self) -> bool:
        """True after close(), and when ucp was shut down."""
        return self._async.closed()

    def _close_at_exit(self, layer: Thing) -> None:
        """Have a layer closed before this at the exit of the interpreter."""
        register(layer)

    def _exit(self, exc: BaseException | None, end: float) -> None:
        """Leave it without waiting, as the interpreter ends."""
        if self._worker.closed():
            return
        if ending.is_failure(exc):
            assert exc is not None
            self.abort(ending.reason_of(exc), ending.fault_of(exc))
        self._async.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close; after an exception abort, which tells it to the other ranks."""
        try:
            if exc is not None:
                self.abort(ending.reason_of(exc), ending.fault_of(exc))
        finally:
            self.close()
