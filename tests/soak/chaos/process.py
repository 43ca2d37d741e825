# SPDX-License-Identifier: BSD-3-Clause
"""One process of chaos: loops that listen, connect and talk until the time is over.

Prints the addresses of its loops, reads those of all processes from stdin, line by
line, and prints at its end what it has done. A fault goes to stderr and ends
the process with status 3.
"""

import argparse
import asyncio
import contextlib
import json
import logging
import os
import random
import signal
import sys
import threading
import time
import traceback

import traffic
from traffic import Over, Wrong, until_over

import ucp

KINDS = {kind.__name__: kind for kind in traffic.KINDS}

# Without any progress of a connection while both processes run, and the network.
# The kernel sends again what a network lost after twice the time of its silence.
STALL_S = {"shm": 15, "tcp": 15, "network": 30}

# Connections that each loop makes at a time.
CLIENTS = 3


def fault(text):
    """Say it and go at once: nothing that follows tells more."""
    print(text, file=sys.stderr, flush=True)
    os._exit(3)


def _on_exception(loop, context):
    """Of a callback, or of a task that nobody looks at."""
    error = context.get("exception")
    lines = traceback.format_exception(error) if error is not None else []
    fault(f"{context['message']}\n" + "".join(lines))


class Watch:
    """Finds what waits for too long. Each loop has one."""

    def __init__(self, stall):
        self._stall = stall
        self._waits = {}

    def add(self, what, ep=None):
        wait = Wait(what, ep)
        self._waits[id(wait)] = wait
        return wait

    def remove(self, wait):
        del self._waits[id(wait)]

    async def run(self):
        last = time.monotonic()
        while True:
            await asyncio.sleep(0.5)
            now = time.monotonic()
            if now - last > 1.5:  # this process was stopped, or had no core
                for wait in self._waits.values():
                    wait.since += now - last
            last = now
            for wait in self._waits.values():
                wait.look()
            if any(now - wait.since > self._stall for wait in self._waits.values()):
                fault(f"STALL, {ucp.current_worker().statistics}\n{self.describe()}")

    def describe(self):
        """What waits, the longest first."""
        waits = sorted(self._waits.values(), key=lambda wait: wait.since)
        return "\n".join(map(str, waits))


class Wait:
    def __init__(self, what, ep):
        self.what = what
        self.ep = ep
        self.talk = None
        self._messages = 0
        self.touch()

    def look(self):
        """Has the other side moved something?"""
        if self.talk is not None and self.talk.is_served:
            messages = self.ep.statistics.received_messages
            if messages != self._messages:
                self._messages = messages
                self.touch()

    def __str__(self):
        words = f"{time.monotonic() - self.since:.1f} s: {self.what}"
        if self.ep is not None:
            words += f", {self.ep!r} {self.ep.statistics}"
        if self.talk is not None:
            words += f", {self.talk.received} received"
        return words

    def touch(self):
        """Something has moved."""
        self.since = time.monotonic()


class Loop:
    """What one event loop does."""

    def __init__(self, seed, end, arguments, addresses):
        self._rng = random.Random(seed)
        self._host = arguments.host
        self._has_cuts = arguments.over == "network"
        self._end = end
        self._addresses = addresses
        self._kinds = arguments.kinds
        self._tasks = set()
        self.watch = Watch(STALL_S[arguments.over])
        self.counts = {}
        self.port = None

    def describe_soon(self):
        """From another thread; nothing if the loop has ended."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(
                lambda: print(self.watch.describe(), file=sys.stderr, flush=True)
            )

    async def run(self, on_port):
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(_on_exception)
        watching = asyncio.create_task(self.watch.run())
        listener = ucp.create_listener(self._serve, host=self._host)
        on_port(listener.port)
        await asyncio.gather(*(self._clients() for _ in range(CLIENTS)))
        listener.close()
        while self._tasks:
            await asyncio.wait(self._tasks)
        watching.cancel()

    def count(self, key, number=1):
        self.counts[key] = self.counts.get(key, 0) + number

    async def _clients(self):
        while time.monotonic() < self._end:
            if not self._addresses:
                await asyncio.sleep(0.01)
                continue
            await self._client(random.Random(self._rng.random()))

    async def _client(self, rng):
        host, _, port = rng.choice(self._addresses).partition(":")
        opening = {
            "kind": rng.choice(self._kinds),
            "seed": rng.randrange(1 << 30),
            "counts": [rng.choice([0, 1, 5, 60, 300]), rng.choice([0, 1, 20])],
            "ends": rng.choice(["close", "close", "close", "abort", "cancel"]),
        }
        ep = None
        with until_over():
            connecting = self._in_time(ucp.create_endpoint(host, int(port)))
            ep = await self._timed("connect", None, connecting)
            data = json.dumps(opening).encode()
            await self._timed("opening", ep, ep.send_obj(data))
            self.count("connections")
            await self._talk(ep, opening, 0)
            return
        if ep is None:
            self.count("refused")
            await asyncio.sleep(0.01)
        else:
            ep.abort()

    async def _in_time(self, awaitable):
        """What has a time limit: a network may be silent for longer."""
        try:
            return await awaitable
        except ucp.UCXTimeout as error:
            if not self._has_cuts:
                raise
            raise Over from error

    async def _serve(self, ep):
        task = asyncio.current_task()
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        with until_over():
            opening = await self._timed("opening", ep, ep.recv_obj())
            await self._talk(ep, json.loads(bytes(opening)), 1)
            return
        ep.abort()

    async def _timed(self, what, ep, awaitable):
        wait = self.watch.add(what, ep)
        try:
            return await awaitable
        finally:
            self.watch.remove(wait)

    async def _talk(self, ep, opening, side):
        kind = KINDS[opening["kind"]]
        wait = self.watch.add(f"{opening} side {side}", ep)
        try:
            wait.talk = talk = kind(ep, opening["seed"], side, wait.touch)
            await self._both(talk, ep, opening, side)
            self.count("messages", talk.received)
        except Exception:
            what = f"{opening}, side {side}, {ep!r}, {ep.error!r}"
            fault(f"{what}\n{traceback.format_exc()}")
        finally:
            self.watch.remove(wait)

    async def _both(self, talk, ep, opening, side):
        reading = asyncio.create_task(self._read(talk, opening, side))
        writing = asyncio.create_task(self._write(talk, opening["counts"][side]))
        if side == 0 and opening["ends"] == "cancel":
            await asyncio.sleep(random.Random(opening["seed"]).random() * 0.05)
            writing.cancel()
        await asyncio.wait([writing])
        is_cancelled = writing.cancelled()
        if not is_cancelled:
            writing.result()  # raises what is wrong
        if side == 1:
            await reading
        if is_cancelled or (side == 0 and opening["ends"] == "abort"):
            ep.abort()
        else:
            with until_over():
                await self._timed("close", ep, self._in_time(ep.close()))
        await reading
        await talk.end()

    async def _write(self, talk, count):
        with until_over():
            await talk.write(count)

    async def _read(self, talk, opening, side):
        """Until the connection ends; then nothing more may come."""
        expected = opening["counts"][0]
        with until_over():
            try:
                await talk.read()
            except ucp.UCXPeerClosed:
                if side == 1 and talk.is_exact and talk.received != expected:
                    raise Wrong(f"{talk.received} of {expected} came") from None
        with until_over():
            await talk.read_rest()
            raise Wrong("a message came after a receive that had raised")


def read_addresses(addresses):
    """Until an empty line: then there are no more."""
    for line in sys.stdin:
        if not line.strip():
            return
        addresses[:] = line.split()
    os._exit(4)  # whoever started this process is gone


def main(words):
    parser = argparse.ArgumentParser()
    parser.add_argument("seconds", type=float)
    parser.add_argument("seed", type=int)
    parser.add_argument("--over")
    parser.add_argument("--host")
    parser.add_argument("--loops", type=int)
    parser.add_argument("--kinds", nargs="+")
    arguments = parser.parse_args(words)
    ucp.init(options={"TLS": "tcp"} if arguments.over == "tcp" else None)
    if arguments.over == "network":  # closes wait for it, and say so
        logging.getLogger("ucp").setLevel(logging.ERROR)
    end = time.monotonic() + arguments.seconds
    addresses, own = [], []
    seeds = random.Random(arguments.seed)
    loops = [
        Loop(seeds.random(), end, arguments, addresses) for _ in range(arguments.loops)
    ]
    ready = threading.Barrier(len(loops) + 1)

    def on_port(port):
        own.append(f"{arguments.host}:{port}")
        ready.wait()

    def on_signal(number, frame):
        for loop in loops:
            loop.describe_soon()

    signal.signal(signal.SIGUSR1, on_signal)
    threads = [
        threading.Thread(target=lambda loop=loop: asyncio.run(loop.run(on_port)))
        for loop in loops
    ]
    for thread in threads:
        thread.start()
    ready.wait()
    print(*own, flush=True)
    threading.Thread(target=read_addresses, args=(addresses,), daemon=True).start()
    for thread in threads:
        thread.join()
    for loop in loops:
        print(*(f"{key}={value}" for key, value in loop.counts.items()))
    ucp.reset()
