# SPDX-License-Identifier: BSD-3-Clause
# tests: ext/post ext/worker ucp/submit ucp/worker
"""Other threads: submissions, two loops, blocked loops, late collection."""

import asyncio
import concurrent.futures
import contextvars
import gc
import os
import threading

import pytest
from script import run_script

import ucp
from ucp.testing import connected_pair, live_objects, until

# As many messages as UCX's queues take are sent.
pytestmark = pytest.mark.default_workers

SIZES = [1, 1000, 100_000, 3_000_000]


def in_thread(function, *args):
    """Run it in a thread of its own, joined before this returns."""
    with concurrent.futures.ThreadPoolExecutor(1) as executor:
        return executor.submit(function, *args).result()


async def exchange(ep, seed):
    """Send and receive a message of each size, both at once."""

    async def send():
        for size in SIZES:
            await ep.send(bytes([seed]) * size)

    async def receive():
        for size in SIZES:
            message = await ep.recv_obj()
            assert len(message) == size
            assert message[0] == message[-1] == seed ^ 1

    await asyncio.gather(send(), receive())


# ---- two loops ---------------------------------------------------------------


def test_two_loops_in_two_threads_exchange_both_ways(transport, loop_factory):
    port = concurrent.futures.Future()

    async def listen():
        async with ucp.create_listener(host="127.0.0.1") as listener:
            port.set_result(listener.port)
            ep = await anext(listener)
        await exchange(ep, 0)
        await ep.close()

    async def connect():
        ep = await ucp.create_endpoint(
            "127.0.0.1", await asyncio.wrap_future(port), connect_timeout=30
        )
        await exchange(ep, 1)
        await ep.close()

    def run(main):
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(main())

    with concurrent.futures.ThreadPoolExecutor(2) as executor:
        for done in [executor.submit(run, main) for main in (listen, connect)]:
            done.result()


def test_fifty_runs_in_a_row_leave_nothing(loop_factory):
    async def main():
        async with connected_pair() as (client, server):
            await client.send(b"ping")
            assert await server.recv_obj() == b"ping"

    def run_many(count):
        for _ in range(count):
            with asyncio.Runner(loop_factory=loop_factory) as runner:
                runner.run(main())
        gc.collect()
        return len(os.listdir("/proc/self/fd")), live_objects()

    before = run_many(2)
    assert run_many(50) == before


def test_a_loop_stopped_and_resumed_loses_nothing(start_peer, loop_factory):
    loop = loop_factory()
    peer = start_peer()

    async def connect():
        port = await peer.do("listener.port")
        ep = await ucp.create_endpoint("127.0.0.1", port)
        await peer.do("ep = await anext(listener)")
        return ep

    async def wait(request):
        return await request

    ep = loop.run_until_complete(connect())
    for round_ in range(5):
        for size in (8, 1 << 20):
            early = bytearray(size)
            posted = ep.recv(early)  # the loop is not running
            data = bytes([round_]) * size
            sent = peer.begin(f"await ep.send_many([bytes([{round_}]) * {size}] * 2)")
            loop.run_until_complete(wait(posted))
            loop.run_until_complete(asyncio.sleep(0))
            assert early == data
            late = loop.run_until_complete(wait(ep.recv_obj()))
            assert late == data
            loop.run_until_complete(peer.result(sent))
    loop.run_until_complete(ep.close())
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


def test_a_request_of_another_threads_loop_names_both_loops():
    async def wait(request):
        await request

    async def main():
        async with connected_pair() as (client, _server):
            with pytest.raises(
                RuntimeError,
                match=r"^<ucp\.Request recv of 1 bytes on <ucp\.Endpoint .*>, pending> "
                r"of the loop <.*> is awaited in another thread, in the loop <.*>$",
            ) as caught:
                await asyncio.to_thread(asyncio.run, wait(client.recv(bytearray(1))))
            assert repr(asyncio.get_running_loop()) in str(caught.value)

    asyncio.run(main())


def test_a_request_of_another_loop_of_the_thread_is_refused(loop_factory):
    async def make():
        listener = ucp.create_listener(host="127.0.0.1")
        client = await ucp.create_endpoint("127.0.0.1", listener.port)
        return listener, client, client.recv(bytearray(1))

    async def wait(request):
        await request

    first, second = loop_factory(), loop_factory()
    listener, client, request = first.run_until_complete(make())
    with pytest.raises(RuntimeError, match="attached to a different loop"):
        second.run_until_complete(wait(request))
    client.abort()
    listener.close()
    for loop in (first, second):
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


# ---- blocking the loop -------------------------------------------------------


async def test_nothing_is_lost_while_user_code_blocks_the_loop(connect_peer, transport):
    peer, ep = await connect_peer()
    first = asyncio.create_task(ep.recv_obj())
    await peer.do("await ep.send(bytes(5_000_000))")  # UCX connects its lanes
    assert len(await first) == 5_000_000
    first = asyncio.create_task(ep.recv_obj())
    await asyncio.sleep(0)
    posted = [ep.recv(bytearray(8)) for _ in range(10)]
    gate, open_gate = os.pipe()
    number = peer.begin(
        f"""
big = asyncio.create_task(ep.send(bytes(5_000_000)))
for i in range(1000):
    await ep.send(i.to_bytes(8, "little"))
    if i == 30:  # all fit into UCX's queues
        with open("/proc/{os.getpid()}/fd/{open_gate}", "wb", 0) as gate:
            gate.write(b".")
await big
"""
    )
    os.read(gate, 1)  # blocks the loop
    os.close(gate)
    os.close(open_gate)
    assert len(await first) == 5_000_000
    await asyncio.gather(*posted)
    for i in range(10, 1000):
        assert await ep.recv_obj() == i.to_bytes(8, "little")
    await peer.result(number)


# ---- submission --------------------------------------------------------------


async def test_threads_without_a_loop_send_by_submitting(transport, loop_factory):
    async with connected_pair() as (client, server):
        worker = ucp.current_worker()

        def send(name):
            for i in range(200):
                worker.submit(client.send, bytes([name, i])).result()

        threads = [threading.Thread(target=send, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        seen = [0] * 4
        for _ in range(800):
            name, i = await server.recv_obj()
            assert i == seen[name]  # each thread's in their order
            seen[name] += 1
        for thread in threads:
            await asyncio.to_thread(thread.join)


async def test_a_submitted_coroutine_runs_in_the_workers_loop(loop_factory):
    async def where():
        await asyncio.sleep(0)
        return threading.get_ident(), asyncio.get_running_loop()

    worker = ucp.current_worker()
    here = (threading.get_ident(), asyncio.get_running_loop())
    for work in (where, where()):
        future = await asyncio.to_thread(worker.submit, work)
        assert await asyncio.wrap_future(future) == here


async def test_a_request_made_elsewhere_starts_when_submitted():
    async with connected_pair() as (client, server):
        buffer = bytearray(3)
        work = in_thread(server.recv, buffer)
        future = ucp.current_worker().submit(work)
        await client.send(b"abc")
        await asyncio.wrap_future(future)
        assert buffer == b"abc"


async def test_submissions_of_a_thread_start_in_their_order():
    seen = []
    worker = ucp.current_worker()

    def submit_all():
        return [worker.submit(seen.append, i) for i in range(1000)]

    await asyncio.wrap_future((await asyncio.to_thread(submit_all))[-1])
    assert seen == list(range(1000))


async def test_a_sleeping_loop_is_woken_for_each_submission():
    worker = ucp.current_worker()

    def submit_one_by_one():
        return [worker.submit(int, str(i)).result() for i in range(500)]

    assert await asyncio.to_thread(submit_one_by_one) == list(range(500))


async def test_the_exception_of_submitted_work_is_the_futures():
    async def fail():
        raise KeyError("later")

    worker = ucp.current_worker()
    for work, error in ((fail, KeyError), (lambda: 1 / 0, ZeroDivisionError)):
        with pytest.raises(error):
            await asyncio.wrap_future(await asyncio.to_thread(worker.submit, work))


async def test_submitted_work_sees_the_submitters_context():
    variable = contextvars.ContextVar("variable", default="unset")
    worker = ucp.current_worker()

    async def read():
        return variable.get()

    def submit(work):
        variable.set("theirs")
        return worker.submit(work)

    for work in (read, variable.get):
        future = await asyncio.to_thread(submit, work)
        assert await asyncio.wrap_future(future) == "theirs"
    assert variable.get() == "unset"


async def test_submitted_work_can_be_cancelled_before_it_starts():
    started = []
    worker = ucp.current_worker()

    async def start():
        started.append(1)

    futures = [worker.submit(work) for work in (start, start(), started.append)]
    assert all(future.cancel() for future in futures)
    await asyncio.wrap_future(worker.submit(int))
    assert started == []


async def test_cancelling_a_submitted_receive_loses_no_message():
    async with connected_pair() as (client, server):
        worker = ucp.current_worker()
        future = worker.submit(server.recv_obj)
        await asyncio.wrap_future(worker.submit(int))
        assert await asyncio.to_thread(future.cancel)
        await asyncio.wrap_future(worker.submit(int))
        await client.send(b"kept")
        assert await server.recv_obj() == b"kept"


def test_closing_the_worker_cancels_what_was_submitted(loop_factory):
    async def never():
        await asyncio.Future()

    async def main():
        worker = ucp.current_worker()
        return worker, worker.submit(never), worker.submit(never())

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        worker, *futures = runner.run(main())
        assert not any(future.done() for future in futures)
    for future in futures:
        with pytest.raises(concurrent.futures.CancelledError):
            future.result(0)
    with pytest.raises(RuntimeError, match=r"^the worker is closed$"):
        in_thread(worker.submit, int)


def test_a_loop_closed_with_submissions_pending_cancels_them(loop_factory):
    async def use_ucp():
        return ucp.current_worker()

    loop = loop_factory()
    worker = loop.run_until_complete(use_ucp())
    future = in_thread(worker.submit, int)
    loop.close()
    asyncio.run(use_ucp())  # closes what was closed under it
    with pytest.raises(concurrent.futures.CancelledError):
        future.result(0)


def test_a_worker_without_a_loop_runs_functions_in_progress():
    async def coroutine():
        pass

    worker = ucp.current_worker()
    future = in_thread(worker.submit, threading.get_ident)
    refused = in_thread(worker.submit, coroutine)
    while not refused.done():
        ucp.progress()
    assert future.result() == threading.get_ident()
    with pytest.raises(
        RuntimeError, match=r"^a worker without an event loop cannot await$"
    ):
        refused.result()


@pytest.mark.parametrize("run", ["asyncio.run", "uvloop.run"])
def test_submitting_sys_exit_ends_the_program(run):
    run_script(
        f"""
        import asyncio, sys, threading, ucp, uvloop

        async def main():
            worker = ucp.current_worker()
            threading.Thread(target=worker.submit, args=(sys.exit,)).start()
            await asyncio.Future()

        {run}(main())
        """
    )


# ---- cancelled by another thread ---------------------------------------------


RECEIVES = {
    "recv": lambda ep: ep.recv(bytearray(8)),
    "recv_into": lambda ep: ep.recv_into(bytearray(8)),
    "recv_obj": lambda ep: ep.recv_obj(),
    "recv_message": lambda ep: ep.recv_message(),
    "allocator": lambda ep: ep.recv_obj(allocator=bytearray),
    "raw": lambda ep: ep.recv(bytearray(8), tag=7, force_tag=True),
    "recv_many": lambda ep: ep.recv_many([bytearray(8)]),
    "am_recv": lambda ep: ep.am_recv(),
    "am_recv_message": lambda ep: ep.am_recv_message(),
    "stream_recv": lambda ep: ep.stream_recv(bytearray(8)),
    "recv_frames": lambda ep: ep.recv_frames(),
}
SENDS = {
    "raw": lambda ep: ep.send(b"the word", tag=7, force_tag=True),
    "am_recv": lambda ep: ep.am_send(b"the word"),
    "am_recv_message": lambda ep: ep.am_send(b"the word"),
    "stream_recv": lambda ep: ep.stream_send(b"the word"),
    "recv_frames": lambda ep: ep.send_frames([b"the word"]),
}


@pytest.mark.parametrize("how", ["cancel", "close", "drop"])
@pytest.mark.parametrize("kind", RECEIVES)
@pytest.mark.filterwarnings("ignore:.*was dropped while it waited:RuntimeWarning")
async def test_a_receive_ended_by_another_thread_loses_no_message(kind, how):
    send = SENDS.get(kind, lambda ep: ep.send(b"the word"))
    async with connected_pair() as (client, server):
        request = RECEIVES[kind](server)
        sent = send(client)  # it comes before the loop is told
        if how == "drop":
            holder = [request]
            del request
            in_thread(holder.clear)
        elif how == "close":
            in_thread(request.close)
        else:
            assert in_thread(request.cancel)
            await until(request.done)
            assert request.cancelled()
        await sent
        await asyncio.wait_for(RECEIVES[kind](server), 20)


async def test_a_task_hears_when_another_thread_cancels_its_receive(loop_factory):
    async with connected_pair() as (_client, server):
        request = server.recv(bytearray(1))

        async def receive():
            await request

        task = asyncio.ensure_future(receive())
        await asyncio.sleep(0)
        assert await asyncio.to_thread(request.cancel, "not now")
        with pytest.raises(asyncio.CancelledError, match=r"^not now$"):
            await task


async def test_a_receive_is_cancelled_elsewhere_before_its_memory_is_asked_for():
    async with connected_pair() as (client, server):
        words = [b"1" * 3_000_000, b"2" * 3_000_000]
        later = []

        def allocate(nbytes):
            later.append(in_thread(second.cancel))
            return bytearray(nbytes)

        first = server.recv_obj(allocator=allocate)
        second = server.recv_obj(allocator=bytearray)
        sent = asyncio.gather(client.send(words[0]), client.send(words[1]))
        assert await first == words[0]
        await until(second.done)
        assert later == [second.cancelled()] == [True]
        assert await server.recv_obj() == words[1]
        await sent


async def test_a_receive_cancelled_twice_by_another_thread_is_cancelled_once():
    async with connected_pair() as (_client, server):
        request = server.recv(bytearray(1))
        assert in_thread(request.cancel, "first")
        assert in_thread(request.cancel, "second")
        assert request.cancel("third")
        with pytest.raises(asyncio.CancelledError, match=r"^first$"):
            await request
        assert not in_thread(request.cancel)


async def test_a_receive_that_is_done_is_not_cancelled_by_another_thread():
    async with connected_pair() as (client, server):
        buffer = bytearray(1)
        request = server.recv(buffer)
        await client.send(b"x")
        await until(request.done)
        assert not in_thread(request.cancel)
        await request
        assert buffer == b"x"


# ---- collected on another thread ---------------------------------------------


async def test_a_message_dropped_on_another_thread_returns_to_its_queue():
    async with connected_pair() as (client, server):
        await client.send(b"first")
        await client.send(b"second")
        holder = [await server.recv_message()]
        await asyncio.to_thread(holder.clear)
        await asyncio.wrap_future(ucp.current_worker().submit(int))
        assert await server.recv_obj() == b"first"
        assert await server.recv_obj() == b"second"


async def test_a_request_dropped_on_another_thread_loses_no_message():
    async with connected_pair() as (client, server):
        holder = [server.recv_message()]
        await client.send(b"kept")
        await until(holder[0].done)
        await asyncio.to_thread(holder.clear)
        await asyncio.wrap_future(ucp.current_worker().submit(int))
        assert await server.recv_obj() == b"kept"


async def test_an_endpoint_dropped_on_another_thread_closes(loop_factory):
    called_in = []
    listener = ucp.create_listener(host="127.0.0.1")
    holder = [await ucp.create_endpoint("127.0.0.1", listener.port)]
    server = await anext(listener)
    await holder[0].send(b"last words")
    holder[0].set_close_callback(lambda: called_in.append(threading.get_ident()))
    await asyncio.to_thread(holder.clear)
    assert await server.recv_obj() == b"last words"
    with pytest.raises(ucp.UCXCloseError):
        await server.recv(bytearray(1))
    await until(lambda: called_in)
    assert called_in == [threading.get_ident()]
    listener.close()


async def test_a_listener_dropped_on_another_thread_goes_on():
    accepted = asyncio.Queue()
    holder = [ucp.create_listener(accepted.put_nowait, host="127.0.0.1")]
    port = holder[0].port
    await asyncio.to_thread(holder.clear)
    for _ in range(2):
        async with await ucp.create_endpoint("127.0.0.1", port) as client:
            server = await accepted.get()
            await asyncio.gather(client.send(b"x"), server.recv(bytearray(1)))
            await server.close()


async def test_a_cycle_with_an_endpoint_is_collected_on_another_thread():
    async with connected_pair() as (client, server):
        await client.send(b"x")
    gc.disable()
    try:
        listener = ucp.create_listener(host="127.0.0.1")
        cycle = [await ucp.create_endpoint("127.0.0.1", listener.port)]
        server = await anext(listener)
        cycle.append(cycle)
        del cycle
        await asyncio.to_thread(gc.collect)
    finally:
        gc.enable()
    with pytest.raises(ucp.UCXCloseError):
        await server.recv(bytearray(1))
    listener.close()


async def test_submitted_work_is_forgotten_once_it_is_done():
    gc.disable()
    try:
        async with ucp.create_listener(host="127.0.0.1") as listener:
            client = await ucp.create_endpoint("127.0.0.1", listener.port)
            server = await anext(listener)
            worker = ucp.current_worker()
            await asyncio.wrap_future(worker.submit(client.send, b"last words"))
            del client
            assert await server.recv_obj() == b"last words"
            with pytest.raises(ucp.UCXCloseError):
                await server.recv(bytearray(1))
    finally:
        gc.enable()


FRAMES = {
    "frames": (lambda ep: ep.recv_frames(), lambda ep, data: ep.send_frames([data])),
    "multi": (lambda ep: ep.recv_multi(), lambda ep, data: ep.send_multi([data])),
    "pickle": (
        lambda ep: ep.recv_pickle(allow_pickle=True),
        lambda ep, data: ep.send_pickle(data),
    ),
}


@pytest.mark.parametrize("kind", FRAMES)
@pytest.mark.parametrize("how", ["cancel", "close"])
async def test_frames_that_land_when_another_thread_ends_their_receive_come_again(
    kind, how
):
    receive, send = FRAMES[kind]
    async with connected_pair() as (left, right):
        for polls in range(10):
            data = bytes([polls]) * 66_000
            first = receive(right)
            sending = send(left, data)
            for _ in range(polls):
                right.worker.progress()
            if first.done():  # it has landed
                await first
                await sending
                break
            thread = threading.Thread(target=getattr(first, how))
            thread.start()
            thread.join()
            await asyncio.sleep(0)
            async with asyncio.timeout(10):
                got = await receive(right)
                await sending
            parts = got[1] if kind == "frames" else got if kind == "multi" else [got]
            assert [bytes(part) for part in parts] == [data]
