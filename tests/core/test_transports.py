# SPDX-License-Identifier: BSD-3-Clause
"""Which lanes a connection uses."""

import pytest

import ucp


@pytest.mark.usefixtures("fresh_ucx")
async def test_two_processes_of_one_host_share_memory(connect_peer):
    peer, ep = await connect_peer()
    names = {transport for transport, _device in ep.transports()}
    assert names & {"posix", "sysv"}
    assert set(await peer.do("[t for t, _ in ep.transports()]")) == names


@pytest.mark.usefixtures("fresh_ucx")
async def test_tcp_alone_is_tcp_alone(connect_peer):
    ucp.init(options={"TLS": "tcp"})
    _peer, ep = await connect_peer()
    assert {transport for transport, _device in ep.transports()} == {"tcp"}
