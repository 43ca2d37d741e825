# SPDX-License-Identifier: BSD-3-Clause
"""What messages of many buffers carry."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from . import _ext
from .exceptions import UCXError

_PICKLE = b"pickle"  # the header of a pickled object


class _Lane(Protocol):
    """What ``Frames`` needs of the class it is mixed into."""

    def send_frames(
        self, buffers: Sequence[Any], header: bytes = b""
    ) -> _ext.Request[None]: ...
    def recv_frames(
        self, allocator: Callable[[int], Any] | None = None
    ) -> _ext.Request[tuple[bytes, list[Any]]]: ...


class Frames:
    """Objects of several buffers, each as one message of frames."""

    __slots__ = ()

    def send_multi(self: _Lane, buffers: Sequence[Any]) -> _ext.Request[None]:
        """Send several buffers as one message; ``recv_multi`` receives them."""
        return self.send_frames(buffers)

    async def recv_multi(
        self: _Lane, allocator: Callable[[int], Any] | None = None
    ) -> list[Any]:
        """The buffers of the next message, as ``recv_frames`` without header."""
        _, frames = await self.recv_frames(allocator)
        return frames

    def send_pickle(self: _Lane, obj: object) -> _ext.Request[None]:
        """Send ``obj`` by pickle protocol 5; awaitable.

        Its large buffers, of NumPy arrays for example, travel without a copy
        and are held until then: do not change them before.

        Raises: what pickling ``obj`` raises.
        """
        buffers: list[pickle.PickleBuffer] = []
        data = pickle.dumps(obj, protocol=5, buffer_callback=buffers.append)
        frames = [data, *(buffer.raw() for buffer in buffers)]
        return self.send_frames(frames, _PICKLE)

    async def recv_pickle(self: _Lane, *, allow_pickle: bool = False) -> Any:
        """Receive what ``send_pickle`` has sent.

        Args:
            allow_pickle: must be True. Whoever may send pickled data can have
                this process run any code: ask only for what comes from peers
                that you trust.

        Raises:
            ValueError: ``allow_pickle`` is not True; nothing is received.
            UCXError: the next message of frames is no pickled object; it is
                consumed.
            Otherwise as ``recv_frames``, and what unpickling raises.
        """
        if allow_pickle is not True:
            raise ValueError(
                "recv_pickle() runs what the peer sends: "
                "allow_pickle=True says that you trust it"
            )
        header, frames = await self.recv_frames()
        if header != _PICKLE or not frames:
            raise UCXError("the message is no pickled object")
        return pickle.loads(frames[0], buffers=frames[1:])
