# SPDX-License-Identifier: BSD-3-Clause
"""Random programs on two endpoints, compared with a model of matching.

``UCP_MODEL_EXAMPLES`` programs a transport are run, new ones each time; by
default a few, always the same.
"""

import asyncio
import gc
import os
import random
import select

import pytest
from conftest import TLS
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    precondition,
    rule,
    run_state_machine_as_test,
)
from matching import ANY, Direction, Receive

import ucp
from ucp.testing import live_objects

_EXAMPLES = int(os.environ.get("UCP_MODEL_EXAMPLES", "0"))

_KIB = 1024

# Sizes on both sides of every switch: none, inline, one frame, eager, rendezvous.
SIZES = [
    *(0, 1, 92, 8 * _KIB, 128 * _KIB - 1, 128 * _KIB, 128 * _KIB + 1),
    *(256 * _KIB - 1, 256 * _KIB, 256 * _KIB + 1, 1024 * _KIB),
]
TAGS = [None, 1, 2, 3]
ALL_BITS = 2**64 - 1

_PATTERN = random.Random(1).randbytes(2 << 20)
_FILL = 0xEE

# Windows so small that the programs fill them.
_CONFIG = ucp.Config(spin=0, credit_messages=8, credit_bytes=512 * _KIB, credit_rndv=2)

# Longest time that both sides may sleep with nothing to wake them while
# something is owed: a hang.
_HANG_S = 10


class Host:
    """A loop of its own, moved one turn at a time."""

    def __init__(self):
        self.loop = asyncio.new_event_loop()

    def turn(self):
        self.loop.call_soon(self.loop.stop)
        self.loop.run_forever()

    def start(self, awaitable):
        """A task that has had its first turn."""
        task = self.loop.create_task(awaitable)
        self.turn()
        return task

    async def _worker(self):
        return ucp.current_worker()

    async def _listener(self):
        return ucp.create_listener(host="127.0.0.1")

    def open(self):
        self.worker = self.loop.run_until_complete(self._worker())
        self.listener = self.loop.run_until_complete(self._listener())

    def close(self):
        self.listener.close()
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()


class Hosts:
    """Both ends of the connections, in one thread."""

    def __init__(self):
        self.hosts = [Host(), Host()]
        for host in self.hosts:
            host.open()
        self.baseline = self.counters()

    def close(self):
        for host in self.hosts:
            host.close()

    def until(self, condition):
        idle = 0
        while not condition():
            for host in self.hosts:
                host.turn()
            if self._sleep():
                idle = 0
                continue
            idle += 1
            assert idle * _IDLE_S < _HANG_S, "nothing moves any more"

    def _sleep(self):
        """Wait for an event, but not for ever: a loop may be about to run."""
        fds = [host.worker.fileno() for host in self.hosts]
        return select.select(fds, [], [], _IDLE_S)[0]

    def result(self, task):
        self.until(task.done)
        return task.result()

    def connect(self):
        """Two endpoints, of the first host and the second."""
        first, second = self.hosts
        port = second.listener.port
        client = first.start(ucp.create_endpoint("127.0.0.1", port))
        server = second.start(anext(second.listener))
        return [self.result(client), self.result(server)]

    def counters(self):
        """Return what must be as before after each program."""
        kept = ("requests_in_use", "endpoints", "unexpected_messages")
        kept += ("unexpected_bytes", "protocol_errors")
        all_of = [host.worker.statistics.as_dict() for host in self.hosts]
        return live_objects(), [[each[key] for key in kept] for each in all_of]


_IDLE_S = 0.001


class Operation:
    """A send or receive under way."""

    def __init__(self, task, number, buffer=None, kind=None):
        self.task = task
        self.number = number  # in the model
        self.buffer = buffer
        self.kind = kind


class Way:
    """One direction: its model, and what is under way."""

    def __init__(self, sender, receiver, source, target):
        self.model = Direction()
        self.sender, self.receiver = sender, receiver  # hosts
        self.source, self.target = source, target  # endpoints
        self.sends = []
        self.receives = []
        self.held = []  # (message, number)
        self.is_source_closed = False
        self.is_target_closed = False

    # ---- operations ----

    def send(self, tag, size):
        number = len(self.model.messages)
        data = bytearray(_PATTERN[number : number + size])
        task = self.sender.loop.create_task(self.source.send(data, tag))
        self.model.send(tag, bytes(data))
        self.sends.append(Operation(task, number, data))
        self.sender.turn()

    def post(self, kind, receive, awaitable, buffer=None):
        task = self.receiver.loop.create_task(awaitable)
        self.receiver.turn()  # the task posts in its first step
        number = self.model.post(receive)
        self.receives.append(Operation(task, number, buffer, kind))

    def recv(self, tag, size):
        buffer = bytearray([_FILL]) * size
        receive = Receive(tag, ALL_BITS, size, True)
        self.post("exact", receive, self.target.recv(buffer, tag), buffer)

    def recv_into(self, tag, mask, size):
        buffer = bytearray([_FILL]) * size
        awaitable = self.target.recv_into(buffer, wire(tag), mask)
        self.post("into", Receive(tag, mask, size), awaitable, buffer)

    def recv_obj(self, tag):
        receive = Receive(tag, ALL_BITS, None)
        self.post("obj", receive, self.target.recv_obj(wire(tag)))

    def recv_message(self, tag):
        receive = Receive(tag, ALL_BITS, None)
        self.post("message", receive, self.target.recv_message(wire(tag)))

    def recv_held(self, index):
        message, number = self.held.pop(index)
        buffer = bytearray([_FILL]) * (message.nbytes + number % 2)
        task = self.receiver.start(message.recv(buffer))
        self.receives.append(Operation(task, number, buffer, "into"))

    def drop_held(self, index):
        number = self.held.pop(index)[1]  # the only reference to the message
        self.model.drop(number)

    def probe(self, tag):
        receive = Receive(tag, ALL_BITS, None)
        self.model.probed(receive, self.target.probe(wire(tag)))

    def cancel_send(self, index):
        operation = self.sends[index]
        if operation.task.cancel():
            self.model.doubtful.add(operation.number)

    def cancel_receive(self, index):
        operation = self.receives[index]
        if operation.task.cancel():
            self.model.cancel(operation.number)

    # ---- what has become of them ----

    def observe(self):
        self.sends = [op for op in self.sends if not self._has_sent(op)]
        self.receives = [op for op in self.receives if not self._has_received(op)]

    def _has_sent(self, operation):
        if not operation.task.done():
            return False
        if operation.task.cancelled():
            assert operation.number in self.model.doubtful
            return True
        error = operation.task.exception()
        if error is None:
            operation.buffer[:] = bytes(len(operation.buffer))  # ours to write again
        else:
            assert isinstance(error, ucp.UCXBaseException)
            assert self.model.is_lossy, error
        return True

    def _has_received(self, operation):
        task, number = operation.task, operation.number
        if not task.done():
            return False
        if task.cancelled():
            self.model.cancelled(number)
        elif task.exception() is not None:
            self._failed(operation, task.exception())
        elif operation.kind == "message":
            self._got_message(number, task.result())
        else:
            self.model.received(number, lambda message: is_in(operation, message))
            self.model.take(number)
        return True

    def _failed(self, operation, error):
        number, kind, buffer = operation.number, operation.kind, operation.buffer
        if isinstance(error, ucp.UCXMsgTruncated):
            size = error.nbytes
            assert size > len(buffer) or (kind == "exact" and size < len(buffer))
            self.model.refused(number, size)
            return
        assert isinstance(error, ucp.UCXBaseException), error
        if isinstance(error, ucp.UCXCanceled) and number in self.model.holders:
            self.model.withdrawn(number)
            return
        if self.model.is_lossy or self.is_target_closed:
            self.model.withdraw(number)
        else:
            assert self.is_source_closed, error
            assert isinstance(error, ucp.UCXCloseError), error
            self.model.never_came(number)

    def _got_message(self, number, message):
        shape = message.nbytes, message.tag
        self.model.received(number, lambda sent: (len(sent.data), sent.tag) == shape)
        self.held.append((message, self.model.hold(number)))


def wire(tag):
    return ucp.ANY if tag == ANY else tag


def is_in(operation, message):
    """Did the receive get exactly ``message``?"""
    if operation.kind == "obj":
        return operation.task.result() == message.data
    size = len(message.data)
    if operation.kind == "exact":
        return operation.buffer == message.data
    rest = bytes([_FILL]) * (len(operation.buffer) - size)
    return (
        operation.task.result() == size
        and operation.buffer[:size] == message.data
        and operation.buffer[size:] == rest
    )


_LAST = 99  # a tag that only _drain() uses

ways = st.integers(0, 1)
picks = st.integers(0, 1000)
send_tags = st.sampled_from(TAGS)
recv_tags = st.sampled_from([*TAGS, ANY])


class Program(RuleBasedStateMachine):
    """One connection, from its start to its end."""

    hosts: Hosts

    def __init__(self):
        super().__init__()
        self.eps = self.hosts.connect()
        first, second = self.hosts.hosts
        self.ways = [Way(first, second, *self.eps)]
        self.ways.append(Way(second, first, *reversed(self.eps)))
        self.closes = []
        self.is_aborted = False
        self.has_failed = False

    def do(self, action, *arguments):
        self.has_failed = True
        action(*arguments)
        for way in self.ways:
            way.observe()
        self.has_failed = False

    def size_for(self, way, pick):
        """The size of a message that was sent, if there is one."""
        messages = way.model.messages
        return len(messages[pick % len(messages)].data) if messages else 92

    def act(self, way, what, pick, action):
        """On one of ``what``, or if there is none on the other way's, or none.

        What there is depends on time, so it may not decide which rule comes
        next: Hypothesis wants the same program from the same choices.
        """
        for each in (self.ways[way], self.ways[1 - way]):
            things = getattr(each, what)
            if things and not each.model.is_vague():
                self.do(getattr(each, action), pick % len(things))
                return
        self.do(self.hosts.hosts[way].turn)

    # ---- rules ----

    @rule(way=ways, tag=send_tags, size=st.sampled_from(SIZES))
    def send(self, way, tag, size):
        if not self.ways[way].is_source_closed:
            self.do(self.ways[way].send, tag, size)

    @rule(way=ways, tag=send_tags, size=st.sampled_from(SIZES[:4]))
    def send_a_burst(self, way, tag, size):
        for _ in range(6):
            self.send(way, tag, size)

    @rule(way=ways, tag=st.sampled_from(TAGS), pick=picks)
    def recv(self, way, tag, pick):
        way = self.ways[way]
        self.do(way.recv, tag, self.size_for(way, pick))

    @rule(
        way=ways,
        tag=recv_tags,
        mask=st.sampled_from([ALL_BITS, 1]),
        size=st.sampled_from(SIZES),
    )
    def recv_into(self, way, tag, mask, size):
        self.do(self.ways[way].recv_into, tag, mask, size)

    @rule(way=ways, tag=recv_tags)
    def recv_obj(self, way, tag):
        self.do(self.ways[way].recv_obj, tag)

    @rule(way=ways, tag=recv_tags)
    def recv_message(self, way, tag):
        self.do(self.ways[way].recv_message, tag)

    @rule(way=ways, pick=picks)
    def recv_held(self, way, pick):
        self.act(way, "held", pick, "recv_held")

    @rule(way=ways, pick=picks)
    def drop_held(self, way, pick):
        self.act(way, "held", pick, "drop_held")

    @rule(way=ways, tag=recv_tags)
    def probe(self, way, tag):
        way = self.ways[way]
        if not way.is_target_closed and not way.model.is_lossy:
            self.do(way.probe, tag)

    @rule(way=ways, pick=picks)
    def cancel_send(self, way, pick):
        self.act(way, "sends", pick, "cancel_send")

    @rule(way=ways, pick=picks)
    def cancel_receive(self, way, pick):
        self.act(way, "receives", pick, "cancel_receive")

    @rule(host=ways, poll=st.booleans())
    def run(self, host, poll):
        """A turn of the loop; or only UCX, and no task learns of it."""
        host = self.hosts.hosts[host]
        self.do(host.worker.progress if poll else host.turn)

    @rule(way=ways)
    def drain(self, way):
        self.do(self._drain, self.ways[way])

    @precondition(lambda self: not self.is_aborted)
    @rule(way=ways, is_abort=st.sampled_from([False, False, False, True]))
    def close(self, way, is_abort):
        way = self.ways[way]
        if is_abort:
            self.do(self._abort, way)
        elif not way.is_source_closed:
            self.do(self._close, way)

    # ---- the longer ones ----

    def _until(self, condition):
        def observed():
            for way in self.ways:
                way.observe()
            return condition()

        self.hosts.until(observed)

    def _drain(self, way):
        """Receive all there is; nothing may be missing."""
        while way.receives:
            way.cancel_receive(0)
            left = len(way.receives)
            self._until(lambda left=left: len(way.receives) < left)
        if way.model.is_lossy or way.is_target_closed:
            return
        if not way.is_source_closed:
            way.send(_LAST, 0)
        while not self._drain_one(way):
            pass
        way.model.emptied()

    def _drain_one(self, way):
        """Receive what is held, and one more; True if that was the last."""
        while way.held:
            way.recv_held(0)
        way.recv_message(ANY)
        self._until(lambda: not way.receives)
        if not way.held:
            assert way.is_source_closed
            return True
        tag = way.held[0][0].tag
        way.recv_held(0)
        self._until(lambda: not way.receives)
        return tag == _LAST

    def _close(self, way):
        """The sender of ``way`` closes."""
        back = self.ways[1 - self.ways.index(way)]
        back.model.is_lossy = True
        back.is_target_closed = True
        way.is_source_closed = True
        self.closes.append(way.sender.start(way.source.close()))

    def _abort(self, way):
        for each in self.ways:
            each.model.is_lossy = True
            each.is_source_closed = each.is_target_closed = True
        self.is_aborted = True
        way.source.abort()

    # ---- the end ----

    def teardown(self):
        if self.has_failed:
            self._give_up()
            return
        self._finish()
        self.eps = self.ways = self.closes = ()
        gc.collect()
        self.hosts.until(lambda: self.hosts.counters() == self.hosts.baseline)

    def _give_up(self):
        for ep in self.eps:
            ep.abort()
        for way in self.ways:
            for operation in [*way.sends, *way.receives]:
                operation.task.cancel()
        for host in self.hosts.hosts:
            host.turn()
            host.turn()

    def _finish(self):
        for way in self.ways:
            self._drain(way)
            if not way.model.is_lossy:
                self._until(lambda way=way: not way.sends)
        for way in self.ways:
            way.held.clear()
            self._close(way)
        self._until(lambda: not any(way.sends or way.receives for way in self.ways))
        for task in self.closes:
            try:
                self.hosts.result(task)
            except ucp.UCXBaseException:
                assert self.is_aborted
        allowed = {"closed", "failed"} if self.is_aborted else {"closed"}
        states = {ep.state for ep in self.eps}
        assert states <= allowed, (states, [ep.error for ep in self.eps])


@pytest.fixture(params=TLS)
def hosts(request):
    ucp.reset()
    ucp.init(options=TLS[request.param], config=_CONFIG)
    hosts = Hosts()
    yield hosts
    hosts.close()
    hosts.hosts.clear()  # Hypothesis keeps the class of the program
    ucp.reset()


@pytest.mark.timeout(0 if _EXAMPLES else 60)
def test_programs_behave_as_the_model_says(hosts):
    program = type("Program", (Program,), {"hosts": hosts, "TestCase": None})
    run_state_machine_as_test(
        program,
        settings=settings(
            max_examples=_EXAMPLES or 80,
            stateful_step_count=60 if _EXAMPLES else 30,
            derandomize=not _EXAMPLES,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
