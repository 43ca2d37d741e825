# SPDX-License-Identifier: BSD-3-Clause
"""Operations on short objects, in a thread that waits.

An object that fits into one message, or into its part of a collective operation, is
pickled, sent, received and unpickled without steps. All else goes on in ``pickled``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from .. import _ext
from .._core.worker import Worker
from ..exceptions import UCXRankFailed
from . import pickled
from .parcels import (
    BEGINS,
    HEAD_SIZE,
    MESSAGE_HEAD_SIZE,
    Packed,
    cannot_unpickle,
    check_allowed,
    pack_short,
    read_head,
)
from .steps import check_open, finish, run, wait

_NOT_SHORT = object()  # what came is not an object in one piece
_SENT = BEGINS["send_pickle"]
_spares: list[bytearray] = []  # memory of receives that are over


def _end_of(timeout: float | None) -> float | None:
    return None if timeout is None else time.monotonic() + timeout


# ---- messages ------------------------------------------------------------------


def send(
    worker: Worker, comm: Any, obj: object, dest: int, tag: int, timeout: float | None
) -> None:
    packed = _ext.pack_object(_SENT, obj, MESSAGE_HEAD_SIZE, 0)
    if type(packed) is bytes:
        worker._call_as("send_pickle", timeout, comm.send, packed, dest, tag)
        return
    check_open(worker)
    steps = pickled.send_packed(comm, packed, dest, tag)
    run(worker, timeout, steps, lambda: "send_pickle")


def recv(
    worker: Worker,
    comm: Any,
    source: int,
    tag: int,
    allow_pickle: bool | None,
    with_status: bool,
    timeout: float | None,
) -> Any:
    if allow_pickle is not True:
        check_allowed(comm, "recv_pickle", allow_pickle)
    check_open(worker)
    end = _end_of(timeout)
    try:
        data = _spares.pop()
    except IndexError:
        data = bytearray(MESSAGE_HEAD_SIZE)
    request = comm.recv(data, source, tag)
    wait(worker, request, timeout, timeout, "recv_pickle")
    try:
        obj = _ext.load_object(_SENT, data, 0, MESSAGE_HEAD_SIZE, _NOT_SHORT, request)
    except Exception as exc:
        raise cannot_unpickle(comm, request.result().source, exc) from exc
    if obj is _NOT_SHORT:
        message = pickled.Message(comm, data, request)
        steps = pickled.recv(comm, source, tag, with_status, message)
        return run(worker, timeout, steps, lambda: "recv_pickle", end)
    if not with_status:
        _spares.append(data)
        return obj
    head = read_head(data)
    assert head is not None
    return obj, _ext.Status((*request.result()[:2], head.body_len))


# ---- collective operations -------------------------------------------------------


def _pack(name: str, obj: object) -> Packed | BaseException:
    try:
        return pack_short(name, obj)
    except BaseException as exc:
        return exc  # which the other ranks are told of


def _exchange(
    worker: Worker,
    comm: Any,
    name: str,
    timeout: float | None,
    method: Callable[..., _ext.Request[None]],
    *args: Any,
) -> None:
    """Send and receive heads."""
    begun = method(*args)
    try:
        finish(worker, begun, timeout, timeout, name)
    except UCXRankFailed:
        raise
    except BaseException as exc:
        pickled.leave(comm, name, exc)
        raise


def _leave_if_interrupted(comm: Any, name: str, exc: BaseException) -> None:
    """End the communicator after Ctrl-C, wherever that came."""
    if not isinstance(exc, Exception):
        pickled.leave(comm, name, exc)


def _load(comm: Any, begin: bytes, heads: bytearray, first: int, source: int) -> Any:
    try:
        return _ext.load_object(begin, heads, first, first + HEAD_SIZE, None, None)
    except Exception as exc:
        raise cannot_unpickle(comm, source, exc) from exc


def bcast(
    worker: Worker,
    comm: Any,
    obj: Any,
    root: int,
    allow_pickle: bool | None,
    timeout: float | None,
) -> Any:
    name = "bcast_pickle"
    check_open(worker)
    end = _end_of(timeout)
    packed: Packed | BaseException | None = None
    head = None
    try:
        if comm.rank == root:
            packed = _pack(name, obj)
            if type(packed) is bytes:
                _exchange(worker, comm, name, timeout, comm.bcast, packed, root)
                return obj
        else:
            begin = BEGINS[name]
            head = bytearray(HEAD_SIZE)
            _exchange(worker, comm, name, timeout, comm.bcast, head, root)
            if _ext.has_objects(begin, head, HEAD_SIZE, -1):
                if allow_pickle is not True:
                    check_allowed(comm, name, allow_pickle)
                return _load(comm, begin, head, 0, root)
        steps = pickled.bcast(comm, obj, root, allow_pickle, packed, head)
        return run(worker, timeout, steps, lambda: name, end)
    except BaseException as exc:
        _leave_if_interrupted(comm, name, exc)
        raise


def spread(
    worker: Worker,
    comm: Any,
    name: str,
    obj: Any,
    allow_pickle: bool | None,
    timeout: float | None,
    is_up: bool = False,
) -> list[Any]:
    """The objects of all ranks, or of those up to this one."""
    rank, size = comm.rank, comm.size
    check_open(worker)
    end = _end_of(timeout)
    packed = _pack(name, obj)
    heads = None
    try:
        if type(packed) is bytes:
            begin = BEGINS[name]
            heads = bytearray(HEAD_SIZE * size)
            _exchange(worker, comm, name, timeout, comm.allgather, packed, heads)
            if _ext.has_objects(begin, heads, HEAD_SIZE, rank):
                if allow_pickle is not True:
                    check_allowed(comm, name, allow_pickle)
                return [
                    obj
                    if source == rank
                    else _load(comm, begin, heads, source * HEAD_SIZE, source)
                    for source in range(rank + 1 if is_up else size)
                ]
        steps = pickled.spread(comm, name, obj, allow_pickle, is_up, packed, heads)
        return run(worker, timeout, steps, lambda: name, end)
    except BaseException as exc:
        _leave_if_interrupted(comm, name, exc)
        raise


def allreduce(
    worker: Worker,
    comm: Any,
    obj: Any,
    op: pickled.Op,
    allow_pickle: bool | None,
    timeout: float | None,
) -> Any:
    name = "allreduce_pickle"
    return pickled.combine(op, spread(worker, comm, name, obj, allow_pickle, timeout))
