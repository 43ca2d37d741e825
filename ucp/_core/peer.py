# SPDX-License-Identifier: BSD-3-Clause
"""Information about the peer of an endpoint."""

from __future__ import annotations

import json
from typing import Any, NamedTuple, Self

from ..exceptions import UCXProtocolError

# The exceptions of parsing an answer that has another form.
_NONSENSE = (ValueError, LookupError, TypeError, ArithmeticError, RecursionError)


class Peer(NamedTuple):
    """What the handshake has told this side about the peer.

    A field is None if it is not known.
    """

    host: str | None
    port: int | None
    pid: int | None
    version: str | None
    """Version of the peer's ``ucp``."""


class Memory(NamedTuple):
    """Memory of the peer in bytes; 0 where its system does not tell."""

    rss: int
    """Resident memory of the peer's process."""
    peak: int
    """Largest value of ``rss`` so far."""
    total: int
    """Memory of the peer's host."""
    available: int
    """Memory of the peer's host that is available."""


class Load(NamedTuple):
    """Load of the peer's worker."""

    endpoints: int
    """Number of its endpoints."""
    requests: int
    """Number of its pending operations."""
    unexpected_messages: int
    """Messages that have arrived and that no receive has asked for."""
    unexpected_bytes: int
    """Bytes of these messages."""


class PeerInfo(NamedTuple):
    """What a peer says about itself. None of it is verified."""

    version: str
    """Version of the peer's ``ucp``."""
    ucx_version: str
    """Version of the peer's UCX."""
    pid: int
    """Number of the peer's process."""
    host: str
    """Name of the peer's host."""
    memory: Memory
    worker: Load
    transports: list[tuple[str, str]]
    """The (transport, device) pairs by which the peer sends to this process."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the text that the peer has sent, which should be JSON."""
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
