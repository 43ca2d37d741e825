# SPDX-License-Identifier: BSD-3-Clause
"""How long operations take: histograms, which are off at first.

An operation lasts from the call that begins it until its task can be woken. libumx
counts each in a histogram of its worker and its name; the limits of the buckets are
less than 4 % apart, from one nanosecond to more than an hour.

The variable ``UCP_LATENCY=1`` of the environment turns them on from the start.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping
from typing import Any

from .. import _ext

#: What ``LatencyHistogram.as_dict()`` has of each histogram, beside the others.
PERCENTILES = {"p50": 50.0, "p90": 90.0, "p99": 99.0, "p999": 99.9}

# The last bucket has all that took longer, too: 1 << UMX_HISTOGRAM_MAX_BITS.
_LAST_LIMIT = 1 << 42


@dataclasses.dataclass(frozen=True, slots=True)
class LatencyHistogram:
    """How long the operations of one name have taken, in seconds.

    Histograms are added with ``+``, those of other processes as well.

    Attributes:
        count: operations.
        sum: the time that all of them took together.
        min: the shortest; 0 if there was none.
        max: the longest.
        buckets: how many took less than so many nanoseconds, and not less than the
            limit of the bucket before; buckets that are empty are left out.
    """

    count: int = 0
    sum: float = 0.0
    min: float = 0.0
    max: float = 0.0
    buckets: Mapping[int, int] = dataclasses.field(default_factory=dict)

    @property
    def mean(self) -> float:
        """The mean; 0 if there was no operation."""
        return self.sum / self.count if self.count else 0.0

    def percentile(self, percent: float) -> float:
        """A time that ``percent`` of the operations did not exceed.

        It is at most 4 % above the exact one; the longest, if that is more than
        73 minutes; 0 if there was no operation.

        Raises:
            ValueError: ``percent`` is not between 0 and 100.
        """
        if not 0 <= percent <= 100:
            raise ValueError(f"percent must be between 0 and 100, not {percent!r}")
        wanted = sum(self.buckets.values()) * percent / 100
        seen = 0
        for limit in sorted(self.buckets):
            seen += self.buckets[limit]
            if seen >= wanted:
                if limit >= _LAST_LIMIT:
                    break
                return min(max((limit - 1) / 1e9, self.min), self.max)
        return self.max

    def __add__(self, other: LatencyHistogram) -> LatencyHistogram:
        """Both together."""
        if not isinstance(other, LatencyHistogram):
            return NotImplemented
        if not self.count or not other.count:
            return other if other.count else self
        buckets = dict(self.buckets)
        for limit, count in other.buckets.items():
            buckets[limit] = buckets.get(limit, 0) + count
        return LatencyHistogram(
            count=self.count + other.count,
            sum=self.sum + other.sum,
            min=min(self.min, other.min),
            max=max(self.max, other.max),
            buckets=buckets,
        )

    def as_dict(self) -> dict[str, Any]:
        """Count, sum, mean, extremes and percentiles, by their names."""
        return {
            "count": self.count,
            "sum": self.sum,
            "mean": self.mean,
            "min": self.min,
            "max": self.max,
            **{name: self.percentile(at) for name, at in PERCENTILES.items()},
        }


def measure_latency(is_on: bool = True) -> None:
    """Measure how long operations take that begin from now on, or no more.

    ``ucp.latencies()`` has what was measured. The histograms are of all workers of
    the process; they stay until their worker is closed. May be called in any
    thread.

    Example:
        >>> ucp.measure_latency()
        >>> ucp.measure_latency(False)
    """
    _ext.measure_latency(is_on)


def by_worker() -> dict[int, dict[str, LatencyHistogram]]:
    """The histograms of each worker, by its number and the operation's name."""
    found: dict[int, dict[str, LatencyHistogram]] = {}
    for worker, name, count, total, least, most, buckets in _ext.read_latencies():
        own = found.setdefault(worker, {})
        histogram = LatencyHistogram(
            count, total / 1e9, least / 1e9, most / 1e9, buckets
        )
        own[name] = own.get(name, LatencyHistogram()) + histogram
    return found


def latencies() -> dict[str, LatencyHistogram]:
    """How long the operations of this process have taken, by their names.

    The names are those of methods, such as ``"send"``, ``"recv"`` and ``"get"``, of
    collective operations, such as ``"allreduce"``, and ``"connect"`` and
    ``"accept"`` for connections. Nothing is measured before
    ``ucp.measure_latency()``. May be called in any thread.
    """
    return merged(by_worker().values())


def merged(
    several: Iterable[Mapping[str, LatencyHistogram]],
) -> dict[str, LatencyHistogram]:
    """The histograms of several workers or processes together, by their names."""
    found: dict[str, LatencyHistogram] = {}
    for each in several:
        for name, histogram in each.items():
            found[name] = found.get(name, LatencyHistogram()) + histogram
    return found


if os.environ.get("UCP_LATENCY", "0") not in ("", "0"):
    measure_latency()
