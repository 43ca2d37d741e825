# SPDX-License-Identifier: BSD-3-Clause
# tests: benchmarks/backends benchmarks/base benchmarks/benchmarks benchmarks/send_recv
# tests: benchmarks/tornado benchmarks/ucp_async benchmarks/ucp_core benchmarks/utils
"""ucx-py's benchmark programs, and clusters of processes."""

import json
import os
import socket
import subprocess
import sys

import pytest
import zygote

from ucp.benchmarks import send_recv
from ucp.benchmarks.utils import (
    _run_cluster_server,
    _run_cluster_workers,
    run_cluster_workers,
)

COMMAND = [sys.executable, "-P", "-m", "ucp.benchmarks.send_recv"]
SMALL = ["--server-address", "127.0.0.1", "--n-iter", "3", "--n-warmup-iter", "1"]


def run(*options: str) -> dict[str, str]:
    """The report's rows."""
    done = zygote.run(
        [*COMMAND, *SMALL, *options], capture_output=True, text=True, timeout=50
    )
    assert (done.returncode, done.stderr) == (0, "")
    rows = (line.split(" | ") for line in done.stdout.splitlines() if " | " in line)
    return {key.strip(): value for key, value in rows}


@pytest.mark.parametrize(
    "options",
    [
        ["--reuse-alloc"],
        ["--enable-am"],
        ["--no-error-handling"],
        ["--backend", "ucp-core"],
        ["--backend", "ucp-core", "--reuse-alloc"],
        ["--backend", "ucp-core", "--enable-am"],
        ["--backend", "ucp-core", "--delay-progress", "--max-outstanding", "4"],
        ["--backend", "tornado"],
    ],
    ids=" ".join,
)
def test_round_trips_are_measured(options):
    if "tornado" in options:
        pytest.importorskip("tornado")
    rows = run("--n-bytes", "100 kB", *options)
    assert rows["Bytes"] == "97.66 KiB"
    assert rows["Bandwidth (median)"].endswith("B/s")
    assert rows["Latency (average)"].endswith(" ns")
    assert [key for key in rows if key.isdigit()] == ["0", "1", "2"]


def test_server_and_client_may_be_two_commands():
    server = zygote.Popen(
        [*COMMAND, *SMALL, "--n-bytes", "8", "--server-only"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        port = server.stdout.readline().strip().rpartition(":")[2]
        rows = run("--n-bytes", "8", "--client-only", "--port", port)
        assert rows["Iterations"] == "Bandwidth, Latency"
        assert server.wait() == 0
    finally:
        server.kill()
        server.wait()
        server.stdout.close()


def test_a_server_that_cannot_start_ends_the_command():
    with socket.create_server(("0.0.0.0", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = zygote.run(
            [*COMMAND, *SMALL, "--port", port],
            capture_output=True,
            text=True,
            timeout=50,
        )
    assert done.returncode == 1
    assert "UCXBusy" in done.stderr


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--cuda-profile"], "--cuda-profile requires --object_type=cupy or rmm"),
        (["--rmm-managed-memory"], "--rmm-managed-memory requires --object_type=rmm"),
        (
            ["--backend", "tornado", "--object_type", "cupy"],
            "backend tornado sends no arrays of cupy",
        ),
        (["--delay-progress"], "--delay-progress requires --backend=ucp-core"),
        (["--client-only"], "--client-only requires --port"),
        (["--backend", "mpi"], "invalid choice: 'mpi'"),
    ],
)
def test_options_that_contradict_are_refused(capsys, options, text):
    if "tornado" in options:
        pytest.importorskip("tornado")
    with pytest.raises(SystemExit):
        send_recv.parse_args(options)
    assert text in capsys.readouterr().err


def sum_of_ranks(rank, eps, args):
    assert rank not in eps
    return args + sum(eps)


async def send_to_all(rank, eps, args):
    for ep in eps.values():
        await ep.send(bytes([rank]))
    received = bytearray(len(eps))
    for place, other in enumerate(sorted(eps)):
        await eps[other].recv(memoryview(received)[place : place + 1])
    return list(received)


def fail(rank, eps, args):
    raise ValueError(f"worker {rank}")


def run_cluster(tmp_path, func, n_workers=3, args=None):
    """The server's process, and the workers' results by rank."""
    file = str(tmp_path / "server")
    server, results = _run_cluster_server(file, n_workers)
    while not os.path.exists(file) or not os.path.getsize(file):
        assert server.is_alive()
    workers = _run_cluster_workers(file, n_workers, n_workers, 0, func, args)
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    ordered = [results.get() for _ in range(n_workers)]
    server.join()
    assert server.exitcode == 0
    return ordered


def test_workers_are_connected_with_each_other(tmp_path):
    assert run_cluster(tmp_path, send_to_all) == [[1, 2], [0, 2], [0, 1]]


def test_a_worker_may_be_a_function_and_gets_arguments(tmp_path):
    assert run_cluster(tmp_path, sum_of_ranks, args=10) == [13, 12, 11]


def test_a_single_worker_needs_no_peers(tmp_path):
    assert run_cluster(tmp_path, sum_of_ranks, n_workers=1, args=5) == [5]


def test_a_worker_that_fails_ends_the_server(tmp_path, capfd):
    file = str(tmp_path / "server")
    server, _ = _run_cluster_server(file, 1)
    while not os.path.exists(file) or not os.path.getsize(file):
        assert server.is_alive()
    with open(file) as text:
        info = json.load(text)
    with pytest.raises(RuntimeError, match=r" ended with exit code 1$"):
        run_cluster_workers(info, 1, 1, 0, fail)
    server.join()
    assert server.exitcode == 1
    assert "ValueError: worker 0" in capfd.readouterr().err


def test_what_is_no_server_is_refused():
    with pytest.raises(ValueError, match=r"^server_info is .*, not 7$"):
        _run_cluster_workers(7, 1, 1, 0, fail)
