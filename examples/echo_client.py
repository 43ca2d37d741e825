# SPDX-License-Identifier: BSD-3-Clause
# python examples/echo_client.py HOST PORT
"""Send messages of different lengths to echo_server.py and compare the echo."""

import asyncio
import sys

import ucp

MESSAGES = [b"hello", b"", bytes(1000), b"x" * 100_000, bytes(range(256)) * 8192]


async def main(host, port):
    async with ucp.connect(host, port) as ep:
        for message in MESSAGES:
            await ep.send(message)
            if await ep.recv_obj() != message:
                sys.exit("a message came back changed")
    print(f"{len(MESSAGES)} messages came back")


if len(sys.argv) != 3:
    sys.exit("usage: python echo_client.py HOST PORT")
try:
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
except OSError as exc:  # refused, unreachable, no such host, timed out
    sys.exit(f"cannot connect to {sys.argv[1]}:{sys.argv[2]}: {exc}")
except KeyboardInterrupt:
    sys.exit(130)
