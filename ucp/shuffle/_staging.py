# SPDX-License-Identifier: BSD-3-Clause
"""Messages that travel through buffers of registered memory, batch by batch.

What is on the way between two ranks, for a message with the tag ``t``::

    sender                               receiver
    header: length, path, small data ->                   batch 0
                                      <- answer           batch 65535
    data                              ->                  batches 1 to 65534

The data follows the answer, so a sender uses buffers for messages only that are
being received. A receiver uses one for a batch only that has been announced, so it
is free again soon. Each direction has its own buffers: neither waits for the other,
and ranks that send to each other in a circle do not stop for want of buffers.
"""

from __future__ import annotations

import asyncio
import operator
import pickle
import struct
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from types import TracebackType
from typing import Any, NamedTuple, Self, SupportsIndex

from .. import _ext
from .._communicator.agree import (
    allgather_json,
    check_same,
    describe_error,
    host_id,
    raise_first_error,
)
from .._communicator.communicator import Communicator
from .._core.ending import reason_of
from .._core.pool import BufferPool
from .._core.statistics import Statistics
from ..exceptions import UCXCloseError, UCXMsgTruncated

_HEADER = struct.Struct("<QB")  # length, path
_INLINE, _STAGED, _DIRECT = range(3)
_INLINE_MAX = 4096  # bytes

_ANSWER = 65535
_MAX_BATCH = 65534  # the batches of a longer message begin again with 1
_MAX_RANKS = 65536
_TAKEN, _TOO_LONG = b"\x01", b"\x00"

_CLOSED = "the staging queue is closed"

_ABOUT = struct.Struct("<16sQ")  # what ranks tell each other first: host, nbytes


def pack_tag(user: SupportsIndex, rank: SupportsIndex, batch: SupportsIndex) -> int:
    """The tag of a batch: 32 bits of the user's, 16 of a rank, 16 of the batch.

        >>> hex(ucp.shuffle.pack_tag(0x20, 26, 2))
        '0x20001a0002'

    Raises:
        ValueError: a number does not fit.
    """
    values = [int(user), int(rank), int(batch)]
    for name, value, bits in zip(
        ("user tag", "rank", "batch"), values, (32, 16, 16), strict=True
    ):
        if not 0 <= value < 1 << bits:
            raise ValueError(f"{name} {value} does not fit into {bits} bits")
    return values[0] << 32 | values[1] << 16 | values[2]


@dataclass(frozen=True, slots=True)
class StagingStatistics(Statistics):
    """Statistics of a staging queue on this rank: ``StagingQueue.statistics``.

    Attributes:
        num_sent: messages.
        num_received: messages.
        inline: bytes of short messages, which need no buffer, sent and received
            like the next two.
        staged: bytes that went through buffers.
        direct: bytes that went past them.
        num_waits: how often a batch had to wait for a buffer.
    """

    num_sent: int
    num_received: int
    inline: int
    staged: int
    direct: int
    num_waits: int


class _Operation:
    """A send or a receive; runs in its own task, so that it can go on when its
    caller is cancelled.

    Attributes:
        view: the caller's memory, of bytes; a copy once the caller has been
            cancelled.
        key: the other rank, and the tag.
        is_recv: it is a receive.
        is_matched: the other rank takes part in it.
        is_withdrawn: the caller has been cancelled after that.
        request: the one past the buffers that is under way.
    """

    __slots__ = ("is_matched", "is_recv", "is_withdrawn", "key", "request", "view")

    def __init__(
        self, view: memoryview, key: tuple[int, int], *, is_recv: bool
    ) -> None:
        self.view = view
        self.key = key
        self.is_recv = is_recv
        self.is_matched = False
        self.is_withdrawn = False
        self.request: _ext.Request[Any] | None = None


class _Batch(NamedTuple):
    """A batch on its way."""

    request: _ext.Request[Any]
    buffer: _ext.PoolBuffer
    part: memoryview  # of the buffer
    start: int


class _Turns:
    """One at a time for each key, in the order of the calls."""

    def __init__(self) -> None:
        self._waiting: dict[object, deque[asyncio.Future[None]]] = {}

    async def take(self, key: object) -> None:
        waiting = self._waiting.get(key)
        if waiting is None:
            self._waiting[key] = deque()
            return
        turn = asyncio.get_running_loop().create_future()
        waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self.give(key)
            raise

    def give(self, key: object) -> None:
        """To the next."""
        waiting = self._waiting[key]
        while waiting:
            turn = waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        del self._waiting[key]

    def refuse(self, exc: type[Exception], text: str) -> None:
        """There are no more: to who waits."""
        for waiting in self._waiting.values():
            for turn in waiting:
                if not turn.done():
                    turn.set_exception(exc(text))
            waiting.clear()


class StagingQueue:
    """Messages between ranks through buffers of memory that is registered once.

        async with await ucp.shuffle.StagingQueue.create(comm) as queue:
            await asyncio.gather(
                queue.send(array, right), queue.recv(other, source=left)
            )

    A message is cut into batches. Each is copied into a buffer, sent from there,
    received into a buffer, and copied to where it belongs. No memory is registered
    and no buffer allocated on the way, which pays where a network needs registered
    memory, and messages come from memory that is new each time. Without a free
    buffer a batch waits. Ranks on this host read each other's memory instead: such
    messages go past the buffers.

    Messages of one rank to another with one tag are received in their order.

    It is made by ``create()``, and bound to the event loop of its communicator.
    """

    def __init__(self, comm: Communicator, depth: int, pools: list[BufferPool]) -> None:
        """Use ``create()``."""
        self._comm = comm
        self._depth = depth
        self._send_pool, self._recv_pool = pools
        self._near: list[bool] = []  # by rank: it reads this one's memory
        self._turns = _Turns()
        self._tasks: dict[asyncio.Task[Any], _Operation] = {}
        # Messages whose receive was cancelled: bytes, or the length of one that is
        # still the communicator's, by rank and tag.
        self._returned: dict[tuple[int, int], deque[bytearray | int]] = {}
        self._counts = {field.name: 0 for field in fields(StagingStatistics)}
        self._is_closed = False

    @classmethod
    async def create(
        cls,
        comm: Communicator,
        *,
        nbytes: SupportsIndex = 1 << 20,
        count: SupportsIndex = 8,
        depth: SupportsIndex = 2,
        stage_all: bool = False,
    ) -> Self:
        """Make one; every rank of ``comm`` calls this, with the same ``nbytes``.

        Args:
            comm: the communicator, of at most 65536 ranks. The queue makes one of
                its own of it.
            nbytes: bytes of a buffer, and so of a batch; 1 or more.
            count: buffers for sending, and as many for receiving; 1 or more.
            depth: batches of a message that are under way at a time; 1 or more.
            stage_all: stage messages to ranks of this host as well.

        Raises:
            ValueError: a number makes no sense, or ``nbytes`` is another on
                another rank. It is raised on every rank.
            UCXNoMemory: there is not enough memory for the buffers.
            UCXRankFailed: the communicator has failed.
        """
        if comm.size > _MAX_RANKS:
            raise ValueError(
                f"{comm.size} ranks: a tag has room for {_MAX_RANKS} of them"
            )
        pools: list[BufferPool] = []
        cause: Exception | None = None
        numbers: dict[str, int] = {}
        try:
            numbers = _known_numbers(nbytes, count, depth)
            mine = {"host": host_id(), "nbytes": numbers["nbytes"]}
        except Exception as error:  # whatever an __index__ raises, too
            cause = error
            mine = describe_error(error)
        own = await comm.split(0, comm.rank)
        assert own is not None
        try:
            said = await allgather_json(own, mine)
            try:
                near = _compare(said, comm.rank)
            except Exception as error:  # on every rank
                own.close()
                raise error from cause
            for _ in range(2):
                pools.append(BufferPool(numbers["count"], numbers["nbytes"]))
        except BaseException as exc:
            for pool in pools:
                pool.close()
            if not own.closed():
                own.abort(reason_of(exc))
            raise
        self = cls(own, numbers["depth"], pools)
        self._near = [is_near and not stage_all for is_near in near]
        return self

    @property
    def nbytes(self) -> int:
        """Bytes of a buffer."""
        return self._send_pool.nbytes

    @property
    def statistics(self) -> StagingStatistics:
        """What has been done so far."""
        return StagingStatistics(**self._counts)

    def closed(self) -> bool:
        """True after ``close()`` or ``abort()``."""
        return self._is_closed

    # The operations.

    async def send(
        self, data: Any, dest: SupportsIndex, tag: SupportsIndex = 0
    ) -> None:
        """Send a message; done when its memory may be changed.

        When cancelled before it has begun nothing is sent. After that it goes on
        with a copy of its memory. To a rank on the same host long messages go past
        the buffers: once the other rank takes one, cancelling waits for its end.

        Args:
            data: contiguous host memory of any kind.
            dest: the rank that receives it; this one, too.
            tag: 0 to 2**32 - 1.

        Raises:
            ValueError: there is no such rank, or tag.
            BufferError: the memory is not contiguous.
            TypeError: it is not host memory.
            UCXCloseError: the queue is closed.
            UCXRankFailed: a rank has failed.
        """
        rank = self._check(dest, tag)
        operation = _Operation(_bytes_view(data), (rank, int(tag)), is_recv=False)
        await self._run(operation)

    async def recv(
        self, buffer: Any, source: SupportsIndex, tag: SupportsIndex = 0
    ) -> int:
        """Receive the next message of a rank with a tag.

        When cancelled the message is not lost: the next receive gets it.

        Args:
            buffer: writable contiguous host memory of any kind, at least as long
                as the message.
            source: the rank that sends it.
            tag: as the sender has given it.

        Returns:
            The bytes of the message.

        Raises:
            UCXMsgTruncated: the message is longer than ``buffer``, and lost.

        Other exceptions are as for ``send()``.
        """
        rank = self._check(source, tag)
        view = _bytes_view(buffer, writable=True)
        return await self._run(_Operation(view, (rank, int(tag)), is_recv=True))

    async def close(self) -> None:
        """Wait for the operations that are under way, and leave.

        A receive for which no message has come yet raises UCXCloseError, and so does a
        send that has not begun because it waits for earlier operations.
        """
        if self._is_closed:
            return
        self._is_closed = True
        self._turns.refuse(UCXCloseError, _CLOSED)
        try:
            while self._tasks:
                for task, operation in self._tasks.items():
                    if not operation.is_matched:
                        task.cancel()
                await asyncio.wait(list(self._tasks))
        except BaseException:
            self.abort()
            raise
        self._comm.close()
        self._end()

    def abort(self, reason: str | None = None) -> None:
        """Give the queue up: operations on every rank raise UCXRankFailed."""
        self._is_closed = True
        self._turns.refuse(UCXCloseError, _CLOSED)
        self._comm.abort(reason)
        self._end()

    def _end(self) -> None:
        self._send_pool.close()
        self._recv_pool.close()
        self._returned.clear()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close; after an exception abort, which tells it to the other ranks."""
        if exc is not None and not self._is_closed:
            self.abort(reason_of(exc))
        await self.close()

    def __repr__(self) -> str:
        state = ", closed" if self._is_closed else ""
        return (
            f"<ucp.shuffle.StagingQueue of {self._send_pool.count} x {self.nbytes} "
            f"bytes, rank {self._comm.rank} of {self._comm.size}{state}>"
        )

    # How they run.

    def _check(self, rank: SupportsIndex, tag: SupportsIndex) -> int:
        if self._is_closed:
            raise UCXCloseError(_CLOSED)
        number = int(rank)
        if not 0 <= number < self._comm.size:
            raise ValueError(f"there is no rank {number} of {self._comm.size}")
        pack_tag(tag, number, 0)
        return number

    async def _run(self, operation: _Operation) -> int:
        """Run it in its turn, which ends when its result is the caller's."""
        turn = operation.is_recv, *operation.key
        await self._turns.take(turn)
        if self._is_closed:
            self._turns.give(turn)
            raise UCXCloseError(_CLOSED)
        steps = self._recv if operation.is_recv else self._send
        task = asyncio.get_running_loop().create_task(steps(operation))
        self._tasks[task] = operation
        task.add_done_callback(self._forget)
        try:
            result = await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.done():
                task.add_done_callback(lambda _task: self._turns.give(turn))
                _withdraw(operation, task)
                await _until_free(operation, task)
                raise
            if operation.is_recv and not task.cancelled() and not task.exception():
                self._give_back(operation, task.result())
            self._turns.give(turn)
            if task.cancelled() and self._is_closed:
                raise UCXCloseError(_CLOSED) from None
            raise
        except BaseException:
            self._turns.give(turn)
            raise
        self._turns.give(turn)
        return result

    def _forget(self, task: asyncio.Task[Any]) -> None:
        del self._tasks[task]
        if not task.cancelled():
            task.exception()  # nobody may be there to see it

    async def _take(
        self,
        pool: BufferPool,
        under_way: deque[_Batch],
        finish: Callable[[_Batch], Awaitable[None]],
    ) -> _ext.PoolBuffer:
        """A buffer; the message's own are finished before others are waited for."""
        while True:
            buffer = pool._take()
            if buffer is not None:
                return buffer
            self._counts["num_waits"] += 1
            if not under_way:
                return await pool.acquire()
            await finish(under_way.popleft())

    # Sending.

    async def _send(self, operation: _Operation) -> int:
        view, (dest, tag) = operation.view, operation.key
        path = (
            _INLINE
            if view.nbytes <= _INLINE_MAX
            else _DIRECT
            if self._near[dest]
            else _STAGED
        )
        header = _HEADER.pack(view.nbytes, path)
        if path == _INLINE:
            header += view
        operation.is_matched = True  # it is announced
        await self._comm.send(header, dest, pack_tag(tag, self._comm.rank, 0))
        if path != _INLINE and await self._is_taken(dest, tag):
            if path == _DIRECT:
                operation.request = self._comm.send(
                    operation.view, dest, pack_tag(tag, self._comm.rank, 1)
                )
                await operation.request
            else:
                await self._send_batches(operation)
        self._count("num_sent", path, view.nbytes)
        return view.nbytes

    async def _is_taken(self, dest: int, tag: int) -> bool:
        answer = bytearray(1)
        await self._comm.recv(answer, dest, pack_tag(tag, dest, _ANSWER))
        return answer == _TAKEN

    async def _send_batches(self, operation: _Operation) -> None:
        dest, tag = operation.key
        with _under_way() as under_way:
            for number, start, end in self._cut(operation.view.nbytes):
                while len(under_way) >= self._depth:
                    await _sent(under_way.popleft())
                buffer = await self._take(self._send_pool, under_way, _sent)
                part = _part_of(buffer, end - start)
                part[:] = operation.view[start:end]
                batch_tag = pack_tag(tag, self._comm.rank, number)
                request = self._comm.send(part, dest, batch_tag)
                under_way.append(_Batch(request, buffer, part, start))
            while under_way:
                await _sent(under_way.popleft())

    def _cut(self, length: int) -> list[tuple[int, int, int]]:
        """The batches of a message: their number, and where they begin and end."""
        return [
            (n % _MAX_BATCH + 1, start, min(start + self.nbytes, length))
            for n, start in enumerate(range(0, length, self.nbytes))
        ]

    # Receiving.

    async def _recv(self, operation: _Operation) -> int:
        source, tag = operation.key
        returned = self._returned.get(operation.key)
        if returned is not None:
            message = returned.popleft()
            if not returned:
                del self._returned[operation.key]
            operation.is_matched = True
            if isinstance(message, int):
                return await self._recv_direct(operation, message)
            return _put(operation.view, message, len(message), source)
        header = bytearray(_HEADER.size + _INLINE_MAX)
        await self._comm.recv(header, source, pack_tag(tag, source, 0))
        operation.is_matched = True
        length: int
        length, path = _HEADER.unpack_from(header)
        self._count("num_received", path, length)
        if path == _INLINE:
            data = memoryview(header)[_HEADER.size :]
            return _put(operation.view, data, length, source)
        room = operation.view.nbytes
        await self._comm.send(
            _TAKEN if length <= room else _TOO_LONG,
            source,
            pack_tag(tag, self._comm.rank, _ANSWER),
        )
        if length > room:
            raise _truncated(length, room, source)
        if path == _DIRECT:
            return await self._recv_direct(operation, length)
        await self._recv_batches(operation, length)
        if operation.is_withdrawn:
            self._give_back(operation, length)
        return length

    async def _recv_direct(self, operation: _Operation, length: int) -> int:
        source, tag = operation.key
        operation.request = self._comm.recv(
            operation.view, source, pack_tag(tag, source, 1)
        )
        if operation.is_withdrawn:
            operation.request.cancel()
        try:
            await operation.request
        except asyncio.CancelledError:
            self._returned.setdefault(operation.key, deque()).appendleft(length)
            raise
        if operation.is_withdrawn:
            self._give_back(operation, length)
        return length

    async def _recv_batches(self, operation: _Operation, length: int) -> None:
        source, tag = operation.key

        async def landed(batch: _Batch) -> None:
            await batch.request
            end = batch.start + batch.part.nbytes
            operation.view[batch.start : end] = batch.part
            _release(batch)

        with _under_way() as under_way:
            for number, start, end in self._cut(length):
                batch_tag = pack_tag(tag, source, number)
                if self._comm.iprobe(source, batch_tag) is None:
                    while under_way:  # no buffer is kept while the sender is awaited
                        await landed(under_way.popleft())
                    await self._comm.probe(source, batch_tag)
                while len(under_way) >= self._depth:
                    await landed(under_way.popleft())
                buffer = await self._take(self._recv_pool, under_way, landed)
                part = _part_of(buffer, end - start)
                request = self._comm.recv(part, source, batch_tag)
                under_way.append(_Batch(request, buffer, part, start))
            while under_way:
                await landed(under_way.popleft())

    def _give_back(self, operation: _Operation, length: int) -> None:
        """A message that nobody has got is the next one's."""
        message = bytearray(operation.view[:length])
        self._returned.setdefault(operation.key, deque()).appendleft(message)

    def _count(self, what: str, path: int, nbytes: int) -> None:
        self._counts[what] += 1
        self._counts[("inline", "staged", "direct")[path]] += nbytes


def _withdraw(operation: _Operation, task: asyncio.Task[Any]) -> None:
    """Its caller has been cancelled."""
    if task.done():
        return
    if not operation.is_matched:
        task.cancel()
        return
    operation.is_withdrawn = True
    request = operation.request
    if request is not None and operation.is_recv:
        request.cancel()
    if request is None or (request.done() and not request.cancelled()):
        # The rest comes from a copy, or lands there.
        operation.view = memoryview(bytearray(operation.view))


async def _until_free(operation: _Operation, task: asyncio.Task[Any]) -> None:
    """Wait while the other rank has the memory itself."""
    request = operation.request
    while request is not None and not request.done() and not task.done():
        with suppress(asyncio.CancelledError):  # the first one is raised then
            await asyncio.wait([task])


@contextmanager
def _under_way() -> Iterator[deque[_Batch]]:
    """The batches of a message; nobody looks at those that are left at the end."""
    batches: deque[_Batch] = deque()
    try:
        yield batches
    finally:
        for batch in batches:
            batch.request.cancel()


async def _sent(batch: _Batch) -> None:
    await batch.request
    _release(batch)


def _release(batch: _Batch) -> None:
    batch.part.release()
    batch.buffer.release()


def _part_of(buffer: Any, length: int) -> memoryview:
    return memoryview(buffer)[:length]


def _put(view: memoryview, message: Any, length: int, source: int) -> int:
    if length > view.nbytes:
        raise _truncated(length, view.nbytes, source)
    view[:length] = message[:length]
    return length


def _truncated(length: int, room: int, source: int) -> UCXMsgTruncated:
    return UCXMsgTruncated(
        f"the message of rank {source} has {length} bytes, the buffer {room}"
    )


def _bytes_view(data: Any, *, writable: bool = False) -> memoryview:
    """The memory as bytes."""
    try:
        buffer = pickle.PickleBuffer(data)
    except (TypeError, BufferError):
        what = type(data).__name__
        if hasattr(data, "__cuda_array_interface__"):
            what = f"memory of a device ({what}), which the communicator sends"
        raise TypeError(f"a staging queue takes host memory, not {what}") from None
    with memoryview(buffer) as view:
        if not view.c_contiguous:
            raise BufferError("a staging queue takes contiguous memory")
        if writable and view.readonly:
            raise BufferError("the buffer of a receive is read-only")
        return buffer.raw() if view.nbytes else memoryview(bytearray())


def _known_numbers(
    nbytes: SupportsIndex, count: SupportsIndex, depth: SupportsIndex
) -> dict[str, int]:
    numbers = {
        name: operator.index(value)
        for name, value in (("nbytes", nbytes), ("count", count), ("depth", depth))
    }
    for name, value in numbers.items():
        if value < 1:
            raise ValueError(f"{name} is {value}")
        if (value >= 2**31 and name != "nbytes") or value >= 2**63:
            raise OverflowError(f"{name} is {value}")
    return numbers


def _compare(said: list[dict[str, Any]], rank: int) -> list[bool]:
    """Which ranks are on this host; all must have the same ``nbytes``."""
    raise_first_error(said)
    check_same("has a staging queue", ["nbytes"], ([i["nbytes"]] for i in said))
    return [its["host"] == said[rank]["host"] for its in said]
