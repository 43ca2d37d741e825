# SPDX-License-Identifier: BSD-3-Clause
# tests: ucp/neighbours ucp/loader
"""ucxx beside ucp in one process: both use one UCX."""

from importlib.util import find_spec

import pytest
from script import run_script

PROGRAM = """
async def with_ucp():
    async with ucp.testing.connected_pair() as (client, server):
        sending = client.send(bytes(100_000))
        assert len(await server.recv_obj()) == 100_000
        await sending

async def with_ucxx():
    got, done = np.zeros(1000), asyncio.Event()

    async def serve(ep):
        array = np.empty(1000)
        await ep.recv(array)
        await ep.send(2 * array)
        await ep.close()
        done.set()

    listener = ucxx.create_listener(serve, 0)
    ep = await ucxx.create_endpoint("127.0.0.1", listener.port)
    await ep.send(np.ones(1000))
    await ep.recv(got)
    assert got.sum() == 2000
    await done.wait()
    await ep.close()
    listener.close()

async def main():
    await with_ucp()
    await with_ucxx()
    await asyncio.gather(with_ucxx(), with_ucp())

asyncio.run(main())
words = pathlib.Path("/proc/self/maps").read_text().split()
print(len({word for word in words if "/libucp.so" in word}))
"""


@pytest.mark.real_start
@pytest.mark.parametrize("first", ["ucp, ucxx", "ucxx, ucp"])
def test_both_exchange_messages(first):
    if find_spec("ucxx") is None:
        pytest.skip("ucxx is not installed")
    imports = f"import asyncio, pathlib, numpy as np\nimport {first}, ucp.testing\n"
    # It would warn of a listener that has accepted somebody, and is closed.
    assert run_script(imports + PROGRAM, UCXPY_LOG_LEVEL="ERROR") == "1\n"
