# SPDX-License-Identifier: BSD-3-Clause
"""Time limits that are too short, for what takes long or must stay in order.

python -P tests/poison timeouts frames --tls tcp --seconds 60

frames: the frames of each message are a file that is mapped and not in memory, so
that copying them takes longer than the limit. The peer compares what comes.

words: puts and gets of words and blocks of the peer's memory, beside a stream and
frames that take the credit. What is put stays until the next put, whatever became of
those before it whose time was up.
"""

import argparse
import asyncio
import contextlib
import faulthandler
import mmap
import os
import random
import sys
import tempfile
import time

import numpy as np
from peer import Peer

import ucp

from . import content

_LIMIT_S = 600

# ---- frames whose memory is not there --------------------------------------

_PIECE = 4 << 20
_PIECES = 12
_FRAMES_LIMITS = [0.001, 0.005, 0.01, 0.02, 0.04, 0.2, 2]

_TAKES_FRAMES = """
import numpy as np
got, wrong = [], []
expected = np.fromfile(NAME, "u1").reshape(PIECES, PIECE)
async def take():
    while True:
        header, frames = await ep.recv_frames()
        if not frames:
            return got, wrong
        got.append(int(header))
        for i, frame in enumerate(frames):
            if not np.array_equal(np.frombuffer(frame, "u1"), expected[i]):
                wrong.append((got[-1], i))
"""


class Frames:
    """Sends frames of a file that is read when they are copied."""

    def __init__(self, peer, rng):
        self._peer, self._rng = peer, rng
        self._fd, self._name = tempfile.mkstemp()
        self._sent = []
        self._number = 0
        self.counts = {"sent": 0, "timed out": 0}
        self.failures = []

    async def prepare(self):
        os.write(self._fd, self._rng.randbytes(_PIECE) * _PIECES)
        os.fsync(self._fd)
        source = _TAKES_FRAMES.replace("NAME", repr(self._name))
        source = source.replace("PIECES", str(_PIECES)).replace("PIECE", str(_PIECE))
        try:
            await self._peer.do(source)
        finally:
            os.unlink(self._name)

    async def begin(self, ep):
        self._ep = ep
        self._taking = self._peer.begin("await take()")

    async def round(self):
        os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_DONTNEED)
        self._number += 1
        with mmap.mmap(self._fd, _PIECES * _PIECE, mmap.MAP_PRIVATE) as memory:
            view = np.frombuffer(memory, "u1").reshape(_PIECES, _PIECE)
            sending = self._ep.send_frames(list(view), header=b"%d" % self._number)
            try:
                await asyncio.wait_for(sending, self._rng.choice(_FRAMES_LIMITS))
                self._sent.append(self._number)
                self.counts["sent"] += 1
            except TimeoutError:
                self.counts["timed out"] += 1
            view[:] = content.send_pattern(0)
            del view, sending

    async def finish(self):
        await self._ep.send_frames([], header=b"end")
        got, wrong = await self._peer.result(self._taking)
        for number, frame in wrong:
            self.failures.append(f"message {number}: frame {frame} is wrong")
        if got != sorted(set(got)):
            self.failures.append(f"order: {got}")
        if lost := set(self._sent) - set(got):
            self.failures.append(f"lost: {lost}")
        os.close(self._fd)


# ---- words that are put and got --------------------------------------------

_SIZES = [1] * 8 + [2, 500, 700] * 4 + [40_000] * 2  # words of each place
_LIMITS = [0, 0.0001, 0.0005, 0.002]
_FILLERS = 40

# Little credit, most of which is taken by messages that are not received soon: then
# a longer put is announced, and a short one behind it is not.
_TAKES_ALL = """
import numpy as np
listener.close()
ucp.reset()
ucp.init(config=ucp.Config(credit_bytes=CREDIT, credit_bytes_max=CREDIT))
listener = ucp.create_listener(host="127.0.0.1")
memory = np.zeros(SIZE, "u8")
registered = ucp.Memory.register(memory)
async def take_stream():
    buffer = bytearray(1 << 20)
    while True:
        await ep.stream_recv(buffer)
async def take_frames():
    while True:
        await ep.recv_frames()
async def take_fillers():
    while True:
        for _ in range(100):
            await asyncio.sleep(0)
        await ep.recv_obj(tag=1)
takes = [take_stream, take_frames, take_fillers]
"""


class Place:
    """Words of the peer's memory that one task puts to and gets from.

    It has one number in all words, or another one in the first.
    """

    def __init__(self, words, offset, count, rng):
        self._words, self._rng = words, rng
        self._offset = 8 * offset
        self._put, self._got = np.zeros((2, count), "u8")
        self._next = 1
        self._possible = {(0, 0)}  # the first, and the last

    async def run(self, until):
        while not until():
            await (self._get() if self._rng.random() < 0.4 else self._do_put())
            for _ in range(self._rng.choice([0, 0, 1, 5])):
                await asyncio.sleep(0)

    async def _in_time(self, awaitable):
        """True if it ended within its limit, which it may not have."""
        if self._rng.random() < 0.4:
            await awaitable
            return True
        try:
            await asyncio.wait_for(awaitable, self._rng.choice(_LIMITS))
        except TimeoutError:
            self._words.counts["timed out"] += 1
            return False
        return True

    async def _do_put(self):
        number, self._next = self._next, self._next + 1
        count = self._rng.choice([1, len(self._put)])
        view = self._put[:count]
        view[:] = number
        is_done = await self._in_time(self._words.remote.put(view, self._offset))
        view[:] = content.send_pattern(0)
        is_all = count == len(self._put)
        after = {(number, number if is_all else last) for _, last in self._possible}
        self._possible = after if is_done else after | self._possible
        self._words.counts["put"] += is_done

    async def _get(self):
        self._got[:] = content.FRESH
        if not await self._in_time(self._words.remote.get(self._got, self._offset)):
            self._got[:] = content.recv_pattern(0)
            return
        self._words.counts["got"] += 1
        first = int(self._got[0])
        rest = np.unique(self._got[1:]).tolist() or [first]
        if len(rest) != 1 or (first, rest[0]) not in self._possible:
            place = f"{len(self._got)} words at {self._offset}"
            text = f"{place}: got {first}, {rest}, expected of {self._possible}"
            self._words.failures.append(text)
        # What was called before it has been carried out, or never will be.
        self._possible = {(first, rest[0])}


class Words:
    """Puts and gets of several places, beside messages, a stream and frames."""

    def __init__(self, peer, rng):
        self._peer, self._rng = peer, rng
        self.counts = {"put": 0, "got": 0, "timed out": 0}
        self.failures = []

    async def prepare(self):
        source = _TAKES_ALL.replace("SIZE", str(sum(_SIZES)))
        await self._peer.do(source.replace("CREDIT", str(64 << 10)))

    async def begin(self, ep):
        self._ep = ep
        await self._peer.do("takers = [asyncio.ensure_future(f()) for f in takes]")
        self.remote = ep.remote(await self._peer.do("registered.key"))
        self._places = [
            Place(self, sum(_SIZES[:at]), count, self._rng)
            for at, count in enumerate(_SIZES)
        ]

    async def _stream(self, until):
        data = np.ones(1 << 20, "u1")
        while not until():
            await self._ep.stream_send(data[: self._rng.choice([10, 3000, 1 << 20])])

    async def _frames(self, until):
        data = np.ones((4, 1 << 18), "u1")
        while not until():
            end = self._rng.choice([10, 3000, 1 << 18])
            with contextlib.suppress(TimeoutError):
                sending = self._ep.send_frames([each[:end] for each in data])
                await asyncio.wait_for(sending, self._rng.choice([0.0005, 0.01, 1]))

    async def _fill(self, until):
        while not until():
            size = self._rng.randrange(1, 4000)
            await self._ep.send(bytes(size), tag=1)

    async def round(self):
        end = time.monotonic() + 0.5

        def until():
            return time.monotonic() > end

        async with asyncio.TaskGroup() as group:
            group.create_task(self._stream(until))
            group.create_task(self._frames(until))
            for _ in range(_FILLERS):
                group.create_task(self._fill(until))
            for place in self._places:
                group.create_task(place.run(until))

    async def finish(self):
        self.remote.close()


# ---- a run -----------------------------------------------------------------

_SUBJECTS = {"frames": Frames, "words": Words}


async def _run(options):
    peer = Peer({"UCX_TLS": options.tls} if options.tls else {})
    try:
        subject = _SUBJECTS[options.subject](peer, random.Random(options.seed))
        await subject.prepare()
        port = await peer.do("listener.port")
        ep = await ucp.create_endpoint("127.0.0.1", port)
        await peer.do("ep = await anext(listener)")
        await subject.begin(ep)
        end = time.monotonic() + options.seconds
        rounds = 0
        while rounds < options.rounds or time.monotonic() < end:
            await subject.round()
            rounds += 1
        await subject.finish()
        ep.abort()
    finally:
        peer.kill()
    return subject


def main(words):
    """Print the counts, then what is wrong; the exit status."""
    parser = argparse.ArgumentParser(prog="timeouts", description=__doc__)
    parser.add_argument("subject", choices=_SUBJECTS)
    parser.add_argument("--rounds", type=int, default=1, help="at least")
    parser.add_argument("--seconds", type=float, default=0, help="at least")
    parser.add_argument("--tls", default="")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=int, default=_LIMIT_S, help="seconds")
    options = parser.parse_args(words)
    ucp.init(options={"TLS": options.tls} if options.tls else None)
    faulthandler.dump_traceback_later(options.limit, exit=True)
    subject = asyncio.run(_run(options))
    faulthandler.cancel_dump_traceback_later()
    ucp.reset()
    print(options.subject, subject.counts, flush=True)
    for text in subject.failures:
        print(text, file=sys.stderr)
    return 1 if subject.failures else 0
