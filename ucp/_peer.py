# SPDX-License-Identifier: BSD-3-Clause
"""Who is at the other end of an endpoint."""

from __future__ import annotations

import json
from typing import Any, NamedTuple, Self

from .exceptions import UCXProtocolError

# What parsing an answer raises that is not what was asked for.
_NONSENSE = (ValueError, LookupError, TypeError, ArithmeticError, RecursionError)


class Peer(NamedTuple):
    """What the handshake has told; None where it has not."""

    host: str | None
    port: int | None
    pid: int | None
    version: str | None
    """Of its ucp."""


class Memory(NamedTuple):
    """Bytes; 0 where the peer's system does not say."""

    rss: int
    """Resident in its process."""
    peak: int
    """The most that were."""
    total: int
    """Of its host."""
    available: int


class Load(NamedTuple):
    """What its worker has to do."""

    endpoints: int
    requests: int
    unexpected_messages: int
    """Arrived, and no receive has asked for them."""
    unexpected_bytes: int


class PeerInfo(NamedTuple):
    """A peer's own account; it may be wrong."""

    version: str
    """Of its ucp."""
    ucx_version: str
    pid: int
    host: str
    """Its name."""
    memory: Memory
    worker: Load
    transports: list[tuple[str, str]]
    """The (transport, device) pairs that it uses to reach us."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """From the JSON text that the peer sent, whatever it is."""
        try:
            values = json.loads(text)
            return cls(
                version=str(values["umx"]),
                ucx_version=str(values["ucx"]),
                pid=int(values["pid"]),
                host=str(values["host"]),
                memory=Memory(**_numbers(values["memory"], Memory._fields)),
                worker=Load(**_numbers(values["worker"], Load._fields)),
                transports=[(str(a), str(b)) for a, b in values["transports"]],
            )
        except _NONSENSE as exc:
            raise UCXProtocolError(
                f"the peer's information makes no sense: {text!r}"
            ) from exc


def _numbers(values: dict[str, Any], names: tuple[str, ...]) -> dict[str, int]:
    return {name: int(values[name]) for name in names}
