# SPDX-License-Identifier: BSD-3-Clause
"""Kill the peer: idle, with receives posted, with a big send under way."""

import asyncio
import os
import signal
import sys

import ucp
from ucp.testing import until

_PEER = """
import asyncio, os, ucp
async def main():
    # It may not outlive whoever was to kill it.
    asyncio.get_running_loop().add_reader(0, os._exit, 1)
    listener = ucp.create_listener(host="127.0.0.1")
    print(listener.port, flush=True)
    ep = await anext(listener)
    await ep.recv_obj()
    await ep.recv_obj()  # nothing comes: killed here
asyncio.run(main())
"""


async def run(count):
    for number in range(count):
        await _kill(number)
    return f"{count} kills"


async def _kill(number):
    peer = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-c", _PEER),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        port = int(await peer.stdout.readline())
        ep = await ucp.create_endpoint("127.0.0.1", port)
        pending = []
        await ep.send(b"hello")
        if number % 3 != 0:
            pending.append(asyncio.ensure_future(ep.recv(bytearray(8))))
        if number % 3 == 2:
            pending.append(asyncio.ensure_future(ep.send_many([bytes(4 << 20)] * 2)))
        await asyncio.sleep(0)
    finally:
        os.kill(peer.pid, signal.SIGKILL)
        await peer.wait()
    for task in pending:
        try:
            await task
            raise AssertionError("done by a dead peer")
        except ucp.UCXBaseException:
            pass
    await until(ep.closed)
    await ep.close()
