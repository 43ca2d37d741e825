# SPDX-License-Identifier: BSD-3-Clause
"""Kinds of traffic of chaos: one object for each end of a connection.

Both ends write and read. Message ``number`` of an end is known to the other
one: its bytes come out of _BLOCK, so that each can be checked whole, and a
number that is not the next one is a hole or came twice.
"""

import asyncio
import contextlib
import random

import ucp
from ucp.message import MessageListener, MessageReceiver, MessageSender

_MIB = 1 << 20
_BLOCK = random.Random(1).randbytes(_MIB) * 4

# Around every switch: inline, one frame, eager, announced, lent.
_SIZES = [0, 1, 50, 3000, 9000, 70_000, 140_000, 300_000, 2 * _MIB]

# How long a receive that is cancelled was waited for.
_PATIENCE = [0, 0.0005, 0.003]


# What the end of a peer may raise, and what it may not.
_GONE = (ucp.UCXBaseException, OSError)
_WRONG = (
    *(ucp.UCXMsgTruncated, ucp.UCXProtocolError, ucp.UCXNoMemory),
    *(ucp.UCXTimeout, ucp.UCXInvalidKey),
)


class Wrong(Exception):
    """What must not happen."""


class Over(Exception):
    """The connection has ended, and what was asked for said so by its result."""


@contextlib.contextmanager
def until_over():
    """What raises in the block because the connection has ended ends the block."""
    try:
        yield
    except _WRONG:
        raise
    except (*_GONE, Over):
        pass


def _size(rng, largest=2 * _MIB):
    size = rng.choice(_SIZES) if rng.random() < 0.3 else rng.randrange(200)
    return min(size, largest)


def _body(number, size):
    start = number * 7919 % _MIB
    return memoryview(_BLOCK)[start : start + size]


def _pack(number, size):
    return number.to_bytes(8, "little") + _body(number, size)


def _check(data, number):
    """``data`` is what _pack() made of that number and any size."""
    came = int.from_bytes(data[:8], "little")
    if len(data) < 8 or came != number:
        raise Wrong(f"message {number} is next; {came} came, {len(data)} bytes")
    _check_body(memoryview(data)[8:], number)


def _check_body(data, number):
    if data != _body(number, len(data)):
        raise Wrong(f"message {number}, {len(data)} bytes, is damaged")


class Talk:
    """One end. Subclasses say how message ``number`` is sent and received."""

    # Each message that was sent before a graceful close arrives, and is counted.
    is_exact = True

    # The other side's operations are served without the program.
    is_served = False

    def __init__(self, ep, seed, side, touch):
        self.ep = ep
        self.side = side
        self.touch = touch
        self.received = 0
        self.rng = random.Random(seed * 2 + side)
        self.lane = ep if seed % 3 else ep.channel(3)
        # The sender's and the receiver's end draw the same numbers.
        self.sizes = random.Random(seed * 2 + side)
        self.peer_sizes = random.Random(seed * 2 + 1 - side)
        self._pending = []

    def send(self, number):
        """Start to send; what can be awaited."""
        raise NotImplementedError

    async def receive(self):
        """The next message. Nothing is posted before it runs: it may be cancelled."""
        raise NotImplementedError

    def check(self, received):
        """Is that message ``self.received``?"""
        raise NotImplementedError

    async def write(self, count):
        try:
            for number in range(count):
                self.start(number)
                if self.rng.random() < 0.5:
                    await self.settle()
        finally:
            await self.settle()

    def start(self, number):
        """The same; settle() is what looks at it."""
        sending = self.send(number)
        if asyncio.iscoroutine(sending):  # an operation, too: asyncio.wait() needs
            sending = asyncio.create_task(sending)  # a task
        self._pending.append(asyncio.ensure_future(sending))

    async def settle(self):
        """Wait for what was started; cancelled, that goes on."""
        if self._pending:
            await asyncio.shield(asyncio.gather(*self._pending, return_exceptions=True))
        pending, self._pending = self._pending, []
        self.touch()
        errors = [each.exception() for each in pending if not each.cancelled()]
        for error in filter(None, errors):
            raise error

    async def read(self):
        while True:
            await self.read_one()

    async def read_one(self):
        """One message, asked for again after each cancelled receive."""
        while True:
            receiving = self.receive()
            if self.rng.random() >= 0.1:
                received = await receiving
                break
            try:
                received = await asyncio.wait_for(receiving, self.rng.choice(_PATIENCE))
                break
            except TimeoutError as error:
                if isinstance(error, ucp.UCXTimeout):
                    raise
        self.check(received)
        self.received += 1
        self.touch()

    async def read_rest(self):
        """After read() has raised: must do the same."""
        await self.read_one()

    async def end(self):
        """The connection is over, and so are write() and read()."""
        with until_over():
            await self.settle()


class Objects(Talk):
    """Messages of any length."""

    def send(self, number):
        return self.lane.send_obj(_pack(number, _size(self.rng)))

    async def receive(self):
        return await self.lane.recv_obj()

    def check(self, received):
        _check(received, self.received)


class Limited(Objects):
    """The same, held back by drain()."""

    def __init__(self, ep, seed, side, touch):
        super().__init__(ep, seed, side, touch)
        ep.set_limits(_MIB)

    async def write(self, count):
        for number in range(count):
            self.start(number)
            await self.ep.drain()
            self.touch()
        await self.settle()


class Withdrawn(Objects):
    """The same, some cancelled: these may be missing."""

    is_exact = False

    async def send(self, number):
        await super().send(number)

    def start(self, number):
        super().start(number)
        if self.rng.random() < 0.2:
            self._pending[self.rng.randrange(len(self._pending))].cancel()

    def check(self, received):
        number = int.from_bytes(received[:8], "little")
        if number < self.received:
            raise Wrong(f"message {number} comes after {self.received - 1}")
        _check(received, number)
        self.received = number


class Exact(Talk):
    """Messages whose length the receiver knows."""

    def __init__(self, ep, seed, side, touch):
        super().__init__(ep, seed, side, touch)
        self._expected = None

    def send(self, number):
        return self.lane.send(_pack(number, _size(self.sizes)))

    async def receive(self):
        if self._expected is None:
            self._expected = 8 + _size(self.peer_sizes)
        buffer = bytearray(self._expected)
        await self.lane.recv(buffer)
        return buffer

    def check(self, received):
        self._expected = None
        _check(received, self.received)


class Tagged(Talk):
    """Messages that are received by tag, each tag in its turn."""

    _LARGEST = 140_000

    def send(self, number):
        data = _pack(number, _size(self.rng, self._LARGEST))
        return self.lane.send(data, tag=number % 3)

    async def receive(self):
        buffer = bytearray(8 + self._LARGEST)
        length = await self.lane.recv_into(buffer, tag=self.received % 3)
        return memoryview(buffer)[:length]

    def check(self, received):
        _check(received, self.received)


class Many(Talk):
    """Floods of short messages: what fills UCX's queues."""

    _BATCH = 64

    def send(self, number):
        first = number * self._BATCH
        numbers = range(first, first + self._BATCH)
        return self.lane.send_many([_pack(each, 0) for each in numbers])

    async def receive(self):
        buffers = [bytearray(8) for _ in range(self._BATCH)]
        await self.lane.recv_many(buffers)
        return buffers

    def check(self, received):
        first = self.received * self._BATCH
        for number, data in enumerate(received, first):
            _check(data, number)


class Frames(Talk):
    """Several buffers and a header."""

    def send(self, number):
        sizes = [_size(self.rng, 300_000) for _ in range(self.rng.randrange(6))]
        header = number.to_bytes(8, "little") + len(sizes).to_bytes(2, "little")
        return self.lane.send_frames(
            [_body(number + at, size) for at, size in enumerate(sizes)], header
        )

    async def receive(self):
        return await self.lane.recv_frames()

    def check(self, received):
        header, frames = received
        number = int.from_bytes(header[:8], "little")
        if number != self.received:
            raise Wrong(f"frames {self.received} are next; {number} came")
        if int.from_bytes(header[8:], "little") != len(frames):
            raise Wrong(f"frames {number}: {len(frames)} came")
        for at, frame in enumerate(frames):
            _check_body(memoryview(frame), number + at)


class Calls(Frames):
    """Requests of side 0, each answered, and pings between them: as Dask talks."""

    is_exact = False

    def __init__(self, ep, seed, side, touch):
        super().__init__(ep, seed, side, touch)
        self._is_over = False
        self._answered = asyncio.Event()

    async def write(self, count):
        if self.side == 1:
            return
        await super().write(count)
        while self.received < count and not self._is_over:
            self._answered.clear()
            await self._answered.wait()

    def send(self, number):
        sending = super().send(number)
        if self.rng.random() < 0.1:
            return asyncio.gather(sending, self.ep.ping())
        return sending

    def check(self, received):
        super().check(received)
        if self.side == 1:
            self.start(self.received)
        self._answered.set()

    async def read(self):
        try:
            await super().read()
        finally:
            self._is_over = True
            self._answered.set()


class Streams(Talk):
    """Bytes without boundaries."""

    is_exact = False

    def __init__(self, ep, seed, side, touch):
        super().__init__(ep, seed, side, touch)
        self._sent = self._came = 0

    def send(self, number):
        at, size = self._sent % _MIB, _size(self.rng)
        self._sent += size
        return self.ep.stream_send(memoryview(_BLOCK)[at : at + size])

    async def receive(self):
        buffer = bytearray(1 + _size(self.rng))
        count = await self.ep.stream_recv(buffer, wait_all=self.rng.random() < 0.3)
        return memoryview(buffer)[:count]

    def check(self, received):
        if not received:
            raise Over
        at = self._came % _MIB
        if received != memoryview(_BLOCK)[at : at + len(received)]:
            raise Wrong(f"{len(received)} bytes at {self._came} are damaged")
        self._came += len(received)

    async def read_rest(self):
        """What a failed receive with wait_all had got is the next one's."""
        await self.read()


class ActiveMessages(Talk):
    """Active messages of one id."""

    _ID = 77

    def send(self, number):
        return self.ep.am_send(_pack(number, _size(self.rng)), id=self._ID)

    async def receive(self):
        return await self.ep.am_recv(id=self._ID)

    def check(self, received):
        _check(received, self.received)


class Messages(Talk):
    """Messages with metadata and buffers."""

    def __init__(self, ep, seed, side, touch):
        super().__init__(ep, seed, side, touch)
        self._sender = MessageSender()
        self._listener = MessageListener(ep, self._route)
        self._is_over = False

    def send(self, number):
        sizes = [_size(self.rng, 300_000) for _ in range(self.rng.randrange(4))]
        buffers = [_body(number + at, size) for at, size in enumerate(sizes)]
        return self._sender.send(
            self.ep, {"number": number, "count": len(sizes)}, buffers
        )

    def _route(self, metadata):
        return _Message(metadata, self)

    def on_message(self, metadata, buffers):
        if metadata["number"] != self.received or self._is_over:
            raise Wrong(f"message {self.received} is next, not {metadata}")
        if metadata["count"] != len(buffers):
            raise Wrong(f"{metadata}, but {len(buffers)} buffers")
        for at, buffer in enumerate(buffers):
            _check_body(memoryview(buffer), self.received + at)
        self.received += 1
        self.touch()

    async def read(self):
        await self._listener.wait_closed()
        if self.ep.error is not None:
            raise self.ep.error

    async def read_rest(self):
        """It hands out no more: see on_message()."""
        self._is_over = True
        raise Over

    async def end(self):
        await super().end()
        with until_over():
            await self._sender.close()


class _Message(MessageReceiver):
    __slots__ = ("_talk",)

    def __init__(self, metadata, talk):
        super().__init__(metadata)
        self._talk = talk

    def finish(self, buffers):
        self._talk.on_message(self.metadata, buffers)


class Memories(Talk):
    """Side 0 writes to side 1's memory, reads it, and counts in it."""

    _SIZE = 1 << 19

    is_exact = False

    def __init__(self, ep, seed, side, touch):
        super().__init__(ep, seed, side, touch)
        self._keys = ep.channel(8)
        self._nothing = ep.channel(9)
        self._memory = None
        self.is_served = side == 1
        if side == 1:
            if seed % 2:
                self._memory = ucp.Memory.allocate(8 + self._SIZE)
            else:
                self._memory = ucp.Memory.register(bytearray(8 + self._SIZE))

    async def write(self, count):
        if self.side == 1:
            await self._keys.send_obj(self._memory.key)
            return
        remote = self.ep.remote(bytes(await self._keys.recv_obj()))
        for number in range(count):
            await self._use(remote, number)
            self.touch()
        remote.close()

    async def _use(self, remote, number):
        size = _size(self.rng, self._SIZE)
        offset = 8 + self.rng.randrange(self._SIZE - size + 1)
        await remote.put(_body(number, size), offset)
        buffer = bytearray(size)
        await remote.get(buffer, offset)
        _check_body(memoryview(buffer), number)
        if (count := await remote.fetch_add(0, 1)) != number:
            raise Wrong(f"{number} was added, but {count} there")

    async def receive(self):
        return await self._nothing.recv_obj()

    def check(self, received):
        raise Wrong(f"{len(received)} bytes that nobody sent")

    async def end(self):
        await super().end()
        if self._memory is not None:
            self._memory.close()


KINDS = [
    *(Objects, Limited, Withdrawn, Exact, Tagged, Many, Frames, Calls, Streams),
    *(ActiveMessages, Messages, Memories),
]
