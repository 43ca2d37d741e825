# SPDX-License-Identifier: BSD-3-Clause
"""Blocking operations of several requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Self, TypeVar

from .._communicator import (
    blocking,
    communicator,
    pickled,
    sendrecv,
    short,
    steps,
)
from .._communicator.communicator import ANY_SOURCE, ANY_TAG
from .._communicator.group import Group, check_group, create, group_of
from .._communicator.parcels import check_allowed
from .._communicator.pickled import Op
from .._core.operation import Steps
from .._core.worker import Worker
from .._ext import Status

_T = TypeVar("_T")


def _name_of(function: Callable[..., object]) -> str:
    """The method whose steps these are."""
    name = function.__name__
    return f"{name}_pickle" if function.__module__ == pickled.__name__ else name


class Operations:
    """Methods of ``Communicator``; arguments and results are those of
    ``ucp.Communicator``."""

    _async: communicator.Communicator
    _shared: blocking.SharedWorker
    _worker: Worker

    def _run(
        self,
        timeout: float | None,
        function: Callable[..., Steps[_T]],
        *args: Any,
    ) -> _T:
        self._shared.check()
        return steps.run(
            self._worker,
            timeout,
            function(self._async, *args),
            lambda: _name_of(function),
        )

    @property
    def group(self) -> Group:
        """The group of its ranks."""
        return group_of(self._async)

    def dup(self, *, timeout: float | None = None) -> Self:
        """Make a communicator of the same ranks."""
        worker = self._shared.worker
        return self._of(worker._call(timeout, self._async.dup))

    def create(self, group: Group, *, timeout: float | None = None) -> Self | None:
        """Make a communicator of the processes of a group; None if this rank is not
        in it."""
        check_group(self._async, group)
        made = self._run(timeout, create, group)
        return None if made is None else self._of(made)

    def _of(self, made: communicator.Communicator) -> Self:
        return type(self)(made, self._shared)  # type: ignore[call-arg]

    def sendrecv(
        self,
        send: Any,
        dest: int,
        recv: Any,
        source: int = ANY_SOURCE,
        send_tag: int = 0,
        recv_tag: int = ANY_TAG,
        *,
        timeout: float | None = None,
    ) -> Status:
        """Send a buffer to a rank, and receive into ``recv``, at the same time."""
        status: Status = self._run(
            timeout, sendrecv.sendrecv, send, dest, recv, source, send_tag, recv_tag
        )
        return status

    def send_pickle(
        self, obj: object, dest: int, tag: int = 0, *, timeout: float | None = None
    ) -> None:
        """Send an object to the rank ``dest``."""
        short.send(self._worker, self._async, obj, dest, tag, timeout)

    def recv_pickle(
        self,
        source: int = ANY_SOURCE,
        tag: int = ANY_TAG,
        *,
        allow_pickle: bool | None = None,
        with_status: bool = False,
        timeout: float | None = None,
    ) -> Any:
        """Receive an object of ``send_pickle``."""
        return short.recv(
            self._worker, self._async, source, tag, allow_pickle, with_status, timeout
        )

    def sendrecv_pickle(
        self,
        obj: object,
        dest: int,
        source: int = ANY_SOURCE,
        send_tag: int = 0,
        recv_tag: int = ANY_TAG,
        *,
        allow_pickle: bool | None = None,
        with_status: bool = False,
        timeout: float | None = None,
    ) -> Any:
        """Send an object to a rank, and receive another one, at the same time."""
        check_allowed(self._async, "sendrecv_pickle", allow_pickle)
        return self._run(
            timeout,
            sendrecv.sendrecv_pickle,
            obj,
            dest,
            source,
            send_tag,
            recv_tag,
            with_status,
        )

    def bcast_pickle(
        self,
        obj: Any = None,
        root: int = 0,
        *,
        allow_pickle: bool | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Send the root's object to every rank; return it."""
        return short.bcast(self._worker, self._async, obj, root, allow_pickle, timeout)

    def gather_pickle(
        self,
        obj: Any,
        root: int = 0,
        *,
        allow_pickle: bool | None = None,
        timeout: float | None = None,
    ) -> list[Any] | None:
        """Bring the objects of all ranks to the root; return the list there."""
        return self._run(timeout, pickled.gather, obj, root, allow_pickle)

    def scatter_pickle(
        self,
        objs: Iterable[Any] | None = None,
        root: int = 0,
        *,
        allow_pickle: bool | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Send the root's object number i to rank i; return the object of this rank."""
        return self._run(timeout, pickled.scatter, objs, root, allow_pickle)

    def allgather_pickle(
        self,
        obj: Any,
        *,
        allow_pickle: bool | None = None,
        timeout: float | None = None,
    ) -> list[Any]:
        """Bring the objects of all ranks to every rank; return the list."""
        name = "allgather_pickle"
        return short.spread(self._worker, self._async, name, obj, allow_pickle, timeout)

    def alltoall_pickle(
        self,
        objs: Iterable[Any],
        *,
        allow_pickle: bool | None = None,
        timeout: float | None = None,
    ) -> list[Any]:
        """Send object number i to rank i; return the objects for this rank."""
        return self._run(timeout, pickled.alltoall, objs, allow_pickle)

    def reduce_pickle(
        self,
        obj: Any,
        op: Op = "sum",
        root: int = 0,
        *,
        allow_pickle: bool | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Combine the objects of all ranks in order; return the result on the root."""
        return self._run(timeout, pickled.reduce, obj, op, root, allow_pickle)

    def allreduce_pickle(
        self,
        obj: Any,
        op: Op = "sum",
        *,
        allow_pickle: bool | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Do the same as ``reduce_pickle()``, but give every rank the result."""
        return short.allreduce(
            self._worker, self._async, obj, op, allow_pickle, timeout
        )

    def scan_pickle(
        self,
        obj: Any,
        op: Op = "sum",
        *,
        allow_pickle: bool | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Combine the objects of the ranks from 0 to this one."""
        return self._run(timeout, pickled.scan, obj, op, allow_pickle)

    def exscan_pickle(
        self,
        obj: Any,
        op: Op = "sum",
        *,
        allow_pickle: bool | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Combine the objects of the ranks before this one; None on rank 0."""
        return self._run(timeout, pickled.exscan, obj, op, allow_pickle)
