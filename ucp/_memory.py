"""Memory that peers read and write: the owner's side."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from . import _context, _ext


def check_kind(kind: str) -> None:
    """ValueError unless memory of that kind can be allocated."""
    if kind != "host":
        raise ValueError(f"kind is 'host', not {kind!r}")


class Memory(_ext.Memory):
    """Memory that peers reach by its ``key``: see ``Endpoint.remote``.

    Made by ``allocate`` or ``register``. It has the buffer protocol and
    ``__array_interface__``, so ``np.asarray(memory)`` and
    ``memoryview(memory)`` are the memory itself. Peers have access until
    ``close()``, or until the last reference is dropped; views and transfers
    under way keep the bytes beyond that. Not bound to a thread or event loop.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{self.nbytes} bytes"
        readonly = ", read-only" if self.readonly else ""
        return f"<ucp.Memory of {state}{readonly}>"

    @classmethod
    def allocate(cls, nbytes: int, kind: str = "host") -> Self:
        """Allocate ``nbytes`` bytes of zeros.

        Peers on this host, of the same user, map such memory: their
        operations are loads and stores, in which this process takes no part.

        Raises:
            UCXNoMemory: there is not so much.
            ValueError: ``kind`` is not ``"host"``, or ``nbytes`` negative.
        """
        check_kind(kind)
        if nbytes < 0:
            raise ValueError(f"nbytes is {nbytes}")
        return cls._added(cls(_context.get_context(), nbytes=int(nbytes)))

    @classmethod
    def register(cls, buffer: Any) -> Self:
        """Let peers reach ``buffer``, which is held until ``close()``.

        Their operations are executed by this process, when its event loop
        runs. A read-only buffer gives read-only memory.

        Args:
            buffer: contiguous host memory, any dtype.

        Raises:
            TypeError, ValueError: no buffer, not contiguous.
            UCXError: not host memory.
        """
        return cls._added(cls(_context.get_context(), buffer=buffer))

    @classmethod
    def _added(cls, memory: Self) -> Self:
        _context.memories.add(memory)
        return memory

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
