# SPDX-License-Identifier: BSD-3-Clause
"""What programs of ucx-py look up inside an endpoint, and in its errors."""

import asyncio
import logging

import pytest

import ucp
from ucp.testing import connected_pair, until


async def test_the_worker_sees_a_message_of_the_endpoint(transport):
    async with connected_pair() as (client, server):
        tag = server._tags["msg_recv"]
        assert not server._ctx.worker.tag_probe(tag)
        await client.send(b"x")
        await until(lambda: server._ctx.worker.tag_probe(tag))
        await server.recv(bytearray(1))
        assert not server._ctx.worker.tag_probe(tag)


async def test_the_worker_sees_a_raw_tag(transport):
    async with connected_pair() as (client, server):
        await client.send(b"x", tag=5, force_tag=True)
        await until(lambda: server._ctx.worker.tag_probe(5))
        assert not server._ctx.worker.tag_probe(6)


async def test_the_endpoint_sees_an_active_message(transport):
    async with connected_pair() as (client, server):
        assert not server._ep.am_probe()
        await client.am_send(b"x")
        await until(server._ep.am_probe)


async def test_alive_until_the_peer_closes():
    async with connected_pair() as (client, server):
        assert server._ep.is_alive() and server._ep.handle
        server._ep.raise_on_error()
        await client.close()
        await until(lambda: not server._ep.is_alive())
        with pytest.raises(ucp.UCXConnectionReset, match=r"^Endpoint 0x.* error: E"):
            server._ep.raise_on_error()


async def test_without_error_handling_always_alive():
    listener = ucp.create_listener(host="127.0.0.1", endpoint_error_handling=False)
    client = await ucp.create_endpoint("127.0.0.1", listener.port, False)
    server = await anext(listener)
    client.abort()
    await until(server.closed)
    for ep in (client, server):
        assert ep._ep.is_alive()
        ep._ep.raise_on_error()
    listener.close()


@pytest.mark.parametrize(
    ("tag", "text"), [(None, "tag: None"), (7, "tag: 0x7"), ("name", "tag: 0x")]
)
async def test_an_error_names_endpoint_tag_and_length(tag, text):
    async with connected_pair() as (client, server):
        receive = asyncio.ensure_future(server.recv(bytearray(3), tag=tag))
        await asyncio.sleep(0)
        await client.close()
        with pytest.raises(ucp.UCXCanceled) as caught:
            await receive
        assert f"<[Recv] ep: {server.uid}, {text}" in str(caught.value)
        assert "nbytes: 3>" in str(caught.value)
        with pytest.raises(ucp.UCXCloseError):
            await client.send(b"x", tag=tag)


@pytest.mark.parametrize("size", [1, 1 << 20])
async def test_active_messages_count_for_close_after_n_recv(transport, size):
    async with connected_pair() as (client, server):
        server.close_after_n_recv(3)
        sends = [asyncio.ensure_future(client.am_send(bytes(size))) for _ in range(2)]
        sends.append(asyncio.ensure_future(client.send(b"x")))
        assert await server.am_recv() == bytes(size)
        await server.recv(bytearray(1))
        assert not server.closed()
        assert await server.am_recv() == bytes(size)
        await until(server.closed)
        await asyncio.gather(*sends)


async def test_reset_does_not_wait_for_an_endpoint_that_nobody_has_seen(fresh_ucx):
    seen = []
    listener = ucp.create_listener(seen.append, host="127.0.0.1")
    client = await ucp.create_endpoint("127.0.0.1", listener.port)
    assert seen == []  # the loop has not had its turn
    client.abort()
    listener.close()
    ucp.reset()


def test_init_tells_ucx_pys_logger(fresh_ucx, caplog):
    with caplog.at_level(logging.INFO, "ucx"):
        ucp.init({"SEG_SIZE": "9000"})
    assert "SEG_SIZE" in caplog.text


async def test_closing_what_has_failed_logs_ucx_pys_text(connect_peer, caplog):
    peer, ep = await connect_peer()
    peer.kill()
    await until(ep.closed)
    with caplog.at_level(logging.DEBUG, "ucp"):
        await ep.close()
    assert "UCXError('<[Send shutdown]" in caplog.text
