# SPDX-License-Identifier: BSD-3-Clause
"""Processes with ranks: messages between them and collective operations."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self, SupportsIndex

from .. import _ext
from .._core.closing import Opening
from .._core.ending import fault_of, reason_of
from .._core.endpoint import Endpoint
from .._core.lifecycle import current_worker
from .._core.resolve import resolve
from .._core.worker import Worker
from .._core.worker_address import create_endpoint_from_worker_address
from .._ext import UCXAddress
from . import bootstrap, environment, meeting
from .operations import Operations

ANY_SOURCE = -1
ANY_TAG = -1

Allgather = Callable[[bytes], Iterable[bytes] | Awaitable[Iterable[bytes]]]


class PeerPath(NamedTuple):
    """How messages of collective operations reach a rank: an item of
    ``Communicator.explain()``.

    Attributes:
        rank: the rank.
        path: ``"self"``, ``"shared memory"``, or ``"messages"`` over an endpoint.
        reason: why, for people.
    """

    rank: int
    path: str
    reason: str


class Communicator(Operations, _ext.Communicator):
    """Processes with the ranks 0 to ``size - 1``.

    One is made by ``connect()``, ``from_env()``, ``from_allgather()`` or
    ``split()``, and is bound to the event loop in which it was made.

        async with ucp.Communicator.from_env() as comm:
            array = np.full(1000, comm.rank, dtype="f8")
            await comm.allreduce(array)

    Every operation begins with the call and is awaited for its end, so several
    can be under way. Collective operations are called by all ranks in the same
    order, which decides what belongs together. Buffers are memory of any kind
    that ``Endpoint.send`` takes, in use until the operation has ended; collective
    operations also take arrays with gaps in host memory, by copies.

    A communicator fails as a whole: when a rank ends, cancels a collective
    operation or calls another one than the others, every operation on every rank,
    pending or later, raises UCXRankFailed, which names the rank. A rank that
    closes its communicator is missed only by operations that need it. Dropping
    the last reference closes it. Collective operations that are under way then
    abort it.
    """

    __slots__ = ("_objects", "_served")

    _served: _Served

    @classmethod
    def connect(
        cls,
        root: str | UCXAddress | bytes,
        rank: int | None,
        size: int,
        timeout: float | None = 60,
        name: str = "",
        heartbeat: float | None = 30,
        progress: Literal["thread"] | None = None,
        *,
        allow_pickle: bool = False,
    ) -> Opening[Self]:
        """Meet the other ranks, by ``await`` or by ``async with``, until all have come.

        Args:
            root: where rank 0 is: ``"tcp://host:port"``, where it listens;
                ``"file:///path"`` of a file on this host, into which it writes
                its address; or its worker address, which it does not need
                itself.
            rank: 0 to ``size - 1``; None: one that is free, but not 0.
            size: how many ranks there are, at most 65536.
            timeout: seconds until all have come; None waits forever.
            name: ranks that give different names do not meet; at most 63 bytes.
            heartbeat: seconds; a process that has not been heard of for so long,
                up to half as long again, has failed, unless it is one of this
                host that runs. None: processes may be stopped, and networks
                silent, for any time.
            progress: "thread": a second thread makes progress until ``close()``,
                as in ``Worker.run_in_thread()``, so that heartbeats are answered
                and messages move while this rank computes.
            allow_pickle: True: operations on objects of this communicator, and of
                those that are made of it, need not be told that the other ranks are
                trusted. What they pickle can run any code in this process.

        Raises:
            UCXTimeout: not all have come, and who has not.
            UCXRejected: two processes have the same rank, or another size, name
                or token.
            UCXBusy: another process listens at the root's address.
            UCXConnectionReset: the root has ended.
            ValueError: a rank, size, name, root or ``progress`` that makes no
                sense.
        """
        return Opening(
            cls._connect(
                *(root, rank, size, timeout, name, heartbeat, progress, allow_pickle)
            ),
            f"Communicator, rank {rank} of {size}, not made",
        )

    @classmethod
    def from_env(
        cls,
        timeout: float | None = 60,
        name: str = "",
        heartbeat: float | None = 30,
        progress: Literal["thread"] | None = None,
        *,
        allow_pickle: bool = False,
    ) -> Opening[Self]:
        """Meet the ranks that a launcher has started, by its environment variables.

        These are ``UCP_RANK``, ``UCP_SIZE`` and ``UCP_ROOT``, which ``python -m ucp
        run`` sets and users may set, or those of torchrun, Open MPI, MPICH, Intel
        MPI and Slurm. docs/communicator.md says where the root is then.

        Raises:
            UCXConfigError: a variable is missing, or makes no sense.

        Other arguments and exceptions are as for ``connect()``.
        """
        return Opening(
            cls._from_env(timeout, name, heartbeat, progress, allow_pickle),
            "Communicator of the environment, not made",
        )

    @classmethod
    def from_allgather(
        cls,
        rank: int,
        size: int,
        allgather: Allgather,
        timeout: float | None = 60,
        name: str = "",
        heartbeat: float | None = 30,
        progress: Literal["thread"] | None = None,
        *,
        allow_pickle: bool = False,
    ) -> Opening[Self]:
        """Meet ranks that can reach each other by other means, such as MPI.

        Args:
            rank: 0 to ``size - 1``.
            size: how many ranks there are.
            allgather: called once with bytes on every rank; returns the bytes of
                all ranks in their order, or an awaitable of them. With mpi4py it
                is ``MPI.COMM_WORLD.allgather``.

        Other arguments and exceptions are as for ``connect()``.
        """
        return Opening(
            cls._from_allgather(
                *(rank, size, allgather, timeout, name, heartbeat, progress),
                allow_pickle,
            ),
            f"Communicator, rank {rank} of {size}, not made",
        )

    # Making one.

    @classmethod
    async def _connect(
        cls,
        root: str | UCXAddress | bytes,
        rank: int | None,
        size: int,
        timeout: float | None,
        name: str,
        heartbeat: float | None,
        progress: Literal["thread"] | None,
        allow_pickle: bool,
    ) -> Self:
        number = bootstrap.rank_number(rank)
        _check_progress(progress)
        if not isinstance(root, str):
            self = await cls._made(number, size, root, timeout, name, heartbeat)
        elif root.startswith("file:"):
            self = await cls._by_file(root, number, size, timeout, name, heartbeat)
        else:
            host, port = environment.split_address(root, "the root")
            address = (await resolve(host, port))[0]
            self = await cls._made(number, size, address, timeout, name, heartbeat)
        self._allows_pickle = allow_pickle is True
        self._serve(progress)
        return self

    @classmethod
    async def _from_env(
        cls,
        timeout: float | None,
        name: str,
        heartbeat: float | None,
        progress: Literal["thread"] | None,
        allow_pickle: bool,
    ) -> Self:
        ranks = environment.from_environment()
        with meeting.announced(ranks):
            return await cls.connect(
                *(ranks.root, ranks.rank, ranks.size),
                timeout=timeout,
                name=name,
                heartbeat=heartbeat,
                progress=progress,
                allow_pickle=allow_pickle,
            )

    @classmethod
    async def _from_allgather(
        cls,
        rank: int,
        size: int,
        allgather: Allgather,
        timeout: float | None,
        name: str,
        heartbeat: float | None,
        progress: Literal["thread"] | None,
        allow_pickle: bool,
    ) -> Self:
        _check_progress(progress)
        answer = allgather(bootstrap.own_part(rank, current_worker()))
        if inspect.isawaitable(answer):
            answer = await answer
        root = bootstrap.root_part(rank, size, answer)
        self = await cls._made(rank, size, root, timeout, name, heartbeat)
        self._allows_pickle = allow_pickle is True
        self._serve(progress)
        return self

    @classmethod
    async def _made(
        cls,
        rank: int,
        size: int,
        where: Any,
        timeout: float | None,
        name: str,
        heartbeat: float | None,
    ) -> Self:
        if rank == 0 and not isinstance(where, tuple):
            where = None
        self = cls(current_worker())
        await self._create(rank, size, where, timeout, name, heartbeat)
        return self

    @classmethod
    async def _by_file(
        cls,
        url: str,
        rank: int,
        size: int,
        timeout: float | None,
        name: str,
        heartbeat: float | None,
    ) -> Self:
        path = bootstrap.path_of(url, rank)
        if rank == 0:
            with bootstrap.root_file(path, current_worker()):
                return await cls._made(0, size, None, timeout, name, heartbeat)
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            while (root := bootstrap.read_root(path, end, timeout)) is None:
                await asyncio.sleep(bootstrap.LOOK)
            left = None if end is None else max(0, end - time.monotonic())
            self = cls(current_worker())
            making = self._create(rank, size, root, left, name, heartbeat)
            if await _unless_changed(making, path, root):
                return self

    # The rest of its life.

    def _serve(self, progress: str | None) -> None:
        """Have a second thread make progress until the communicator is closed."""
        if progress is not None and self.size > 1:
            self._served = _Served(current_worker())

    def close(self) -> None:
        """Leave: the other ranks finish the operations in which this one has taken
        part. Messages on their way still arrive.

        Operations that are under way here abort it.
        """
        super().close()
        served = getattr(self, "_served", None)
        if served is not None:
            del self._served
            served.end()

    async def mprobe(
        self, source: int = ANY_SOURCE, tag: int = ANY_TAG
    ) -> _ext.CommMessage:
        """Wait for a message, and take it without its bytes.

        It does the same as ``improbe()``, but waits until there is a message. No
        message is lost if the call is cancelled.
        """
        while (message := self.improbe(source, tag)) is None:
            await self.probe(source, tag)
        return message

    async def endpoint(self, rank: SupportsIndex) -> Endpoint:
        """Connect to the worker of a rank, for example to reach its memory.

            remote = (await comm.endpoint(rank)).remote(key)

        The connection is the program's, beside those of the communicator, which
        its end does not concern. The rank gets an endpoint from
        ``accept_addressed()``, but need not take it.

        Raises:
            ValueError: there is no such rank.
            UCXCloseError: the communicator is closed.
            UCXRankFailed: it has failed.

        Other exceptions are as for ``create_endpoint_from_worker_address()``.
        """
        if self.closed():  # also if it has failed before
            raise _ext.UCXCloseError("the communicator is closed")
        return await create_endpoint_from_worker_address(self._address(rank))

    def explain(self) -> list[PeerPath]:
        """Say for each rank by which path messages of collective operations reach
        it, and why.

        Memory is shared soon after the first collective operation.
        """
        return [_path_to(self, rank) for rank in range(self.size)]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close; after an exception abort, which tells it to the other ranks."""
        try:
            if exc is not None:
                self.abort(reason_of(exc), fault_of(exc))
        finally:
            self.close()

    def __repr__(self) -> str:
        name = f" {self.name!r}" if self.name else ""
        if self.rank < 0:
            return f"<ucp.Communicator{name}, not made>"
        state = "closed" if self.closed() else "failed" if self.failure else ""
        return (
            f"<ucp.Communicator{name}, rank {self.rank} of {self.size}"
            f"{', ' if state else ''}{state}>"
        )


class _Served:
    """A block of ``run_in_thread()`` that ends with its owner."""

    def __init__(self, worker: Worker) -> None:
        worker._enter_block()
        self._worker: Worker | None = worker

    def end(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker._leave_block()

    def __del__(self) -> None:
        self.end()


def _check_progress(progress: object) -> None:
    if progress not in (None, "thread"):
        raise ValueError(f"progress is {progress!r}; it is 'thread' or None")


# The words of umx_comm_explain().
_PATHS = {"this rank": "self", "channel": "messages", "shared memory": "shared memory"}


def _path_to(comm: Communicator, rank: int) -> PeerPath:
    way, _, reason = comm._explain(rank).partition(": ")
    return PeerPath(rank, _PATHS[way], reason)


async def _unless_changed(
    making: _ext.Request[None], path: Path, root: UCXAddress
) -> bool:
    """Wait until the communicator is made.

    False: the file has another root's address by now, as this one was left behind
    by a root that was killed.
    """
    try:
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(making), bootstrap.LOOK)
            if making.done():
                await making
                return True
            if bootstrap.has_changed(path, root):
                return False
    finally:
        making.cancel()
