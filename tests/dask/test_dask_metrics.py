# SPDX-License-Identifier: BSD-3-Clause
"""``/metrics`` of Dask's schedulers and workers has those of ucp."""

import re

import pytest
from script import run_script

pytest.importorskip("distributed", reason="distributed is missing")
pytest.importorskip("prometheus_client", reason="prometheus_client is missing")

CLUSTER = """
import asyncio, logging, sys, urllib.request
import dask.config
import numpy as np
import prometheus_client
from distributed import Client, Scheduler, Worker
import ucp

logging.getLogger("distributed").setLevel(logging.ERROR)

def fetch(port):
    url = f"http://127.0.0.1:{port}/metrics"
    with urllib.request.urlopen(url, timeout=20) as answer:
        return answer.read().decode()

async def main():
    options = {"protocol": "ucp", "host": "127.0.0.1"}
    options["dashboard_address"] = "127.0.0.1:0"
    async with Scheduler(port=0, **options) as scheduler:
        async with Worker(scheduler.address, nthreads=1, **options) as worker:
            async with Client(scheduler.address, asynchronous=True) as client:
                assert await client.submit(np.sum, np.arange(5)) == 10
                ports = {scheduler.http_server.port, worker.http_server.port}
                for port in ports:
                    print(await asyncio.to_thread(fetch, port))
                print(await client.submit(np.sum, np.arange(5)))
"""
START = "\nasyncio.run(main())\n"


def test_metrics_of_dask_have_those_of_ucp():
    text = run_script(CLUSTER + START)
    assert "dask_scheduler_workers" in text
    assert re.search(r'^ucp_sent_bytes_total\{worker="1"\} [1-9]', text, re.M)
    assert re.search(r'^ucp_peer_info\{.*transports="[a-z]', text, re.M)
    sent = re.findall(r'^ucp_peer_sent_bytes_total\{.*peer="127', text, re.M)
    assert len(sent) >= 2


def test_metrics_are_left_out_if_the_configuration_says_so():
    text = run_script(
        f"{CLUSTER}\ndask.config.set({{'distributed.comm.ucp.metrics': False}}){START}"
    )
    assert "dask_scheduler_workers" in text
    assert "ucp_" not in text


def test_a_program_that_has_registered_them_itself_keeps_its_own():
    text = run_script(f"{CLUSTER}\nucp.prometheus_collector(){START}")
    assert 'ucp_sent_bytes_total{worker="1"}' in text
    assert "ucp_peer_info" not in text


def test_without_prometheus_a_cluster_works():
    text = run_script(
        CLUSTER.replace(
            "import prometheus_client\n", "sys.modules['prometheus_client'] = None\n"
        )
        + START
    )
    assert text.endswith("10\n")
