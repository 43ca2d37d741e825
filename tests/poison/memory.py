# SPDX-License-Identifier: BSD-3-Clause
"""Put, get and atomic operations on memory of the other process.

The side that sends executes the operations on memory of the other one. That is in
its ``region``, and so is seen by both.
"""

import numpy as np

import ucp

from . import content
from .kinds import Kind
from .lane import Lane

_OLD = 121  # the number of what was in the memory before


class Owner(Lane):
    """The side whose memory is accessed; it does nothing while the other one does."""

    way = "owner"

    def __init__(self, side, course):
        super().__init__(side, course)
        for number, (view,) in enumerate(self.slots):
            content.fill(view, course.number, self.kind.number_in(number))
        self._region = side.region(course.index)[: course.num_slots * course.stride]
        if self.kind.is_counter:
            self._region[:8] = 0
        self._memory = ucp.Memory.register(self._region)

    def offer(self):
        return self._memory.key.hex()

    async def run(self):
        pass

    async def finish(self, _outcomes):
        counts = np.bincount(self._region, minlength=256)
        for value, whose in content.PATTERNS.items():
            if counts[value] and value != content.FRESH and not self.kind.is_counter:
                text = f"{self.course}: the memory has {whose}"
                self.report.fail(f"{self.kind.name} send", "wrong", text)
        self._memory.close()


class Initiator(Lane):
    """The side that executes the operations; subclasses say which."""

    way = "send"

    def __init__(self, side, course):
        super().__init__(side, course)
        self.outcomes = {}
        self._quarantine = side.quarantine()
        self._offsets = [slot * course.stride for slot in range(len(self.slots))]

    def accept(self, key):
        self.remote = self.side.ep.remote(bytes.fromhex(key))

    async def run(self):
        number = 0
        while number < self.course.count:
            slots = self.rng.sample(range(len(self.slots)), self.rng.randrange(1, 3))
            operations = []
            for slot in slots:
                operations.append(self.begin(number, slot))
                number += 1
                await self._pause(self.course.send_pause)
            for operation in operations:
                await operation.over()
            for operation in operations:
                await self.look(operation)

    def ended(self, operation):
        if not self.has_failed(operation) and operation.end == "done":
            self.got(operation)
        pattern = self.kind.pattern(self.side.index)
        self._quarantine.put(operation.views, pattern, self.key, operation)

    def begin(self, number, slot):
        raise NotImplementedError

    def got(self, operation):
        """It has ended well."""

    async def look(self, operation):
        """After its end: what has become of it?"""

    def all_outcomes(self):
        return []

    def finish(self):
        self._quarantine.check_all()
        self.remote.close()


class Putter(Initiator):
    def __init__(self, side, course):
        super().__init__(side, course)
        self._olds = {}  # what is in a slot, if it is not what was there first

    def _old(self, slot):
        if slot not in self._olds:
            self._olds[slot] = np.empty(self.course.parts[0], dtype=np.uint8)
            content.fill(self._olds[slot], self.course.number, _OLD)
        return self._olds[slot]

    def begin(self, number, slot):
        views = self.kind.make([number])
        operation = self.new(f"number {number} into slot {slot}", views)
        operation.numbers, operation.slot = [number], slot
        operation.start(lambda: self._post(views[0], self._offsets[slot]))
        return operation

    def _post(self, view, offset):
        if self.rng.random() < 0.5:
            return self.remote.put(view, offset)
        half = len(view) // 2
        return self.remote.put_many(
            [(view[half:], offset + half), (view[:half], offset)]
        )

    async def look(self, operation):
        """Each byte is the new one, or if the put was cancelled the old one."""
        await self.remote.flush()
        slot, number = operation.slot, operation.numbers[0]
        seen = np.empty(self.course.parts[0], dtype=np.uint8)
        await self.remote.get(seen, self._offsets[slot])
        new = np.empty_like(seen)
        content.fill(new, self.course.number, number)
        wrong = seen != new
        if operation.end == "cancelled":
            wrong &= seen != self._old(slot)
        if wrong.any():
            text = content.fault(seen, self.course.number, number)
            self.report.fail(self.key, "wrong", f"{operation.label}: {text}")
        self._olds[slot] = seen

    def state_of(self, operation):
        view = self.slots[operation.slot][0]
        if self.kind.is_done(operation.awaitable):
            return "complete"
        if view[0] != operation.numbers[0]:
            return "untaken"
        old = self._old(operation.slot)
        return "middle" if (view[-8:] == old[-8:]).all() else "complete"


class Getter(Initiator):
    way = "recv"

    def begin(self, number, slot):
        view = np.full(self.course.parts[0], content.FRESH, dtype=np.uint8)
        operation = self.new(f"from slot {slot}", [view])
        operation.slot = slot
        operation.start(lambda: self._post(view, self._offsets[slot]))
        return operation

    def _post(self, view, offset):
        if self.rng.random() < 0.5:
            return self.remote.get(view, offset)
        half = len(view) // 2
        return self.remote.get_many(
            [(view[half:], offset + half), (view[:half], offset)]
        )

    def got(self, operation):
        number = self.kind.number_in(operation.slot)
        text = content.fault(operation.views[0], self.course.number, number)
        if text:
            self.report.fail(self.key, "wrong", f"{operation.label}: {text}")

    def state_of(self, operation):
        view = operation.views[0]
        if self.kind.is_done(operation.awaitable):
            return "complete"
        if view[0] == content.FRESH and view[-1] == content.FRESH:
            return "nothing"
        is_middle = content.FRESH in (view[0], view[-1])
        return "middle" if is_middle else "complete"


class Adder(Initiator):
    """Operations without a buffer: each is done once, or not if it was cancelled."""

    def begin(self, number, slot):
        operation = self.new(f"number {number}", [])
        operation.numbers = [number]
        call = self.rng.choice([self.remote.add, self.remote.fetch_add])
        operation.start(lambda: call(0, 1))
        self.outcomes[number] = operation
        return operation

    async def look(self, operation):
        ends = [each.end for each in self.outcomes.values() if each.end]
        await self.remote.flush()
        value = await self.remote.fetch_add(0, 0)
        if not ends.count("done") <= value <= len(self.outcomes):
            text = f"{operation.label}: {value} after {ends}"
            self.report.fail(self.key, "lost", text)

    def state_of(self, operation):
        is_done = self.kind.is_done(operation.awaitable)
        return "complete" if is_done else "untaken"

    def finish(self):
        self.outcomes.clear()
        super().finish()


class Put(Kind):
    name = "put"
    is_counter = False
    sender, receiver = Putter, Owner

    @staticmethod
    def number_in(slot):
        return _OLD

    @staticmethod
    def pattern(side):
        return content.send_pattern(side)


class Get(Put):
    name = "get"
    sender = Getter

    @staticmethod
    def number_in(slot):
        return slot

    @staticmethod
    def pattern(side):
        return content.recv_pattern(side)


class Add(Put):
    name = "add"
    is_counter = True
    sender = Adder

    @classmethod
    def parts(cls, rng, options):
        return [8]
