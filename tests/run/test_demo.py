# SPDX-License-Identifier: BSD-3-Clause
# tests: ucp/main ucp/streams
"""``python -m ucp``, as a user runs it."""

import asyncio
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ucp._commands import main
from ucp._run import demo, streams
from ucp.testing import connected_pair


def ucp_command(*arguments, **env):
    return subprocess.run(
        [sys.executable, "-P", "-m", "ucp", *arguments],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize(("tls", "lane"), [("all", "(sysv|posix)/"), ("tcp", "tcp/")])
def test_the_demo_verifies_and_measures(tls, lane):
    done = ucp_command("demo", UCX_TLS=tls)
    assert (done.returncode, done.stderr) == (0, "")
    assert "6 dtypes x 7 sizes: every byte verified" in done.stdout
    row = r"^ +16 MiB( +[\d,]+\.\d\d){2} +\d+\.\d x +\d+\.\d+$"
    assert re.search(row, done.stdout, re.M)
    assert re.search(rf"^lanes: .*{lane}", done.stdout, re.M)


def test_the_demo_says_when_it_is_too_slow():
    done = ucp_command("demo", "--timeout", "0.01")
    assert done.returncode == 1
    assert "demo not done in 0.01 s\n" in done.stderr


async def test_bytes_that_streams_change_are_noticed():
    async with streams.listen() as listener, connected_pair() as (client, server):
        here = await streams.Streams.connect(listener.port)
        there = await listener.accept()

        async def change():
            await server.recv_obj()
            await server.send(b"!")
            there._writer.write(await there._reader.readexactly(3) and b"abx")

        task = asyncio.create_task(change())
        array = np.frombuffer(b"abc", np.uint8)
        with pytest.raises(demo.DemoError, match=r"^3 bytes came back changed by asyn"):
            await demo._exchange_by_streams(client, here, array, 1)
        await task
        here.close()


async def test_streams_take_one_connection():
    async with streams.listen() as listener:
        first = await streams.Streams.connect(listener.port)
        await listener.accept()
        second = await streams.Streams.connect(listener.port)
        assert await second._reader.read() == b""  # closed by the listener
        first.close()
        second.close()


def test_the_demo_tells_that_a_stream_has_failed(monkeypatch, capsys):
    async def fail(max_size, timeout):
        raise asyncio.IncompleteReadError(b"", 5)

    monkeypatch.setattr(demo, "_parent", fail)
    assert main.main(["demo"]) == 1
    assert capsys.readouterr().err.startswith("demo failed: asyncio's streams: 0 bytes")


def test_the_demos_child_does_not_outlive_its_parent():
    parent = subprocess.Popen(
        [sys.executable, "-P", "-m", "ucp", "demo"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    children = f"/proc/{parent.pid}/task/{parent.pid}/children"
    while not (child := Path(children).read_text().split()):
        assert parent.poll() is None
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    assert parent.stdout.read() == b""  # until the child has closed it too
    parent.stdout.close()
    with pytest.raises(ProcessLookupError):
        while True:
            os.kill(int(child[0]), 0)


def test_info_names_ucx_transports_and_interfaces():
    done = ucp_command("info")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"^UCX +\d+\.\d+\.\d+ \(", done.stdout, re.M)
    assert re.search(r"^ +tcp .*\blo\b", done.stdout, re.M)
    assert re.search(r"^interfaces +lo +127\.0\.0\.1", done.stdout, re.M)
