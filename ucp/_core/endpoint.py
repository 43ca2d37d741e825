# SPDX-License-Identifier: BSD-3-Clause
"""A connection to one peer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

from .. import _ext
from ..exceptions import UCXCloseError, UCXError
from . import context
from .callback import check_callable
from .closing import AsyncClosing
from .log import logger
from .objects import Channel, Frames, Objects
from .peer import Peer, PeerInfo
from .statistics import EndpointStatistics, warn_of_stats
from .window import last_of

_CONTROL = 65535


# The C class is the first base: a call of one of its methods searches the bases
# in order until it finds that class.
class Endpoint(_ext.Endpoint, Objects, Frames, AsyncClosing):
    """A connection to one peer, made by connect() or by a listener.

    ``send``, ``recv`` and the other methods that move messages are inherited from
    the base class, which is written in C. An endpoint belongs to the event loop
    in which it was made. Dropping the last reference closes the endpoint in the
    background; messages whose ``send`` has returned still arrive.

    ``async with`` closes the endpoint at the end of the block, as ``close()``
    does. If an exception leaves the block, for example a cancellation, the block
    does not wait: the exception propagates immediately, and the close continues
    in the background for at most ``Config.close_timeout``.
    """

    __slots__ = ("_allows_pickle", "_close_after", "_has_error_handling")

    _allows_pickle: bool
    _has_error_handling: bool

    def __new__(cls, *args: object, **kwargs: object) -> Self:
        raise TypeError(
            "an Endpoint is made by await create_endpoint(host, port), or by a listener"
        )

    def __repr__(self) -> str:
        peer = self.peer_address
        where = f" to {peer[0]}:{peer[1]}" if peer else ""
        state = self.state
        if state == "open" and self.pending_bytes:
            state += f", {self.pending_bytes} bytes on their way"
        return f"<ucp.Endpoint {self.uid}{where}, {state}>"

    def close(self, timeout: float | None = None) -> _ext.CoroutineRequest[None]:
        """Close in agreement with the peer, which can read all that was sent;
        awaitable.

        Receives that are pending on this side raise UCXPeerClosed. Closing an
        endpoint that either side has closed already does nothing.

        A peer whose program computes, or is stopped, is not waited for once all
        that was sent lies in its queue. It is waited for while it has not asked
        for an announced message, has given no credit for a message, or its system
        has no room for all bytes. After a second a line of the logger says which.

        Args:
            timeout: seconds to wait for the peer before the endpoint is closed
                by force; default ``Config.close_timeout``.

        Raises:
            UCXTimeout: the endpoint was closed by force; the text says what the
                peer has not done, and the attribute ``unsent_bytes`` of the
                exception counts the bytes of sends that had not completed.

        When cancelled, the close continues in the background.
        """
        failure = self.error
        if failure is not None:
            # The peer cannot be told. Programs of ucx-py look for this text.
            error = UCXError(f"<[Send shutdown] ep: {self.uid}>: {failure}")
            logger.debug("%r", error)
        return super().close(timeout)

    def _close_soon(self) -> None:
        """Start to close; a failure of the close is only logged."""
        self.worker._check()  # in another thread it would never start
        request = super().close()
        if not request.done():
            request.add_done_callback(self._log_close)

    def _log_close(self, request: _ext.Request[None]) -> None:
        exc = request.exception()
        if exc is not None:
            logger.debug("%r: closed by a failure: %s", self, exc)

    def channel(self, number: int) -> Channel:
        """Return the channel ``number`` of this endpoint.

        Both sides use the same number to reach each other. Several objects may
        stand for one channel; making them sends nothing. If the peer does not
        accept one more channel (its ``Config.channels_max``), the first send on
        it raises ``UCXError``.

        Args:
            number: 1 to 65535.

        Raises:
            ValueError: the number is not in this range.
        """
        return Channel(self, number)

    def set_keep_last(self, count: int | None) -> None:
        """Keep only the newest messages of the endpoint that nobody has received.

        Earlier ones are dropped as newer ones come, whatever their tags are, and
        count as received for their sender: a slow reader gets the newest state and
        holds nobody up. Bytes of long messages that are dropped are not fetched.
        ``count`` bounds what is unread, and ``receive_messages`` does not.
        Those of other channels stay: ``Channel.set_keep_last``. Messages and
        messages of frames are counted apart. The peer need not know.
        ``statistics.dropped_messages`` says how many have been dropped.

        Args:
            count: so many are kept, 1 or more; None: all, as at first.

        Raises:
            TypeError, ValueError: the number is not an int of 1 or more.
        """
        self._keep_last(0, last_of(count))

    @property
    def control(self) -> Channel:
        """Channel 65535, by convention for control messages of the program.

        They do not wait behind the data that the program sends on the endpoint.
        """
        return Channel(self, _CONTROL)

    @property
    def peer(self) -> Peer:
        """Host, port, pid and version of the peer; None for what is not known."""
        host, port = (self.peer_address or (None, None))[:2]
        pid, version = self._peer_id or (None, None)
        return Peer(host, port, pid, version)

    @property
    def statistics(self) -> EndpointStatistics:
        """Messages and bytes that were sent and have come, and those that wait.

        Raises:
            UCXCloseError: its worker is closed.
            RuntimeError: the worker belongs to another thread.
        """
        return EndpointStatistics(**super().stats())

    def stats(self) -> dict[str, int]:
        """Deprecated: ``statistics.as_dict()``."""
        warn_of_stats()
        return super().stats()

    def peer_info(self) -> _ext.CoroutineRequest[PeerInfo]:
        """Ask the peer for its version, host, memory, load and transports; awaitable.

        The library of the peer answers when the peer's worker makes progress.
        The await lasts as long as that takes: use a timeout.

        Raises:
            UCXProtocolError: the answer cannot be understood.
            Otherwise as ``recv``.
        """
        return self._peer_info(PeerInfo.parse)

    def close_after_n_recv(self, n: int, count_from_ep_creation: bool = False) -> None:
        """Close the endpoint after ``n`` messages have been received.

        Args:
            n: number of messages.
            count_from_ep_creation: count from the first message of the endpoint;
                False: count from this call.

        Raises:
            UCXError: this was called before, or more than ``n`` messages have
                been received.
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

        It is called when either side closes the endpoint, when the endpoint fails,
        and when its last reference is dropped. Messages that arrived before can
        still be received. The callback replaces an earlier one. If the endpoint
        is closed already, the callback is called in the next turn of the loop.

        Raises:
            TypeError: ``callback_func`` is not callable.
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
        return context.cuda_support()

    def get_ucp_worker(self) -> int:
        """UCX's ``ucp_worker_h``."""
        return self.worker.handle

    def get_ucp_endpoint(self) -> int:
        """UCX's ``ucp_ep_h``; 0 once closed."""
        return self._handle

    def ucx_info(self) -> str:
        """UCX's description of the endpoint; of a closed one its ``repr``."""
        try:
            return self._info()
        except UCXCloseError:
            return f"# {self!r}\n"
