# SPDX-License-Identifier: BSD-3-Clause
"""Memory for tables that peers read, which is used again."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self

from .._core.memory import Memory

_UNIT = 1 << 20


class MemoryCache:
    """Memory that partitions are written to, and which is used again.

    New memory costs as much as a copy of what is written to it, as the system
    clears it. A cache keeps memory when nobody reads it any more, for the next
    shuffle or join:

        cache = ucp.shuffle.MemoryCache()
        for left, right in tables:
            result = await ucp.join.inner(left, right, on="key", comm=comm, cache=cache)

    Args:
        keep: bytes of unused memory at most that it keeps; what is more is
            returned to the system.
    """

    def __init__(self, keep: int = 1 << 30) -> None:
        if keep < 0:
            raise ValueError(f"keep is {keep}")
        self._keep = keep
        self._lock = threading.Lock()
        self._free: list[Memory] = []
        self._taken = 0
        self._is_closed = False

    def __repr__(self) -> str:
        if self._is_closed:
            return "<ucp.shuffle.MemoryCache, closed>"
        return f"<ucp.shuffle.MemoryCache, {self.taken} bytes taken, {self.free} free>"

    @property
    def taken(self) -> int:
        """Bytes of the memory that is in use."""
        return self._taken

    @property
    def free(self) -> int:
        """Bytes of the memory that is kept for later."""
        with self._lock:
            return sum(memory.nbytes for memory in self._free)

    def take(self, nbytes: int) -> Memory:
        """Memory of at least ``nbytes`` bytes, whose content is any; in any thread.

        Raises:
            UCXNoMemory: there is not enough.
            ValueError: ``nbytes`` is negative, or the cache is closed.
        """
        if nbytes < 0:
            raise ValueError(f"nbytes is {nbytes}")
        with self._lock:
            if self._is_closed:
                raise ValueError("the cache is closed")
            memory = self._find(nbytes)
        if memory is None:
            memory = Memory.allocate(max(1, -(-nbytes // _UNIT)) * _UNIT)
        with self._lock:
            self._taken += memory.nbytes
        return memory

    def put(self, memory: Memory, is_read: bool = False) -> None:
        """Give memory back that ``take`` has given.

        Args:
            memory: no peer and no view reads it.
            is_read: somebody may: it is not used again.
        """
        with self._lock:
            self._taken -= memory.nbytes
            if is_read or self._is_closed:
                return
            self._free.append(memory)
            self._trim(self._keep)

    def close(self) -> None:
        """Give all that is free back to the system, and the rest when it is put."""
        with self._lock:
            self._is_closed = True
            self._trim(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _find(self, nbytes: int) -> Memory | None:
        """The smallest that is large enough, but not much larger."""
        fitting = [
            memory
            for memory in self._free
            if nbytes <= memory.nbytes <= max(2 * nbytes, _UNIT)
        ]
        if not fitting:
            return None
        memory = min(fitting, key=lambda memory: memory.nbytes)
        self._free.remove(memory)
        return memory

    def _trim(self, keep: int) -> None:
        """Close the oldest of what is free until no more than ``keep`` is left."""
        while sum(memory.nbytes for memory in self._free) > keep:
            self._free.pop(0).close()
