# SPDX-License-Identifier: BSD-3-Clause
"""Functions that act on the worker of the running loop, or of the thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, SupportsIndex

from . import context
from .lifecycle import current_worker, running_loop


def get_ucp_worker() -> int:
    """Return the ``ucp_worker_h`` of the current worker, as an integer."""
    return current_worker().handle


def get_ucp_worker_info() -> str:
    """Return UCX's description of the current worker."""
    return current_worker().info()


def progress() -> int:
    """Make progress once, without waiting; return the number of events.

    A program with an event loop does not need this call. It must not be called
    from a callback of ucp.
    """
    return current_worker().progress()


def register_am_allocator(
    allocator: Callable[[int], Any] | None, allocator_type: str = "host"
) -> None:
    """Call ``Worker.register_am_allocator`` of the current worker."""
    current_worker().register_am_allocator(allocator, allocator_type)


def continuous_ucx_progress(
    event_loop: asyncio.AbstractEventLoop | None = None,
) -> None:
    """Have the running event loop drive its worker.

    Programs need not call this: every call that needs a worker does the same.

    Raises:
        RuntimeError: ``event_loop`` is not the running loop.
    """
    if event_loop is not None and event_loop is not running_loop():
        raise RuntimeError("only the running event loop can drive a worker")
    current_worker()


async def flush() -> None:
    """Wait until everything that was sent has reached the memory of the peers."""
    if context.current_context() is not None:
        await current_worker().flush()


def fence() -> None:
    """Order operations on the memory of peers, without waiting.

    On each endpoint, operations that are called later are executed after those
    that were called before.
    """
    if context.current_context() is not None:
        current_worker().fence()


async def recv(buffer: Any, tag: SupportsIndex) -> None:
    """Receive a message sent with ``force_tag=True`` by any peer.

    Args:
        buffer: writable and contiguous, of the length of the message.
        tag: a number of 64 bits, all of which are compared. ``Worker.recv`` has a
            mask, and accepts shorter messages.

    Raises:
        UCXMsgTruncated: the lengths differ; the message is consumed.
        OverflowError: the tag is negative, or longer than 64 bits.

    When cancelled, the next receive gets the message.
    """
    await current_worker()._tag_recv(buffer, tag)
