# SPDX-License-Identifier: BSD-3-Clause
# tests: ext/describe
"""``ucp.dump()``: what everything waits for; by a call, and by a signal."""

import asyncio
import io
import os
import signal
import subprocess
import sys
import textwrap
import threading

import pytest
from script import run_script
from worlds import free_root
from zygote import Popen

import ucp
from ucp._core.lifecycle import current_worker
from ucp._observe import dump as dump_module
from ucp.testing import connected_pair, until


def dumped(file=None):
    file = io.StringIO() if file is None else file
    ucp.dump(file)
    return file.getvalue()


# ---- the call ----------------------------------------------------------------


async def test_a_receive_without_a_send_is_found():
    async with connected_pair() as (client, server):

        async def wait_for_news():
            await client.recv(bytearray(64), tag=1234)

        task = asyncio.create_task(wait_for_news(), name="the reader")
        # The task first lets the loop turn if the turn has taken long.
        await until(lambda: "task 'the reader' waits for " in dumped())
        text = dumped()
        port = client.peer_address[1]
        assert f"endpoint {client.uid} to 127.0.0.1:{port}" in text
        assert "a receive waits for a message (tag 1234, 64 bytes)" in text
        assert "task 'the reader' waits for <ucp.Request recv of 64 bytes" in text
        assert f'File "{__file__}", line ' in text
        assert "in wait_for_news" in text
        assert f"endpoint {server.uid} " in text
        task.cancel()
    assert text.startswith(f"=== ucp.dump of process {os.getpid()} at ")
    assert text.endswith("=== end of ucp.dump\n")


async def test_a_message_that_nobody_reads_is_found():
    async with connected_pair() as (client, server):
        await client.send(bytes(100), tag=99)
        await until(lambda: server.statistics.unexpected_messages)
        text = dumped()
        assert "no receive has asked for 1 message of 100 bytes; tags: 99" in text


async def test_another_thread_may_ask():
    async with connected_pair() as (client, _server):
        receiving = client.recv(bytearray(8))
        texts = []
        thread = threading.Thread(target=lambda: texts.append(dumped()), name="asker")
        thread.start()
        thread.join()
        assert "a receive waits for a message" in texts[0]
        assert "thread 'asker', which calls dump()" in texts[0]
        receiving.cancel()


async def test_a_worker_with_a_progress_thread_is_described():
    async with connected_pair():
        with current_worker().run_in_thread():
            assert "run_in_thread(): 1 blocks" in dumped()
            assert ": open, " in dumped()


def test_a_worker_that_moves_memory_meanwhile_is_left_alone():
    begun, is_seen = threading.Event(), threading.Event()

    async def move():
        async with connected_pair() as (client, _server):
            memory = ucp.Memory.allocate(16 << 20)
            remote = client.remote(memory.key)
            begun.set()
            while not is_seen.is_set():
                await remote.put(bytes(16 << 20))  # without the GIL

    thread = threading.Thread(target=asyncio.run, args=[move()])
    thread.start()
    begun.wait()
    busy = "  (cannot be read now: another thread is in a call of it; ask again)\n"
    while busy not in dumped():
        pass
    is_seen.set()
    thread.join()


def test_without_a_worker_it_says_so(fresh_ucx):
    assert "no worker is open" in dumped()


async def test_a_text_is_bounded_and_says_what_it_left_out(monkeypatch):
    monkeypatch.setattr(dump_module, "_MAX_TASKS", 2)
    async with connected_pair() as (client, _server):
        tasks = [
            asyncio.create_task(client.recv(bytearray(8), tag=n)) for n in range(20)
        ]
        await until(lambda: "20 tasks" in dumped() or "21 tasks" in dumped())
        text = dumped()
        assert "more receives wait" in text
        assert "more tasks" in text
        text, more = current_worker()._describe(3)
        assert len(text.splitlines()) == 3
        assert more > 0
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_what_cannot_be_read_does_not_stop_it(monkeypatch):
    def fail(*_):
        raise RuntimeError("no luck")

    async with connected_pair():
        monkeypatch.setattr(dump_module, "_loop_state", fail)
        text = dumped()
    assert "(workers cannot be read: RuntimeError('no luck'))" in text
    assert "event loop " in text


def test_a_path_is_appended_to(tmp_path):
    path = tmp_path / "dump.txt"
    path.write_text("before\n")
    ucp.dump(path)
    ucp.dump(str(path))
    text = path.read_text()
    assert text.startswith("before\n=== ucp.dump of process ")
    assert text.count("=== end of ucp.dump\n") == 2
    with pytest.raises(FileNotFoundError):
        ucp.dump(tmp_path / "no" / "folder")


@pytest.mark.parametrize("what", [io.BytesIO(), 5, b"/tmp/x", print])
def test_what_is_no_text_file_is_refused(what):
    handler = signal.getsignal(signal.SIGUSR1)
    for name, call in (
        ("dump", ucp.dump),
        ("dump_on_signal", lambda file: ucp.dump_on_signal(file=file)),
    ):
        message = (
            rf"^ucp\.{name}\(\) writes to a path, or to an open text file, not to "
        )
        with pytest.raises(TypeError, match=message):
            call(what)
    assert signal.getsignal(signal.SIGUSR1) is handler


def test_a_closed_file_is_refused(tmp_path, monkeypatch):
    with (tmp_path / "f").open("w") as file:
        pass
    with pytest.raises(ValueError, match=r"^ucp\.dump\(\) was given a file that is cl"):
        ucp.dump(file)
    with pytest.raises(ValueError, match=r"^ucp\.dump_on_signal\(\) was given a file "):
        ucp.dump_on_signal(file=file)
    monkeypatch.setattr(sys, "stderr", file)
    with pytest.raises(ValueError, match=r"^ucp\.dump\(\) was given a file that is cl"):
        ucp.dump()


async def test_standard_error_is_that_of_the_moment(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    ucp.dump()
    assert "=== end of ucp.dump" in sys.stderr.getvalue()
    monkeypatch.setattr(sys, "stderr", None)
    ucp.dump()


async def test_names_that_are_no_utf8_are_written(tmp_path):
    path = tmp_path / "f"
    ascii_only = io.TextIOWrapper(io.BytesIO(), "ascii")
    async with connected_pair() as (client, _server):
        task = asyncio.create_task(client.recv(bytearray(8)), name="a\udcff\xe9")
        await asyncio.sleep(0)
        ucp.dump(path)
        ucp.dump(ascii_only)
        with path.open("a", encoding="utf-8") as file:
            ucp.dump(file)
        task.cancel()
        await asyncio.wait([task])
    ascii_only.seek(0)
    for text in (path.read_text("utf-8"), ascii_only.read()):
        assert r"task 'a\udcff" in text


def test_the_communicator_names_the_ranks_it_waits_for():
    root = free_root()

    async def run(rank, is_asked, answer):
        comm = await ucp.Communicator.connect(root, rank, 2, 20, name="news")
        async with comm:
            if rank == 0:
                barrier = asyncio.ensure_future(comm.barrier())
                await until(lambda: "barrier #1 waits for ranks 1" in dumped())
                answer.append(dumped())
                is_asked.set()
                await barrier
            else:
                await until(is_asked.is_set)
                await comm.barrier()

    is_asked, answer = threading.Event(), []
    threads = [
        threading.Thread(target=asyncio.run, args=[run(rank, is_asked, answer)])
        for rank in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert "communicator 'news': rank 0 of 2" in answer[0]


# ---- signals ------------------------------------------------------------------


def test_a_wrong_signal_is_refused():
    with pytest.raises(ValueError, match="signal"):
        ucp.dump_on_signal(12345)
    before = signal.getsignal(signal.SIGSEGV)
    with pytest.raises(ValueError, match=r"^SIGSEGV says"):
        ucp.dump_on_signal(signal.SIGSEGV)
    assert signal.getsignal(signal.SIGSEGV) is before
    errors = []

    def ask():
        try:
            ucp.dump_on_signal()
        except ValueError as exc:
            errors.append(str(exc))

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    assert errors == ["dump_on_signal() sets a signal's handler: the main thread does"]


class Hanging:
    """A program that hangs, and what it writes when it is asked."""

    def __init__(self, source, **env):
        self.process = Popen(
            [sys.executable, "-P", "-c", textwrap.dedent(source)],
            env={**os.environ, **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __enter__(self):
        assert self.process.stdout.readline() == "hangs\n"
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()

    def dump(self, last="=== end of ucp.dump\n"):
        self.process.send_signal(signal.SIGUSR1)
        lines = []
        while not lines or lines[-1] != last:
            lines.append(self.process.stderr.readline())
            assert lines[-1], "".join(lines)
        return "".join(lines)


IN_A_LOOP = """
import asyncio, ucp, {loop}
from ucp.testing import connected_pair
async def main():
    async with connected_pair() as (client, server):
        receiving = client.recv(bytearray(8), tag=5)
        asyncio.get_running_loop().call_later(0.01, lambda: print("hangs", flush=True))
        await receiving
{run}
"""


@pytest.mark.parametrize(
    ("loop", "run"),
    [("asyncio", "asyncio.run(main())"), ("uvloop", "uvloop.run(main())")],
    ids=["asyncio", "uvloop"],
)
def test_a_program_that_sleeps_in_its_loop_answers_a_signal(loop, run):
    source = IN_A_LOOP.format(loop=loop, run=run)
    with Hanging(source, UCP_DUMP_SIGNAL="USR1") as program:
        for _ in range(2):
            text = program.dump()
            assert "most recent call first" in text  # faulthandler's
            assert "a receive waits for a message (tag 5, 8 bytes)" in text


def test_a_blocking_call_answers_a_signal():
    source = """
    import asyncio, queue, threading, ucp
    ucp.dump_on_signal()
    ports = queue.Queue()
    async def serve():
        listener = ucp.create_listener(host="127.0.0.1")
        ports.put(listener.port)
        ep = await listener.accept()
        await asyncio.sleep(50)
    threading.Thread(target=lambda: asyncio.run(serve()), daemon=True).start()
    ep = ucp.sync.connect("127.0.0.1", ports.get())
    threading.Timer(0.05, lambda: print("hangs", flush=True)).start()
    ep.recv(bytearray(8), tag=6)
    """
    with Hanging(source) as program:
        assert "a receive waits for a message (tag 6, 8 bytes)" in program.dump()


def test_a_collective_of_blocking_calls_answers_a_signal():
    source = """
    import os, threading, ucp
    ucp.dump_on_signal()
    root = os.environ["ROOT_OF_TEST"]
    def other():
        with ucp.sync.Communicator.connect(root, 1, 2, 20, name="sums") as comm:
            comm.recv(bytearray(1), 0)
    threading.Thread(target=other, daemon=True).start()
    with ucp.sync.Communicator.connect(root, 0, 2, 20, name="sums") as comm:
        threading.Timer(0.05, lambda: print("hangs", flush=True)).start()
        comm.barrier()
    """
    with Hanging(source, ROOT_OF_TEST=free_root()) as program:
        text = program.dump()
        assert "communicator 'sums': rank 0 of 2" in text
        assert "barrier #1 waits for ranks 1" in text


def test_a_handler_of_before_is_called_after_it():
    source = """
    import signal, sys, time, ucp
    signal.signal(signal.SIGUSR1, lambda *_: print("mine", file=sys.stderr))
    ucp.dump_on_signal(signal.SIGUSR1)
    ucp.dump_on_signal(signal.SIGUSR1)
    print("hangs", flush=True)
    time.sleep(50)
    """
    with Hanging(source) as program:
        text = program.dump(last="mine\n")
        assert "most recent call first" in text
        assert "thread 'MainThread', which calls dump()" in text
        assert text.count("=== end of ucp.dump") == 1


def test_a_signal_keeps_its_file_whatever_the_program_does(tmp_path):
    source = """
    import os, signal, sys, ucp
    first, second, other = sys.argv[1:]
    with open(first, "w") as file:
        ucp.dump_on_signal(file=file)
        number = file.fileno()
    with open(other, "w") as file:
        assert file.fileno() == number
        signal.raise_signal(signal.SIGUSR1)
    ucp.dump_on_signal(file=second)
    ucp.dump_on_signal(file=second)
    signal.raise_signal(signal.SIGUSR1)
    descriptors = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        ucp.dump_on_signal(file=second)
        try:
            ucp.dump_on_signal(signal.SIGKILL, file=second)
        except OSError:
            pass
    assert len(os.listdir("/proc/self/fd")) == descriptors
    """
    paths = [tmp_path / name for name in ("first", "second", "other")]
    run_script(source, *map(str, paths))
    first, second, other = (path.read_text() for path in paths)
    for text in (first, second):
        assert "most recent call first" in text
        assert text.count("=== end of ucp.dump") == 1
    assert other == ""


def test_a_signal_of_the_environment_that_is_none_is_warned_of():
    done = subprocess.run(
        [sys.executable, "-P", "-c", "import ucp"],
        env={**os.environ, "UCP_DUMP_SIGNAL": "LOUD"},
        capture_output=True,
        text=True,
        timeout=50,
        check=True,
    )
    assert "UCP_DUMP_SIGNAL='LOUD' has no effect: a signal is a name" in done.stderr
