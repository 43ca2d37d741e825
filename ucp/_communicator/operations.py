# SPDX-License-Identifier: BSD-3-Clause
"""Methods of ``ucp.Communicator`` that post several requests."""

from __future__ import annotations

from asyncio import Future, get_running_loop
from collections.abc import Iterable
from typing import Any, Self

from .. import _ext
from .._core.operation import Operation, Receiving
from . import pickled, sendrecv
from .group import Group, check_group, create, group_of
from .parcels import check_allowed, close
from .pickled import Op

ANY = -1  # any source, or any tag


class Operations:
    """Operations of several requests, most of them on Python objects.

    The latter have the name of the operation on buffers, and ``_pickle``, as
    ``Endpoint.send_pickle`` has. Objects are pickled by protocol 5 in the call; their
    large buffers, such as those of NumPy arrays, are not copied, and must not change
    before the operation has ended.

    A rank that receives objects says ``allow_pickle=True``, in the call or where the
    communicator is made: what is unpickled can run any code that its sender chooses.
    A rank gets its own object as it is, not a copy.

    An object that cannot be pickled raises ``pickle.PicklingError`` on its rank, and
    on all that should have got it; one that cannot be unpickled raises
    ``pickle.UnpicklingError`` where that happens. Both name the rank. The other ranks
    do not wait, and the communicator goes on. A collective operation that is
    cancelled ends the communicator.
    """

    __slots__ = ()

    # Messages.

    def sendrecv(
        self,
        send: Any,
        dest: int,
        recv: Any,
        source: int = ANY,
        send_tag: int = 0,
        recv_tag: Any = ANY,
    ) -> Future[_ext.Status]:
        """Send a buffer to a rank, and receive into ``recv``, at the same time.

        Both begin with the call, so that ranks in a ring can call it with buffers of
        any length. If ``recv`` is the same object as ``send``, a copy is sent.

        Returns:
            An awaitable of the Status of the message that was received.

        Raises:
            The exceptions of ``send`` and ``recv``.
            TypeError: the same buffer is given twice, and is of a device or has gaps.

        If it is cancelled, the send and the receive are cancelled. The next receive
        gets the message, even if the receive was done and nobody has got its result.
        """
        return Receiving(
            sendrecv.sendrecv(self, send, dest, recv, source, send_tag, recv_tag),
            "sendrecv",
        )

    def send_pickle(self, obj: object, dest: int, tag: int = 0) -> Future[None]:
        """Send an object to a rank, for ``recv_pickle``; awaitable.

        Arguments are those of ``send``. When it is cancelled, the rank gets the
        object whole, or not at all.

        Raises:
            The exceptions of ``send``, and at once those of pickling ``obj``.
        """
        get_running_loop()  # raises before anything is sent
        return Operation(pickled.send(self, obj, dest, tag))

    def recv_pickle(
        self,
        source: int = ANY,
        tag: Any = ANY,
        *,
        allow_pickle: bool | None = None,
        with_status: bool = False,
    ) -> Future[Any]:
        """Receive an object of ``send_pickle``; awaits it.

        Args:
            source: a rank, or ``ANY_SOURCE``.
            tag: an int, or ``ANY_TAG``.
            allow_pickle: must be True; None: as the communicator was made.
            with_status: await a pair of the object and a Status. Its ``nbytes``
                counts the pickle and its buffers.

        Raises:
            ValueError: it is not allowed; nothing is received.
            UCXError: the message is no pickled object; it is consumed.
            pickle.UnpicklingError: the object cannot be unpickled; it is consumed.
            The exceptions of ``recv``.

        When it is cancelled, the next ``recv_pickle`` gets the object, even when it is
        done and its result was not handed out, by an await or ``result()``.
        """
        check_allowed(self, "recv_pickle", allow_pickle)
        return Receiving(pickled.recv(self, source, tag, with_status), "recv_pickle")

    def sendrecv_pickle(
        self,
        obj: object,
        dest: int,
        source: int = ANY,
        send_tag: int = 0,
        recv_tag: Any = ANY,
        *,
        allow_pickle: bool | None = None,
        with_status: bool = False,
    ) -> Future[Any]:
        """Send an object to a rank, and receive another one, at the same time; awaits
        it. Arguments and exceptions are as for ``send_pickle`` and
        ``recv_pickle``."""
        check_allowed(self, "sendrecv_pickle", allow_pickle)
        return Receiving(
            sendrecv.sendrecv_pickle(
                self, obj, dest, source, send_tag, recv_tag, with_status
            ),
            "sendrecv_pickle",
        )

    # Collective operations.

    def bcast_pickle(
        self, obj: Any = None, root: int = 0, *, allow_pickle: bool | None = None
    ) -> Future[Any]:
        """Send the root's object to every rank; awaits it."""
        return Operation(pickled.bcast(self, obj, root, allow_pickle))

    def gather_pickle(
        self, obj: Any, root: int = 0, *, allow_pickle: bool | None = None
    ) -> Future[list[Any] | None]:
        """Bring the objects of all ranks to the root. On the root it awaits their list,
        and on the other ranks None."""
        return Operation(pickled.gather(self, obj, root, allow_pickle))

    def scatter_pickle(
        self,
        objs: Iterable[Any] | None = None,
        root: int = 0,
        *,
        allow_pickle: bool | None = None,
    ) -> Future[Any]:
        """Send the root's object number i to rank i; awaits the object of this rank."""
        return Operation(pickled.scatter(self, objs, root, allow_pickle))

    def allgather_pickle(
        self, obj: Any, *, allow_pickle: bool | None = None
    ) -> Future[list[Any]]:
        """Bring the objects of all ranks to every rank; awaits the list of them."""
        return Operation(pickled.allgather(self, obj, allow_pickle))

    def alltoall_pickle(
        self, objs: Iterable[Any], *, allow_pickle: bool | None = None
    ) -> Future[list[Any]]:
        """Send object number i to rank i; awaits the list of the objects that all ranks
        have sent to this rank."""
        return Operation(pickled.alltoall(self, objs, allow_pickle))

    def reduce_pickle(
        self,
        obj: Any,
        op: Op = "sum",
        root: int = 0,
        *,
        allow_pickle: bool | None = None,
    ) -> Future[Any]:
        """Combine the objects of all ranks; awaits the result on the root, and None
        on the other ranks.

        Args:
            obj: this rank's object.
            op: a function of two objects that does not change them, or a name:
                ``"sum"``, ``"prod"``, ``"min"``, ``"max"``, ``"land"``, ``"lor"``,
                ``"lxor"``, ``"band"``, ``"bor"``, ``"bxor"``, and of pairs of a value
                and an index ``"maxloc"`` and ``"minloc"``. It is called by the root
                in the order of the ranks: ``op(op(obj0, obj1), obj2)``.
            root: the rank that gets the result.
            allow_pickle: must be True on the root; None: as the communicator was
                made.

        Raises:
            The exceptions of ``op``, on the root.
        """
        return Operation(pickled.reduce(self, obj, op, root, allow_pickle))

    def allreduce_pickle(
        self, obj: Any, op: Op = "sum", *, allow_pickle: bool | None = None
    ) -> Future[Any]:
        """Do the same as ``reduce_pickle``, but give every rank the result.

        Each rank combines the objects itself, so ``op`` has to give the same
        everywhere. Its exceptions are raised on the rank where it raises them.
        """
        return Operation(pickled.allreduce(self, obj, op, allow_pickle))

    def scan_pickle(
        self, obj: Any, op: Op = "sum", *, allow_pickle: bool | None = None
    ) -> Future[Any]:
        """Combine the objects of the ranks from 0 to this one, as ``reduce_pickle``
        does; awaits the result."""
        return Operation(pickled.scan(self, obj, op, allow_pickle))

    def exscan_pickle(
        self, obj: Any, op: Op = "sum", *, allow_pickle: bool | None = None
    ) -> Future[Any]:
        """Do the same as ``scan_pickle``, but without the object of this rank; awaits
        None on rank 0."""
        return Operation(pickled.exscan(self, obj, op, allow_pickle))

    # Other communicators.

    @property
    def group(self) -> Group:
        """The group of its ranks."""
        return group_of(self)

    def dup(self) -> _ext.CoroutineRequest[Self]:
        """Make a communicator of the same ranks; collective, awaitable.

        Each of the two has its own messages and operations. The new communicator
        fails separately, and is closed separately, before this one or after it.
        """
        return self.split(0, self.rank)  # type: ignore[attr-defined,no-any-return]

    def create(self, group: Group) -> Future[Self | None]:
        """Make a communicator of the processes of a group, in its order; collective.

        Args:
            group: the same on all ranks of this communicator.

        Returns:
            An awaitable of the communicator; of None on a rank that is not in the
            group.

        Raises:
            ValueError: a process of the group is not in this communicator; or the
                ranks have given different groups. In the second case some ranks may
                get a communicator instead of the exception, and it fails.
        """
        check_group(self, group)
        return Operation(create(self, group))

    # Their end.

    def close(self) -> None:
        """Leave it: the other ranks finish what this one has taken part in; later
        operations that need it raise UCXRankFailed, which names this rank. Operations
        under way here are aborted. A second call does nothing."""
        super().close()  # type: ignore[misc]
        close(self)
