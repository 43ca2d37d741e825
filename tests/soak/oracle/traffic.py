# SPDX-License-Identifier: BSD-3-Clause
"""Messages of a random program, and which receive MPI lets each of them go to."""

import asyncio
import functools
from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from data import FILL, Buffer, draw_size, interleave, pattern

import ucp

_SEND_KINDS = ["array", "bytearray", "memory", "bytes"]
_RECV_KINDS = ["array", "bytearray", "memory"]

# How a rank takes the messages that are for it.
EXACT, ANY_SOURCE, ANY_TAG, ANY_OF_ALL, MIXED, PROBES = range(6)


@dataclass
class Message:
    source: int
    dest: int
    tag: int
    nbytes: int
    key: int
    number: int  # in the order of the messages of its source to its destination

    def data(self):
        return pattern(self.key, self.nbytes)


@dataclass
class Taken:
    """A receive, in the order of posting, and what it has got."""

    source: int
    tag: int
    got: ucp.Status
    data: bytes | None

    def is_for(self, message):
        return self.source in (ucp.ANY_SOURCE, message.source) and self.tag in (
            ucp.ANY_TAG,
            message.tag,
        )


class Traffic:
    """Messages between `size` ranks; no other messages have the tags ``base`` to
    ``base + 8``."""

    def __init__(self, rng, size, base):
        self.base = base
        is_flood = rng.random() < 0.1
        count = rng.randint(20, 150) if is_flood else rng.randint(1, 8)
        tags = rng.randint(1, 4)
        numbers = defaultdict(int)
        self.messages = []
        for _ in range(count):
            source, dest = rng.randrange(size), rng.randrange(size)
            nbytes = rng.randrange(300) if is_flood else draw_size(rng)
            number = numbers[source, dest] = numbers[source, dest] + 1
            tag, key = base + rng.randrange(tags), rng.randrange(1 << 30)
            self.messages.append(Message(source, dest, tag, nbytes, key, number))
        self.styles = [
            rng.choice([ANY_OF_ALL, PROBES] if is_flood else range(6))
            for _ in range(size)
        ]

    def takes_any_tag(self):
        return any(style not in (EXACT, ANY_SOURCE) for style in self.styles)

    def actions(self, comm, rng):
        """What a rank calls, in an order of its own: functions that return an
        awaitable each, and the check of it all."""
        sends = [
            self._sender(comm, message, rng)
            for message in self.messages
            if message.source == comm.rank
        ]
        mine = [each for each in self.messages if each.dest == comm.rank]
        taken = []
        if self.styles[comm.rank] == PROBES:
            take = functools.partial(_take_one_by_one, comm, mine, taken, rng)
            takers = [(f"take {len(mine)} one by one on {comm}", take)]
        else:
            takers = [
                self._receiver(comm, *match, mine, taken, rng)
                for match in _matches(mine, self.styles[comm.rank], rng)
            ]
            if rng.random() < 0.2:
                take = functools.partial(_take_nothing, comm, self.base + 8)
                takers.insert(0, ("take nothing", take))
        return interleave(rng, sends, takers), lambda: _check(comm, mine, taken)

    def _sender(self, comm, message, rng):
        kind = rng.choice(_SEND_KINDS)

        def send():
            buffer = Buffer(message.data(), kind)
            request = comm.isend(buffer.object, message.dest, message.tag)
            return _ended(request, buffer)

        return f"send {message} on {comm}", send

    def _receiver(self, comm, source, tag, mine, taken, rng):
        kind = rng.choice(_RECV_KINDS)
        room = max(
            message.nbytes
            for message in mine
            if source in (ucp.ANY_SOURCE, message.source)
            and tag in (ucp.ANY_TAG, message.tag)
        )
        if ucp.ANY_SOURCE in (source, tag) or rng.random() < 0.95:
            room += rng.randint(0, 9)
        else:
            room = room * 2 // 3

        def receive():
            buffer = Buffer(np.full(room, FILL, "u1"), kind)
            request = comm.irecv(buffer.object, source, tag)
            each = Taken(source, tag, None, None)
            taken.append(each)
            return _received(request, buffer, each)

        return f"recv({room} bytes, {source}, {tag}) on {comm}", receive


def _matches(mine, style, rng):
    """Sources and tags of receives that take all messages in whatever order these
    come: exact ones first, as one of any source might take theirs."""
    order = rng.sample(mine, len(mine))
    exact = [(message.source, message.tag) for message in order]
    if style == EXACT:
        return exact
    if style == ANY_SOURCE:
        return [(ucp.ANY_SOURCE, tag) for _, tag in exact]
    if style == ANY_TAG:
        return [(source, ucp.ANY_TAG) for source, _ in exact]
    count = 0 if style == ANY_OF_ALL else len(mine) // 2
    return exact[:count] + [(ucp.ANY_SOURCE, ucp.ANY_TAG)] * (len(mine) - count)


async def _ended(request, buffer):
    await request
    buffer.close()


async def _received(request, buffer, taken):
    try:
        taken.got = await request
        taken.data = buffer.data().tobytes()
    except ucp.UCXMsgTruncated as exc:
        taken.got = ucp.Status((taken.source, taken.tag, exc.nbytes))
    buffer.close()


async def _take_nothing(comm, tag):
    buffer = bytearray(100)
    request = comm.recv(buffer, tag=tag)
    await asyncio.sleep(0)
    request.cancel()
    try:
        await request
    except asyncio.CancelledError:
        return
    except ucp.UCXRankFailed:  # all others have left a part that was split off
        assert comm.failure is None
        return
    raise AssertionError("a receive has got a message that nobody has sent")


async def _take_one_by_one(comm, mine, taken, rng):
    """Take all messages, each by looking at it first, or by receives that are
    cancelled now and then.

    A rank's message to itself completes its receive inside the call to send. If
    the receive is cancelled before the worker has told of that, the message
    returns to its place only then: later ones may overtake it.
    """
    ways = 3 if any(message.source == comm.rank for message in mine) else 4
    room = max((message.nbytes for message in mine), default=0)
    while len(taken) < len(mine):
        way = rng.randrange(ways)
        if way == 0:
            status = await comm.probe()
            buffer = bytearray(status.nbytes)
            assert comm.iprobe(status.source, status.tag) == status
            got = await comm.recv(buffer, status.source, status.tag)
            assert got == status, (got, status)
        elif way == 1:
            message = await comm.mprobe()
            buffer = bytearray(message.nbytes)
            got = await message.recv(buffer)
        elif way == 2:
            while (message := comm.improbe()) is None:
                await asyncio.sleep(0)
            if rng.random() < 0.3:
                del message  # it returns to its place
                continue
            buffer = bytearray(message.nbytes)
            got = await message.recv(buffer)
        else:
            buffer = bytearray(room)
            request = comm.recv(buffer)
            for _ in range(rng.randrange(3)):
                await asyncio.sleep(0)
            request.cancel()
            try:
                got = await request
            except asyncio.CancelledError:
                continue
        data = bytes(buffer[: got.nbytes])
        taken.append(Taken(ucp.ANY_SOURCE, ucp.ANY_TAG, got, data))


def _check(comm, mine, taken):
    """Messages of one source and tag are taken in their order, whatever they hold;
    that says which message each receive has got."""
    waiting = defaultdict(list)
    for message in mine:
        waiting[message.source, message.tag].append(message)
    pairs = []
    for each in taken:
        assert waiting[each.got.source, each.got.tag], (comm.rank, each.got)
        message = waiting[each.got.source, each.got.tag].pop(0)
        what = f"message {message} on rank {comm.rank}"
        assert each.got.nbytes == message.nbytes, (what, each.got)
        if each.data is not None:
            assert each.data[: message.nbytes] == message.data().tobytes(), what
            assert not each.data[message.nbytes :].strip(bytes([FILL])), what
        pairs.append((each, message))
    assert not any(waiting.values()), (comm.rank, "messages that nobody has got")
    for at, (earlier, message) in enumerate(pairs):
        for _, other in pairs[at + 1 :]:
            assert not (
                other.source == message.source
                and other.number < message.number
                and earlier.is_for(other)
            ), f"rank {comm.rank}: {message} overtook {other}"
