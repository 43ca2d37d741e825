# SPDX-License-Identifier: BSD-3-Clause
"""Messages of one kind in one direction: who sends them, and who receives them."""

import asyncio
import collections
import random

import numpy as np

import ucp

from . import content
from .operation import Operation
from .plan import Plan, size

_MIB = 1 << 20

# What the receiver's buffers are in; the sender sees there how far a message is.
REGION = 40 * _MIB
_SLOTS = 16

# What is kept after it was poisoned, of a lane's sends.
_KEPT = 32 * _MIB

# Bytes of the messages of a lane, if there are more than a few.
_LANE_BYTES = 12 * _MIB

_PAUSES = [(0, 0), (20, 0), (0, 20), (200, 0), (0, 200)]

# Seconds that a message which must be there may take; and, if messages came whose
# numbers were overwritten, the last message, which may be one of them.
_LOST_S = 3
_LAST_S = 1


class Course:
    """What both sides know of a lane: kind, sender, and the sizes of its messages.

    Attributes:
        index: the number of the lane among those of its round.
        number: and among all.
        parts: of an exact kind: the sizes of the parts of each message.
        sizes: of another kind: by number of the message.
    """

    def __init__(self, seed, number, index, kind, sender, options):
        rng = random.Random(f"{seed} {number}")
        self.number, self.index = number, index
        self.kind, self.sender = kind, sender
        self.parts = kind.parts(rng, options)
        total = max(sum(self.parts), 1)
        self.count = max(3, min(kind.most, _LANE_BYTES // total))
        if kind.is_per_part:
            self.count = min(self.count, content.MAX_NUMBER // len(self.parts))
        self.sizes = {content.END: 64}
        for each in range(content.MAX_NUMBER):
            self.sizes[each] = size(rng, max(self.parts), options.smallest)
        if not kind.is_exact:
            self.parts = [max(64, *(self.sizes[each] for each in range(self.count)))]
        self.window = rng.choice([1, 1, 2, 4, 16])
        self.recv_window = rng.choice([1, 1, 2, 3]) if kind.is_tagged else 1
        self.tag = 1000 + number
        # Turns of the loop that the sender, and the receiver, may wait in between.
        self.send_pause, self.recv_pause = rng.choice(_PAUSES)

    @property
    def stride(self):
        return (sum(self.parts) + 63) // 64 * 64 + 64

    @property
    def num_slots(self):
        return max(2, min(_SLOTS, REGION // self.stride))

    def numbers(self):
        """Of the messages of each send; of the last one END."""
        step = len(self.parts) if self.kind.is_per_part else 1
        for first in range(0, self.count * step, step):
            yield list(range(first, first + step))
        yield [content.END] * step

    def slots(self, region):
        """The receiver's buffers, each as an array of bytes for each part."""
        slots = []
        for at in range(self.num_slots):
            start, views = at * self.stride, []
            for each in self.parts:
                views.append(region[start : start + each])
                start += each
            slots.append(views)
        return slots

    def __str__(self):
        return f"lane {self.number}, {self.kind.name}, {self.parts} B"


class Lane:
    """One side of it."""

    way = ""

    def __init__(self, side, course):
        self.side = side
        self.course = course
        self.report = side.report
        self.under_way = side.under_way
        self.rng = random.Random(f"{side.options.seed} {course.number} {self.way}")
        self.kind = course.kind(side, course)
        self.slots = course.slots(side.region(course.index))
        self.key = f"{course.kind.name} {self.way}"

    def new(self, label, views, plan=None):
        if plan is None:
            plan = Plan(self.rng, self.side.options)
        plan = self.kind.adapt(plan)
        self.report.operations[self.kind.name, self.way] += 1
        return Operation(self, f"{self.way} of {self.course}, {label}", views, plan)

    async def prepare(self):
        """Before it runs, one lane after another, in the same order on both sides."""

    async def _pause(self, turns):
        for _ in range(self.rng.randrange(turns + 1)):
            await asyncio.sleep(0)

    def count_state(self, operation, state):
        self.report.states[self.kind.name, self.way, state] += 1

    def has_failed(self, operation):
        """Fail for an exception or for a cancellation that nobody asked for."""
        if operation.end == "cancelled" and operation.plan.how:
            self.count_state(operation, operation.state or "timer")
            return True
        if operation.end == "done":
            return False
        if self.side.is_over:
            return True
        error = operation.error
        self.report.fail(self.key, "error", f"{operation.label}: {error!r}")
        return True


class Sender(Lane):
    way = "send"

    def __init__(self, side, course):
        super().__init__(side, course)
        self.outcomes = {}
        self._quarantine = side.quarantine(_KEPT)

    async def run(self):
        pending = collections.deque()
        for numbers in self.course.numbers():
            is_last = numbers[0] == content.END
            while pending and (is_last or len(pending) >= self.course.window):
                await pending.popleft().over()
            pending.append(self._start(numbers, Plan.none() if is_last else None))
            await self._pause(self.course.send_pause)
        await pending.popleft().over()
        self.side.flags[self.course.index] = 1

    def _start(self, numbers, plan):
        views = self.kind.make(numbers)
        operation = self.new(f"message {numbers[0]}", views, plan)
        operation.numbers = numbers
        held = self.side.waiting_sends()
        operation.start(lambda: self.kind.send(numbers, views, operation))
        operation.is_held = self.side.waiting_sends() > held
        return operation

    def ended(self, operation):
        """In the turn of the end."""
        self._quarantine.put(
            operation.views,
            content.send_pattern(self.side.index),
            self.key,
            operation,
        )
        self.has_failed(operation)
        for number in operation.numbers:
            self.outcomes[number] = operation.end

    def state_of(self, operation):
        if operation.is_held and self.side.waiting_sends():
            return "held"
        if not self.kind.is_visible:
            return "complete" if self.kind.is_done(operation.awaitable) else "unseen"
        seen = self._seen(operation)
        if seen == (True, False):
            return "middle"
        if seen == (True, True):
            return "complete"
        return "complete" if self.kind.is_done(operation.awaitable) else "untaken"

    def _seen(self, operation):
        """Has its first byte reached a buffer of the receiver, and its last?"""
        is_per_part = self.kind.is_per_part
        size = 0 if self.kind.is_exact else self.course.sizes[operation.numbers[0]]
        for views in self.slots:
            parts = [view for view in views if len(view)]
            if not self.kind.is_exact:
                parts = [parts[0][:size]] if size else []
            if not parts or parts[0][0] not in operation.numbers:
                continue
            if is_per_part or parts[-1][-1] == content.FRESH:
                return (True, parts[-1][-1] != content.FRESH)
            return (True, True)
        return (False, False)

    def accept(self, offer):
        """What the receiver offers."""

    def all_outcomes(self):
        return list(self.outcomes.items())

    def finish(self):
        self._quarantine.check_all()
        self.kind.close()


class Receiver(Lane):
    way = "recv"

    def __init__(self, side, course):
        super().__init__(side, course)
        self._quarantine = side.quarantine()
        self._next_slot = 0
        self._received = set()
        self._num_unknown = 0
        self._last = -1
        self._num_ends = 0
        self._has_lost_end = False
        self._pending = collections.deque()
        self.window = min(course.recv_window, course.num_slots - 1)

    def offer(self):
        """What the sender must know."""

    async def run(self):
        watch = asyncio.ensure_future(self._watch())
        while not self._is_over():
            if len(self._pending) >= self.window:
                await self._pending[0].over()
                self._pending.popleft()
            else:
                await self._pause(self.course.recv_pause)
                if not self._is_over():
                    self._pending.append(self._start())
        watch.cancel()
        await asyncio.sleep(0)  # so that each task has begun
        self._abandon_all()
        for operation in self._pending:
            await operation.over()
        while 0 < self._num_ends < self.kind.num_ends and not self.side.is_over:
            await self._start(Plan.none(), self.kind.num_ends - self._num_ends).over()

    def _is_over(self):
        return self._num_ends or self._has_lost_end or self.side.is_over

    async def _watch(self):
        """Give up when the last message has come and was not recognized."""
        idle = 0
        while idle < _LAST_S:
            number = self.report.operations[self.kind.name, self.way]
            await asyncio.sleep(0.1)  # what is looked for is that nothing comes
            is_idle = number == self.report.operations[self.kind.name, self.way]
            is_sent = self.side.flags[self.course.index]
            idle += 0.1 if is_idle and is_sent and self._num_unknown else -idle
        self._has_lost_end = True
        self._abandon_all()

    def _abandon_all(self):
        for operation in self._pending:
            operation.abandon()

    async def finish(self, outcomes):
        """The sender says what has become of its sends."""
        good = {
            number
            for number, end in outcomes.items()
            if end == "done" and number != content.END and self._has_number(number)
        }
        try:
            async with asyncio.timeout(_LOST_S) as timer:
                while len(good - self._received) > self._num_unknown:
                    if timer.expired():
                        break
                    operation = self._start(Plan.none())
                    operation.plan.how = "task"  # which the timer may do
                    await operation.over()
        except TimeoutError:
            pass
        missing = good - self._received
        if len(missing) > self._num_unknown:
            text = f"{self.course}: messages {sorted(missing)} never came"
            self.report.fail(self.key, "lost", text)
        for number, end in outcomes.items():
            if end == "cancelled":
                fate = "arrived" if number in self._received else "not arrived"
                self.report.ends[self.kind.name, fate] += 1
        self._quarantine.check_all()
        self.kind.close()

    def _has_number(self, number):
        return self.kind.is_exact or self.course.sizes[number] > 0

    def _start(self, plan=None, count=None):
        views = self.slots[self._next_slot][:count]
        self._next_slot = (self._next_slot + 1) % len(self.slots)
        if self.side.options.harmless:
            views = [np.empty_like(view) for view in views]
        for view in views:
            self._quarantine.check_of(view)
            view[:] = content.FRESH
        operation = self.new(f"after message {self._last}", views, plan)
        operation.start(lambda: self.kind.recv(views, operation))
        return operation

    def ended(self, operation):
        if isinstance(operation.error, ucp.UCXCanceled) and self.kind.may_be_gone:
            operation.end = "gone"  # its send has been cancelled
            self.count_state(operation, "withdrawn")
        elif not self.has_failed(operation):
            self._check(operation)
        self._quarantine.put(
            operation.views,
            content.recv_pattern(self.side.index),
            self.key,
            operation,
        )

    def _check(self, operation):
        # Several receives of one operation may get their messages in another order:
        # one whose message was withdrawn while its bytes came waits again.
        last = self._last
        messages = self.kind.taken(operation.result, operation.views)
        if self.kind.is_per_part:
            messages = [[part] for message in messages for part in message]
        for message in messages:
            self._check_message(operation, message, last)

    def _check_message(self, operation, parts, last):
        number = next((int(part[0]) for part in parts if len(part)), None)
        if number is None:
            return
        text = self._fault(parts, number)
        if text:
            # The first byte may be a pattern, too.
            key = f"{self.kind.name} send" if "a send" in text else self.key
            self.report.fail(key, "wrong", f"{operation.label}: {text}")
        if number == content.END:
            self._num_ends += 1
            # An earlier receive, whose message was withdrawn while its bytes came,
            # waits again, for nothing. Each task that is cancelled must have begun.
            asyncio.get_running_loop().call_soon(self._abandon_all)
            return
        if number not in self.course.sizes:
            self._num_unknown += 1
            return
        if number in self._received:
            text = f"{operation.label}: message {number} came twice"
            self.report.fail(self.key, "order", text)
        elif number < last and self.window == 1 and self.kind.is_ordered:
            text = f"{operation.label}: message {number} came late"
            self.report.fail(self.key, "order", text)
        self._received.add(number)
        self._last = max(self._last, number)

    def _fault(self, parts, number):
        if not self.kind.is_exact and number in self.course.sizes:
            if len(parts[0]) != self.course.sizes[number]:
                return f"message {number} came with {len(parts[0])} bytes"
        for at, part in enumerate(parts):
            part_number = 0 if self.kind.is_per_part else at
            text = content.fault(part, self.course.number, number, part_number)
            if text:
                return text
        return ""

    def state_of(self, operation):
        parts = [view for view in operation.views if len(view)]
        if self.kind.is_done(operation.awaitable):
            return "complete"
        if not parts or parts[0][0] == content.FRESH:
            return "nothing"
        return "middle" if parts[-1][-1] == content.FRESH else "complete"
