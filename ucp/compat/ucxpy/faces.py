# SPDX-License-Identifier: BSD-3-Clause
"""Private attributes of endpoints that programs and tests of ucx-py use.

In ucx-py the messages of an endpoint are UCX's tagged messages, with one tag for
each endpoint. In ``ucp`` an endpoint has its own messages, so the objects here
ask the endpoint. ``ucp.Endpoint`` gets the attributes when this module is
imported, and does not know them itself.
"""

from __future__ import annotations

from typing import Self, SupportsIndex
from weakref import ref

from ... import _ext
from ..._core.endpoint import Endpoint
from ...exceptions import UCXConnectionReset, UCXError, UCXPeerClosed


def raise_on_error(ep: _ext.Endpoint) -> None:
    """Raise UCXConnectionReset if the peer has gone, UCXError if ``ep`` failed
    for another reason."""
    exc = ep.error
    if exc is None:
        return
    text = str(exc)
    text = f"Endpoint {ep._handle:#x} error: {text[:1].upper()}{text[1:]}"
    if isinstance(exc, UCXPeerClosed | UCXConnectionReset):
        raise UCXConnectionReset(text) from exc
    raise UCXError(text) from exc


class EndpointFace:
    """``ep._ep``"""

    def __init__(self, ep: _ext.Endpoint, has_error_handling: bool) -> None:
        self._ep = ep
        self._has_error_handling = has_error_handling

    @property
    def handle(self) -> int:
        """UCX's ``ucp_ep_h``."""
        return self._ep._handle

    def is_alive(self) -> bool:
        """False once closed or failed; always True without error handling."""
        return not self._has_error_handling or not self._ep.closed()

    def am_probe(self) -> bool:
        """True if an active message has arrived that no receive has taken."""
        return self._ep.am_probe() is not None

    def raise_on_error(self) -> None:
        """Raise the error of the endpoint, if it has one and handles errors."""
        if self._has_error_handling:
            raise_on_error(self._ep)


class EndpointTag(int):
    """The tag that stands for the messages of one endpoint."""

    _ep: ref[_ext.Endpoint]

    @classmethod
    def of(cls, ep: _ext.Endpoint) -> Self:
        """The tag of ``ep``."""
        self = cls(ep.uid)
        self._ep = ref(ep)
        return self

    def has_message(self) -> bool:
        """True if a message without a tag waits to be received."""
        ep = self._ep()
        return ep is not None and ep.probe(None) is not None


class WorkerFace:
    """``ep._ctx.worker``"""

    def __init__(self, worker: _ext.Worker) -> None:
        self._worker = worker

    def tag_probe(self, tag: SupportsIndex) -> bool:
        """True if a message has arrived that no receive has taken."""
        if isinstance(tag, EndpointTag):
            return tag.has_message()
        return self._worker.tag_probe(tag) is not None


class ContextFace:
    """``ep._ctx``"""

    def __init__(self, worker: _ext.Worker) -> None:
        self.worker = WorkerFace(worker)


def _ep(ep: Endpoint) -> EndpointFace:
    return EndpointFace(ep, getattr(ep, "_has_error_handling", True))


def _ctx(ep: Endpoint) -> ContextFace:
    return ContextFace(ep.worker)


def _tags(ep: Endpoint) -> dict[str, int]:
    return {"msg_recv": EndpointTag.of(ep)}


for _get in (_ep, _ctx, _tags):
    setattr(Endpoint, _get.__name__, property(_get))
