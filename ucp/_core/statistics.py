# SPDX-License-Identifier: BSD-3-Clause
"""What objects have done so far, as numbers."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True)
class Statistics:
    """The base of all statistics, which are frozen dataclasses."""

    def as_dict(self) -> dict[str, Any]:
        """The fields by their names; statistics within statistics too."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True, slots=True)
class EndpointStatistics(Statistics):
    """Statistics of an endpoint: ``Endpoint.statistics``.

    Attributes:
        sent_messages: messages that were given to UCX.
        sent_bytes: their bytes.
        received_messages: messages that have come, whether read or not.
        received_bytes: their bytes.
        pending_bytes: bytes of sends that are not complete.
        waiting_sends: sends that wait until the peer grants credit.
        unexpected_messages: messages that no receive has asked for.
        unexpected_bytes: their bytes.
        dropped_messages: those that have come and were dropped, as
            ``set_keep_last()`` says.
    """

    sent_messages: int
    sent_bytes: int
    received_messages: int
    received_bytes: int
    pending_bytes: int
    waiting_sends: int
    unexpected_messages: int
    unexpected_bytes: int
    dropped_messages: int


@dataclasses.dataclass(frozen=True, slots=True)
class WorkerStatistics(Statistics):
    """Statistics of a worker: ``Worker.statistics``.

    Attributes:
        requests_in_use: operations that were begun, and whose end is not reported.
        requests_peak: the largest value of ``requests_in_use`` so far.
        requests_lost: those of them that UCX does not end.
        endpoints: endpoints that exist, those of the library included.
        listeners: listeners that exist.
        unexpected_messages: messages that no receive has asked for.
        unexpected_bytes: their bytes.
        protocol_errors: messages of peers that are not as they have to be.
        stray_messages: messages for endpoints that never were.
        wakeups: wake-ups of the event loop that found something to do.
        spins: waits that looked for events for a short time before they slept.
        spin_hits: those of them that found what they waited for.
        loans: messages that the receiver has read from this process's memory.
        renewals: how often UCX's worker was replaced.
        extended_turns: turns in which a task continued once more.
        sent_messages: messages of all endpoints, open and closed ones, that were
            given to UCX.
        sent_bytes: their bytes.
        received_messages: messages of all endpoints that have come, whether read
            or not.
        received_bytes: their bytes.
        pending_sends: sends that are not complete.
        pending_bytes: their bytes.
        waiting_sends: those of them that wait until the peer grants credit, or
            until the connection is made.
        rendezvous: sent messages whose bytes the receiver has fetched, or read as
            a loan, when it had a buffer for them.
        failed_operations: operations that were under way and have ended with an
            error, other than a limit in time, a cancellation, or a close of either
            side.
        timed_out_operations: those that a limit in time of ``ucp`` has ended, as
            ``connect_timeout``, or a heartbeat. ``asyncio.timeout()`` cancels.
        cancelled_operations: those that were cancelled.
        failed_connections: endpoints that have failed, also while they connected.
        refused_connections: connections that a listener has refused, or whose
            handshake has not come to its end.
        missed_heartbeats: questions for a sign of life that a silent peer has not
            answered in time: four in ``Config.heartbeat``.
    """

    requests_in_use: int
    requests_peak: int
    requests_lost: int
    endpoints: int
    listeners: int
    unexpected_messages: int
    unexpected_bytes: int
    protocol_errors: int
    stray_messages: int
    wakeups: int
    spins: int
    spin_hits: int
    loans: int
    renewals: int
    extended_turns: int
    sent_messages: int
    sent_bytes: int
    received_messages: int
    received_bytes: int
    pending_sends: int
    pending_bytes: int
    waiting_sends: int
    rendezvous: int
    failed_operations: int
    timed_out_operations: int
    cancelled_operations: int
    failed_connections: int
    refused_connections: int
    missed_heartbeats: int


def warn_of_stats() -> None:
    """Warn the caller of a ``stats()``."""
    warnings.warn(
        "stats() is the property statistics now, whose as_dict() gives this dict",
        DeprecationWarning,
        stacklevel=3,
    )
