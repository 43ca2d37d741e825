# SPDX-License-Identifier: BSD-3-Clause
"""The metrics of ucp: their names, and their values.

``of_this_process()`` has the metrics that a program serves of itself, and
``of_host()`` those of all processes of a host, which are read from outside.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from .. import _version
from .._core import lifecycle
from .._core.endpoint import Endpoint
from .._core.loader import which_ucx
from .._core.resolve import host_and_port
from ..exceptions import UCXError
from . import latency
from .page import (
    OTHER_HOSTS,
    HostCounters,
    ProcessStatistics,
    WorkerCounters,
    hosts_by_worker,
    program_of,
)
from .stats import hosts_of, workers

# The limits of the buckets of histograms, as powers of two of a nanosecond: these
# are limits of libumx's buckets, too. From 256 ns to 69 s.
_POWERS = range(8, 37)

# Name of a field of WorkerStatistics, unit, description.
_COUNTERS = (
    ("sent_messages", "", "Messages that were given to UCX."),
    ("sent_bytes", "bytes", "Bytes of messages that were given to UCX."),
    ("received_messages", "", "Messages that have come, whether read or not."),
    ("received_bytes", "bytes", "Bytes of messages that have come."),
    ("rendezvous", "", "Sent messages whose bytes the receiver has fetched."),
    ("loans", "", "Messages that were read from this process's memory."),
    ("wakeups", "", "Wake-ups of the event loop that found something to do."),
    ("spins", "", "Waits that looked for events for a short time first."),
    ("spin_hits", "", "Those that found what they waited for."),
    ("extended_turns", "", "Turns of the loop in which a task continued."),
    ("protocol_errors", "", "Messages of peers that are not as they must be."),
    ("stray_messages", "", "Messages for endpoints that never were."),
    ("renewals", "", "How often UCX's worker was replaced."),
    ("failed_operations", "", "Operations that have ended with an error."),
    ("timed_out_operations", "", "Operations that a limit in time has ended."),
    ("cancelled_operations", "", "Operations that were cancelled."),
    ("failed_connections", "", "Endpoints that have failed."),
    ("refused_connections", "", "Connections that a listener has not taken."),
    ("missed_heartbeats", "", "Questions that a silent peer has not answered."),
)
_GAUGES = (
    ("endpoints", "", "Endpoints that exist."),
    ("listeners", "", "Listeners that exist."),
    ("requests_in_use", "", "Operations that were begun and have not ended."),
    ("requests_lost", "", "Operations that UCX does not end."),
    ("pending_sends", "", "Sends that are not complete."),
    ("pending_bytes", "bytes", "Bytes of sends that are not complete."),
    ("waiting_sends", "", "Sends that wait for credit or a connection."),
    ("unexpected_messages", "", "Messages that no receive has asked for."),
    ("unexpected_bytes", "bytes", "Bytes of messages that no receive asks for."),
)
# The same of HostCounters.
_HOST_COUNTERS = (
    ("sent_messages", "", "Messages to the host that were given to UCX."),
    ("sent_bytes", "bytes", "Bytes of messages to the host."),
    ("received_messages", "", "Messages of the host, whether read or not."),
    ("received_bytes", "bytes", "Bytes of messages of the host."),
)
# The same of EndpointStatistics.
_PEER_COUNTERS = (
    ("sent_messages", "", "Messages to the peer that were given to UCX."),
    ("sent_bytes", "bytes", "Bytes of messages to the peer."),
    ("received_messages", "", "Messages of the peer, whether read or not."),
    ("received_bytes", "bytes", "Bytes of messages of the peer."),
)

Sample = tuple[str, dict[str, str], float]


@dataclasses.dataclass(frozen=True, slots=True)
class Family:
    """Metrics of one name: samples are suffix, labels and value."""

    name: str
    kind: str
    unit: str
    help: str
    samples: list[Sample]


class _Labelled(NamedTuple):
    """The counters of a worker, and the labels that its metrics have."""

    labels: dict[str, str]
    counters: WorkerCounters
    hosts: list[HostCounters]


def of_this_process(*, peers: bool = False) -> list[Family]:
    """All metrics of this process; ``peers``: also those of its endpoints."""
    own = workers()
    hosts = hosts_by_worker(hosts_of(own))
    labelled = [_labelled({}, each, hosts) for each in own]
    info = {"version": _version.__version__, "ucx_version": which_ucx().version}
    return [
        Family(
            "ucp_build",
            "info",
            "",
            "Versions of ucp and UCX.",
            [("_info", info, 1)],
        ),
        *_of_workers(labelled),
        Family(
            "ucp_operation_duration_seconds",
            "histogram",
            "seconds",
            "Time from the call of an operation to its end.",
            list(_durations()),
        ),
        *(_of_peers(_open_endpoints()) if peers else ()),
    ]


def of_host(processes: Iterable[ProcessStatistics]) -> list[Family]:
    """The metrics of processes of this host, with the labels ``pid`` and ``name``."""
    labelled: list[_Labelled] = []
    infos: list[Sample] = []
    starts: list[Sample] = []
    for process in processes:
        own = {"pid": str(process.pid), "name": program_of(process.pid)}
        infos.append(("_info", {**own, "version": process.version}, 1))
        starts.append(("", own, process.started))
        hosts = hosts_by_worker(process.hosts)
        labelled += [_labelled(own, each, hosts) for each in process.workers]
    return [
        Family("ucp_process", "info", "", "Processes that use ucp.", infos),
        Family(
            "ucp_process_start_time_seconds",
            "gauge",
            "seconds",
            "When the process has made its first worker, in seconds of the epoch.",
            starts,
        ),
        *_of_workers(labelled),
    ]


def _labelled(
    process: dict[str, str],
    worker: WorkerCounters,
    hosts: dict[int, list[HostCounters]],
) -> _Labelled:
    """A worker with the labels of its process and its own."""
    return _Labelled(
        {**process, **_labels_of(worker)},
        worker,
        hosts.get(worker.number, []),
    )


def _labels_of(worker: WorkerCounters) -> dict[str, str]:
    labels = {"worker": str(worker.number)}
    if worker.rank is not None:
        labels["rank"] = str(worker.rank)
    if worker.communicator:
        labels["communicator"] = worker.communicator
    return labels


def _of_workers(labelled: list[_Labelled]) -> Iterator[Family]:
    yield from _of_fields(labelled, "counter", _COUNTERS)
    yield from _of_fields(labelled, "gauge", _GAUGES)
    yield Family(
        "ucp_worker_start_time_seconds",
        "gauge",
        "seconds",
        "When the worker was made, in seconds of the epoch.",
        [("", labels, worker.started) for labels, worker, _ in labelled],
    )
    yield Family(
        "ucp_worker_last_look_time_seconds",
        "gauge",
        "seconds",
        "When the worker has last looked for messages, in seconds of the epoch.",
        [
            ("", labels, worker.drained)
            for labels, worker, _ in labelled
            if worker.drained is not None
        ],
    )
    yield from _of_hosts(labelled)


def _of_hosts(labelled: list[_Labelled]) -> Iterator[Family]:
    """What workers exchange with hosts; "other" is left out as long as it is 0."""
    found = [
        ({**labels, "peer_host": host.host}, host)
        for labels, _, hosts in labelled
        for host in hosts
        if host.host != OTHER_HOSTS or host.sent_messages or host.received_messages
    ]
    for field, unit, text in _HOST_COUNTERS:
        samples = [("_total", labels, getattr(host, field)) for labels, host in found]
        yield Family(f"ucp_peer_host_{field}", "counter", unit, text, samples)
    yield Family(
        "ucp_transport",
        "info",
        "",
        "Transports by which messages go to a host.",
        [
            ("_info", {**labels, "transport": transport}, 1)
            for labels, host in found
            for transport in host.transports
        ],
    )


def _of_fields(
    labelled: list[_Labelled],
    kind: str,
    fields: tuple[tuple[str, str, str], ...],
) -> Iterator[Family]:
    suffix = "_total" if kind == "counter" else ""
    for field, unit, text in fields:
        samples = [
            (suffix, labels, getattr(worker.statistics, field))
            for labels, worker, _ in labelled
        ]
        yield Family(f"ucp_{field}", kind, unit, text, samples)


def _durations() -> Iterator[Sample]:
    for worker, own in sorted(latency.by_worker().items()):
        for name, histogram in sorted(own.items()):
            labels = {"worker": str(worker), "operation": name}
            limits = sorted(histogram.buckets.items())
            seen = position = 0
            for power in _POWERS:
                while position < len(limits) and limits[position][0] <= 1 << power:
                    seen += limits[position][1]
                    position += 1
                yield "_bucket", {**labels, "le": repr((1 << power) / 1e9)}, seen
            total = seen + sum(count for _, count in limits[position:])
            yield "_bucket", {**labels, "le": "+Inf"}, total
            yield "_count", labels, total
            yield "_sum", labels, histogram.sum


# ---- peers ----------------------------------------------------------------------


def _open_endpoints() -> list[Endpoint]:
    """The open endpoints of the workers of the calling thread."""
    return [
        endpoint
        for worker in lifecycle.workers_of_thread()
        for endpoint in worker._endpoints
        if endpoint.state == "open"
    ]


def _of_peers(endpoints: Iterable[Endpoint]) -> Iterator[Family]:
    found = []
    for endpoint in endpoints:
        try:
            numbers = endpoint.statistics
            pairs = endpoint.transports()
        except (UCXError, RuntimeError):  # it has ended meanwhile
            continue
        labels = {"endpoint": str(endpoint.uid), "peer": _peer_of(endpoint)}
        transports = ",".join(sorted({transport for transport, _ in pairs}))
        found.append((labels, numbers, transports))
    yield Family(
        "ucp_peer",
        "info",
        "",
        "Open endpoints: their peers, and what carries their messages.",
        [("_info", {**labels, "transports": by}, 1) for labels, _, by in found],
    )
    for field, unit, text in _PEER_COUNTERS:
        samples = [
            ("_total", labels, getattr(numbers, field)) for labels, numbers, _ in found
        ]
        yield Family(f"ucp_peer_{field}", "counter", unit, text, samples)


def _peer_of(endpoint: Endpoint) -> str:
    """HOST:PORT, or the process of a peer whose address is not known."""
    host, port, pid, _ = endpoint.peer
    if host is not None and port is not None:
        return host_and_port(host, port)
    return "unknown" if pid is None else f"process {pid}"
