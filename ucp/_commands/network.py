# SPDX-License-Identifier: BSD-3-Clause
"""doctor: the addresses of this host."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
from collections.abc import Iterator

from .._core import resolve
from .finding import Findings, note, ok, problem

_RANGE = "UCX_TCP_PORT_RANGE"


def check() -> Findings:
    """Look at addresses, and at which of them peers are told."""
    found = []
    for _, name in socket.if_nameindex():
        for family in (socket.AF_INET, socket.AF_INET6):
            try:
                found.append(f"{name} {resolve.get_address(name, family=family)}")
            except OSError:
                continue
    yield ok("network", f"Addresses of this host: {', '.join(found) or 'none'}")
    yield from _told()
    yield from _host_name()


def ports(needed: int) -> Findings:
    """Has UCX_TCP_PORT_RANGE a port for each of so many workers?"""
    try:
        numbers = [int(text) for text in os.environ.get(_RANGE, "0").split("-")]
    except ValueError:
        return
    if numbers == [0]:
        return
    free = list(itertools.islice(_free(numbers[0], numbers[-1]), needed))
    if len(free) < needed:
        yield problem(
            "network",
            f"{_RANGE}={os.environ[_RANGE]} has {len(free)} free ports, and doctor's "
            f"workers need {needed}: with none, a worker raises UCXBusy.",
            "Make the range larger: every process, clients too, takes a port for each "
            "of its workers.",
        )


def _free(first: int, last: int) -> Iterator[int]:
    """The ports of a range at which nobody listens, at any address."""
    for port in range(first, min(last, 65535) + 1):
        with contextlib.suppress(OSError), socket.socket() as sock:
            sock.bind(("", port))
            yield port


def _told() -> Findings:
    """What ucp.get_address() gives, which programs tell their peers."""
    chosen = os.environ.get("UCXPY_IFNAME")
    try:
        address = resolve.get_address()
    except OSError as exc:
        yield note(
            "network",
            f"UCXPY_IFNAME={chosen} names no interface with an address: {exc}.",
            "Name another interface, or unset it.",
        )
    except RuntimeError:
        yield note(
            "network",
            "No interface is named ib*, eth* or en*, so ucp.get_address() raises.",
            "Name the interface: UCXPY_IFNAME=NAME, or ucp.get_address('NAME').",
        )
    else:
        by = f" (UCXPY_IFNAME={chosen})" if chosen is not None else ""
        yield ok("network", f"Peers are told {address} by ucp.get_address(){by}")


def _host_name() -> Findings:
    name = socket.gethostname()
    try:
        addresses = {info[4][0] for info in socket.getaddrinfo(name, None)}
    except OSError as exc:
        yield note(
            "network",
            f"The name of this host, {name}, has no address: {exc.strerror}. Peers "
            "that are told the name do not find it.",
            "Enter it into /etc/hosts or the name server, or tell peers an address.",
        )
        return
    listed = ", ".join(sorted(map(str, addresses)))
    if all(str(each).startswith(("127.", "::1")) for each in addresses):
        yield note(
            "network",
            f"The name of this host, {name}, means {listed}: here it works, on other "
            "hosts it means themselves, if it is in their /etc/hosts, too.",
            "Tell other hosts the address that ucp.get_address() returns.",
        )
    else:
        yield ok("network", f"The name of this host, {name}, means {listed}")
