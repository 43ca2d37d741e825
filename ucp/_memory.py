# SPDX-License-Identifier: BSD-3-Clause
"""Memory that peers read and write: the owner's side."""

from __future__ import annotations

from typing import Any, Self

from . import _context, _ext
from ._closing import Closing


class Memory(Closing, _ext.Memory):
    """Memory that peers reach by its ``key``: see ``Endpoint.remote``.

    Made by ``allocate`` or ``register``. It has the buffer protocol and
    ``__array_interface__``, so ``np.asarray(memory)`` and
    ``memoryview(memory)`` are the memory itself. Peers have access until
    ``close()``, or until the last reference is dropped; views and transfers
    under way keep the bytes beyond that. Not bound to a thread or event loop.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        state = "closed" if self.closed() else f"{self.nbytes} bytes"
        readonly = ", read-only" if self.readonly else ""
        return f"<ucp.Memory of {state}{readonly}>"

    @classmethod
    def allocate(
        cls, nbytes: int, kind: str = "host", device: int | None = None
    ) -> Self:
        """Allocate ``nbytes`` bytes of zeros.

        Peers on this host, of the same user, map memory of the kind
        ``"host"``: their operations are loads and stores, in which this
        process takes no part. It is a segment of the system's then, of which
        a host has a few thousands for all its processes: many small memories
        are better allocated from a ``Heap``.

        Args:
            nbytes: how many; 0 is fine.
            kind: ``"host"``; of NVIDIA's driver ``"pinned"``, host memory that
                devices copy from and to at full speed; ``"cuda"``, device
                memory, which has ``__cuda_array_interface__`` instead of a
                buffer; ``"cuda-managed"``, which has both.
            device: its number; None: that of the current context, or 0.

        Raises:
            UCXNoMemory: there is not so much, or the system has no segment
                left, and which limit that is.
            ValueError: no such kind or device, no driver; ``nbytes`` negative.
        """
        if nbytes < 0:
            raise ValueError(f"nbytes is {nbytes}")
        context = _context.get_context()
        return cls._added(cls(context, nbytes=int(nbytes), kind=kind, device=device))

    @classmethod
    def register(cls, buffer: Any) -> Self:
        """Let peers reach ``buffer``, which is held until ``close()``.

        Their operations are executed by this process, when its event loop
        runs. A read-only buffer gives read-only memory.

        Args:
            buffer: contiguous host or device memory, any dtype.

        Raises:
            TypeError, ValueError: no buffer, not contiguous.
        """
        return cls._added(cls(_context.get_context(), buffer=buffer))

    @classmethod
    def _added(cls, memory: Self) -> Self:
        _context.memories.add(memory)
        return memory
