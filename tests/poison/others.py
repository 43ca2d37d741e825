# SPDX-License-Identifier: BSD-3-Clause
"""Blocking calls, asyncio's streams, messages with metadata."""

import asyncio

import numpy as np

import ucp
from ucp.message import MessageListener, MessageReceiver, MessageSender

from . import content
from .kinds import Kind


class Blocking(Kind):
    """Side 0 calls ``ucp.sync`` in a thread, where it poisons, too."""

    name = "sync"
    is_exact = False
    is_visible = False

    def __init__(self, side, course):
        super().__init__(side, course)
        self.ep = side.sync_ep
        course.window = 1

    def adapt(self, plan):
        if plan.how and not self.side.index:
            plan.how = "sync"
        return plan

    def send(self, numbers, views, operation):
        if self.side.index:
            return self.ep.send(views[0], self.course.tag)
        pattern = content.send_pattern(0)
        return self._in_thread(operation, self.ep.send, views[0], pattern)

    def recv(self, views, operation):
        if self.side.index:
            return self.ep.recv_into(views[0], self.course.tag)
        pattern = content.recv_pattern(0)
        return self._in_thread(operation, self.ep.recv_into, views[0], pattern)

    async def _in_thread(self, operation, call, view, pattern):
        def run():
            try:
                length = call(view, self.course.tag, timeout=timeout)
                return None if length is None else view[:length].copy()
            finally:
                if not self.side.options.harmless:
                    view[:] = pattern
                operation.is_poisoned = True

        timeout = operation.plan.seconds if operation.plan.how else None
        return await asyncio.get_running_loop().run_in_executor(None, run)

    def taken(self, result, views):
        return [[views[0][:result] if isinstance(result, int) else result]]


class Written(Kind):
    """A StreamWriter has copied the bytes when write() has returned."""

    name = "writer"
    is_visible = False

    def __init__(self, side, course):
        super().__init__(side, course)
        course.window = 1  # a task's first step, in which it writes, may be late

    async def send(self, numbers, views, operation):
        self.side.writer.write(views[0].data)
        views[0][:] = content.send_pattern(self.side.index)
        await self.side.writer.drain()

    def recv(self, views, operation):
        operation.views = []
        return self.side.reader.readexactly(self.course.parts[0])

    def taken(self, result, views):
        return [[np.frombuffer(result, dtype=np.uint8)]]


class Messenger(Kind):
    name = "messenger"
    is_exact = False
    is_visible = False

    def __init__(self, side, course):
        super().__init__(side, course)
        self._queue = asyncio.Queue()
        channel = 30 + course.index
        if course.sender == side.index:
            self._sender = MessageSender(channel=channel)
        else:
            self._listener = MessageListener(self.ep, self._route, channel=channel)

    def _route(self, metadata):
        queue = self._queue

        class Part(MessageReceiver):
            def finish(self, buffers):
                queue.put_nowait(np.frombuffer(buffers[0], dtype=np.uint8))

        return Part(metadata)

    def send(self, numbers, views, operation):
        return self._sender.send(self.ep, {"number": numbers[0]}, [views[0]])

    async def recv(self, views, operation):
        operation.views = []
        return await self._queue.get()

    def taken(self, result, views):
        return [[result]]

    def close(self):
        if self.course.sender == self.side.index:
            self._sender._close_soon()
        else:
            self._listener.close()


async def connect(side, listener, port):
    """The connections of these kinds beside that of ``side.ep``."""
    if side.index:
        side.sync_ep = await listener.accept()
        stream_ep = await listener.accept()
    else:
        loop = asyncio.get_running_loop()
        side.sync_ep = await loop.run_in_executor(
            None, ucp.sync.connect, "127.0.0.1", port
        )
        stream_ep = await ucp.create_endpoint("127.0.0.1", port)
    side.reader, side.writer = ucp.open_streams(stream_ep)


async def close(side):
    if side.index:
        await side.sync_ep.close()
    else:
        await asyncio.get_running_loop().run_in_executor(None, side.sync_ep.close)
    side.writer.close()


KINDS = [Blocking, Written, Messenger]
