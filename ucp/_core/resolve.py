# SPDX-License-Identifier: BSD-3-Clause
"""Addresses of names, and of the network interfaces of this host."""

from __future__ import annotations

import asyncio
import fcntl
import numbers
import operator
import os
import re
import socket
import struct
from collections.abc import Callable, Iterable
from typing import Any, SupportsIndex

SockAddr = tuple[str, int] | tuple[str, int, int, int]

# Linux: <linux/sockios.h>, and the layout of struct ifreq.
_SIOCGIFADDR = 0x8915
_IFNAMSIZ = 16
_IFREQ_ADDR = slice(20, 24)

_LINK_LOCAL_SCOPE = 0x20
_LINK_LOCAL = ("fe8", "fe9", "fea", "feb")  # as getaddrinfo() writes them

_WILDCARDS = ("0.0.0.0", "::")


def check_port(port: SupportsIndex) -> int:
    """Return the port as an int; raise the exceptions of the socket module."""
    try:
        number = operator.index(port)
    except TypeError:
        raise TypeError(f"port must be an int, not {type(port).__name__}") from None
    if not 0 <= number <= 65535:
        raise OverflowError(f"port must be 0-65535, not {number}")
    return number


def host_and_port(host: str, port: int) -> str:
    """Return ``HOST:PORT``, or ``[HOST]:PORT`` if the host is an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def check_timeout(seconds: Any) -> None:
    """Raise TypeError if ``seconds`` is neither None nor a number."""
    if seconds is None or isinstance(seconds, numbers.Real):
        return
    advice = ""
    if hasattr(seconds, "total_seconds"):
        advice = ": give its total_seconds()"
    raise TypeError(f"a timeout is a number of seconds, not {seconds!r}{advice}")


def get_address(ifname: str | None = None, *, family: int = socket.AF_INET) -> str:
    """Return the address of a network interface, to which peers can connect.

    Args:
        ifname: name of the interface. None: the interface that the variable
            ``UCXPY_IFNAME`` of the environment names, else the first one with an
            address whose name begins with ``ib``, ``eth`` or ``en``, in this
            order.
        family: ``socket.AF_INET`` or ``socket.AF_INET6``.

    Raises:
        OSError: there is no interface of this name, or it has no address of this
            family.
        RuntimeError: no name was given, and no interface has such an address.
    """
    look_up = _LOOK_UP.get(family)
    if look_up is None:
        raise ValueError(f"expected AF_INET or AF_INET6, got family {family}")
    name = os.environ.get("UCXPY_IFNAME") if ifname is None else ifname
    if name is not None:
        return look_up(name)
    names = sorted(name for _, name in socket.if_nameindex())
    for prefix in ("ib", "eth", "en"):
        for candidate in names:
            if candidate.startswith(prefix):
                try:
                    return look_up(candidate)
                except OSError:
                    continue  # down, or without an address of this family
    raise RuntimeError(
        "no network interface named ib*, eth* or en* has an address; "
        "name one: get_address(ifname) or UCXPY_IFNAME"
    )


def _ipv4_address(ifname: str) -> str:
    name = ifname.encode()
    if len(name) >= _IFNAMSIZ:
        raise OSError(f"no such network interface: {ifname!r}")
    request = struct.pack("256s", name)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            answer = fcntl.ioctl(sock.fileno(), _SIOCGIFADDR, request)
        except OSError as exc:
            raise OSError(exc.errno, exc.strerror, ifname) from None
    return socket.inet_ntoa(answer[_IFREQ_ADDR])


def _ipv6_address(ifname: str) -> str:
    socket.if_nametoindex(ifname)  # OSError for a name that is none
    link_local = None
    with open("/proc/net/if_inet6", encoding="ascii") as table:
        for line in table:
            digits, _index, _prefix, scope, _flags, name = line.split()
            if name != ifname:
                continue
            address = socket.inet_ntop(socket.AF_INET6, bytes.fromhex(digits))
            if int(scope, 16) != _LINK_LOCAL_SCOPE:
                return address
            link_local = f"{address}%{ifname}"
    if link_local is None:
        raise OSError(f"network interface {ifname!r} has no IPv6 address")
    return link_local


_LOOK_UP: dict[int, Callable[[str], str]] = {
    socket.AF_INET: _ipv4_address,
    socket.AF_INET6: _ipv6_address,
}


def resolve_now(host: str, port: int, family: int = 0) -> list[SockAddr]:
    """Return the socket addresses of ``host``; may wait for a name server."""
    try:
        infos = socket.getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM)
    except socket.gaierror as exc:
        raise _with_host(exc, host) from None
    return [_sockaddr(info[4]) for info in infos]


async def resolve(host: str, port: int, family: int = 0) -> list[SockAddr]:
    """Return the socket addresses of ``host`` in the order in which to try them.

    A numeric address needs no thread; a name is resolved by the event loop.
    """
    try:
        infos = socket.getaddrinfo(
            host,
            port,
            family=family,
            type=socket.SOCK_STREAM,
            flags=socket.AI_NUMERICHOST,
        )
    except socket.gaierror:
        loop = asyncio.get_running_loop()
        try:
            infos = await loop.getaddrinfo(
                host, port, family=family, type=socket.SOCK_STREAM
            )
        except socket.gaierror as exc:
            raise _with_host(exc, host) from None
    return [_sockaddr(info[4]) for info in infos]


def is_reached(address: SockAddr, bound: Iterable[tuple[Any, ...]]) -> bool:
    """True if who connects to ``address`` reaches a socket bound to ``bound``."""
    for host, port, *_ in bound:
        if port == address[1] and (
            host == address[0] or (host in _WILDCARDS and _is_local(address))
        ):
            return True
    return False


def _is_local(address: SockAddr) -> bool:
    """True if the host of ``address`` is this one: the system lets it be bound."""
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        try:
            sock.bind((address[0], 0, *address[2:]))
        except OSError:
            return False
    return True


def _with_host(exc: socket.gaierror, host: str) -> socket.gaierror:
    """The same error with the host in its text, and what may be wrong with it."""
    advice = ""
    name = host.strip().removeprefix("tcp://").removeprefix("ucx://")
    plain = re.fullmatch(r"\[(.*)\](?::\d+)?|([^:]*):\d+", name)
    if plain is not None:
        name = plain[1] or plain[2]
    if name and name != host:
        advice = f"; a host is given without scheme, port and brackets: {name!r}"
    return socket.gaierror(exc.errno, f"host {host!r}: {exc.strerror}{advice}")


def _sockaddr(address: tuple[object, ...]) -> SockAddr:
    """Convert an address that getaddrinfo() has returned."""
    match address:
        case (str(host), int(port)):
            return host, port
        case (str(host), int(port), int(flow), int(scope)):
            if scope == 0 and host.startswith(_LINK_LOCAL):
                raise ValueError(
                    f"{host!r} is a link-local address: say of which interface, "
                    f"its scope, as in '{host}%eth0'"
                )
            return host, port, flow, scope
    raise ValueError(f"not an internet address: {address!r}")
