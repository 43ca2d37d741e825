# SPDX-License-Identifier: BSD-3-Clause
# tests: ext/current ucp/current ucp/lifecycle
"""Event loops come and go; processes end without ceremony."""

import asyncio
import gc
import sys
import threading
import types

import pytest
from script import run_script

import ucp
import ucp.sync
from ucp import _ext
from ucp.testing import connected_pair, live_objects

pytestmark = pytest.mark.real_start

_PING_PONG = """
    import asyncio, sys, ucp, uvloop
    from ucp.testing import connected_pair

    async def ping_pong():
        async with connected_pair() as (client, server):
            await client.send(b"ping")
            assert await server.recv_obj() == b"ping"
"""


# Program of a peer: accept, and tell the lengths of two messages.
_READ_TWO = (
    "[len(await ep.recv_obj()) for ep in [await anext(listener)] for _ in (1, 2)]"
)


async def ping_pong():
    async with connected_pair() as (client, server):
        await client.send(b"ping")
        assert await server.recv_obj() == b"ping"


def test_asyncio_run_works_twice(loop_factory):
    for _ in range(3):
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(ping_pong())


def test_a_loop_may_run_many_times(loop_factory):
    loop = loop_factory()
    loop.run_until_complete(ping_pong())
    worker = loop.run_until_complete(_current_worker())
    loop.run_until_complete(ping_pong())
    assert loop.run_until_complete(_current_worker()) is worker
    loop.run_until_complete(loop.shutdown_asyncgens())
    assert worker.closed()
    loop.close()


async def _current_worker():
    return ucp.current_worker()


def test_the_worker_of_a_loop_closed_under_it_is_closed(loop_factory):
    loop = loop_factory()
    loop.run_until_complete(ping_pong())
    worker = loop.run_until_complete(_current_worker())
    loop.close()
    asyncio.run(ping_pong())
    assert worker.closed()


def test_two_loops_in_two_threads():
    errors = []

    def run():
        try:
            asyncio.run(ping_pong())
        except BaseException as exc:
            errors.append(exc)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    asyncio.run(ping_pong())
    for thread in threads:
        thread.join()
    assert errors == []


def test_threads_do_not_share_workers():
    async def main():
        mine = ucp.current_worker()
        other = await asyncio.to_thread(asyncio.run, _current_worker())
        return mine is not other

    assert asyncio.run(main())


def test_reset_names_a_loop_of_another_thread():
    started, done = threading.Event(), threading.Event()

    async def use_ucp():
        ucp.current_worker()
        started.set()
        await asyncio.to_thread(done.wait)

    ucp.reset()
    thread = threading.Thread(target=asyncio.run, args=(use_ucp(),))
    thread.start()
    try:
        started.wait()
        with pytest.raises(ucp.UCXError, match="in <Thread"):
            ucp.reset()
    finally:
        done.set()
        thread.join()
    ucp.reset()


async def test_a_message_sent_before_main_returns_arrives(start_peer):
    peer = start_peer()
    port = await peer.do("listener.port")
    reading = peer.begin(_READ_TWO)
    run_script(
        """
        import asyncio, sys, ucp

        async def main():
            ep = await ucp.create_endpoint("127.0.0.1", int(sys.argv[1]))
            await ep.send(b"small")
            await ep.send(bytes(1 << 20))

        asyncio.run(main())
        """,
        str(port),
    )
    assert await peer.result(reading) == [5, 1 << 20]


async def test_a_message_sent_by_a_kept_endpoint_arrives(start_peer):
    peer = start_peer()
    port = await peer.do("listener.port")
    reading = peer.begin(_READ_TWO)
    run_script(
        """
        import asyncio, sys, ucp
        kept = []

        async def main():
            kept.append(await ucp.create_endpoint("127.0.0.1", int(sys.argv[1])))
            await kept[0].send(b"small")
            await kept[0].send(bytes(1 << 20))

        loop = asyncio.new_event_loop()
        loop.run_until_complete(main())
        loop.close()
        """,
        str(port),
    )
    assert await peer.result(reading) == [5, 1 << 20]


@pytest.mark.parametrize("run", ["asyncio.run", "uvloop.run"])
def test_exit_without_close_is_quiet(run):
    run_script(
        _PING_PONG
        + f"""
    kept = []

    async def main():
        await ping_pong()
        listener = ucp.create_listener(host="127.0.0.1")
        client = await ucp.create_endpoint("127.0.0.1", listener.port)
        server = await anext(listener)
        kept.extend([listener, client, server, server.recv(bytearray(8))])

    {run}(main())
    """
    )


def test_exit_with_a_loop_left_open_is_quiet():
    run_script(
        _PING_PONG
        + """
    loop = asyncio.new_event_loop()
    loop.run_until_complete(ping_pong())
    pending = loop.create_task(ping_pong())
    loop.run_until_complete(asyncio.sleep(0))
    pending.cancel()
    loop.run_until_complete(asyncio.gather(pending, return_exceptions=True))
    asyncio.set_event_loop(loop)
    loop.close()
    """
    )


def test_exit_with_endpoints_in_a_cycle_is_quiet():
    run_script(
        _PING_PONG
        + """
    async def main():
        listener = ucp.create_listener(host="127.0.0.1")
        client = await ucp.create_endpoint("127.0.0.1", listener.port)
        server = await anext(listener)
        cycle = [client, server, listener]
        cycle.append(cycle)
        server.set_close_callback(lambda: cycle)

    asyncio.run(main())
    """
    )


def test_nothing_is_left_after_a_run():
    ucp.reset()
    gc.collect()
    before = live_objects()  # what another test keeps
    asyncio.run(ping_pong())
    ucp.reset()
    assert all(n <= before[kind] for kind, n in live_objects().items())


async def test_awaiting_in_another_loop_is_refused():
    async with connected_pair() as (client, _server):
        request = client.recv(bytearray(1))

        async def wait():
            await request

        with pytest.raises(RuntimeError):
            await asyncio.to_thread(asyncio.run, wait())


def no_trio_runs():
    raise RuntimeError("must be called from async context")


@pytest.mark.parametrize("runs", [False, True])
def test_a_loop_of_trio_is_looked_for_if_trio_is_imported(monkeypatch, runs):
    """Of trio, ucp calls this one function: it raises outside of ``trio.run()``."""
    look = object if runs else no_trio_runs
    trio = types.SimpleNamespace(
        lowlevel=types.SimpleNamespace(current_trio_token=look)
    )
    monkeypatch.setitem(sys.modules, "trio", trio)
    if runs:
        with pytest.raises(
            RuntimeError, match=r"^ucp needs asyncio's event loop, and "
        ):
            ucp.current_worker()
    else:
        assert ucp.current_worker() is not None
    asyncio.run(ping_pong())  # a loop of asyncio runs: whatever trio does


def test_trio_is_told_that_asyncio_is_needed():
    trio = pytest.importorskip("trio")
    text = r"^ucp needs asyncio's event loop, and trio's is running; call ucp in "

    async def main():
        for call in (
            ucp.current_worker,
            ucp.create_listener,
            ucp.get_worker_address,
            lambda: ucp.connect("127.0.0.1", 1),
            lambda: ucp.create_endpoint("127.0.0.1", 1),
            lambda: ucp.Communicator.connect("tcp://127.0.0.1:1", 0, 1),
        ):
            with pytest.raises(RuntimeError, match=text):
                await call()
        # As the text says, in threads of trio's:
        await trio.to_thread.run_sync(talk)

    def talk():
        with ucp.sync.listen(host="127.0.0.1") as listener:
            with ucp.sync.connect("127.0.0.1", listener.port) as client:
                client.send(b"x")
                assert listener.accept().recv_obj() == b"x"
        asyncio.run(ping_pong())

    trio.run(main)


def test_a_worker_without_a_loop_moves_by_progress():
    accepted = []
    worker = ucp.current_worker()
    assert worker.loop is None
    listener = ucp.create_listener(accepted.append, host="127.0.0.1")
    request = worker._connect(("127.0.0.1", listener.port), 5.0)
    while not (request.done() and accepted):
        ucp.progress()
    client = request.result()
    send, receive = client.send(b"x"), accepted[0].recv_obj()
    with pytest.raises(StopIteration) as done:
        while True:
            receive.send(None)
            ucp.progress()
    assert send.done()
    assert done.value.value == b"x"
    client.abort()
    accepted.clear()
    del listener


@pytest.mark.parametrize("name", ["call_soon", "add_reader", "_ready"])
def test_a_worker_that_its_loop_closes_at_once_is_closed(name):
    """The loop's code finds the worker before anybody else has it."""
    is_closing = False

    class Loop(asyncio.SelectorEventLoop):
        def __getattribute__(self, asked):
            if asked == name and is_closing:
                workers = [o for o in gc.get_objects() if isinstance(o, ucp.Worker)]
                for worker in workers:
                    _ext.Worker.abort(worker)
            return super().__getattribute__(asked)

    async def main():
        nonlocal is_closing
        is_closing = True
        try:
            with pytest.raises((RuntimeError, OSError)):
                ucp.current_worker()
        finally:
            is_closing = False

    ucp.reset()
    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(main())
