# SPDX-License-Identifier: BSD-3-Clause
# tests: ucp/pair ucp/service ucp/chart
"""``python -m ucp bench``: what it measures, and between whom."""

import argparse
import asyncio
import importlib.util
import json

import pytest
from command import ucp_command

import ucp
from ucp._commands import bench, chart, pair, service
from ucp._commands.pair import Order, Pair, PairError, follow, lead, verify
from ucp.testing import connected_pair

QUICK = ("--sizes", "8", "--seconds", "0.01", "--rounds", "2")


def options(*arguments):
    parser = argparse.ArgumentParser()
    bench.add_arguments(parser)
    return parser.parse_args(arguments)


def test_two_processes_are_measured(tmp_path):
    file = tmp_path / "bench.json"
    tests = "latency,bandwidth,rate,allreduce"
    done = ucp_command("bench", *QUICK, "--tests", tests, "--json", file)
    assert (done.returncode, done.stderr) == (0, "")
    assert "between two processes of this host" in done.stdout
    assert "\nlatency: microseconds, half a round trip\n" in done.stdout
    report = json.loads(file.read_text())
    assert report["version"] == 1
    assert report["machine"]["ucp"] == ucp.__version__
    assert [each["test"] for each in report["results"]] == tests.split(",")
    for result in report["results"]:
        assert len(result["values"]) == 2
        assert min(result["values"]) <= result["best"] <= max(result["values"])
        assert result["best"] > 0


def test_ranks_are_measured():
    done = ucp_command(
        *("run", "-n", "3", "--no-prefix", "-m", "ucp", "bench", *QUICK),
        *("--tests", "latency,collective", "--json", "-"),
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["between"] == "3 ranks"
    assert [each["test"] for each in report["results"]] == ["latency", *pair.OPERATIONS]


def test_a_host_that_refuses_is_told(closed_port):
    done = ucp_command("bench", f"127.0.0.1:{closed_port}")
    assert done.returncode == 1
    assert done.stderr.startswith("python -m ucp bench: connect to 127.0.0.1:")
    assert "Traceback" not in done.stderr


async def test_a_peer_that_ends_in_a_test_is_told():
    async def leaves(ep):
        side = Pair(ep, 1)
        await side.next_order()
        await side.next_order()
        ep.abort()

    async with ucp.create_listener(leaves, host="127.0.0.1") as listener:
        report = bench.Report("nobody")
        with pytest.raises(ucp.UCXConnectionReset):
            await bench._lead_pair("127.0.0.1", listener.port, report, options(*QUICK))


@pytest.mark.parametrize("test", pair.TESTS)
async def test_every_test_ends_on_both_sides(test):
    async with connected_pair() as (client, server):
        leader, follower = Pair(client, 0), Pair(server, 1)
        task = asyncio.create_task(follow(follower))
        assert await lead(leader, Order(test, 100, 8, 4)) > 0
        await leader.tell(Order("end"))
        await task


async def test_bytes_that_come_back_changed_are_noticed():
    async def change(ep):
        await Pair(ep, 1).next_order()
        data = bytearray(100)
        await ep.recv(data)
        data[7] ^= 1
        await ep.send(data)

    async with connected_pair() as (client, server):
        task = asyncio.create_task(change(server))
        with pytest.raises(PairError, match=r"^byte 7 of 100 came back changed$"):
            await verify(Pair(client, 0), 100, 1)
        await task


@pytest.mark.parametrize(
    ("order", "why"),
    [
        (b"\xff", "what is no order"),
        (b"[" * 100_000, "what is no order"),
        (b"{}", "what is no order"),
        (b'{"test": "latency", "size": 1.5}', "what is no order"),
        (b'{"test": "latency", "size": true}', "what is no order"),
        (b'{"test": "format"}', "unknown test: 'format'"),
        (b'{"test": "latency", "size": 1073741825}', "too much"),
        (b'{"test": "latency", "count": 0}', "too much"),
        (b'{"test": "hello", "version": "9"}', "the peer has ucp 9, this process"),
    ],
)
async def test_an_order_that_makes_no_sense_is_refused(order, why, capsys):
    async with ucp.create_listener(service._serve_one, host="127.0.0.1") as listener:
        async with ucp.connect("127.0.0.1", listener.port) as ep:
            await ep.send_obj(order)
            answer = json.loads(bytes(await ep.recv_obj()))
            assert why in answer["error"]
            with pytest.raises(ucp.UCXCloseError):
                await ep.recv_obj()
    assert f"a peer was sent away: {answer['error']}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "sizes"), [("8", [8]), ("1k,2M", [1024, 2 << 20]), ("1G", [1 << 30])]
)
def test_sizes_have_units(text, sizes):
    assert options("--sizes", text).sizes == sizes


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--sizes", "8,x"), "not a size: 'X'"),
        (("--sizes", "0"), "not a size: '0'"),
        (("--sizes", "2G"), "2G is above 1G"),
        (("--sizes", "K"), "not a size: 'K'"),
        (("--tests", "speed"), "no test 'speed'; there are latency"),
        (("--seconds", "nan"), "not a number of seconds: 'nan'"),
        (("--rounds", "0"), "expected 1 to 10000, not '0'"),
        (("host",), "expected HOST:PORT, not 'host'"),
        (("host:70000",), "a port is at most 65535, not 70000"),
    ],
)
def test_wrong_arguments_are_told(arguments, why, capsys):
    with pytest.raises(SystemExit):
        options(*arguments)
    assert why in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "address"),
    [("13337", ("", 13337)), ("h:1", ("h", 1)), ("[fd00::2]:80", ("fd00::2", 80))],
)
def test_addresses_have_a_host_or_none(text, address):
    assert service.address(text) == address


def test_two_ways_at_once_are_refused(capsys):
    assert bench.run(options("--listen", "1", "host:1")) == 2
    assert "--listen or HOST:PORT, not both" in capsys.readouterr().err


def test_a_plot_without_matplotlib_is_refused_before_it_is_measured(
    monkeypatch, capsys
):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert bench.run(options("--plot", "x.png")) == 2
    assert "pip install matplotlib" in capsys.readouterr().err


def test_results_are_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    report = bench.Report("two processes")
    for size in (8, 1024):
        report.results.append(bench.Result("bcast", size, "us", 1, 1, [2.0, 3.0]))
    file = tmp_path / "bench.svg"
    chart.draw(report.as_dict(), str(file))
    assert file.read_bytes().startswith(b"<?xml")


def test_rows_show_the_best_of_their_unit():
    assert bench.Result("latency", 8, "us", 1, 1, [2.0, 3.0, 4.0]).best == 2
    result = bench.Result("bandwidth", 1 << 20, "bytes/s", 16, 1, [2e9, 3e9, 1e9])
    assert (result.best, result.median) == (3e9, 2e9)
    assert bench._row(result) == "     1 MiB        3,000.0        2,000.0"


def test_a_file_that_cannot_be_written_is_refused_before_it_is_measured(
    tmp_path, capsys
):
    assert bench.run(options("--json", str(tmp_path))) == 2
    assert "this is a directory" in capsys.readouterr().err
    assert bench.run(options("--json", str(tmp_path / "no/x.json"))) == 2
    assert "there is no directory" in capsys.readouterr().err
