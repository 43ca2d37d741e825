# SPDX-License-Identifier: BSD-3-Clause
"""``python -m ucp top``: processes that use ucp, and what they are doing."""

import argparse
import json
import os
import subprocess
import sys

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
    monkeypatch.setattr(top.time, "sleep", lambda seconds: None)
    assert top.run(options("7")) == 0
    assert "there is no process 7" in capsys.readouterr().err


@pytest.mark.parametrize("number", [(0, "0"), (12.34, "12.3"), (1234, "1.23k")])
def test_numbers_are_short(number):
    assert top._short(number[0]) == number[1]


@pytest.mark.parametrize("argument", ["x", "0", "-1", "--interval=0"])
def test_wrong_arguments_are_told(argument, capsys):
    with pytest.raises(SystemExit):
        options(argument)
    assert "error: " in capsys.readouterr().err
