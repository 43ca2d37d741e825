# SPDX-License-Identifier: BSD-3-Clause
"""Small memories that share segments of the system."""

from __future__ import annotations

from typing import Self

from .. import _ext
from . import context
from .closing import Closing
from .memory import Memory


class Heap(Closing, _ext.Heap):
    """Small memories in few segments of the system.

    Memory of ``Memory.allocate`` is a segment of the system's, of which a host
    has a few thousands for all its processes (``kernel.shmmni``, 4096 by
    default). Memories of a heap of up to 64 KiB share segments of 1 MiB; a
    larger one has its own.

    A peer on this host that opens the key of one of them can read and write
    all of those in its segment: give the keys of a heap to peers that may have
    all of it, and make a heap for each set of peers. On other hosts a key
    reaches its own memory only.

    Not bound to a thread or event loop. Memories stay when their heap is
    closed or dropped.
    """

    __slots__ = ()

    def __new__(cls) -> Self:
        heap = super().__new__(cls, context.get_context())
        context.memories.add(heap)
        return heap

    def __repr__(self) -> str:
        if self.closed():
            return "<ucp.Heap, closed>"
        return f"<ucp.Heap of {self.memories} memories in {self.segments} segments>"

    def allocate(self, nbytes: int) -> Memory:
        """Allocate ``nbytes`` bytes of zeros, for peers as of ``Memory.allocate``.

        Its space is used again once the memory is closed and no peer has its
        segment mapped.

        Raises:
            UCXNoMemory: there is not so much, or the system has no segment
                left, and which limit that is.
            UCXCloseError: the heap is closed.
            ValueError: ``nbytes`` is negative.
        """
        if nbytes < 0:
            raise ValueError(f"nbytes is {nbytes}")
        return Memory._added(Memory(self._context, nbytes=int(nbytes), heap=self))
