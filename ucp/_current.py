# SPDX-License-Identifier: BSD-3-Clause
"""Calls of the current worker: that of the running loop, or of the thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, SupportsIndex

from . import _context
from ._lifecycle import current_worker, running_loop


def get_ucp_worker() -> int:
    """UCX's ``ucp_worker_h`` of the current worker."""
    return current_worker().handle


def get_ucp_worker_info() -> str:
    """UCX's own description of the current worker."""
    return current_worker().info()


def progress() -> int:
    """Move messages once without waiting; returns the number of events.

    A program in an event loop has no need of it. Not to be called from a
    callback of ucp.
    """
    return current_worker().progress()


def register_am_allocator(
    allocator: Callable[[int], Any] | None, allocator_type: str = "host"
) -> None:
    """``Worker.register_am_allocator`` of the current worker."""
    current_worker().register_am_allocator(allocator, allocator_type)


def continuous_ucx_progress(
    event_loop: asyncio.AbstractEventLoop | None = None,
) -> None:
    """Let the running loop drive its worker from now on.

    Every call that needs it does this by itself.

    Raises:
        RuntimeError: ``event_loop`` is not the running loop.
    """
    if event_loop is not None and event_loop is not running_loop():
        raise RuntimeError("only the running event loop can drive a worker")
    current_worker()


async def flush() -> None:
    """Wait until all that was sent is in the peers' memory."""
    if _context.current_context() is not None:
        await current_worker().flush()


def fence() -> None:
    """Have operations on peers' memory executed in order from here on.

    On each endpoint those that come later are executed after those before.
    Waits for nothing.
    """
    if _context.current_context() is not None:
        current_worker().fence()


async def recv(buffer: Any, tag: SupportsIndex) -> None:
    """Receive a message sent with ``force_tag=True`` by any peer.

    Args:
        buffer: writable and contiguous; of the message's length.
        tag: 64 bits; all of them count. ``Worker.recv`` has a mask, and takes
            shorter messages.

    Raises:
        UCXMsgTruncated: the lengths differ; the message is consumed.
        OverflowError: the tag is negative, or longer than 64 bits.

    When cancelled nothing is lost: the next receive gets the message.
    """
    await current_worker()._tag_recv(buffer, tag)
