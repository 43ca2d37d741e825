# SPDX-License-Identifier: BSD-3-Clause
"""What programs of ucx-py look up in ``ucp.utils``."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Sequence

from ... import _ext

__all__ = ["get_event_loop", "get_ucxpy_logger", "hash64bits", "hmean"]


def get_event_loop() -> asyncio.AbstractEventLoop:
    """The running event loop, or a new one."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.new_event_loop()


def get_ucxpy_logger() -> logging.Logger:
    """The logger ``ucx``, made to write to standard error.

    The environment variable ``UCXPY_LOG_LEVEL`` sets its level, ``WARNING`` by
    default.
    """
    logger = logging.getLogger("ucx")
    logger.propagate = False
    if not logger.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(
            logging.Formatter(
                f"[%(created).6f] [{socket.gethostname()}:%(process)d] UCXPY  "
                "%(levelname)s %(message)s"
            )
        )
        logger.addHandler(handler)
    logger.setLevel(os.environ.get("UCXPY_LOG_LEVEL", "WARNING"))
    return logger


def hash64bits(*args: object) -> int:
    """A 64-bit number from the ``repr`` of ``args``, the same in every process."""
    return _ext.tag_hash(repr(args).encode())


def hmean(a: Sequence[float]) -> float:
    """The harmonic mean; 0 of nothing."""
    return len(a) / sum(1 / x for x in a) if len(a) else 0.0
