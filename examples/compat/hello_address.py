# SPDX-License-Identifier: BSD-3-Clause
# python examples/compat/hello_address.py            one side: prints where it listens
# python examples/compat/hello_address.py HOST PORT  the other side
# python examples/compat/hello_address.py --self     both sides, in two processes
"""Hello world without a listener: the sides exchange worker addresses over a socket.

A program may exchange worker addresses by any means. This one uses a TCP
connection, which it then closes. After that each side has an endpoint to the
worker of the other side. Tags distinguish the messages.
"""

import asyncio
import subprocess
import sys
import time

import ucp

GREETING, ANSWER = 1, 2  # tags
ROUNDS = 1000


async def swap_addresses(reader, writer):
    """Send the address of this worker; return an endpoint to the other worker."""
    mine = bytes(ucp.get_worker_address())
    writer.write(len(mine).to_bytes(4, "little") + mine)
    size = int.from_bytes(await reader.readexactly(4), "little")
    theirs = ucp.get_ucx_address_from_buffer(await reader.readexactly(size))
    writer.close()
    return await ucp.create_endpoint_from_worker_address(theirs)


async def wait_for_one():
    connections = asyncio.Queue()
    server = await asyncio.start_server(
        lambda *streams: connections.put_nowait(streams), "127.0.0.1", 0
    )
    print(f"listening on 127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    async with server:
        ep = await swap_addresses(*await connections.get())
    message = bytearray(11)
    for _ in range(ROUNDS):
        await ucp.recv(message, tag=GREETING)
        await ep.send(message.upper(), tag=ANSWER, force_tag=True)
    print(message.decode())
    await ep.close()


async def greet(host, port):
    ep = await swap_addresses(*await asyncio.open_connection(host, port))
    answer = bytearray(11)
    times = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        await ep.send(b"hello world", tag=GREETING, force_tag=True)
        await ucp.recv(answer, tag=ANSWER)
        times.append(time.perf_counter() - begun)
    print(answer.decode())
    print(f"a round trip takes {min(times) * 1e6:.1f} us")
    await ep.close()


def both_sides():
    """Start the other side as a process, and connect to it."""
    command = [sys.executable, "-P", __file__]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        try:
            host, port = other.stdout.readline().split()[-1].split(":")
            asyncio.run(greet(host, int(port)))
            print(other.stdout.read(), end="")
        except BaseException:
            other.kill()
            raise


try:
    if sys.argv[1:] == ["--self"]:
        both_sides()
    elif len(sys.argv) == 1:
        asyncio.run(wait_for_one())
    else:
        asyncio.run(greet(sys.argv[1], int(sys.argv[2])))
except KeyboardInterrupt:
    sys.exit(130)
