# SPDX-License-Identifier: BSD-3-Clause
"""The exceptions of ``ucp``.

The names come from ucx-py. In ucx-py some of the classes derive from
UCXBaseException only; here ``except UCXError`` catches every error, so a clause for
one class has to stand before it. Where a built-in exception fits, the class derives
from that one as well; it is in parentheses::

    UCXBaseException (Exception)
    `-- UCXError                    every error of this library; the class itself is
        |                           a failure that UCX reported and that no class
        |                           below describes
        |-- UCXConfigError          (ValueError) UCX refuses an option or a value
        |-- UCXTimeout              (TimeoutError) the given time has run out
        |-- UCXRejected             (ConnectionRefusedError) the peer refused
        |   `-- UCXAuthError        ... because the tokens differ
        |-- UCXProtocolError        the peer violated the protocol
        |   `-- UCXVersionError     ... or has another version of it
        |-- UCXNoMemory             (MemoryError) there is not enough memory
        |-- UCXBusy                 (OSError) the address is in use, or an object
        |                           cannot be used now
        |-- UCXInvalidKey           (ValueError) a key of remote memory is damaged,
        |                           belongs to another process, or its memory is
        |                           closed
        |-- UCXRankFailed           a rank of a communicator has failed
        |-- UCXCloseError           the endpoint or object is closed
        |-- UCXCanceled             the operation was aborted while it was pending
        |   `-- UCXPeerClosed       ... because the endpoint was closed in
        |                           agreement with the peer; also a UCXCloseError
        |-- UCXConnectionReset      (ConnectionResetError) the peer has died, or
        |                           the network has failed
        |-- UCXMsgTruncated         (ValueError) the lengths of message and buffer
        |                           differ
        |-- UCXNotConnected         (ConnectionRefusedError) no process listens
        |   `-- UCXWorkerGone       ... at a worker address; also a UCXCanceled,
        |                           which receives raise there in ucx-py
        `-- UCXUnreachable          (OSError) there is no route to the address
    UCXWarning (UserWarning)

Every instance has the attributes ``status`` (the number of UCX, or a number of
libumx, which are -200 and below), ``op`` (name of the operation, or None),
``peer`` (address of the peer or of the listener, or None) and ``errno`` (the
number of the operating system if that has refused something, or if a peer has
been silent for too long; else None).

A UCXRankFailed has also ``rank`` (the one that has failed or given up; None if it is
no rank's fault, or not known), ``op`` and ``op_id`` (the collective operation that was
under way here, and its number; else the operation that raises, and None), ``cause`` (an
exception of this module, or None) and ``late``: a tuple of the ranks that had not come
to a collective operation that a rank has given up. A UCXTimeout has ``late``, too.
"""

from ._ext import (
    UCXAuthError,
    UCXBaseException,
    UCXBusy,
    UCXCanceled,
    UCXCloseError,
    UCXConfigError,
    UCXConnectionReset,
    UCXError,
    UCXInvalidKey,
    UCXMsgTruncated,
    UCXNoMemory,
    UCXNotConnected,
    UCXPeerClosed,
    UCXProtocolError,
    UCXRankFailed,
    UCXRejected,
    UCXTimeout,
    UCXUnreachable,
    UCXVersionError,
    UCXWarning,
    UCXWorkerGone,
)

__all__ = [
    "UCXAuthError",
    "UCXBaseException",
    "UCXBusy",
    "UCXCanceled",
    "UCXCloseError",
    "UCXConfigError",
    "UCXConnectionReset",
    "UCXError",
    "UCXInvalidKey",
    "UCXMsgTruncated",
    "UCXNoMemory",
    "UCXNotConnected",
    "UCXPeerClosed",
    "UCXProtocolError",
    "UCXRankFailed",
    "UCXRejected",
    "UCXTimeout",
    "UCXUnreachable",
    "UCXVersionError",
    "UCXWarning",
    "UCXWorkerGone",
]


def __dir__() -> list[str]:
    return __all__
