# SPDX-License-Identifier: BSD-3-Clause
"""One of two processes: what it sends and receives, round after round."""

import asyncio
import contextlib
import io
import json
import mmap
import random

import numpy as np

import ucp

from . import comm, others
from .catalogue import EXCLUSIVE
from .lane import REGION, Course
from .operation import Quarantine
from .report import Report

MAX_LANES = 4

# Behind the regions of the lanes: a byte for each lane, whose last message has been
# sent; and one that a peer sets that computes.
ARENA_BYTES = MAX_LANES * REGION + 4096


class Ended(Exception):
    """The other process has ended its run; ``report`` is what it has seen."""

    def __init__(self, report):
        super().__init__("the other side has ended")
        self.report = report


class Control:
    """Lines of JSON to and from the other process, past the library."""

    def __init__(self, reader, writer):
        self._reader, self._writer = reader, writer
        self._report = None  # of the other process

    @classmethod
    async def open(cls, sock):
        return cls(*await asyncio.open_connection(sock=sock, limit=1 << 26))

    def tell(self, value):
        self._writer.write(json.dumps(value).encode() + b"\n")

    async def hear(self):
        if self._report is None:
            line = await self._reader.readline()
            if not line:
                raise EOFError("the other process has gone")
            value = json.loads(line)
            if not (isinstance(value, dict) and "report" in value):
                return value
            self._report = value["report"]
        raise Ended(self._report)


class Side:
    """The process number ``index``: 1 listens."""

    def __init__(self, index, options, control, arena):
        self.index = index
        self.options = options
        self.report = Report()
        self.under_way = set()
        self._control = control
        self._memory = np.frombuffer(mmap.mmap(arena, ARENA_BYTES), dtype=np.uint8)
        self.flags = self._memory[MAX_LANES * REGION :]
        self.is_over = False  # what fails now is not a fault
        self.quarantines = []
        self.rounds = 0

    def region(self, index):
        return self._memory[index * REGION : (index + 1) * REGION]

    def quarantine(self, nbytes=1 << 40):
        """One for a lane, of so many bytes."""
        self.quarantines.append(Quarantine(self.report, nbytes, self.options.harmless))
        return self.quarantines[-1]

    def waiting_sends(self):
        return self.ep.statistics.waiting_sends

    @contextlib.asynccontextmanager
    async def disturbance(self, when):
        """The peer stands still in the block, if ``when`` says so."""
        yield False

    async def connect(self):
        if self.index:
            async with ucp.create_listener(host="127.0.0.1") as listener:
                self._control.tell(listener.port)
                self.ep = await listener.accept()
                await others.connect(self, listener, listener.port)
        else:
            port = await self._control.hear()
            self.ep = await ucp.create_endpoint("127.0.0.1", port)
            await others.connect(self, None, port)
        if self._has_ranks:
            root = None if self.index else comm.free_root()
            await comm.meet(self, await self.exchange(root) or root)

    @property
    def _has_ranks(self):
        ranks = comm.MESSAGES + comm.COLLECTIVES
        return any(kind in ranks for kind in self.options.kinds)

    async def run(self):
        await self.connect()
        rng = random.Random(self.options.seed)
        number = done = 0
        while done < self.options.operations:
            courses = self._courses(rng, number)
            number += len(courses)
            done += 2 * sum(len(list(each.numbers())) for each in courses)
            self.rounds += 1
            await self._round(courses)
        if self._has_ranks:
            await comm.part(self)
        await others.close(self)
        await self.ep.close()

    def _courses(self, rng, number):
        """The same on both sides."""
        chosen = set()
        while len(chosen) < rng.randrange(1, MAX_LANES + 1):
            kind = rng.choice(self.options.kinds)
            sender = rng.randrange(2)
            if (EXCLUSIVE.get(kind), sender) not in chosen:
                chosen.add((kind, sender))
        order = sorted(chosen, key=lambda each: (each[0].name, each[1]))
        seed = self.options.seed
        return [
            Course(seed, number + at, at, *each, self.options)
            for at, each in enumerate(order)
        ]

    async def _round(self, courses):
        senders, receivers, offers = [], [], {}
        for each in courses:
            if each.sender == self.index:
                senders.append(each.kind.sender(self, each))
            else:
                self.flags[each.index] = 0
                receivers.append(each.kind.receiver(self, each))
                offers[each.number] = receivers[-1].offer()
        theirs = await self.exchange(offers)
        for lane in senders:
            lane.accept(theirs[str(lane.course.number)])
        for lane in sorted([*senders, *receivers], key=lambda each: each.course.index):
            await lane.prepare()
        async with asyncio.TaskGroup() as group:
            for lane in [*senders, *receivers]:
                group.create_task(self.run_lane(lane))
        theirs = await self.exchange(
            {each.course.number: each.all_outcomes() for each in senders}
        )
        for lane in receivers:
            await lane.finish(dict(theirs[str(lane.course.number)]))
        await self.exchange({})
        for lane in senders:
            lane.finish()
        self.quarantines.clear()

    async def run_lane(self, lane):
        await lane.run()

    async def exchange(self, value):
        self._control.tell(value)
        return await self._control.hear()

    async def guarded_run(self):
        """run() within the time limit; what has not ended is a failure."""
        loop = asyncio.get_running_loop()
        timer = loop.call_later(self.options.limit, self._fail_for_time)
        try:
            async with asyncio.timeout(self.options.limit + 1):
                await self.run()
        except (TimeoutError, Ended):
            pass  # somebody has said why
        except Exception as exc:
            self.report.fail("run", "error", f"side {self.index}: {_text(exc)}")
        self.is_over = True
        timer.cancel()

    def _fail_for_time(self):
        self.is_over = True
        labels = "; ".join(each.label for each in self.under_way)
        state = io.StringIO()
        ucp.dump(state)
        text = f"side {self.index} hangs, under way: {labels or 'nothing'}"
        self.report.fail("run", "error", f"{text}\n{state.getvalue()}")


def _text(exc):
    if isinstance(exc, ExceptionGroup):
        return "; ".join(_text(each) for each in exc.exceptions)
    return repr(exc)


def set_up(options):
    """Initialize the library as the options say."""
    config = {"cma_max": options.cma_max} if options.cma_max else {}
    if options.rma_ucx:
        config["rma_ucx"] = 2
    if options.small_credit:
        config |= {"credit_bytes": 512 << 10, "credit_messages": 8, "credit_rndv": 2}
    config = ucp.Config(**config)
    ucp.init(options={"TLS": options.tls} if options.tls else None, config=config)
