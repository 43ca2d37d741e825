# SPDX-License-Identifier: BSD-3-Clause
"""What the servers and the clients of all backends have in common."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from argparse import Namespace
from collections.abc import Iterator
from queue import Queue
from time import monotonic
from typing import Any


class Base(ABC):
    """Options, and arrays of the kind they name."""

    has_cuda_support: bool

    def __init__(self, args: Namespace, queue: Queue[Any]) -> None:
        self.args = args
        self.queue = queue

    @property
    def rounds(self) -> int:
        """Round trips, those before the measurement included."""
        return int(self.args.n_iter + self.args.n_warmup_iter)

    @abstractmethod
    def run(self) -> Any:
        """Run to the end; may be a coroutine function."""


class BaseServer(Base):
    """Puts the port it listens on into the queue; sends back what comes."""


class BaseClient(Base):
    """Connects to the server and measures; puts a list of seconds, one for each
    round trip, into the queue."""

    def __init__(
        self, args: Namespace, queue: Queue[Any], server_address: str, port: int
    ) -> None:
        super().__init__(args, queue)
        self.server_address = server_address
        self.port = port

    def print_backend_specific_config(self) -> None:
        """Print the rows of a report that this backend only has."""

    def measured_rounds(self, xp: Any) -> Iterator[int]:
        """The numbers of the round trips; each is what happens until the next is
        asked for. Reports when all are done. ``xp`` is the arrays' module."""
        knocker = self._start_profilers(xp)
        times = []
        for number in range(self.rounds):
            start = monotonic()
            yield number
            if number >= self.args.n_warmup_iter:
                times.append(monotonic() - start)
        if self.args.cuda_profile:
            xp.cuda.profiler.stop()
        if knocker is not None:
            knocker.stop()
        self.queue.put(times)
        if knocker is not None:
            self.queue.put(knocker.contention_metric)

    def _start_profilers(self, xp: Any) -> Any:
        if self.args.cuda_profile:
            xp.cuda.profiler.start()
        if not self.args.report_gil_contention:
            return None
        # The shortest interval there is, or short messages show nothing.
        knocker = importlib.import_module("gilknocker").KnockKnock(
            polling_interval_micros=1
        )
        knocker.start()
        return knocker
