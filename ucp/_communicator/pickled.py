# SPDX-License-Identifier: BSD-3-Clause
"""Operations on Python objects, as steps: messages, and collective operations."""

from __future__ import annotations

import operator
import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import reduce as fold
from typing import Any, NoReturn, Self

from .. import _ext
from .._core import arrays
from .._core.operation import AnyRequest, Steps, Unseen
from ..exceptions import UCXError, UCXMsgTruncated, UCXRankFailed, UCXTimeout
from .parcels import (
    BEGINS,
    HEAD_SIZE,
    KINDS,
    MESSAGE_HEAD_SIZE,
    Coming,
    Head,
    Packed,
    Parcel,
    Withdrawn,
    cannot_unpickle,
    check_allowed,
    describe,
    frames_of,
    load,
    pack_error,
    pack_message,
    pack_short,
    parcel_of,
    read_head,
    receive,
    send_frames,
    state_of,
)
from .steps import give_up, look_at, wait_for

Op = Callable[[Any, Any], Any] | str
_NO_PICKLE = "the message is no pickled object"


# ---- messages ------------------------------------------------------------------


class Sending:
    """An object that is being sent to a rank: it is pickled, and its sends begin."""

    def __init__(self, comm: Any, parcel: Parcel, dest: int, tag: int) -> None:
        self._comm = comm
        self._dest = dest
        self._parcel = parcel
        self._requests: list[AnyRequest] = [comm.send(parcel.head, dest, tag)]
        try:
            send_frames(comm, parcel, dest, self._requests)
        except BaseException:  # an array was freed
            self._tell()
            raise

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
        sent = self._requests[1:]
        count = sum(request.cancelled() for request in sent)
        count += len(self._parcel.frames) - len(sent)
        if count == 0:
            return
        with suppress(UCXError):  # the receiver knows by other means
            frames = frames_of(self._comm)
            for _ in range(count):
                frames.send(b"", self._dest, self._parcel.tag)


def send(comm: Any, obj: object, dest: int, tag: int) -> Steps[None]:
    """Pickle ``obj`` in the call, and begin to send it."""
    return begin_to_send(comm, obj, dest, tag).wait()


def send_packed(comm: Any, packed: Packed, dest: int, tag: int) -> Steps[None]:
    """``send()`` of what ``pack_message()`` has made."""
    parcel = parcel_of(comm, "send_pickle", packed, MESSAGE_HEAD_SIZE)
    return Sending(comm, parcel, dest, tag).wait()


def begin_to_send(comm: Any, obj: object, dest: int, tag: int) -> Sending:
    parcel = parcel_of(comm, "send_pickle", pack_message(obj), MESSAGE_HEAD_SIZE)
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
            message = Message.begin(comm, source, tag)
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
    """An object that is being received. Nobody gets its head before the object, so that
    a cancelled receive returns it to its place in the queue. The frames that have come
    are kept beside it."""

    def __init__(self, comm: Any, data: bytearray, request: AnyRequest) -> None:
        self._comm = comm
        self._data = data
        self.request = request

    @classmethod
    def begin(cls, comm: Any, source: int, tag: Any) -> Self:
        data = bytearray(MESSAGE_HEAD_SIZE)
        return cls(comm, data, comm.recv(data, source, tag))

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
        if kept is None:
            try:
                kept = Coming(head, self._status.source, arrays.allocate)
            except BaseException:  # there is no memory now
                self.request.cancel()
                raise
        self._coming = kept
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
            obj = load(self._comm, coming)
        except BaseException:
            self.consume()
            raise
        if with_status:
            place = self._status.source, self._status.tag
            obj = obj, _ext.Status((*place, coming.nbytes))
        return Unseen(obj, self.request, self._keep_frames)


# ---- collective operations -------------------------------------------------------


def leave(comm: Any, name: str, exc: BaseException) -> None:
    """End the communicator: the other ranks cannot go on without this one."""
    comm.abort(f"rank {comm.rank} has left {name}: {describe(exc)}")


class _Collective:
    """A collective operation of objects on this rank."""

    cause: Exception | None = None  # why this rank has no object to send
    own: Any = None  # what this rank sends itself
    heads: bytes | bytearray = b""  # of the ranks
    _root: int | None = None
    _came: Mapping[int, Coming] | None = None  # None: the heads are all

    def __init__(self, comm: Any, name: str) -> None:
        self.comm = comm
        self.name = name

    def make_heads(self) -> bytearray:
        """Memory for the heads of all ranks."""
        self.heads = heads = bytearray(HEAD_SIZE * self.comm.size)
        return heads

    def make_head(self, root: int) -> bytearray:
        """Memory for the head of the root."""
        self._root = root
        self.heads = head = bytearray(HEAD_SIZE)
        return head

    def take_head(self, head: bytearray, root: int) -> None:
        """The head of the root is here."""
        self._root, self.heads = root, head

    def pack_one(
        self, obj: object, packed: Packed | BaseException | None = None
    ) -> Parcel:
        """Pickle an object, unless that is done; if it fails, the parcel says why."""
        try:
            return self._pack(obj, packed)
        except BaseException as exc:
            return self._pack_failed(exc)

    def pack(self, objects: Iterable[object]) -> list[Parcel]:
        """Pickle the objects; if that fails, each parcel says why."""
        objects = list(objects)
        try:
            return [self._pack(obj) for obj in objects]
        except BaseException as exc:
            return [self._pack_failed(exc)] * len(objects)

    def _pack(
        self, obj: object, packed: Packed | BaseException | None = None
    ) -> Parcel:
        if packed is None:
            packed = pack_short(self.name, obj)
        elif isinstance(packed, BaseException):
            raise packed
        return parcel_of(self.comm, self.name, packed, HEAD_SIZE)

    def _pack_failed(self, exc: BaseException) -> Parcel:
        if not isinstance(exc, Exception):
            self._leave(exc)
            raise exc
        text = f"rank {self.comm.rank} cannot pickle its object: {describe(exc)}"
        self.cause = pickle.PicklingError(text)
        self.cause.__cause__ = exc
        return pack_error(self.name, pickle.PicklingError, text)

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
        leave(self.comm, self.name, exc)

    def transfer(
        self,
        begun: AnyRequest | None,
        sends: Mapping[int, Parcel],
        sources: Sequence[int],
    ) -> Steps[None]:
        """Wait for the heads, then send and receive the frames.

        Args:
            begun: the operation that brings the heads; None: they are here.
            sends: what goes to which rank; those without frames may be missing.
            sources: the ranks whose objects come.
        """
        try:
            if begun is not None:
                if not begun.done():
                    yield from wait_for([begun])
                begun.result()
            own = self.comm.rank if self._root is None else -1
            begin = BEGINS[self.name]
            if any(parcel.frames for parcel in sends.values()) or not (
                _ext.has_objects(begin, self.heads, HEAD_SIZE, own)
            ):
                yield from self._transfer_frames(sends, sources)
        except UCXRankFailed:
            raise
        except BaseException as exc:
            self._leave(exc)
            raise

    def load(self, rank: int) -> Any:
        """Unpickle the object of a rank, or raise what that says."""
        if self._came is not None:
            return load(self.comm, self._came[rank])
        first = HEAD_SIZE * rank if self._root is None else 0
        begin, end = BEGINS[self.name], first + HEAD_SIZE
        try:
            return _ext.load_object(begin, self.heads, first, end, None, None)
        except Exception as exc:
            raise cannot_unpickle(self.comm, rank, exc) from exc

    def _transfer_frames(
        self, sends: Mapping[int, Parcel], sources: Sequence[int]
    ) -> Steps[None]:
        comm = self.comm
        coming = [
            Coming(self._read(rank), rank, arrays.allocate_anyhow) for rank in sources
        ]
        sending: list[AnyRequest] = []
        try:
            for rank, parcel in sends.items():
                send_frames(comm, parcel, rank, sending)
            yield from receive(comm, coming)
            yield from wait_for(sending)
        except BaseException as exc:
            yield from give_up(sending, exc)
            raise
        self._came = {parcel.source: parcel for parcel in coming}

    def _read(self, rank: int) -> Head:
        """Read the head of a rank; it is of this operation."""
        first = HEAD_SIZE * rank if self._root is None else 0
        head = read_head(memoryview(self.heads)[first : first + HEAD_SIZE])
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


# Those that begin with `packed`, or go on with `head` or `heads`, have been begun by
# ``short``.


def bcast(
    comm: Any,
    obj: Any,
    root: int,
    allow_pickle: bool | None,
    packed: Packed | BaseException | None = None,
    head: bytearray | None = None,
) -> Steps[Any]:
    call = _Collective(comm, "bcast_pickle")
    if comm.rank == root:
        parcel = call.pack_one(obj, packed)
        begun = comm.bcast(_padded(parcel), root)
        sends = dict.fromkeys(_others(comm), parcel) if parcel.frames else {}
        yield from call.transfer(begun, sends, ())
        call.check()
        return obj
    begun = None
    if head is None:
        begun = comm.bcast(call.make_head(root), root)
    else:
        call.take_head(head, root)
    yield from call.transfer(begun, {}, (root,))
    call.check(allow_pickle)
    return call.load(root)


def scatter(
    comm: Any, objects: Any, root: int, allow_pickle: bool | None
) -> Steps[Any]:
    call = _Collective(comm, "scatter_pickle")
    if comm.rank == root:
        parcels = call.pack_for_all(objects)
        heads, own = b"".join(map(_padded, parcels)), bytearray(HEAD_SIZE)
        begun = comm.scatter(heads, own, root)
        yield from call.transfer(begun, {r: parcels[r] for r in _others(comm)}, ())
        call.check()
        return call.own
    begun = comm.scatter(None, call.make_head(root), root)
    yield from call.transfer(begun, {}, (root,))
    call.check(allow_pickle)
    return call.load(root)


def gather(
    comm: Any,
    obj: Any,
    root: int,
    allow_pickle: bool | None,
    name: str = "gather_pickle",
) -> Steps[list[Any] | None]:
    call = _Collective(comm, name)
    if comm.rank != root:
        parcel = call.pack_one(obj)
        begun = comm.gather(_padded(parcel), None, root)
        yield from call.transfer(begun, {root: parcel}, ())
        call.check()
        return None
    begun = comm.gather(_ext.IN_PLACE, call.make_heads(), root)
    yield from call.transfer(begun, {}, _others(comm))
    call.check(allow_pickle)
    return _in_order(call, obj, comm.size)


def _in_order(call: _Collective, own: Any, count: int) -> list[Any]:
    """The objects of the first ranks."""
    rank = call.comm.rank
    return [own if source == rank else call.load(source) for source in range(count)]


def allgather(comm: Any, obj: Any, allow_pickle: bool | None) -> Steps[list[Any]]:
    return spread(comm, "allgather_pickle", obj, allow_pickle)


def spread(
    comm: Any,
    name: str,
    obj: Any,
    allow_pickle: bool | None,
    is_up: bool = False,
    packed: Packed | BaseException | None = None,
    heads: bytearray | None = None,
) -> Steps[list[Any]]:
    """Send an object to all ranks, or to those behind this one; the objects of all,
    or of those up to this one."""
    rank, size = comm.rank, comm.size
    call = _Collective(comm, name)
    parcel = call.pack_one(obj, packed)
    if heads is None:
        begun = comm.allgather(_padded(parcel), call.make_heads())
    else:
        begun, call.heads = None, heads
    others = _others(comm)
    dests, sources = (others[rank:], others[:rank]) if is_up else (others, others)
    sends = dict.fromkeys(dests, parcel) if parcel.frames else {}
    yield from call.transfer(begun, sends, sources)
    call.check(allow_pickle)
    return _in_order(call, obj, rank + 1 if is_up else size)


def alltoall(comm: Any, objects: Any, allow_pickle: bool | None) -> Steps[list[Any]]:
    call = _Collective(comm, "alltoall_pickle")
    parcels = call.pack_for_all(objects)
    others = _others(comm)
    begun = comm.alltoall(b"".join(map(_padded, parcels)), call.make_heads())
    sends = {rank: parcels[rank] for rank in others}
    yield from call.transfer(begun, sends, others)
    call.check(allow_pickle)
    return _in_order(call, call.own, comm.size)


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


def combine(op: Op, objects: Sequence[Any]) -> Any:
    """Combine objects in their order."""
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
    return None if objects is None else combine(function, objects)


def allreduce(comm: Any, obj: Any, op: Op, allow_pickle: bool | None) -> Steps[Any]:
    objects = yield from spread(comm, "allreduce_pickle", obj, allow_pickle)
    return combine(op, objects)


def scan(comm: Any, obj: Any, op: Op, allow_pickle: bool | None) -> Steps[Any]:
    objects = yield from spread(comm, "scan_pickle", obj, allow_pickle, True)
    return combine(op, objects)


def exscan(comm: Any, obj: Any, op: Op, allow_pickle: bool | None) -> Steps[Any]:
    objects = yield from spread(comm, "exscan_pickle", obj, allow_pickle, True)
    function = _function_of(op)
    return combine(function, objects[:-1]) if comm.rank else None
