# SPDX-License-Identifier: BSD-3-Clause
# python examples/echo_server.py [PORT]
"""Send every message back, to any number of clients, until interrupted."""

import asyncio
import contextlib
import sys

import ucp


async def echo(ep):
    """Serve one client."""
    # The client may close before an echo is sent.
    with contextlib.suppress(ucp.UCXCloseError):
        async for message in ep:  # until the client closes
            await ep.send(message)


async def main():
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    async with ucp.create_listener(echo, port, host="127.0.0.1") as listener:
        print(f"listening on {listener.host}:{listener.port}", flush=True)
        await listener.serve_forever()


try:
    asyncio.run(main())
except KeyboardInterrupt:  # Ctrl-C: as a shell reports it
    sys.exit(130)
