# SPDX-License-Identifier: BSD-3-Clause
"""Memory to receive into.

The first access to new pages costs more than a transfer, and malloc() returns large
blocks to the system when they are freed. So a large block is kept for a while after
the last view of it has been freed, and is used again.

A view refers to a ctypes array, which refers to the block. A NumPy array cannot be
used in between: a view of a NumPy array refers to that array's owner instead, and
the block would be reused too early.
"""

from __future__ import annotations

import asyncio
import ctypes
import threading
import time
import weakref
from dataclasses import dataclass
from typing import Any

from distributed.protocol.utils import host_array

# An array costs more than the bytes, if these are few.
_SMALL = 4096
# Smaller ones malloc() keeps by itself.
_LARGE = 1 << 20
# A block serves for what is up to this part smaller.
_WASTE = 8
_IDLE = 2.0  # seconds that a block is kept


@dataclass
class _Block:
    memory: memoryview
    freed: float


class Blocks:
    """Blocks that are not in use, the last freed at the end. Thread: any."""

    def __init__(self) -> None:
        # Taken again by a finalizer that runs while it is held.
        self._lock = threading.RLock()
        self._free: list[_Block] = []
        self._nbytes = 0
        self._limit = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_armed = False

    @property
    def nbytes(self) -> int:
        """Bytes of the blocks that are kept."""
        return self._nbytes

    def use(self, loop: asyncio.AbstractEventLoop, limit: int) -> None:
        """Keep at most ``limit`` bytes, which ``loop`` frees when they are old."""
        with self._lock:
            self._limit = limit
            if self._loop is not loop:
                self._loop, self._is_armed = loop, False
            self._trim()
            self._free_later()

    def allocate(self, size: int) -> Any:
        """Return a writable buffer of ``size`` bytes."""
        if size < _SMALL:
            return bytearray(size)
        if size < _LARGE or size > self._limit:
            return host_array(size)
        memory = self._take(size) or self._make(size)
        lease = (ctypes.c_ubyte * size).from_buffer(memory)
        weakref.finalize(lease, self._give, memory).atexit = False
        return memoryview(lease).cast("B")

    def clear(self) -> None:
        """Free all blocks that are kept."""
        with self._lock:
            self._free.clear()
            self._nbytes = 0

    def _make(self, size: int) -> memoryview:
        try:
            return host_array(size)
        except MemoryError:
            self.clear()
            return host_array(size)

    def _take(self, size: int) -> memoryview | None:
        with self._lock:
            for index in range(len(self._free) - 1, -1, -1):
                memory = self._free[index].memory
                if size <= memory.nbytes <= size + size // _WASTE:
                    del self._free[index]
                    self._nbytes -= memory.nbytes
                    return memory
        return None

    def _give(self, memory: memoryview) -> None:
        with self._lock:
            if self._loop is None or self._loop.is_closed():
                self.clear()  # nobody would
                return
            self._free.append(_Block(memory, time.monotonic()))
            self._nbytes += memory.nbytes
            self._trim()
            self._free_later()

    def _trim(self) -> None:
        """Down to the limit, those that nobody wanted for longest first."""
        while self._nbytes > self._limit:
            self._nbytes -= self._free.pop(0).memory.nbytes

    def _free_later(self) -> None:
        """Have the loop free what is kept when it is old."""
        if self._loop is None or self._is_armed or not self._free:
            return
        self._is_armed = True
        try:
            self._loop.call_soon_threadsafe(self._arm, self._loop)
        except RuntimeError:  # closed just now
            self.clear()

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        """Have the blocks looked at when the oldest one has been kept long enough."""
        with self._lock:
            if loop is not self._loop:
                return
            self._is_armed = bool(self._free)
            if self._is_armed:
                age = time.monotonic() - self._free[0].freed
                loop.call_later(max(0.0, _IDLE - age), self._free_old, loop)

    def _free_old(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            if loop is not self._loop:
                return
            oldest = time.monotonic() - _IDLE
            while self._free and self._free[0].freed <= oldest:
                self._nbytes -= self._free.pop(0).memory.nbytes
        self._arm(loop)


blocks = Blocks()
