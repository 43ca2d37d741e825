# SPDX-License-Identifier: BSD-3-Clause
"""Python objects between ranks, as bytes.

An object is sent as a *parcel*: a head, and frames. The head says how many bytes
follow. It is a message, or a part of a collective operation, of the communicator,
so that objects keep the order of everything else. The frames go from rank to rank in
a communicator derived from it, with a tag that the head says: a large pickle is a
frame, and so is each large buffer, which is neither pickled nor copied, and each
array in memory of a device, which is received into memory of a device.

A rank that cannot pickle its object takes part nevertheless, with a head that says
why. So no rank waits for it, and those that should have got the object raise. What is
announced is received, before anything is raised or unpickled: ranks that send
frames need not know that another one has failed.
"""

from __future__ import annotations

import itertools
import mmap
import pickle
import struct
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from .. import _ext
from .._core import arrays
from .._core.operation import AnyRequest, Steps
from ..exceptions import UCXError, UCXMsgTruncated
from .steps import give_up

_LABEL = 0x6F626A65637473  # of the derived communicator of frames

# Bytes of a message's head, and of a head in a collective operation.
MESSAGE_HEAD_SIZE = 8 * 1024
HEAD_SIZE = 512

# magic, kind of operation, error, frames after the body, bytes of the body, tag. Then
# the body follows, if there is room: the lengths of the frames, and the pickle.
_FIELDS = struct.Struct("<4sBBxxIQQ")
_MAGIC = b"ucpO"
_LENGTH = struct.Struct("<Q")
_ON_DEVICE = 1 << 63  # added to the length of a frame in memory of a device

KINDS = [
    "send_pickle",
    "bcast_pickle",
    "gather_pickle",
    "scatter_pickle",
    "allgather_pickle",
    "alltoall_pickle",
    "reduce_pickle",
    "allreduce_pickle",
    "scan_pickle",
    "exscan_pickle",
]

# How the heads of objects begin that need no frames, up to the bytes of the body.
# ``ucp_ext/comm/pickled.c`` makes such heads, whose tag is 0, and reads them.
BEGINS = {
    kind: _FIELDS.pack(_MAGIC, number, 0, 0, 0, 0)[:12]
    for number, kind in enumerate(KINDS)
}
SHORT = MESSAGE_HEAD_SIZE - _FIELDS.size  # bytes of a pickle that goes into a message

# What a head says instead of a body: nothing is wrong, or which exception.
_ERRORS: list[type[Exception]] = [Exception, pickle.PicklingError, ValueError]

# ---- what belongs to a communicator ----------------------------------------------


class State:
    """What the objects of a communicator need."""

    def __init__(self) -> None:
        self.tags = itertools.count(1)  # of the parcels that are made here
        self.frames: _ext.Communicator | None = None
        # What has come of messages that were given back, by source and tag.
        self.kept: dict[tuple[int, int], Coming] = {}

    def close(self) -> None:
        """Release the messages and the communicator that this object keeps.

        The communicator of the program was closed before.
        """
        self.kept.clear()
        if self.frames is not None:
            self.frames.close()


_lock = threading.RLock()  # threads may share a communicator


def state_of(comm: Any) -> State:
    """The state of a ``ucp.Communicator``."""
    with _lock:
        state: State | None = getattr(comm, "_objects", None)
        if state is None:
            state = comm._objects = State()
        return state


def frames_of(comm: Any) -> _ext.Communicator:
    """The communicator that frames go through."""
    state = state_of(comm)
    with _lock:
        if state.frames is None:
            state.frames = comm._derive(_LABEL)
        return state.frames


def close(comm: Any) -> None:
    """Close what belongs to a ``ucp.Communicator``, which was closed."""
    state: State | None = getattr(comm, "_objects", None)
    if state is not None:
        state.close()


# ---- parcels -------------------------------------------------------------------


class Parcel(NamedTuple):
    """An object that is sent."""

    head: bytes
    frames: Sequence[Any]  # buffers
    tag: int


class Head(NamedTuple):
    """What a head says."""

    kind: int
    error: int
    num_buffers: int
    body_len: int
    tag: int
    body: bytes  # what is here of it


_HUGE = 4 * 1024 * 1024  # bytes, from which memory is of huge pages if possible


def _new_memory(nbytes: int) -> bytearray | memoryview:
    """Writable memory. Pages that come one by one cost more than their bytes."""
    if nbytes < _HUGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return bytearray(nbytes)
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    memory = mmap.mmap(-1, nbytes, private)
    with suppress(OSError):  # a system without them
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memoryview(memory)


class Coming:
    """A parcel whose head has come: its frames are received into here."""

    def __init__(self, head: Head, source: int, allocate: Callable[[int], Any]) -> None:
        self.head = head
        self.source = source
        self.buffers: list[Any] = []
        self.lengths: list[int] = []  # of the frames
        self._allocate = allocate  # memory of a device
        self.pickled: bytes | bytearray | memoryview = b""
        self.num_done = 0  # frames that are here
        self.is_wrong = False  # a frame has another length than the head says
        self._body: bytes | bytearray | memoryview = head.body
        self._begin()
        self.has_frames = bool(self.frames)

    def _begin(self) -> None:
        """The frames that are received next are the body, or the buffers."""
        if len(self._body) < self.head.body_len:
            self._body = _new_memory(self.head.body_len)
            self.frames, self.lengths = [self._body], [self.head.body_len]
            self.has_body = False
            return
        end = self.head.num_buffers * _LENGTH.size
        body = memoryview(self._body)
        marked = [length for (length,) in _LENGTH.iter_unpack(body[:end])]
        lengths = [length & ~_ON_DEVICE for length in marked]
        buffers = [
            self._allocate(length) if mark & _ON_DEVICE else _new_memory(length)
            for length, mark in zip(lengths, marked, strict=True)
        ]
        # There was memory: a receive that goes on after an error does not miss this.
        self.buffers = self.frames = buffers
        self.lengths, self.pickled = lengths, body[end:]
        self.has_body, self.num_done = True, 0

    def go_on(self) -> bool:
        """The frames have come. False: there are no more."""
        if self.has_body:
            return False
        self._begin()
        return bool(self.frames)

    @property
    def nbytes(self) -> int:
        return len(self.pickled) + sum(self.lengths)


# An object that is pickled: a head that says all, or the pickle and its buffers.
Packed = bytes | tuple[bytes, list[Any]]


def pack_message(obj: object) -> Packed:
    """Pickle an object for a message."""
    return _ext.pack_object(BEGINS["send_pickle"], obj, MESSAGE_HEAD_SIZE, 0)


def pack_short(kind: str, obj: object) -> Packed:
    """Pickle an object for a collective operation, with a head of HEAD_SIZE bytes."""
    return _ext.pack_object(BEGINS[kind], obj, HEAD_SIZE, HEAD_SIZE)


def parcel_of(comm: Any, kind: str, packed: Packed, room: int) -> Parcel:
    """Return the parcel of a pickled object, with a head of ``room`` bytes."""
    if isinstance(packed, bytes):
        return Parcel(packed, (), 0)
    pickled, buffers = packed
    lengths = b"".join(map(_pack_length, buffers))
    body = lengths + pickled if lengths else pickled
    tag = next(state_of(comm).tags)
    head = _FIELDS.pack(_MAGIC, KINDS.index(kind), 0, len(buffers), len(body), tag)
    if len(head) + len(body) <= room:
        return Parcel(head + body, buffers, tag)
    return Parcel(head, [body, *buffers], tag)


def _pack_length(buffer: memoryview | arrays.Frame) -> bytes:
    is_on_device = isinstance(buffer, arrays.Frame)
    return _LENGTH.pack(buffer.nbytes | (_ON_DEVICE if is_on_device else 0))


def pack_error(kind: str, error: type[Exception], text: str) -> Parcel:
    """Say in a head why there is no object."""
    body = text.encode(errors="replace")[: HEAD_SIZE - _FIELDS.size]
    head = _FIELDS.pack(
        _MAGIC, KINDS.index(kind), _ERRORS.index(error), 0, len(body), 0
    )
    return Parcel(head + body, [], 0)


def read_head(data: bytes | bytearray | memoryview) -> Head | None:
    """Read a head; None: it is none."""
    if len(data) < _FIELDS.size:
        return None
    magic, kind, error, num_buffers, body_len, tag = _FIELDS.unpack_from(data)
    if magic != _MAGIC or kind >= len(KINDS) or error >= len(_ERRORS):
        return None
    if body_len < num_buffers * _LENGTH.size:
        return None
    body = bytes(data[_FIELDS.size : _FIELDS.size + body_len])
    if len(body) < body_len:
        body = b""
    if tag == 0 and (num_buffers or len(body) < body_len):
        return None  # such frames would have one
    return Head(kind, error, num_buffers, body_len, tag, body)


def send_frames(
    comm: Any, parcel: Parcel, dest: int, requests: list[AnyRequest]
) -> None:
    """Begin to send the frames; ``requests`` gets those that have begun, even if one
    raises."""
    if parcel.frames:
        frames = frames_of(comm)
        for buffer in parcel.frames:
            requests.append(frames.send(buffer, dest, parcel.tag))


class Withdrawn(Exception):
    """The sender has cancelled the message."""


def receive(comm: Any, parcels: Sequence[Coming]) -> Steps[None]:
    """Receive the frames of parcels. If it is cancelled, it can be called again."""
    waiting = [parcel for parcel in parcels if parcel.frames]
    while waiting:
        yield from _receive_frames(frames_of(comm), waiting)
        waiting = [parcel for parcel in waiting if parcel.go_on()]


def _receive_frames(frames: Any, parcels: Sequence[Coming]) -> Steps[None]:
    requests = [
        (parcel, frames.recv(buffer, parcel.source, parcel.head.tag))
        for parcel in parcels
        for buffer in parcel.frames[parcel.num_done :]
    ]
    try:
        for parcel, request in requests:
            while not request.done():
                yield request
            _take_frame(parcel, request)
    except BaseException as exc:
        yield from give_up([request for _, request in requests], exc)
        raise


def _take_frame(parcel: Coming, request: AnyRequest) -> None:
    """A frame has come.

    A sender that cancels sends an empty one for each that may not have gone. Those
    before it may be others than were expected.
    """
    try:
        nbytes = request.result().nbytes
    except UCXMsgTruncated:
        nbytes = -1
    if nbytes == 0:
        raise Withdrawn
    parcel.is_wrong = parcel.is_wrong or nbytes != parcel.lengths[parcel.num_done]
    parcel.num_done += 1
    if parcel.is_wrong and parcel.num_done == len(parcel.frames):
        raise UCXError(
            f"frames of rank {parcel.source} have other lengths than it said"
        )


# ---- errors --------------------------------------------------------------------


def describe(exc: BaseException) -> str:
    try:
        text = str(exc)
    except Exception:  # a program's class may raise
        text = ""
    name = type(exc).__name__
    return f"{name}: {text}" if text else name


def load(comm: Any, came: Coming) -> Any:
    """Unpickle an object, or raise what its sender says."""
    if came.head.error:
        raise _ERRORS[came.head.error](bytes(came.pickled).decode(errors="replace"))
    try:
        return pickle.loads(came.pickled, buffers=came.buffers)
    except Exception as exc:
        raise cannot_unpickle(comm, came.source, exc) from exc


def cannot_unpickle(comm: Any, source: int, exc: Exception) -> pickle.UnpicklingError:
    return pickle.UnpicklingError(
        f"rank {comm.rank} cannot unpickle the object of rank {source}: {describe(exc)}"
    )


def check_allowed(comm: Any, name: str, allow_pickle: bool | None) -> None:
    """Raise ValueError unless the other ranks are trusted, by this call or, if it says
    nothing, by that which has made the communicator."""
    if allow_pickle is None:
        allow_pickle = comm._allows_pickle
    if allow_pickle is not True:
        raise ValueError(
            f"{name}() runs what the other ranks send: allow_pickle=True says that you "
            "trust them, here or where the communicator is made"
        )
