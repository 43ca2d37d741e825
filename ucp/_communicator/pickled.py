# SPDX-License-Identifier: BSD-3-Clause
"""Operations on Python objects, as steps: messages, and collective operations."""

from __future__ import annotations

import operator
import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import reduce as fold
from typing import Any, NoReturn

from .. import _ext
from .._core.operation import AnyRequest, Steps, Unseen
from ..exceptions import UCXError, UCXMsgTruncated, UCXRankFailed, UCXTimeout
from .parcels import (
    HEAD_SIZE,
    KINDS,
    MESSAGE_HEAD_SIZE,
    Coming,
    Head,
    Parcel,
    Withdrawn,
    check_allowed,
    describe,
    end_of,
    frames_of,
    load,
    pack,
    pack_error,
    pack_pickled,
    read_head,
    receive,
    send_frames,
    short_body,
    state_of,
)
from .steps import give_up, look_at, wait_for

Op = Callable[[Any, Any], Any] | str
_Came = Coming | memoryview  # an object that is here
_NO_PICKLE = "the message is no pickled object"


# ---- messages ------------------------------------------------------------------


class Sending:
    """An object that is being sent to a rank: it is pickled, and its sends begin."""

    def __init__(self, comm: Any, parcel: Parcel, dest: int, tag: int) -> None:
        self._comm = comm
        self._dest = dest
        self._parcel = parcel
        self._requests: list[AnyRequest] = [comm.send(parcel.head, dest, tag)]
        self._requests += send_frames(comm, parcel, dest)

    def wait(self) -> Steps[None]:
        """Wait until it is sent."""
        try:
            yield from wait_for(self._requests)
        except BaseException:
            self._tell()
            raise

    def give_up(self, cause: BaseException) -> Steps[None]:
        """Cancel it."""
        yield from give_up(self._requests, cause)
        self._tell()

    def _tell(self) -> None:
        """Tell the receiver, which may wait for frames, that no more of them come: by
        an empty frame for each that may not have gone."""
        count = sum(request.cancelled() for request in self._requests[1:])
        if count == 0:
            return
        with suppress(UCXError):  # the receiver knows by other means
            frames = frames_of(self._comm)
            for _ in range(count):
                frames.send(b"", self._dest, self._parcel.tag)


def send(comm: Any, obj: object, dest: int, tag: int) -> Steps[None]:
    """Pickle ``obj`` in the call, and begin to send it."""
    return begin_to_send(comm, obj, dest, tag).wait()


def send_pickled(
    comm: Any, data: bytes, buffers: list[memoryview], dest: int, tag: int
) -> Steps[None]:
    """``send()`` of what is pickled already."""
    parcel = pack_pickled(comm, "send_pickle", data, buffers, MESSAGE_HEAD_SIZE)
    return Sending(comm, parcel, dest, tag).wait()


def begin_to_send(comm: Any, obj: object, dest: int, tag: int) -> Sending:
    parcel = pack(comm, "send_pickle", obj, MESSAGE_HEAD_SIZE)
    return Sending(comm, parcel, dest, tag)


def recv(
    comm: Any,
    source: int,
    tag: Any,
    with_status: bool,
    message: Message | None = None,
) -> Steps[Unseen[Any]]:
    """Receive an object. The caller has checked ``allow_pickle``, and may have begun
    to receive a message."""
    while True:
        if message is None:
            message = Message(comm, source, tag)
        coming = yield from message.receive_head()
        try:
            yield from receive(comm, [coming])
        except Withdrawn:
            message.consume()
            message = None
            continue
        except BaseException as exc:
            if not isinstance(exc, UCXError) or isinstance(exc, UCXTimeout):
                message.give_back()
            else:
                message.consume()
            raise
        return message.unpickle(with_status)


class Message:
    """An object that is being received. Its head is not handed out until the object
    is, so that it returns to its place in the queue when it is given back. The frames
    that have come are kept beside it."""

    def __init__(self, comm: Any, source: int, tag: Any) -> None:
        self._comm = comm
        self._data = bytearray(MESSAGE_HEAD_SIZE)
        self.request: AnyRequest = comm.recv(self._data, source, tag)

    def short_body(self) -> memoryview | None:
        """The pickle, if the message has come whole: then ``take_short()`` follows."""
        return short_body("send_pickle", memoryview(self._data))

    def take_short(self, body: memoryview, with_status: bool) -> Any:
        """Take the message, and unpickle its ``short_body()``."""
        try:
            source, tag, nbytes = self.request.result()
        except UCXMsgTruncated:
            nbytes = 0
        if nbytes < end_of(body):
            raise UCXError(_NO_PICKLE)
        obj = load(self._comm, body, source)
        return (obj, _ext.Status((source, tag, len(body)))) if with_status else obj

    def receive_head(self) -> Steps[Coming]:
        head = None
        try:
            self._status = yield from look_at(self.request)
            head = read_head(memoryview(self._data)[: self._status.nbytes])
        except UCXMsgTruncated:
            pass
        except BaseException as exc:
            yield from give_up([self.request], exc)
            raise
        if head is None or head.kind != 0 or head.error:
            if self.request.exception() is None:
                self.consume()
            raise UCXError(_NO_PICKLE)
        self._key = self._status.source, head.tag
        kept = state_of(self._comm).kept.pop(self._key, None)
        self._coming = Coming(head, self._status.source) if kept is None else kept
        return self._coming

    def consume(self) -> None:
        """Nobody else gets it."""
        self.request.result()

    def _keep_frames(self) -> None:
        if self._coming.has_frames:
            state_of(self._comm).kept[self._key] = self._coming

    def give_back(self) -> None:
        self._keep_frames()
        self.request.cancel()

    def unpickle(self, with_status: bool) -> Unseen[Any]:
        coming = self._coming
        try:
            obj = load(self._comm, coming, coming.source)
        except BaseException:
            self.consume()
            raise
        if with_status:
            place = self._status.source, self._status.tag
            obj = obj, _ext.Status((*place, coming.nbytes))
        return Unseen(obj, self.request, self._keep_frames)


# ---- collective operations -------------------------------------------------------


class _Collective:
    """A collective operation of objects on this rank."""

    def __init__(self, comm: Any, name: str) -> None:
        self.comm = comm
        self.name = name
        self.cause: Exception | None = None  # why this rank has no object to send
        self.own: Any = None  # what this rank sends itself

    def pack(self, objects: Iterable[object]) -> list[Parcel]:
        """Pickle the objects; if that fails, each parcel says why."""
        objects = list(objects)
        try:
            return [pack(self.comm, self.name, obj, HEAD_SIZE) for obj in objects]
        except Exception as exc:
            text = f"rank {self.comm.rank} cannot pickle its object: {describe(exc)}"
            self.cause = pickle.PicklingError(text)
            self.cause.__cause__ = exc
            return [pack_error(self.name, pickle.PicklingError, text)] * len(objects)
        except BaseException as exc:
            self._leave(exc)
            raise

    def pack_for_all(self, objects: Any) -> list[Parcel]:
        """Pickle an object for each rank; it has to be as many."""
        comm = self.comm
        try:
            objects = list(objects)
        except Exception as exc:
            text = f"it takes an object for each rank: {describe(exc)}"
        else:
            if len(objects) == comm.size:
                self.own = objects.pop(comm.rank)
                parcels = self.pack(objects)
                own = pack_error(self.name, ValueError, "")  # which nobody reads
                return [*parcels[: comm.rank], own, *parcels[comm.rank :]]
            text = f"{len(objects)} objects for {comm.size} ranks"
        text = f"rank {comm.rank}: {self.name}: {text}"
        self.cause = ValueError(text)
        return [pack_error(self.name, ValueError, text)] * comm.size

    def _leave(self, exc: BaseException) -> None:
        """End the communicator: the other ranks cannot go on without this one."""
        self.comm.abort(f"rank {self.comm.rank} has left {self.name}: {describe(exc)}")

    def transfer(
        self,
        begun: AnyRequest,
        sends: Mapping[int, Parcel],
        heads: Mapping[int, memoryview],
    ) -> Steps[dict[int, _Came]]:
        """Wait for the heads, then send and receive the frames.

        Args:
            begun: the operation that brings the heads.
            sends: what goes to which rank.
            heads: where the heads of ranks come.
        """
        try:
            if not begun.done():
                yield from wait_for([begun])
            begun.result()
            short = self._short_bodies(heads)
            if short is not None and not any(p.frames for p in sends.values()):
                return short
            return (yield from self._transfer_frames(sends, heads))
        except UCXRankFailed:
            raise
        except BaseException as exc:
            self._leave(exc)
            raise

    def _short_bodies(self, heads: Mapping[int, memoryview]) -> dict[int, _Came] | None:
        """The pickles that the heads have; None: some have none."""
        came: dict[int, _Came] = {}
        for rank, data in heads.items():
            body = short_body(self.name, data)
            if body is None:
                return None
            came[rank] = body
        return came

    def _transfer_frames(
        self, sends: Mapping[int, Parcel], heads: Mapping[int, memoryview]
    ) -> Steps[dict[int, _Came]]:
        comm = self.comm
        coming = [Coming(self._read(rank, data), rank) for rank, data in heads.items()]
        sending: list[AnyRequest] = []
        try:
            for rank, parcel in sends.items():
                sending += send_frames(comm, parcel, rank)
            yield from receive(comm, coming)
            yield from wait_for(sending)
        except BaseException as exc:
            yield from give_up(sending, exc)
            raise
        return {parcel.source: parcel for parcel in coming}

    def _read(self, rank: int, data: memoryview) -> Head:
        """Read the head of a rank; it is of this operation."""
        head = read_head(data)
        if head is not None and KINDS[head.kind] == self.name:
            return head
        other = "another operation" if head is None else KINDS[head.kind]
        self._fail(f"rank {rank} has called {other}, rank {self.comm.rank} {self.name}")

    def _fail(self, why: str) -> NoReturn:
        self.comm.abort(why)
        failure = self.comm.failure
        raise UCXError(why) if failure is None else failure

    def check(self, allow_pickle: bool | None = True) -> None:
        """Raise what was wrong on this rank, now that the others do not wait."""
        if self.cause is not None:
            raise self.cause
        check_allowed(self.comm, self.name, allow_pickle)


def _others(comm: Any) -> list[int]:
    return [rank for rank in range(comm.size) if rank != comm.rank]


def _padded(parcel: Parcel) -> bytes:
    return parcel.head.ljust(HEAD_SIZE, b"\0")


def _cut(heads: bytearray, ranks: Iterable[int]) -> dict[int, memoryview]:
    view = memoryview(heads)
    return {rank: view[rank * HEAD_SIZE : (rank + 1) * HEAD_SIZE] for rank in ranks}


def bcast(comm: Any, obj: Any, root: int, allow_pickle: bool | None) -> Steps[Any]:
    call = _Collective(comm, "bcast_pickle")
    if comm.rank == root:
        [parcel] = call.pack([obj])
        begun = comm.bcast(_padded(parcel), root)
        sends = dict.fromkeys(_others(comm), parcel) if parcel.frames else {}
        yield from call.transfer(begun, sends, {})
        call.check()
        return obj
    head = bytearray(HEAD_SIZE)
    begun = comm.bcast(head, root)
    came = yield from call.transfer(begun, {}, {root: memoryview(head)})
    call.check(allow_pickle)
    return load(comm, came[root], root)


def scatter(
    comm: Any, objects: Any, root: int, allow_pickle: bool | None
) -> Steps[Any]:
    call = _Collective(comm, "scatter_pickle")
    head = bytearray(HEAD_SIZE)
    if comm.rank == root:
        parcels = call.pack_for_all(objects)
        begun = comm.scatter(b"".join(map(_padded, parcels)), head, root)
        yield from call.transfer(begun, {r: parcels[r] for r in _others(comm)}, {})
        call.check()
        return call.own
    begun = comm.scatter(None, head, root)
    came = yield from call.transfer(begun, {}, {root: memoryview(head)})
    call.check(allow_pickle)
    return load(comm, came[root], root)


def gather(
    comm: Any,
    obj: Any,
    root: int,
    allow_pickle: bool | None,
    name: str = "gather_pickle",
) -> Steps[list[Any] | None]:
    call = _Collective(comm, name)
    if comm.rank != root:
        [parcel] = call.pack([obj])
        begun = comm.gather(_padded(parcel), None, root)
        yield from call.transfer(begun, {root: parcel}, {})
        call.check()
        return None
    heads = bytearray(HEAD_SIZE * comm.size)
    begun = comm.gather(_ext.IN_PLACE, heads, root)
    came = yield from call.transfer(begun, {}, _cut(heads, _others(comm)))
    call.check(allow_pickle)
    return _in_order(comm, obj, came)


def _in_order(comm: Any, own: Any, came: Mapping[int, _Came]) -> list[Any]:
    return [
        own if rank == comm.rank else load(comm, came[rank], rank)
        for rank in range(comm.size)
        if rank == comm.rank or rank in came
    ]


def allgather(comm: Any, obj: Any, allow_pickle: bool | None) -> Steps[list[Any]]:
    others = _others(comm)
    return _spread(comm, "allgather_pickle", obj, others, others, allow_pickle)


def _spread(
    comm: Any,
    name: str,
    obj: Any,
    dests: Iterable[int],
    sources: Iterable[int],
    allow_pickle: bool | None,
) -> Steps[list[Any]]:
    """Send an object to some ranks; the objects of others and of this rank."""
    call = _Collective(comm, name)
    heads = bytearray(HEAD_SIZE * comm.size)
    [parcel] = call.pack([obj])
    begun = comm.allgather(_padded(parcel), heads)
    came = yield from call.transfer(
        begun, dict.fromkeys(dests, parcel), _cut(heads, sources)
    )
    call.check(allow_pickle)
    return _in_order(comm, obj, came)


def alltoall(comm: Any, objects: Any, allow_pickle: bool | None) -> Steps[list[Any]]:
    call = _Collective(comm, "alltoall_pickle")
    heads = bytearray(HEAD_SIZE * comm.size)
    parcels = call.pack_for_all(objects)
    others = _others(comm)
    begun = comm.alltoall(b"".join(map(_padded, parcels)), heads)
    came = yield from call.transfer(
        begun, {rank: parcels[rank] for rank in others}, _cut(heads, others)
    )
    call.check(allow_pickle)
    return _in_order(comm, call.own, came)


# Those that combine objects: each rank that gets a result combines the objects
# itself, one after the other.


def _best_pair(is_better: Callable[[Any, Any], bool]) -> Callable[[Any, Any], Any]:
    """Of two pairs of a value and an index, that of the better value; of equal
    values that of the smaller index."""

    def best(one: Any, other: Any) -> Any:
        if is_better(one[0], other[0]):
            return one
        if is_better(other[0], one[0]):
            return other
        return one if one[1] <= other[1] else other

    return best


_OPS: dict[str, Callable[[Any, Any], Any]] = {
    "sum": operator.add,
    "prod": operator.mul,
    "min": lambda one, other: other if other < one else one,
    "max": lambda one, other: other if other > one else one,
    "land": lambda one, other: bool(one) and bool(other),
    "lor": lambda one, other: bool(one) or bool(other),
    "lxor": lambda one, other: bool(one) != bool(other),
    "band": operator.and_,
    "bor": operator.or_,
    "bxor": operator.xor,
    "maxloc": _best_pair(operator.gt),
    "minloc": _best_pair(operator.lt),
}


def _combine(op: Op, objects: Sequence[Any]) -> Any:
    return fold(_function_of(op), objects)


def _function_of(op: Op) -> Callable[[Any, Any], Any]:
    if callable(op):
        return op
    function = _OPS.get(op) if isinstance(op, str) else None
    if function is None:
        raise ValueError(
            f"op is a function of two objects, or one of {sorted(_OPS)}, not {op!r}"
        )
    return function


def reduce(
    comm: Any, obj: Any, op: Op, root: int, allow_pickle: bool | None
) -> Steps[Any]:
    objects = yield from gather(comm, obj, root, allow_pickle, "reduce_pickle")
    function = _function_of(op)
    return None if objects is None else _combine(function, objects)


def allreduce(comm: Any, obj: Any, op: Op, allow_pickle: bool | None) -> Steps[Any]:
    others = _others(comm)
    name = "allreduce_pickle"
    objects = yield from _spread(comm, name, obj, others, others, allow_pickle)
    return _combine(op, objects)


def scan(comm: Any, obj: Any, op: Op, allow_pickle: bool | None) -> Steps[Any]:
    objects = yield from _spread_up(comm, "scan_pickle", obj, allow_pickle)
    return _combine(op, objects)


def exscan(comm: Any, obj: Any, op: Op, allow_pickle: bool | None) -> Steps[Any]:
    objects = yield from _spread_up(comm, "exscan_pickle", obj, allow_pickle)
    function = _function_of(op)
    return _combine(function, objects[:-1]) if comm.rank else None


def _spread_up(
    comm: Any, name: str, obj: Any, allow_pickle: bool | None
) -> Steps[list[Any]]:
    """The objects of the ranks up to this one."""
    rank, size = comm.rank, comm.size
    return _spread(comm, name, obj, range(rank + 1, size), range(rank), allow_pickle)
