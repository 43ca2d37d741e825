# SPDX-License-Identifier: BSD-3-Clause
"""How long operations take, counted by worker and name."""

import asyncio
import json

import pytest
from script import run_script

import ucp
from ucp.testing import connected_pair


@pytest.fixture
def measuring():
    ucp.measure_latency()
    yield
    ucp.measure_latency(False)


async def exchange():
    async with connected_pair() as (client, server):
        for _ in range(3):
            await client.send(b"four")
            await server.recv(bytearray(4))
        receiving = server.recv(bytearray(4))
        sending = client.am_send(b"four")
        await sending
        await server.am_recv()
        await client.send(b"four")
        await receiving
        await client.flush()


@pytest.mark.usefixtures("measuring")
async def test_operations_are_counted_by_their_names():
    await exchange()
    found = ucp.latencies()
    assert found["send"].count == 4
    assert found["recv"].count == 4
    assert found["am_send"].count == found["am_recv"].count == 1
    assert found["flush"].count == 1
    assert found["connect"].count == found["accept"].count == 1
    assert 0 < found["connect"].percentile(50) <= found["connect"].max
    assert ucp.stats()["latencies"]["send"]["count"] == 4
    json.dumps(ucp.stats())


@pytest.mark.usefixtures("measuring")
async def test_a_wait_is_as_long_as_it_lasts():
    async with connected_pair() as (client, server):
        loop = asyncio.get_running_loop()
        begin = loop.time()
        receiving = server.recv(bytearray(4))
        await asyncio.sleep(0.02)
        await client.send(b"four")
        await receiving
        most = loop.time() - begin
        assert 0.02 <= ucp.latencies()["recv"].max <= most + 0.001


async def test_nothing_is_measured_at_first():
    before = ucp.latencies()
    await exchange()
    assert ucp.latencies() == before


def test_histograms_add_up():
    one = ucp.LatencyHistogram(2, 3e-9, 1e-9, 2e-9, {2: 1, 3: 1})
    two = ucp.LatencyHistogram(1, 2e-9, 2e-9, 2e-9, {3: 1})
    both = one + two
    assert (both.count, both.min, both.max) == (3, 1e-9, 2e-9)
    assert both.buckets == {2: 1, 3: 2}
    assert both.percentile(0) == both.percentile(30) == 1e-9
    assert both.percentile(50) == both.percentile(100) == 2e-9
    assert one + ucp.LatencyHistogram() == one == ucp.LatencyHistogram() + one
    with pytest.raises(TypeError):
        one + 1
    with pytest.raises(ValueError, match=r"^percent must be between 0 and 100, not"):
        one.percentile(101)
    assert ucp.LatencyHistogram().as_dict()["p99"] == 0


def test_percentiles_beyond_73_minutes_are_the_longest():
    last = 1 << 42  # ns: the limit of the last bucket, which has all above, too
    some = ucp.LatencyHistogram(4, 20004.0, 1.0, 9999.0, {1 << 31: 2, last: 2})
    assert some.percentile(50) == 2.147483647
    assert some.percentile(50.1) == some.percentile(100) == 9999.0
    short = ucp.LatencyHistogram(1, 1.0, 1.0, 1.0, {1 << 30: 1})
    both = some + short
    assert (both.count, both.max, both.percentile(99)) == (5, 9999.0, 9999.0)
    assert both.as_dict()["p999"] == 9999.0
    longest = ucp.LatencyHistogram(1, 1e9, 1e9, 1e9, {last: 1})
    assert longest.percentile(0) == longest.percentile(50) == 1e9


def test_the_environment_turns_it_on():
    run_script(
        """
        from script import PRELUDE
        exec(PRELUDE)

        async def main():
            await ping_pong()
            assert ucp.latencies()["send"].count == 2

        asyncio.run(main())
        assert ucp.latencies() == {}
        """,
        UCP_LATENCY="1",
        PYTHONPATH=__file__.rpartition("/observe/")[0],
    )
