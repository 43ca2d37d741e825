# SPDX-License-Identifier: BSD-3-Clause
"""Kinds of messages: how they are sent and received."""

import numpy as np

import ucp

from . import content
from .lane import Receiver, Sender
from .plan import size


class Kind:
    """Of one lane, on one side.

    Attributes:
        is_exact: all its messages have the same parts, as the receiver must know.
        is_per_part: each part is a message of its own.
        is_tagged: several receives may be under way: no other lane gets what is
            left.
        may_be_gone: a message that was seen may be withdrawn by its sender.
        most: messages of a lane.
        sender, receiver: the classes of the lane's two sides.
        is_ordered: a message that is given back comes before later ones.
        is_visible: the sender sees in the receiver's buffers how far a message is.
    """

    name = ""
    is_exact = True
    is_per_part = False
    is_tagged = False
    may_be_gone = False
    is_ordered = True
    is_visible = True
    most = 30
    sender, receiver = Sender, Receiver

    def __init__(self, side, course):
        self.side, self.course = side, course
        self.ep = side.ep

    @classmethod
    def parts(cls, rng, options):
        """Sizes of the parts of a message."""
        return [max(size(rng, options.largest, options.smallest), 1)]

    @property
    def num_ends(self):
        return len(self.course.parts) if self.is_per_part else 1

    def make(self, numbers):
        """New memory with these messages."""
        course, views = self.course, []
        sizes = course.parts if self.is_exact else [course.sizes[numbers[0]]]
        for part, each in enumerate(sizes):
            view = np.empty(each, dtype=np.uint8)
            if self.is_per_part:
                content.fill(view, course.number, numbers[part])
            else:
                content.fill(view, course.number, numbers[0], part)
            views.append(view)
        return views

    def send(self, numbers, views, operation):
        raise NotImplementedError

    def recv(self, views, operation):
        raise NotImplementedError

    def taken(self, result, views):
        """The messages that a receive has got, each a list of its parts."""
        if self.is_exact:
            return [views]
        return [[views[0][:result]]]

    def adapt(self, plan):
        """The plan of an operation of this kind."""
        return plan

    def close(self):
        """At the end of the lane."""

    def is_done(self, awaitable):
        """Has it ended, whoever has been told?"""
        return isinstance(awaitable, ucp._ext.Request) and awaitable.done()


class Plain(Kind):
    name = "plain"

    def send(self, numbers, views, operation):
        return self.ep.send(views[0])

    def recv(self, views, operation):
        return self.ep.recv(views[0])


class Tagged(Kind):
    name = "tagged"
    is_tagged = True

    def send(self, numbers, views, operation):
        return self.ep.send(views[0], self.course.tag)

    def recv(self, views, operation):
        return self.ep.recv(views[0], self.course.tag)


class Into(Kind):
    name = "recv_into"
    is_exact = False
    is_tagged = True

    def send(self, numbers, views, operation):
        return self.ep.send(views[0], self.course.tag)

    def recv(self, views, operation):
        return self.ep.recv_into(views[0], self.course.tag)


class OnChannel(Kind):
    name = "channel"

    def __init__(self, side, course):
        super().__init__(side, course)
        self.channel = self.ep.channel(10 + course.index)

    def send(self, numbers, views, operation):
        return self.channel.send(views[0])

    def recv(self, views, operation):
        return self.channel.recv(views[0])


class Many(Kind):
    name = "many"
    is_per_part = True

    @classmethod
    def parts(cls, rng, options):
        each = size(rng, options.largest // 4, options.smallest)
        return [max(each, 1)] * rng.choice([2, 3, 5])

    def send(self, numbers, views, operation):
        return self.ep.send_many(views, self.course.tag)

    def recv(self, views, operation):
        return self.ep.recv_many(views, self.course.tag)


class Held(Kind):
    """A message is taken before its bytes are received."""

    name = "message"
    is_exact = False
    is_tagged = True
    may_be_gone = True

    def send(self, numbers, views, operation):
        return self.ep.send(views[0], self.course.tag)

    async def recv(self, views, operation):
        message = await self.ep.recv_message(self.course.tag)
        return await message.recv(views[0])


class Owned(Kind):
    """The library makes the memory that is received into."""

    name = "recv_obj"
    is_visible = False
    is_exact = False
    is_tagged = True

    def send(self, numbers, views, operation):
        return self.ep.send_obj(views[0], self.course.tag)

    def recv(self, views, operation):
        operation.views = []
        return self.ep.recv_obj(self.course.tag)

    def taken(self, result, views):
        received = np.frombuffer(result, dtype=np.uint8)
        views.append(received)  # to be poisoned
        return [[received.copy()]]


class Allocated(Owned):
    """The program's allocator does."""

    name = "allocator"
    is_visible = True

    def recv(self, views, operation):
        operation.views = []

        def allocate(nbytes):
            operation.views = [views[0][:nbytes]]
            return operation.views[0]

        return self.ep.recv_obj(self.course.tag, allocator=allocate)

    def taken(self, result, views):
        return [views]


class Frames(Kind):
    name = "frames"

    @classmethod
    def parts(cls, rng, options):
        count = rng.choice([1, 2, 4])
        largest, smallest = options.largest // count, options.smallest // count
        return [max(size(rng, largest, smallest), 1) for _ in range(count)]

    def __init__(self, side, course):
        super().__init__(side, course)
        self.channel = self.ep.channel(10 + course.index)

    def make(self, numbers):
        """The last view is the header."""
        header = np.empty(200, dtype=np.uint8)
        content.fill(header, self.course.number, numbers[0], len(self.course.parts))
        return [*super().make(numbers), header]

    def send(self, numbers, views, operation):
        return self.channel.send_frames(views[:-1], views[-1].data)

    def recv(self, views, operation):
        return self.channel.recv_frames(into=views)

    def taken(self, result, views):
        return [[*views, np.frombuffer(result[0], dtype=np.uint8)]]


class OwnedFrames(Frames):
    name = "recv_frames"
    is_visible = False

    def recv(self, views, operation):
        operation.views = []
        return self.channel.recv_frames()

    def taken(self, result, views):
        header, frames = result
        parts = [np.frombuffer(each, dtype=np.uint8) for each in [*frames, header]]
        return [parts]


class Pickle(Kind):
    name = "pickle"
    is_visible = False
    is_exact = False

    def __init__(self, side, course):
        super().__init__(side, course)
        self.channel = self.ep.channel(10 + course.index)

    def send(self, numbers, views, operation):
        return self.channel.send_pickle(views[0])

    def recv(self, views, operation):
        operation.views = []
        return self.channel.recv_pickle(allow_pickle=True)

    def taken(self, result, views):
        return [[result]]


class Active(Kind):
    name = "am"
    is_visible = False
    is_exact = False

    def __init__(self, side, course):
        super().__init__(side, course)
        self.id = 100 + course.index

    def send(self, numbers, views, operation):
        return self.ep.am_send(views[0], id=self.id, header=bytes(numbers))

    def recv(self, views, operation):
        operation.views = []
        return self.ep.am_recv(id=self.id)

    def taken(self, result, views):
        return [[np.frombuffer(result, dtype=np.uint8)]]


class ActiveHeld(Active):
    name = "am message"
    is_visible = True
    may_be_gone = True

    async def recv(self, views, operation):
        message = await self.ep.am_recv_message(id=self.id)
        return await message.recv(views[0])

    def taken(self, result, views):
        return [[views[0][:result]]]


class Stream(Kind):
    name = "stream"

    def send(self, numbers, views, operation):
        return self.ep.stream_send(views[0])

    def recv(self, views, operation):
        return self.ep.stream_recv(views[0], wait_all=True)


class StreamParts(Stream):
    """What has come is kept when the receive of the rest is cancelled."""

    name = "stream parts"

    def __init__(self, side, course):
        super().__init__(side, course)
        self._head = b""

    async def recv(self, views, operation):
        view = views[0]
        got = len(self._head)
        view[:got] = np.frombuffer(self._head, dtype=np.uint8)
        while got < len(view):
            got += await self.ep.stream_recv(view[got:])
            self._head = bytes(view[:got])
        self._head = b""


class Raw(Kind):
    """UCX's own tags, on the worker."""

    name = "raw tag"
    is_exact = False
    is_tagged = True
    is_ordered = False

    def __init__(self, side, course):
        super().__init__(side, course)
        self.worker = ucp.current_worker()
        self.tag = (0x5000 << 48) + course.tag

    def send(self, numbers, views, operation):
        return self.worker.send(self.ep, views[0], self.tag)

    def recv(self, views, operation):
        return self.worker.recv(views[0], self.tag)


class RawHeld(Raw):
    name = "raw message"
    may_be_gone = True

    async def recv(self, views, operation):
        message = await self.worker.recv_message(self.tag)
        return await message.recv(views[0])


class Forced(Kind):
    """UCX's own tags, on the endpoint."""

    name = "force_tag"
    is_tagged = True
    is_ordered = False

    def send(self, numbers, views, operation):
        return self.ep.send(views[0], self.course.tag, True)

    def recv(self, views, operation):
        return self.ep.recv(views[0], self.course.tag, True)
