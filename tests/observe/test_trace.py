# SPDX-License-Identifier: BSD-3-Clause
# tests: ucp/timeline util/trace
"""Traces are valid, whatever happens while they are recorded."""

import asyncio
import collections
import json
import os
import socket
import subprocess
import sys
import textwrap

import pytest
from script import run_script
from worlds import good_world

import ucp
from ucp.testing import connected_pair


def checked(path):
    """The events of the file, which is a valid trace."""
    whole = json.loads(path.read_text())
    events = whole["traceEvents"]
    last = collections.defaultdict(float)
    spans = collections.defaultdict(list)
    for event in events:
        if event["ph"] == "M":
            assert event["name"] in ("process_name", "thread_name")
            continue
        track = event["pid"], event["tid"]
        assert event["ts"] >= last[track]
        last[track] = event["ts"]
        if event["ph"] == "X":
            assert event["dur"] >= 0
            continue
        stack = spans[event["cat"], event["id"]]
        if event["ph"] == "b":
            stack.append(event["name"])
        else:
            assert event["ph"] == "e"
            assert stack.pop() == event["name"]
    assert [names for names in spans.values() if names] == []
    return whole


def begins(whole, name):
    return [
        event
        for event in whole["traceEvents"]
        if event["ph"] == "b" and event["name"] == name
    ]


async def test_operations_are_spans_with_what_they_are(tmp_path):
    with ucp.trace(tmp_path / "t.json"):
        async with connected_pair() as (client, server):
            await client.send(b"four", tag=7)
            await server.recv(bytearray(4), tag=7)
            receiving = server.recv(bytearray(1 << 20))
            await client.send(bytes(1 << 20))
            await receiving
    whole = checked(tmp_path / "t.json")
    short, long = begins(whole, "send")
    assert (short["args"]["bytes"], short["args"]["tag"]) == (4, 7)
    assert long["args"]["bytes"] == 1 << 20
    assert long["args"]["how"] in ("rendezvous", "loan")
    assert [each["args"]["bytes"] for each in begins(whole, "recv")] == [4, 1 << 20]
    assert short["args"]["endpoint"] != begins(whole, "recv")[0]["args"]["endpoint"]
    assert len(begins(whole, "connect")) == len(begins(whole, "accept")) == 1
    names = {event["name"] for event in whole["traceEvents"]}
    assert "wake-up" in names
    other = whole["otherData"]
    assert (other["dropped_events"], other["pid"]) == (0, os.getpid())
    assert other["clock"] == "CLOCK_MONOTONIC"


async def test_what_is_under_way_at_either_end_has_an_end(tmp_path):
    async with connected_pair() as (client, server):
        before = server.recv(bytearray(4))
        trace = ucp.trace(tmp_path / "t.json").start()
        await client.send(b"four")
        await before
        cancelled = server.recv(bytearray(4))
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        await client.ping()
        after = server.recv(bytearray(4))
        trace.stop()
        await client.send(b"four")
        await after
    whole = checked(tmp_path / "t.json")
    first, second = begins(whole, "recv")  # that of before is not known
    assert first["args"]["error"] == "UCXCanceled"
    assert second["args"]["unfinished"]


async def test_failed_operations_say_so(tmp_path):
    with ucp.trace(tmp_path / "t.json"):
        async with connected_pair() as (client, server):
            receiving = server.recv(bytearray(4))
            client.abort()
            with pytest.raises(ucp.UCXError):
                await receiving
    [event] = begins(checked(tmp_path / "t.json"), "recv")
    assert event["args"]["error"].startswith("UCX")


async def test_waits_for_credit_lie_within_their_sends(tmp_path):
    with ucp.trace(tmp_path / "t.json"):
        async with connected_pair() as (client, server):
            sends = [client.send(b"") for _ in range(5000)]
            for _ in sends:
                await server.recv(bytearray())
            for send in sends:
                await send
    whole = checked(tmp_path / "t.json")
    waits = begins(whole, "waits for credit")
    assert waits
    assert {each["id"] for each in waits} <= {
        each["id"] for each in begins(whole, "send")
    }


def test_collectives_have_rank_and_number(tmp_path):
    async def main(comm):
        await comm.barrier()
        await comm.barrier()

    with ucp.trace(tmp_path / "t.json"):
        good_world(2, main)
    found = begins(checked(tmp_path / "t.json"), "barrier")
    assert sorted(each["args"]["rank"] for each in found) == [0, 0, 1, 1]
    assert len({each["args"]["number"] for each in found}) == 2


async def test_the_last_events_are_kept_and_the_others_counted(tmp_path):
    with ucp.trace(tmp_path / "t.json", max_events=64):
        async with connected_pair() as (client, server):
            for _ in range(100):
                await client.send(b"four")
                await server.recv(bytearray(4))
    whole = checked(tmp_path / "t.json")
    assert whole["otherData"]["dropped_events"] > 100
    assert begins(whole, "send")


def test_a_file_that_cannot_be_written_raises_at_once(tmp_path):
    with pytest.raises(FileNotFoundError):
        ucp.trace(tmp_path / "none" / "t.json").start()
    with ucp.trace(tmp_path / "t.json"):  # nothing runs
        pass


def test_two_traces_at_once_raise(tmp_path):
    with ucp.trace(tmp_path / "a.json") as trace:
        with pytest.raises(RuntimeError, match=r"is being written to .*/a\.json; stop"):
            ucp.trace(tmp_path / "b.json").start()
        with pytest.raises(RuntimeError, match=r"stop it before another begins$"):
            trace.start()
    trace.stop()
    assert not (tmp_path / "b.json").exists()


@pytest.mark.parametrize("number", [0, (1 << 26) + 1])
def test_numbers_of_events_have_limits(tmp_path, number):
    with pytest.raises(ValueError, match=r"^a trace has between 1 and 67108864 ev"):
        ucp.trace(tmp_path / "t.json", max_events=number).start()
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "t.json").write_text("mine")
    with pytest.raises(ValueError, match="a trace has between"):
        ucp.trace(tmp_path / "t.json", max_events=number).start()
    assert (tmp_path / "t.json").read_text() == "mine"


def test_without_memory_the_error_says_how_much_was_asked_for(tmp_path):
    run_script(
        """
        import resource, sys, ucp

        resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
        try:
            ucp.trace(sys.argv[1], max_events=1 << 26).start()
        except MemoryError as exc:
            assert "no memory for a trace of 67108864 events" in str(exc)
            with ucp.trace(sys.argv[1], max_events=8):
                pass
        """,
        str(tmp_path / "t.json"),
    )
    checked(tmp_path / "t.json")


def test_a_trace_is_written_after_an_exception(tmp_path):
    with pytest.raises(KeyError), ucp.trace(tmp_path / "t-%p.json"):
        raise KeyError
    checked(tmp_path / f"t-{os.getpid()}.json")


def test_a_program_is_traced_by_the_environment_with_its_children(tmp_path):
    run_script(
        """
        from script import PRELUDE
        exec(PRELUDE)

        async def main():
            await ping_pong()
            end_of(os.posix_spawn("/bin/true", ["true"], {}))

        def child():
            asyncio.run(ping_pong())
            import atexit
            atexit._run_exitfuncs()

        asyncio.run(main())
        end_of(in_child(child))
        """,
        UCP_TRACE=str(tmp_path / "t-%p.json"),
        PYTHONPATH=os.path.dirname(os.path.dirname(__file__)),
    )
    paths = sorted(tmp_path.iterdir())
    assert len(paths) == 2
    for path in paths:
        assert len(begins(checked(path), "send")) == 2
    ucp.trace.join(paths, tmp_path / "all.json")
    whole = checked(tmp_path / "all.json")
    assert len(begins(whole, "send")) == 4
    assert len({event["pid"] for event in whole["traceEvents"]}) == 2


CHILDREN = """
import multiprocessing, os, signal, sys, warnings
warnings.filterwarnings("ignore", ".* is multi-threaded", DeprecationWarning)
{imports}
signal.alarm(50)

def exchange():
    import asyncio
    from ucp.testing import connected_pair

    async def main():
        async with connected_pair() as (client, server):
            await client.send(b"four")
            await server.recv(bytearray(4))

    asyncio.run(main())

def fail():
    exchange()
    os.dup2(os.open("/dev/null", os.O_WRONLY), 2)
    raise ValueError

if __name__ == "__main__":
    context = multiprocessing.get_context({how!r})
    for target in (exchange, fail, os.getpid):
        child = context.Process(target=target)
        child.start()
        child.join()
        assert child.exitcode == (target is fail)
"""


@pytest.mark.parametrize(
    ("how", "imports"),
    [("fork", "import ucp"), ("forkserver", ""), ("forkserver", "import ucp")],
)
def test_children_of_multiprocessing_are_traced(tmp_path, how, imports):
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(CHILDREN).format(how=how, imports=imports))
    (tmp_path / "traces").mkdir()
    run_script(
        "import runpy, sys; runpy.run_path(sys.argv[1], run_name='__main__')",
        str(program),
        UCP_TRACE=str(tmp_path / "traces/t-%p.json"),
    )
    whole = [checked(path) for path in (tmp_path / "traces").iterdir()]
    assert sum(len(begins(each, "send")) for each in whole) == 2


def test_a_relative_path_is_that_of_the_begin_of_the_program(tmp_path):
    run_script(
        """
        from script import PRELUDE
        exec(PRELUDE)

        def child():
            asyncio.run(ping_pong())
            import atexit
            atexit._run_exitfuncs()

        os.chdir("/")  # as a service does
        end_of(in_child(child))
        """,
        UCP_TRACE="t-%p.json",
        PYTHONPATH=os.path.dirname(os.path.dirname(__file__)),
        cwd=tmp_path,
    )
    assert len([checked(path) for path in tmp_path.iterdir()]) == 2


def test_a_forked_child_without_events_has_no_file(tmp_path):
    run_script(
        """
        from script import PRELUDE
        exec(PRELUDE)

        end_of(in_child(lambda: None))  # by os._exit()
        pid = os.fork()
        if pid == 0:
            sys.exit()
        end_of(pid)
        """,
        UCP_TRACE=str(tmp_path / "t-%p.json"),
        PYTHONPATH=os.path.dirname(os.path.dirname(__file__)),
    )
    [path] = tmp_path.iterdir()
    checked(path)


def test_processes_do_not_write_into_one_file(tmp_path):
    source = """
    import subprocess, sys, ucp
    if sys.argv[1:]:
        done = subprocess.run([sys.executable, "-P", "-c", "import ucp"],
                              capture_output=True, text=True)
        print(done.stderr)
    """
    path = tmp_path / "t.json"
    path.write_text("an old one " * 1000)
    text = run_script(source, "has a child", UCP_TRACE=str(path))
    assert f"UCP_TRACE='{path}' has no effect: " in text
    assert "another process is about to write its trace into this file; with %p" in text
    checked(path)
    run_script(source, UCP_TRACE=str(path))
    checked(path)


def test_a_child_that_lives_on_does_not_keep_the_file(tmp_path):
    run_script(
        """
        from script import PRELUDE
        exec(PRELUDE)
        gate, end = os.pipe()

        def child():
            os.close(end)
            os.read(gate, 1)

        trace = ucp.trace(sys.argv[1]).start()
        pid = in_child(child)
        trace.stop()
        trace.start().stop()
        os.close(end)
        end_of(pid)
        """,
        str(tmp_path / "t.json"),
        PYTHONPATH=os.path.dirname(os.path.dirname(__file__)),
    )
    checked(tmp_path / "t.json")


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/proc", "[Errno 21] Is a directory: '/proc'"),
        ("/dev/full", "[Errno 28] No space left on device"),  # at the end
    ],
)
def test_a_path_that_cannot_be_written_is_warned_of(path, why):
    done = subprocess.run(
        [sys.executable, "-P", "-c", "import ucp"],
        env={**os.environ, "UCP_TRACE": path},
        capture_output=True,
        text=True,
        timeout=50,
        check=True,
    )
    assert f"UCXWarning: UCP_TRACE='{path}' has no effect: {why}" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_child_does_not_write_the_trace_of_its_parent(tmp_path):
    run_script(
        """
        from script import PRELUDE
        exec(PRELUDE)

        def child():
            trace.stop()
            asyncio.run(ping_pong())
            with ucp.trace(sys.argv[1] + ".child") as own:
                asyncio.run(ping_pong())

        with ucp.trace(sys.argv[1]) as trace:
            asyncio.run(ping_pong())
            end_of(in_child(child))
        """,
        str(tmp_path / "t.json"),
        PYTHONPATH=os.path.dirname(os.path.dirname(__file__)),
    )
    for name in ("t.json", "t.json.child"):
        assert len(begins(checked(tmp_path / name), "send")) == 2


def test_traces_of_several_hosts_are_joined_by_the_time_of_day(tmp_path):
    for host, offset in (("a", 1000), ("b", 5000)):
        event = {"ph": "X", "name": "x", "pid": 1, "tid": 1, "ts": 10.0, "dur": 1.0}
        other = {"host": host, "realtime_offset_ns": offset}
        text = json.dumps({"otherData": other, "traceEvents": [event]})
        (tmp_path / host).write_text(text)
    ucp.trace.join([tmp_path / "b", tmp_path / "a"], tmp_path / "all")
    later, sooner = checked(tmp_path / "all")["traceEvents"][::-1]
    assert (sooner["ts"], later["ts"]) == (6.0, 10.0)
    assert sooner["pid"] != later["pid"]
    with pytest.raises(ValueError, match=r"^there are no traces to join: paths is em"):
        ucp.trace.join([], tmp_path / "none")
    with pytest.raises(TypeError, match=r"^paths is a list of paths of traces, not 'a"):
        ucp.trace.join("a", tmp_path / "none")


async def test_the_host_is_named(tmp_path):
    with ucp.trace(bytes(tmp_path / "t.json")):
        pass
    assert checked(tmp_path / "t.json")["otherData"]["host"] == socket.gethostname()


def test_a_file_that_is_no_trace_is_named(tmp_path):
    (tmp_path / "empty.json").touch()
    with pytest.raises(ValueError, match=r"/empty\.json is no trace of ucp: "):
        ucp.trace.join([tmp_path / "empty.json"], tmp_path / "all")


async def test_two_traces_of_one_process_are_joined(tmp_path):
    paths = [tmp_path / "a.json", tmp_path / "b.json"]
    for path in paths:
        with ucp.trace(path):
            async with connected_pair() as (client, server):
                await client.send(b"four")
                await server.recv(bytearray(4))
    ucp.trace.join(paths, tmp_path / "all.json")
    found = begins(checked(tmp_path / "all.json"), "send")
    assert len({event["id"] for event in found}) == 2
