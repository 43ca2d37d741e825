# SPDX-License-Identifier: BSD-3-Clause
"""Metrics for Prometheus and others, as OpenMetrics has them.

``metrics()`` makes the text that a program serves as ``/metrics``;
``prometheus_collector()`` gives the same numbers to the package
``prometheus_client``, for programs that have more metrics than those of ucp.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from .families import Family, of_this_process

#: The media type of the text, for the header Content-Type.
CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"

#: That of the text that Prometheus has read before OpenMetrics was.
OLD_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def metrics(*, peers: bool = False) -> str:
    """Return the counters and latencies of this process as OpenMetrics text.

    Serve it with the content type ``ucp.METRICS_CONTENT_TYPE``. Metrics of workers
    have the label ``worker``, a number that no other worker of the process has or
    had; and ``rank`` and ``communicator``, if the worker is a rank of one. Bytes and
    messages by the host of the peer have the label ``peer_host`` as well, and
    latencies, which are there after ``ucp.measure_latency()``, the label
    ``operation``. May be called in any thread.

    Args:
        peers: True: also the messages and bytes of each open endpoint of the calling
            thread's workers, with its peer and transports. Prometheus keeps each
            endpoint that there ever was: for programs with few of them.

    Example:
        >>> print(ucp.metrics().splitlines()[-1])
        # EOF
    """
    return open_metrics(of_this_process(peers=peers))


def open_metrics(families: Iterable[Family]) -> str:
    """The text of metrics, as OpenMetrics has it."""
    lines: list[str] = []
    for family in families:
        lines.append(f"# TYPE {family.name} {family.kind}")
        if family.unit:
            lines.append(f"# UNIT {family.name} {family.unit}")
        lines.append(f"# HELP {family.name} {family.help}")
        lines += _samples(family)
    return "\n".join([*lines, "# EOF", ""])


def old_text(families: Iterable[Family]) -> str:
    """The text of metrics in the older format, which has no info and no units."""
    lines: list[str] = []
    for family in families:
        name, kind = family.name, family.kind
        if kind == "counter":
            name += "_total"
        elif kind == "info":
            name, kind = f"{name}_info", "gauge"
        lines += [f"# HELP {name} {family.help}", f"# TYPE {name} {kind}"]
        lines += _samples(family)
    return "\n".join([*lines, ""])


def _samples(family: Family) -> Iterator[str]:
    for suffix, labels, value in family.samples:
        yield f"{family.name}{suffix}{_labels(labels)} {_number(value)}"


def _labels(labels: dict[str, str]) -> str:
    pairs = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
    return f"{{{pairs}}}" if pairs else ""


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else repr(value)


class PrometheusCollector:
    """Gives the metrics of ucp to a registry of ``prometheus_client``."""

    def __init__(self, make_metric: Callable[..., Any], *, peers: bool) -> None:
        self._make_metric = make_metric
        self._peers = peers

    def describe(self) -> Iterator[Any]:
        """All metrics without values: a registry takes each name once."""
        return map(self._metric_of, of_this_process(peers=self._peers))

    def collect(self) -> Iterator[Any]:
        """The metrics of now, as objects of ``prometheus_client``."""
        for family in of_this_process(peers=self._peers):
            metric = self._metric_of(family)
            for suffix, labels, value in family.samples:
                metric.add_sample(family.name + suffix, labels, value)
            yield metric

    def _metric_of(self, family: Family) -> Any:
        return self._make_metric(family.name, family.help, family.kind, family.unit)


def prometheus_collector(
    registry: Any = None, *, peers: bool = False
) -> PrometheusCollector:
    """Register the metrics of ucp with ``prometheus_client``.

    Args:
        registry: a ``CollectorRegistry``; None: the default one, which
            ``prometheus_client.start_http_server()`` serves.
        peers: as that of ``metrics()``: for a server that runs in the event loop
            whose endpoints are to be seen.

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
    collector = PrometheusCollector(core.Metric, peers=peers)
    try:
        (client.REGISTRY if registry is None else registry).register(collector)
    except ValueError as exc:
        raise ValueError(
            "the metrics of ucp are in this registry already, or others of their "
            "names: call ucp.prometheus_collector() once, or "
            f"registry.unregister(collector) before it: {exc}"
        ) from None
    return collector
