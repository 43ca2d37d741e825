# SPDX-License-Identifier: BSD-3-Clause
"""One rank of ranks.py: does what the benchmark asks it by a socket.

It is run by whatever Python has the library: ``_ranks.py ucp PATH`` or
``_ranks.py mpi4py PATH``. While it is not asked it sleeps in ``recv()``, and takes
nothing from those that are measured.
"""

from __future__ import annotations

import functools
import json
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy

Operation = Callable[[], Any]

SMALL_OBJECT = {"step": 12, "loss": 0.25, "name": "x" * 60}


def memory(nbytes: int) -> Any:
    """Memory of its own, not the system's page of zeros."""
    return numpy.ones(nbytes, "u1")


def numbers(nbytes: int) -> Any:
    return numpy.ones(nbytes // 8, "f8")


class Ucp:
    """The calls of ``ucp.sync.Communicator``."""

    def __init__(self) -> None:
        import ucp.sync

        self.comm = ucp.sync.Communicator.from_env()
        self.rank, self.size = self.comm.rank, self.comm.size
        self.barrier, self.close = self.comm.barrier, self.comm.close
        self.send, self.recv = self.comm.send, self.comm.recv

    def send_all(self, buffers: list[Any], peer: int) -> None:
        for request in [self.comm.isend(buffer, peer) for buffer in buffers]:
            request.result()

    def recv_all(self, buffers: list[Any], peer: int) -> None:
        for request in [self.comm.irecv(buffer, peer) for buffer in buffers]:
            request.result()

    def send_object(self, value: Any, peer: int) -> None:
        self.comm.send_pickle(value, peer)

    def recv_object(self, peer: int) -> Any:
        return self.comm.recv_pickle(peer, allow_pickle=True)

    def bcast(self, buffer: Any) -> None:
        self.comm.bcast(buffer)

    def bcast_object(self, value: Any) -> Any:
        return self.comm.bcast_pickle(value, allow_pickle=True)

    def allreduce_object(self, value: Any) -> Any:
        return self.comm.allreduce_pickle(value, allow_pickle=True)

    def allreduce(self, send: Any, recv: Any) -> None:
        self.comm.allreduce(send, recv)

    def allgather(self, send: Any, recv: Any) -> None:
        self.comm.allgather(send, recv)

    def alltoall(self, send: Any, recv: Any) -> None:
        self.comm.alltoall(send, recv)


class Mpi:
    """The calls of mpi4py."""

    def __init__(self) -> None:
        from mpi4py import MPI

        self.comm, self.wait_all = MPI.COMM_WORLD, MPI.Request.Waitall
        self.rank, self.size = self.comm.rank, self.comm.size
        self.barrier, self.close = self.comm.Barrier, MPI.Finalize
        self.send, self.recv = self.comm.Send, self.comm.Recv

    def send_all(self, buffers: list[Any], peer: int) -> None:
        self.wait_all([self.comm.Isend(buffer, peer) for buffer in buffers])

    def recv_all(self, buffers: list[Any], peer: int) -> None:
        self.wait_all([self.comm.Irecv(buffer, peer) for buffer in buffers])

    def send_object(self, value: Any, peer: int) -> None:
        self.comm.send(value, peer)

    def recv_object(self, peer: int) -> Any:
        return self.comm.recv(None, peer)

    def bcast(self, buffer: Any) -> None:
        self.comm.Bcast(buffer)

    def bcast_object(self, value: Any) -> Any:
        return self.comm.bcast(value)

    def allreduce_object(self, value: Any) -> Any:
        return self.comm.allreduce(value)

    def allreduce(self, send: Any, recv: Any) -> None:
        self.comm.Allreduce(send, recv)

    def allgather(self, send: Any, recv: Any) -> None:
        self.comm.Allgather(send, recv)

    def alltoall(self, send: Any, recv: Any) -> None:
        self.comm.Alltoall(send, recv)


def there_and_back(
    side: Ucp | Mpi, send: Callable[[int], Any], recv: Callable[[int], Any]
) -> Operation:
    """A round trip of each pair of neighbours."""
    peer = side.rank ^ 1

    def first() -> None:
        send(peer)
        recv(peer)

    def second() -> None:
        recv(peer)
        send(peer)

    return first if side.rank % 2 == 0 else second


def one_way(side: Ucp | Mpi, nbytes: int, window: int) -> Operation:
    """Messages that are all in flight, and an answer of 8 bytes."""
    buffers, answer = [memory(nbytes) for _ in range(window)], memory(8)
    peer = side.rank ^ 1

    def sender() -> None:
        side.send_all(buffers, peer)
        side.recv(answer, peer)

    def receiver() -> None:
        side.recv_all(buffers, peer)
        side.send(answer, peer)

    return sender if side.rank % 2 == 0 else receiver


def operation(side: Ucp | Mpi, kind: str, nbytes: int, window: int) -> Operation:
    """The operation of that name, and for as many bytes of each rank."""
    match kind:
        case "send":
            sent, received = memory(nbytes), memory(nbytes)
            return there_and_back(
                side,
                functools.partial(side.send, sent),
                functools.partial(side.recv, received),
            )
        case "isend":
            return one_way(side, nbytes, window)
        case "object":
            value = memory(nbytes) if nbytes > 100 else SMALL_OBJECT
            return there_and_back(
                side, functools.partial(side.send_object, value), side.recv_object
            )
        case "bcast object":
            return functools.partial(side.bcast_object, SMALL_OBJECT)
        case "allreduce object":
            return functools.partial(side.allreduce_object, 0.25)
        case "barrier":
            return side.barrier
        case "bcast":
            return functools.partial(side.bcast, memory(nbytes))
        case "allreduce":
            return functools.partial(side.allreduce, numbers(nbytes), numbers(nbytes))
        case "allgather":
            received = memory(nbytes * side.size)
            return functools.partial(side.allgather, memory(nbytes), received)
        case "alltoall":
            sent, received = (memory(nbytes * side.size) for _ in range(2))
            return functools.partial(side.alltoall, sent, received)
    raise ValueError(f"unknown: {kind}")


def measure(side: Ucp | Mpi, task: dict[str, Any]) -> float:
    """Seconds of one operation, on this rank."""
    times = task["times"]
    run = operation(side, task["kind"], task["nbytes"], task["window"])
    run()
    run()
    side.barrier()
    started = time.perf_counter()
    for _ in range(times):
        run()
    took = (time.perf_counter() - started) / times
    side.barrier()
    return took


def main(library: str, path: str) -> None:
    side = Mpi() if library == "mpi4py" else Ucp()
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(path)
        with sock.makefile("rw") as lines:
            print(side.rank, file=lines, flush=True)
            for line in lines:
                print(measure(side, json.loads(line)), file=lines, flush=True)
    side.barrier()
    side.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
