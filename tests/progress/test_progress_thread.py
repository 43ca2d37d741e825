# SPDX-License-Identifier: BSD-3-Clause
# tests: ext/thread
"""Worker.run_in_thread(): messages move while the loop's thread is blocked."""

import asyncio
import ctypes
import gc
import os
import re
import subprocess
import sys
import threading
import time

import pytest
from script import run_program
from worlds import Ranks

import ucp
from ucp.testing import connected_pair, live_objects, until

NAME = "umx progress"


def helpers():
    """The numbers of the progress threads; they are no threads of Python."""
    found = []
    for tid in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{tid}/comm") as file:
                name = file.read().strip()
        except OSError:
            continue  # it has just ended
        if name == NAME:
            found.append(tid)
    return found


class Gate:
    """What a peer process opens while this thread is blocked in wait()."""

    def __init__(self):
        self._read, self._write = os.pipe()
        # For the peer to run.
        self.open = (
            f"with open('/proc/{os.getpid()}/fd/{self._write}', 'wb', 0) as f: "
            "f.write(b'.')"
        )

    def wait(self):
        """Blocks this thread and its loop, without the GIL."""
        assert os.read(self._read, 1) == b"."

    def close(self):
        os.close(self._read)
        os.close(self._write)


@pytest.fixture
def gate():
    gate = Gate()
    yield gate
    gate.close()


@pytest.fixture(autouse=True)
def no_helper_stays():
    yield
    assert helpers() == []


# ---- what moves --------------------------------------------------------------


async def test_what_was_posted_moves_while_the_loop_is_blocked(
    connect_peer, transport, loop_factory, gate
):
    peer, ep = await connect_peer()
    sizes = [8, 5000, 200_000, 5_000_000]
    buffers = [bytearray(size) for size in sizes]
    sent = [bytes([i + 1]) * size for i, size in enumerate(sizes)]
    receives = [ep.recv(buffer) for buffer in buffers]
    sends = [ep.send(data) for data in sent]
    number = peer.begin(f"for _ in {sizes}: await ep.send(await ep.recv_obj())")
    peer.begin(f"await ep.recv_obj(tag=1)\n{gate.open}")
    with ucp.current_worker().run_in_thread():
        last = ep.send(b"last", tag=1)
        gate.wait()
        while not all(request.done() for request in receives + sends):
            time.sleep(0)
    assert buffers == sent
    await asyncio.gather(last, *receives, *sends)
    await peer.result(number)


async def test_a_send_posted_in_the_block_moves(connect_peer, transport, gate):
    """The helper sleeps; posting wakes it."""
    peer, ep = await connect_peer()
    data = bytes(5_000_000)
    with ucp.current_worker().run_in_thread():
        for _ in range(20):
            number = peer.begin(f"await ep.recv_obj()\n{gate.open}")
            sending = ep.send(data)
            gate.wait()
            await sending
            await peer.result(number)


async def test_peers_connect_while_the_loop_is_blocked(start_peer, transport, gate):
    peer = start_peer()
    async with ucp.create_listener(host="127.0.0.1") as listener:
        number = peer.begin(
            f"""
ep = await ucp.create_endpoint("127.0.0.1", {listener.port})
await ep.send(b"hello")
{gate.open}
await ep.recv(bytearray(2))
await ep.close()
"""
        )
        with ucp.current_worker().run_in_thread():
            gate.wait()
        ep = await anext(listener)
        assert await ep.recv_obj() == b"hello"
        await ep.send(b"ok")
        await peer.result(number)


@pytest.mark.parametrize("in_thread", [True, False])
async def test_peers_with_a_heartbeat_keep_us_in_the_block(start_peer, in_thread, gate):
    peer = start_peer()
    await peer.do(
        """
listener.close()
ucp.reset()
ucp.init(config=ucp.Config(heartbeat=0.4))
listener = ucp.create_listener(host="127.0.0.1")
"""
    )
    ep = await ucp.create_endpoint("127.0.0.1", await peer.do("listener.port"))
    await peer.do("ep = await anext(listener)")
    number = peer.begin(f"await asyncio.sleep(2)\nstate = ep.state\n{gate.open}")
    if in_thread:
        with ucp.current_worker().run_in_thread():
            gate.wait()
    else:
        gate.wait()
    await peer.result(number)
    assert await peer.do("state") == ("open" if in_thread else "failed")
    ep.abort()


async def test_timeouts_run_out_while_the_loop_is_blocked(mute_server):
    worker = ucp.current_worker()
    with worker.run_in_thread():
        connecting = worker._connect(("127.0.0.1", mute_server), 0.01)
        while not connecting.done():
            time.sleep(0)
    with pytest.raises(ucp.UCXTimeout):
        await connecting


async def test_a_close_is_answered_while_the_loop_is_blocked(
    connect_peer, transport, gate
):
    peer, ep = await connect_peer()
    called_in = []
    ep.set_close_callback(lambda: called_in.append(threading.current_thread()))
    number = peer.begin(f"await ep.send(b'x')\nawait ep.close()\n{gate.open}")
    with ucp.current_worker().run_in_thread():
        gate.wait()
        assert ep.closed()
        assert called_in == []  # the loop has not had its turn
    await peer.result(number)
    assert called_in == [threading.current_thread()]
    assert await ep.recv_obj() == b"x"


# ---- while this thread holds the GIL -------------------------------------------


def hold_gil(seconds):
    """Compute without letting go of the GIL, as some extensions do."""
    ctypes.PyDLL(None).usleep(int(seconds * 1e6))


async def test_the_gil_is_held_and_peers_are_served(start_peer):
    """Gets, rendezvous, pings and heartbeats, while nothing of Python runs."""
    peer = start_peer()
    await peer.do(
        """
import time
listener.close()
ucp.reset()
ucp.init(config=ucp.Config(heartbeat=0.3))
listener = ucp.create_listener(host="127.0.0.1")
"""
    )
    ep = await ucp.create_endpoint("127.0.0.1", await peer.do("listener.port"))
    await peer.do("ep = await anext(listener)")
    data = bytearray(os.urandom(1_000_000))
    buffer = bytearray(3_000_000)
    with ucp.Memory.register(data) as memory:
        await ep.send(memory.key, tag=1)
        await peer.do("remote = ep.remote(bytes(await ep.recv_obj(tag=1)))")
        receiving = ep.recv(buffer, tag=2)
        number = peer.begin(
            """
await asyncio.sleep(0.2)
start = time.monotonic()
pings = [await ep.ping() for _ in range(20)]
got = bytearray(1_000_000)
await remote.get(got)
await ep.send(bytes([7]) * 3_000_000, tag=2)
took = time.monotonic() - start
await asyncio.sleep(1)
state = ep.state
"""
        )
        with ucp.current_worker().run_in_thread():
            hold_gil(2)
            assert not receiving.cancelled()
            while not receiving.done():
                time.sleep(0)
        await receiving
        await peer.result(number)
        assert buffer == bytes([7]) * 3_000_000
        assert await peer.do("bytes(got)") == data
        assert await peer.do("state") == "open"
        assert await peer.do("took") < 1
    ep.abort()


async def test_buffers_are_released_by_who_has_the_gil(connect_peer, transport, gate):
    peer, ep = await connect_peer()
    released = []
    sendings = [ep.send(Finalized(bytearray(300_000), released)) for _ in range(10)]
    number = peer.begin(f"for _ in range(10): await ep.recv_obj()\n{gate.open}")
    with ucp.current_worker().run_in_thread():
        hold_gil(0.2)
        gate.wait()
        assert released == []  # by the thread: nothing
        await asyncio.gather(*sendings)
    del sendings
    await peer.result(number)
    await until(lambda: len(released) == 10)
    assert set(released) == {threading.current_thread().name}


async def test_the_collector_runs_at_every_allocation(connect_peer, transport):
    """Between what the thread has done and what the loop hears of it."""
    peer, ep = await connect_peer()
    peer.begin("for _ in range(40): await ep.send(await ep.recv_obj())")
    before = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    try:
        with ucp.current_worker().run_in_thread():
            for i in range(40):
                data = bytes([i]) * (100_000 if i % 4 == 0 else 8)
                sending = ep.send(data)
                receiving = ep.recv_obj()
                hold_gil(0.003)
                assert await receiving == data
                await sending
    finally:
        gc.set_threshold(*before)


HOLDS = """
import ctypes, time

HOLDER, TIME = int(os.environ["HOLDER"]), 2

def hold_gil():
    ctypes.PyDLL(None).usleep(TIME * 1_000_000)

async def main():
    comm = await connect(heartbeat=0.4)
    pair = await comm.split(0 if comm.rank == HOLDER else 1)
    array = np.full(100_000, comm.rank, dtype="f8")
    data = np.arange(500_000, dtype="f8")
    port = np.zeros(1, dtype="i8")
    if comm.rank == HOLDER:
        memory = ucp.Memory.register(data)
        listener = ucp.create_listener(host="127.0.0.1")
        port[0] = listener.port
    await comm.bcast(port, HOLDER)
    if comm.rank == HOLDER:
        endpoints = [await anext(listener) for _ in range(2)]
        for endpoint in endpoints:
            await endpoint.send(memory.key)
    else:
        endpoint = await ucp.create_endpoint("127.0.0.1", int(port[0]))
        remote = endpoint.remote(bytes(await endpoint.recv_obj()))
    await comm.barrier()

    ends = [comm.allreduce(array), comm.barrier()]
    if comm.rank == HOLDER:
        got = np.empty_like(data)
        ends.append(comm.recv(got, (HOLDER + 1) % 3, 7))
        with ucp.current_worker().run_in_thread():
            hold_gil()
            late = time.monotonic()
            await asyncio.gather(*ends)
            assert time.monotonic() - late < 1, "it was not done meanwhile"
        assert (got == data).all()
    else:
        await asyncio.sleep(0.2)
        start = time.monotonic()
        for _ in range(100):
            await pair.barrier()
        for _ in range(20):
            await endpoint.ping()
        got = np.empty_like(data)
        await remote.get(got)
        assert (got == data).all()
        await asyncio.gather(*ends)
        if comm.rank == (HOLDER + 1) % 3:
            await comm.send(data, HOLDER, 7)
        took = time.monotonic() - start
        assert took < TIME - 0.5, took
    assert (array == 3).all()
    await comm.barrier()  # nobody was taken for dead
    comm.close()
    pair.close()
    if comm.rank == HOLDER:
        memory.close()
        listener.close()
        for endpoint in endpoints:
            endpoint.abort()
    else:
        endpoint.abort()
    print("good")

asyncio.run(main())
"""


@pytest.mark.parametrize("holder", [0, 2])  # the root has the heartbeats of all
@pytest.mark.parametrize("tls", [None, "tcp"])
def test_a_rank_that_holds_the_gil_serves_the_others(tls, holder, monkeypatch):
    if tls is not None:
        monkeypatch.setenv("UCX_TLS", tls)
    monkeypatch.setenv("HOLDER", str(holder))
    with Ranks(3, HOLDS) as ranks:
        assert [ranks.end(rank) for rank in range(3)] == ["good"] * 3


# ---- the loop goes on in the block -------------------------------------------


@pytest.mark.parametrize("size", [8, 100_000, 3_000_000])
async def test_awaiting_in_the_block(transport, loop_factory, size):
    count = 200 if size < 1_000_000 else 20
    async with connected_pair() as (client, server):

        async def echo():
            for _ in range(count):
                await server.send(await server.recv_obj())

        with ucp.current_worker().run_in_thread():
            echoing = asyncio.create_task(echo())
            for i in range(count):
                sent = bytes([i]) * size
                sending = client.send(sent)
                assert await client.recv_obj() == sent
                await sending
            await echoing


async def test_blocks_of_several_tasks_overlap(connect_peer, loop_factory):
    peer, ep = await connect_peer()
    worker = ucp.current_worker()

    async def one(tag):
        for i in range(20):
            with worker.run_in_thread():
                assert len(helpers()) == 1
                await ep.send(bytes([i]) * 1000, tag=tag)
                time.sleep(0.0001 * tag)
                assert await ep.recv_obj(tag=tag) == bytes([i]) * 1000

    for tag in range(4):
        peer.begin(
            f"for _ in range(20): await ep.send(await ep.recv_obj({tag}), {tag})"
        )
    await asyncio.gather(*(one(tag) for tag in range(4)))
    assert helpers() == []


async def test_blocks_nest():
    worker = ucp.current_worker()
    with worker.run_in_thread():
        with worker.run_in_thread():
            (helper,) = helpers()
        assert helpers() == [helper]
    assert helpers() == []


async def test_cancelling_in_the_block_loses_nothing(transport, loop_factory):
    async with connected_pair() as (client, server):
        with ucp.current_worker().run_in_thread():
            for i in range(50):
                receiving = asyncio.ensure_future(server.recv_obj())
                await asyncio.sleep(0)
                sending = client.send(bytes([i]) * 100_000)
                time.sleep(0)
                receiving.cancel()
                try:
                    message = await receiving
                except asyncio.CancelledError:
                    message = await server.recv_obj()
                assert message == bytes([i]) * 100_000
                await sending


async def test_submitted_work_runs_in_the_loop_after_the_blocking_code():
    ran_in = []
    worker = ucp.current_worker()

    def submit():
        return worker.submit(lambda: ran_in.append(threading.current_thread()))

    with worker.run_in_thread():
        threads = [threading.Thread(target=submit) for _ in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert ran_in == []
        await asyncio.wrap_future(worker.submit(int))
        assert ran_in == [threading.current_thread()] * 10


def test_a_worker_without_a_loop_moves_in_the_block():
    accepted = []
    worker = ucp.current_worker()
    listener = ucp.create_listener(accepted.append, host="127.0.0.1")
    requests = []
    with worker.run_in_thread():
        for _ in range(10):  # the first has been accepted before the last connects
            request = worker._connect(("127.0.0.1", listener.port), 5.0)
            while not request.done():
                time.sleep(0)
            requests.append(request)
        assert accepted == []
    while len(accepted) < 10:  # callbacks are for progress() to call
        ucp.progress()
    clients = [request.result() for request in requests]
    requests = [ep.recv(bytearray(1000)) for ep in accepted]
    with worker.run_in_thread():
        requests += [ep.send(bytes(1000)) for ep in clients]
        while not all(request.done() for request in requests):
            time.sleep(0)
    for ep in clients:
        ep.abort()
    accepted.clear()
    listener.close()


async def test_an_idle_block_sleeps(connect_peer, transport, gate):
    peer, ep = await connect_peer()
    receiving = ep.recv(bytearray(1))

    def switches():
        path = f"/proc/self/task/{helper}/status"
        with open(path) as status:
            return int(
                re.search(r"^voluntary_ctxt_switches:\t(\d+)$", status.read(), re.M)[1]
            )

    number = peer.begin(
        f"await asyncio.sleep(1)\n{gate.open}\nawait asyncio.sleep(2)\n{gate.open}"
    )
    with ucp.current_worker().run_in_thread():
        (helper,) = helpers()
        gate.wait()
        before = switches()
        gate.wait()
        assert switches() - before <= 2
    await peer.result(number)
    await peer.do("await ep.send(b'x')")
    await receiving


# ---- how a block ends --------------------------------------------------------


async def test_an_exception_leaves_the_block_and_ends_the_thread():
    async with connected_pair() as (client, server):
        with pytest.raises(KeyError):
            with ucp.current_worker().run_in_thread():
                raise KeyError("x")
        assert helpers() == []
        await client.send(b"x")
        assert await server.recv_obj() == b"x"


async def test_many_blocks_leave_nothing():
    async def count():
        # The loop may hold the last one until its next turn.
        await until(lambda: gc.collect() or live_objects()["requests"] == 0)
        return len(os.listdir("/proc/self/fd")), live_objects()

    async with connected_pair() as (client, server):
        worker = ucp.current_worker()
        before = None
        for i in range(300):
            receiving = server.recv(bytearray(100_000))
            with worker.run_in_thread():
                sending = client.send(bytes(100_000))
            await receiving
            await sending
            if i == 10:
                del receiving, sending
                before = await count()
        del receiving, sending
        assert await count() == before


async def test_another_thread_is_refused():
    worker = ucp.current_worker()
    refused = pytest.raises(
        RuntimeError, match=r"^the worker belongs to another thread: "
    )
    with refused:
        await asyncio.to_thread(worker.run_in_thread().__enter__)
    with worker.run_in_thread():
        for call in (
            worker.run_in_thread().__enter__,
            worker.progress,
            worker.arm,
            worker.abort,
        ):
            with refused:
                await asyncio.to_thread(call)
        assert len(helpers()) == 1


async def test_a_worker_closed_in_the_block():
    worker = ucp.current_worker()
    with worker.run_in_thread():
        worker.abort()
        assert helpers() == []
    with pytest.raises(RuntimeError, match=r"^the worker is closed$"):
        with worker.run_in_thread():
            pass


async def test_reset_in_the_block(transport):
    async with connected_pair() as (client, server):
        with ucp.current_worker().run_in_thread():
            with pytest.raises(ucp.UCXError, match="not all Endpoints"):
                ucp.reset()
            await client.send(b"x")
            assert await server.recv_obj() == b"x"
            client.abort()
            server.abort()
            ucp.reset()
            assert helpers() == []


def test_a_loop_closed_in_the_block(loop_factory):
    async def begin():
        listener = ucp.create_listener(host="127.0.0.1")
        client = await ucp.create_endpoint("127.0.0.1", listener.port)
        server = await anext(listener)
        return ucp.current_worker(), listener, client, server

    async def wait(request):
        await request

    loop = loop_factory()
    worker, listener, client, server = loop.run_until_complete(begin())
    receive, send = server.recv(bytearray(3_000_000)), None
    waiting = loop.create_task(wait(receive))
    loop.run_until_complete(asyncio.sleep(0))
    with worker.run_in_thread():
        loop.close()
        send = client.send(bytes(3_000_000))
        while not (send.done() and receive.done()):
            time.sleep(0)
    client.abort()
    server.abort()
    listener.close()
    ucp.reset()
    assert worker.closed()
    waiting._log_destroy_pending = False  # by design: its loop went


async def test_a_block_that_the_collector_ends():
    """In whichever thread: the helper itself may be the one that collects."""
    worker = ucp.current_worker()

    def block():
        with worker.run_in_thread():
            yield

    for collect in (gc.collect, lambda: asyncio.to_thread(gc.collect)):
        cycle = [block()]
        next(cycle[0])
        cycle.append(cycle)
        del cycle
        assert len(helpers()) == 1
        gathered = collect()
        if asyncio.iscoroutine(gathered):
            await gathered
            await until(lambda: helpers() == [])  # the worker's thread ends it
        assert helpers() == []


class Finalized:
    """A buffer whose release runs Python in whichever thread it is."""

    def __init__(self, data, released):
        self.data = data
        self.released = released
        self.__array_interface__ = {
            "version": 3,
            "shape": (len(data),),
            "typestr": "|u1",
            "data": (ctypes.addressof(ctypes.c_char.from_buffer(data)), False),
        }

    def __del__(self):
        time.sleep(0.001)  # lets go of the GIL, in the middle of a completion
        self.released.append(threading.current_thread().name)


async def test_callbacks_that_let_go_of_the_gil(connect_peer, transport, gate):
    peer, ep = await connect_peer()
    worker = ucp.current_worker()
    released = []
    number = peer.begin("for i in range(200): await ep.send(await ep.recv_obj())")
    with worker.run_in_thread():
        for i in range(200):
            buffer = bytearray([i]) * (10 if i % 2 else 300_000)
            sending = ep.send(Finalized(buffer, released))
            receiving = ep.recv_obj()
            worker.progress()
            time.sleep(0)
            assert await receiving == buffer
            await sending
            del sending
    await peer.result(number)
    assert len(released) == 200


# ---- processes ---------------------------------------------------------------


def test_a_child_forked_in_the_block_and_its_parent_go_on():
    run_program(
        """
        async def main():
            async with connected_pair() as (client, server):
                worker = ucp.current_worker()

                def child():
                    assert worker.closed()
                    try:
                        with worker.run_in_thread():
                            pass
                    except RuntimeError as exc:
                        assert str(exc) == "the worker belongs to the parent process"
                    else:
                        raise AssertionError("not refused")
                    asyncio.new_event_loop().run_until_complete(in_block())

                async def in_block():
                    with ucp.current_worker().run_in_thread():
                        await ping_pong()

                with worker.run_in_thread():
                    for _ in range(3):
                        end_of(in_child(child))
                    pid = os.fork()  # leaves the block in the child
                    sending = client.send(bytes(1_000_000)) if pid else None
                if pid == 0:
                    signal.alarm(50)
                    os._exit(0)
                end_of(pid)
                assert len(await server.recv_obj()) == 1_000_000
                await sending

        asyncio.run(main())
        """
    )


def test_subprocesses_in_the_block():
    run_program(
        """
        import multiprocessing, subprocess

        async def main():
            async with connected_pair() as (client, server):
                with ucp.current_worker().run_in_thread():
                    subprocess.run([sys.executable, "-c", ""], check=True)
                    for method in ("fork", "spawn", "forkserver"):
                        process = multiprocessing.get_context(method).Process(
                            target=print
                        )
                        process.start()
                        process.join()
                        assert process.exitcode == 0
                    await client.send(b"x")
                    assert await server.recv_obj() == b"x"

        asyncio.run(main())
        """
    )


@pytest.mark.parametrize("run", ["asyncio.run", "uvloop.run"])
@pytest.mark.parametrize(
    "ending",
    [
        "sys.exit()",
        "os._exit(0)",
        "return",
        "task = asyncio.create_task(wait()); await asyncio.sleep(0); sys.exit()",
        "kept.append(wait()); kept[0].send(None)",
        "threading.Thread(target=asyncio.run, args=(wait(),), daemon=True).start(); "
        "started.wait()",
    ],
)
def test_the_program_ends_in_the_block(run, ending):
    run_program(
        f"""
        kept = []
        started = threading.Event()

        async def wait():
            with ucp.current_worker().run_in_thread():
                started.set()
                await asyncio.Future()

        async def main():
            async with connected_pair() as (client, server):
                pending = client.recv(bytearray(1))
                with ucp.current_worker().run_in_thread():
                    sending = client.send(bytes(3_000_000))
                    {ending}

        {run}(main())
        """
    )


@pytest.mark.parametrize(
    "run, what",
    [
        # CPython hears of a signal that comes between its last look and epoll_wait(),
        # where it lets other threads run, when the loop wakes the next time.
        ("asyncio.run", "while True: await asyncio.sleep(0.1)"),
        # asyncio.run() would cancel the task, which cannot be.
        ("asyncio.new_event_loop().run_until_complete", "time.sleep(3600)"),
        ("uvloop.new_event_loop().run_until_complete", "time.sleep(3600)"),
    ],
)
def test_ctrl_c_in_the_block_ends_the_program(run, what):
    process = subprocess.Popen(
        [
            sys.executable,
            "-P",
            "-c",
            f"""
import asyncio, time, ucp, uvloop
from ucp.testing import connected_pair

async def main():
    async with connected_pair() as (client, server):
        with ucp.current_worker().run_in_thread():
            print("blocked", flush=True)
            {what}

{run}(main())
""",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        process.stdout.readline()
        process.send_signal(2)
        _, err = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == -2, err
