# SPDX-License-Identifier: BSD-3-Clause
"""What leaves a ``with`` block, and when, if closing would take long or fails."""

import asyncio
import threading

import anyio
import pytest

import ucp
from ucp import sync
from ucp._core.closing import AsyncClosing, Closing
from ucp.message import MessageSender
from ucp.testing import connected_pair, until

HOUR = 3600  # seconds; longer than any test may last


class Mine(Exception):
    pass


@pytest.fixture
def patient():
    """Closes wait for a peer that is stopped: a test that waits, fails."""
    ucp.reset()
    ucp.init(config=ucp.Config(close_timeout=HOUR))
    yield
    ucp.reset()


@pytest.fixture
def connect_stopped(patient, connect_peer):
    """Connect to a peer, stop it, and announce a message, which a close waits for.

    The peer is killed at the end of the test.
    """
    peers, sends = [], []

    async def connect():
        peer, ep = await connect_peer()
        peer.stop()
        peers.append(peer)
        sends.append(ep.send(bytes(1 << 20)))
        return ep

    class Connecting:
        async def __aenter__(self):
            return await connect()

        async def __aexit__(self, *_):
            for peer in peers:
                peer.kill()
            await asyncio.gather(*sends, return_exceptions=True)

    return Connecting


async def receive_in_block(ep):
    async with ep:
        await ep.recv_obj()


async def close_at_the_end_of_block(ep):
    async with ep:
        pass


async def message_in_block(ep):
    async with MessageSender(max_bytes=1) as sender:
        await asyncio.gather(
            *(sender.send(ep, {"n": n}, [bytes(1 << 20)]) for n in range(40))
        )


async def message_at_the_end_of_block(ep):
    async with MessageSender(max_bytes=1) as sender:
        for n in range(40):
            sender.send(ep, {"n": n}, [bytes(1 << 20)])


BLOCKS = [
    receive_in_block,
    close_at_the_end_of_block,
    message_in_block,
    message_at_the_end_of_block,
]
every_block = pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.__name__)


@every_block
async def test_a_timeout_is_not_outlived(block, connect_stopped, loop_factory):
    async with connect_stopped() as ep:
        with pytest.raises(TimeoutError) as caught:
            async with asyncio.timeout(0.1):
                await block(ep)
        assert type(caught.value) is TimeoutError


@every_block
async def test_a_scope_of_anyio_is_not_outlived(block, connect_stopped, loop_factory):
    async with connect_stopped() as ep:
        with anyio.move_on_after(0.1) as scope:
            await block(ep)
        assert scope.cancelled_caught


@every_block
async def test_a_cancelled_task_is_cancelled(block, connect_stopped, loop_factory):
    async with connect_stopped() as ep:
        task = asyncio.create_task(block(ep))
        await asyncio.wait([task], timeout=0.1)
        task.cancel("why")
        with pytest.raises(asyncio.CancelledError, match=r"^why$"):
            await task
        assert task.cancelled()


async def test_an_exception_comes_out_at_once(connect_stopped):
    async with connect_stopped() as ep:
        with pytest.raises(Mine) as caught:
            async with ep:
                raise Mine
        assert caught.value.__context__ is None
        assert ep.closed()


async def test_a_generator_is_closed_without_waiting(connect_stopped):
    async with connect_stopped() as ep:

        async def generate():
            async with ep:
                yield 1

        numbers = generate()
        assert await anext(numbers) == 1
        await numbers.aclose()
        assert ep.closed()


async def test_what_was_sent_before_an_exception_arrives(connect_peer):
    peer, ep = await connect_peer()
    with pytest.raises(Mine):
        async with ep:
            await ep.send(b"last words")
            raise Mine
    assert await peer.do("bytes(await ep.recv_obj())") == b"last words"
    await peer.do("while not ep.closed(): await asyncio.sleep(0)")


async def leave_by_exception(ep):
    with pytest.raises(Mine):
        async with ep:
            raise Mine


async def leave_by_cancelling_the_close(ep):
    task = asyncio.create_task(close_at_the_end_of_block(ep))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


@pytest.mark.parametrize(
    "leave",
    [leave_by_exception, leave_by_cancelling_the_close],
    ids=lambda leave: leave.__name__,
)
async def test_a_close_in_the_background_has_a_deadline(leave, fresh_ucx, connect_peer):
    ucp.init(config=ucp.Config(close_timeout=0.2))
    peer, ep = await connect_peer()
    peer.stop()
    failures = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, what: failures.append(what)
    )
    await leave(ep)
    assert ep.worker._num_closing == 1
    await until(lambda: ep.worker._num_closing == 0)
    assert ep.state == "closed"
    assert failures == []


async def test_a_listener_in_a_block_that_fails_is_closed():
    with pytest.raises(Mine):
        async with ucp.create_listener(host="127.0.0.1") as listener:
            raise Mine
    assert listener.closed()


def close_badly(self):
    raise RuntimeError("while closing")


@pytest.mark.parametrize("base", [Closing, AsyncClosing])
def test_a_failing_close_never_replaces_the_exception(base):
    Failing = type("Failing", (base,), {"_close_soon": close_badly})

    async def use():
        if base is Closing:
            with Failing():
                raise Mine
        async with Failing():
            raise Mine

    with pytest.raises(Mine) as caught:
        asyncio.run(use())
    assert caught.value.__context__ is None


@pytest.mark.usefixtures("fresh_ucx")
async def test_a_block_of_another_thread_does_not_hide_its_exception():
    """The close is refused there, with RuntimeError."""
    async with ucp.create_listener(host="127.0.0.1") as listener:
        async with connected_pair() as (client, _server):
            for thing in (client, listener):

                async def use(thing=thing):
                    async with thing:
                        raise Mine

                def run(use=use):
                    with pytest.raises(Mine):
                        asyncio.run(use())

                await asyncio.to_thread(run)


# ---- blocking ----------------------------------------------------------------


def test_a_blocking_connection_in_a_block_that_fails_is_not_waited_for(
    patient, start_peer
):
    peer = start_peer()
    port = asyncio.run(peer.do("listener.port"))
    ep = sync.connect("127.0.0.1", port)
    peer.stop()
    with pytest.raises(ucp.UCXTimeout, match=r": not done within 0.1 s$"):
        with ep:
            ep.recv_obj(timeout=0.1)
    assert ep.closed()
    peer.kill()


def test_a_blocking_connection_in_a_block_that_fails_sends_what_it_has():
    received = []

    def serve():
        with listener.accept() as server:
            received.append(server.recv_obj())

    with sync.listen(host="127.0.0.1") as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(Mine):
            with sync.connect("127.0.0.1", listener.port) as client:
                client.send(b"last words")
                raise Mine
        thread.join()
    assert received == [b"last words"]
    ucp.reset()
