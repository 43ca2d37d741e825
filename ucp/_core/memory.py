# SPDX-License-Identifier: BSD-3-Clause
"""Memory that peers may read and write."""

from __future__ import annotations

from typing import Any, Self

from .. import _ext
from . import context as _context
from .closing import Closing


class Memory(Closing, _ext.Memory):
    """Memory that peers may read and write, made by allocate() or register().

    A peer uses the ``key`` of the memory: see ``Endpoint.remote``. The memory has
    the buffer protocol and ``__array_interface__``, so ``np.asarray(memory)`` and
    ``memoryview(memory)`` give access to the memory itself. Peers have access until
    ``close()``, or until the last reference is dropped. The bytes exist as long as
    a view of them or an operation on them does. A memory may be used in any thread
    and event loop.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        state = "closed" if self.closed() else f"{self.nbytes} bytes"
        readonly = ", read-only" if self.readonly else ""
        return f"<ucp.Memory of {state}{readonly}>"

    @classmethod
    def allocate(
        cls,
        nbytes: int,
        kind: str = "host",
        device: int | None = None,
        *,
        readonly: bool = False,
    ) -> Self:
        """Allocate ``nbytes`` bytes, which are zero.

        Processes of the same user on this host map memory of the kind ``"host"``:
        their operations are loads and stores, in which this process takes no
        part.

        The memory is a segment of the system then, of which a host has a few
        thousand for all its processes. A ``Heap`` allocates many small memories
        in few segments.

        Args:
            nbytes: number of bytes, 0 or more.
            kind: ``"host"``, or one of the kinds of NVIDIA's driver. ``"pinned"``
                is host memory from and to which devices copy at full speed.
                ``"cuda"`` is device memory; it has ``__cuda_array_interface__``
                instead of the buffer protocol. ``"cuda-managed"`` has both.
            device: number of the device; None: the device of the current context,
                or 0.
            readonly: this process may write the memory, and peers only read it:
                they map it for reading, and operations that write are refused.
                Only memory of the kind ``"host"`` can be so.

        Raises:
            UCXNoMemory: there is not enough memory, or the system has no segment
                left; the error names the limit.
            ValueError: the kind or the device does not exist, there is no driver,
                ``nbytes`` is negative, or the kind cannot be read-only.
        """
        if nbytes < 0:
            raise ValueError(f"nbytes is {nbytes}")
        context = _context.get_context()
        memory = cls(
            context, nbytes=int(nbytes), kind=kind, device=device, readonly=readonly
        )
        return cls._added(memory)

    @classmethod
    def register(cls, buffer: Any) -> Self:
        """Give peers access to ``buffer``, which is referenced until ``close()``.

        The operations of peers are executed by this process, while its event loop
        runs. A read-only buffer gives read-only memory.

        Args:
            buffer: contiguous host or device memory of any dtype.

        Raises:
            TypeError: ``buffer`` is not a buffer.
            ValueError: ``buffer`` is not contiguous.
        """
        return cls._added(cls(_context.get_context(), buffer=buffer))

    @classmethod
    def _added(cls, memory: Self) -> Self:
        _context.memories.add(memory)
        return memory
