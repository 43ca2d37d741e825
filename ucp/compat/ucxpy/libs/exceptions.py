# SPDX-License-Identifier: BSD-3-Clause
"""The exceptions of ``ucp.exceptions``, and a way to log some."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

from ....exceptions import (
    UCXBaseException,
    UCXCanceled,
    UCXCloseError,
    UCXConfigError,
    UCXConnectionReset,
    UCXError,
    UCXMsgTruncated,
    UCXNotConnected,
    UCXUnreachable,
    UCXWarning,
)

__all__ = [
    "UCXBaseException",
    "UCXCanceled",
    "UCXCloseError",
    "UCXConfigError",
    "UCXConnectionReset",
    "UCXError",
    "UCXMsgTruncated",
    "UCXNotConnected",
    "UCXUnreachable",
    "UCXWarning",
    "log_errors",
]

logger = logging.getLogger("ucx")


@contextlib.contextmanager
def log_errors(reraise_exception: bool = False) -> Iterator[None]:
    """Log what the block raises; raise it again only if asked to."""
    try:
        yield
    except BaseException as exc:
        logger.exception("%s", exc)
        if reraise_exception:
            raise
