# SPDX-License-Identifier: BSD-3-Clause
# tests: ext/message_listener ext/message_receiver ext/message_sender ext/metadata
# tests: ucp/message
"""Messages with metadata: order, several endpoints, the bound, ends, mistakes."""

import asyncio
import contextlib
import gc
import threading
import tracemalloc

import numpy as np
import pytest
from conftest import over_shm
from objects import kept_objects

import ucp
from ucp.message import MessageListener, MessageReceiver, MessageSender
from ucp.testing import connected_pair, live_objects, until

pytestmark = pytest.mark.usefixtures("transport")

_KIB = 1024
SIZES = [0, 1, 4095, 4096, 4097, 64 * _KIB, 1024 * _KIB]
METADATA = {
    "text": "grüße",
    "empty": "",
    "raw": b"\x00\xff",
    "low": -(2**63),
    "high": 2**63 - 1,
    "ключ": 0,
}


class Inbox:
    """Messages that a listener hands out, in order."""

    def __init__(self, endpoint, **options):
        self.received = []
        self.receivers = []
        self.listener = MessageListener(endpoint, self.route, **options)

    def route(self, metadata):
        receiver = Kept(metadata, self.received)
        self.receivers.append(receiver)
        return receiver

    async def expect(self, count):
        await until(lambda: len(self.received) >= count)
        return self.received

    def numbers(self):
        return [metadata["n"] for metadata, _ in self.received]


class Kept(MessageReceiver):
    __slots__ = ("received",)

    def __init__(self, metadata, received):
        super().__init__(metadata)
        self.received = received

    def finish(self, buffers):
        self.received.append((self.metadata, buffers))
        return len(self.received)


@contextlib.contextmanager
def reported():
    """Collect the calls of the loop's exception handler."""
    loop = asyncio.get_running_loop()
    contexts = []
    loop.set_exception_handler(lambda _, context: contexts.append(context))
    yield contexts
    loop.set_exception_handler(None)


# ---- round trips ------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
async def test_messages_arrive_with_metadata_and_buffers(size):
    async with connected_pair() as (left, right), MessageSender() as sender:
        inbox = Inbox(right)
        data = np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8)
        sent = [[], [data], [data, b"", bytes(data)], [data] * 10]
        for buffers in sent:
            await sender.send(left, METADATA, buffers)
        received = await inbox.expect(len(sent))
        assert [metadata for metadata, _ in received] == [METADATA] * len(sent)
        for (_, got), buffers in zip(received, sent, strict=True):
            assert all(type(buffer) is bytearray for buffer in got)
            assert got == [bytes(buffer) for buffer in buffers]


async def test_messages_arrive_from_another_process(connect_peer):
    peer, ep = await connect_peer()
    await peer.do(
        "from ucp.message import *\n"
        "sender = MessageSender()\n"
        "class Echo(MessageReceiver):\n"
        "    def finish(self, buffers):\n"
        "        sender.send(ep, self.metadata | {'echo': 1}, buffers)\n"
        "listener = MessageListener(ep, Echo)\n"
    )
    inbox = Inbox(ep)
    async with MessageSender() as sender:
        for number, size in enumerate(SIZES * 5):
            await sender.send(ep, {"n": number}, [bytes([number]) * size])
        await inbox.expect(len(SIZES) * 5)
    for number, (metadata, buffers) in enumerate(inbox.received):
        assert metadata == {"n": number, "echo": 1}
        assert buffers == [bytes([number]) * SIZES[number % len(SIZES)]]


async def test_small_and_long_messages_keep_their_order():
    sizes = [(number * 7919) % 9000 if number % 50 else 300000 for number in range(500)]
    async with connected_pair() as (left, right), MessageSender() as sender:
        inbox = Inbox(right)
        requests = [
            sender.send(left, {"n": number}, [bytes(size)])
            for number, size in enumerate(sizes)
        ]
        received = await inbox.expect(len(sizes))
        await asyncio.gather(*requests)
        assert inbox.numbers() == list(range(len(sizes)))
        assert [len(buffers[0]) for _, buffers in received] == sizes


async def test_many_small_messages_arrive_in_order_in_few_packs():
    count = 100_000
    async with connected_pair() as (left, right), MessageSender() as sender:
        numbers = []

        class Count(MessageReceiver):
            __slots__ = ()

            def finish(self, buffers):
                numbers.append(self.metadata["n"])

        listener = MessageListener(right, Count)
        for number in range(count):
            await sender.send(left, {"n": number}, (b"x" * 64,))
        await until(lambda: len(numbers) == count)
        assert numbers == list(range(count))
        statistics = sender.statistics
        assert statistics.num_packed == count
        assert statistics.num_packs < count / 10  # a hundred each while nobody disturbs
        listener.close()


async def test_a_message_is_handed_over_at_the_end_of_the_loops_turn():
    async with connected_pair() as (left, right):
        sender = MessageSender()
        inbox = Inbox(right)
        request = sender.send(left, {"n": 1})
        assert request.done()
        assert sender.statistics.num_packs == 0
        await inbox.expect(1)
        assert sender.statistics.num_packs == 1


async def test_one_buffer_goes_to_several_endpoints():
    async with contextlib.AsyncExitStack() as stack:
        pairs = [await stack.enter_async_context(connected_pair()) for _ in range(3)]
        inboxes = [Inbox(right) for _, right in pairs]
        lefts = [left for left, _ in pairs]
        array = np.arange(1 << 18)
        async with MessageSender() as sender:
            await sender.send(lefts, {"n": 0}, [b"small"])
            await sender.send(lefts, {"n": 1}, [array, b"tail"])
            await sender.send(tuple(lefts), {"n": 2}, [b"small"])
            for inbox in inboxes:
                await inbox.expect(3)
                assert inbox.numbers() == [0, 1, 2]
                assert inbox.received[1][1] == [array.tobytes(), b"tail"]


async def test_channels_are_apart():
    async with connected_pair() as (left, right):
        first, second = MessageSender(), MessageSender(channel=7)
        other = Inbox(right, channel=7)
        inbox = Inbox(right)
        first.send(left, {"n": 1})
        second.send(left, {"n": 2})
        await left.send_frames([b"x"])
        await inbox.expect(1)
        await other.expect(1)
        assert (inbox.numbers(), other.numbers()) == ([1], [2])
        assert await right.recv_frames() == (b"", [b"x"])


async def test_uvloop_and_asyncio(loop_factory):
    async with connected_pair() as (left, right), MessageSender() as sender:
        inbox = Inbox(right)
        await sender.send(left, {"n": 0}, [bytes(10)])
        await sender.send(left, {"n": 1}, [bytes(1 << 20)])
        await inbox.expect(2)


# ---- the receiver -----------------------------------------------------------


async def test_a_receiver_is_awaited_for_what_it_has_made():
    async with connected_pair() as (left, right), MessageSender() as sender:
        receivers = []

        class Total(MessageReceiver):
            def finish(self, buffers):
                return sum(map(len, buffers))

        def route(metadata):
            receivers.append((Total if metadata["n"] else MessageReceiver)(metadata))
            return receivers[-1]

        MessageListener(right, route)
        await sender.send(left, {"n": 0}, [b"ab"])
        await sender.send(left, {"n": 1}, [bytes(1 << 20), b"c"])
        await until(lambda: len(receivers) == 2)
        first, second = await asyncio.gather(*receivers)
        assert first == ({"n": 0}, [b"ab"])
        assert second == (1 << 20) + 1
        assert await receivers[1] == second
        assert receivers[1].done()


@pytest.mark.parametrize("size", [10, 1 << 20])
async def test_an_allocator_makes_the_memory(size):
    async with connected_pair() as (left, right), MessageSender() as sender:
        receivers = []

        def route(metadata):
            receivers.append(
                MessageReceiver(metadata, lambda nbytes: np.zeros(nbytes, np.uint8))
            )
            return receivers[-1]

        MessageListener(right, route)
        await sender.send(left, {}, [b"x" * size, b""])
        await until(lambda: receivers)
        metadata, buffers = await receivers[0]
        assert metadata == {}
        assert [type(buffer) for buffer in buffers] == [np.ndarray] * 2
        assert bytes(buffers[0]) == b"x" * size


@pytest.mark.parametrize("size", [10, 1 << 20])
async def test_a_message_that_nobody_wants_is_dropped(size):
    async with connected_pair() as (left, right), MessageSender() as sender:
        inbox = Inbox(right)
        inbox.listener.close()
        await inbox.listener.wait_closed()
        received = []
        MessageListener(
            right, lambda metadata: Kept(metadata, received) if metadata["n"] else None
        )
        for number in range(3):
            await sender.send(left, {"n": number}, [bytes(size)])
        await until(lambda: len(received) == 2)
        assert [metadata["n"] for metadata, _ in received] == [1, 2]


class Broken(MessageReceiver):
    """Fails where its metadata says."""

    def __init__(self, metadata, log):
        if metadata["n"] == "route":
            raise KeyError("route")
        super().__init__(metadata)
        self.log = log

    def allocate(self, sizes):
        if self.metadata["n"] == "allocate":
            raise KeyError("allocate")
        if self.metadata["n"] == "short":
            return [bytearray(size - 1) for size in sizes]
        if self.metadata["n"] == "few":
            return []
        if self.metadata["n"] == "readonly":
            return [bytes(size) for size in sizes]
        return super().allocate(sizes)

    def finish(self, buffers):
        if self.metadata["n"] == "finish":
            raise KeyError("finish")
        self.log.append(self.metadata["n"])

    def failed(self, exc):
        self.log.append(type(exc))


@pytest.mark.parametrize("size", [10, 1 << 20])
async def test_exceptions_of_the_program_are_reported_and_it_goes_on(size):
    async with connected_pair() as (left, right), MessageSender() as sender:
        log = []
        MessageListener(right, lambda metadata: Broken(metadata, log))
        steps = ["route", "allocate", "short", "few", "readonly", "finish", "good"]
        with reported() as contexts:
            for step in steps:
                await sender.send(left, {"n": step}, [bytes(size)])
            await until(lambda: "good" in log)
        errors = [type(context["exception"]) for context in contexts]
        assert errors[0] is KeyError
        assert len(errors) == 6
        assert log == [KeyError, ValueError, ValueError, errors[4], "good"]


async def test_route_may_return_what_is_no_receiver():
    async with connected_pair() as (left, right), MessageSender() as sender:
        log = []
        MessageListener(
            right, lambda metadata: 5 if metadata["n"] else Broken(metadata, log)
        )
        with reported() as contexts:
            sender.send(left, {"n": 1}, [b"x"])
            sender.send(left, {"n": 0}, [b"x"])
            await until(lambda: log == [0])
        assert {type(context["exception"]) for context in contexts} == {TypeError}


async def test_callbacks_may_send_close_and_stop():
    async with connected_pair() as (left, right), MessageSender() as sender:
        inbox = Inbox(left)
        done = []

        class Answer(MessageReceiver):
            def finish(self, buffers):
                sender.send(right, {"n": self.metadata["n"]}, buffers)
                if self.metadata["n"] == 9:
                    done.append(listener)
                    listener.close()

        listener = MessageListener(right, Answer)
        for number in range(10):
            await sender.send(left, {"n": number}, [bytes(number * 1000)])
        await inbox.expect(10)
        await listener.wait_closed()
        assert inbox.numbers() == list(range(10))


# ---- the bound --------------------------------------------------------------


async def test_more_than_the_bound_waits_and_nothing_is_lost():
    bound = 1 << 20
    async with connected_pair() as (left, right):
        sender = MessageSender(max_bytes=bound)
        sizes = [300 * _KIB, 100, 5000] * 20
        requests = [
            sender.send(left, {"n": number}, [bytes(size)])
            for number, size in enumerate(sizes)
        ]
        for _ in range(20):
            await asyncio.sleep(0)
        assert not requests[-1].done()
        assert sender.statistics.num_waiting > 10
        inbox = Inbox(right)
        await inbox.expect(len(sizes))
        await asyncio.gather(*requests)
        assert inbox.numbers() == list(range(len(sizes)))
        assert sender.statistics.bytes_peak <= bound
        assert sender.statistics.bytes_pending == 0


async def test_cancelling_a_message_that_waits_withdraws_it():
    async with connected_pair() as (left, right):
        sender = MessageSender(max_bytes=1000)
        first = sender.send(left, {"n": 0}, [bytes(1 << 20)])
        requests = [sender.send(left, {"n": n}, [bytes(5000)]) for n in range(1, 10)]
        for request in requests[::2]:
            assert request.cancel()
        inbox = Inbox(right)
        await inbox.expect(5)
        await first
        for number, request in enumerate(requests):
            if number % 2:
                await request
            else:
                with pytest.raises(asyncio.CancelledError):
                    await request
        assert inbox.numbers() == [0, 2, 4, 6, 8]


async def test_cancelling_a_message_under_way_gives_its_buffers_back():
    async with connected_pair() as (left, right):
        sender = MessageSender()
        data = bytearray(1 << 20)
        request = sender.send(left, {"n": 0}, [data])
        await asyncio.sleep(0)
        request.cancel()
        data.clear()
        inbox = Inbox(right)
        await inbox.expect(1)
        await sender.wait_sent()


async def test_drain_waits_for_what_was_sent_before():
    async with connected_pair() as (left, right):
        sender = MessageSender(max_bytes=1000)
        await sender.wait_sent()
        requests = [sender.send(left, {"n": n}, [bytes(9000)]) for n in range(20)]
        draining = sender.wait_sent()
        inbox = Inbox(right)
        await draining
        assert all(request.done() for request in requests)
        await inbox.expect(20)


# ---- ends -------------------------------------------------------------------


async def test_closing_the_endpoint_at_once_loses_nothing():
    async with connected_pair() as (left, right):
        sender = MessageSender(max_bytes=1000)
        inbox = Inbox(right)
        requests = [sender.send(left, {"n": n}, [bytes(n * 100)]) for n in range(100)]
        await left.close()
        await asyncio.gather(*requests)
        await inbox.listener.wait_closed()
        assert inbox.numbers() == list(range(100))


async def test_closing_the_sender_at_once_loses_nothing():
    async with connected_pair() as (left, right):
        inbox = Inbox(right)
        async with MessageSender(max_bytes=1000) as sender:
            for number in range(100):
                sender.send(left, {"n": number}, [bytes(number * 100)])
        assert sender.closed()
        await inbox.expect(100)
        assert inbox.numbers() == list(range(100))
        with pytest.raises(RuntimeError, match=r"^the sender is closed$"):
            sender.send(left, {})
        await sender.close()


async def test_dropping_the_sender_loses_nothing():
    async with connected_pair() as (left, right):
        inbox = Inbox(right)
        sender = MessageSender(max_bytes=1000)
        for number in range(100):
            sender.send(left, {"n": number}, [bytes(number * 100)])
        del sender
        await inbox.expect(100)


def test_the_end_of_the_loop_loses_nothing(start_peer):
    peer = start_peer()

    async def main():
        port = await peer.do("listener.port")
        ep = await ucp.create_endpoint("127.0.0.1", port)
        await peer.do(
            "from ucp.message import *\n"
            "ep = await anext(listener)\n"
            "seen = []\n"
            "def route(metadata):\n"
            "    seen.append(metadata['n'])\n"
            "messages = MessageListener(ep, route)\n"
        )
        sender = MessageSender()
        for number in range(1000):
            await sender.send(ep, {"n": number}, [bytes(50)])

    async def rest():
        await peer.do("await messages.wait_closed()")
        return await peer.do("seen == list(range(1000))")

    asyncio.run(main())
    assert asyncio.run(rest())


async def test_the_listener_ends_when_the_peer_closes():
    async with connected_pair() as (left, right), MessageSender() as sender:
        inbox = Inbox(right)
        await sender.send(left, {"n": 1}, [b"last"])
        await left.close()
        await inbox.listener.wait_closed()
        assert inbox.received == [({"n": 1}, [b"last"])]


async def test_a_closed_listener_leaves_messages_to_the_next():
    async with connected_pair() as (left, right), MessageSender() as sender:
        inbox = Inbox(right)
        inbox.listener.close()
        inbox.listener.close()
        await inbox.listener.wait_closed()
        await sender.send(left, {"n": 1}, [b"x"])
        await sender.wait_sent()
        assert inbox.received == []
        await Inbox(right).expect(1)


async def test_a_malformed_message_ends_listener_and_endpoint():
    async with connected_pair() as (left, right):
        inbox = Inbox(right)
        await left.channel(65535).send_frames([b"x"], header=b"\x09")
        with pytest.raises(ucp.UCXProtocolError, match=r"a message is of no kind"):
            await inbox.listener.wait_closed()
        assert right.closed()


async def test_a_killed_peer_fails_what_is_under_way(connect_peer):
    peer, ep = await connect_peer()
    inbox = Inbox(ep)
    sender = MessageSender(max_bytes=1 << 20)
    requests = [sender.send(ep, {"n": n}, [bytes(900 * _KIB)]) for n in range(5)]
    await asyncio.sleep(0)
    peer.kill()
    results = await asyncio.gather(*requests, return_exceptions=True)
    assert isinstance(results[-1], ucp.UCXConnectionReset)
    with pytest.raises(ucp.UCXConnectionReset):
        await inbox.listener.wait_closed()
    await sender.close()
    assert sender.statistics.bytes_pending == 0


async def test_a_peer_killed_while_bytes_come_fails_the_receiver(connect_peer):
    peer, ep = await connect_peer()
    inbox = Inbox(ep)
    peer.begin(
        "from ucp.message import *\n"
        "sender = MessageSender()\n"
        "for n in range(8): sender.send(ep, {'n': n}, [bytearray(32 << 20)])\n"
    )
    await until(lambda: inbox.receivers)
    peer.kill()
    with pytest.raises(ucp.UCXConnectionReset):
        await inbox.listener.wait_closed()
    await until(lambda: inbox.receivers[-1].done())


async def test_a_dead_peer_does_not_keep_the_others_from_the_message(connect_peer):
    peer, dead = await connect_peer()
    async with connected_pair() as (left, right), MessageSender() as sender:
        inbox = Inbox(right)
        peer.kill()
        await until(dead.closed)
        for number, size in enumerate([10, 1 << 20]):
            with pytest.raises(ucp.UCXConnectionReset) as caught:
                await sender.send([dead, left], {"n": number}, [bytes(size)])
            failed, good = caught.value.results
            assert isinstance(failed, ucp.UCXConnectionReset)
            assert good is None
        await inbox.expect(2)


def test_the_worker_ends_receivers_and_senders():
    async def main():
        async with ucp.create_listener(host="127.0.0.1") as listener:
            left = await ucp.create_endpoint("127.0.0.1", listener.port)
            right = await anext(listener)
        inbox = Inbox(right)
        sender = MessageSender(max_bytes=1000)
        requests = [sender.send(left, {"n": n}, [bytes(9 << 20)]) for n in range(3)]
        await until(lambda: inbox.receivers)
        ucp.current_worker().abort()
        await inbox.listener.wait_closed()
        assert inbox.receivers[-1].done()
        results = await asyncio.gather(*requests, return_exceptions=True)
        assert isinstance(results[-1], ucp.UCXCanceled)
        with pytest.raises(RuntimeError, match=r"^the worker is closed$"):
            sender.send(left, {})

    asyncio.run(main())


# ---- mistakes ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("metadata", "error", "text"),
    [
        ({1: "x"}, TypeError, "metadata: a key must be str, not int"),
        ({"k": 1.5}, TypeError, "metadata['k'] must be str, int or bytes, not float"),
        ({"k": None}, TypeError, "metadata['k'] must be str, int or bytes, not None"),
        ({"k": {}}, TypeError, "metadata['k'] must be str, int or bytes, not dict"),
        ({"k": 2**63}, ValueError, "metadata['k'] is an int of more than 64 bits"),
        ({"k": -(2**63) - 1}, ValueError, "metadata['k'] is an int of more than 64"),
        ({"k": "\ud800"}, ValueError, "metadata: the value of 'k' is no Unicode text"),
        ({"\ud800": 1}, ValueError, "metadata: the key '\\ud800' is no Unicode text"),
        ({"": 1}, ValueError, "metadata: a key is empty"),
        ({"k" * 256: 1}, ValueError, "has more than 255 bytes"),
        ({"k": bytes(65536)}, ValueError, "metadata['k'] is too much"),
        ({str(n): n for n in range(257)}, ValueError, "metadata['256'] is too much"),
        ("k", TypeError, "metadata must be a dict, not str"),
    ],
)
@over_shm
async def test_bad_metadata_is_refused_by_name(metadata, error, text):
    async with connected_pair() as (left, _right):
        sender = MessageSender()
        with pytest.raises(error) as caught:
            sender.send(left, metadata)
        assert text in str(caught.value)
        assert sender.statistics.num_packed == 0


async def test_longest_metadata_arrives():
    async with connected_pair() as (left, right), MessageSender() as sender:
        inbox = Inbox(right)
        metadata = {"k": bytes(65535 - 5), "": 1}
        del metadata[""]
        await sender.send(left, metadata, [b"x"])
        assert await inbox.expect(1) == [(metadata, [b"x"])]


@over_shm
async def test_bad_destinations_are_refused():
    async with connected_pair() as (left, _right):
        sender = MessageSender()
        with pytest.raises(ValueError, match=r"^there are no destinations$"):
            sender.send([], {})
        with pytest.raises(
            TypeError, match=r"^destinations must be endpoints, not int$"
        ):
            sender.send([left, 5], {})
        with pytest.raises(
            TypeError, match=r"^destinations must be an endpoint or sev"
        ):
            sender.send(5, {})
        await left.close()
        with pytest.raises(ucp.UCXCloseError):
            await sender.send(left, {}, [b"x"])
        with pytest.raises(ucp.UCXCloseError):
            await sender.send(left, {}, [bytes(1 << 20)])


@over_shm
async def test_an_endpoint_of_another_loop_is_refused():
    async with connected_pair() as (left, _right):
        caught = []

        def run():
            async def main():
                with pytest.raises(ValueError, match=r"an endpoint of another worker$"):
                    MessageSender().send(left, {})
                caught.append(1)

            asyncio.run(main())

        thread = threading.Thread(target=run)
        thread.start()
        await until(lambda: not thread.is_alive())
        assert caught == [1]


@over_shm
async def test_bad_buffers_are_refused():
    async with connected_pair() as (left, _right):
        sender = MessageSender()
        with pytest.raises(ValueError, match=r"contiguous"):
            sender.send(left, {}, [np.zeros((4, 4))[:, 1]])
        with pytest.raises(TypeError):
            sender.send(left, {}, [5])
        assert sender.statistics.bytes_pending == 0


@over_shm
async def test_bad_options_are_refused():
    async with connected_pair() as (left, _right):
        with pytest.raises(
            ValueError, match=r"^channel must be 0 to 65535, not 65536$"
        ):
            MessageSender(channel=65536)
        with pytest.raises(ValueError, match=r"^channel must be 0 to 65535, not -1$"):
            MessageListener(left, print, channel=-1)
        with pytest.raises(TypeError, match=r"^route must be callable, not int$"):
            MessageListener(left, 5)


@over_shm
async def test_reprs():
    async with connected_pair() as (_left, right):
        sender = MessageSender()
        assert "0 bytes pending, 0 messages waiting" in repr(sender)
        await sender.close()
        assert repr(sender) == "<ucp.MessageSender, closed>"
        listener = MessageListener(right, print)
        assert "open" in repr(listener)


# ---- what is left -----------------------------------------------------------


async def test_nothing_is_left_of_messages():
    async with connected_pair() as (left, right):
        gc.collect()
        before = kept_objects()
        async with MessageSender() as sender:
            inbox = Inbox(right)
            for size in SIZES:
                await sender.send(left, METADATA, [bytes(size)] * 3)
            await inbox.expect(len(SIZES))
            inbox.listener.close()
            await inbox.listener.wait_closed()
        del sender, inbox
        gc.collect()
        await until(lambda: live_objects() == before)


async def test_memory_does_not_grow_with_messages():
    async with connected_pair() as (left, right), MessageSender() as sender:
        inbox = Inbox(right)

        async def some():
            for number in range(300):
                await sender.send(left, {"n": number, "s": "x"}, [b"y" * 40])
                await sender.send([left], {"n": number}, [bytes(5000)])
            await inbox.expect(600)
            inbox.received.clear()
            inbox.receivers.clear()
            gc.collect()

        await some()
        tracemalloc.start()
        try:
            await some()
            before, _ = tracemalloc.get_traced_memory()
            for _ in range(5):
                await some()
            after, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert after - before < 20 * _KIB
