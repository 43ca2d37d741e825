# SPDX-License-Identifier: BSD-3-Clause
"""Processes that measure what they send each other: one leads, others follow.

The leader tells the followers each test before it begins: an ``Order``. There are
two ways: a ``Pair`` is the two ends of an endpoint, which the leader has connected,
and ``Ranks`` are all ranks of a communicator. Both ends of a test know its number of
messages, so nothing but the messages that are measured crosses the connection;
streams end with an answer of 8 bytes.
"""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol, Self

from .._communicator.communicator import Communicator
from .._core.endpoint import Endpoint
from .._core.worker_address import accept_addressed
from .._version import __version__

#: What one process may ask another to allocate, in bytes.
LARGEST = 1 << 30
_MOST = 100_000_000  # messages of one order
_MOST_AT_ONCE = 4096

#: Tests of two processes, and operations of ranks, which are called collective.
TESTS = ("latency", "bandwidth", "rate")
OPERATIONS = ("barrier", "bcast", "allgather", "alltoall", "allreduce")

_ORDER_BYTES = 256  # of an order among ranks


class PairError(Exception):
    """The other process does not understand, or has found something wrong."""


@dataclasses.dataclass(frozen=True)
class Order:
    """A test that all processes do together.

    Attributes:
        test: one of TESTS or OPERATIONS; "hello" and "end" do nothing.
        size: bytes of a message; of an operation, what one rank gives another.
        count: messages, round trips or operations.
        window: messages under way at a time; of ``rate``, of one call.
        version: of ucp.
    """

    test: str
    size: int = 8
    count: int = 1
    window: int = 1
    version: str = __version__

    def pack(self) -> bytes:
        return json.dumps(dataclasses.asdict(self)).encode()

    @classmethod
    def unpack(cls, data: bytes | bytearray | memoryview) -> Self:
        """Read what a peer has sent, who may be anybody."""
        try:
            order = cls(**json.loads(bytes(data)))
            numbers = (order.size, order.count, order.window)
            if not all(type(number) is int for number in numbers):
                raise ValueError("a number is none")
        except (ValueError, TypeError, RecursionError) as exc:
            raise PairError(f"the peer sent what is no order: {exc}") from exc
        if order.test not in ("hello", "end", *TESTS, *OPERATIONS):
            raise PairError(f"the peer asked for an unknown test: {order.test!r:.40}")
        if order.version != __version__:
            raise PairError(
                f"the peer has ucp {order.version!s:.40}, this process {__version__}: "
                "install the same version on both hosts"
            )
        if not (
            0 <= order.size <= LARGEST
            and 1 <= order.count <= _MOST
            and 1 <= order.window <= _MOST_AT_ONCE
        ):
            raise PairError(f"the peer asked for too much: {order}")
        return order


class Side(Protocol):
    """One of the processes.

    Attributes:
        rank: 0 is the leader.
        size: how many there are.
    """

    rank: int
    size: int

    async def tell(self, order: Order) -> None:
        """The leader's: begin a test."""

    async def next_order(self) -> Order:
        """Wait for a test. Only a follower calls this."""

    async def endpoint(self) -> Endpoint | None:
        """Return the endpoint to the other process of a test between two processes.

        None: this rank is neither the sender nor the receiver.
        """

    async def communicator(self) -> Communicator:
        """Return the communicator of all processes."""


class Pair:
    """Two processes and an endpoint between them."""

    size = 2

    def __init__(self, ep: Endpoint, rank: int) -> None:
        self.rank = rank
        self._ep = ep
        self._comm: Communicator | None = None

    async def tell(self, order: Order) -> None:
        await self._ep.send_obj(order.pack())
        answer = json.loads(bytes(await self._ep.recv_obj()))
        if answer.get("error") is not None:
            raise PairError(f"the peer said: {answer['error']!s:.300}")

    async def next_order(self) -> Order:
        data = await self._ep.recv_obj()
        try:
            order = Order.unpack(data)
        except PairError as exc:
            await self._ep.send_obj(json.dumps({"error": str(exc)}).encode())
            raise
        await self._ep.send_obj(json.dumps({"version": __version__}).encode())
        return order

    async def endpoint(self) -> Endpoint | None:
        return self._ep

    async def communicator(self) -> Communicator:
        if self._comm is None:
            self._comm = await Communicator.from_allgather(self.rank, 2, self._swap)
        return self._comm

    async def _swap(self, part: bytes) -> list[bytes]:
        await self._ep.send_obj(part)
        other = bytes(await self._ep.recv_obj())
        return [part, other] if self.rank == 0 else [other, part]

    def close(self) -> None:
        if self._comm is not None:
            self._comm.close()


class Ranks:
    """The ranks of a communicator; tests of two are those of ranks 0 and 1."""

    def __init__(self, comm: Communicator) -> None:
        self.rank, self.size = comm.rank, comm.size
        self._comm = comm
        self._ep: Endpoint | None = None

    async def tell(self, order: Order) -> None:
        data = bytearray(order.pack().ljust(_ORDER_BYTES))
        await self._comm.bcast(data)

    async def next_order(self) -> Order:
        data = bytearray(_ORDER_BYTES)
        await self._comm.bcast(data)
        return Order.unpack(data)

    async def endpoint(self) -> Endpoint | None:
        if self.rank == 0 and self._ep is None:
            self._ep = await self._comm.endpoint(1)
        elif self.rank == 1 and self._ep is None:
            self._ep = await anext(accept_addressed())
        return self._ep

    async def communicator(self) -> Communicator:
        return self._comm


async def lead(side: Side, order: Order) -> float:
    """Do a test with the others; how many seconds it took."""
    await side.tell(order)
    return await _do(side, order)


async def follow(side: Side) -> None:
    """Do the leader's tests until there are no more."""
    while (order := await side.next_order()).test != "end":
        await _do(side, order)


async def _do(side: Side, order: Order) -> float:
    if order.test in OPERATIONS:
        return await _operate(await side.communicator(), order)
    if order.test in TESTS:
        ep = await side.endpoint()
        if ep is not None:
            return await _PARTS[order.test](ep, order, side.rank == 0)
    return 0.0


def filled(size: int) -> bytearray:
    """Return a buffer whose pages have been written.

    Pages that were never written are read faster than others.
    """
    return bytearray(b"\x01") * size


async def _ping(ep: Endpoint, order: Order, is_leader: bool) -> float:
    out, into = filled(order.size), filled(order.size)
    send, recv = ep.send, ep.recv
    started = time.perf_counter()
    if is_leader:
        for _ in range(order.count):
            await send(out)
            await recv(into)
    else:
        for _ in range(order.count):
            await recv(into)
            await send(into)
    return time.perf_counter() - started


async def _stream(ep: Endpoint, order: Order, is_leader: bool) -> float:
    """Messages one way, ``window`` of them under way at a time."""
    data, answer = filled(order.size), filled(8)
    post: Callable[[bytearray], Any] = ep.send if is_leader else ep.recv
    pending: deque[Any] = deque()
    started = time.perf_counter()
    for _ in range(order.count):
        if len(pending) == order.window:
            await pending.popleft()
        pending.append(post(data))
    while pending:
        await pending.popleft()
    await (ep.recv(answer) if is_leader else ep.send(answer))
    return time.perf_counter() - started


async def _stream_many(ep: Endpoint, order: Order, is_leader: bool) -> float:
    """Messages one way, ``window`` of them with one call."""
    answer = filled(8)
    buffers = [filled(order.size)] * order.window
    many: Callable[[list[bytearray]], Any] = ep.send_many if is_leader else ep.recv_many
    started = time.perf_counter()
    for _ in range(order.count // order.window):
        await many(buffers)
    await (ep.recv(answer) if is_leader else ep.send(answer))
    return time.perf_counter() - started


_PARTS = {"latency": _ping, "bandwidth": _stream, "rate": _stream_many}


async def _operate(comm: Communicator, order: Order) -> float:
    """A collective operation again and again, between two barriers."""
    operation = _operation(comm, order.test, order.size)
    await comm.barrier()
    started = time.perf_counter()
    for _ in range(order.count):
        await operation()
    seconds = time.perf_counter() - started
    await comm.barrier()
    return seconds


def _operation(comm: Communicator, name: str, size: int) -> Callable[[], Any]:
    sent = filled(size)
    match name:
        case "barrier":
            return comm.barrier
        case "bcast":
            return lambda: comm.bcast(sent)
        case "allgather":
            received = filled(size * comm.size)
            return lambda: comm.allgather(sent, received)
        case "alltoall":
            parts, received = filled(size * comm.size), filled(size * comm.size)
            return lambda: comm.alltoall(parts, received)
    numbers = memoryview(bytearray(-(-size // 8) * 8)).cast("d")
    result = memoryview(bytearray(numbers.nbytes)).cast("d")
    return lambda: comm.allreduce(numbers, result)


async def verify(side: Pair, size: int, rounds: int) -> float:
    """Send random bytes there and back, and compare them; seconds of a round trip.

    Raises:
        PairError: other bytes have come back.
    """
    ep = side._ep
    out, into = os.urandom(size), bytearray(size)
    await side.tell(Order("latency", size, rounds))
    started = time.perf_counter()
    for _ in range(rounds):
        await ep.send(out)
        await ep.recv(into)
    seconds = (time.perf_counter() - started) / rounds
    if into != out:
        first = next(i for i in range(size) if into[i] != out[i])
        raise PairError(f"byte {first} of {size} came back changed")
    return seconds
