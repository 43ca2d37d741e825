# SPDX-License-Identifier: BSD-3-Clause
"""Messages and collective operations of a communicator, whose ranks are the sides."""

import socket

import numpy as np

import ucp
from ucp.shuffle import StagingQueue

from . import content
from .kinds import Kind
from .lane import Lane


class Messages(Kind):
    name = "comm"
    is_exact = False
    is_tagged = True

    def __init__(self, side, course):
        super().__init__(side, course)
        self.comm, self.peer = side.comm, 1 - side.index

    def send(self, numbers, views, operation):
        return self.comm.send(views[0], self.peer, self.course.tag)

    def recv(self, views, operation):
        return self.comm.recv(views[0], self.peer, self.course.tag)

    def taken(self, result, views):
        return [[views[0][: result.nbytes]]]


class AnyMessages(Messages):
    name = "comm any"

    def recv(self, views, operation):
        return self.comm.recv(views[0], ucp.ANY_SOURCE, self.course.tag)


class HeldMessages(Messages):
    name = "comm message"
    may_be_gone = True

    async def recv(self, views, operation):
        message = await self.comm.mprobe(self.peer, self.course.tag)
        return await message.recv(views[0])


class Staged(Kind):
    name = "staging"
    is_exact = False

    def __init__(self, side, course):
        super().__init__(side, course)
        self.queue, self.peer = side.queue, 1 - side.index
        course.window = 1  # a task's first step, in which it sends, may be late

    def send(self, numbers, views, operation):
        return self.queue.send(views[0], self.peer, self.course.tag)

    def recv(self, views, operation):
        return self.queue.recv(views[0], self.peer, self.course.tag)


class StagedAll(Staged):
    """Through buffers, although the ranks are on one host."""

    name = "staging all"

    def __init__(self, side, course):
        super().__init__(side, course)
        self.queue = side.queue_of_all


def free_root():
    """An address at which nobody listens; the system gives it to nobody else."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("127.0.0.1", 0))
    port = sock.getsockname()[1]
    sock.detach()
    return f"tcp://127.0.0.1:{port}"


class Member(Lane):
    """One rank in collective operations; the first that is cancelled ends them.

    So each lane has a communicator of its own.
    """

    way = "both"
    rank = 0

    def __init__(self, side, course):
        super().__init__(side, course)
        self._quarantine = side.quarantine()
        self._has_failed = False

    def offer(self):
        self.root = free_root()
        return self.root

    async def prepare(self):
        self.comm = await ucp.Communicator.connect(self.root, self.rank, 2, 30)

    async def run(self):
        for number in range(self.course.count):
            if self._has_failed:
                break
            operation = self._start(number)
            await operation.over()
        if self._has_failed:  # the others may not have heard of it
            self.comm.abort("an operation has been cancelled")

    def _start(self, number):
        rank = self.rank
        send = np.empty(self.course.parts[0], dtype=np.uint8)
        content.fill(send, self.course.number, number, rank)
        room = np.full(2 * len(send), content.FRESH, dtype=np.uint8)
        halves = [room[: len(send)], room[len(send) :]]
        views, call = self.kind.begin(self.comm, rank, send, room, halves)
        operation = self.new(f"number {number} on rank {rank}", views)
        operation.number, operation.halves = number, halves
        operation.start(call)
        return operation

    def ended(self, operation):
        if operation.end == "done":
            self._check(operation)
        else:
            self._has_failed = True
            if not isinstance(operation.error, ucp.UCXRankFailed):
                self.has_failed(operation)
        pattern = content.recv_pattern(self.side.index)
        self._quarantine.put(operation.views, pattern, self.key, operation)

    def _check(self, operation):
        size, rank = self.course.parts[0], self.rank
        theirs = np.empty((2, size), dtype=np.uint8)
        for each in range(2):
            content.fill(theirs[each], self.course.number, operation.number, each)
        for view, expected in self.kind.expected(theirs, rank, operation):
            wrong = view != expected
            if wrong.any():
                seen = content.origin(view[wrong])
                text = f"{operation.label}: {wrong.sum()} bytes are wrong: {seen}"
                self.report.fail(self.key, "wrong", text)

    def state_of(self, operation):
        view = self.kind.watched(operation, self.rank)
        if self.kind.is_done(operation.awaitable):
            return "complete"
        if view is None:
            return "unseen"
        if view[0] == content.FRESH:
            return "nothing"
        return "middle" if view[-1] == content.FRESH else "complete"

    async def finish(self, _outcomes=None):
        self._end()

    def _end(self):
        self._quarantine.check_all()
        self.comm.close()


class SecondMember(Member):
    """The one that the round takes for the sender."""

    rank = 1

    def accept(self, offer):
        self.root = offer

    def all_outcomes(self):
        return []

    def finish(self):
        self._end()


class Collective(Kind):
    sender, receiver = SecondMember, Member
    most = 4

    def begin(self, comm, rank, send, room, halves):
        """The memory that is given, and the call."""
        raise NotImplementedError

    def expected(self, theirs, rank, operation):
        """Pairs: what has been received, and what it must be."""
        raise NotImplementedError

    def watched(self, operation, rank):
        """What comes from the other rank, or None."""
        return operation.halves[1 - rank]


class Bcast(Collective):
    name = "bcast"

    def begin(self, comm, rank, send, room, halves):
        buffer = send if rank == 0 else halves[0]
        return [buffer], lambda: comm.bcast(buffer, 0)

    def expected(self, theirs, rank, operation):
        return [(operation.views[0], theirs[0])]

    def watched(self, operation, rank):
        return operation.halves[0] if rank else None


class Allgather(Collective):
    name = "allgather"

    def begin(self, comm, rank, send, room, halves):
        return [send, room], lambda: comm.allgather(send, room)

    def expected(self, theirs, rank, operation):
        return list(zip(operation.halves, theirs, strict=True))


class Gather(Allgather):
    name = "gather"

    def begin(self, comm, rank, send, room, halves):
        if rank:
            return [send], lambda: comm.gather(send, None, 0)
        return [send, room], lambda: comm.gather(send, room, 0)

    def expected(self, theirs, rank, operation):
        return [] if rank else super().expected(theirs, rank, operation)

    def watched(self, operation, rank):
        return None if rank else operation.halves[1]


class Scatter(Collective):
    name = "scatter"

    def begin(self, comm, rank, send, room, halves):
        if rank:
            return [halves[0]], lambda: comm.scatter(None, halves[0], 0)
        both = np.concatenate([send, send])
        return [both, halves[0]], lambda: comm.scatter(both, halves[0], 0)

    def expected(self, theirs, rank, operation):
        return [(operation.halves[0], theirs[0])]

    def watched(self, operation, rank):
        return operation.halves[0] if rank else None


class Alltoall(Collective):
    name = "alltoall"

    def begin(self, comm, rank, send, room, halves):
        both = np.concatenate([send, send])
        return [both, room], lambda: comm.alltoall(both, room)

    def expected(self, theirs, rank, operation):
        return list(zip(operation.halves, theirs, strict=True))


class Allreduce(Collective):
    name = "allreduce"

    def begin(self, comm, rank, send, room, halves):
        return [send, halves[0]], lambda: comm.allreduce(send, halves[0])

    def expected(self, theirs, rank, operation):
        return [(operation.halves[0], theirs[0] + theirs[1])]

    def watched(self, operation, rank):
        return operation.halves[0]


class InPlace(Allreduce):
    """The memory is read and written."""

    name = "allreduce in"

    def begin(self, comm, rank, send, room, halves):
        return [send], lambda: comm.allreduce(send)

    def expected(self, theirs, rank, operation):
        return [(operation.views[0], theirs[0] + theirs[1])]

    def watched(self, operation, rank):
        return None


class Reduce(Allreduce):
    name = "reduce"

    def begin(self, comm, rank, send, room, halves):
        if rank:
            return [send], lambda: comm.reduce(send, None, "sum", 0)
        return [send, halves[0]], lambda: comm.reduce(send, halves[0], "sum", 0)

    def expected(self, theirs, rank, operation):
        return [] if rank else super().expected(theirs, rank, operation)

    def watched(self, operation, rank):
        return None if rank else operation.halves[0]


MESSAGES = [Messages, AnyMessages, HeldMessages, Staged, StagedAll]
COLLECTIVES = [
    *(Bcast, Allgather, Gather, Scatter, Alltoall, Allreduce, InPlace, Reduce),
]


async def meet(side, root):
    """The communicator of both sides, and its queues."""
    side.comm = await ucp.Communicator.connect(root, side.index, 2, 30)
    side.queue = await StagingQueue.create(side.comm)
    side.queue_of_all = await StagingQueue.create(side.comm, stage_all=True)


async def part(side):
    await side.queue.close()
    await side.queue_of_all.close()
    side.comm.close()
