# SPDX-License-Identifier: BSD-3-Clause
"""Listening and connecting."""

from __future__ import annotations

import asyncio
import time
from typing import cast

from ..exceptions import UCXNotConnected, UCXTimeout, UCXUnreachable
from . import context
from .callback import ErrorCallback, check_callable
from .closing import Opening
from .endpoint import Endpoint
from .lifecycle import current_worker, running_loop, workers_of_thread
from .listener import AcceptCallback, Acceptor, Listener
from .log import catch_up
from .resolve import SockAddr, check_port, check_timeout, resolve, resolve_now
from .window import Window, window_of
from .worker import Worker


def create_listener(
    callback_func: AcceptCallback | None = None,
    port: int | None = None,
    endpoint_error_handling: bool = True,
    *,
    host: str | None = None,
    backlog: int | None = None,
    on_error: ErrorCallback | None = None,
    connect_timeout: float | None = None,
    remote_close: bool = False,
    receive_messages: int | None = None,
    receive_bytes: int | None = None,
    allow_pickle: bool = False,
) -> Listener:
    """Listen for connections. Closing the listener ends that.

    A listener that the program drops continues to listen until its event loop
    ends, or until ``reset()``.

    Without a token (see ``init``), every process that reaches the port can
    connect; ``docs/security.md`` says what such a peer can do.

    Args:
        callback_func: function or coroutine function of one Endpoint, called in
            the event loop when the handshake of a peer is complete. The endpoint
            is closed when the last reference to it is dropped. None: the program
            takes the endpoints by ``accept()`` or ``async for``.
        port: the port; None or 0: a port that the system chooses.
        endpoint_error_handling: accepted for compatibility with ucx-py. Errors
            are always handled; with False the endpoint tells programs of ucx-py
            that it is alive.
        host: address on which to listen. None: all addresses of IPv4, and of IPv6
            if the system has it, with one port number. ``"::"`` is the same, but
            fails on a system without IPv6.
        backlog: number of connections that the system may queue, and of
            handshakes that may be in progress; None is 4096.
        on_error: called with each exception of the callback. The exception also
            goes to the loop's exception handler.
        connect_timeout: seconds that a peer has for its handshake; None is
            ``Config.connect_timeout``.
        remote_close: True if peers that were accepted may close the listener by
            ``Listener.close_remote``.
        receive_messages: messages that each peer may have sent on each channel and
            that the program has not received yet, however long they are; the next
            send waits. 1 is the least. None: as ``Config.credit_messages`` and
            ``credit_rndv`` say.
        receive_bytes: bytes of short messages that may be unread on all channels;
            longer ones stay with the sender. None: ``Config.credit_bytes``. Both
            numbers stay as they are; those of ``Config`` grow for a peer that is
            far away.
        allow_pickle: as for ``create_endpoint``, for each endpoint that is accepted.

    Raises:
        RuntimeError: no event loop is running, and this thread has no worker.
        TypeError: a callback is not callable, or the port is not an int.
        ValueError: a number of ``receive_`` is less than 1.
        OverflowError: the port is not in 0 to 65535.
        UCXBusy: the address is in use; without ``host``, the port is in use by
            IPv4 or IPv6.
        UCXUnreachable: the address is not one of this host.
        OSError: the name ``host`` has no address.
    """
    check_callable("callback_func", callback_func)
    check_callable("on_error", on_error)
    number = 0 if port is None else check_port(port)
    window = window_of(receive_messages, receive_bytes)
    if running_loop() is None and not workers_of_thread():
        raise RuntimeError(
            "create_listener() needs a running event loop, in which peers are "
            "accepted: call it in a coroutine, or use ucp.sync.listen(); a program "
            "that calls progress() itself calls current_worker() first"
        )
    worker = current_worker()
    catch_up()
    address = resolve_now(host, number)[0] if host else (None, number)

    def accepted(endpoint: Endpoint) -> None:
        endpoint._has_error_handling = endpoint_error_handling
        endpoint._allows_pickle = allow_pickle is True
        worker._endpoints.add(endpoint)

    acceptor = Acceptor(worker.loop, callback_func, on_error, accepted, worker._tasks)
    listener = cast(
        Listener,
        worker._listen(
            address,
            acceptor.accept,
            backlog=backlog,
            timeout=connect_timeout,
            on_remote_close=acceptor.end if remote_close else None,
            window=window,
        ),
    )
    listener._acceptor = acceptor
    listener._dropped = worker._dropped_listeners
    worker._listeners.add(listener)
    return listener


async def create_endpoint(
    ip_address: str,
    port: int,
    endpoint_error_handling: bool = True,
    *,
    connect_timeout: float | None = None,
    family: int = 0,
    local_host: str | None = None,
    allow_pickle: bool = False,
) -> Endpoint:
    """Connect to a listener. This is ucx-py's name for ``connect``.

    Args:
        ip_address: numeric address or name of the host; the addresses of a name
            are tried in order.
        port: port of the listener.
        endpoint_error_handling: accepted for compatibility with ucx-py. Errors
            are always handled; with False the endpoint tells programs of ucx-py
            that it is alive.
        connect_timeout: seconds for the whole call; None is the value that
            ``init`` was given, 5 by default.
        family: ``socket.AF_INET`` or ``AF_INET6`` to use addresses of this family
            only; 0: of both.
        local_host: numeric source address.
        allow_pickle: True: ``recv_pickle()`` of this endpoint and its channels need
            not be told that the peer is trusted. What a peer pickles can run any
            code in this process.

    Raises:
        TypeError: the port is not an int.
        OverflowError: the port is not in 0 to 65535.
        UCXNotConnected: no process listens on the port.
        UCXUnreachable: there is no route to the address.
        UCXTimeout: the peer has accepted the connection and does not answer.
        UCXProtocolError: the peer is not a listener of ucp; the text of the
            exception contains the bytes that the peer has sent.
        UCXRejected, UCXAuthError, UCXVersionError: the peer refuses.
        OSError: the name has no address.

    When cancelled, the connection attempt ends.
    """
    endpoint = await connect_within(
        ip_address, port, connect_timeout, family, local_host, allow_pickle, None
    )
    endpoint._has_error_handling = endpoint_error_handling
    return endpoint


async def connect_within(
    ip_address: str,
    port: int,
    connect_timeout: float | None,
    family: int,
    local_host: str | None,
    allow_pickle: bool,
    window: Window | None,
) -> Endpoint:
    """Connect, as ``create_endpoint`` does, with a window."""
    port = check_port(port)
    check_timeout(connect_timeout)
    if connect_timeout is None:
        connect_timeout = context.connect_timeout()
    deadline = time.monotonic() + connect_timeout
    worker = current_worker()
    catch_up()
    local = (await resolve(local_host, 0))[0] if local_host else None
    try:
        async with asyncio.timeout(connect_timeout):
            addresses = await resolve(ip_address, port, family)
    except TimeoutError:
        raise UCXTimeout(f"no answer about the name {ip_address!r}") from None
    failures: list[Exception] = []
    for left in range(len(addresses), 0, -1):
        # An address that does not answer leaves time for the next ones.
        timeout = max(deadline - time.monotonic(), 0) / left
        try:
            endpoint = await _connect(worker, addresses[-left], timeout, local, window)
            endpoint._has_error_handling = True
            endpoint._allows_pickle = allow_pickle is True
            return endpoint
        except (UCXNotConnected, UCXUnreachable, UCXTimeout) as exc:
            failures.append(exc)
    failure = failures.pop()
    for other in failures:
        failure.add_note(f"tried before: {other}")
    raise failure


def connect(
    host: str,
    port: int,
    *,
    timeout: float | None = None,
    family: int = 0,
    local_host: str | None = None,
    receive_messages: int | None = None,
    receive_bytes: int | None = None,
    allow_pickle: bool = False,
) -> Opening[Endpoint]:
    """Connect to a listener, by ``await`` or by ``async with``.

    ``async with ucp.connect(host, port) as ep`` closes the endpoint at the end of
    the block, as ``async with ep`` does. After ``ep = await ucp.connect(host,
    port)`` the program closes the endpoint.

    Args:
        host: numeric address or name of the host; the addresses of a name are
            tried in order.
        port: port of the listener.
        timeout: seconds for the whole call; None is the ``connect_timeout`` that
            ``init`` was given, 5 by default.
        family: ``socket.AF_INET`` or ``AF_INET6`` to use addresses of this family
            only; 0: of both.
        local_host: numeric source address.
        receive_messages: messages that the peer may have sent on each channel and
            that the program has not received yet, however long they are; the next
            send waits. 1 is the least. None: as ``Config.credit_messages`` and
            ``credit_rndv`` say.
        receive_bytes: bytes of short messages that may be unread on all channels;
            longer ones stay with the sender. None: ``Config.credit_bytes``. Both
            numbers stay as they are; those of ``Config`` grow for a peer that is
            far away.
        allow_pickle: as for ``create_endpoint``.

    Raises:
        TypeError, ValueError: a number of ``receive_`` is not an int of 1 or more.
        The exceptions of ``create_endpoint``, when the result is awaited or
        entered.
    """
    window = window_of(receive_messages, receive_bytes)
    connecting = connect_within(
        host, port, timeout, family, local_host, allow_pickle, window
    )
    return Opening(connecting, f"Connecting to {host}:{port}")


async def _connect(
    worker: Worker,
    address: SockAddr,
    timeout: float,
    local: SockAddr | None,
    window: Window | None,
) -> Endpoint:
    endpoint = cast(Endpoint, await worker._connect(address, timeout, local, window))
    worker._endpoints.add(endpoint)
    return endpoint
