# SPDX-License-Identifier: BSD-3-Clause
"""Random programs on a pool's buffers, compared with a model of who has which.

``UCP_MODEL_EXAMPLES`` programs are run, new ones each time; by default a few,
always the same. Whoever gets a buffer fills it with bytes of his own: if it was
lent too early, a message is not what was sent, or a buffer not what was written
into it. What a program may do depends on time: its steps are drawn without
looking.
"""

import asyncio
import contextlib
import gc
import os

import numpy as np
import pytest
from conftest import TLS
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

import ucp
from ucp.exceptions import UCXBusy
from ucp.testing import live_objects

_EXAMPLES = int(os.environ.get("UCP_MODEL_EXAMPLES", "0"))

_COUNT = 3

PICK = st.integers(0, 100)


class Turns:
    """A loop that moves one turn at a time."""

    def __init__(self):
        self.loop = asyncio.new_event_loop()

    def turn(self):
        self.loop.call_soon(self.loop.stop)
        self.loop.run_forever()

    def start(self, awaitable):
        task = self.loop.create_task(as_coroutine(awaitable))
        self.turn()
        return task

    def until(self, condition):
        """Bounded by the test's time limit."""
        while not condition():
            self.turn()


async def as_coroutine(awaitable):
    return await awaitable


class Mine:
    """A buffer in the program's hands."""

    def __init__(self, buffer, stamp):
        self.buffer = buffer
        self.address = np.asarray(buffer).ctypes.data
        self.write(stamp)

    def write(self, stamp):
        self.stamp = stamp
        np.asarray(self.buffer)[:] = stamp % 251

    def is_intact(self):
        return bool(np.all(np.asarray(self.buffer) == self.stamp % 251))


class Operation:
    """Under way, as far as the program knows; `mine` while it is not released."""

    def __init__(self, task, mine, is_kept, is_view=False):
        self.task = task
        self.is_view = is_view
        self.address = mine.address
        self.mine = mine if is_kept else None


class Program(RuleBasedStateMachine):
    turns: Turns
    size: int

    def __init__(self):
        super().__init__()
        self.pool = ucp.BufferPool(_COUNT, self.size)
        self.client, self.server = self.turns.loop.run_until_complete(connect())
        self.idle = []
        self.waiting = []
        self.sends = []
        self.receives = []
        self.sent = []  # stamps of the messages that are not received yet
        self.stamp = 0
        self.is_sound = True

    @contextlib.contextmanager
    def checked(self):
        """Mark the program unsound if the block fails: the end is not checked then."""
        self.is_sound = False
        yield
        self.is_sound = True

    def next_stamp(self):
        self.stamp += 1
        return self.stamp

    # ---- what the program does

    @rule()
    def acquire(self):
        self.waiting.append(self.turns.start(self.pool.acquire()))
        self.collect()

    @rule()
    def acquire_nowait(self):
        try:
            buffer = self.pool.acquire_nowait()
        except UCXBusy:
            assert self.pool.free == 0 or self.waiting
        else:
            assert not any(not task.done() for task in self.waiting)
            self.idle.append(Mine(buffer, self.next_stamp()))

    @rule(pick=PICK, released=PICK)
    def give_up(self, pick, released):
        """Maybe in the turn in which it is served."""
        if not self.waiting:
            return
        task = self.waiting.pop(pick % len(self.waiting))
        if self.idle and released % 2:
            self.idle.pop().buffer.release()
        task.cancel()
        self.turns.turn()
        self.turns.turn()
        assert task.cancelled()
        self.collect()

    @rule(pick=PICK, is_dropped=st.booleans())
    def release(self, pick, is_dropped):
        if not self.idle:
            return
        mine = self.idle.pop(pick % len(self.idle))
        if not is_dropped:
            mine.buffer.release()
        del mine
        self.collect()

    @rule(pick=PICK, is_kept=st.booleans(), by_view=st.booleans())
    def send(self, pick, is_kept, by_view):
        if not self.idle:
            return
        mine = self.idle.pop(pick % len(self.idle))
        mine.write(self.next_stamp())
        self.sent.append(mine.stamp)
        what = memoryview(mine.buffer) if by_view else mine.buffer
        task = self.turns.start(self.client.send(what))
        del what
        if not (is_kept or by_view):
            mine.buffer.release()
        self.sends.append(Operation(task, mine, is_kept or by_view, by_view))
        self.collect()

    @rule(pick=PICK)
    def receive(self, pick):
        if not self.idle:
            return
        mine = self.idle.pop(pick % len(self.idle))
        task = self.turns.start(self.server.recv(mine.buffer))
        self.receives.append(Operation(task, mine, True))
        self.collect()

    @rule(pick=PICK)
    def give_up_receiving(self, pick):
        if not self.receives:
            return
        operation = self.receives[pick % len(self.receives)]
        if operation.task.done():
            self.collect()
            return
        self.receives.remove(operation)
        operation.task.cancel()
        operation.mine.buffer.release()
        operation.mine = None
        self.turns.turn()
        assert operation.task.cancelled()
        self.collect()

    @rule(pick=PICK)
    def release_while_it_is_sent(self, pick):
        kept = [each for each in self.sends if each.mine is not None]
        if kept:
            operation = kept[pick % len(kept)]
            try:
                operation.mine.buffer.release()
            except BufferError:
                assert operation.is_view
            else:
                assert not operation.is_view or operation.task.done()
                operation.mine = None

    @rule(turns=st.integers(1, 5))
    def run(self, turns):
        for _ in range(turns):
            self.turns.turn()
        self.collect()

    # ---- what comes of it

    def collect(self):
        """Collect finished operations; buffers go to those who have waited longest."""
        with self.checked():
            self.collect_done()

    def collect_done(self):
        self.sends = [each for each in self.sends if not self.ended(each)]
        while self.receives and self.receives[0].task.done():
            operation = self.receives.pop(0)
            operation.task.result()
            mine = operation.mine
            mine.stamp = self.sent.pop(0)
            self.idle.append(mine)
        assert not any(each.task.done() for each in self.receives)
        while self.waiting and self.waiting[0].done():
            buffer = self.waiting.pop(0).result()
            self.idle.append(Mine(buffer, self.next_stamp()))
        assert not any(task.done() for task in self.waiting)

    def ended(self, operation):
        if not operation.task.done():
            return False
        operation.task.result()
        if operation.mine is not None:
            self.idle.append(operation.mine)
        return True

    @invariant()
    def each_buffer_has_one_owner(self):
        with self.checked():
            self.check_owners()

    def check_owners(self):
        assert all(mine.is_intact() for mine in self.idle)
        busy = [each.address for each in self.sends + self.receives]
        owned = [mine.address for mine in self.idle]
        # An operation under way whose buffer was released may have ended meanwhile.
        kept = [each.address for each in self.sends + self.receives if each.mine]
        assert len({*owned, *kept}) == len(owned) + len(kept)
        assert self.pool.free + len(owned) + len(kept) <= _COUNT
        assert len({*owned, *busy}) <= _COUNT

    @invariant()
    def nobody_waits_for_what_is_free(self):
        if self.pool.free:
            self.turns.turn()  # tells the loop, ...
            self.turns.turn()  # ... which tells the task
            assert not any(not task.done() for task in self.waiting)
            self.collect()

    def abandon(self):
        operations = [*self.sends, *self.receives]
        for task in [*self.waiting, *(each.task for each in operations)]:
            task.cancel()
        self.pool.close()
        self.client.abort()
        self.server.abort()
        self.turns.turn()

    def teardown(self):
        if not self.is_sound:
            self.abandon()
            return
        for task in [*self.waiting, *(each.task for each in self.receives)]:
            task.cancel()
        self.turns.turn()
        self.turns.turn()
        self.waiting.clear()
        self.receives = [each for each in self.receives if not each.task.cancelled()]
        self.collect()
        while self.sent:
            message = self.turns.loop.run_until_complete(self.server.recv_obj())
            assert message == bytes([self.sent.pop(0) % 251]) * self.size
        self.turns.until(lambda: all(each.task.done() for each in self.sends))
        self.collect()
        self.idle.clear()
        self.sends.clear()
        self.receives.clear()
        gc.collect()
        self.turns.until(lambda: self.pool.free == _COUNT)
        assert live_objects()["loans"] == 0
        self.pool.close()
        self.client.abort()
        self.server.abort()


async def connect():
    listener = ucp.create_listener(host="127.0.0.1")
    client = await ucp.create_endpoint("127.0.0.1", listener.port)
    server = await anext(listener)
    listener.close()
    return client, server


@pytest.fixture(params=TLS)
def turns(request):
    ucp.reset()
    ucp.init(options=TLS[request.param], config=ucp.Config(spin=0))
    turns = Turns()
    yield turns
    turns.turn()
    turns.loop.close()
    ucp.reset()


@pytest.mark.timeout(0 if _EXAMPLES else 60)
@pytest.mark.parametrize("size", [1000, 300_000])
def test_buffers_are_lent_as_the_model_says(turns, size):
    program = type(
        "Program", (Program,), {"turns": turns, "size": size, "TestCase": None}
    )
    run_state_machine_as_test(
        program,
        settings=settings(
            max_examples=_EXAMPLES or 40,
            stateful_step_count=60 if _EXAMPLES else 30,
            derandomize=not _EXAMPLES,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
