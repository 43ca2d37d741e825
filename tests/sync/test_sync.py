# SPDX-License-Identifier: BSD-3-Clause
# tests: ucp/runner
"""ucp.sync: blocking calls."""

import asyncio
import gc
import re
import subprocess
import sys
import threading

import pytest
from objects import kept_objects
from script import run_program, run_script

import ucp
from ucp import sync
from ucp.testing import live_objects


@pytest.fixture(autouse=True)
def nothing_stays():
    yield
    ucp.reset()
    assert [t for t in threading.enumerate() if t.name == "ucp sync"] == []


@pytest.fixture
def pair():
    with sync.listen(host="127.0.0.1") as listener:
        client = sync.connect("127.0.0.1", listener.port)
        server = listener.accept()
    with client, server:
        yield client, server


@pytest.mark.parametrize("size", [0, 8, 5000, 3_000_000])
def test_messages_go_both_ways(transport, pair, size):
    client, server = pair
    sent = bytes(range(256)) * (size // 256) + bytes(size % 256)

    def echo():
        server.send(server.recv_obj())

    thread = threading.Thread(target=echo)
    thread.start()
    client.send(sent)
    back = bytearray(size)
    client.recv(back, timeout=30)
    thread.join()
    assert back == sent


def test_tags_and_lengths(pair):
    client, server = pair
    client.send(b"first", tag=1)
    client.send(b"second", tag="two")
    assert server.recv_obj("two") == b"second"
    buffer = bytearray(10)
    assert server.recv_into(buffer) == 5
    assert buffer[:5] == b"first"
    client.flush()


def test_many_threads_use_one_endpoint(transport, pair):
    client, server = pair

    def ping(tag):
        for i in range(50):
            client.send(bytes([i]) * 100, tag)
            assert client.recv_obj(tag, timeout=30) == bytes([i]) * 100

    def echo(tag):
        for _ in range(50):
            server.send(server.recv_obj(tag), tag)

    failures = []

    def run(function, tag):
        try:
            function(tag)
        except BaseException as exc:
            failures.append(exc)

    threads = [
        threading.Thread(target=run, args=(function, tag))
        for tag in range(3)
        for function in (ping, echo)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_a_receive_that_times_out_loses_nothing(pair):
    client, server = pair
    host, port = server.peer_address[:2]
    for timeout in (0, 0.01):
        text = f"recv from {host}:{port}: not done within {timeout} s"
        with pytest.raises(ucp.UCXTimeout, match=f"^{re.escape(text)}$") as caught:
            server.recv(bytearray(4), timeout=timeout)
        assert isinstance(caught.value, TimeoutError)
        assert caught.value.op == "recv"
        assert caught.value.peer == server.peer_address
    client.send(b"late")
    assert server.recv_obj() == b"late"


def test_a_receive_that_times_out_says_what_it_waited_for(pair):
    _, server = pair
    peer = "{}:{}".format(*server.peer_address[:2])
    buffer = bytearray(4)
    for receive, what in (
        (lambda: server.recv(buffer, 7, timeout=0), "with tag 7"),
        (lambda: server.recv(buffer, tag=("a", 1), timeout=0), "with tag ('a', 1)"),
        (lambda: server.recv_into(buffer, 7, timeout=0), "with tag 7"),
        (lambda: server.recv_into(buffer, timeout=0), "with tag ANY"),
        (lambda: server.recv_obj(tag="x", timeout=0), "with tag 'x'"),
        (lambda: server.am_recv(id=16, timeout=0), "with id 16"),
        (lambda: server.channel(5).recv_obj(timeout=0), "on channel 5"),
        (lambda: server.channel(5).recv_obj(2, timeout=0), "on channel 5 with tag 2"),
    ):
        text = f" from {peer} {what}: not done within 0 s"
        with pytest.raises(ucp.UCXTimeout, match=f"{re.escape(text)}$") as caught:
            receive()
        assert caught.value.peer == server.peer_address


def test_a_receive_that_times_out_tells_of_messages_for_others(pair):
    client, server = pair
    client.send(b"other", tag=8)
    client.flush()
    while server.probe(8) is None:
        pass
    text = r"with tag 7: not done within 0 s; 1 unread message came for other receives$"
    with pytest.raises(ucp.UCXTimeout, match=text):
        server.recv(bytearray(5), 7, timeout=0)
    assert server.recv_obj(8) == b"other"


def test_messages_in_a_race_with_timeouts_arrive_once(pair):
    client, server = pair
    count = 300

    def send():
        for i in range(count):
            client.send(i.to_bytes(4, "little"))

    thread = threading.Thread(target=send)
    thread.start()
    received = []
    while len(received) < count:
        try:
            received.append(server.recv_obj(timeout=0.0002))
        except ucp.UCXTimeout:
            pass
    thread.join()
    assert received == [i.to_bytes(4, "little") for i in range(count)]


def test_accept_times_out_and_accepts_later():
    with sync.listen(host="127.0.0.1") as listener:
        with pytest.raises(ucp.UCXTimeout):
            listener.accept(timeout=0.01)
        with sync.connect("127.0.0.1", listener.port) as client:
            with listener.accept() as server:
                assert client.peer_address == ("127.0.0.1", listener.port)
                assert "127.0.0.1" in repr(client) + repr(listener)
                assert not server.closed()


def test_connecting_fails_as_with_await(mute_server, closed_port):
    with pytest.raises(ucp.UCXTimeout):
        sync.connect("127.0.0.1", mute_server, timeout=0.05)
    with pytest.raises(ucp.UCXNotConnected):
        sync.connect("127.0.0.1", closed_port)


def test_errors_of_arguments_come_out(pair):
    client, _ = pair
    with pytest.raises(TypeError):
        client.send(5)
    with pytest.raises(ValueError, match=r"^cannot receive into a read-only"):
        client.recv(b"1234")


def test_close_ends_what_waits(pair):
    client, server = pair
    thread = threading.Thread(target=client.close)
    thread.start()
    with pytest.raises(ucp.UCXCloseError):
        server.recv_obj()
    thread.join()
    assert client.closed()
    assert server.closed()
    server.close()
    server.close()
    server.abort()


def test_closing_a_listener_ends_accept():
    listener = sync.listen(host="127.0.0.1")
    thread = threading.Thread(target=listener.close)
    thread.start()
    with pytest.raises(ucp.UCXCloseError, match=r"^the listener is closed$"):
        listener.accept()
    thread.join()
    assert listener.closed()


def test_a_dropped_endpoint_closes():
    with sync.listen(host="127.0.0.1") as listener:
        other = [sync.connect("127.0.0.1", listener.port)]
        end = listener.accept()
        other[0].send(b"last words")
        other.clear()
        assert end.recv_obj() == b"last words"
        with pytest.raises(ucp.UCXCloseError):
            end.recv_obj()


async def test_peers_with_a_loop(pair, loop_factory):
    """Blocking calls in threads, with the process's own loop as the peer."""
    async with ucp.create_listener(host="127.0.0.1") as listener:

        def talk():
            with sync.connect("127.0.0.1", listener.port) as ep:
                ep.send(b"ping")
                return ep.recv_obj(timeout=30)

        talking = asyncio.create_task(asyncio.to_thread(talk))
        ep = await anext(listener)
        assert await ep.recv_obj() == b"ping"
        await ep.send(b"pong")
        assert await talking == b"pong"


def test_messages_move_between_the_calls(pair):
    client, server = pair
    done = threading.Event()

    def send():
        client.send(bytes(3_000_000))  # waits for the receiver
        done.set()

    thread = threading.Thread(target=send)
    thread.start()
    assert len(server.recv_obj()) == 3_000_000
    done.wait()
    thread.join()


def test_reset_names_what_is_open_and_ends_the_rest():
    ucp.reset()
    gc.collect()
    before = kept_objects()
    listener = sync.listen(host="127.0.0.1")
    with pytest.raises(ucp.UCXError, match=r"<ucp\.Listener on"):
        ucp.reset()
    listener.close()
    ucp.reset()
    assert listener.closed()
    listener.close()
    with pytest.raises(ucp.UCXCloseError, match=r"^ucp was shut down meanwhile$"):
        listener.accept()
    with sync.listen(host="127.0.0.1"):
        pass
    ucp.reset()
    del listener
    assert live_objects() == before


def test_a_call_from_the_threads_own_callbacks_is_refused(pair):
    client, _ = pair
    refused = []

    def call():
        try:
            client.recv_obj()
        except RuntimeError as exc:
            refused.append(str(exc))

    client._worker.submit(call).result()
    assert refused == ["a blocking call in the thread that it would wait for"]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.0.0.2"])
@pytest.mark.parametrize("bound", [None, "127.0.0.1"])
def test_connecting_to_a_listener_of_the_same_thread_is_refused(host, bound):
    async def main():
        async with ucp.create_listener(host=bound) as listener:
            if host == "127.0.0.2" and bound is not None:
                with pytest.raises(ucp.UCXNotConnected):  # it is another address
                    sync.connect(host, listener.port)
                return
            with pytest.raises(
                RuntimeError,
                match=r"^<ucp\.Listener on .*> belongs to the event loop of this "
                r"thread, which this call blocks: use 'await ucp\.connect\(\)', or ",
            ):
                sync.connect(host, listener.port)
            # As the text says:
            client = await asyncio.to_thread(sync.connect, host, listener.port)
            server = await listener.accept()
            await asyncio.to_thread(client.send, b"x")
            assert await server.recv_obj() == b"x"
            closing = asyncio.create_task(server.close())
            await asyncio.to_thread(client.close)
            await closing
        with pytest.raises(ucp.UCXNotConnected):  # nobody is there
            sync.connect(host, listener.port)

    asyncio.run(main())


def test_connecting_to_a_listener_of_a_loop_that_rests_is_refused():
    async def listen():
        return ucp.create_listener(host="127.0.0.1")

    with asyncio.Runner() as runner:
        listener = runner.run(listen())
        with pytest.raises(RuntimeError, match=r" belongs to the event loop of this"):
            sync.connect("127.0.0.1", listener.port)
        listener.close()


def test_a_listener_whose_worker_has_a_thread_accepts_a_blocking_call():
    async def main():
        async with ucp.create_listener(host="127.0.0.1") as listener:
            with ucp.current_worker().run_in_thread():
                client = sync.connect("127.0.0.1", listener.port)
            server = await listener.accept()
            client.abort()
            server.abort()

    asyncio.run(main())


def test_a_forked_child_has_a_thread_of_its_own():
    run_program(
        """
        def talk():
            with ucp.sync.listen(host="127.0.0.1") as listener:
                with ucp.sync.connect("127.0.0.1", listener.port) as client:
                    with listener.accept() as server:
                        client.send(b"x")
                        assert server.recv_obj(timeout=30) == b"x"

        talk()
        with ucp.sync.listen(host="127.0.0.1") as listener:
            client = ucp.sync.connect("127.0.0.1", listener.port)
            server = listener.accept()

            def child():
                try:
                    client.send(b"x")
                except ucp.UCXCloseError:
                    pass
                else:
                    raise AssertionError("not refused")
                client.close()
                talk()

            for _ in range(2):
                end_of(in_child(child))
            client.send(b"still here")
            assert server.recv_obj() == b"still here"
            client.close()
            server.close()
        """
    )


def test_exit_without_close_delivers_and_is_quiet(start_peer):
    async def main():
        peer = start_peer()
        port = await peer.do("listener.port")
        reading = peer.begin(
            "[len(await ep.recv_obj()) for ep in [await anext(listener)] for _ in 'ab']"
        )
        await asyncio.to_thread(
            run_script,
            f"""
            import ucp
            ep = ucp.sync.connect("127.0.0.1", {port})
            ep.send(b"small")
            ep.send(bytes(20_000))
            """,
        )
        assert await peer.result(reading) == [5, 20_000]

    asyncio.run(main())


def test_a_call_interrupted_just_after_it_was_submitted_takes_no_message(
    pair, monkeypatch
):
    client, server = pair
    submit_for = ucp.Worker._submit_for

    def interrupted(*args):
        submit_for(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(ucp.Worker, "_submit_for", interrupted)
    with pytest.raises(KeyboardInterrupt):
        server.recv_obj()
    monkeypatch.undo()
    client.send(b"kept")
    assert server.recv_obj(timeout=30) == b"kept"


def test_ctrl_c_ends_a_blocking_call():
    process = subprocess.Popen(
        [
            sys.executable,
            "-P",
            "-c",
            """
import ucp
with ucp.sync.listen(host="127.0.0.1") as listener:
    client = ucp.sync.connect("127.0.0.1", listener.port)
    server = listener.accept()
    print("waiting", flush=True)
    try:
        server.recv_obj()
    except KeyboardInterrupt:
        client.send(b"kept")
        assert server.recv_obj() == b"kept"
        raise
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
        process.communicate()
    assert process.returncode == -2, err
    assert "KeyboardInterrupt" in err
    assert "AssertionError" not in err
