# SPDX-License-Identifier: BSD-3-Clause
"""Memory of a peer, reached by calls that wait."""

# mypy: disable-error-code="empty-body, no-any-return"
# Methods that are @forwarded have no code. What others give is that of the method of
# their name.

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

from .. import _ext
from .._core import worker as _worker
from ._forward import forwarded
from ._runner import call, submit


class RemoteMemory:
    """Memory of the peer: ``Endpoint.remote()`` makes it. Its calls do the same as
    those of ``ucp.RemoteMemory``, and block."""

    def __init__(
        self, endpoint: Any, worker: _worker.Worker, remote: _ext.RemoteMemory
    ) -> None:
        self.endpoint = endpoint
        self._worker = worker
        self._async = remote
        self._wait_for: Callable[..., Any] = partial(call, worker)

    def __repr__(self) -> str:
        return f"<ucp.sync.RemoteMemory of {self._async!r}>"

    @forwarded
    def put(
        self, buffer: Any, offset: int = 0, *, timeout: float | None = None
    ) -> None:
        """Write; returns when the memory has changed."""

    @forwarded
    def get(
        self, buffer: Any, offset: int = 0, *, timeout: float | None = None
    ) -> None:
        """Read into ``buffer``."""

    def put_many(self, *pieces: Any, timeout: float | None = None) -> None:
        """Write pieces: pairs ``(buffer, offset)``, or one buffer and arrays."""
        self._wait_for(timeout, self._async.put_many, *pieces)

    def get_many(self, *pieces: Any, timeout: float | None = None) -> None:
        """Read pieces: pairs ``(buffer, offset)``, or one buffer and arrays."""
        self._wait_for(timeout, self._async.get_many, *pieces)

    def put_signal(
        self,
        buffer: Any,
        offset: int,
        signal: int,
        value: int,
        op: Literal["set", "add"] = "set",
        signal_memory: RemoteMemory | None = None,
        *,
        timeout: float | None = None,
    ) -> None:
        """Write, then set or add to the number at the offset ``signal``."""
        number = None if signal_memory is None else signal_memory._async
        put = self._async.put_signal
        self._wait_for(timeout, put, buffer, offset, signal, value, op, number)

    @forwarded
    def add(
        self, offset: int, value: int, bits: int = 64, *, timeout: float | None = None
    ) -> None:
        """Add to the number of ``bits`` bits."""

    @forwarded
    def and_(
        self, offset: int, value: int, bits: int = 64, *, timeout: float | None = None
    ) -> None:
        """Combine the number by "and"."""

    @forwarded
    def or_(
        self, offset: int, value: int, bits: int = 64, *, timeout: float | None = None
    ) -> None:
        """Combine the number by "or"."""

    @forwarded
    def xor(
        self, offset: int, value: int, bits: int = 64, *, timeout: float | None = None
    ) -> None:
        """Combine the number by "exclusive or"."""

    @forwarded
    def fetch_add(
        self, offset: int, value: int, bits: int = 64, *, timeout: float | None = None
    ) -> int:
        """``add()`` that returns the previous value."""

    @forwarded
    def fetch_and(
        self, offset: int, value: int, bits: int = 64, *, timeout: float | None = None
    ) -> int:
        """``and_()`` that returns the previous value."""

    @forwarded
    def fetch_or(
        self, offset: int, value: int, bits: int = 64, *, timeout: float | None = None
    ) -> int:
        """``or_()`` that returns the previous value."""

    @forwarded
    def fetch_xor(
        self, offset: int, value: int, bits: int = 64, *, timeout: float | None = None
    ) -> int:
        """``xor()`` that returns the previous value."""

    @forwarded
    def swap(
        self, offset: int, value: int, bits: int = 64, *, timeout: float | None = None
    ) -> int:
        """Set the number; return the previous value."""

    @forwarded
    def cswap(
        self,
        offset: int,
        compare: int,
        value: int,
        bits: int = 64,
        *,
        timeout: float | None = None,
    ) -> int:
        """Set the number if it is ``compare``; return the previous value."""

    @forwarded
    def flush(self, *, timeout: float | None = None) -> None:
        """Wait until the operations on this memory have reached the peer."""

    def view(self, offset: int = 0, nbytes: int | None = None) -> memoryview:
        """The memory itself, if it is ``mapped``."""
        return submit(self._worker, self._async.view, offset, nbytes)

    def notify(self) -> None:
        """Tell the owner, if it waits, that something was stored through a view."""
        submit(self._worker, self._async.notify)

    def close(self) -> None:
        """End the access. A second call does nothing."""
        if not self._worker.closed():
            submit(self._worker, self._async.close)

    def closed(self) -> bool:
        """True once the access has ended."""
        return self._async.closed()

    @property
    def nbytes(self) -> int:
        """Length in bytes."""
        return self._async.nbytes

    @property
    def readonly(self) -> bool:
        """True if it can only be read."""
        return self._async.readonly

    @property
    def mapped(self) -> bool:
        """True if this process has it mapped, so that there is a ``view()``."""
        return self._async.mapped
