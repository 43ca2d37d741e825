# SPDX-License-Identifier: BSD-3-Clause
# tests: ucp/observe core/observe ext/observe
"""``ucp.stats()``: the counters of all workers of this process."""

import asyncio
import dataclasses
import json
import os
import threading

import ucp
from ucp.testing import connected_pair

# Those of requests are of the last drain.
NAMES = [
    field.name
    for field in dataclasses.fields(ucp.WorkerStatistics)
    if "requests" not in field.name
]


async def test_the_numbers_are_json_and_those_of_the_worker():
    async with connected_pair() as (client, server):
        await client.send(b"four")
        await server.recv(bytearray(4))
        its = json.loads(json.dumps(ucp.stats()))
        assert (its["pid"], its["version"]) == (os.getpid(), ucp.__version__)
        assert its["ucx_version"] == ucp.which_ucx().version
        numbers = client.worker.statistics.as_dict()
        assert [numbers[name] for name in NAMES] in [
            [worker["statistics"][name] for name in NAMES] for worker in its["workers"]
        ]


def test_any_thread_reads_workers_of_all_threads():
    ready, over = threading.Barrier(3), threading.Event()

    async def work():
        async with connected_pair() as (client, server):
            await client.send(b"four")
            await server.recv(bytearray(4))
            await asyncio.to_thread(ready.wait, 30)
            while not over.is_set():
                await client.send(b"four")
                await server.recv(bytearray(4))

    before = {worker["number"] for worker in ucp.stats()["workers"]}
    threads = [threading.Thread(target=asyncio.run, args=[work()]) for _ in range(2)]
    for thread in threads:
        thread.start()
    ready.wait(30)
    last = [0, 0]
    for _ in range(50):
        new = [
            worker["statistics"]
            for worker in ucp.stats()["workers"]
            if worker["number"] not in before
        ]
        counts = [numbers["sent_messages"] for numbers in new]
        assert all(old <= now for old, now in zip(last, counts, strict=True))
        last = counts
    over.set()
    for thread in threads:
        thread.join()
    assert all(count > 0 for count in last)
