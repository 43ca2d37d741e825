# SPDX-License-Identifier: BSD-3-Clause
"""Metrics are OpenMetrics, and what the workers have counted."""

import asyncio
import re
import subprocess
import sys

import pytest
from paths import ROOT
from script import run_script

import ucp
from ucp.testing import connected_pair

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
SAMPLE = re.compile(
    rf"({NAME})(?:\{{((?:[a-z_]+=\"(?:[^\"\\\n]|\\[n\"\\])*\",?)*)\}})? (\S+)"
)
SUFFIXES = {
    "counter": {"_total"},
    "gauge": {""},
    "histogram": {"_bucket", "_count", "_sum"},
    "info": {"_info"},
}


def parsed(text):
    """Values by name and labels; the text has OpenMetrics' main rules."""
    lines = text.split("\n")
    assert lines[-2:] == ["# EOF", ""]
    kinds, values = {}, {}
    name = ""
    for line in lines[:-2]:
        if line.startswith("# "):
            what, its, rest = line[2:].split(" ", 2)
            if what == "TYPE":
                assert its not in kinds
                kinds[its], name = rest, its
            assert its == name
            assert what in ("TYPE", "HELP", "UNIT")
            if what == "UNIT":
                assert name.endswith(f"_{rest}")
            continue
        found = SAMPLE.fullmatch(line)
        assert found is not None, line
        assert found[1].startswith(name)
        assert found[1].removeprefix(name) in SUFFIXES[kinds[name]]
        assert (found[1], found[2]) not in values
        values[found[1], found[2]] = float(found[3])
    return kinds, values


@pytest.fixture
def measuring():
    ucp.measure_latency()
    yield
    ucp.measure_latency(False)


async def exchange(client, server):
    await client.send(b"four")
    await server.recv(bytearray(4))


@pytest.mark.usefixtures("measuring")
async def test_the_text_has_the_numbers_of_workers():
    async with connected_pair() as (client, server):
        await exchange(client, server)
        kinds, values = parsed(ucp.metrics())
        assert kinds["ucp_sent_bytes"] == "counter"
        assert kinds["ucp_endpoints"] == "gauge"
        number = max(worker["number"] for worker in ucp.stats()["workers"])
        label = f'worker="{number}"'
        assert values["ucp_sent_bytes_total", label] == 4
        assert values["ucp_endpoints", label] == 2
        operation = f'{label},operation="send"'
        name = "ucp_operation_duration_seconds"
        assert values[f"{name}_count", operation] == 1
        buckets = [
            value
            for (its, labels), value in values.items()
            if its == f"{name}_bucket" and labels.startswith(operation)
        ]
        assert len(buckets) == 30
        assert buckets == sorted(buckets)
        assert buckets[-1] == 1
        assert values["ucp_build_info", f'version="{ucp.__version__}",'
                      f'ucx_version="{ucp.which_ucx().version}"'] == 1  # fmt: skip


async def test_the_text_has_bytes_by_peer_if_that_is_asked_for():
    async with connected_pair() as (client, server):
        await exchange(client, server)
        _, values = parsed(ucp.metrics(peers=True))
        host, port = client.peer[:2]
        label = f'endpoint="{client.uid}",peer="{host}:{port}"'
        assert values["ucp_peer_sent_bytes_total", label] == 4
        assert values["ucp_peer_sent_messages_total", label] == 1
        assert values["ucp_peer_received_bytes_total", label] == 0
        lanes = {transport for transport, _ in client.transports()}
        name = f'{label},transports="{",".join(sorted(lanes))}"'
        assert values["ucp_peer_info", name] == 1
        assert "ucp_peer_sent_bytes" not in ucp.metrics()
        elsewhere = await asyncio.to_thread(ucp.metrics, peers=True)
        assert "ucp_peer_info{" not in elsewhere
    assert "ucp_peer_info{" not in ucp.metrics(peers=True)


async def test_the_text_has_bytes_by_host():
    async with connected_pair() as (client, server):
        await exchange(client, server)
        _, values = parsed(ucp.metrics())
        number = max(worker["number"] for worker in ucp.stats()["workers"])
        label = f'worker="{number}",peer_host="localhost"'
        assert values["ucp_peer_host_sent_bytes_total", label] == 4
        assert values["ucp_peer_host_received_messages_total", label] == 1
        for transport, _ in client.transports():
            name = f'{label},transport="{transport}"'
            assert values["ucp_transport_info", name] == 1


def test_labels_are_escaped():
    from ucp._observe import metrics

    assert metrics._labels({"a": 'x\\y"z\n'}) == r'{a="x\\y\"z\n"}'


@pytest.mark.usefixtures("measuring")
async def test_prometheus_reads_the_text_and_collects_the_same():
    pytest.importorskip("prometheus_client")
    from prometheus_client import CollectorRegistry
    from prometheus_client.openmetrics import exposition, parser

    async with connected_pair() as (client, server):
        await exchange(client, server)
        registry = CollectorRegistry()
        collector = ucp.prometheus_collector(registry)
        ours = list(parser.text_string_to_metric_families(ucp.metrics()))
        text = exposition.generate_latest(registry).decode()
        theirs = list(parser.text_string_to_metric_families(text))
        assert {family.name: family.type for family in ours} == {
            family.name: family.type for family in theirs
        }
        [sent] = [family for family in theirs if family.name == "ucp_sent_bytes"]
        assert 4 in [sample.value for sample in sent.samples]
        registry.unregister(collector)


def test_prometheus_takes_the_metrics_once():
    client = pytest.importorskip("prometheus_client")
    registry = client.CollectorRegistry()
    collector = ucp.prometheus_collector(registry)
    before = client.generate_latest(registry)
    with pytest.raises(ValueError, match=r"^the metrics of ucp are in this registry a"):
        ucp.prometheus_collector(registry)
    assert client.generate_latest(registry).count(b"# TYPE") == before.count(b"# TYPE")
    with pytest.raises(ValueError, match="Duplicated"):
        client.Gauge("ucp_endpoints", "Mine.", registry=registry)
    only = registry.restricted_registry(["ucp_build_info"])
    assert client.generate_latest(only).count(b"# TYPE") == 1
    registry.unregister(collector)
    registry.unregister(ucp.prometheus_collector(registry))
    assert client.generate_latest(registry) == b""
    client.Gauge("ucp_endpoints", "Mine.", registry=registry)
    with pytest.raises(ValueError, match=r"or others of their names: .*ucp_endpoints"):
        ucp.prometheus_collector(registry)


def test_without_prometheus_the_error_says_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)  # as if missing
    with pytest.raises(ImportError, match=r"pip install prometheus-client; ucp\.metr"):
        ucp.prometheus_collector()


def test_an_example_serves_the_metrics():
    program = [sys.executable, "-P", str(ROOT / "examples/metrics_server.py")]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as server:
        try:
            url = server.stdout.readline().split()[-1]
            text = run_script(
                "import sys, urllib.request\n"
                "with urllib.request.urlopen(sys.argv[1], timeout=20) as answer:\n"
                "    assert 'openmetrics' in answer.headers['Content-Type']\n"
                "    print(answer.read().decode(), end='')",
                url,
            )
        finally:
            server.terminate()
    kinds, values = parsed(text)
    assert kinds["ucp_operation_duration_seconds"] == "histogram"
    assert any(name == "ucp_sent_messages_total" for name, _ in values)
