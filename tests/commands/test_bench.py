# SPDX-License-Identifier: BSD-3-Clause
# tests: ucp/pair ucp/service ucp/chart ucp/table
"""``python -m ucp bench``: what it measures, and between whom."""

import argparse
import asyncio
import importlib.util
import io
import json

import pytest
from command import ucp_command

import ucp
from ucp._commands import bench, chart, pair, service, table
from ucp._commands.pair import Order, Pair, PairError, follow, lead, verify
from ucp._run.terminal import Terminal
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
    table = done.stdout.partition("\n\n")[2].splitlines()
    assert table[0].split() == ["test", "size", "best", "median", "unit"]
    assert [line.split()[0] for line in table[1:5]] == tests.split(",")
    assert table[6].startswith("latency is half a round trip; bandwidth is one way")
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
        report.results.append(table.Result("bcast", size, "us", 1, 1, [2.0, 3.0]))
    file = tmp_path / "bench.svg"
    chart.draw(report.as_dict(), str(file))
    assert file.read_bytes().startswith(b"<?xml")


def test_rows_show_the_best_of_their_unit():
    assert table.Result("latency", 8, "us", 1, 1, [2.0, 3.0, 4.0]).best == 2
    result = table.Result("bandwidth", 1 << 20, "bytes/s", 16, 1, [2e9, 3e9, 1e9])
    assert (result.best, result.median) == (3e9, 2e9)
    assert table.row(result, None, Terminal(io.StringIO())) == (
        "bandwidth    1 MiB     3,000.0     2,000.0  MB/s"
    )


def test_a_file_that_cannot_be_written_is_refused_before_it_is_measured(
    tmp_path, capsys
):
    assert bench.run(options("--json", str(tmp_path))) == 2
    assert "this is a directory" in capsys.readouterr().err
    assert bench.run(options("--json", str(tmp_path / "no/x.json"))) == 2
    assert "there is no directory" in capsys.readouterr().err


def report_file(tmp_path, *results):
    """A file as --json writes it."""
    report = bench.Report("two processes")
    report.results += results
    file = tmp_path / "before.json"
    file.write_text(json.dumps(report.as_dict()))
    return str(file)


@pytest.mark.parametrize(
    ("unit", "before", "now", "change"),
    [
        ("us", [4.0, 5.0], [3.0, 2.0], "2 x faster"),
        ("us", [2.0, 2.1], [2.4, 2.5], "20 % slower"),
        ("us", [2.0, 4.0], [3.0, 5.0], "same"),
        ("bytes/s", [2e9, 2e9], [3e9, 3e9], "50 % faster"),
        ("messages/s", [100.0], [20.0], "5 x slower"),
        ("messages/s", [120.0], [1.0], "120 x slower"),
    ],
)
def test_results_are_compared_with_those_of_a_run_before(
    tmp_path, unit, before, now, change
):
    file = report_file(tmp_path, table.Result("rate", 8, unit, 1, 1, before))
    was = table.Before(file)
    result = table.Result("rate", 8, unit, 1, 1, now)
    line = table.row(result, was, Terminal(io.StringIO()))
    assert f"  {change:12}  " in line and len(line) <= 80
    other = table.row(
        table.Result("rate", 9, unit, 1, 1, now), was, Terminal(io.StringIO())
    )
    assert "faster" not in other and "slower" not in other and " - " in other


def test_a_run_elsewhere_is_told(tmp_path):
    before = table.Before(report_file(tmp_path))
    first, *others = before.describe(bench.machine(), "two processes")
    assert first.startswith("before: ") and others == []
    here = {**bench.machine(), "cpus": 1000}
    (other,) = before.describe(here, "3 ranks")[1:]
    assert other.endswith(", now 1000; between two processes, now 3 ranks")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "No such file or directory"),
        ("x", "this is no JSON: "),
        ("[]", "'bench --json FILE' has not written this"),
        ('{"machine": {}, "between": "", "results": [{}]}', "has not written this"),
        (
            '{"machine": {}, "between": "", "results": [{"test": "rate", "size": 8, '
            '"unit": "us", "window": 1, "count": 1, "values": []}]}',
            "has not written this",
        ),
    ],
)
def test_a_file_without_results_is_refused_before_it_is_measured(
    tmp_path, capsys, content, why
):
    file = tmp_path / "before.json"
    if content is not None:
        file.write_text(content)
    assert bench.run(options("--compare", str(file))) == 2
    assert f"python -m ucp bench: --compare {file}: " in (
        err := capsys.readouterr().err
    )
    assert why in err


def test_two_runs_are_compared(tmp_path):
    file = report_file(tmp_path, table.Result("rate", 8, "messages/s", 64, 1, [1e-9]))
    done = ucp_command("bench", *QUICK, "--tests", "rate", "--compare", file)
    assert (done.returncode, done.stderr) == (0, "")
    assert " x faster " in done.stdout and f"before: {file}, ucp " in done.stdout
