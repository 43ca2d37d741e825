# SPDX-License-Identifier: BSD-3-Clause
# tests: ucp/keys
"""``python -m ucp top``: processes that use ucp, and what they are doing."""

import argparse
import fcntl
import io
import json
import os
import signal
import subprocess
import sys
import termios

import pytest
from command import ucp_command

import ucp
from ucp._commands import top
from ucp.testing import connected_pair


def options(*arguments):
    parser = argparse.ArgumentParser()
    top.add_arguments(parser)
    return parser.parse_args(arguments)


async def test_a_process_is_shown_by_another():
    async with connected_pair():
        pid = str(os.getpid())
        done = ucp_command("top", "--once", "--json", "--interval", "0.05", pid)
    assert (done.returncode, done.stderr) == (0, "")
    table = json.loads(done.stdout)
    row = next(row for row in table["workers"] if row["endpoints"] >= 2)
    assert (row["pid"], row["version"]) == (os.getpid(), ucp.__version__)
    assert row["sent_messages_per_second"] == 0
    assert row["command"].startswith("python")


async def test_rates_are_those_of_the_time_between(capsys):
    async with connected_pair() as (client, server):
        before = top._look([os.getpid()])
        for _ in range(20):
            await client.send(bytes(10))
            await server.recv(bytearray(10))
        now = top._look([os.getpid()])
    old = {worker.key: worker for worker in before.workers}
    rows = [top._row(each, old.get(each.key), 2.0) for each in now.workers]
    assert max(row["sent_messages_per_second"] for row in rows) >= 10
    assert max(row["sent_bytes_per_second"] for row in rows) >= 100
    top._show(rows, options())
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["PID", "WORKER", "OUT/s"]
    assert len(lines) == len(rows)
    assert all(line.split()[0] == str(os.getpid()) for line in lines)


async def test_all_processes_of_this_user_are_found():
    async with connected_pair():
        assert os.getpid() in {w.process.pid for w in top._look([]).workers}


def test_a_process_that_is_none_is_told():
    done = ucp_command("top", "2147483647")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "python -m ucp top: there is no process 2147483647 on this host\n"
    )


OTHERS = {
    "pass": "does not use ucp",
    "import ucp": "has no counters: it has made no worker yet",
    "import os; os.write(os.memfd_create('ucp-stats'), b'x' * 4096)": (
        "uses another version of ucp"
    ),
}


@pytest.mark.parametrize("source", OTHERS)
def test_a_process_without_counters_is_told(source):
    program = f"{source}\nprint(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-P", "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        process.stdout.readline()
        (text,) = top._look([process.pid]).errors.values()
        process.kill()
    assert f"process {process.pid} (" in text
    assert OTHERS[source] in text


def test_a_process_of_another_user_is_told(monkeypatch):
    def refuse(pid):
        raise PermissionError(13, "its counters are for its own user and root")

    monkeypatch.setattr(top.page, "read", refuse)
    monkeypatch.setattr(top.os, "geteuid", lambda: 4711)
    pid = os.getpid()
    (text,) = top._look([pid]).errors.values()
    assert text.endswith("belongs to another user: run this as root, or as that")
    monkeypatch.setattr(top.os, "geteuid", lambda: 0)
    (text,) = top._look([pid]).errors.values()
    assert text.startswith("the system refuses permission to look at process")
    assert top._look([]).errors == {}


def test_top_ends_with_the_last_process(monkeypatch, capsys):
    looks = iter(
        [
            top._Sample(0.0, [], {}),
            top._Sample(1.0, [], {7: "there is no process 7 on this host"}),
        ]
    )
    monkeypatch.setattr(top, "_look", lambda pids: next(looks))
    assert top.run(options("7", "--interval", "0.01")) == 0
    assert "there is no process 7" in capsys.readouterr().err


@pytest.mark.parametrize("number", [(0, "0"), (12.34, "12.3"), (1234, "1.23k")])
def test_numbers_are_short(number):
    assert top._short(number[0]) == number[1]


@pytest.mark.parametrize("argument", ["x", "0", "-1", "--interval=0"])
def test_wrong_arguments_are_told(argument, capsys):
    with pytest.raises(SystemExit):
        options(argument)
    assert "error: " in capsys.readouterr().err


def row(**values):
    """A row of a worker that sends nothing."""
    found = {column.key: 0 for column in top._COLUMNS}
    command = "python3 -X dev -P /opt/program.py --with arguments"
    return {**found, "pid": 7, "worker": 1, "command": command, **values}


class Shown(io.StringIO):
    """Standard output of a terminal."""

    def isatty(self):
        return True


def shown(monkeypatch, rows, columns=80, sort="traffic"):
    """The lines of a table on a terminal of so many columns."""
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("LINES", "24")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(sys, "stdout", Shown())
    top._show(rows, options("--sort", sort))
    return sys.stdout.getvalue().removeprefix(top._CLEAR).splitlines()


def test_the_name_of_a_process_is_seen_on_a_narrow_terminal(monkeypatch):
    head, line = shown(monkeypatch, [row()])
    assert len(head) <= 80 and len(line) <= 80
    assert "  program.py --with" in line
    assert head.split()[-2:] == ["LOOKED", "COMMAND"] and "WAKE/s" not in head
    head, line = shown(monkeypatch, [row()], columns=150)
    assert "WAKE/s" in head and "EPS" in head
    assert line.endswith(" python3 -X dev -P /opt/program.py --with arguments")


def test_waits_for_credit_and_late_looks_are_marked(monkeypatch):
    rows = [
        row(pid=1, waiting_sends=3),
        row(pid=2, pending_sends=1, seconds_since_look=2.5),
        row(pid=3, seconds_since_look=2.5),  # has nothing to do
        row(pid=4, pending_sends=1, seconds_since_look=0.5),
    ]
    lines = shown(monkeypatch, rows)
    assert [line.split()[0] for line in lines[1:5] if "!" in line] == ["1", "2"]
    assert " 3! " in lines[1] and " 2.5 s! " in lines[2]
    assert lines[5].startswith("CREDIT!: sends wait until the peer reads")
    assert lines[6].startswith("LOOKED!: sends are pending")
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(
    ("sort", "pids"),
    [
        ("traffic", [3, 2, 1]),
        ("messages", [2, 1, 3]),
        ("pending", [1, 2, 3]),
        ("credit", [2, 1, 3]),
        ("looked", [3, 1, 2]),
        ("pid", [1, 2, 3]),
        ("name", [3, 2, 1]),
    ],
)
def test_rows_are_sorted(monkeypatch, sort, pids):
    rows = [
        row(
            pid=2,
            sent_messages_per_second=5.0,
            sent_bytes_per_second=5.0,
            waiting_sends=1,
            command="python -m b",
        ),
        row(
            pid=3,
            received_bytes_per_second=9.0,
            seconds_since_look=1.0,
            command="python a.py",
        ),
        row(pid=1, pending_sends=1, sent_bytes_per_second=None, command="c"),
    ]
    lines = shown(monkeypatch, rows, sort=sort)
    assert [int(line.split()[0]) for line in lines[1:4]] == pids


@pytest.mark.parametrize(
    ("command", "title"),
    [
        ("python -m ucp top", "ucp top"),
        ("python3.11 -W error /a/b.py c", "b.py c"),
        ("python -c pass", "python -c pass"),
        ("server --port 1", "server --port 1"),
        ("", ""),
    ],
)
def test_the_title_of_a_process_is_its_program(command, title):
    assert top._title(command) == title


def on_terminal(*arguments):
    """Start a command on a terminal: its process, and the other end."""
    controller, terminal = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "ucp", *arguments],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    return process, controller, terminal


def read_until(fd, text):
    found = b""
    while text not in found:
        found += os.read(fd, 1 << 16)
    return found


@pytest.mark.parametrize("end", ["q", signal.SIGTERM, signal.SIGINT])
def test_keys_sort_and_end_the_command(end):
    process, controller, terminal = on_terminal("top", "--interval", "30")
    before = termios.tcgetattr(terminal)
    read_until(controller, b"sorted by traffic")
    os.write(controller, b"s")
    read_until(controller, b"sorted by messages")
    if end == "q":
        os.write(controller, b"q")
    else:
        process.send_signal(end)
    assert process.wait() == (0 if end == "q" else -end)
    assert termios.tcgetattr(terminal) == before
    os.close(controller)
    os.close(terminal)
