# SPDX-License-Identifier: BSD-3-Clause
"""Handles and descriptions of what is in use."""

import pytest

import ucp
from ucp.testing import connected_pair


@pytest.mark.usefixtures("fresh_ucx")
def test_descriptions_need_no_event_loop():
    assert "ucp" in ucp.get_ucp_context_info().lower()
    assert ucp.get_ucp_worker_info()
    assert ucp.get_ucp_worker() > 0
    assert ucp.progress() == 0


@pytest.mark.usefixtures("fresh_ucx")
@pytest.mark.parametrize("transports", ["tcp", "posix,tcp"])
def test_active_transports_follow_the_options(transports):
    ucp.init(options={"TLS": transports})
    active = ucp.get_active_transports()
    assert set(transports.split(",")) <= active
    assert ("posix" in active) == ("posix" in transports)


async def test_an_endpoint_tells_its_handles():
    worker = ucp.get_ucp_worker()
    async with connected_pair() as (client, server):
        assert client.get_ucp_worker() == server.get_ucp_worker() == worker
        assert client.get_ucp_endpoint() > 0
        # Both endpoints lead to one worker, by the one endpoint that UCX needs.
        assert client.get_ucp_endpoint() == server.get_ucp_endpoint()
        assert client.uid != server.uid


async def test_an_endpoint_describes_itself():
    async with connected_pair() as (client, _server):
        assert client.ucx_info()
        assert client.cuda_support() in (True, False)
        assert client.transports()
        assert client.worker is ucp.current_worker()


async def test_a_closed_endpoint_still_describes_itself():
    async with connected_pair() as (client, _server):
        await client.close()
        assert client.ucx_info() == f"# {client!r}\n"
        assert client.get_ucp_endpoint() == 0


async def test_a_worker_counts():
    async with connected_pair() as (client, server):
        request = server.recv(bytearray(1))
        statistics = ucp.current_worker().statistics
        assert statistics.requests_in_use >= 1
        assert statistics.endpoints == 2
        await client.send(b"x")
        await request


async def test_continuous_progress_wants_the_running_loop():
    ucp.continuous_ucx_progress()
    with pytest.raises(
        RuntimeError, match=r"^only the running event loop can drive a worker$"
    ):
        ucp.continuous_ucx_progress(event_loop=object())
