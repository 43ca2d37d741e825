# SPDX-License-Identifier: BSD-3-Clause
"""What programs written for asyncio's own servers and streams expect."""

import asyncio
import gc
from collections import deque

import pytest
from objects import kept_objects

import ucp
from ucp.testing import connected_pair, live_objects, until

HOST = "127.0.0.1"

CLOSED = r"^the listener is closed$"


def listen(*args, **kwargs):
    return ucp.create_listener(*args, host=HOST, **kwargs)


async def echo(ep):
    async for message in ep:
        await ep.send(message)


# ---- connect() ---------------------------------------------------------------


class TestConnect:
    async def test_a_block_has_the_endpoint_and_closes_it(self, loop_factory):
        async with listen() as listener:
            async with ucp.connect(HOST, listener.port) as ep:
                other = await listener.accept()
                await ep.send(b"last words")
            assert ep.closed()
            assert await other.recv_obj() == b"last words"
            with pytest.raises(ucp.UCXCloseError):
                await other.recv_obj()

    @pytest.mark.parametrize(
        "use",
        [
            lambda connecting: connecting,
            lambda connecting: asyncio.create_task(connecting),
            lambda connecting: asyncio.wait_for(connecting, 30),
            lambda connecting: asyncio.gather(connecting),
        ],
        ids=["await", "create_task", "wait_for", "gather"],
    )
    async def test_it_is_awaited_as_a_coroutine(self, use, loop_factory):
        async with listen(echo) as listener:
            result = await use(ucp.connect(HOST, listener.port, timeout=30))
            ep = result[0] if isinstance(result, list) else result
            assert type(ep) is ucp.Endpoint
            await ep.send(b"x")
            assert await ep.recv_obj() == b"x"
            await ep.close()

    async def test_a_refused_connection_raises_before_the_block(self, closed_port):
        with pytest.raises(ucp.UCXNotConnected):
            async with ucp.connect(HOST, closed_port):
                pytest.fail("there is no endpoint")
        with pytest.raises(ucp.UCXNotConnected):
            await ucp.connect(HOST, closed_port)

    async def test_its_timeout_is_kept(self, mute_server):
        with pytest.raises(ucp.UCXTimeout):
            async with ucp.connect(HOST, mute_server, timeout=0.01):
                pytest.fail("there is no endpoint")

    async def test_cancelled_it_leaves_nothing(self, mute_server):
        async def block():
            async with ucp.connect(HOST, mute_server, timeout=3600):
                pytest.fail("there is no endpoint")

        before = kept_objects()
        task = asyncio.create_task(block())
        await until(lambda: live_objects()["requests"] > before["requests"])
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: live_objects()["endpoints"] <= before["endpoints"])

    @pytest.mark.parametrize("kind", [ValueError, asyncio.CancelledError, SystemExit])
    async def test_the_exception_of_the_block_comes_out(self, kind, monkeypatch):
        def fail(self):
            raise ucp.UCXError("of the close")

        monkeypatch.setattr(ucp.Endpoint, "_close_soon", fail)
        error = kind("mine")
        async with listen(echo) as listener:
            with pytest.raises(kind) as caught:
                async with ucp.connect(HOST, listener.port) as ep:
                    raise error
            assert caught.value is error
            ep.abort()

    async def test_it_can_be_awaited_once(self):
        async with listen(echo) as listener:
            connecting = ucp.connect(HOST, listener.port)
            ep = await connecting
            with pytest.raises(RuntimeError, match="cannot reuse already awaited"):
                await connecting
            await ep.close()

    async def test_one_that_is_not_awaited_warns_and_connects_nothing(self):
        async with listen() as listener:
            connecting = ucp.connect(HOST, listener.port)
            assert repr(connecting) == f"<ucp.Connecting to {HOST}:{listener.port}>"
            with pytest.warns(RuntimeWarning, match="was never awaited"):
                del connecting
                gc.collect()
            assert not listener._acceptor._endpoints


# ---- accept() ----------------------------------------------------------------


class Cancelling(deque):
    """A listener's queue that has ``cancel`` called when it gets an endpoint."""

    def __init__(self, cancel):
        super().__init__()
        self.cancel = cancel

    def append(self, endpoint):
        super().append(endpoint)
        self.cancel()


class TestAccept:
    async def test_each_connection_goes_to_one_task_in_order(self, loop_factory):
        async with listen() as listener:
            tasks = [asyncio.create_task(listener.accept()) for _ in range(3)]
            clients = []
            for task in tasks:
                clients.append(await ucp.connect(HOST, listener.port))
                await clients[-1].send(b"%d" % len(clients))
                await task
            for number, task in enumerate(tasks, 1):
                assert await (await task).recv_obj() == b"%d" % number
                await task.result().close()

    async def test_cancelled_while_it_waits_it_loses_no_connection(self, loop_factory):
        async with listen() as listener:
            for _ in range(3):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.001):
                        await listener.accept()
            async with ucp.connect(HOST, listener.port) as ep:
                await ep.send(b"x")
                assert await (await listener.accept()).recv_obj() == b"x"

    @pytest.mark.parametrize("is_later", [False, True])
    async def test_cancelled_as_a_connection_comes_it_does_not_lose_it(
        self, is_later, loop_factory
    ):
        async with listen() as listener:
            first = asyncio.create_task(listener.accept())
            loop = asyncio.get_running_loop()
            listener._acceptor._endpoints = Cancelling(
                (lambda: loop.call_soon(first.cancel)) if is_later else first.cancel
            )
            second = asyncio.create_task(listener.accept())
            await asyncio.sleep(0)  # both tasks wait now
            async with ucp.connect(HOST, listener.port) as ep:
                with pytest.raises(asyncio.CancelledError):
                    await first
                await ep.send(b"x")
                assert await (await second).recv_obj() == b"x"

    async def test_closing_tells_all_that_wait(self, loop_factory):
        listener = listen()
        tasks = [asyncio.create_task(listener.accept()) for _ in range(3)]
        await asyncio.sleep(0)
        listener.close()
        for task in tasks:
            with pytest.raises(ucp.UCXCloseError, match=CLOSED):
                await task
        with pytest.raises(ucp.UCXCloseError, match=CLOSED):
            await listener.accept()

    async def test_what_was_accepted_before_the_close_is_given_out(self):
        listener = listen()
        async with ucp.connect(HOST, listener.port) as ep:
            await until(lambda: listener._acceptor._endpoints)
            listener.close()
            other = await listener.accept()
            with pytest.raises(ucp.UCXCloseError, match=CLOSED):
                await listener.accept()
            await ep.send(b"x")
            assert await other.recv_obj() == b"x"

    async def test_the_end_of_the_worker_is_told(self):
        listener = listen()
        accepting = asyncio.create_task(listener.accept())
        closing = asyncio.create_task(listener.wait_closed())
        await asyncio.sleep(0)
        ucp.current_worker().abort()
        with pytest.raises(ucp.UCXCloseError, match=CLOSED):
            await accepting
        await closing

    async def test_a_peer_that_closes_the_listener_is_told(self):
        listener = listen(remote_close=True)
        ep = await ucp.connect(HOST, listener.port)
        other = await listener.accept()
        accepting = asyncio.create_task(listener.accept())
        await ucp.Listener.close_remote(ep)
        with pytest.raises(ucp.UCXCloseError, match=CLOSED):
            await accepting
        await listener.wait_closed()
        assert listener.closed()
        await asyncio.gather(ep.close(), other.close())

    async def test_a_callback_has_the_endpoints(self):
        async with listen(echo) as listener:
            with pytest.raises(TypeError, match="gives its endpoints to that"):
                await listener.accept()

    def test_a_second_loop_is_refused(self):
        first, second = asyncio.new_event_loop(), asyncio.new_event_loop()

        async def make():
            return listen()

        listener = first.run_until_complete(make())
        for wait in (listener.accept, listener.wait_closed):
            with pytest.raises(RuntimeError, match=r"of the loop .* is awaited in"):
                second.run_until_complete(wait())
        listener.close()
        second.close()
        first.run_until_complete(first.shutdown_asyncgens())
        first.close()


# ---- serve_forever() ---------------------------------------------------------


class TestServeForever:
    async def test_it_serves_until_it_is_cancelled(self, loop_factory):
        async def serve(listener):
            async with listener:
                await listener.serve_forever()

        listener = listen(echo)
        serving = asyncio.create_task(serve(listener))
        async with ucp.connect(HOST, listener.port) as ep:
            await ep.send(b"x")
            assert await ep.recv_obj() == b"x"
            assert not listener.closed()
            serving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await serving
            assert listener.closed()
            await ep.send(b"y")  # the endpoint's callback goes on
            assert await ep.recv_obj() == b"y"

    async def test_it_returns_when_the_listener_is_closed(self, loop_factory):
        listener = listen(echo)
        serving = asyncio.create_task(listener.serve_forever())
        await asyncio.sleep(0)
        assert not serving.done()
        listener.close()
        await serving
        with pytest.raises(ucp.UCXCloseError, match=CLOSED):
            await listener.serve_forever()
        await listener.wait_closed()

    async def test_its_timeout_closes_the_listener(self):
        listener = listen(echo)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await listener.serve_forever()
        assert listener.closed()

    async def test_without_a_callback_it_serves_nobody(self):
        async with listen() as listener:
            with pytest.raises(TypeError, match="without a callback serves nobody"):
                await listener.serve_forever()
            assert not listener.closed()


# ---- async for message in ep -------------------------------------------------


class TestIteration:
    @pytest.mark.parametrize("number", [None, 7])
    async def test_it_ends_when_the_peer_has_closed(self, number, loop_factory):
        messages = [b"one", b"", bytes(300_000)]
        async with connected_pair() as (client, server):
            here = client if number is None else client.channel(number)
            there = server if number is None else server.channel(number)

            async def produce():
                for message in messages:
                    await here.send(message)
                await client.close()

            producing = asyncio.create_task(produce())
            assert [message async for message in there] == messages
            await producing
            assert [message async for message in there] == []

    async def test_it_ends_when_this_side_closes(self):
        async with connected_pair() as (client, server):
            got = []

            async def consume():
                async for message in server:
                    got.append(message)

            consuming = asyncio.create_task(consume())
            await client.send(b"x")
            await until(lambda: got)
            await asyncio.gather(server.close(), client.close())
            await consuming
            assert got == [b"x"]

    async def test_it_raises_when_the_peer_dies(self, connect_peer):
        peer, ep = await connect_peer()
        await peer.do("await ep.send(b'last words')")
        got = []
        with pytest.raises(ucp.UCXConnectionReset):
            async for message in ep:
                got.append(message)
                peer.kill()
        assert got == [b"last words"]

    async def test_it_raises_when_the_endpoint_is_aborted_here(self):
        async with connected_pair() as (_client, server):
            waiting = asyncio.ensure_future(anext(server))
            await asyncio.sleep(0)
            server.abort()
            with pytest.raises(ucp.UCXCanceled) as caught:
                await waiting
            assert not isinstance(caught.value, ucp.UCXCloseError)

    async def test_cancelled_it_loses_no_message(self, loop_factory):
        async with connected_pair() as (client, server):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.001):
                    await anext(server)
            await client.send(b"x")
            assert await anext(server) == b"x"

    async def test_messages_with_a_tag_are_left_alone(self):
        async with connected_pair() as (client, server):
            await client.send(b"tagged", tag=1)
            await client.send(b"plain")
            assert await anext(server) == b"plain"
            assert await server.recv_obj(tag=1) == b"tagged"

    async def test_the_exception_of_the_loops_body_comes_out(self):
        async with connected_pair() as (client, server):
            await client.send(b"x")
            with pytest.raises(ZeroDivisionError):
                async for _ in server:
                    raise ZeroDivisionError


# ---- names and reprs ---------------------------------------------------------


class TestNames:
    async def test_a_callbacks_task_is_named_after_it_and_the_peer(self):
        names = []

        async def answer(ep):
            names.append(asyncio.current_task().get_name())

        async with listen(answer) as listener:
            async with ucp.connect(HOST, listener.port) as ep:
                await until(lambda: names)
                port = ep.local_address[1]
        here = "TestNames.test_a_callbacks_task_is_named_after_it_and_the_peer"
        start, _, rest = names[0].partition("(")
        assert start == f"ucp: {here}.<locals>.answer"
        assert rest.endswith(f" to {HOST}:{port}, open>)")

    async def test_a_handlers_task_is_named_after_the_message(self):
        names = []

        async def handle(ep, message):
            names.append(asyncio.current_task().get_name())

        async with connected_pair() as (client, server):
            ucp.current_worker().set_am_handler(20, handle)
            await client.am_send(b"abc", id=20)
            await until(lambda: names)
            ucp.current_worker().set_am_handler(20, None)
            assert names[0].endswith(f".handle({server!r}, 3 bytes)")

    async def test_a_submissions_task_is_named_after_the_operation(self):
        names = []

        async def send(ep, buffer, what):
            names.append(asyncio.current_task().get_name())
            await ep.send(buffer)

        async with connected_pair() as (client, server):
            worker = ucp.current_worker()
            future = worker.submit(send, client, bytearray(5), {})
            assert await server.recv_obj() == bytes(5)
            await asyncio.wrap_future(future)
            assert names[0].endswith(f".send({client!r}, 5 bytes, dict)")

    async def test_a_method_is_named_with_its_endpoint(self):
        async with connected_pair() as (client, server):
            receiving = ucp.current_worker().submit(server.__anext__)
            name = f"ucp: Objects.__anext__({server!r})"
            await until(
                lambda: name in {task.get_name() for task in asyncio.all_tasks()}
            )
            await client.send(b"x")
            assert await asyncio.wrap_future(receiving) == b"x"

    async def test_an_endpoint_tells_what_is_on_its_way(self):
        async with connected_pair() as (client, server):
            host, port = client.peer_address[:2]
            open_ = f"<ucp.Endpoint {client.uid} to {host}:{port}, open"
            assert repr(client) == f"{open_}>"
            sending = client.send(bytes(1 << 20))
            assert repr(client) == f"{open_}, {1 << 20} bytes on their way>"
            await server.recv(bytearray(1 << 20))
            await sending
            assert repr(client) == f"{open_}>"

    async def test_a_request_tells_operation_bytes_and_endpoint(self):
        async with connected_pair() as (client, server):
            receiving = server.recv(bytearray(5))
            where = f"on {server!r}"
            assert repr(receiving) == f"<ucp.Request recv of 5 bytes {where}, pending>"
            await client.send(b"12345")
            await receiving
            # The buffer is the program's again.
            assert repr(receiving) == f"<ucp.Request recv {where}, done>"
            flushing = client.flush()
            assert repr(flushing).startswith(f"<ucp.Request flush on {client!r}, ")
            await flushing
            request = server.worker.recv(bytearray(3), 7)
            assert repr(request).endswith(" of 3 bytes, pending>")
            request.cancel()
            assert repr(request).endswith(", cancelled>")

    async def test_a_message_tells_its_bytes_and_where_it_is_from(self):
        async with connected_pair() as (client, server):
            await client.send(b"abc")
            message = await server.recv_message()
            assert repr(message) == f"<ucp.Message of 3 bytes on {server!r}>"
            await message.recv(bytearray(3))
            assert repr(message) == f"<ucp.Message of 3 bytes on {server!r}>"
            await client.send(b"abcd", tag=0x1F, force_tag=True)
            message = await server.worker.recv_message(0x1F)
            assert repr(message) == "<ucp.TagMessage of 4 bytes, tag 0x1f>"

    async def test_closed_memory_of_a_peer_says_so(self):
        async with connected_pair() as (client, _server):
            with ucp.Memory.allocate(8) as memory:
                remote = client.remote(memory.key)
                assert not remote.closed() and not memory.closed()
                remote.close()
                assert remote.closed()
                assert repr(remote) == "<ucp.RemoteMemory of 8 bytes, closed>"
                with pytest.raises(ucp.UCXCloseError):
                    await remote.get(bytearray(8))
            assert memory.closed()
