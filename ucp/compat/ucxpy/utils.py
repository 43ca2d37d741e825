# SPDX-License-Identifier: BSD-3-Clause
"""The module ``ucp.utils`` of ucx-py."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Sequence

from ... import _ext

__all__ = ["get_event_loop", "get_ucxpy_logger", "hash64bits", "hmean"]


def __dir__() -> list[str]:
    return __all__


def get_event_loop() -> asyncio.AbstractEventLoop:
    """Return the running event loop, or a new one."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.new_event_loop()


def get_ucxpy_logger() -> logging.Logger:
    """Return the logger ``ucx``, which writes to standard error.

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
    """Hash the ``repr`` of ``args`` to 64 bits; the same in every process."""
    return _ext.tag_hash(repr(args).encode())


def hmean(a: Sequence[float]) -> float:
    """Return the harmonic mean; 0 if there are no values."""
    return len(a) / sum(1 / x for x in a) if len(a) else 0.0
