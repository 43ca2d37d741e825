# SPDX-License-Identifier: BSD-3-Clause
"""Signals, fork, multiprocessing, subprocess, and the end of a process."""

import asyncio
import multiprocessing
import os
import signal
import subprocess
import sys
import threading

import pytest
from peer import visit
from script import PRELUDE, run_program

import ucp
from ucp.testing import connected_pair

pytestmark = pytest.mark.real_start

# ---- signals -----------------------------------------------------------------

_WAITING = """
import asyncio, sys, ucp, uvloop
from ucp.testing import connected_pair

async def wait():
    async with connected_pair() as (client, server):
        print("waiting", flush=True)
        await server.recv(bytearray(1))

async def play():
    async with connected_pair() as (client, server):
        async def echo():
            while True:
                await server.send(await server.recv_obj())

        task = asyncio.create_task(echo())
        print("playing", flush=True)
        while True:
            await client.send(b"ping")
            await client.recv_obj()
"""


def interrupt(main):
    """Start a program and send it SIGINT; its status and standard error."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", _WAITING + main],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    return process.returncode, err


@pytest.mark.parametrize("what", ["wait", "play"])
@pytest.mark.parametrize(
    "run",
    [
        "asyncio.run({}())",
        "uvloop.run({}())",
        "asyncio.new_event_loop().run_until_complete({}())",
        "uvloop.new_event_loop().run_until_complete({}())",
    ],
)
def test_ctrl_c_during_an_await_ends_the_program(run, what):
    status, err = interrupt(run.format(what))
    assert status == -signal.SIGINT, err
    assert "KeyboardInterrupt" in err


@pytest.mark.parametrize("run", ["asyncio.run", "uvloop.run"])
@pytest.mark.parametrize("what", ["sys.exit(3)", "signal.raise_signal(signal.SIGINT)"])
def test_a_task_that_a_message_woke_can_end_the_program(run, what):
    process = subprocess.run(
        [
            sys.executable,
            "-P",
            "-c",
            PRELUDE
            + f"""
async def main():
    async with connected_pair() as (client, server):
        asyncio.get_running_loop().call_later(0.01, client.send, b"x")
        await server.recv_obj()
        {what}
        await asyncio.sleep(0)
{run}(main())
""",
        ],
        capture_output=True,
        text=True,
        timeout=40,
    )
    assert process.returncode == (3 if "exit" in what else -signal.SIGINT)


def test_ctrl_c_ends_a_reset_that_waits_for_a_peer(start_peer, fresh_ucx):
    ucp.init(config=ucp.Config(close_timeout=3600))
    peer = start_peer()
    loop = asyncio.new_event_loop()

    async def connect():
        port = await peer.do("listener.port")
        ep = await ucp.create_endpoint("127.0.0.1", port)
        await peer.do("ep = await anext(listener)")
        peer.stop()
        ep.send(bytes(16 << 20))  # announced: only the peer can end it
        del ep  # closes in the background
        return ucp.current_worker()

    worker = loop.run_until_complete(connect())
    loop.close()
    # Late enough to come during the wait, and right whenever it comes.
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        ucp.reset()
    timer.join()
    assert not worker.closed()
    peer.resume()
    ucp.reset()
    assert worker.closed()


async def test_signals_during_traffic_lose_nothing(transport, loop_factory):
    seen = []
    before = signal.signal(signal.SIGUSR1, lambda *args: seen.append(1))
    try:
        async with connected_pair() as (client, server):
            for i in range(500):
                os.kill(os.getpid(), signal.SIGUSR1)
                sending = client.send(bytes([i % 256]) * (i * 100))
                os.kill(os.getpid(), signal.SIGUSR1)
                assert await server.recv_obj() == bytes([i % 256]) * (i * 100)
                await sending
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(seen) > 500


# ---- fork --------------------------------------------------------------------


def test_in_a_forked_child_objects_are_dead_and_say_so():
    run_program(
        """
        def refused(call):
            try:
                call()
            except RuntimeError as exc:
                assert "belongs to the parent process" in str(exc), exc
            else:
                raise AssertionError("not refused")

        def step(request):
            request.send(None)

        async def main():
            listener = ucp.create_listener(host="127.0.0.1")
            client = await ucp.create_endpoint("127.0.0.1", listener.port)
            server = await anext(listener)
            worker = ucp.current_worker()
            pending = server.recv(bytearray(4))
            await client.send(b"unread", tag=1)
            message = await server.recv_message(tag=1)
            memory = ucp.Memory.allocate(8)
            remote = server.remote(memory.key)

            def child():
                for call in (
                    # At the call: a result may never be awaited.
                    lambda: client.send(b"x"),
                    lambda: client.send(b"x", 1, True),
                    lambda: server.recv(bytearray(1)),
                    lambda: server.recv_into(bytearray(1)),
                    lambda: client.send_many([b"x"]),
                    lambda: client.send_frames([b"x"]),
                    lambda: server.recv_frames(),
                    lambda: client.am_send(b"x"),
                    lambda: client.stream_send(b"x"),
                    lambda: client.flush(),
                    lambda: client.ping(),
                    lambda: client.drain(),
                    lambda: client.channel(3).send(b"x"),
                    lambda: client.remote(memory.key),
                    lambda: remote.put(b"x"),
                    lambda: step(server.recv_obj()),
                    lambda: step(client.peer_info()),
                    lambda: step(listener.accept()),
                    lambda: step(anext(listener)),
                    lambda: step(pending),
                    lambda: message.recv(bytearray(6)),
                    lambda: worker.submit(int),
                    worker.progress,
                    worker.fileno,
                    lambda: worker.statistics,
                    client.ucx_info,
                    client.transports,
                ):
                    refused(call)
                assert client.closed() and server.closed() and listener.closed()
                assert worker.closed()
                assert "closed" in repr(client) and "closed" in repr(worker)
                try:
                    client.close().send(None)
                except StopIteration:
                    pass
                client.abort()
                listener.close()
                worker.abort()
                assert pending.cancel()

            end_of(in_child(child))
            await client.send(b"mine")
            await pending
            buffer = bytearray(6)
            await message.recv(buffer)
            assert buffer == b"unread"
            other = await ucp.create_endpoint("127.0.0.1", listener.port)
            memory.close()
            for ep in (client, other):
                await ep.close()

        asyncio.run(main())
        """
    )


def test_in_a_forked_child_callbacks_are_refused_at_the_call():
    run_program(
        """
        from ucp._libs import ucx_api

        worker = ucx_api.UCXWorker(ucx_api.UCXContext())
        accepted = []
        listener = ucx_api.UCXListener(worker, 0, accepted.append)
        ep = ucx_api.UCXEndpoint.create(worker, "127.0.0.1", listener.port, True)
        while not accepted:
            worker.progress()
        buffer = bytearray(1)

        def child():
            for call in (
                lambda: ucx_api.tag_send_nb(ep, buffer, 1, 1, print),
                lambda: ucx_api.tag_recv_nb(worker, buffer, 1, 1, print),
                lambda: ucx_api.stream_send_nb(ep, buffer, 1, print),
                lambda: ucx_api.stream_recv_nb(ep, buffer, 1, print),
                lambda: ucx_api.am_send_nbx(ep, buffer, 1, print),
                lambda: ucx_api.am_recv_nb(ep, print),
            ):
                try:
                    call()
                except RuntimeError as exc:
                    assert "belongs to the parent process" in str(exc), exc
                else:
                    raise AssertionError("not refused")

        end_of(in_child(child))
        """
    )


@pytest.mark.parametrize("tls", ["all", "tcp"])
def test_a_forked_child_starts_anew_and_the_parent_goes_on(tls):
    run_program(
        """
        def play():
            loop = asyncio.new_event_loop()
            loop.run_until_complete(ping_pong())
            return loop  # not closed yet

        def child():
            loops = [play()]
            end_of(in_child(grandchild))
            ucp.reset()
            loops.append(play())
            for loop in loops:
                loop.close()

        def grandchild():
            play().close()

        async def main():
            async with connected_pair() as (client, server):
                pids = [in_child(child) for _ in range(3)]
                for i in range(100):
                    sending = client.send(bytes(i * 1000))
                    assert len(await server.recv_obj()) == i * 1000
                    await sending
                await ping_pong()
                for pid in pids:
                    await asyncio.to_thread(end_of, pid)
                await client.send(b"still here")
                assert await server.recv_obj() == b"still here"

        asyncio.run(main())
        """,
        UCX_TLS=tls,
    )


def test_a_child_forked_after_reset_or_before_use_starts_anew():
    run_program(
        """
        def child():
            asyncio.run(ping_pong())

        end_of(in_child(child))
        asyncio.run(ping_pong())
        ucp.reset()
        end_of(in_child(child))
        asyncio.run(ping_pong())
        """
    )


def test_a_child_forked_by_another_thread_starts_anew():
    run_program(
        """
        async def main():
            async with connected_pair() as (client, server):
                pid = await asyncio.to_thread(
                    in_child, lambda: asyncio.run(ping_pong())
                )
                await asyncio.to_thread(end_of, pid)
                await client.send(b"x")
                assert await server.recv_obj() == b"x"

        asyncio.run(main())
        """
    )


def test_child_and_parent_talk_to_each_other():
    run_program(
        """
        async def talk(port):
            ep = await ucp.create_endpoint("127.0.0.1", port)
            await ep.send(b"from the child")
            assert await ep.recv_obj() == b"from the parent"
            await ep.close()

        async def main():
            async with connected_pair() as (client, server):
                listener = ucp.create_listener(host="127.0.0.1")
                port = listener.port
                pid = in_child(
                    lambda: asyncio.new_event_loop().run_until_complete(talk(port))
                )
                ep = await anext(listener)
                assert await ep.recv_obj() == b"from the child"
                await ep.send(b"from the parent")
                await asyncio.to_thread(end_of, pid)

        asyncio.run(main())
        """
    )


def test_many_forks_leave_no_descriptors():
    run_program(
        """
        async def main():
            async with connected_pair() as (client, server):
                for count in range(30):
                    end_of(in_child(lambda: None))
                    if count == 0:
                        before = os.listdir("/proc/self/fd")
                assert os.listdir("/proc/self/fd") == before
                await client.send(b"x")
                assert await server.recv_obj() == b"x"

        asyncio.run(main())
        """
    )


def test_a_child_that_leaves_normally_is_quiet():
    run_program(
        """
        kept = []

        async def main():
            kept.append(ucp.create_listener(host="127.0.0.1"))
            kept.append(await ucp.create_endpoint("127.0.0.1", kept[0].port))
            kept.append(await anext(kept[0]))
            kept.append(kept[1].recv(bytearray(8)))
            kept.append(kept)

        loop = asyncio.new_event_loop()
        loop.run_until_complete(main())
        pid = os.fork()
        if pid == 0:
            signal.alarm(50)
            asyncio.run(ping_pong())
            sys.exit(0)
        end_of(pid)
        kept[3].cancel()
        kept.clear()
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
        """
    )


_OUTLIVED = """
async def main():
    ep = await ucp.create_endpoint("127.0.0.1", int(sys.argv[1]))
    await ep.send(b"here")
    assert await ep.recv_obj() == b"welcome"
    in_child(lambda: (os.write(1, b"."), os.read(0, 1)))
    await asyncio.Future()

asyncio.run(main())
"""


async def test_a_peer_notices_the_death_of_a_parent_whose_child_lives_on(transport):
    async with ucp.create_listener(host="127.0.0.1") as listener:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", PRELUDE + _OUTLIVED, str(listener.port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "UCX_TLS": "tcp" if transport == "tcp" else "all"},
        )
        try:
            ep = await anext(listener)
            assert await ep.recv_obj() == b"here"
            await ep.send(b"welcome")
            assert await asyncio.to_thread(process.stdout.read, 1) == b"."
            process.kill()
            with pytest.raises(ucp.UCXConnectionReset):
                await ep.recv(bytearray(1))
        finally:
            process.kill()
            process.wait()
            process.stdin.close()  # ends the child
            process.stdout.read()
            process.stdout.close()


# ---- multiprocessing, subprocess ---------------------------------------------


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
async def test_multiprocessing_children_connect_to_their_parent(method):
    context = multiprocessing.get_context(method)
    async with connected_pair(), ucp.create_listener(host="127.0.0.1") as listener:
        processes = [
            context.Process(target=visit, args=(listener.port,)) for _ in range(2)
        ]
        for process in processes:
            process.start()
        try:
            for _ in processes:
                ep = await anext(listener)
                assert await ep.recv_obj() == b"hello"
                await ep.send(bytes(1_000_000))
            for process in processes:
                await asyncio.to_thread(process.join)
                assert process.exitcode == 0
        finally:
            for process in processes:
                process.kill()
                process.join()
                process.close()


@pytest.mark.parametrize("close_fds", [True, False])
@pytest.mark.parametrize("preexec", [None, int])
async def test_subprocesses_start_while_connections_are_open(close_fds, preexec):
    async with connected_pair() as (client, server):
        for _ in range(3):
            done = await asyncio.to_thread(
                subprocess.run,
                [sys.executable, "-c", "print('fine')"],
                capture_output=True,
                close_fds=close_fds,
                preexec_fn=preexec,
            )
            assert done.stdout == b"fine\n"
            sending = client.send(bytes(100_000))
            assert len(await server.recv_obj()) == 100_000
            await sending


# ---- the end -----------------------------------------------------------------


def test_exit_while_other_threads_run_their_loops_is_quiet():
    run_program(
        """
        started = threading.Semaphore(0)

        async def serve():
            listener = ucp.create_listener(host="127.0.0.1")
            client = await ucp.create_endpoint("127.0.0.1", listener.port)
            server = await anext(listener)
            pending = server.recv(bytearray(1))
            started.release()
            await pending

        for _ in range(2):
            threading.Thread(
                target=asyncio.run, args=(serve(),), daemon=True
            ).start()
        for _ in range(2):
            started.acquire()
        asyncio.run(ping_pong())
        """
    )


def test_exit_with_submissions_pending_is_quiet():
    run_program(
        """
        async def main():
            worker = ucp.current_worker()
            worker.submit(asyncio.Future)
            return worker

        loop = asyncio.new_event_loop()
        worker = loop.run_until_complete(main())
        thread = threading.Thread(target=worker.submit, args=(int,))
        thread.start()
        thread.join()
        loop.close()
        """
    )


def test_the_worker_of_a_thread_that_ended_is_closed():
    run_program(
        """
        def run():
            loop = asyncio.new_event_loop()
            workers.append(loop.run_until_complete(main()))
            loop.close()

        async def main():
            listener = ucp.create_listener(host="127.0.0.1")
            kept.append(await ucp.create_endpoint("127.0.0.1", listener.port))
            kept.append(await anext(listener))
            return ucp.current_worker()

        workers, kept = [], []
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        asyncio.run(ping_pong())
        assert workers[0].closed()
        assert kept[0].closed()
        ucp.reset()
        """
    )
