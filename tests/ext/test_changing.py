# SPDX-License-Identifier: BSD-3-Clause
"""Objects whose code changes what a call is about to read."""

import asyncio
import gc

import numpy as np
import pytest

import ucp
from ucp.message import MessageListener, MessageReceiver, MessageSender
from ucp.testing import connected_pair, until

CONTENT = b"12345678"


class Looked:
    """Eight bytes; ``code`` runs when a call looks where they are."""

    def __init__(self, code):
        self.code = code
        self.array = np.frombuffer(bytearray(CONTENT), "u1")

    @property
    def __array_interface__(self):
        self.code()
        return self.array.__array_interface__


class Number:
    """Zero; ``code`` runs when it is asked for."""

    def __init__(self, code):
        self.code = code

    def __index__(self):
        self.code()
        return 0

    def __float__(self):
        self.code()
        return 0.0


class Equal:
    """Equal to everything; ``code`` runs when that is asked."""

    def __init__(self, code):
        self.code = code

    def __eq__(self, other):
        self.code()
        return True

    __hash__ = None


def list_of(count, make, change):
    """``count`` buffers, the first of which changes the list."""
    items = []

    def code():
        change(items)
        gc.collect()

    items.append(Looked(code))
    items.extend(make() for _ in range(count - 1))
    return items


def fill(items):
    items.extend(bytearray(8) for _ in range(5000))


changes = pytest.mark.parametrize(
    "change", [list.clear, fill], ids=["emptied", "filled"]
)

# ---- lists -------------------------------------------------------------------


@changes
async def test_send_many_sends_what_was_in_the_list(change):
    async with connected_pair() as (client, server):
        items = list_of(40, lambda: bytes(bytearray(CONTENT)), change)
        await client.send_many(items)
        for _ in range(40):
            assert await server.recv_obj() == CONTENT
        assert server.probe() is None


@changes
async def test_recv_many_receives_into_what_was_in_the_list(change):
    async with connected_pair() as (client, server):
        items = list_of(40, lambda: bytearray(8), change)
        into = items[1:]
        receiving = server.recv_many(items)
        await client.send_many([CONTENT] * 40)
        await receiving
        assert into == [CONTENT] * 39


@changes
async def test_the_last_of_a_list_may_change_it(change):
    async with connected_pair() as (client, server):
        items = list_of(1, bytes, change)
        items[:0] = [bytes(bytearray(CONTENT)) for _ in range(39)]
        await client.send_many(items)
        for _ in range(40):
            assert await server.recv_obj() == CONTENT
        assert server.probe() is None


@pytest.mark.parametrize("make", [bytes, bytearray])
async def test_the_collector_may_change_a_list_of_bytes(make):
    async with connected_pair() as (client, server):
        kept = []  # requests are made anew, which may collect

        def empty(phase, info):
            items.clear()

        for _ in range(50):
            items = [make(bytearray(CONTENT)) for _ in range(40)]
            gc.callbacks.append(empty)
            gc.set_threshold(1, 1, 1)
            try:
                kept.append(client.send_many(items))
            finally:
                gc.set_threshold(700, 10, 10)
                gc.callbacks.remove(empty)
        for sending in kept:
            await sending
        await client.send(b"the end!")
        while (received := await server.recv_obj()) != b"the end!":
            assert received == CONTENT


async def test_a_refused_list_of_bytes_is_not_held():
    async with connected_pair() as (_, server):
        items = [bytearray(8), bytes(8), bytearray(8)]
        with pytest.raises(ValueError, match=r"^cannot receive into a read-only"):
            server.recv_many(items)
        items[0].append(0)  # BufferError if somebody has it
        items[2].append(0)


@changes
async def test_send_frames_sends_what_was_in_the_list(change):
    async with connected_pair() as (client, server):
        await client.send_frames(list_of(40, lambda: bytes(bytearray(CONTENT)), change))
        _, frames = await server.recv_frames()
        assert frames == [CONTENT] * 40


@changes
async def test_recv_frames_fills_what_was_in_the_list(change):
    async with connected_pair() as (client, server):
        items = list_of(40, lambda: bytearray(8), change)
        into = items[1:]
        receiving = server.recv_frames(into=items)
        await client.send_frames([CONTENT] * 40)
        _, lengths = await receiving
        assert lengths == [8] * 40
        assert into == [CONTENT] * 39


@changes
async def test_put_and_get_move_what_was_in_the_list(change):
    async with connected_pair() as (client, _server):
        with ucp.Memory.allocate(320) as memory:
            remote = client.remote(memory.key)
            buffers = list_of(40, lambda: bytes(bytearray(CONTENT)), change)
            pairs = [(buffer, 8 * i) for i, buffer in enumerate(buffers)]
            buffers[0].code = lambda: change(pairs)
            await remote.put_many(pairs)
            assert bytes(memory) == CONTENT * 40
            into = [bytearray(8) for _ in range(40)]
            pairs = [
                (buffer, Number(lambda: change(pairs)) if i == 0 else 8 * i)
                for i, buffer in enumerate(into)
            ]
            await remote.get_many(pairs)
            assert into == [CONTENT] * 40


@changes
async def test_a_message_has_the_buffers_and_endpoints_of_the_call(change):
    async with connected_pair() as (client, server):
        received = []
        done = asyncio.Event()

        class Kept(MessageReceiver):
            def finish(self, buffers):
                received.extend(buffers)
                done.set()

        listener = MessageListener(server, Kept)
        async with MessageSender() as sender:
            buffers = list_of(40, lambda: bytes(bytearray(CONTENT)), change)
            endpoints = [client]
            look = buffers[0].code

            def code():
                look()
                endpoints.clear()

            buffers[0].code = code
            await sender.send(endpoints, {"n": 1}, buffers)
            await done.wait()
        assert received == [CONTENT] * 40
        listener.close()


async def test_what_cannot_be_iterated_over_is_refused():
    async with connected_pair() as (client, server):
        for call in (client.send_many, client.send_frames, server.recv_many):
            with pytest.raises(TypeError, match=r"^expected a sequence of buffers$"):
                call(8)

        def broken():
            yield b"x"
            raise TypeError("mine")

        with pytest.raises(TypeError, match=r"^mine$"):
            client.send_many(broken())


# ---- dictionaries --------------------------------------------------------------


def described(name, data, key):
    """An object with an interface that is emptied once ``key`` is looked for."""

    class Colliding:
        code = staticmethod(lambda: None)

        def __hash__(self):
            return hash(key)

        def __eq__(self, other):
            self.code()
            return False

    colliding = Colliding()
    face = {"shape": (8,), "typestr": "|u1", "version": 3, colliding: None}
    face["data"] = data

    def empty():
        face.clear()
        gc.collect()

    colliding.code = empty
    return type("Described", (), {name: face})()


@pytest.mark.parametrize(
    "key", ["shape", "typestr", "strides", "data", "offset", "version"]
)
async def test_an_interface_is_read_as_it_was_given(key):
    async with connected_pair() as (client, server):
        await client.send(described("__array_interface__", bytearray(CONTENT), key))
        assert await server.recv_obj() == CONTENT


@pytest.mark.parametrize("key", ["data", "mask", "stream", "version"])
async def test_an_interface_of_a_device_is_read_as_it_was_given(key):
    async with connected_pair() as (client, _server):
        array = np.frombuffer(bytearray(CONTENT), "u1")
        data = (int(str(array.ctypes.data)), False)
        with pytest.raises(ValueError, match=r"in device memory|has no memory"):
            client.send(described("__cuda_array_interface__", data, key))


async def test_the_truth_of_readonly_may_empty_the_interface():
    async with connected_pair() as (client, server):
        array = np.frombuffer(bytearray(CONTENT), "u1")
        face = dict(array.__array_interface__)

        class Truth:
            def __bool__(self):
                face.clear()
                gc.collect()
                return False

        class Faced:
            __array_interface__ = face

        face["data"] = (int(str(array.ctypes.data)), Truth())
        await client.send(Faced())
        assert await server.recv_obj() == CONTENT


# ---- what is received ------------------------------------------------------------


async def test_a_message_received_while_its_buffer_is_looked_at_is_gone():
    async with connected_pair() as (client, server):
        await client.send(CONTENT)
        message = await server.recv_message()
        into = bytearray(8)
        inner = []
        with pytest.raises(RuntimeError, match=r"^the message was received$"):
            message.recv(Looked(lambda: inner.append(message.recv(into))))
        assert await inner[0] == 8
        assert into == CONTENT


async def test_a_message_viewed_while_its_buffer_is_looked_at_stays():
    async with connected_pair() as (client, server):
        await client.send(CONTENT)
        message = await server.recv_message()
        views = []
        with pytest.raises(BufferError, match="has memoryviews"):
            message.recv(Looked(lambda: views.append(memoryview(message))))
        assert views[0] == CONTENT


async def test_a_tag_message_received_while_its_buffer_is_looked_at_is_gone():
    async with connected_pair() as (client, server):
        await client.send(CONTENT, tag=7, force_tag=True)
        message = await server.worker.recv_message(7)
        into = bytearray(8)
        inner = []
        with pytest.raises(RuntimeError, match=r"^the message was received$"):
            message.recv(Looked(lambda: inner.append(message.recv(into))))
        assert await inner[0] == 8
        assert into == CONTENT


async def test_a_receiver_made_anew_while_it_allocates_keeps_its_allocator():
    receiver = None

    class Allocator:
        def __call__(self, size):
            receiver.__init__({})
            gc.collect()
            return bytearray(size)

    receiver = MessageReceiver({}, Allocator())
    assert receiver.allocate([1, 2, 3]) == [bytes(1), bytes(2), bytes(3)]


def _look(request):
    with pytest.raises(RuntimeError, match=r"^the result is being made$"):
        request.result()


def _step(request):
    with pytest.raises(RuntimeError, match=r"^the result is being made$"):
        for _ in range(2):  # the first may give the loop its turn
            request.send(None)


@pytest.mark.parametrize("again", [_look, _step, lambda request: request.close()])
async def test_a_result_is_made_once(again):
    """An allocator asks for the result that it allocates for."""
    async with connected_pair() as (client, server):
        calls = []

        def allocate(size):
            calls.append(size)
            if len(calls) == 1:
                again(request)
                gc.collect()
            return bytearray(size)

        request = server.recv_frames()
        await client.send_frames([CONTENT * 400] * 20)
        await until(request.done)
        server.worker._set_am_allocator(False, allocate)
        _, frames = request.result()
        assert frames == [CONTENT * 400] * 20

        request = server.am_recv()
        calls.clear()
        await client.am_send(CONTENT * 400)
        await until(request.done)
        assert request.result() == CONTENT * 400
        server.worker._set_am_allocator(False, None)


@pytest.mark.parametrize("first", [True, False])
async def test_callbacks_removed_while_they_are_compared(first):
    async with connected_pair() as (client, server):
        request = server.recv(bytearray(8))
        called = []

        class Removing:
            def __call__(self, request):
                called.append(self)

            def __eq__(self, other):
                if other is fn and self.armed:
                    self.armed = False
                    request.remove_done_callback(fn)
                    gc.collect()
                return True

            __hash__ = None
            armed = True

        def fn(request):
            called.append(fn)

        if not first:
            request.add_done_callback(called.append)
        for _ in range(5):
            request.add_done_callback(Removing())
        request.remove_done_callback(fn)
        await client.send(CONTENT)
        await request
        await asyncio.sleep(0)
        assert [what for what in called if what is not request] == []


# ---- what is closed ---------------------------------------------------------------


CALLS = {
    "send": lambda ep, code: ep.send(Looked(code)),
    "recv": lambda ep, code: ep.recv(Looked(code)),
    "send_many": lambda ep, code: ep.send_many([b"x", Looked(code), b"x"]),
    "recv_many": lambda ep, code: ep.recv_many([bytearray(1), Looked(code)]),
    "send_frames": lambda ep, code: ep.send_frames([b"x", Looked(code)]),
    "am_send": lambda ep, code: ep.am_send(Looked(code)),
    "stream_send": lambda ep, code: ep.stream_send(Looked(code)),
    "stream_recv": lambda ep, code: ep.stream_recv(Looked(code)),
    "tag_recv": lambda ep, code: ep.worker.recv(Looked(code), 1),
}

CONNECTING = {
    "connect": lambda w, code: w._connect(("127.0.0.1", Number(code)), 1),
    "timeout": lambda w, code: w._connect(("127.0.0.1", 1), Number(code)),
    "start": lambda w, code: w._start_connect(("127.0.0.1", 1), Number(code)),
    "port": lambda w, code: w._listen(("127.0.0.1", Number(code)), print),
    "limit": lambda w, code: w._listen(("127.0.0.1", 0), print, timeout=Number(code)),
    "address": lambda w, code: w._connect_address(bytes(w.get_address()), Number(code)),
}


@pytest.mark.usefixtures("fresh_ucx")
class TestClosed:
    """The worker, or the memory, is closed by the code of an argument."""

    @pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
    async def test_an_operation_fails_as_on_a_closed_worker(self, call):
        async with connected_pair() as (client, _server):
            request = call(client, client.worker.abort)
            with pytest.raises(ucp.UCXCloseError):
                await request

    async def test_a_remote_memory_is_not_opened(self):
        async with connected_pair() as (client, _server):

            class Key(bytes):
                pass

            remote = client.remote(ucp.Memory.allocate(8).key)
            for call in (
                lambda code: remote.put(Looked(code), 0),
                lambda code: remote.get(Looked(code), Number(code)),
                lambda code: remote.put_many([(b"", 0), (Looked(code), 0)]),
            ):
                with pytest.raises(ucp.UCXCloseError):
                    await call(client.worker.abort)

    @pytest.mark.parametrize("call", CONNECTING.values(), ids=CONNECTING)
    async def test_nothing_is_connected_by_a_closed_worker(self, call):
        async with connected_pair() as (client, _server):
            worker = client.worker
            with pytest.raises(RuntimeError, match=r"^the worker is closed$"):
                call(worker, worker.abort)

    async def test_closing_all_while_the_timeout_is_read_is_done(self):
        async with connected_pair() as (client, _server):
            worker = client.worker
            closing = ucp._ext.Endpoint.close(client)
            assert worker._num_closing == 1

            class Late(float):
                def __radd__(self, other):
                    worker.abort()
                    return other

            await worker._close_all(Late(5))
            assert closing.done()

    def test_closed_memory_has_no_tensor(self):
        memory = ucp.Memory.allocate(8)
        with pytest.raises(ucp.UCXInvalidKey):
            memory.__dlpack__(max_version=(Number(memory.close), 0))
        memory = ucp.Memory.allocate(8)
        with pytest.raises(ucp.UCXInvalidKey):
            memory.__dlpack__(dl_device=Equal(memory.close))


# ---- tensors ------------------------------------------------------------------------


async def test_a_tensor_that_was_taken_is_nobody_elses():
    """Whoever got it a second time would free it under the operation."""
    async with connected_pair() as (client, server):
        array = np.frombuffer(bytearray(CONTENT), "u1")

        class Same:
            capsule = array.__dlpack__()

            def __dlpack__(self, **_):
                return self.capsule

            def __dlpack_device__(self):
                return (1, 0)

        await client.send(Same())
        assert await server.recv_obj() == CONTENT
        assert "used_dltensor" in repr(Same.capsule)
        with pytest.raises(ValueError, match="returned no unused capsule"):
            client.send(Same())
