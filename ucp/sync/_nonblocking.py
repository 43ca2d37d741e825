# SPDX-License-Identifier: BSD-3-Clause
"""Operations that begin, and whose futures threads wait for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from .._communicator import (
    blocking,
    communicator,
    futures,
    pickled,
    sendrecv,
)
from .._communicator.blocking import Future
from .._communicator.communicator import ANY_SOURCE, ANY_TAG
from .._communicator.parcels import check_allowed
from .._communicator.pickled import Op
from .._core.operation import Steps
from .._ext import InPlace, Status
from ._reductions import ReduceOp, recv_and_op

_T = TypeVar("_T")
_Counts = Sequence[int]


class NonBlocking:
    """Methods of ``Communicator`` that begin an operation and return its future.

    ``future.result()`` waits for the operation, and ``wait()`` is the same;
    ``test()`` makes progress, and says whether it is done. Several operations may be
    under way. Ranks begin their collective operations in the same order. Cancelling
    the future of one ends the communicator.
    """

    _async: communicator.Communicator
    _shared: blocking.SharedWorker
    # Call a method that posts a request; return its future.
    _begin: Callable[..., Future[Any]]
    _begin_receive: Callable[..., Future[Any]]

    def _begin_steps(
        self, function: Callable[..., Steps[_T]], *args: Any
    ) -> Future[_T]:
        self._shared.check()
        return futures.begin(self._shared, function(self._async, *args))

    def _begin_receiving(
        self, name: str, function: Callable[..., Steps[_T]], *args: Any
    ) -> Future[_T]:
        self._shared.check()
        return futures.begin(self._shared, function(self._async, *args), name)

    # Messages.

    def isend(self, buffer: Any, dest: int, tag: int = 0) -> Future[None]:
        """Begin to send; the future is done when ``buffer`` may be used again."""
        return self._begin(self._async.send, buffer, dest, tag)

    def irecv(
        self, buffer: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG
    ) -> Future[Status]:
        """Begin to receive; a future of the Status.

        A receive whose future is dropped while it waits is withdrawn.
        """
        return self._begin_receive(self._async.recv, buffer, source, tag)

    def isendrecv(
        self,
        send: Any,
        dest: int,
        recv: Any,
        source: int = ANY_SOURCE,
        send_tag: int = 0,
        recv_tag: int = ANY_TAG,
    ) -> Future[Status]:
        """Begin ``sendrecv()``."""
        return self._begin_receiving(
            "isendrecv",
            sendrecv.sendrecv,
            send,
            dest,
            recv,
            source,
            send_tag,
            recv_tag,
        )

    def isend_pickle(self, obj: object, dest: int, tag: int = 0) -> Future[None]:
        """Begin ``send_pickle()``."""
        return self._begin_steps(pickled.send, obj, dest, tag)

    def irecv_pickle(
        self,
        source: int = ANY_SOURCE,
        tag: int = ANY_TAG,
        *,
        allow_pickle: bool | None = None,
        with_status: bool = False,
    ) -> Future[Any]:
        """Begin ``recv_pickle()``."""
        check_allowed(self._async, "irecv_pickle", allow_pickle)
        return self._begin_receiving(
            "irecv_pickle", pickled.recv, source, tag, with_status
        )

    def isendrecv_pickle(
        self,
        obj: object,
        dest: int,
        source: int = ANY_SOURCE,
        send_tag: int = 0,
        recv_tag: int = ANY_TAG,
        *,
        allow_pickle: bool | None = None,
        with_status: bool = False,
    ) -> Future[Any]:
        """Begin ``sendrecv_pickle()``."""
        check_allowed(self._async, "isendrecv_pickle", allow_pickle)
        return self._begin_receiving(
            "isendrecv_pickle",
            sendrecv.sendrecv_pickle,
            obj,
            dest,
            source,
            send_tag,
            recv_tag,
            with_status,
        )

    # Collective operations.

    def ibarrier(self) -> Future[None]:
        """Begin ``barrier()``."""
        return self._begin(self._async.barrier)

    def ibcast(self, buffer: Any, root: int = 0) -> Future[None]:
        """Begin ``bcast()``."""
        return self._begin(self._async.bcast, buffer, root)

    def igather(
        self,
        send: Any,
        recv: Any = None,
        root: int = 0,
        *,
        counts: _Counts | None = None,
        displs: _Counts | None = None,
    ) -> Future[None]:
        """Begin ``gather()``."""
        return self._begin(
            self._async.gather, send, recv, root, counts=counts, displs=displs
        )

    def iscatter(
        self,
        send: Any,
        recv: Any,
        root: int = 0,
        *,
        counts: _Counts | None = None,
        displs: _Counts | None = None,
    ) -> Future[None]:
        """Begin ``scatter()``."""
        return self._begin(
            self._async.scatter, send, recv, root, counts=counts, displs=displs
        )

    def iallgather(self, send: Any, recv: Any) -> Future[None]:
        """Begin ``allgather()``."""
        return self._begin(self._async.allgather, send, recv)

    def iallgatherv(
        self, send: Any, recv: Any, counts: _Counts, displs: _Counts | None = None
    ) -> Future[None]:
        """Begin ``allgatherv()``."""
        return self._begin(self._async.allgatherv, send, recv, counts, displs)

    def ialltoall(self, send: Any, recv: Any) -> Future[None]:
        """Begin ``alltoall()``."""
        return self._begin(self._async.alltoall, send, recv)

    def ialltoallv(
        self,
        send: Any | InPlace,
        send_counts: _Counts | None,
        recv: Any,
        recv_counts: _Counts,
        *,
        send_displs: _Counts | None = None,
        recv_displs: _Counts | None = None,
    ) -> Future[None]:
        """Begin ``alltoallv()``."""
        return self._begin(
            self._async.alltoallv,
            send,
            send_counts,
            recv,
            recv_counts,
            send_displs=send_displs,
            recv_displs=recv_displs,
        )

    def ialltoall_buffers(self, buffers: Sequence[Any]) -> Future[list[memoryview]]:
        """Begin ``alltoall_buffers()``."""
        return self._begin(self._async.alltoall_buffers, buffers)

    def ireduce(
        self, send: Any | InPlace, recv: Any = None, op: ReduceOp = "sum", root: int = 0
    ) -> Future[None]:
        """Begin ``reduce()``."""
        return self._begin(self._async.reduce, send, recv, op, root)

    def iallreduce(
        self, send: Any | InPlace, recv: Any = None, op: ReduceOp = "sum"
    ) -> Future[None]:
        """Begin ``allreduce()``."""
        recv, op = recv_and_op(recv, op)
        return self._begin(self._async.allreduce, send, recv, op)

    def iscan(
        self, send: Any | InPlace, recv: Any = None, op: ReduceOp = "sum"
    ) -> Future[None]:
        """Begin ``scan()``."""
        recv, op = recv_and_op(recv, op)
        return self._begin(self._async.scan, send, recv, op)

    def iexscan(
        self, send: Any | InPlace, recv: Any = None, op: ReduceOp = "sum"
    ) -> Future[None]:
        """Begin ``exscan()``."""
        recv, op = recv_and_op(recv, op)
        return self._begin(self._async.exscan, send, recv, op)

    def ireduce_scatter(
        self,
        send: Any | InPlace,
        recv: Any,
        op: ReduceOp = "sum",
        *,
        counts: _Counts | None = None,
    ) -> Future[None]:
        """Begin ``reduce_scatter()``."""
        return self._begin(self._async.reduce_scatter, send, recv, op, counts=counts)

    # Collective operations on objects.

    def ibcast_pickle(
        self, obj: Any = None, root: int = 0, *, allow_pickle: bool | None = None
    ) -> Future[Any]:
        """Begin ``bcast_pickle()``."""
        return self._begin_steps(pickled.bcast, obj, root, allow_pickle)

    def igather_pickle(
        self, obj: Any, root: int = 0, *, allow_pickle: bool | None = None
    ) -> Future[list[Any] | None]:
        """Begin ``gather_pickle()``."""
        return self._begin_steps(pickled.gather, obj, root, allow_pickle)

    def iscatter_pickle(
        self,
        objs: Iterable[Any] | None = None,
        root: int = 0,
        *,
        allow_pickle: bool | None = None,
    ) -> Future[Any]:
        """Begin ``scatter_pickle()``."""
        return self._begin_steps(pickled.scatter, objs, root, allow_pickle)

    def iallgather_pickle(
        self, obj: Any, *, allow_pickle: bool | None = None
    ) -> Future[list[Any]]:
        """Begin ``allgather_pickle()``."""
        return self._begin_steps(pickled.allgather, obj, allow_pickle)

    def ialltoall_pickle(
        self, objs: Iterable[Any], *, allow_pickle: bool | None = None
    ) -> Future[list[Any]]:
        """Begin ``alltoall_pickle()``."""
        return self._begin_steps(pickled.alltoall, objs, allow_pickle)

    def ireduce_pickle(
        self,
        obj: Any,
        op: Op = "sum",
        root: int = 0,
        *,
        allow_pickle: bool | None = None,
    ) -> Future[Any]:
        """Begin ``reduce_pickle()``."""
        return self._begin_steps(pickled.reduce, obj, op, root, allow_pickle)

    def iallreduce_pickle(
        self, obj: Any, op: Op = "sum", *, allow_pickle: bool | None = None
    ) -> Future[Any]:
        """Begin ``allreduce_pickle()``."""
        return self._begin_steps(pickled.allreduce, obj, op, allow_pickle)

    def iscan_pickle(
        self, obj: Any, op: Op = "sum", *, allow_pickle: bool | None = None
    ) -> Future[Any]:
        """Begin ``scan_pickle()``."""
        return self._begin_steps(pickled.scan, obj, op, allow_pickle)

    def iexscan_pickle(
        self, obj: Any, op: Op = "sum", *, allow_pickle: bool | None = None
    ) -> Future[Any]:
        """Begin ``exscan_pickle()``."""
        return self._begin_steps(pickled.exscan, obj, op, allow_pickle)
