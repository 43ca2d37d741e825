# SPDX-License-Identifier: BSD-3-Clause
"""Measure what must not grow."""

import asyncio
import contextlib
import ctypes
import gc
import os
import sys
import threading

import ucp
from ucp import _ext
from ucp.testing import live_objects

# Each object of a type counts as a reference to it: one that is not given back
# is seen here even when the object itself is gone.
_TYPES = [
    *(_ext.Context, _ext.Worker, _ext.Endpoint, _ext.Listener),
    *(_ext.Message, ucp.Endpoint, ucp.Listener),
]

# Requests are kept for the next use, with their references, at most so many.
_FREE_REQUESTS = 256

# Not 0: the allocators of C and Python keep and split pages as they like, and
# UCX's pools double; 100 KiB are usual. It does not depend on the count: with
# the full counts a leak of 42 bytes a connect or cancel, 4 bytes a message, is
# found.
_RSS_LIMIT = 4 << 20

# With a request that UCX keeps: the 4 MiB that were to be sent, and UCX's
# fragments of them.
_LOST_BYTES = 8 << 20

# AddressSanitizer keeps what is freed, to catch its use.
_KEEPS_FREED = "libasan" in os.environ.get("LD_PRELOAD", "")

# Python objects that come and go by chance: cached integers and frames, the
# loop's heap of timers, code that specializes itself.
_BLOCKS_LIMIT = 2000


# UCX's queue of a worker gets more buffers, in a segment of their own, once all that
# it has are in use; they stay.
_MORE_SEGMENTS = 1

# Longest time that closes in the background may take.
_BACKGROUND_S = 20


class Flat:
    def warm_up(self, name, count):
        """How often to run before it counts: pools and caches fill.

        A flood is under way all at once, and pools keep what was: all of it.
        """
        if name == "floods":
            return count
        return min(max(count // 10, 2), 20 if name == "kills" else 2000)

    async def start(self):
        # asyncio waits for a child in a thread, which ends a little later than it.
        await _until(
            lambda: (
                not ucp.current_worker().statistics.endpoints
                and threading.active_count() == 1
            )
        )
        self._before = _counters()
        self._requests = sys.getrefcount(_ext.Request)
        self._fds = _num_fds()
        self._open = _open_files()
        self._segments = _num_segments()
        self._memory = _memory()

    async def stop(self):
        """A line about the growth; AssertionError if there was too much."""
        # UCX closes sockets later than endpoints, in a thread of its own: so
        # there may have been more at the start, too.
        await _until(
            lambda: (
                _num_fds() <= self._fds
                and _num_segments() <= self._segments + _MORE_SEGMENTS
                and _counters() == self._before
            )
        )
        assert _num_fds() <= self._fds, (self._open, _open_files())
        after, memory = _counters(), _memory()
        # Requests that UCX keeps until the worker goes: of peers that died with a queue
        # of shared memory full. Each keeps its endpoint.
        lost = ucp.current_worker().statistics.requests_lost
        for key, number in _difference(self._before, after).items():
            assert 0 < number[1] - number[0] <= 2 * lost, (key, number, lost)
        segments = _num_segments() - self._segments
        assert segments <= _MORE_SEGMENTS + 2 * lost, (segments, lost)
        requests = sys.getrefcount(_ext.Request) - self._requests
        assert requests <= _FREE_REQUESTS, requests
        rss, blocks = (b - a for a, b in zip(self._memory, memory, strict=True))
        text = f"rss {rss / 1024:+.0f} KiB, blocks {blocks:+d}, {lost} lost"
        assert rss <= _RSS_LIMIT + lost * _LOST_BYTES or _KEEPS_FREED, text
        assert blocks <= _BLOCKS_LIMIT, text
        return text


def _counters():
    """Return the counters that must be exactly as before."""
    gc.collect()
    statistics = ucp.current_worker().statistics
    counters = {f"live {key}": value for key, value in live_objects().items()}
    for key in ("requests_in_use", "endpoints", "listeners", "unexpected_messages"):
        counters[f"worker {key}"] = getattr(statistics, key)
    counters["protocol_errors"] = statistics.protocol_errors
    counters["threads"] = threading.active_count()
    for each in _TYPES:
        counters[f"references to {each.__module__}.{each.__name__}"] = sys.getrefcount(
            each
        )
    return counters


def _num_fds():
    return len(os.listdir("/proc/self/fd"))


def _open_files():
    """What the descriptors of the process are of."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # that of the list itself
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
    return found


def _num_segments():
    """How many System V segments this process has made, whoever uses them still."""
    with open("/proc/sysvipc/shm") as table:
        rows = [line.split() for line in table][1:]
    return sum(int(row[4]) == os.getpid() for row in rows)


async def _until(condition):
    """For what ends in the background; what does not is found after it."""
    try:
        async with asyncio.timeout(_BACKGROUND_S):
            while not condition():
                gc.collect()
                await asyncio.sleep(0)
    except TimeoutError:
        pass


def _memory():
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/statm") as statm:
        pages = int(statm.read().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE"), sys.getallocatedblocks()


def _difference(before, after):
    return {
        key: (before[key], after[key]) for key in before if before[key] != after[key]
    }
