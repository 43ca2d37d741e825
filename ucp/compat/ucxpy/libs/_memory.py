# SPDX-License-Identifier: BSD-3-Clause
"""Memory that peers read and write."""

from __future__ import annotations

import io
import struct
from typing import TYPE_CHECKING, Any, Self, cast

from .... import _ext
from ...._ext import call_when_done
from .arr import Array, asarray

if TYPE_CHECKING:
    from ._endpoint import Callback, UCXEndpoint
    from ._worker import UCXContext, UCXWorker

# A packed key contains the address of the memory and its key.
_WHERE = struct.Struct("<QQ")


class UCXMemoryHandle(_ext.Memory):
    """Memory that peers access by a key, until the last reference is dropped."""

    @classmethod
    def alloc(cls, ctx: UCXContext, size: int) -> Self:
        """Allocate ``size`` bytes, which are zero; ``address`` is their address."""
        return cls(ctx, nbytes=size)

    @classmethod
    def map(cls, ctx: UCXContext, mem: Any) -> Self:
        """Give peers access to the memory of ``mem``, which is referenced."""
        return cls(ctx, buffer=mem)

    @property
    def length(self) -> int:
        """Bytes."""
        return self.nbytes

    def pack_rkey(self) -> PackedRemoteKey:
        """Return the key for ``UCXEndpoint.unpack_rkey`` of a peer."""
        return PackedRemoteKey.from_mem_handle(self)


class PackedRemoteKey(bytes):
    """The key of a memory, to be sent by any means."""

    @classmethod
    def from_buffer(cls, buffer: Any) -> Self:
        """The key whose bytes are in ``buffer``."""
        return cls(buffer)

    @classmethod
    def from_mem_handle(cls, mem: UCXMemoryHandle) -> Self:
        """The key of ``mem``."""
        return cls(_WHERE.pack(mem.address, mem.nbytes) + mem.key)

    @property
    def key(self) -> int:
        """Address of the bytes of the key."""
        return Array(bytes(self)).ptr

    @property
    def length(self) -> int:
        """Number of bytes of the key."""
        return len(self)


class UCXRkey:
    """A key of the peer, opened on an endpoint.

    Raises:
        UCXError: the bytes are not a key, or the key belongs to another process.
    """

    def __init__(self, ep: UCXEndpoint, rkey: PackedRemoteKey | Any) -> None:
        packed = bytes(rkey)
        if len(packed) < _WHERE.size:
            raise ValueError(f"a packed key of {len(packed)} bytes is too short")
        self._ep = ep
        self._base, self._length = _WHERE.unpack_from(packed)
        self._remote = ep.remote(packed[_WHERE.size :])

    @property
    def ep(self) -> UCXEndpoint:
        """The endpoint."""
        return self._ep

    def close(self) -> None:
        """End the access: no further operations are possible."""
        self._remote.close()


class RemoteMemory:
    """A range of the peer's memory.

    Args:
        rkey: the key of the memory.
        base: address of the first byte of the range, in the peer's process.
        length: number of bytes.

    ``put_nb`` and ``get_nb`` call back or return None, as all operations do.
    ``put_nbi`` and ``get_nbi`` return True if they are done; otherwise they are done
    after a flush of the endpoint or worker. They raise IndexError for bytes out of
    the range.
    """

    def __init__(self, rkey: UCXRkey, base: int, length: int) -> None:
        self._rkey = rkey
        self._base = base
        self._length = length

    def put_nb(
        self,
        memory: Any,
        cb_func: Callback,
        cb_args: tuple[Any, ...] | None = None,
        cb_kwargs: dict[str, Any] | None = None,
        offset: int = 0,
        size: int = 0,
    ) -> _ext.CoroutineRequest[Any] | None:
        """Write ``size`` bytes of ``memory``, 0 for all, at ``offset``."""
        request = self._start(self._rkey._remote.put, memory, offset, size)
        return call_when_done(request, cb_func, cb_args, cb_kwargs, "put_nb")

    def get_nb(
        self,
        memory: Any,
        cb_func: Callback,
        cb_args: tuple[Any, ...] | None = None,
        cb_kwargs: dict[str, Any] | None = None,
        offset: int = 0,
        size: int = 0,
    ) -> _ext.CoroutineRequest[Any] | None:
        """Read ``size`` bytes, 0 for all of ``memory``, from ``offset``."""
        request = self._start(self._rkey._remote.get, memory, offset, size)
        return call_when_done(request, cb_func, cb_args, cb_kwargs, "get_nb")

    def put_nbi(self, memory: Any, size: int = 0, offset: int = 0) -> bool:
        """``put_nb`` without a callback."""
        return _is_done(self._start(self._rkey._remote.put, memory, offset, size))

    def get_nbi(self, memory: Any, size: int = 0, offset: int = 0) -> bool:
        """``get_nb`` without a callback."""
        return _is_done(self._start(self._rkey._remote.get, memory, offset, size))

    def _start(
        self, operation: Any, memory: Any, offset: int, size: int
    ) -> _ext.CoroutineRequest[None]:
        array = asarray(memory)
        size = size or array.nbytes
        if offset < 0 or size < 0 or offset + size > self._length:
            raise IndexError("Out of bounds in UCX RMA interface")
        part = array if size == array.nbytes else memoryview(array.obj).cast("B")[:size]
        at = self._base - self._rkey._base + offset
        return cast("_ext.CoroutineRequest[None]", operation(part, at))


def _is_done(request: _ext.Request[None]) -> bool:
    if not request.done():
        return False
    request.result()
    return True


class UCXIO(io.RawIOBase):
    """A range of the peer's memory as a file; each call waits.

    Args:
        dest: address of the first byte, in the peer's process.
        length: number of bytes.
        rkey: the key of the memory.

    A position outside of the range is moved to its nearest end.
    """

    def __init__(self, dest: int, length: int, rkey: UCXRkey) -> None:
        super().__init__()
        self._memory = RemoteMemory(rkey, dest, length)
        self._worker = cast("UCXWorker", rkey.ep.worker)
        self._length = length
        self._position = 0

    def seek(self, pos: int, whence: int = io.SEEK_SET) -> int:
        """Move to ``pos``, relative to ``whence``; return the position."""
        origins = {
            io.SEEK_SET: 0,
            io.SEEK_CUR: self._position,
            io.SEEK_END: self._length,
        }
        if whence not in origins:
            raise ValueError(f"unknown whence: {whence!r}")
        self._position = max(0, min(origins[whence] + pos, self._length))
        return self._position

    def readinto(self, buff: Any) -> int:
        """Read as many bytes as fit; return their number."""
        return self._move(self._memory.get_nb, buff)

    def write(self, buff: Any) -> int:
        """Write as many bytes as fit; return their number."""
        return self._move(self._memory.put_nb, buff)

    def _move(self, operation: Any, buff: Any) -> int:
        view = memoryview(buff).cast("B")
        view = view[: self._length - self._position]
        if len(view) == 0:
            return 0
        outcome: list[BaseException | None] = []
        request = operation(
            view, lambda _, exc: outcome.append(exc), None, None, self._position
        )
        while request is not None and not outcome:
            self._worker.progress()
        if outcome and outcome[0] is not None:
            raise outcome[0]
        self._position += len(view)
        return len(view)

    def flush(self) -> None:
        """Do nothing: every write has been completed."""

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True
