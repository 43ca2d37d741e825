# SPDX-License-Identifier: BSD-3-Clause
"""Metrics for Prometheus and others, as OpenMetrics has them.

``metrics()`` makes the text that a program serves as ``/metrics``;
``prometheus_collector()`` gives the same numbers to the package
``prometheus_client``, for programs that have more metrics than those of ucp.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Iterator
from typing import Any

from .. import _version
from .._core.loader import which_ucx
from . import latency
from .page import WorkerCounters
from .stats import workers

#: The media type of the text, for the header Content-Type.
CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"

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


@dataclasses.dataclass(frozen=True, slots=True)
class Family:
    """Metrics of one name: samples are suffix, labels and value."""

    name: str
    kind: str
    unit: str
    help: str
    samples: list[tuple[str, dict[str, str], float]]


def families() -> list[Family]:
    """All metrics of this process."""
    all_workers = workers()
    info = {"version": _version.__version__, "ucx_version": which_ucx().version}
    return [
        Family(
            "ucp_build",
            "info",
            "",
            "Versions of ucp and UCX.",
            [("_info", info, 1)],
        ),
        *_of_fields(all_workers, "counter", _COUNTERS),
        *_of_fields(all_workers, "gauge", _GAUGES),
        Family(
            "ucp_worker_start_time_seconds",
            "gauge",
            "seconds",
            "When the worker was made, in seconds of the epoch.",
            [("", _label(each), each.started) for each in all_workers],
        ),
        Family(
            "ucp_operation_duration_seconds",
            "histogram",
            "seconds",
            "Time from the call of an operation to its end.",
            list(_durations()),
        ),
    ]


def _label(worker: WorkerCounters) -> dict[str, str]:
    return {"worker": str(worker.number)}


def _of_fields(
    all_workers: list[WorkerCounters],
    kind: str,
    fields: tuple[tuple[str, str, str], ...],
) -> Iterator[Family]:
    suffix = "_total" if kind == "counter" else ""
    for field, unit, text in fields:
        samples = [
            (suffix, _label(each), getattr(each.statistics, field))
            for each in all_workers
        ]
        yield Family(f"ucp_{field}", kind, unit, text, samples)


def _durations() -> Iterator[tuple[str, dict[str, str], float]]:
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


def metrics() -> str:
    """Return the counters and latencies of this process as OpenMetrics text.

    Serve it with the content type ``ucp.METRICS_CONTENT_TYPE``. Metrics of workers
    have the label ``worker``, a number that no other worker of the process has or
    had; latencies, which are there after ``ucp.measure_latency()``, the label
    ``operation`` as well. May be called in any thread.

    Example:
        >>> print(ucp.metrics().splitlines()[-1])
        # EOF
    """
    lines: list[str] = []
    for family in families():
        lines.append(f"# TYPE {family.name} {family.kind}")
        if family.unit:
            lines.append(f"# UNIT {family.name} {family.unit}")
        lines.append(f"# HELP {family.name} {family.help}")
        lines += [
            f"{family.name}{suffix}{_labels(labels)} {_number(value)}"
            for suffix, labels, value in family.samples
        ]
    return "\n".join([*lines, "# EOF", ""])


def _labels(labels: dict[str, str]) -> str:
    pairs = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
    return f"{{{pairs}}}" if pairs else ""


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else repr(value)


class PrometheusCollector:
    """Gives the metrics of ucp to a registry of ``prometheus_client``."""

    def __init__(self, make_metric: Callable[..., Any]) -> None:
        self._make_metric = make_metric

    def describe(self) -> Iterator[Any]:
        """All metrics without values: a registry takes each name once."""
        return map(self._metric_of, families())

    def collect(self) -> Iterator[Any]:
        """The metrics of now, as objects of ``prometheus_client``."""
        for family in families():
            metric = self._metric_of(family)
            for suffix, labels, value in family.samples:
                metric.add_sample(family.name + suffix, labels, value)
            yield metric

    def _metric_of(self, family: Family) -> Any:
        return self._make_metric(family.name, family.help, family.kind, family.unit)


def prometheus_collector(registry: Any = None) -> PrometheusCollector:
    """Register the metrics of ucp with ``prometheus_client``.

    Args:
        registry: a ``CollectorRegistry``; None: the default one, which
            ``prometheus_client.start_http_server()`` serves.

    Returns:
        the collector, for ``registry.unregister()``.

    Raises:
        ImportError: the package ``prometheus_client`` is not installed.
        ValueError: the registry has these metrics already, or others of a name that
            begins with ``ucp_``.
    """
    try:
        client = importlib.import_module("prometheus_client")
        core = importlib.import_module("prometheus_client.core")
    except ImportError as exc:
        raise ImportError(
            "ucp.prometheus_collector() needs the package prometheus_client: pip "
            "install prometheus-client; ucp.metrics() makes the text without it"
        ) from exc
    collector = PrometheusCollector(core.Metric)
    try:
        (client.REGISTRY if registry is None else registry).register(collector)
    except ValueError as exc:
        raise ValueError(
            "the metrics of ucp are in this registry already, or others of their "
            "names: call ucp.prometheus_collector() once, or "
            f"registry.unregister(collector) before it: {exc}"
        ) from None
    return collector
