# SPDX-License-Identifier: BSD-3-Clause
"""Two processes: the first runs a Side and starts the second, which runs the other."""

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time

import uvloop

import ucp

from .catalogue import KINDS, RANKS
from .plan import WHENS
from .report import Report
from .side import ARENA_BYTES, Control, Ended, Side, set_up

_PACKAGE = os.path.dirname(__file__)

# After the time limit of a run.
_END_S = 15

_COMPUTES = 100  # a flag

# Turns in which an operation that is in the middle is looked for, to kill the peer.
_PATIENCE = 5000


class Client(Side):
    """The first process, which can make the other one stand still."""

    def __init__(self, options, control, arena, process, go):
        super().__init__(0, options, control, arena)
        self._process = process
        self._go = go
        self._lock = asyncio.Lock()
        self.is_killed = False

    async def run(self):
        """With ``--kill``: until the peer has been killed, and what was then."""
        killer = None
        if self.options.kill:
            killer = asyncio.ensure_future(self._kill())
        try:
            await super().run()
        except (EOFError, OSError, ucp.UCXBaseException):
            if not self.is_killed:
                raise
        if killer is not None:
            await killer
            await self._after_kill()

    async def _kill(self):
        rng = random.Random(f"{self.options.seed} kill")
        rounds, turns = rng.randrange(1, 6), rng.randrange(300)
        while self.rounds < rounds:
            await asyncio.sleep(0)
        for _ in range(turns):
            await asyncio.sleep(0)
        for _ in range(_PATIENCE if turns % 2 else 0):
            if any(each.lane.state_of(each) == "middle" for each in self.under_way):
                break
            await asyncio.sleep(0)
        self.is_killed = self.is_over = True
        self._process.kill()

    async def run_lane(self, lane):
        try:
            await super().run_lane(lane)
        except (OSError, EOFError, ucp.UCXBaseException):
            if not self.is_killed:
                raise

    async def _after_kill(self):
        """Nothing is written any more, neither before nor after the end."""
        self.ep.abort()
        for _ in range(100):
            await asyncio.sleep(0)
            ucp.progress()
        for quarantine in self.quarantines:
            quarantine.check_all()

    @contextlib.asynccontextmanager
    async def disturbance(self, when):
        if when not in ("stopped", "blocked"):
            yield False
            return
        async with self._lock:
            if when == "stopped":
                os.kill(self._process.pid, signal.SIGSTOP)
                os.waitpid(self._process.pid, os.WUNTRACED)
            else:
                self.flags[_COMPUTES] = 0
                os.kill(self._process.pid, signal.SIGUSR2)
                while not self.flags[_COMPUTES]:
                    await asyncio.sleep(0)
            try:
                yield True
            finally:
                if when == "stopped":
                    os.kill(self._process.pid, signal.SIGCONT)
                else:
                    os.write(self._go, b"g")


class Server(Side):
    """The second process."""

    def __init__(self, options, control, arena, go):
        super().__init__(1, options, control, arena)
        self._go = go

    def compute(self, *_arguments):
        """A signal of the first process: nothing else runs until it says so."""
        self.flags[_COMPUTES] = 1
        time.sleep(self.options.compute)
        os.read(self._go, 1)


def _runner(options):
    factory = uvloop.new_event_loop if options.loop == "uvloop" else None
    return asyncio.Runner(loop_factory=factory)


def serve(words, sock, arena, go):
    """The main function of the second process."""
    options = parse(words)
    signal.alarm(options.limit + _END_S)
    set_up(options)

    async def main():
        control = await Control.open(socket.socket(fileno=sock))
        side = Server(options, control, arena, go)
        signal.signal(signal.SIGUSR2, side.compute)
        await side.guarded_run()
        control.tell({"report": side.report.as_json()})
        await control.hear()  # until the other one has it

    with _runner(options) as runner:
        with contextlib.suppress(EOFError):
            runner.run(main())


def run(words):
    """A run of both; the Report."""
    options = parse(words)
    arena = os.memfd_create("poison")
    os.ftruncate(arena, ARENA_BYTES)
    ours, theirs = socket.socketpair()
    go_reader, go_writer = os.pipe()
    fds = [theirs.fileno(), arena, go_reader]
    process = subprocess.Popen(
        [
            *(sys.executable, "-P", "-X", "faulthandler", _PACKAGE, "serve"),
            *(json.dumps([words, *fds]),),
        ],
        pass_fds=fds,
    )
    theirs.close()
    report = Report()

    async def main():
        control = await Control.open(ours)
        side = Client(options, control, arena, process, go_writer)
        await side.guarded_run()
        report.add(side.report.as_json())
        if side.is_killed:
            return
        try:
            async with asyncio.timeout(_END_S):
                while True:
                    await control.hear()  # what it has said before
        except Ended as exc:
            report.add(exc.report)
        except (TimeoutError, EOFError) as exc:
            status = process.wait(5)
            text = f"the other side: {exc!r}, exit status {status}"
            report.fail("run", "error", text)

    set_up(options)
    try:
        with _runner(options) as runner:
            runner.run(main())
    finally:
        ours.close()
        process.kill()
        process.wait()
        for fd in (arena, go_reader, go_writer):
            os.close(fd)
    ucp.reset()
    return report


def parse(words):
    """Options of a run."""
    parser = argparse.ArgumentParser(prog="poison", description=__doc__)
    add_arguments(parser)
    return finish(parser.parse_args(words))


def add_arguments(parser):
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--operations", type=int, default=1000)
    parser.add_argument("--tls", default="", help="UCX's transports: tcp")
    parser.add_argument("--cma-max", type=int, default=0, help="> 0: loans")
    parser.add_argument("--rma-ucx", action="store_true", help="put and get of UCX")
    parser.add_argument("--loop", choices=["asyncio", "uvloop"], default="asyncio")
    parser.add_argument("--small-credit", action="store_true")
    parser.add_argument("--largest", type=int, default=16 << 20, help="bytes")
    parser.add_argument("--smallest", type=int, default=0, help="bytes")
    parser.add_argument("--share", type=float, default=0.7, help="to be cancelled")
    parser.add_argument(
        "--disturbances", type=float, default=0.0, help="of these, of a stopped peer"
    )
    parser.add_argument("--when", nargs="+", choices=set(WHENS), default=WHENS)
    parser.add_argument("--compute", type=float, default=0.0, help="seconds")
    parser.add_argument("--kill", action="store_true", help="the peer, at the end")
    parser.add_argument("--limit", type=int, default=50, help="seconds")
    parser.add_argument(
        "--harmless",
        action="store_true",
        help="use no buffer again: what is wrong then is wrong without it, too",
    )
    names = [kind.name for kind in [*KINDS, *RANKS]]
    parser.add_argument("--ranks", action="store_true", help="of a communicator")
    parser.add_argument("--kinds", nargs="+", choices=names)


def finish(options):
    """Kinds for their names."""
    kinds = RANKS if options.ranks else KINDS
    if options.kinds:
        kinds = [each for each in [*KINDS, *RANKS] if each.name in options.kinds]
    options.kinds = kinds
    return options
