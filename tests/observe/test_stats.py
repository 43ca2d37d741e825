# SPDX-License-Identifier: BSD-3-Clause
# tests: ucp/observe worker/observe ext/observe
"""``ucp.stats()``: the counters of all workers of this process."""

import asyncio
import dataclasses
import json
import os
import threading

import pytest

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


async def test_what_ends_badly_is_counted_once():
    async with (
        connected_pair() as (client, server),
        ucp.Communicator.connect("tcp://127.0.0.1:1", 0, 1, name="world"),
    ):
        before = client.worker.statistics
        server.recv(bytearray(4)).cancel()
        receives = [server.recv(bytearray(1), tag=7) for _ in range(2)]
        await client.send(b"longer", tag=7)
        with pytest.raises(ucp.UCXError):
            await receives[0]
        client.abort()
        with pytest.raises(ucp.UCXError):
            await receives[1]
        [worker] = [
            each
            for each in ucp.stats()["workers"]
            if each["statistics"]["cancelled_operations"]
        ]
        after = worker["statistics"]
    assert (worker["rank"], worker["communicator"]) == (0, "world")
    assert after["cancelled_operations"] - before.cancelled_operations == 1
    assert after["failed_operations"] - before.failed_operations == 2
    assert after["failed_connections"] - before.failed_connections == 1


async def test_a_listener_counts_whom_it_does_not_take():
    async with ucp.create_listener(lambda ep: None, host="127.0.0.1") as listener:
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(b"GET / HTTP/1.0\r\n\r\n")
        await reader.read()
        statistics = ucp.current_worker().statistics
        assert (statistics.refused_connections, statistics.failed_connections) == (1, 0)
        writer.close()
