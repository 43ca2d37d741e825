# SPDX-License-Identifier: BSD-3-Clause
"""Everything ``ucp`` raises of its own.

Names and relations are ucx-py's; each class is also the built-in that fits::

    UCXBaseException (Exception)
    |-- UCXError                    what UCX reported and nothing below names
    |   |-- UCXConfigError          (ValueError) an option or value UCX refuses
    |   |-- UCXTimeout              (TimeoutError) the time you gave ran out
    |   |-- UCXRejected             (ConnectionRefusedError) the peer said no
    |   |   `-- UCXAuthError        ... because the token differs
    |   |-- UCXProtocolError        the peer sent what it must not
    |   |   `-- UCXVersionError     ... of another wire version
    |   |-- UCXNoMemory             (MemoryError)
    |   |-- UCXBusy                 (OSError) address in use, set already
    |   `-- UCXInvalidKey           (ValueError) of a memory: damaged, of
    |                               another process, or the memory is closed
    |-- UCXCloseError               the endpoint is closed: by you, or ...
    |-- UCXCanceled                 aborted while pending
    |   `-- UCXPeerClosed           ... by the peer, gracefully: this one is
    |                               both a UCXCloseError and a UCXCanceled
    |-- UCXConnectionReset          (ConnectionResetError) the peer vanished
    |-- UCXMsgTruncated             (ValueError) the lengths differ
    |-- UCXNotConnected             (ConnectionRefusedError) nobody listens
    |   `-- UCXWorkerGone           ... at a worker address: for sends a
    |                               UCXError, for receives a UCXCanceled as in
    |                               ucx-py, so it is both
    `-- UCXUnreachable              (OSError) no way to that address
    UCXWarning (UserWarning)

Every instance has ``status`` (UCX's number, or one of ours from -200 down),
``op`` (the operation, or None), ``peer`` (its address, or None; the address to
listen on) and ``errno`` (the system's number where that refused something,
else None).
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
    "UCXRejected",
    "UCXTimeout",
    "UCXUnreachable",
    "UCXVersionError",
    "UCXWarning",
    "UCXWorkerGone",
]
