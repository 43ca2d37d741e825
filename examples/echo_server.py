# SPDX-License-Identifier: BSD-3-Clause
# python echo_server.py [PORT]
"""Send every message back, to any number of clients, until interrupted."""

import asyncio
import contextlib
import sys

import ucp


async def echo(ep):
    """Runs once for each client."""
    with contextlib.suppress(ucp.UCXCloseError):  # the client is done
        while True:
            await ep.send(await ep.recv_obj())


async def main():
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    async with ucp.create_listener(echo, port, host="127.0.0.1") as listener:
        print(f"listening on {listener.host}:{listener.port}", flush=True)
        await asyncio.Event().wait()


with contextlib.suppress(KeyboardInterrupt):
    asyncio.run(main())
