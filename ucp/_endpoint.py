# SPDX-License-Identifier: BSD-3-Clause
"""A connection to one peer."""

from __future__ import annotations

from collections.abc import Callable

from . import _context, _ext
from ._callback import check_callable
from ._closing import AsyncClosing
from ._lane import Channel, Frames, Objects
from ._peer import Peer, PeerInfo
from .compat.ucxpy.faces import ContextFace, EndpointFace, EndpointTag
from .exceptions import (
    UCXCloseError,
    UCXConnectionReset,
    UCXError,
    UCXTimeout,
    UCXWorkerGone,
)

_CONTROL = 65535


# The C class is the first base: a call of one of its methods searches the bases
# in order until it finds that class.
class Endpoint(_ext.Endpoint, Objects, Frames, AsyncClosing):
    """A connection to one peer, made by create_endpoint() and its like.

    ``send`` and ``recv`` and everything else on the way of a message are
    methods of the base class, written in C. Belongs to the event loop it was
    made in. Dropping the last reference closes it in the background: what
    ``send`` has returned for still arrives.

    ``async with`` closes it at the end of the block, as ``close()`` does. If an
    exception leaves the block, a cancellation for example, nothing is waited
    for: that exception comes out at once, and the close goes on in the
    background, no longer than ``Config.close_timeout``.
    """

    __slots__ = ("_close_after", "_has_error_handling")

    _has_error_handling: bool

    def __repr__(self) -> str:
        peer = self.peer_address
        where = f" to {peer[0]}:{peer[1]}" if peer else ""
        state = self.state
        if state == "open" and self.pending_bytes:
            state += f", {self.pending_bytes} bytes on their way"
        return f"<ucp.Endpoint {self.uid}{where}, {state}>"

    @property
    def _ep(self) -> EndpointFace:
        return EndpointFace(self, getattr(self, "_has_error_handling", True))

    @property
    def _ctx(self) -> ContextFace:
        return ContextFace(self.worker)

    @property
    def _tags(self) -> dict[str, int]:
        return {"msg_recv": EndpointTag.of(self)}

    # A coroutine function, as in ucx-py, where the base has a request.
    async def close(  # type: ignore[override]
        self, timeout: float | None = None
    ) -> None:
        """Close gracefully: the peer can read all that was sent.

        Receives pending here raise UCXPeerClosed. Fine to call when the
        endpoint is closed already, by whichever side.

        Args:
            timeout: seconds to wait for the peer, then close by force;
                default ``Config.close_timeout``.

        Raises:
            UCXTimeout: closed by force; ``unsent_bytes`` counts the bytes of
                sends that had not completed.

        When cancelled the close goes on in the background.
        """
        failure = self.error
        if failure is not None:
            # The peer cannot be told. Programs of ucx-py look for this text.
            error = UCXError(f"<[Send shutdown] ep: {self.uid}>: {failure}")
            _context.logger.debug("%r", error)
        try:
            await super().close(timeout)
        except UCXTimeout as exc:
            exc.unsent_bytes = self._unsent_bytes
            raise
        except (UCXConnectionReset, UCXWorkerGone) as exc:
            # The peer has gone, which closes the endpoint as well. Sends that
            # failed with it have raised.
            _context.logger.debug("%r: closed by a failure: %s", self, exc)

    def _close_soon(self) -> None:
        """Start to close; a failure of the close is only logged."""
        self.worker._check()  # in another thread it would never start
        request = super().close()
        if not request.done():
            request.add_done_callback(self._log_close)

    def _log_close(self, request: _ext.Request[None]) -> None:
        exc = request.exception()
        if exc is not None:
            _context.logger.debug("%r: closed by a failure: %s", self, exc)

    def channel(self, number: int) -> Channel:
        """The channel ``number``, 1 to 65535; both sides name the same.

        Any number of objects may name one channel; making them costs
        nothing on the wire. The first send on one channel more than the peer
        accepts (its ``Config.channels_max``) raises ``UCXError``.

        Raises:
            ValueError: no such number.
        """
        return Channel(self, number)

    @property
    def control(self) -> Channel:
        """Channel 65535: by agreement for a program's own control messages.

        They do not queue behind the program's data.
        """
        return Channel(self, _CONTROL)

    @property
    def peer(self) -> Peer:
        """Who is at the other end; what is not known is None."""
        host, port = (self.peer_address or (None, None))[:2]
        pid, version = self._peer_id or (None, None)
        return Peer(host, port, pid, version)

    async def peer_info(self) -> PeerInfo:
        """Ask the peer for its version, host, memory, load and transports.

        Its library answers whenever its worker makes progress. A peer that
        never does is waited for: use a timeout.

        Raises:
            UCXProtocolError: the answer is no such information.
            Otherwise as ``recv``.
        """
        return PeerInfo.parse(await self._peer_info())

    def close_after_n_recv(self, n: int, count_from_ep_creation: bool = False) -> None:
        """Close once ``n`` messages have been received.

        Args:
            n: messages to come, or
            count_from_ep_creation: messages since the endpoint was made.

        Raises:
            UCXError: called twice, or more have been received.
        """
        count = self._recv_count
        if not count_from_ep_creation:
            n += count
        earlier = getattr(self, "_close_after", None)
        if earlier is not None:
            raise UCXError(
                f"close_after_n_recv has already been set to: {earlier} (abs)"
            )
        if n < count:
            raise UCXError(
                f"`n` cannot be less than current recv_count: {n} (abs) < {count} (abs)"
            )
        self._close_after_recv(n)
        self._close_after = n

    def set_close_callback(self, callback_func: Callable[[], object] | None) -> None:
        """Call ``callback_func()`` once when the endpoint has closed.

        Whoever closed it, and also when it failed or its last reference was
        dropped. Messages that have arrived before stay readable. Replaces an
        earlier callback. On a closed endpoint it is called soon.

        Raises:
            TypeError: it cannot be called.
        """
        check_callable("callback_func", callback_func)
        if callback_func is None or not self.closed():
            self._on_close = callback_func
        elif self.worker.loop is not None:
            self.worker.loop.call_soon(callback_func)
        else:
            callback_func()

    def cuda_support(self) -> bool:
        """True if UCX may use a CUDA transport."""
        return _context.cuda_support()

    def get_ucp_worker(self) -> int:
        """UCX's ``ucp_worker_h``."""
        return self.worker.handle

    def get_ucp_endpoint(self) -> int:
        """UCX's ``ucp_ep_h``; 0 once closed."""
        return self._handle

    def ucx_info(self) -> str:
        """UCX's own description of the endpoint; ours once it is closed."""
        try:
            return self._info()
        except UCXCloseError:
            return f"# {self!r}\n"
