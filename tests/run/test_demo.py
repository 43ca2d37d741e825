# SPDX-License-Identifier: BSD-3-Clause
# tests: ucp/main ucp/streams
"""``python -m ucp`` and the examples, as a user runs them."""

import asyncio
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from paths import EXAMPLES
from script import run_script

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


def test_the_echo_examples_talk_to_each_other():
    server = subprocess.Popen(
        [sys.executable, "-P", EXAMPLES / "echo_server.py", "0"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        port = server.stdout.readline().split(":")[-1].strip()
        client = subprocess.run(
            [sys.executable, "-P", EXAMPLES / "echo_client.py", "127.0.0.1", port],
            capture_output=True,
            text=True,
        )
        assert (client.returncode, client.stderr) == (0, "")
        assert client.stdout == "5 messages came back\n"
    finally:
        server.terminate()
        server.wait()
        server.stdout.close()


def test_the_numpy_example_runs():
    source = (EXAMPLES / "numpy_roundtrip.py").read_text()
    assert "same" in run_script(source)


CACHED = [(7, 1000), (8, 33), (9, 2500)]


def run_both(name):
    """The output of an example's waiting side and of its connecting side."""
    program = [sys.executable, "-P", EXAMPLES / name]
    server = subprocess.Popen(
        program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        host, port = server.stdout.readline().split()[-1].split(":")
        client = subprocess.run([*program, host, port], capture_output=True, text=True)
        out, err = server.communicate()
        assert (client.returncode, client.stderr) == (0, "")
        assert (server.returncode, err) == (0, "")
        return out.splitlines(), client.stdout.splitlines()
    finally:
        server.kill()
        server.communicate()


def test_the_address_example_says_hello():
    assert run_both("hello_address.py") == (["hello world"], ["HELLO WORLD"])


def test_the_probe_example_receives_every_size():
    out, _ = run_both("probe.py")
    assert out == [
        f"{size} bytes from {sender}: intact"
        for sender, size in enumerate((0, 5, 10_000, 3_000_000))
    ]


def test_the_put_get_example_works_in_the_peers_memory():
    out, client = run_both("put_get.py")
    assert out == ["first 999999 last 0 counter 10"]
    assert client == ["sum 499999500000"]


def test_the_low_level_example_answers():
    assert run_both("low_level_tags.py") == ([], ["12 squared is 144"])


def test_the_low_level_get_example_reads_every_block():
    assert run_both("low_level_get.py") == (
        [],
        ["blocks of 3000 0 150000 5 bytes", "intact"],
    )


def test_the_cache_example_moves_its_pages():
    assert run_both("kv_cache.py") == (
        [],
        [f"request {n}: {count} pages are here" for n, count in CACHED],
    )


def test_the_all_pairs_example_sums():
    done = subprocess.run(
        [sys.executable, "-P", EXAMPLES / "all_pairs.py", "5"],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "5 processes, 25 endpoints: each has the sum {15}\n"
