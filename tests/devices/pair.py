# SPDX-License-Identifier: BSD-3-Clause
"""Two connected processes that are told what to do; groups of cases."""

import asyncio
import contextlib
import os
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from peer import Peer

from devices.memory import ENVIRONMENTS

TESTS = Path(__file__).parents[1]
IMPORTS = f"""
import sys
sys.path.append({str(TESTS)!r})
from devices import side
"""
START = 60.0  # seconds until two processes are connected, with torch imported
# Give standard error to a file.
INTO_FILE = ("sh", "-c", 'exec "$@" 2>"$0"')


class Broken(Exception):
    """A process has ended or hangs."""


@dataclass
class Group:
    """Cases that belong together: ``run`` adds to ``failures``."""

    name: str
    run: Callable[["Group"], Awaitable[None]]
    limit: float = 90.0
    waits: bool = False  # mostly: it runs beside the others
    cases: int = 0
    failures: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    now: str = ""  # the case under way
    seconds: float = 0.0

    def fail(self, what: str) -> None:
        self.failures.append(f"{self.now}: {what}" if self.now else what)


class Pair:
    """The processes ``left`` and ``right``, each of which has an ``ep``."""

    def __init__(self, left: str, right: str, tls: str | None = None):
        self._families = left, right
        self._tls = {"UCX_TLS": tls} if tls else {}
        self._peers: list[Peer] = []
        self._logs: list[str] = []

    @property
    def left(self) -> Peer:
        return self._peers[0]

    @property
    def right(self) -> Peer:
        return self._peers[1]

    async def start(self) -> None:
        for family in self._families:
            fd, log = tempfile.mkstemp(prefix="ucp-devices-")
            os.close(fd)
            self._logs.append(log)
            env = {**ENVIRONMENTS.get(family, {}), **self._tls}
            self._peers.append(Peer(env, (*INTO_FILE, log)))
        for peer in self._peers:
            await self.do(peer, IMPORTS, START)
        port = await self.do(self.right, "listener.port")
        source = f"ep = await ucp.create_endpoint('127.0.0.1', {port})"
        await self.do(self.left, source)
        await self.do(self.right, "ep = await anext(listener)")

    async def do(self, peer: Peer, source: str, limit: float = 20.0) -> object:
        """What the source gives; an AssertionError is its own failure."""
        return await self.result(peer, self.begin(peer, source), limit)

    def begin(self, peer: Peer, source: str) -> int:
        try:
            return peer.begin(source)
        except OSError:
            raise Broken(f"{self._name(peer)} has ended{self._said(peer)}") from None

    async def result(self, peer: Peer, number: int, limit: float = 20.0) -> object:
        try:
            return await asyncio.wait_for(peer.result(number), limit)
        except TimeoutError:
            text = f"{self._name(peer)} has not answered for {limit:.0f} s"
            raise Broken(text + self._said(peer)) from None
        except AssertionError as error:
            if str(error).startswith("in the peer: "):
                raise
            raise Broken(
                str(error).replace("the peer", self._name(peer)) + self._said(peer)
            ) from None

    async def both(
        self, left: str, right: str, limit: float = 20.0, right_first: bool = True
    ) -> tuple[object, object]:
        """Do both at a time."""
        sides = [(self.left, left), (self.right, right)]
        begun = {}
        for peer, source in reversed(sides) if right_first else sides:
            begun[peer] = self.begin(peer, source)
        answers, wrong = [], None
        for peer, _ in sides:
            try:
                answers.append(await self.result(peer, begun[peer], limit))
            except AssertionError as error:  # the other one may wait for ever
                wrong = wrong or error
                limit = min(limit, 5.0)
        if wrong is not None:
            raise Broken(str(wrong))
        return answers[0], answers[1]

    def _name(self, peer: Peer) -> str:
        return "left" if peer is self.left else "right"

    def _said(self, peer: Peer) -> str:
        lines = Path(self._logs[self._peers.index(peer)]).read_text(errors="replace")
        for line in lines.splitlines():
            if "Fatal" in line or "Assertion" in line:
                return f": {line.strip()}"
        last = lines.strip().splitlines()[-1:]
        return f": {last[0].strip()}" if last else ""

    async def end(self, peer: Peer, limit: float = 15.0) -> str:
        """Let a process return from its main function: what is wrong with its end."""
        peer.end_input()
        until = time.monotonic() + limit
        while (status := peer._process.poll()) is None:
            if time.monotonic() > until:
                return f"{self._name(peer)} does not end{self._said(peer)}"
            await asyncio.sleep(0.02)
        if status == 0:
            return ""
        return f"{self._name(peer)} ended with {status}{self._said(peer)}"

    def kill(self) -> None:
        for peer in self._peers:
            peer.kill()
        for log in self._logs:
            with contextlib.suppress(OSError):
                os.unlink(log)
        self._peers, self._logs = [], []


async def run_cases(
    group: Group,
    families: tuple[str, str],
    cases: list[tuple[str, Callable[[Pair], Awaitable[str]]]],
    tls: str | None = None,
    most: int = 5,
) -> None:
    """Run cases with one pair, and with a new one after each that has broken it.

    After ``most`` of these the rest is left out.
    """
    pair, broken = None, 0
    try:
        for name, case in cases:
            group.now = name
            try:
                if pair is None:
                    pair = Pair(*families, tls)
                    await pair.start()
                wrong = await case(pair)
            except (Broken, AssertionError) as error:
                wrong = str(error) or type(error).__name__
                pair.kill()
                pair, broken = None, broken + 1
            group.cases += 1
            if wrong:
                group.fail(wrong)
            if broken == most:
                group.now = ""
                group.fail(f"the other {len(cases) - group.cases} cases were left out")
                return
        group.now = ""
    finally:
        if pair is not None:
            pair.kill()
