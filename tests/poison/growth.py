# SPDX-License-Identifier: BSD-3-Clause
"""What cancelled sends and receives of big messages cost: no memory.

python -P tests/poison growth --size 67108864 --count 1000
"""

import argparse
import asyncio
import ctypes
import os
import random
import sys

import numpy as np
from peer import Peer

import ucp

from . import content

_UNTAKEN = 10

# Pages that allocators and UCX's pools keep as they like.
_SLACK = 8 << 20

_LIMIT_S = 600

_TAKES = """
async def take(count):
    wrong = []
    buffer = np.empty(SIZE, "u1")
    while True:
        n = await ep.recv_into(buffer, tag=None)
        if n < SIZE:
            return wrong
        if not (buffer == buffer[0]).all() or buffer[0] >= 128:
            wrong.append(np.unique(buffer).tolist())
"""


def _rss(pid):
    ctypes.CDLL(None).malloc_trim(0)
    with open(f"/proc/{pid}/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Growth:
    """One connection to a peer process."""

    def __init__(self, peer, ep, size, seed):
        self._peer, self._ep, self._size = peer, ep, size
        self._rng = random.Random(seed)
        self.failures = []
        self.lines = []

    def _measure(self):
        return np.array([_rss(os.getpid()), _rss(self._peer.pid)])

    def _look(self, what, before, limit):
        """Both processes may have grown by ``limit`` since ``before``."""
        grown = self._measure() - before
        text = f"{what}: {grown[0] >> 20:+d} MiB here, {grown[1] >> 20:+d} MiB there"
        self.lines.append(text)
        if (grown > limit).any():
            self.failures.append(text)

    async def _cancel(self, request, turns):
        for _ in range(turns):
            await asyncio.sleep(0)
        request.cancel()
        try:
            await request
        except asyncio.CancelledError:
            return True
        return False

    async def untaken(self):
        """Nobody takes the messages whose sends are cancelled."""
        warm = self._ep.send(np.full(self._size, 1, "u1"))
        await self._peer.do("len(await ep.recv_obj())")
        await warm
        del warm
        before = self._measure()
        for number in range(_UNTAKEN):
            data = np.full(self._size, number, "u1")
            assert await self._cancel(self._ep.send(data), number)
            data[:] = content.send_pattern(0)
            del data
        self._look(f"{_UNTAKEN} sends that nobody takes", before, _SLACK)
        await self._ep.send(b"end")
        seen = await self._peer.do("len(await ep.recv_obj())")
        if seen != 3:
            self.failures.append(f"a message of {seen} bytes came, which was cancelled")
            while seen != 3:
                seen = await self._peer.do("len(await ep.recv_obj())")

    async def sends(self, count):
        """The peer takes what comes."""
        data = np.empty(self._size, "u1")
        await self._peer.do("import numpy as np")
        await self._peer.do(_TAKES.replace("SIZE", str(self._size)))
        for part in (count // 4, count - count // 4):
            taking = self._peer.begin("await take(0)")
            before = self._measure()
            for number in range(part):
                data[:] = number % 100
                turns = self._rng.choice([0, 1, 10, 100, 1000])
                await self._cancel(self._ep.send(data), turns)
                data[:] = content.send_pattern(0)
            await self._ep.send(b"end")
            wrong = await self._peer.result(taking)
            if wrong:
                text = f"{len(wrong)} wrong messages, such as {wrong[0]}"
                self.failures.append(text)
        self._look(f"{part} cancelled sends", before, self._size + _SLACK)

    async def receives(self, count):
        """Each message whose receive was cancelled is received after that."""
        buffer, other = np.empty((2, self._size), "u1")
        wrong = written = 0
        for part in (count // 4, count - count // 4):
            before = self._measure()
            for number in range(part):
                sending = self._peer.begin(
                    f"await ep.send(np.full({self._size}, {number % 100}, 'u1'))"
                )
                buffer[:] = content.FRESH
                turns = self._rng.choice([0, 1, 10, 100, 1000, 3000])
                got = buffer
                if await self._cancel(self._ep.recv(buffer), turns):
                    buffer[:] = content.recv_pattern(0)
                    await self._ep.recv(other)
                    got = other
                    written += bool((buffer != content.recv_pattern(0)).any())
                wrong += bool((got != number % 100).any())
                await self._peer.result(sending)
        if wrong or written:
            text = f"{wrong} messages wrong, {written} buffers written after the end"
            self.failures.append(text)
        self._look(f"{part} cancelled receives", before, self._size + _SLACK)


async def _run(options):
    peer = Peer({"UCX_TLS": options.tls} if options.tls else {})
    try:
        port = await peer.do("listener.port")
        ep = await ucp.create_endpoint("127.0.0.1", port)
        await peer.do("ep = await anext(listener)")
        growth = Growth(peer, ep, options.size, options.seed)
        async with asyncio.timeout(options.limit):
            await growth.untaken()
            await growth.sends(options.count)
            await growth.receives(options.count)
        ep.abort()
    finally:
        peer.kill()
    return growth


def main(words):
    """Print what has grown, then what is wrong; the exit status."""
    parser = argparse.ArgumentParser(prog="growth", description=__doc__)
    parser.add_argument("--size", type=int, default=64 << 20, help="bytes")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--tls", default="")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=int, default=_LIMIT_S, help="seconds")
    options = parser.parse_args(words)
    ucp.init(options={"TLS": options.tls} if options.tls else None)
    growth = asyncio.run(_run(options))
    ucp.reset()
    print("\n".join(growth.lines), flush=True)
    for text in growth.failures:
        print(text, file=sys.stderr)
    return 1 if growth.failures else 0
