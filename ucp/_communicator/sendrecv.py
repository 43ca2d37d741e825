# SPDX-License-Identifier: BSD-3-Clause
"""A send and a receive in one operation, as steps."""

from __future__ import annotations

from typing import Any

from .._core.operation import Steps, Unseen
from . import pickled
from .steps import give_up, look_at, wait_for


def sendrecv(
    comm: Any,
    send: Any,
    dest: int,
    recv: Any,
    source: int,
    send_tag: int,
    recv_tag: Any,
) -> Steps[Any]:
    """Send a buffer, and receive into another one; or into the same, by a copy.

    It returns an ``Unseen``, which whoever drives it settles.
    """
    if send is recv:
        send = _copy_of(send)
    receiving = comm.recv(recv, source, recv_tag)
    try:
        sending = comm.send(send, dest, send_tag)
    except BaseException as exc:
        yield from give_up([receiving], exc)
        raise
    try:
        status = yield from look_at(receiving)
        yield from wait_for([sending])
    except BaseException as exc:
        yield from give_up([receiving, sending], exc)
        raise
    return Unseen(status, receiving, is_visible=True)


def _copy_of(buffer: Any) -> bytes:
    try:
        view = memoryview(buffer)
        if not view.contiguous:
            raise BufferError("it has gaps")
        return view.tobytes()
    except (TypeError, ValueError, BufferError) as exc:
        raise TypeError(
            "sendrecv() with one buffer for both takes contiguous memory of the host: "
            f"{exc}"
        ) from None


def sendrecv_pickle(
    comm: Any,
    obj: object,
    dest: int,
    source: int,
    send_tag: int,
    recv_tag: Any,
    with_status: bool,
) -> Steps[Any]:
    """Send an object, and receive another one, as ``pickled.recv()`` does."""
    sending = pickled.begin_to_send(comm, obj, dest, send_tag)
    try:
        received = yield from pickled.recv(comm, source, recv_tag, with_status)
    except BaseException as exc:
        yield from sending.give_up(exc)
        raise
    try:
        yield from sending.wait()
    except BaseException:
        received.give_back()
        raise
    return received
