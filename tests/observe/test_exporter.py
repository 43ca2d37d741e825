# SPDX-License-Identifier: BSD-3-Clause
# tests: ucp/families
"""``python -m ucp metrics``, and the dashboard and alerts that read it."""

import argparse
import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request

import pytest
from command import ucp_command
from paths import ROOT

import ucp
from ucp._commands import metrics as command
from ucp._observe import families, metrics, page
from ucp.testing import connected_pair

DASHBOARD = ROOT / "packaging/grafana/ucp-dashboard.json"
ALERTS = ROOT / "packaging/prometheus/ucp-alerts.yaml"
ALERTS_TEST = ROOT / "packaging/prometheus/ucp-alerts-test.yaml"


@contextlib.contextmanager
def exporter(listen="127.0.0.1:0"):
    """The URL of a running exporter, which Ctrl-C ends."""
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "ucp", "metrics", "--listen", listen],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process.stdout.readline().split()[-1]
        finally:
            process.send_signal(signal.SIGINT)
            _, said = process.communicate()
    assert "Traceback" not in said


def fetch(url, accept="*/*"):
    """The content type and text of an answer."""
    request = urllib.request.Request(url, headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=20) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def samples_of(parser, text):
    """The samples with a pid, by name."""
    found = {}
    for family in parser.text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append(sample)
    return found


def rank():
    """A communicator of this process alone."""
    return ucp.Communicator.connect("tcp://127.0.0.1:1", 0, 1, name="world")


async def test_the_processes_of_a_host_are_exported():
    pytest.importorskip("prometheus_client")
    from prometheus_client import parser
    from prometheus_client.openmetrics import parser as openmetrics

    async with connected_pair() as (client, server), rank():
        await client.send(b"four")
        await server.recv(bytearray(4))
        server.recv(bytearray(4)).cancel()
        lanes = client.transports()
        with exporter() as url:
            kind, text = await asyncio.to_thread(fetch, url)
            new_kind, new = await asyncio.to_thread(
                fetch, url, "application/openmetrics-text; version=1.0.0,*/*;q=0.1"
            )
    assert kind.startswith("text/plain; version=0.0.4")
    assert new_kind == ucp.METRICS_CONTENT_TYPE
    for found in (samples_of(parser, text), samples_of(openmetrics, new)):
        own = [
            sample
            for sample in found["ucp_sent_bytes_total"]
            if sample.labels["pid"] == str(os.getpid())
        ]
        labels = own[-1].labels
        assert labels["name"] == page.program_of(os.getpid())
        assert (labels["rank"], labels["communicator"]) == ("0", "world")
        assert sum(sample.value for sample in own) >= 4
        assert sum(s.value for s in found["ucp_cancelled_operations_total"]) >= 1
        by_host = [
            sample
            for sample in found["ucp_peer_host_sent_bytes_total"]
            if sample.labels["pid"] == str(os.getpid())
        ]
        assert {sample.labels["peer_host"] for sample in by_host} == {"localhost"}
        assert sum(each.value for each in by_host) == sum(each.value for each in own)
        assert {lane for lane, _ in lanes} <= {
            sample.labels["transport"]
            for sample in found["ucp_transport_info"]
            if sample.labels["pid"] == str(os.getpid())
        }
        assert found["ucp_exporter_processes"][0].value >= 1
        assert os.getpid() in {int(s.labels["pid"]) for s in found["ucp_process_info"]}


async def test_a_process_that_is_stopped_is_exported():
    source = """
    import asyncio, ucp
    from ucp.testing import connected_pair

    async def main():
        async with connected_pair():
            print("ready", flush=True)
            await asyncio.Event().wait()

    asyncio.run(main())
    """
    with subprocess.Popen(
        [sys.executable, "-P", "-c", "\n".join(s[4:] for s in source.splitlines())],
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        try:
            assert other.stdout.readline() == "ready\n"
            os.kill(other.pid, signal.SIGSTOP)
            done = ucp_command("metrics")
        finally:
            other.kill()
    assert (done.returncode, done.stderr) == (0, "")
    line = re.compile(rf'ucp_endpoints{{pid="{other.pid}",name="[^"]+",worker="1"}} 2')
    assert len(line.findall(done.stdout)) == 1


def test_there_is_one_page_only():
    with exporter() as url:
        base = url.removesuffix("/metrics")
        assert "/metrics" in fetch(base)[1]
        with pytest.raises(urllib.error.HTTPError, match="404: there is /metrics only"):
            fetch(f"{base}/other")


def test_a_port_in_use_is_told():
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        done = ucp_command("metrics", "--listen", f"127.0.0.1:{port}")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"python -m ucp metrics: cannot listen on 127.0.0.1:{port}: "
        "Address already in use\n"
    )


def test_without_a_host_all_addresses_are_meant():
    assert command._address(":9400") == command.Address("", 9400)
    assert command._address("[::1]:9400") == command.Address("::1", 9400)
    assert str(command.Address("::1", 9400)) == "[::1]:9400"


@pytest.mark.parametrize("text", ["", "host", "host:", ":x", ":65536", ":\u0663"])
def test_what_is_no_address_is_told(text):
    with pytest.raises(argparse.ArgumentTypeError, match=r"HOST:PORT|at most 65535"):
        command._address(text)


@pytest.mark.parametrize(
    ("line", "name"),
    [
        (["/srv/prog.py", "argument"], "prog.py"),
        (["-P", "-W", "error", "-X", "dev", "/srv/prog.py"], "prog.py"),
        (["-m", "package.module", "-v"], "package.module"),
        (["-mpackage"], "package"),
        (["-c", "secret"], ""),
        (["-"], ""),
        ([], ""),
    ],
)
def test_a_program_is_named_by_its_script(line, name):
    assert page._script_of(line) == name


# ---- what reads them -----------------------------------------------------------


@pytest.fixture(scope="module")
def exported():
    """The names of all samples that the exporter has, also of histograms."""
    zeros = dict.fromkeys(page._FIELDS, 0)
    worker = page.WorkerCounters(1, 1.0, 2.0, page.statistics_of(zeros), 0, "world")
    host = page.HostCounters(1, "10.0.0.2", ("tcp",), 1, 2, 3, 4)
    process = page.ProcessStatistics(
        os.getpid(), "prog", "1.0", 1.0, (worker,), (host,)
    )
    found = [*command.families(), *families.of_host([process])]
    return {
        family.name + suffix for family in found for suffix, _, _ in family.samples
    }, {
        label for family in found for _, labels, _ in family.samples for label in labels
    }


def names_in(expression):
    return set(re.findall(r"\bucp_\w+", expression))


def labels_in(expression):
    """What an expression selects and groups by."""
    found = set(re.findall(r"(\w+)\s*(?:=~|!=|=)\s*\"", expression))
    for group in re.findall(r"\bby \(([^)]*)\)", expression):
        found |= {label.strip() for label in group.split(",")}
    return found - {"instance"}  # Prometheus adds it


def expressions_of_dashboard():
    dashboard = json.loads(DASHBOARD.read_text())
    for panel in dashboard["panels"]:
        assert panel["title"] and panel["description"]
        for target in panel["targets"]:
            yield target["expr"]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"]


def test_the_dashboard_asks_for_what_is_exported(exported):
    names, labels = exported
    asked = list(expressions_of_dashboard())
    assert set().union(*map(names_in, asked)) <= names
    assert set().union(*map(labels_in, asked)) <= labels
    assert all(names_in(each) for each in asked)


def test_the_alerts_ask_for_what_is_exported(exported):
    yaml = pytest.importorskip("yaml")
    names, labels = exported
    [group] = yaml.safe_load(ALERTS.read_text())["groups"]
    assert len(group["rules"]) == 4
    for rule in group["rules"]:
        assert names_in(rule["expr"])
        assert names_in(rule["expr"]) <= names
        assert labels_in(rule["expr"]) <= labels
        assert re.fullmatch(r"\d+m", rule["for"])
        told = " ".join(rule["annotations"].values())
        assert set(re.findall(r"\$labels\.(\w+)", told)) <= labels | {"instance"}
        assert rule["expr"].count("(") == rule["expr"].count(")")


def test_other_hosts_are_a_series_if_there_are_any():
    zeros = dict.fromkeys(page._FIELDS, 0)
    workers = tuple(
        page.WorkerCounters(number, 1.0, None, page.statistics_of(zeros))
        for number in (1, 2)
    )
    hosts = (
        page.HostCounters(1, "other", (), 0, 0, 0, 0),
        page.HostCounters(2, "other", (), 1, 0, 0, 0),
        page.HostCounters(2, "10.0.0.2", ("tcp", "self"), 1, 2, 3, 4),
    )
    process = page.ProcessStatistics(1, "prog", "1.0", 1.0, workers, hosts)
    samples = {
        (family.name, sample[1]["worker"], sample[1]["peer_host"]): sample[2]
        for family in families.of_host([process])
        for sample in family.samples
        if "peer_host" in sample[1] and "transport" not in sample[1]
    }
    assert {(worker, host) for _, worker, host in samples} == {
        ("2", "other"),
        ("2", "10.0.0.2"),
    }
    assert samples["ucp_peer_host_sent_messages", "2", "other"] == 1
    assert samples["ucp_peer_host_received_bytes", "2", "10.0.0.2"] == 4


# ---- as Prometheus reads them ---------------------------------------------------


def promtool(*arguments, text=None):
    """What promtool prints; it has nothing to complain about."""
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("there is no promtool, which is part of Prometheus")
    done = subprocess.run(
        [program, *arguments],
        input=text,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


async def test_promtool_finds_no_fault_with_the_metrics():
    async with connected_pair() as (client, _server), rank():
        await client.send(b"four")
        done = await asyncio.to_thread(ucp_command, "metrics")
        assert "ucp_transport_info{" in done.stdout
        assert promtool("check", "metrics", text=done.stdout) == ""


def test_promtool_reads_the_alerts():
    assert "SUCCESS: 4 rules found" in promtool("check", "rules", ALERTS)


def test_alerts_fire_when_they_are_to_and_only_then():
    yaml = pytest.importorskip("yaml")
    [group] = yaml.safe_load(ALERTS.read_text())["groups"]
    tests = yaml.safe_load(ALERTS_TEST.read_text())["tests"]
    asked = [each for test in tests for each in test["alert_rule_test"]]
    for rule in group["rules"]:
        fires = [
            bool(each["exp_alerts"])
            for each in asked
            if each["alertname"] == rule["alert"]
        ]
        assert set(fires) == {False, True}
    assert "SUCCESS" in promtool("test", "rules", ALERTS_TEST)


def test_promtool_reads_each_expression_of_the_dashboard(tmp_path):
    variables = {"$__rate_interval": "1m", "$instance": ".*", "$name": ".*"}
    rules = []
    for expression in expressions_of_dashboard():
        if expression.startswith("label_values("):
            continue
        for name, value in variables.items():
            expression = expression.replace(name, value)
        assert "$" not in expression
        rules.append({"record": f"ucp:panel{len(rules)}", "expr": expression})
    path = tmp_path / "rules.yaml"
    path.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    assert f"SUCCESS: {len(rules)} rules found" in promtool("check", "rules", path)


def test_the_old_text_has_the_samples_of_the_new_one():
    found = [
        families.Family("ucp_a", "counter", "", "A.", [("_total", {"x": '"'}, 1)]),
        families.Family("ucp_b", "info", "", "B.", [("_info", {}, 1)]),
    ]
    assert metrics.old_text(found) == (
        "# HELP ucp_a_total A.\n# TYPE ucp_a_total counter\n"
        'ucp_a_total{x="\\""} 1\n'
        "# HELP ucp_b_info B.\n# TYPE ucp_b_info gauge\nucp_b_info 1\n"
    )
