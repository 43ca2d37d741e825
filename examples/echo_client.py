# SPDX-License-Identifier: BSD-3-Clause
# python examples/echo_client.py HOST PORT
# python examples/echo_client.py --self     with a server of its own
"""Send messages of different lengths to echo_server.py and compare the echo."""

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import ucp

MESSAGES = [b"hello", b"", bytes(1000), b"x" * 100_000, bytes(range(256)) * 8192]
ROUNDS = 1000


async def main(host, port):
    async with ucp.connect(host, port) as ep:
        for message in MESSAGES:
            await ep.send(message)
            if await ep.recv_obj() != message:
                sys.exit("a message came back changed")
        print(f"{len(MESSAGES)} messages came back")

        begun = time.perf_counter()
        for _ in range(ROUNDS):
            await ep.send(b"hello")
            await ep.recv_obj()
        seconds = (time.perf_counter() - begun) / ROUNDS
    print(f"a round trip takes {seconds * 1e6:.1f} us")


def with_server():
    """Start echo_server.py, and end it when the echo has come."""
    command = [sys.executable, "-P", Path(__file__).with_name("echo_server.py")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            host, port = server.stdout.readline().split()[-1].split(":")
            asyncio.run(main(host, int(port)))
        finally:
            server.terminate()


try:
    if sys.argv[1:] == ["--self"]:
        with_server()
    elif len(sys.argv) == 3:
        asyncio.run(main(sys.argv[1], int(sys.argv[2])))
    else:
        sys.exit("usage: python echo_client.py HOST PORT, or --self")
except OSError as exc:  # refused, unreachable, no such host, timed out
    sys.exit(f"cannot connect to {':'.join(sys.argv[1:])}: {exc}")
except KeyboardInterrupt:
    sys.exit(130)
