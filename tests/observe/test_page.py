# SPDX-License-Identifier: BSD-3-Clause
# tests: util/page ext/numbers
"""The counters of a process are read from outside, also if it hangs."""

import json
import os
import signal
import struct
import subprocess
import sys
import time

import pytest
from script import run_script

import ucp
from ucp._observe import page
from ucp._observe.families import of_host
from ucp.testing import connected_pair

PROGRAM = """
import asyncio, signal, sys, ucp
from ucp.testing import connected_pair

async def main():
    async with connected_pair() as (client, server):
        for _ in range(3):
            await client.send(b"four")
        await server.recv(bytearray(4))
        await asyncio.sleep(0)
        print("ready", flush=True)
        signal.pause()  # hangs, inside of the event loop

asyncio.run(main())
"""


def of_this_process():
    [process] = page.read(os.getpid())
    return process


def without_requests(statistics):
    """The numbers that are of this moment; those of requests are of a drain."""
    numbers = statistics.as_dict()
    return {name: numbers[name] for name in numbers if "requests" not in name}


async def test_a_process_reads_its_own_page():
    async with connected_pair() as (client, server):
        before = of_this_process().workers
        await client.send(b"four")
        await server.recv(bytearray(4))
        process = of_this_process()
        assert (process.pid, process.version) == (os.getpid(), ucp.__version__)
        [worker] = [
            each
            for each, old in zip(process.workers, before, strict=True)
            if each.statistics.sent_messages != old.statistics.sent_messages
        ]
        assert without_requests(worker.statistics) == without_requests(
            client.worker.statistics
        )
        assert worker.statistics.received_bytes >= 4
        assert process.started <= worker.started <= worker.drained <= time.time() + 1


def test_a_process_that_hangs_is_read():
    with subprocess.Popen(
        [sys.executable, "-P", "-c", PROGRAM], stdout=subprocess.PIPE, text=True
    ) as other:
        try:
            assert other.stdout.readline() == "ready\n"
            os.kill(other.pid, signal.SIGSTOP)
            [process] = page.read(other.pid)
            [worker] = process.workers
            numbers = worker.statistics
            assert (numbers.sent_messages, numbers.sent_bytes) == (3, 12)
            assert (numbers.received_messages, numbers.received_bytes) == (3, 12)
            assert (numbers.unexpected_messages, numbers.unexpected_bytes) == (2, 8)
            assert numbers.endpoints == 2
            assert process.name.startswith("python")
            assert worker.number == 1
        finally:
            other.kill()


async def test_a_process_reads_what_it_exchanges_with_hosts():
    async with connected_pair() as (client, server):
        await client.send(b"four")
        await server.recv(bytearray(4))
        process = of_this_process()
        number = max(worker.number for worker in process.workers)
        [local] = [
            host
            for host in process.hosts
            if (host.worker, host.host) == (number, "localhost")
        ]
        assert (local.sent_messages, local.sent_bytes) == (1, 4)
        assert (local.received_messages, local.received_bytes) == (1, 4)
        lanes = {transport for transport, _ in client.transports()}
        assert lanes <= set(local.transports)


NAMES = "number,begun_ns,drained,sent_bytes,other_sent_bytes"


def page_of(version, *rows, offset=None, numbers=(1,), read_word=None):
    """A page of workers, which have sent 5 bytes and 6 to other hosts each."""
    slots = [struct.pack("=6Q", 1, number, 0, 0, 5, 6) for number in numbers]
    start = page._HEADER.size
    size = len(slots[0])
    end = start + size * len(slots)
    header = page._HEADER.pack(
        *(b"ucpstats", version, start, size, len(slots), 1, 1, 1, 1, 1, b"0.1"),
        *(end if offset is None else offset, page._HOST.size, len(rows)),
        NAMES.encode(),
    )
    memory = b"".join((header, *slots, *rows))
    return page._read_memory(1, memoryview(memory), read_word)


def row(turn, worker, sent):
    return page._HOST.pack(turn, worker, 1, sent, 0, 0, b"10.0.0.2", b"tcp,self")


def test_bytes_of_a_worker_are_those_of_its_hosts():
    found = page_of(2, row(1, 1, 100), row(2, 1, 1000), row(1, 2, 1000))
    assert found.workers[0].statistics.sent_bytes == 111
    assert [(host.host, host.sent_bytes) for host in found.hosts] == [
        ("10.0.0.2", 100),
        ("other", 6),
    ]
    assert found.hosts[0].transports == ("tcp", "self")


def test_a_page_of_an_older_version_is_read():
    found = page_of(1, row(1, 1, 100))
    assert found.workers[0].statistics.sent_bytes == 5
    assert found.hosts == ()
    assert page_of(3) is None


@pytest.mark.parametrize("offset", [3, 1 << 20])
def test_rows_that_are_not_there_are_not_read(offset):
    found = page_of(2, row(1, 1, 100), offset=offset)
    assert [host.host for host in found.hosts] == ["other"]


@pytest.mark.parametrize("same", [False, True])
def test_a_large_page_of_somebody_else_does_not_hold_the_reader_up(same):
    """Anybody makes one, and the exporter of root reads it."""
    numbers = [1 if same else i + 1 for i in range(40_000)]
    rows = [row(1, number, 100) for number in numbers[:10_000]]
    found = page_of(2, *rows, numbers=numbers)
    assert len(found.workers) == len(set(numbers))
    assert len(found.hosts) == len(rows) + len(found.workers)
    assert found.workers[0].statistics.sent_bytes == 11 + (1_000_000 if same else 100)
    assert len(of_host([found])) > 10


@pytest.mark.parametrize("moment", range(3))
def test_a_worker_that_ends_meanwhile_is_read_whole_or_not_at_all(moment):
    """It gives its rows back, and then its slot."""
    calls = 0

    def read_word(start):
        nonlocal calls
        calls += 1
        turn = 1 if calls <= moment else 2
        return turn.to_bytes(8, sys.byteorder)

    found = page_of(2, row(1, 1, 100), read_word=read_word)
    assert [worker.statistics.sent_bytes for worker in found.workers] in ([], [111])


def test_a_name_of_any_bytes_can_be_printed(tmp_path):
    source = r"""
    from script import PRELUDE
    exec(PRELUDE)
    import ctypes
    from ucp._commands import main
    from ucp._observe import page

    PR_SET_NAME = 15
    ctypes.CDLL(None).prctl(PR_SET_NAME, b"a\xff\x1b[2J\n\xc3\xa9", 0, 0, 0)

    async def use():
        with ucp.trace(sys.argv[1]):
            await ping_pong()
            pid = str(os.getpid())
            assert main.main(["top", "--once", "--interval", "0.01", pid]) == 0
            ucp.dump(sys.argv[1] + ".dump")

    print(page.name_of(os.getpid()))
    assert ucp.stats()["name"] == page.name_of(os.getpid())
    asyncio.run(use())
    """
    path = tmp_path / "trace"
    text = run_script(
        source,
        path,
        b"\xff\x1b\n",  # in the command
        PYTHONPATH=os.path.dirname(os.path.dirname(__file__)),
    )
    name = "a\ufffd?[2J?\xe9"
    assert text.splitlines()[0] == name
    assert all(line.isprintable() for line in text.splitlines())
    events = json.loads(path.read_text())["traceEvents"]
    assert events[0]["args"]["name"].startswith(name)


async def test_a_send_that_waits_for_credit_is_counted():
    async with connected_pair() as (client, server):
        requests = [client.send(b"") for _ in range(5000)]
        numbers = client.worker.statistics
        assert numbers.pending_sends >= numbers.waiting_sends > 0
        assert numbers.waiting_sends == client.statistics.waiting_sends
        assert numbers.pending_bytes == client.statistics.pending_bytes
        requests[-1].cancel()
        for _ in requests[:-1]:
            await server.recv(bytearray())
        for request in requests[:-1]:
            await request
        numbers = client.worker.statistics
        assert (numbers.pending_sends, numbers.pending_bytes) == (0, 0)
        assert numbers.waiting_sends == 0


async def test_counters_of_closed_endpoints_stay_in_the_sums():
    async with connected_pair() as (client, server):
        sending = client.send(bytes(1 << 20))
        await server.recv(bytearray(1 << 20))
        await sending
        worker = client.worker
    numbers = worker.statistics
    assert (numbers.sent_messages, numbers.sent_bytes) == (1, 1 << 20)
    assert numbers.rendezvous == 1


def test_no_such_process():
    with pytest.raises(ProcessLookupError, match=r"there is no process 4194304 on"):
        page.read(4194304)


def test_a_process_without_ucp_has_no_counters():
    with subprocess.Popen(["sleep", "60"]) as other:
        assert page.read(other.pid) == []
        other.kill()


def test_counters_go_with_their_worker_and_a_child_has_its_own():
    run_script(
        """
        import ucp
        from script import PRELUDE
        exec(PRELUDE)
        from ucp._observe import page

        def read():
            return [each for one in page.read(os.getpid()) for each in one.workers]

        def child():
            assert read() == []
            assert ucp.stats()["workers"] == []
            asyncio.run(look())

        async def look():
            await ping_pong()
            [worker] = read()
            assert worker.statistics.sent_messages == 2

        async def main():
            await ping_pong()
            [before] = read()
            end_of(in_child(child))
            assert read()[0].statistics.sent_messages == 2

        asyncio.run(main())
        assert read() == []
        assert not [fd for fd in os.listdir("/proc/self/fd")
                    if page._is_page(page.Path("/proc/self/fd", fd))]
        """,
        PYTHONPATH=os.path.dirname(os.path.dirname(__file__)),
    )


@pytest.mark.parametrize("why", ["off", "limit"])
def test_without_a_page_the_counters_are_there_all_the_same(why):
    run_script(
        """
        from script import PRELUDE
        exec(PRELUDE)
        import resource
        from ucp._observe import page

        if sys.argv[1] == "limit":
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
            ucp.init(options={"TLS": "tcp"})

        async def main():
            await ping_pong()
            assert page.read(os.getpid()) == []
            [worker] = ucp.stats()["workers"]
            assert worker["statistics"]["sent_messages"] == 2
            assert "peer_host=" not in ucp.metrics()

        asyncio.run(main())
        assert ucp.stats()["workers"] == []
        """,
        why,
        UCP_STATS="0" if why == "off" else "1",
        PYTHONPATH=os.path.dirname(os.path.dirname(__file__)),
    )


def test_what_is_no_page_of_this_version_is_not_read():
    header = page._HEADER.pack(
        *(b"ucpstats", 3, 4096, 512, 1, 1, 0, 0, 0, 1, b"0.1.0"),
        *(0, 0, 0, b"number,begun_ns,drained"),
    )
    whole = header.ljust(4096 + 512, b"\0")
    assert page._read_memory(1, memoryview(whole)) is None
    assert page._read_memory(1, memoryview(whole[:100])) is None
    assert page._read_memory(1, memoryview(b"x" * len(whole))) is None


def test_a_page_of_another_version_of_the_numbers_is_read():
    names = b"number,begun_ns,drained,sent_messages,novel"
    header = page._HEADER.pack(
        *(b"ucpstats", 1, 4096, 512, 1, 7, 1000, 100, 5 * 10**9, 10, b"9.9"),
        *(0, 0, 0, names),
    )
    slot = b"".join(
        number.to_bytes(8, "little") for number in (1, 3, 2 * 10**9, 110, 5, 6)
    )
    whole = header.ljust(4096, b"\0") + slot.ljust(512, b"\0")
    process = page._read_memory(7, memoryview(whole))
    [worker] = process.workers
    assert (process.version, worker.number, worker.started) == ("9.9", 3, 2.0)
    assert worker.drained == 6.0
    assert worker.statistics.sent_messages == 5
    assert worker.statistics.loans == 0
    # Its slot changes hands while it is read.
    turns = {4096: (3).to_bytes(8, "little")}
    assert page._read_memory(7, memoryview(whole), turns.get).workers == ()


@pytest.mark.parametrize(
    ("slot_size", "ticks", "names"),
    [
        (0, 10, b"number,begun_ns,drained"),
        (511, 10, b"number,begun_ns,drained"),
        (24, 10, b"number,begun_ns,drained"),
        (512, 0, b"number,begun_ns,drained"),
        (512, 10, b"begun_ns,drained"),
    ],
)
def test_a_page_that_lies_is_not_read(slot_size, ticks, names):
    header = page._HEADER.pack(
        *(b"ucpstats", 1, 4096, slot_size, 1, 7, 1, 1, 1, ticks, b"9"),
        *(0, 0, 0, names),
    )
    whole = header.ljust(4096, b"\0") + (1).to_bytes(8, "little") * 64
    assert page._read_memory(7, memoryview(whole)) is None
