# SPDX-License-Identifier: BSD-3-Clause
"""ucxx's exceptions: one class a UCX status, all of them UCXErrors.

Where a built-in exception fits, the class is that, too. ``__cause__`` is what
``ucp`` raised.
"""

from __future__ import annotations

from ... import exceptions as _ucp


class UCXError(Exception):
    """Base of all."""

    status: int = 0
    """UCX's, where it has one."""
    peer: object = None
    """Address of the other side, where it is known."""


class UCXCloseError(UCXError):
    """The endpoint is closed."""


class UCXNoMessageError(UCXError): ...


class UCXNoResourceError(UCXError): ...


class UCXIOError(UCXError, OSError): ...


class UCXNoMemoryError(UCXError, MemoryError): ...


class UCXInvalidParamError(UCXError): ...


class UCXConfigError(UCXInvalidParamError, ValueError):
    """A setting is not valid; UCX's own status for that is INVALID_PARAM."""


class UCXUnreachableError(UCXError, OSError): ...


class UCXInvalidAddrError(UCXError): ...


class UCXNotImplementedError(UCXError): ...


class UCXMessageTruncatedError(UCXError): ...


class UCXNoProgressError(UCXError): ...


class UCXBufferTooSmallError(UCXError): ...


class UCXNoElemError(UCXError): ...


class UCXSomeConnectsFailedError(UCXError): ...


class UCXNoDeviceError(UCXError): ...


class UCXBusyError(UCXError, OSError): ...


class UCXCanceledError(UCXError): ...


class UCXShmemSegmentError(UCXError): ...


class UCXAlreadyExistsError(UCXError): ...


class UCXOutOfRangeError(UCXError): ...


class UCXTimedOutError(UCXError, TimeoutError): ...


class UCXExceedsLimitError(UCXError): ...


class UCXUnsupportedError(UCXError): ...


class UCXRejectedError(UCXError, ConnectionRefusedError): ...


class UCXNotConnectedError(UCXError, ConnectionRefusedError): ...


class UCXConnectionResetError(UCXError, ConnectionResetError): ...


class UCXFirstLinkFailureError(UCXError): ...


class UCXLastLinkFailureError(UCXError): ...


class UCXFirstEndpointFailureError(UCXError): ...


class UCXEndpointTimeoutError(UCXError): ...


class UCXLastEndpointFailureError(UCXError): ...


class _PeerClosed(UCXCloseError, UCXCanceledError):
    """Closed while the operation was pending; ucxx may say either."""


class _WorkerGone(
    UCXNotConnectedError,
    UCXUnreachableError,
    UCXConnectionResetError,
    UCXEndpointTimeoutError,
):
    """Nobody is at a worker address; ucxx's words depend on the transport."""


UCXCanceled = UCXCanceledError
UCXMsgTruncated = UCXMessageTruncatedError

_BY_STATUS: dict[int, type[UCXError]] = {
    -1: UCXNoMessageError,
    -2: UCXNoResourceError,
    -3: UCXIOError,
    -4: UCXNoMemoryError,
    -5: UCXInvalidParamError,
    -6: UCXUnreachableError,
    -7: UCXInvalidAddrError,
    -8: UCXNotImplementedError,
    -9: UCXMessageTruncatedError,
    -10: UCXNoProgressError,
    -11: UCXBufferTooSmallError,
    -12: UCXNoElemError,
    -13: UCXSomeConnectsFailedError,
    -14: UCXNoDeviceError,
    -15: UCXBusyError,
    -16: UCXCanceledError,
    -17: UCXShmemSegmentError,
    -18: UCXAlreadyExistsError,
    -19: UCXOutOfRangeError,
    -20: UCXTimedOutError,
    -21: UCXExceedsLimitError,
    -22: UCXUnsupportedError,
    -23: UCXRejectedError,
    -24: UCXNotConnectedError,
    -25: UCXConnectionResetError,
    -40: UCXFirstLinkFailureError,
    -59: UCXLastLinkFailureError,
    -60: UCXFirstEndpointFailureError,
    -80: UCXEndpointTimeoutError,
    -89: UCXLastEndpointFailureError,
}

# What has no status of UCX's; the first that fits.
_BY_CLASS: list[tuple[type[BaseException], type[UCXError]]] = [
    (_ucp.UCXPeerClosed, _PeerClosed),
    (_ucp.UCXWorkerGone, _WorkerGone),
    (_ucp.UCXCloseError, UCXCloseError),
    (_ucp.UCXConfigError, UCXConfigError),
    (_ucp.UCXConnectionReset, UCXConnectionResetError),
    (_ucp.UCXMsgTruncated, UCXMessageTruncatedError),
    (_ucp.UCXTimeout, UCXTimedOutError),
    (_ucp.UCXNotConnected, UCXNotConnectedError),
    (_ucp.UCXUnreachable, UCXUnreachableError),
    (_ucp.UCXRejected, UCXRejectedError),
    (_ucp.UCXCanceled, UCXCanceledError),
]


def translate(exc: _ucp.UCXBaseException) -> UCXError:
    """The exception of this module that says the same."""
    kind = _BY_STATUS.get(exc.status)
    if kind is None:
        kinds = (new for old, new in _BY_CLASS if isinstance(exc, old))
        kind = next(kinds, UCXError)
    error = kind(str(exc))
    error.status = exc.status
    error.peer = exc.peer
    return error
