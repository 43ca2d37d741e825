# SPDX-License-Identifier: BSD-3-Clause
"""What newer Pythons have for tasks works with requests."""

import asyncio
import os
import subprocess
import sys

import pytest

from ucp.testing import connected_pair

needs_314 = pytest.mark.skipif(sys.version_info < (3, 14), reason="new in 3.14")


@pytest.mark.skipif(sys.version_info < (3, 12), reason="new in 3.12")
async def test_an_eager_task_awaits_requests():
    async with connected_pair() as (client, server):
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
        try:
            receiving = asyncio.create_task(server.recv_obj())
            assert not receiving.done()
            sending = asyncio.create_task(client.send(b"eager"))
            await sending
            assert await receiving == b"eager"
        finally:
            asyncio.get_running_loop().set_task_factory(None)


@needs_314
async def test_the_call_graph_of_a_task_ends_at_the_request():
    async def receive(ep):
        await ep.recv(bytearray(1))

    async with connected_pair() as (client, server):
        task = asyncio.create_task(receive(server))
        await asyncio.sleep(0)
        graph = asyncio.capture_call_graph(task)
        assert graph is not None
        names = [entry.frame.f_code.co_name for entry in graph.call_stack]
        assert names == ["receive"]
        assert "receive" in asyncio.format_call_graph(task)
        await client.send(b"x")
        await task


@needs_314
async def test_asyncio_ps_shows_the_tasks_of_a_process():
    async def waits_for_a_message(ep):
        await ep.recv(bytearray(1))

    async with connected_pair() as (client, server):
        task = asyncio.create_task(waits_for_a_message(server), name="the receiver")
        await asyncio.sleep(0)
        done = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-P", "-m", "asyncio", "ps", str(os.getpid())],
            capture_output=True,
            text=True,
        )
        await client.send(b"x")
        await task
    if "ermission" in done.stderr or "not permitted" in done.stderr:
        pytest.skip("the system forbids to read the memory of a process")
    assert "the receiver" in done.stdout
    assert "waits_for_a_message" in done.stdout
