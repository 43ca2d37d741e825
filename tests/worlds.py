# SPDX-License-Identifier: BSD-3-Clause
"""Communicators whose ranks are threads of this process, or processes."""

import asyncio
import os
import socket
import subprocess
import sys
import textwrap
import threading

import zygote

import ucp

LIMIT = 40  # seconds that a world may take

# For the programs of ranks: each is a process.
PRELUDE = """
import asyncio, os, signal, sys, traceback
import numpy as np
import ucp
signal.alarm(50)  # the time limit

def connect(rank=None, **options):
    rank = int(os.environ["RANK_OF_TEST"]) if rank is None else rank
    size = int(os.environ["SIZE_OF_TEST"])
    options.setdefault("timeout", 30)
    return ucp.Communicator.connect(os.environ["ROOT_OF_TEST"], rank, size, **options)
"""


def free_port():
    """A port that nobody listens at.

    Until the process ends, the system gives it to nobody else: a socket is left
    there. A listener with SO_REUSEADDR can be opened at it nevertheless.
    """
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("127.0.0.1", 0))
    port = sock.getsockname()[1]
    sock.detach()
    return port


def free_root():
    return f"tcp://127.0.0.1:{free_port()}"


def world(size, main, **options):
    """What ``main(comm)`` returns on each rank, or the exception it raises.

    Each rank is a thread with an event loop, and so with a worker.
    """
    root = free_root()
    ends = [None] * size

    async def run(rank):
        async with asyncio.timeout(LIMIT):
            comm = await ucp.Communicator.connect(
                root, rank, size, **({"timeout": 20} | options)
            )
            async with comm:
                return await main(comm)

    def start(rank):
        try:
            ends[rank] = asyncio.run(run(rank))
        except BaseException as exc:
            ends[rank] = exc

    threads = [threading.Thread(target=start, args=[rank]) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return ends


def good_world(size, main, **options):
    """``world()`` in which nothing is raised."""
    ends = world(size, main, **options)
    for end in ends:
        if isinstance(end, BaseException):
            raise end
    return ends


def sync_world(size, main):
    """``good_world()`` of blocking communicators."""
    root, ends = free_root(), [None] * size

    def run(rank):
        try:
            with ucp.sync.Communicator.connect(root, rank, size, 20) as comm:
                ends[rank] = main(comm)
        except BaseException as exc:
            ends[rank] = exc

    threads = [threading.Thread(target=run, args=[rank]) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for end in ends:
        if isinstance(end, BaseException):
            raise end
    return ends


class Ranks:
    """Processes that run a program, as a context: all are gone after it."""

    def __init__(self, size, source, root=None, before=None):
        self.root = free_root() if root is None else root
        self._before = before or [[]] * size  # the beginnings of their commands
        self.source = PRELUDE + textwrap.dedent(source)
        self.processes = [self._start(rank, size) for rank in range(size)]

    def _start(self, rank, size):
        return zygote.Popen(
            [*self._before[rank], sys.executable, "-P", "-c", self.source],
            env={
                **os.environ,
                "RANK_OF_TEST": str(rank),
                "SIZE_OF_TEST": str(size),
                "ROOT_OF_TEST": self.root,
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.communicate()

    def line(self, rank):
        """The next line that a rank prints; one that has ended says why."""
        line = self.processes[rank].stdout.readline()
        if not line:
            self.processes[rank].kill()
            _, err = self.processes[rank].communicate(timeout=LIMIT)
            raise AssertionError(
                f"rank {rank} has ended with {self.processes[rank].returncode}: {err}"
            )
        return line.strip()

    def end(self, rank):
        """What else a rank prints until it has ended, which it does well."""
        out, err = self.processes[rank].communicate(timeout=LIMIT)
        assert self.processes[rank].returncode == 0, err
        return out.strip()
